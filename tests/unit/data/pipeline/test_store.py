"""What is decoded once is not decoded again, and what is in the cache is never believed blindly."""

import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import FileError
from porter.data.photo_decoding import open_image
from porter.data.photos import Bytes, Photo
from porter.data.pipeline import making
from porter.data.pipeline.batching import CHUNK, Batch, Feed, batches
from porter.data.preprocess import Preprocess
from tests.support.arrays import Array
from tests.support.photo_files import encoded, picture, write_photos

PIL = Preprocess(
    "shorter_side",
    40,
    "pil_bilinear",
    crop=32,
    divide=255.0,
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
)
VGG = Preprocess("shorter_side", 40, "tf1_bilinear", crop=32, mean=(123.68, 116.78, 103.94))
COUNT = 2 * CHUNK + 3


@pytest.fixture
def photos(tmp_path: Path) -> list[Photo]:
    return write_photos(tmp_path / "photos", COUNT)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The files that are decoded from here on, in this process."""
    seen: list[bytes] = []
    original = open_image
    monkeypatch.setattr(making, "open_image", lambda data, jpeg: seen.append(data) or original(data, jpeg))
    return seen


def every(
    photos: Sequence[Photo], cache: Path | None, protocol: Preprocess = PIL, **options: Any
) -> list[Batch]:
    with closing(
        batches(
            photos, protocol, Feed(**{"crops": 1, "batch_size": 16, "workers": 0, "cache": cache, **options})
        )
    ) as found:
        return list(found)


def pixels(found: Sequence[Batch]) -> Array:
    return np.concatenate([batch.pixels for batch in found])


def test_another_run_over_the_same_photos_decodes_nothing(
    photos: list[Photo], tmp_path: Path, decoded: list[bytes]
) -> None:
    cache = tmp_path / "new" / "cache"
    first = every(photos, cache)
    assert len(decoded) == COUNT
    again = every(photos, cache)
    np.testing.assert_array_equal(pixels(again), pixels(first))
    ten = every(photos, cache, crops=10, batch_size=5)
    np.testing.assert_array_equal(pixels(ten)[:, :1], pixels(first))
    every(photos, cache, replace(PIL, channels="bgr", divide=1.0, mean=(1.0,) * 3, std=(2.0,) * 3, crop=24))
    every(photos, cache, share=(1, 2))
    every([replace(photo, labels=(5,)) for photo in photos[: 2 * CHUNK]], cache)
    assert len(decoded) == COUNT


def test_a_full_cache_starts_no_process(
    photos: list[Photo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = every(photos, tmp_path / "cache", workers=2)
    monkeypatch.setattr("subprocess.Popen", None)
    np.testing.assert_array_equal(pixels(every(photos, tmp_path / "cache", workers=2)), pixels(first))


@pytest.mark.parametrize(
    "protocol",
    [
        replace(PIL, size=41),
        replace(PIL, interpolation="pil_bicubic"),
        replace(PIL, resize="squash"),
        replace(PIL, central_fraction=0.9),
    ],
)
def test_another_geometry_is_another_entry(
    protocol: Preprocess, photos: list[Photo], tmp_path: Path, decoded: list[bytes]
) -> None:
    every(photos, tmp_path / "cache")
    found = every(photos, tmp_path / "cache", protocol)
    assert len(decoded) == 2 * COUNT
    np.testing.assert_array_equal(pixels(found), pixels(every(photos, None, protocol)))


def test_where_pixels_are_divided_before_they_are_resized_the_divisor_counts(
    photos: list[Photo], tmp_path: Path
) -> None:
    every(photos, tmp_path / "cache", VGG)
    found = every(photos, tmp_path / "cache", replace(VGG, divide=255.0))
    assert 0.1 < pixels(found).max() <= 1


def test_a_photo_that_changed_is_decoded_again(photos: list[Photo], tmp_path: Path) -> None:
    every(photos, tmp_path / "cache")
    photos[3].place.path.write_bytes(encoded(picture(99)))
    os.utime(photos[3].place.path, ns=(0, 0))
    np.testing.assert_array_equal(pixels(every(photos, tmp_path / "cache")), pixels(every(photos, None)))


def test_two_data_sets_with_the_same_names_are_told_apart(photos: list[Photo], tmp_path: Path) -> None:
    every(photos, tmp_path / "cache")
    others = write_photos(tmp_path / "others", COUNT)
    for photo, other in zip(reversed(photos), others, strict=True):
        shutil.copy2(photo.place.path, other.place.path)
    np.testing.assert_array_equal(pixels(every(others, tmp_path / "cache")), pixels(every(others, None)))


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "another chunk"])
def test_damage_is_noticed_and_mended(
    damage: str, photos: list[Photo], tmp_path: Path, decoded: list[bytes]
) -> None:
    cache = tmp_path / "cache"
    first = every(photos, cache)
    names = sorted(path for path in cache.iterdir() if path.stat().st_size > 100_000)
    assert len(names) == 2 and len(list(cache.iterdir())) == 3
    whole = names[0].read_bytes()
    short = min(cache.iterdir(), key=lambda path: path.stat().st_size).read_bytes()
    changed = whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:]
    names[0].write_bytes(
        {"cut": whole[:-1], "changed": changed, "empty": b"", "another chunk": short}[damage]
    )
    np.testing.assert_array_equal(pixels(every(photos, cache)), pixels(first))
    assert len(decoded) == COUNT + CHUNK
    assert names[0].read_bytes() == whole


def test_an_interrupted_pass_resumes(photos: list[Photo], tmp_path: Path, decoded: list[bytes]) -> None:
    with closing(
        batches(photos, PIL, Feed(crops=1, batch_size=1, workers=0, cache=tmp_path / "cache"))
    ) as stream:
        next(stream)
    done = len(list((tmp_path / "cache").glob("*.pixels")))
    assert done >= 1
    every(photos, tmp_path / "cache")
    assert len(decoded) <= COUNT + CHUNK  # at most the chunk under way was lost
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".pixels"] * 3


def test_broken_photos_are_remembered_and_unreadable_ones_tried_again(
    photos: list[Photo], tmp_path: Path, decoded: list[bytes]
) -> None:
    photos[0].place.path.write_bytes(b"no photo")
    hidden = photos[CHUNK].place.path.read_bytes()
    photos[CHUNK].place.path.unlink()
    for _ in range(2):
        found = every(photos, tmp_path / "cache")
        assert [position for batch in found for position, _ in batch.failed] == [0, CHUNK]
    assert len(decoded) == COUNT - 1 + CHUNK - 1
    photos[CHUNK].place.path.write_bytes(hidden)
    assert [position for batch in every(photos, tmp_path / "cache") for position, _ in batch.failed] == [0]


def test_runs_share_a_cache_without_harm(photos: list[Photo], tmp_path: Path) -> None:
    wanted = pixels(every(photos, None))
    with ThreadPoolExecutor(4) as executor:
        for found in executor.map(lambda _: pixels(every(photos, tmp_path / "cache", workers=1)), range(4)):
            np.testing.assert_array_equal(found, wanted)
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".pixels"] * 3


def test_what_killed_runs_left_goes_and_what_runs_are_at_stays(photos: list[Photo], tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for name, age in (("old.part", 2 * 24 * 3600), ("new.part", 60)):
        (tmp_path / "cache" / name).touch()
        os.utime(tmp_path / "cache" / name, (time.time() - age,) * 2)
    every(photos[:1], tmp_path / "cache")
    assert sorted(path.name for path in (tmp_path / "cache").glob("*.part")) == ["new.part"]


def test_a_cache_that_is_no_folder_is_an_error(photos: list[Photo], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be used as a cache") as caught:
        every(photos, tmp_path / "file")
    assert caught.value.where == str(tmp_path / "file")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_full_disk_is_an_error(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr("porter.data.pipeline.store.uuid4", lambda: type("Fixed", (), {"hex": "full"}))
    (tmp_path / "cache" / "full.part").symlink_to("/dev/full")
    with pytest.raises(FileError, match="No space left on device") as caught:
        every(write_photos(tmp_path / "photos", 1), tmp_path / "cache", workers=workers)
    assert caught.value.where == str(tmp_path / "cache")


def test_without_a_cache_nothing_stays(
    photos: list[Photo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    for _ in batches(photos, PIL, Feed(crops=1, batch_size=1, workers=1, cache=None)):
        (folder,) = (tmp_path / "temporary").iterdir()
        assert len(list(folder.iterdir())) <= 2  # one being made and one being read
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_photo_in_an_archive_is_known_by_its_place(tmp_path: Path, decoded: list[bytes]) -> None:
    one, other = encoded(picture(0)), encoded(picture(1))
    (tmp_path / "val.tar").write_bytes(one + other)
    first = Photo("0.jpg", (0,), Bytes(tmp_path / "val.tar", 0, len(one)))
    second = Photo("0.jpg", (0,), Bytes(tmp_path / "val.tar", len(one), len(other)))
    found = [every([photo], tmp_path / "cache")[0].pixels for photo in (first, second, first, second)]
    assert decoded == [one, other]
    np.testing.assert_array_equal(found[1], found[3])
    assert (found[0] != found[1]).any()
