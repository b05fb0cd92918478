"""One damaged input, and what porter makes of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from random import Random
from traceback import format_exception

import porter
from porter.authoring.check.recipe_check import check_recipe
from porter.base.errors import PorterError
from porter.cli import inspect_text, port_text
from porter.data.classes import Classes
from porter.data.labels import IMAGENET, Labels, read_labels
from porter.data.layouts.opening import open_photos
from porter.data.photo_bytes import read_bytes
from porter.data.photo_decoding import open_image
from porter.data.statements import read_preprocess
from porter.formats.reading import read_checkpoint
from porter.port.folder import read_port
from porter.source.hub_folder import read_sidecars
from porter.source.stated_photos import facts_beside
from tests.fuzzing.mutations import damaged
from tests.fuzzing.seeds import Seed
from tests.fuzzing.tiny import RECIPE
from tests.support.standin_files import sign

READ, REFUSED, FIND = "read", "refused", "find"


def mutant(reader: str, seeds: Sequence[Seed], seed: int, index: int) -> tuple[int, dict[str, bytes | None]]:
    """The input of a number, always the same: which seed it is, and the files in it that differ, None where
    one is missing.
    """
    random = Random(f"{reader} {seed} {index}")
    number = random.randrange(len(seeds))
    files = seeds[number].files
    changed = random.sample(list(files), min(len(files), random.choice((1, 1, 1, 2))))
    missing = len(files) > 1 and random.random() < 0.02
    return number, {name: None if missing else damaged(files[name], random) for name in changed}


class Place:
    """A folder with the files of every seed, in which inputs stand one after the other."""

    def __init__(self, folder: Path, seeds: Sequence[Seed]) -> None:
        self.folders = [folder / str(number) for number in range(len(seeds))]
        self.paths = [seed.write(place) for seed, place in zip(seeds, self.folders, strict=True)]
        self.seeds = seeds

    @contextmanager
    def holding(self, number: int, changed: Mapping[str, bytes | None]) -> Iterator[Path]:
        """Gives what porter is to read."""
        _write(self.folders[number], changed)
        yield self.paths[number]
        _write(self.folders[number], {name: self.seeds[number].files[name] for name in changed})


def _write(folder: Path, files: Mapping[str, bytes | None]) -> None:
    for name, content in files.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).write_bytes(content)


def tried(read: Callable[[Path], int], path: Path) -> tuple[str, str, int]:
    """Whether porter reads or refuses an input, or another thing happens; with the error's text, and the
    bytes of the tensors. What a library prints is another thing, because --json prints one object.
    """
    printed = StringIO()
    with redirect_stdout(printed):
        found = _tried(read, path)
    return (FIND, f"printed: {printed.getvalue()}", 0) if printed.getvalue() else found


def _tried(read: Callable[[Path], int], path: Path) -> tuple[str, str, int]:
    try:
        return READ, "", read(path)
    except PorterError as error:
        text = str(error.record())
        return (REFUSED, text, 0) if len(text) < 4000 else (FIND, f"an error of {len(text)} letters", 0)
    except BaseException as error:  # a SystemExit of a library's too
        if isinstance(error, KeyboardInterrupt):
            raise
        return FIND, "".join(format_exception(error))[-6000:], 0


def inspect(path: Path) -> int:
    """As the command does, with what it prints; the bytes of the tensors."""
    found = porter.inspect(path)
    inspect_text.inspection(found, True)
    json.dumps(found.record(), allow_nan=False)
    return sum(array.nbytes for array in found.checkpoint.tensors.values())


def convert(path: Path) -> int:
    """With the check, at 8 x 8 where the file states no size."""
    made = _converted(path, None)
    port_text.conversion(made)
    json.dumps(made.record(), allow_nan=False)
    return 0


def _converted(path: Path, size: str | None) -> porter.Ported:
    out = path.parent / "fuzzed-port"
    shutil.rmtree(out, ignore_errors=True)
    try:
        return porter.convert(path, to="torch", out=out, input_size=size)
    except PorterError as error:
        if "so a recipe has to say" in error.message:
            (recipes := path.parent / "recipes").mkdir(exist_ok=True)
            (recipes / "tiny.yaml").write_text(RECIPE)
            zoo, to = ("home", "onnx") if path.suffix in (".pth", ".safetensors") else ("away", "torch")
            return porter.convert("tiny", zoo, to, weights=path, recipes=recipes, out=out)
        if size or "input_size" not in str(error):
            raise
        return _converted(path, "8x8")


def read(path: Path) -> int:
    """Only the reader, as CI does: what a file is compared with afterwards takes most of `inspect`."""
    return sum(array.nbytes for array in read_checkpoint(path).tensors.values())


def _recipe(path: Path) -> int:
    found = check_recipe(path)
    json.dumps(found.record(), allow_nan=False)
    if found.errors:
        raise found.errors[0]
    return 0


def _port(path: Path) -> int:
    """A copy with the digests of its files, as a stranger would send it."""
    copy = path.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    with suppress(ValueError, TypeError, LookupError, AttributeError, OSError, RecursionError):
        sign(copy)
    json.dumps(porter.inspect(copy).record(), allow_nan=False)
    return sum(array.nbytes for tensors in read_port(copy).tensors().values() for array in tensors.values())


def _settings(path: Path) -> int:
    facts_beside(read_sidecars(path.with_name("model.onnx")))
    read_labels(path)
    if "=" in path.read_text(encoding="utf-8", errors="replace"):
        read_preprocess(path)
    return 0


def _photos(path: Path) -> int:
    found = open_photos(path, classes=Classes(1000, Labels(IMAGENET)))
    return sum(len(read_bytes(photo.place)) for photo in found.photos)


def _photo(path: Path) -> int:
    image = open_image(path)
    return image.width * image.height * 3


OWN: Mapping[str, Callable[[Path], int]] = {
    "recipe": _recipe,
    "settings": _settings,
    "port": _port,
    "parquet": _photos,
    "tar": _photos,
    "tfrecord": _photos,
    "photo": _photo,
}
"""What reads an input that is no weights file, by the name of the reader."""
