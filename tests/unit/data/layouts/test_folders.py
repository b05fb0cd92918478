"""Photos in class folders."""

import os
from pathlib import Path

import pytest

from porter.base.errors import FileError, UsageError
from porter.data.classes import Classes
from porter.data.labels import Labels
from porter.data.layouts.opening import open_photos
from porter.data.photo_bytes import read_bytes
from porter.data.photos import Bytes, Failure, PhotoSet
from tests.support.checkout import ROOT
from tests.support.data.layouts.making import WNIDS, files, opened, table, val

SAMPLE = ROOT.parent / "shared" / "imagenet-sample"


def labels(photos: PhotoSet) -> dict[str, tuple[int, ...]]:
    return {photo.name: photo.labels for photo in photos.photos}


def test_folders_are_wnids_and_photos_stand_in_the_order_of_their_names(tmp_path: Path) -> None:
    names = ["n02123045/b.jpg", "n02123045/a.PNG", "n01440764/z.JPEG", "n15075141_toilet_tissue/x.webp"]
    found = opened(files(tmp_path, *names))
    assert (found.path, found.layout, found.failed, found.excluded, found.validation) == (
        tmp_path,
        "class folders",
        (),
        (),
        False,
    )
    assert list(labels(found).items()) == [
        (name, (label,)) for name, label in zip(sorted(names), (0, 281, 281, 999), strict=True)
    ]
    assert [read_bytes(photo.place).decode() for photo in found.photos] == sorted(names)
    assert found.photos[0].place == Bytes(tmp_path / "n01440764/z.JPEG")
    assert found.classes == 3


def test_the_order_is_not_the_filesystems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, *(f"{wnid}/{number}.jpg" for wnid in WNIDS[:5] for number in range(5)))
    expected = opened(tmp_path)
    scandir = os.scandir

    class Reversed:
        def __init__(self, folder: str) -> None:
            self._entries = scandir(folder)

        def __enter__(self) -> list[os.DirEntry[str]]:
            return sorted(self._entries, key=lambda entry: entry.name, reverse=True)

        def __exit__(self, *_: object) -> None:
            self._entries.close()

    monkeypatch.setattr(os, "scandir", Reversed)
    assert opened(tmp_path) == expected


@pytest.mark.parametrize("name", ["val", "validation"])
def test_the_folder_above_will_do(name: str, tmp_path: Path) -> None:
    names = [
        f"{name}/n01440764/a.jpg",
        "train/n01440764/b.jpg",
        "README.md",
        "ILSVRC2012_devkit_t12/readme.txt",
    ]
    found = opened(files(tmp_path, *names))
    assert (found.path, labels(found)) == (tmp_path / name, {"n01440764/a.jpg": (0,)})


def test_what_is_no_photo_by_its_name_is_no_photo(tmp_path: Path) -> None:
    others = [
        "README.md",
        "n01440764/notes.txt",
        "n01440764/.a.jpg",
        "n01440764/._a.jpg",
        ".cache/b.jpg",
        "__MACOSX/c.jpg",
    ]
    found = opened(files(tmp_path, "n01440764/a.jpg", *others, ".DS_Store"))
    assert (list(labels(found)), found.failed, found.excluded) == (["n01440764/a.jpg"], (), ())


def test_an_empty_file_is_a_photo_that_opening_will_name(tmp_path: Path) -> None:
    files(tmp_path, "n01440764/a.jpg")
    (tmp_path / "n01440764/b.JPEG").touch()
    found = opened(tmp_path)
    assert len(found.photos) == 2 and read_bytes(found.photos[1].place) == b""


def test_photos_of_unknown_folders_are_counted_and_named(tmp_path: Path) -> None:
    found = opened(files(tmp_path, "n01440764/a.jpg", "n99999999/b.jpg", "junk/deep/c.jpg", "d.jpg"))
    assert list(labels(found)) == ["n01440764/a.jpg"]
    assert found.failed == (
        Failure("d.jpg", "it lies in no class folder"),
        Failure("junk/deep/c.jpg", "'junk' is no class of ImageNet-1k"),
        Failure("n99999999/b.jpg", "'n99999999' is no class of ImageNet-1k"),
    )


def test_folders_within_a_class_belong_to_it(tmp_path: Path) -> None:
    assert labels(opened(files(tmp_path, "n01443537/images/a.jpg"))) == {"n01443537/images/a.jpg": (1,)}


