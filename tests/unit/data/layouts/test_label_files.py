"""Labels of ImageNet's validation photos: the devkit's, whose ids are in no order, and ReaL's."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.data.layouts.label_files import read_label_file
from tests.support.data.layouts.making import PHOTOS, WNIDS, label_of, val

EXPECTED = tuple((label_of(number),) for number in range(1, PHOTOS + 1))
TRUTH = "data/ILSVRC2012_validation_ground_truth.txt"


def test_the_devkit_is_read_in_every_form(devkit: Path, tmp_path: Path) -> None:
    archive = tmp_path / "ILSVRC2012_devkit_t12.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(devkit, "ILSVRC2012_devkit_t12")
    for path in (devkit, devkit / "data", devkit / TRUTH, archive, tmp_path):
        assert read_label_file(path) == ("the devkit", EXPECTED)


def test_ids_are_no_class_indices(devkit: Path) -> None:
    ids = (devkit / TRUTH).read_text().split()
    assert (
        sum(int(number) - 1 == label for number, (label,) in zip(ids, EXPECTED, strict=True)) < PHOTOS // 100
    )


def lists_of(kind: str) -> list[str]:
    numbers = range(1, PHOTOS + 1)
    if kind == "slim's list":
        return [WNIDS[label_of(number)] for number in numbers]
    if kind == "Caffe's list":
        return [f"{val(number)} {label_of(number)}" for number in reversed(numbers)]
    boxes = (
        f"{val(number)[:-5]},{WNIDS[label_of(number)]} 85 1 499 272 {WNIDS[label_of(number)]} 1 2 3 4"
        for number in numbers
    )
    return ["ImageId,PredictionString", *boxes]


@pytest.mark.parametrize("kind", ["slim's list", "Caffe's list", "Kaggle's list"])
def test_lists_of_labels_are_read(kind: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("\n".join(lists_of(kind)) + "\n")
    assert read_label_file(tmp_path / "list") == (kind, EXPECTED)
    (tmp_path / "list").write_text("\n".join(lists_of(kind)[:-1]))
    with pytest.raises(FileError, match="has 50,000 photos, got 49,999"):
        read_label_file(tmp_path / "list")


@pytest.mark.parametrize(
    ("line", "shown"),
    [("n99999999", "n99999999"), (f"{val(1)} 1000", "1000"), (f"{val(1)} x", "x"), ("a.jpg 3", "a.jpg 3")],
)
def test_a_line_without_a_photo_or_a_class_is_named(line: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f"{WNIDS[0] if line.startswith('n') else val(2) + ' 5'}\n{line}\n")
    with pytest.raises(FileError, match=f"has no photo and class in '{line}'") as caught:
        read_label_file(tmp_path / "list")
    assert caught.value.where == f"{tmp_path / 'list'}:2"


def test_reals_lists_are_read(real: Path) -> None:
    name, labels = read_label_file(real)
    assert (name, len(labels), labels[0], labels[2]) == ("ReaL", PHOTOS, (7, 8), ())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "50,000 numbers expected"),
        ("1\n" * (PHOTOS - 1), "50,000 numbers expected"),
        ("1\n" * (PHOTOS - 1) + "x", "50,000 numbers expected"),
        ("1\n" * (PHOTOS - 1) + "²", "50,000 numbers expected"),
        ("1\n" * (PHOTOS - 1) + "1001", "ids are from 1 to 1000, got 1001"),
        ("0\n" * PHOTOS, "ids are from 1 to 1000, got 0"),
        (" " * (9 << 20), "more than"),
    ],
)
def test_a_broken_ground_truth_is_refused(content: str, message: str, devkit: Path, tmp_path: Path) -> None:
    shutil.copytree(devkit, tmp_path, dirs_exist_ok=True)
    (tmp_path / TRUTH).write_text(content)
    with pytest.raises(FileError, match=message):
        read_label_file(tmp_path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "50,000 lists, got 0"),
        ([[1]] * (PHOTOS - 1), "50,000 lists, got 49,999"),
        ([[1]] * (PHOTOS - 1) + [[1000]], "the labels of ILSVRC2012_val_00050000"),
        ([[1], 1, *[[1]] * (PHOTOS - 2)], "the labels of ILSVRC2012_val_00000002"),
        ([[True]] * PHOTOS, "the labels of ILSVRC2012_val_00000001"),
        ([[-1]] * PHOTOS, "the labels of ILSVRC2012_val_00000001"),
    ],
)
def test_broken_labels_of_real_are_refused(value: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text(json.dumps(value))
    with pytest.raises(FileError, match=message):
        read_label_file(tmp_path / "real.json")


def test_what_is_no_label_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("[[1], [2")
    (tmp_path / "empty.tar.gz").write_bytes(b"\x1f\x8b")
    for path, message in [
        (tmp_path / "none", "cannot be read: No such file"),
        (tmp_path, "nor its data folder has ILSVRC2012_validation_ground_truth.txt"),
        (tmp_path / "real.json", "not JSON"),
        (tmp_path / "empty.tar.gz", "the archive cannot be read"),
    ]:
        with pytest.raises(FileError, match=message):
            read_label_file(path)


def test_json_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("[" * 200_000)
    with pytest.raises(FileError, match="not JSON"):
        read_label_file(tmp_path / "real.json")
