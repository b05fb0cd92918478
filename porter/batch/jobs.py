"""The list of a batch: a CSV or TOML file, as the jobs that it asks for."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from porter.base.commands import CONVERT, RECIPE_LIST
from porter.base.errors import FileError, UsageError
from porter.base.options import FROM, JSON, OUT, OVERWRITE, SUBJECT, TO, Option
from porter.recipe import known_variants
from porter.recipe.spelling import hint

TABLE = "ports"
"""The array of tables in a TOML list."""
EVERY_ZOO = "*"
_MOST_BYTES = 1 << 24
_MOST_JOBS = 100_000
_NOT_LISTED = OUT, OVERWRITE, JSON
"""Options of `porter convert` that the batch itself gives."""
_YES, _NO = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True)
class Job:
    """One port.

    Attributes:
        name: of its folder and of its result, the same for the same line wherever it stands in the list.
        subject: a variant, a file or a folder.
        source: the zoo or the framework after `--from`; None for a file.
        to: the destination.
        words: what is typed behind the program, usually `porter convert`, without `--out`.
        digest: what changes where these words do, or a file that they name.
    """

    name: str
    subject: str
    source: str | None
    to: str
    words: tuple[str, ...]
    digest: str


def _digest(words: Sequence[str]) -> str:
    """Return a digest that changes where the words of a job do, or the size or the time of a file that they
    name.
    """
    files = (Path(word) for word in words if not word.startswith("-"))
    stated = [(str(file), stat.st_size, stat.st_mtime_ns) for file in files for stat in _stats(file)]
    return sha256(repr((tuple(words), stated)).encode()).hexdigest()


def _stats(file: Path) -> Iterator[Any]:
    """Yield what the system knows of a file, or nothing if the file does not exist."""
    try:
        yield file.stat()
    except (OSError, ValueError):  # ValueError: the name has NUL
        return


def read_jobs(path: Path) -> tuple[Job, ...]:
    """Read a list of ports to make, and return a job for each.

    A CSV file has a column `subject`, the columns `from` and `to`, and one for any other option of `porter
    convert`, by its name without the dashes. A TOML file has a table `[[ports]]` with these keys for each
    line. `from` and `to` may name several, in CSV with spaces between them; a subject with `*` or `?` stands
    for the variants of that name, and `from = "*"` for every zoo that has the variant. What these give is
    combined.

    Raises:
        FileError: the file cannot be read, or is not such a list.
        UsageError: a line lacks the subject, has a column that is no option, asks for nothing that there is,
            or asks for the same as another one.
    """
    lines = _toml_lines(path) if path.suffix == ".toml" else _csv_lines(path)
    jobs: dict[str, Job] = {}
    places: dict[str, str] = {}
    for place, line in lines:
        for job in _jobs_of(place, line):
            if job.name in jobs:
                raise UsageError(
                    f"'{job.name}' is asked for twice", where=place, next=f"see {places[job.name]}, too"
                )
            jobs[job.name], places[job.name] = job, place
            if len(jobs) > _MOST_JOBS:
                raise UsageError(f"more than {_MOST_JOBS:,} ports", where=path, next="cut the list in parts")
    if not jobs:
        raise FileError("the list has no line", where=path, next="give it a column 'subject', and lines")
    return tuple(jobs.values())


def _text(path: Path) -> str:
    """Return the text of the list.

    Raises:
        FileError: it is too large, no UTF-8, or cannot be read.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise FileError(f"the list has more than {_MOST_BYTES:,} bytes", where=path, next="cut it")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FileError(f"the list cannot be read: {error.strerror}", where=path) from None
    except UnicodeDecodeError:
        raise FileError("the list is no text in UTF-8", where=path, next="save it as CSV or TOML") from None


def _csv_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place of each line that is not empty, and its values by column; `from` and `to` are lists.

    Raises:
        UsageError: a line has more values than there are columns.
    """
    reader = csv.DictReader(_text(path).splitlines(), skipinitialspace=True)
    try:
        for line in reader:
            place = f"{path}:{reader.line_num}"
            if None in line:
                raise UsageError("the line has more values than there are columns", where=place)
            cells = {key.strip(): value.strip() for key, value in line.items() if value and value.strip()}
            lists = {key: cells[key].split() for key in ("from", "to") if key in cells}
            if cells:
                yield place, {**cells, **lists}
    except csv.Error as error:
        raise FileError(f"the list is no CSV: {error}", where=f"{path}:{reader.line_num}") from None


def _toml_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place of each table `[[ports]]`, and its values by key.

    Raises:
        FileError: the list is no TOML, or has no such tables.
    """
    try:
        stated = tomllib.loads(_text(path))
    except (ValueError, RecursionError) as error:  # also of a number of too many digits, and deep brackets
        raise FileError(f"the list is no TOML: {error}", where=path) from None
    lines = stated.get(TABLE)
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        raise FileError(f"expected [[{TABLE}]] tables", where=path, next="give each a 'subject'")
    yield from ((f"{path}, port {number}", line) for number, line in enumerate(lines, 1))


