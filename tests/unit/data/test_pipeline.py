"""Batches hold what `prepare` and `prepare_ten` give, bit for bit, every photo once and in order."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from porter.base.errors import UsageError
from porter.data.photo_decoding import open_image
from porter.data.photos import Bytes, Photo
from porter.data.pipeline.batching import CHUNK, Batch, Feed, batches, chunks_of_share
from porter.data.preparing import normalise, prepare
from porter.data.preprocess import Preprocess
from tests.support.photo_files import broken_photos, encoded, odd_photos, picture, prepare_ten, write_photos

IMAGENET: dict[str, Any] = {"divide": 255.0, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
PIL = Preprocess("shorter_side", 40, "pil_bilinear", crop=32, **IMAGENET)
PROTOCOLS = {
    "pil_bilinear": PIL,
    "pil_bicubic": replace(PIL, interpolation="pil_bicubic"),
    "opencv_cubic": Preprocess(
        "shorter_side", 40, "opencv_cubic", crop=32, channels="bgr", mean=(103.939, 116.779, 123.68)
    ),
    "opencv_cubic scaled": Preprocess(
        "shorter_side", 41, "opencv_cubic", crop=32, divide=127.5, mean=(1.0, 1.0, 1.0)
    ),
    "vgg": Preprocess("shorter_side", 40, "tf1_bilinear", crop=32, mean=(123.68, 116.78, 103.94)),
    "inception": Preprocess(
        "squash", 33, "tf1_bilinear", central_fraction=0.875, divide=255.0, mean=(0.5,) * 3, std=(0.5,) * 3
    ),
}
COUNT = CHUNK + 5


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Photo]:
    return write_photos(tmp_path_factory.mktemp("photos"), COUNT)


def every(photos: Sequence[Photo], protocol: Preprocess = PIL, **options: Any) -> list[Batch]:
    settings: dict[str, Any] = {"crops": 1, "batch_size": 8, "workers": 0, "cache": None, **options}
    with closing(batches(photos, protocol, Feed(**settings))) as found:
        return list(found)


@pytest.mark.parametrize(
    ("name", "crops"),
    [
        (name, crops)
        for name, protocol in PROTOCOLS.items()
        for crops in (1, 2, 10)
        if crops < 10 or protocol.crop
    ],
)
def test_every_photo_once_in_order_and_as_prepared(photos: list[Photo], name: str, crops: int) -> None:
    protocol = PROTOCOLS[name]
    found = every(photos, protocol, crops=crops)
    assert [position for batch in found for position in batch.positions] == list(range(COUNT))
    assert [len(batch.positions) for batch in found] == [8, 8, 5]
    assert {batch.pixels.dtype.name for batch in found} == {
        "float32" if "tf1" in protocol.interpolation else "uint8"
    }
    for batch in found:
        values = normalise(batch.pixels, protocol)
        assert values.shape == (len(batch.positions), crops, 3, *batch.pixels.shape[2:4])
        for position, value in zip(batch.positions, values, strict=True):
            image = open_image(photos[position].place.path)
            wanted = (
                prepare_ten(image, protocol) if crops == 10 else mirrored(prepare(image, protocol))[:crops]
            )
            np.testing.assert_array_equal(value, wanted, strict=True)


def mirrored(image: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.stack([image, image[:, :, ::-1]])


def test_worker_processes_give_the_same(photos: list[Photo]) -> None:
    for one, other in zip(every(photos, workers=2), every(photos), strict=True):
        assert one.positions == other.positions
        np.testing.assert_array_equal(one.pixels, other.pixels)


@pytest.mark.parametrize("batch_size", [1, CHUNK, COUNT, 1000])
def test_batches_need_not_fit_chunks(photos: list[Photo], batch_size: int) -> None:
    found = every(photos, batch_size=batch_size)
    assert [len(batch.positions) for batch in found[:-1]] == [batch_size] * (len(found) - 1)
    assert [position for batch in found for position in batch.positions] == list(range(COUNT))


@pytest.mark.parametrize("done", [8, CHUNK, CHUNK + 4, COUNT])
def test_photos_that_an_earlier_run_has_done_are_left_out(photos: list[Photo], done: int) -> None:
    batch_size = 4
    found, whole = (
        every(photos, batch_size=batch_size, done=done),
        every(photos, batch_size=batch_size)[done // batch_size :],
    )
    assert [batch.positions for batch in found] == [
        batch.positions for batch in whole if batch.positions[0] >= done
    ]
    for batch, wanted in zip(found, whole, strict=False):
        np.testing.assert_array_equal(batch.pixels, wanted.pixels, strict=True)
    second = every(photos[:1] * (3 * CHUNK), share=(1, 2), done=2)
    assert [position for batch in second for position in batch.positions] == list(range(CHUNK + 2, 2 * CHUNK))


def test_no_photos_are_no_batches() -> None:
    assert every([], workers=2) == []


def test_photos_inside_an_archive(tmp_path: Path) -> None:
    contents = [encoded(picture(number)) for number in range(3)]
    archive = tmp_path / "val.tar"
    archive.write_bytes(b"head".join([b"", *contents, b""]))
    starts = [4 + sum(len(content) + 4 for content in contents[:number]) for number in range(3)]
    inside = [
        Photo(f"{number}.jpg", (0,), Bytes(archive, start, len(content)))
        for number, (start, content) in enumerate(zip(starts, contents, strict=True))
    ]
    outside = write_photos(tmp_path / "photos", 3)
    for photo, content in zip(outside, contents, strict=True):
        photo.place.path.write_bytes(content)
    np.testing.assert_array_equal(every(inside)[0].pixels, every(outside)[0].pixels)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_broken_photos_are_named_with_the_reason_and_odd_ones_are_used(tmp_path: Path, workers: int) -> None:
    contents = (
        {name: (content, None) for name, content in odd_photos().items()}
        | dict(broken_photos())
        | {"missing.jpg": None}
    )
    for name, entry in contents.items():
        if entry is not None:
            (tmp_path / name).write_bytes(entry[0])
    photos = [Photo(name, (0,), Bytes(tmp_path / name)) for name in contents]
    found = every(photos, workers=workers, batch_size=5)
    assert [len(batch.positions) + len(batch.failed) for batch in found] == [5, 5, 3]
    assert {photos[position].name for batch in found for position in batch.positions} == set(odd_photos())
    failed = {failure.name: (position, failure.why) for batch in found for position, failure in batch.failed}
    assert set(failed) == set(broken_photos()) | {"missing.jpg"}
    for name, (_, why) in broken_photos().items():
        assert why in failed[name][1]
        assert str(tmp_path) not in failed[name][1]
        assert photos[failed[name][0]].name == name
    assert "No such file" in failed["missing.jpg"][1]


def test_a_batch_of_failures_has_no_pixels(tmp_path: Path) -> None:
    (batch,) = every([Photo("gone.jpg", (0,), Bytes(tmp_path / "gone.jpg"))])
    assert batch.positions == ()
    assert (batch.pixels.shape, batch.pixels.dtype) == ((0, 1, 32, 32, 3), np.dtype(np.uint8))
    assert normalise(batch.pixels, PIL).shape == (0, 1, 3, 32, 32)


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_shares_are_every_photo_once(tmp_path: Path, world: int) -> None:
    missing = [Photo(f"{number}.jpg", (0,), Bytes(tmp_path / "none")) for number in range(3 * CHUNK + 5)]
    shares = [every(missing, share=(rank, world)) for rank in range(world)]
    found = [[position for batch in share for position, _ in batch.failed] for share in shares]
    assert sorted(chain.from_iterable(found)) == list(range(len(missing)))
    assert found == [
        [position for chunk in chunks_of_share(len(missing), (rank, world)) for position in chunk]
        for rank in range(world)
    ]


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        (PIL, {"crops": 5}),
        (PIL, {"batch_size": 0}),
        (PIL, {"workers": -1}),
        (PIL, {"share": (2, 2)}),
        (PIL, {"share": (0, 0)}),
        (PROTOCOLS["inception"], {"crops": 10}),
        (replace(PIL, crop=None), {}),
    ],
)
def test_what_makes_no_batches_is_refused_before_anything_starts(
    protocol: Preprocess, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        batches([], protocol, Feed(**{"crops": 1, "batch_size": 8, "workers": 0, "cache": None, **options}))
