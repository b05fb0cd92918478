"""What holds for every layout: how a part of a set is chosen, and when it is ImageNet's whole validation
set.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from porter.base.errors import FileError, UsageError
from porter.data.classes import Classes
from porter.data.layouts.opening import open_any_photos, open_photos
from porter.data.photos import Failure, take_evenly
from tests.support.data.layouts.making import (
    IMAGENET_CLASSES,
    PHOTOS,
    WNIDS,
    files,
    label_of,
    opened,
    table,
    val,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [(val(number), label_of(number)) for number in range(1, PHOTOS + 1)]
    return table(tmp_path_factory.mktemp("whole") / "validation.parquet", rows)


def test_the_whole_of_imagenet_is_known_by_its_numbers(whole: Path, real: Path) -> None:
    found = opened(whole)
    assert (len(found.photos), found.validation, found.classes) == (PHOTOS, True, 1000)
    relabelled = opened(whole, labels=real)
    assert (len(relabelled.photos), len(relabelled.excluded), relabelled.validation) == (PHOTOS - 2, 2, True)
    assert not open_photos(whole, classes=Classes(1000)).validation


def test_or_by_fifty_of_each_class(tmp_path: Path) -> None:
    rows = [(f"{number}.jpg", label_of(number)) for number in range(PHOTOS)]
    assert opened(table(tmp_path / "a.parquet", rows)).validation
    assert not opened(table(tmp_path / "b.parquet", rows[:-1])).validation
    assert not opened(table(tmp_path / "c.parquet", [*rows[:-1], ("x.jpg", label_of(1))])).validation
    assert not opened(
        table(tmp_path / "d.parquet", [*rows[:-1], ("n01440764_10026.JPEG", rows[-1][1])])
    ).validation


def test_a_number_twice_is_not_the_whole(tmp_path: Path) -> None:
    rows = [(val(number), 1) for number in range(1, PHOTOS)] + [(val(1), 1)]
    assert not opened(table(tmp_path / "a.parquet", rows)).validation


@pytest.mark.parametrize(
    ("limit", "chosen"),
    [(1, [0]), (3, [0, 3, 6]), (4, [0, 2, 5, 7]), (9, range(9)), (10, range(10)), (99, range(10))],
)
def test_a_limit_spreads_over_the_whole_set(limit: int, chosen: list[int], tmp_path: Path) -> None:
    files(tmp_path, *(f"{WNIDS[label]}/{photo}.jpg" for label in range(5) for photo in range(2)))
    found = opened(tmp_path, limit=limit)
    everything = opened(tmp_path).photos
    assert found.photos == tuple(everything[index] for index in chosen)
    assert opened(tmp_path, limit=limit) == found
    assert found.limit == (limit if limit < len(everything) else None)


def test_a_part_is_not_the_whole(whole: Path) -> None:
    found = opened(whole, limit=PHOTOS - 1)
    assert (len(found.photos), found.validation) == (PHOTOS - 1, False)
    tenth = opened(whole, limit=1000)
    assert [photo.name for photo in tenth.photos[:2]] == ["validation.parquet#0", "validation.parquet#50"]


def test_photos_that_fail_take_part_in_the_choice(tmp_path: Path) -> None:
    files(tmp_path, *(f"{folder}/{photo}.jpg" for folder in ("n01440764", "unknown") for photo in range(50)))
    found = opened(tmp_path, limit=10)
    assert (len(found.photos), len(found.failed)) == (5, 5)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_at_least_one(limit: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"expected at least 1 photo, got {limit}"):
        opened(tmp_path, limit=limit)


def test_nothing_heavy_is_imported_for_photos_in_folders(tmp_path: Path) -> None:
    files(tmp_path, "n01440764/a.jpg")
    program = """
import sys
from pathlib import Path
from porter.data.labels import IMAGENET, Labels
from porter.data.layouts.opening import open_photos
from porter.data.classes import Classes
from porter.data.photo_bytes import read_bytes
found = open_photos(Path(sys.argv[1]), classes=Classes(1000, Labels(IMAGENET)))
read_bytes(found.photos[0].place)
assert not {"numpy", "PIL", "pyarrow", "torch", "tensorflow"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("names", "imagenet", "why"),
    [
        (("a.jpg", "b.png"), True, "3 photos lie in no class folder"),
        (
            ("home/a.jpg", "2020/trip/b.jpg", "c.jpg"),
            True,
            "'2020' is no class of ImageNet-1k, 'home' is no class of ImageNet-1k",
        ),
        (
            ("2019/a.jpg", "2019/b.jpg", "castle/c.jpg"),
            True,
            "most photos tell no class: '2019' is no class of ImageNet-1k",
        ),
        (
            ("x/a.jpg", "y/b.jpg", "z/c.jpg"),
            False,
            "expected 2 class folders, one for each class of the port, got 3 (x, y, z)",
        ),
        ((val(1), val(2)), True, "there is no devkit beside them"),
    ],
)
def test_a_folder_of_any_photos_is_taken_without_classes(
    names: tuple[str, ...], imagenet: bool, why: str, tmp_path: Path
) -> None:
    place = files(tmp_path, *names)
    (tmp_path / "z.jpg").symlink_to("nowhere")
    found = open_any_photos(place, classes=IMAGENET_CLASSES if imagenet else Classes(2))
    assert found.layout == "photos without classes" and why in str(found.unlabelled)
    assert sorted(photo.name for photo in found.photos) == sorted(names) and {
        photo.labels for photo in found.photos
    } == {()}
    assert found.failed == (Failure("z.jpg", "a broken link, or no regular file"),) and not found.validation
    one = open_any_photos(place, classes=IMAGENET_CLASSES if imagenet else Classes(2), limit=1)
    assert len(one.photos) == one.limit == 1


def test_classes_that_most_photos_tell_are_taken(tmp_path: Path, real: Path) -> None:
    files(tmp_path, f"{WNIDS[0]}/a.jpg", f"{WNIDS[1]}/b.jpg", "other/c.jpg")
    assert open_any_photos(tmp_path, classes=IMAGENET_CLASSES) == opened(tmp_path)
    for place, labels in (
        (tmp_path / "none", None),
        (files(tmp_path / "empty", "a.txt"), None),
        (tmp_path, real),
    ):
        with pytest.raises(FileError):
            open_any_photos(place, classes=IMAGENET_CLASSES, labels=labels)


def test_photos_are_taken_evenly() -> None:
    assert take_evenly(range(10), 4) == [0, 2, 5, 7]
    assert take_evenly([3, 1], 5) == take_evenly([3, 1], None) == [3, 1]
    assert take_evenly([], 5) == []
