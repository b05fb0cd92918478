"""What lies where in a tar, well-formed and hostile."""

import bz2
import gzip
import lzma
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import porter.data.tar_file
from porter.base.errors import FileError
from porter.data.photo_bytes import read_bytes
from porter.data.tar_file import list_members
from tests.support.data.layouts.making import opened, tar, val


def header(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_where_the_archive_says(form: int, tmp_path: Path) -> None:
    contents = {"a.jpg": b"1", "deep/" * 40 + "b.jpg": b"22" * 600, "./c.jpg": b"", "ü.jpg": b"3"}
    path = tar(tmp_path / "x.tar", contents, format=form)
    whole = path.read_bytes()
    found = {name: whole[offset : offset + size] for name, offset, size, _ in list_members(path)}
    assert found == {name.removeprefix("./"): content for name, content in contents.items()}


def test_members_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tar(tmp_path / "x.tar", {f"{number}.jpg": b"" for number in range(7)})
    monkeypatch.setattr(porter.data.tar_file, "_MAX_MEMBERS", 7)
    assert len(list_members(path)) == 7
    monkeypatch.setattr(porter.data.tar_file, "_MAX_MEMBERS", 6)
    with pytest.raises(FileError, match="more than 6 members"):
        list_members(path)


def test_of_members_with_one_name_the_last_is_taken(tmp_path: Path) -> None:
    path = tar(tmp_path / "x.tar", {"a.jpg": b"old"})
    with tarfile.open(path, "a") as archive:
        tar(tmp_path / "y.tar", {"a.jpg": b"newer"})
        archive.add(tmp_path / "y.tar", "a.jpg")
    assert [(name, size) for name, _, size, _ in list_members(path)] == [
        ("a.jpg", (tmp_path / "y.tar").stat().st_size)
    ]


def test_links_devices_and_folders_are_no_photos(tmp_path: Path, devkit: Path) -> None:
    kinds = {
        2: tarfile.SYMTYPE,
        3: tarfile.LNKTYPE,
        4: tarfile.CHRTYPE,
        5: tarfile.FIFOTYPE,
        6: tarfile.DIRTYPE,
    }
    special = {val(number): header(val(number), kind, "/etc/passwd") for number, kind in kinds.items()}
    path = tar(tmp_path / "x.tar", {val(1): b"1", **special})
    found = opened(path, labels=devkit)
    assert [photo.name for photo in found.photos] == [val(1)]
    assert {failure.name: failure.why for failure in found.failed} == {
        val(2): "links in a tar are not followed",
        val(3): "links in a tar are not followed",
        val(4): "a device or pipe, no file",
        val(5): "a device or pipe, no file",
    }


def test_sparse_members_are_not_read_as_if_they_were_whole(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("a.jpg")
    entry.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.map": "0,1",
        "GNU.sparse.size": "9",
    }
    path = tar(tmp_path / "x.tar", {"a.jpg": entry}, format=tarfile.PAX_FORMAT)
    assert [member.why for member in list_members(path)] == [
        "a sparse member of a tar is not stored as it is"
    ]


def test_names_are_never_paths(tmp_path: Path, devkit: Path) -> None:
    (tmp_path / val(1)).write_bytes(b"outside")
    names = [f"../{val(1)}", f"/{val(2)}"]
    found = opened(tar(tmp_path / "in" / "x.tar", dict.fromkeys(names, b"inside")), labels=devkit)
    assert [photo.name for photo in found.photos] == names
    assert {photo.place.path for photo in found.photos} == {tmp_path / "in" / "x.tar"}


@pytest.mark.parametrize(
    ("pack", "program"), [(gzip.compress, "gunzip"), (bz2.compress, "bunzip2"), (lzma.compress, "unxz")]
)
def test_compressed_archives_are_refused_with_what_to_do(
    pack: Callable[[bytes], bytes], program: str, tmp_path: Path
) -> None:
    path = tar(tmp_path / "x.tar", {val(1): b"1"})
    path.write_bytes(pack(path.read_bytes()))
    with pytest.raises(FileError, match="the archive is compressed") as caught:
        opened(path)
    assert caught.value.next == f"{program} it first"


def test_every_truncation_is_told(tmp_path: Path) -> None:
    path = tar(tmp_path / "x.tar", {f"{number}.jpg": bytes(700) for number in range(3)})
    whole = path.read_bytes()
    for length in range(0, 3 * 1536 + 512, 64):
        path.write_bytes(whole[:length])
        with pytest.raises(FileError, match="the archive cannot be read"):
            list_members(path)


def test_a_damaged_header_does_not_pass_for_the_end(tmp_path: Path) -> None:
    path = tar(tmp_path / "x.tar", {f"{number}.jpg": bytes(700) for number in range(3)})
    whole = bytearray(path.read_bytes())
    whole[1536] ^= 1
    path.write_bytes(whole)
    with pytest.raises(FileError, match="byte 1,536 is not the beginning of a member's header"):
        list_members(path)


def test_joined_archives_are_told(tmp_path: Path) -> None:
    one, two = (tar(tmp_path / name, {f"{name}.jpg": b"1"}).read_bytes() for name in ("a", "b"))
    (tmp_path / "x.tar").write_bytes(one + two)
    with pytest.raises(FileError, match="goes on after its end at byte 1,024"):
        list_members(tmp_path / "x.tar")


@pytest.mark.parametrize("size", [-512, -(1 << 40), 1 << 40, 1 << 80])
def test_sizes_out_of_bounds_are_refused(size: int, tmp_path: Path) -> None:
    for kind in (tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
        entry = tarfile.TarInfo("a.jpg")
        entry.size, entry.type = 0, kind
        block = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
        block[124:136] = (b"\xff" if size < 0 else b"\x80") + (size % (1 << 88)).to_bytes(11, "big")
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        first = tar(tmp_path / "y.tar", {"first.jpg": b"1"}).read_bytes()[:1024]
        (tmp_path / "x.tar").write_bytes(first + block + bytes(2048))
        with pytest.raises(FileError, match="the archive cannot be read"):
            list_members(tmp_path / "x.tar")


def test_damage_gives_a_file_error_or_members(tmp_path: Path) -> None:
    contents = {"long/" * 40 + f"{number}.jpg": bytes(700) for number in range(4)}
    whole = tar(tmp_path / "x.tar", contents, format=tarfile.PAX_FORMAT).read_bytes()
    chance = random.Random(0)
    refused = 0
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[chance.randrange(len(whole))] = chance.randrange(256)
        (tmp_path / "y.tar").write_bytes(damaged)
        try:
            found = list_members(tmp_path / "y.tar")
        except FileError:
            refused += 1
            continue
        assert all(0 <= offset <= offset + size <= len(whole) for _, offset, size, _ in found)
    assert refused > 50


@pytest.mark.parametrize("above", ["", "val/", "deep/val/"])
def test_class_folders_in_a_tar(above: str, tmp_path: Path) -> None:
    """In the order of their names, whatever folders hold them all."""
    names = ["n01443537/b.jpg", "n01440764/a.jpg", "n01440764/more/c.jpg", "n99999999/d.jpg"]
    contents = {f"{above}{name}": name.encode() for name in names}
    found = opened(tar(tmp_path / "x.tar", {**contents, f"{above}readme.txt": b""}))
    assert found.layout == "class folders in a tar"
    assert {photo.name: photo.labels for photo in found.photos} == {
        "n01440764/a.jpg": (0,),
        "n01440764/more/c.jpg": (0,),
        "n01443537/b.jpg": (1,),
    }
    assert [read_bytes(photo.place).decode() for photo in found.photos] == sorted(names)[:3]
    assert [failure.why for failure in found.failed] == ["'n99999999' is no class of ImageNet-1k"]