def test_names_of_classes_are_understood_where_just_one_class_has_them(tmp_path: Path) -> None:
    found = opened(
        files(
            tmp_path, "Great_white-shark/a.jpg", "tench, Tinca tinca/b.jpg", "crane/c.jpg", "Cardigan/d.jpg"
        )
    )
    assert labels(found) == {"Great_white-shark/a.jpg": (2,), "tench, Tinca tinca/b.jpg": (0,)}
    assert [failure.name for failure in found.failed] == ["Cardigan/d.jpg", "crane/c.jpg"]
    assert found.failed[1].why.endswith(
        "the name of two classes of ImageNet-1k: name the folder n02012849 or n03126707"
    )
    assert found.failed[0].why.endswith("name the folder n02113186 or n02963159")


@pytest.mark.parametrize("form", ["{}", "{:03}"])
def test_numbers_that_count_from_zero_are_classes(form: str, tmp_path: Path) -> None:
    found = opened(files(tmp_path, *(f"{form.format(number)}/a.jpg" for number in (0, 9, 207, 999))))
    assert sorted(labels(found).values()) == [(0,), (9,), (207,), (999,)]


@pytest.mark.parametrize("folders", [["1", "2", "1000"], ["7"], ["0", "00", "1"]])
def test_numbers_that_may_count_from_one_are_refused(folders: list[str], tmp_path: Path) -> None:
    files(tmp_path, *(f"{folder}/a.jpg" for folder in folders))
    with pytest.raises(UsageError, match="do not show whether they count from 0"):
        opened(tmp_path)


def test_the_first_numbers_may_be_other_classes(tmp_path: Path) -> None:
    files(tmp_path, "0/a.jpg", "1/a.jpg", "2/a.jpg")
    with pytest.raises(UsageError, match="the folders 0, 1, 2 are ImageNet's first 3 classes, or 3 others"):
        opened(tmp_path)


def test_photos_that_porter_does_not_read_are_counted(tmp_path: Path) -> None:
    found = opened(files(tmp_path, "n01440764/a.jpg", "n01440764/b.HEIC"))
    assert found.failed == (
        Failure("n01440764/b.HEIC", "porter does not read .heic: save it as JPEG or PNG"),
    )
    with pytest.raises(FileError, match=r"none of the 1 photos can be scored: porter does not read \.avif"):
        opened(files(tmp_path / "all", "n01440764/a.avif"))


def test_folders_of_splits_are_no_classes(tmp_path: Path) -> None:
    files(tmp_path, *(f"{split}/{wnid}/a.jpg" for split in ("train", "Test") for wnid in WNIDS[:2]))
    with pytest.raises(UsageError, match="several splits, and none is of validation: Test, train"):
        opened(tmp_path)
    assert (
        opened(tmp_path, split="test").path == tmp_path / "Test"
        and opened(tmp_path, split="train").path == tmp_path / "train"
    )
    with pytest.raises(UsageError, match="no split 'validation': Test, train"):
        opened(tmp_path, split="val")
    with pytest.raises(UsageError, match="there is no split 'dev'"):
        opened(tmp_path, split="dev")
    files(tmp_path / "one", "test/n01440764/a.jpg")
    assert opened(tmp_path / "one").path == tmp_path / "one" / "test"


def test_of_two_folders_of_splits_both_are_splits_whatever_stands_beside_them(tmp_path: Path) -> None:
    """Train, test and docs are three folders for three classes, and none of them is a class."""
    files(tmp_path, *(f"{split}/{name}/a.jpg" for split in ("train", "test") for name in "abc"), "docs/a.png")
    with pytest.raises(UsageError, match="several splits, and none is of validation: test, train"):
        open_photos(tmp_path, classes=Classes(3))
    assert open_photos(tmp_path, classes=Classes(3), split="test").path == tmp_path / "test"
    files(tmp_path / "one", "train/a/a.jpg", "docs/a.png")
    with pytest.raises(UsageError, match="no split 'validation': train"):
        open_photos(tmp_path / "one", classes=Classes(2), split="val")


def test_a_folder_of_photos_with_the_name_of_a_split_is_a_class(tmp_path: Path) -> None:
    found = open_photos(files(tmp_path, "valid/a.jpg", "invalid/b.jpg"), classes=Classes(2))
    assert labels(found) == {"invalid/b.jpg": (0,), "valid/a.jpg": (1,)}
    assert (
        opened(files(tmp_path / "flat", f"val/{val(1, '_n01440764')}", "docs/a.png")).path
        == tmp_path / "flat" / "val"
    )