def _jobs_of(place: str, line: Mapping[str, Any]) -> Iterator[Job]:
    """Yield a job for each combination of subject, source and destination that a line asks for.

    Args:
        place: of the line, for errors.

    Raises:
        UsageError: a column has the name of no option, a line has no subject, no variant has the name, or a
            text has NUL.
    """
    options = _options()
    wrong = next((key for key in line if key not in options), None)
    if wrong is not None:  # '' is a column whose heading is empty
        raise UsageError(f"'{wrong}' is no column of such a list", where=place, next=hint(wrong, options))
    if "subject" not in line:
        raise UsageError("the line has no 'subject'", where=place, next="name a variant or a file")
    words = list[str]()
    for key, value in line.items():
        if key not in ("subject", "from", "to"):
            words += options[key].words(_value(options[key], value, place))
    combinations = list(_combined(line))
    if not combinations:
        raise UsageError(
            f"no variant is called {line['subject']} in these zoos",
            where=place,
            next=f"{RECIPE_LIST.advise()} shows the variants and their zoos",
        )
    for subject, source, to in combinations:
        typed_words = (*SUBJECT.words(subject), *FROM.words(source), *TO.words(to), *words)
        if any("\0" in word for word in typed_words):  # the system takes no such word
            raise UsageError("a text has the character NUL", where=place, next="leave it out")
        name = _name(subject, source, to, words)
        yield Job(name, subject, source, to, typed_words, _digest(typed_words))


def _options() -> dict[str, Option]:
    """Return the options of `porter convert` that a list may have, by the names of their columns: `subject`,
    and flags without the dashes.
    """
    listed = [option for option in CONVERT.options.values() if option not in _NOT_LISTED]
    by_flag = {option.flags[0].removeprefix("--"): option for option in listed if option.flag is not None}
    return {SUBJECT.name: SUBJECT, **by_flag}


def _value(option: Option, value: Any, place: str) -> Any:
    """Return the value of a cell as its option takes it: a text, several texts, or a bool for a switch.

    Raises:
        UsageError: a switch is neither true nor false.
    """
    if option.kind is not bool:
        has_several = option.many and isinstance(value, str)
        return value.split() if has_several else value
    text = str(value).lower()
    if text not in (*_YES, *_NO):
        raise UsageError(f"'{value}' is neither true nor false", where=f"{place}, {option.name}")
    return text in _YES


def _combined(line: Mapping[str, Any]) -> Iterator[tuple[str, str | None, str]]:
    """Yield each subject, source and destination that a line asks for. A pattern, or every zoo, stands for
    the variants that porter knows; nothing is yielded if none has the name.
    """
    sources = _several(line.get("from")) or [None]
    destinations = _several(line.get("to")) or [str(CONVERT.default("to"))]
    for subject in _several(line["subject"]):
        is_pattern = any(letter in subject for letter in "*?") and not [*_stats(Path(subject))]
        if not is_pattern and EVERY_ZOO not in sources:
            yield from product((subject,), sources, destinations)
            continue
        known, _ = known_variants(None)
        for entry in known:
            is_of_zoo = EVERY_ZOO in sources or entry.zoo in sources
            if is_of_zoo and fnmatchcase(entry.variant, subject):
                yield from product((entry.variant,), (entry.zoo,), destinations)


def _several(value: Any) -> list[Any]:
    """Return the texts of a cell that may have one or several; none for a cell that is missing."""
    if value is None:
        return []
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return list(map(str, value)) if is_list else [str(value)]


def _name(subject: str, source: str | None, to: str, words: Sequence[str]) -> str:
    """Return a name for a port's folder, such as `resnet50v2-keras-torch`. Where a path or further options
    tell ports apart, the name ends in a digest of them.
    """
    is_path = Path(subject).name != subject
    plain = "-".join(filter(None, (Path(subject).name, source, to)))
    plain = re.sub(r"[^\w.=+-]+", "_", plain)[:120].strip(".")
    if not words and not is_path:
        return plain
    digest = sha256(repr((subject, *words)).encode()).hexdigest()
    return f"{plain}-{digest[:8]}"
