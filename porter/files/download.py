"""Downloads over http(s): an interrupted one is continued, sizes are bounded, and https never redirects to
http.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname

from porter.base.errors import DownloadError, FileError
from porter.base.progress import has_viewer, progress_bar

MAX_BYTES = 4 << 30
"""All known published files of vision models are below 1 GiB."""

ATTEMPTS = 4
BACKOFF_S = 1.0
TIMEOUT_S = 30.0
_CHUNK = 1 << 18
_TRANSIENT_STATUS = {408, 425, 429}


class _Interrupted(Exception):
    """An attempt failed in a way that another may not."""


class _SafeRedirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Follow a redirection, but none from https to http or to another scheme."""
        scheme = urlsplit(newurl).scheme
        if scheme != "https" and not (scheme == req.type == "http"):
            raise DownloadError(
                f"the server redirects from {req.type} to {newurl}, which porter refuses", where=req.full_url
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def copy_or_download(location: str, partial: Path) -> None:
    """Copy a path, a file:// or an http(s):// address to `partial`; an interrupted http download is
    continued.

    Raises:
        DownloadError: it could not be obtained from there, or is larger than the disk or `MAX_BYTES` allow.
        FileError: `partial` cannot be written.
    """
    address = urlsplit(location)
    if address.scheme in ("http", "https"):
        _download(location, partial)
    elif address.scheme == "file":
        _copy(Path(url2pathname(address.path)), partial)
    elif "://" not in location:
        _copy(Path(location), partial)
    else:
        raise DownloadError(f"addresses begin with https, http or file, not {address.scheme}", where=location)


def discard(partial: Path) -> None:
    """Remove a begun download and the note beside it."""
    partial.unlink(missing_ok=True)
    _note_beside(partial).unlink(missing_ok=True)


def require_room(size: int, folder: Path, where: str) -> None:
    """Raise for a file that is too large, before anything is written.

    Raises:
        DownloadError: `size` bytes exceed `MAX_BYTES` or the free disk under `folder`.
    """
    if size > MAX_BYTES:
        raise DownloadError(
            f"the file has {size:,} bytes, and porter reads at most {MAX_BYTES:,}", where=where
        )
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DownloadError(
            f"the file needs {size:,} bytes, and {folder} has {free:,} free",
            where=where,
            next="make room or set PORTER_CACHE",
        )


def _copy(path: Path, partial: Path) -> None:
    """Copy a local file to `partial`, which is removed first."""
    discard(partial)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DownloadError(f"cannot be read: {error.strerror}", where=path) from None
    require_room(size, partial.parent, str(path))
    try:
        with path.open("rb") as file, _open_for_writing(partial) as write:
            while chunk := file.read(_CHUNK):
                write(chunk)
    except OSError as error:
        raise DownloadError(f"cannot be copied: {error.strerror}", where=path) from None


def _download(url: str, partial: Path) -> None:
    """Download a file in as many attempts as make progress, each from where the last one ended."""
    failures, furthest = 0, _size(partial)
    while True:
        try:
            _try_once(url, partial)
            return
        except _Interrupted as error:
            # An attempt that made progress starts the count again.
            failures = 1 if _size(partial) > furthest else failures + 1
            furthest = max(furthest, _size(partial))
            if failures == ATTEMPTS:
                raise DownloadError(f"{error} ({ATTEMPTS} attempts)", where=url) from None
        time.sleep(BACKOFF_S * 2 ** (failures - 1))


def _try_once(url: str, partial: Path) -> None:
    """Make one attempt, which continues a part that is there."""
    # Content codings are declined: otherwise the bytes on disk would not be the file whose digest is
    # published.
    request = Request(url, headers={"User-Agent": "porter", "Accept-Encoding": "identity"})
    validator = _noted_validator(partial, url)
    offset = _size(partial) if validator else 0
    if validator and offset:
        request.add_header("Range", f"bytes={offset}-")
        # The server sends the whole file if it has changed since.
        request.add_header("If-Range", validator)
    try:
        with build_opener(_SafeRedirects).open(request, timeout=TIMEOUT_S) as response:
            _receive(response, url, partial, offset)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the file there has changed, and what was downloaded is not part of it
            discard(partial)
        if error.code in {416, *_TRANSIENT_STATUS} or error.code >= 500:
            raise _Interrupted(f"the server answers {error.code} {error.reason}") from None
        raise DownloadError(f"the server answers {error.code} {error.reason}", where=url) from None
    except (OSError, HTTPException, ValueError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(
            cause, socket.gaierror | ssl.SSLCertVerificationError | ConnectionRefusedError | ValueError
        ):
            raise DownloadError(f"cannot be reached: {cause}", where=url) from None
        raise _Interrupted(f"the connection failed: {cause or type(cause).__name__}") from None


def _receive(response: HTTPResponse, url: str, partial: Path, offset: int) -> None:
    """Write an answer behind what is there; from the start if the server sends the whole file."""
    if response.status == 206:  # a part, from the byte that was asked for
        start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if start is None or int(start[1]) != offset:
            discard(partial)
            raise _Interrupted("the server continues at another byte than porter asked for")
    else:
        offset = 0
    length = response.headers.get("Content-Length", "")
    total = offset + int(length) if length.isascii() and length.isdigit() else None
    if total is not None:
        require_room(total - offset, partial.parent, url)
    done = offset
    note = None if offset else {"url": url, "validator": _validator_of(response)}
    with (
        _open_for_writing(partial, "ab" if offset else "wb", note) as write,
        _progress(url, total, offset) as advance,
    ):
        while chunk := response.read(_CHUNK):
            done += len(chunk)
            if done > MAX_BYTES:
                raise DownloadError(f"the file has more than {MAX_BYTES:,} bytes", where=url)
            write(chunk)
            advance(len(chunk))
    if total is not None and done != total:
        raise _Interrupted(f"the connection ended after {done:,} of {total:,} bytes")


@contextmanager
def _open_for_writing(
    partial: Path, mode: str = "wb", note: dict[str, str | None] | None = None
) -> Iterator[Callable[[bytes], None]]:
    """Write a note beside `partial` if there is one, open `partial`, and yield a function that writes to it.
    What fails here is told as the disk's fault, and not as that of the source.
    """

    def write(chunk: bytes) -> None:
        """Write a chunk at once, so that what is on disk is known if the connection ends."""
        try:
            file.write(chunk)
            file.flush()
        except OSError as error:
            raise FileError(f"cannot be written: {error.strerror}", where=partial) from None

    try:
        if note is not None:
            _note_beside(partial).write_text(json.dumps(note))
        file: IO[Any] = partial.open(mode)
    except OSError as error:
        raise FileError(f"cannot be written: {error.strerror}", where=partial) from None
    with file:
        yield write


def _validator_of(response: HTTPResponse) -> str | None:
    """Return what If-Range may name (RFC 9110, 13.1.5): a strong ETag, otherwise the date of the last change;
    None if the answer has neither.
    """
    tag = response.headers.get("ETag")
    return tag if tag and tag.startswith('"') else response.headers.get("Last-Modified")


def _noted_validator(partial: Path, url: str) -> str | None:
    """Return the validator (an ETag or a date) that the server gave for the part that is there, as noted
    beside it. None if the note is of another address, or of no validator, or there is none: then the part
    cannot be continued.
    """
    try:
        note = json.loads(_note_beside(partial).read_text())
        is_usable = note["url"] == url and note["validator"]
        return str(note["validator"]) if is_usable else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _note_beside(partial: Path) -> Path:
    return partial.with_name(partial.name + ".json")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _progress(url: str, total: int | None, done: int) -> Iterator[Callable[[int], object]]:
    """Yield a function that counts the bytes that arrive, with a progress bar where somebody sees it."""
    if not has_viewer():
        yield lambda _: None
        return
    name = urlsplit(url).path.rpartition("/")[2]
    with progress_bar(total=total, initial=done, unit="B", unit_scale=True, desc=name) as bar:
        yield bar.update