def test_a_split_of_a_data_set_without_splits_is_refused(tmp_path: Path) -> None:
    files(tmp_path, "classes/n01440764/a.jpg", f"flat/{val(1, '_n01440764')}")
    tables = [
        table(tmp_path / name, [(None, 1)]) for name in ("none/a.parquet", "train-00000-of-00001.parquet")
    ]
    for path, message in (
        (tmp_path / "classes", "it has no splits, and 'test' is asked for"),
        (tmp_path / "flat", "it has no splits"),
        (tables[0].parent, "it has no splits"),
        (tables[0], "it has no splits"),
        (tables[1], "it has no files of split 'test', only train"),
    ):
        with pytest.raises(UsageError, match=message):
            opened(path, split="test")
    assert len(opened(tables[1], split="train").photos) == 1


def test_numbers_beyond_the_classes_are_none(tmp_path: Path) -> None:
    found = opened(files(tmp_path, "0/a.jpg", "1000/b.jpg", "12345678901234567890/c.jpg"))
    assert (list(labels(found)), len(found.failed)) == (["0/a.jpg"], 2)


def test_classes_of_ones_own_are_the_folders_in_the_order_of_their_names(tmp_path: Path) -> None:
    files(tmp_path, "tulip/a.jpg", "daisy/b.jpg", "10/c.jpg", "2/d.jpg", "stray.jpg")
    (tmp_path / "empty").mkdir()
    found = open_photos(tmp_path, classes=Classes(5))
    assert labels(found) == {"10/c.jpg": (0,), "2/d.jpg": (1,), "daisy/b.jpg": (2,), "tulip/a.jpg": (4,)}
    assert found.failed == (Failure("stray.jpg", "it lies in no class folder"),)


def test_other_numbers_of_folders_than_of_classes_are_refused(tmp_path: Path) -> None:
    files(tmp_path, "tulip/a.jpg", "daisy/b.jpg")
    with pytest.raises(
        UsageError, match=r"expected 3 class folders, one for each class of the port, got 2 \(daisy, tulip\)"
    ):
        open_photos(tmp_path, classes=Classes(3))


def test_folders_of_a_port_with_labels_have_their_names(tmp_path: Path) -> None:
    own = Classes(3, Labels("flowers.txt", ("tulip", "Common daisy", "rose")))
    found = open_photos(files(tmp_path, "tulip/a.jpg", "common_daisy/b.jpg"), classes=own)
    assert labels(found) == {"common_daisy/b.jpg": (1,), "tulip/a.jpg": (0,)}
    files(tmp_path, "oak/c.jpg")
    with pytest.raises(
        UsageError, match=r"oak: none of the classes in flowers.txt \(tulip, Common daisy, rose\)"
    ):
        open_photos(tmp_path, classes=own)


def test_labels_may_differ_only_by_case_or_sign(tmp_path: Path) -> None:
    own = Classes(5, Labels("signs.txt", ("A", "a", "c", "c++", "Great-White")))
    found = open_photos(files(tmp_path, "A/1.jpg", "c++/2.jpg", "c/3.jpg", "great_white/4.jpg"), classes=own)
    assert labels(found) == {"A/1.jpg": (0,), "c++/2.jpg": (3,), "c/3.jpg": (2,), "great_white/4.jpg": (4,)}
    files(tmp_path, "C/5.jpg")
    with pytest.raises(UsageError, match=r"C: none of the classes"):
        open_photos(tmp_path, classes=own)
    with pytest.raises(UsageError, match="one name for two classes"):
        open_photos(tmp_path, classes=Classes(2, Labels("signs.txt", ("A", "A"))))


def test_label_files_are_for_imagenets_classes(tmp_path: Path, real: Path) -> None:
    with pytest.raises(UsageError, match="ImageNet's labels do not fit this port's classes"):
        open_photos(files(tmp_path, "a/b.jpg"), classes=Classes(1), labels=real)
    with pytest.raises(FileError, match="there is no such file"):
        open_photos(tmp_path, classes=Classes(1), labels=tmp_path / "labels.txt")


