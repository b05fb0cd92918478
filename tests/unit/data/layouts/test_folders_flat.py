"""ImageNet's validation photos in one folder or in their tar, and labels that go by their numbers."""

import shutil
from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.data.classes import Classes
from porter.data.layouts.opening import open_photos
from porter.data.photo_bytes import read_bytes
from porter.data.photos import Bytes, Failure
from tests.support.data.layouts.making import files, label_of, opened, tar, val

NUMBERS = (1, 2, 3, 4000, 50_000)


def official(folder: Path, *numbers: int) -> Path:
    """Members in another order than that of their numbers."""
    return tar(
        folder / "ILSVRC2012_img_val.tar",
        {val(number): f"photo {number}".encode() for number in reversed(numbers)},
    )


@pytest.mark.parametrize("beside", [".", ".."])
def test_a_folder_takes_its_labels_from_the_devkit_beside_it(
    beside: str, devkit: Path, tmp_path: Path
) -> None:
    folder = files(tmp_path / "photos", *map(val, NUMBERS), "README.md")
    (folder / beside / "ILSVRC2012_devkit_t12").symlink_to(devkit)
    found = opened(folder)
    assert (found.layout, found.failed, found.validation) == ("flat folder, labels of the devkit", (), False)
    assert [(photo.name, photo.labels) for photo in found.photos] == [
        (val(number), (label_of(number),)) for number in NUMBERS
    ]
    assert read_bytes(found.photos[1].place) == val(2).encode()


@pytest.mark.parametrize("whole", [True, False])
def test_the_official_tar_is_read_in_place(whole: bool, devkit: Path, tmp_path: Path) -> None:
    archive = official(tmp_path, *NUMBERS)
    shutil.copytree(devkit / "data", tmp_path, dirs_exist_ok=True)
    found = opened(tmp_path if whole else archive)
    assert (found.path, found.layout) == (tmp_path if whole else archive, "flat tar, labels of the devkit")
    assert [(photo.name, photo.labels) for photo in found.photos] == [
        (val(number), (label_of(number),)) for number in NUMBERS
    ]
    assert [read_bytes(photo.place) for photo in found.photos] == [
        f"photo {number}".encode() for number in NUMBERS
    ]
    assert all(isinstance(photo.place, Bytes) and photo.place.path == archive for photo in found.photos)


def test_the_folder_of_all_downloads_will_do(devkit: Path, tmp_path: Path) -> None:
    official(tmp_path, 1, 2)
    tar(tmp_path / "ILSVRC2012_img_train.tar", {"n01440764.tar": b"x"})
    (tmp_path / "ILSVRC2012_devkit_t12").symlink_to(devkit)
    assert [photo.name for photo in opened(tmp_path).photos] == [val(1), val(2)]


def test_without_a_devkit_the_labels_are_missing(tmp_path: Path) -> None:
    for path in (files(tmp_path / "photos", val(1)), official(tmp_path, 1)):
        with pytest.raises(FileError, match="there is no devkit beside them") as caught:
            opened(path)
        assert caught.value.next is not None and "--labels" in caught.value.next


def test_the_devkit_may_be_given(devkit: Path, tmp_path: Path) -> None:
    assert opened(official(tmp_path, 5), labels=devkit).photos[0].labels == (label_of(5),)


def test_names_may_tell_the_class(tmp_path: Path) -> None:
    found = opened(files(tmp_path, val(293, "_n01440764"), val(1, "_n01751748"), "cat.jpg"))
    assert [photo.labels for photo in found.photos] == [(65,), (0,)]
    assert found.failed == (Failure("cat.jpg", "its name tells no class"),)


def test_photos_without_a_number_fail_by_name(devkit: Path, tmp_path: Path) -> None:
    found = opened(files(tmp_path, val(1), val(2), val(50_001), "cat.jpg", "more/dog.jpg"), labels=devkit)
    assert [photo.name for photo in found.photos] == [val(1), val(2)]
    assert [failure.name for failure in found.failed] == [val(50_001), "cat.jpg", "more/dog.jpg"]
    assert {failure.why for failure in found.failed} == {
        "its name has no number of ImageNet's validation set"
    }


def test_reals_labels_leave_out_what_they_have_none_for(real: Path, tmp_path: Path) -> None:
    found = opened(files(tmp_path, *map(val, NUMBERS)), labels=real)
    assert found.layout == "flat folder, labels of ReaL"
    assert [(photo.name, photo.labels) for photo in found.photos] == [
        (val(number), (label_of(number), (label_of(number) + 1) % 1000)) for number in (1, 2, 4000)
    ]
    assert found.excluded == tuple(Failure(val(number), "ReaL gives it no label") for number in (3, 50_000))
    assert found.failed == ()


def test_reals_labels_replace_those_of_class_folders(real: Path, tmp_path: Path) -> None:
    found = opened(
        files(tmp_path, f"n01440764/{val(1)}", f"unknown/{val(2)}", f"n01440764/{val(3)}"), labels=real
    )
    assert [photo.labels for photo in found.photos] == [(7, 8), (14, 15)]
    assert [each.name for each in found.excluded] == [f"n01440764/{val(3)}"]


def test_label_files_need_imagenets_file_names(real: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no photo here has such a name"):
        opened(files(tmp_path, "n01440764/a.jpg"), labels=real)


def test_a_set_that_the_labels_exclude_is_refused(real: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="none of the 0 photos can be scored: the labels exclude them"):
        opened(files(tmp_path, val(3)), labels=real)


def test_other_archives_are_refused(tmp_path: Path) -> None:
    train = tar(tmp_path / "ILSVRC2012_img_train.tar", {"n01440764.tar": b"x", "n01443537.tar": b"y"})
    with pytest.raises(
        FileError, match=r"an archive without labels.*n01440764\.tar, n01443537\.tar"
    ) as caught:
        opened(train)
    assert caught.value.next == "unpack it into class folders"
    with pytest.raises(FileError, match="it has no files"):
        opened(tar(tmp_path / "empty.tar", {}))


def test_a_port_of_other_classes_takes_no_validation_tar(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="an archive without labels"):
        open_photos(official(tmp_path, 1), classes=Classes(5))