def test_linked_class_folders_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    elsewhere = files(tmp_path / "elsewhere", "tench/a.jpg")
    folder = files(tmp_path / "set", "n01443537/b.jpg")
    (folder / "n01440764").symlink_to(elsewhere / "tench")
    (elsewhere / "tench" / "up").symlink_to(elsewhere)
    (folder / "all").symlink_to(folder)
    (folder / "above").symlink_to(tmp_path)
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    found = opened(folder)
    assert labels(found) == {"n01440764/a.jpg": (0,), "n01443537/b.jpg": (1,)}
    assert found.excluded == (
        Failure("above", "a link to a folder that it lies in"),
        Failure("all", "a link to a folder that it lies in"),
        Failure("n01440764/up", "links to folders are followed only at the top"),
    )
    assert read_bytes(found.photos[0].place) == b"tench/a.jpg"


def test_broken_links_and_pipes_fail_by_name(tmp_path: Path) -> None:
    folder = files(tmp_path, "n01440764/a.jpg") / "n01440764"
    (folder / "b.jpg").symlink_to("nowhere.jpg")
    (folder / "c.jpg").symlink_to("a.jpg")
    os.mkfifo(folder / "d.jpg")
    for to_itself in (folder / "e.jpg", folder / "rest", tmp_path / "more"):
        to_itself.symlink_to(to_itself)
    found = opened(tmp_path)
    assert list(labels(found)) == ["n01440764/a.jpg", "n01440764/c.jpg"]
    assert [(each.name, each.why) for each in found.failed] == [
        (f"n01440764/{name}", "a broken link, or no regular file") for name in ("b.jpg", "d.jpg", "e.jpg")
    ]


def test_names_that_are_no_text_can_be_printed(tmp_path: Path) -> None:
    folder = files(tmp_path, "n01440764/ä b.jpg") / "n01440764"
    (folder / os.fsdecode(b"\xff.jpg")).write_bytes(b"x")
    (folder / "new\nline\x1b[31m.jpg").write_bytes(b"y")
    found = opened(tmp_path)
    assert [photo.name.removeprefix("n01440764/") for photo in found.photos] == [
        "new\\nline\\x1b[31m.jpg",
        "ä b.jpg",
        "\\udcff.jpg",
    ]
    assert [read_bytes(photo.place) for photo in found.photos] == [b"y", "n01440764/ä b.jpg".encode(), b"x"]


def test_paths_without_photos_are_refused(tmp_path: Path) -> None:
    files(
        tmp_path,
        "notes.txt",
        "photo/a.jpg",
        "top/a.jpg",
        "top/more/",
        "packed/val_images.tar.gz",
        "strange/folder/a.jpg",
    )
    (tmp_path / "empty").mkdir()
    for name, message in [
        ("nowhere", "there is no such file or folder"),
        ("empty", "there are no photos"),
        ("notes.txt", "it is no folder, no tar, no TFRecord file and no Parquet file"),
        ("photo", "1 photos lie in no class folder"),
        ("packed", r"compressed files are not read, so unpack them: val_images\.tar\.gz"),
        ("strange", "none of the 1 photos can be scored: 'folder' is no class"),
    ]:
        with pytest.raises(FileError, match=message) as refused:
            opened(tmp_path / name)
        assert refused.value.next


def test_a_folder_that_may_not_be_read_is_a_file_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path, "n01440764/a.jpg")
    scandir = os.scandir

    def refused(folder: str) -> object:
        if folder.endswith("n01440764"):
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(FileError, match="the folder cannot be read: Permission denied"):
        opened(tmp_path)


def test_interrupted_sorting_leaves_photos_that_fail_by_name(tmp_path: Path) -> None:
    found = opened(files(tmp_path, f"n01440764/{val(1)}", f"n01440764/{val(2)}", val(3)))
    assert (len(found.photos), found.failed) == (2, (Failure(val(3), "it lies in no class folder"),))


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="the sample photos do not stand beside this checkout")
@pytest.mark.parametrize("name", [".", "val"])
def test_the_sample_opens(name: str) -> None:
    found = opened(SAMPLE / name)
    assert (len(found.photos), found.classes, found.failed, found.layout) == (500, 500, (), "class folders")
    assert [photo.labels[0] for photo in found.photos] == list(range(0, 1000, 2))
    wnids = (SAMPLE / "synsets.txt").read_text().split()
    assert all(photo.name.startswith(wnids[photo.labels[0]]) for photo in found.photos)
