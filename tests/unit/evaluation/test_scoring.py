"""One pass over real files with models whose answers are known: they read the level of a photo that is all of
one grey.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from porter.data.photos import Bytes, Failure, Photo
from porter.data.pipeline.batching import Feed
from porter.data.preprocess import Preprocess
from porter.evaluation.scoring import Logits, Scored, Watching, merge_scored, score
from porter.frameworks import Classifier

PROTOCOL = Preprocess("shorter_side", 8, "pil_bilinear", crop=6)
CLASSES = 12
STEP = 20


def grey(folder: Path, level: int, labels: tuple[int, ...]) -> Photo:
    path = folder / f"{level}.png"
    Image.new("RGB", (9, 8), (level, level, level)).save(path)
    return Photo(path.name, labels, Bytes(path))


def near(pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Logits by the mean level: the class whose number times STEP is nearest comes first."""
    level = pixels.reshape(-1, pixels[0, 0].size).mean(axis=1, dtype=np.float64)
    return -np.abs(level[:, np.newaxis] / STEP - np.arange(CLASSES)).astype(np.float32)


def far(pixels: NDArray[Any]) -> NDArray[np.float32]:
    return -near(pixels)


@pytest.fixture
def photos(tmp_path: Path) -> list[Photo]:
    """Photo n is seen as class n, then as n + 1; it is labelled n for even n and n + 1 for odd n."""
    return [grey(tmp_path, STEP * n + 1, (n + n % 2,)) for n in range(CLASSES - 1)]


def begin(model: Any) -> Classifier:
    """Runs at once and gives its logits when they are waited for, as on a CPU."""

    def begun(pixels: NDArray[Any]) -> Callable[[], NDArray[np.float32]]:
        logits = model(pixels)
        return lambda: logits

    return begun


FOURS = Feed(batch_size=4)


def scored(photos: Sequence[Photo], model: Any = near, feed: Feed = FOURS, **options: Any) -> Scored:
    return score(photos, PROTOCOL, {"port": begin(model)}, feed, **options)


def test_ranks_and_classes(photos: list[Photo]) -> None:
    found = scored(photos)
    port = found.models["port"]
    assert port.ranks.tolist() == [n % 2 for n in range(CLASSES - 1)] == port.centre.tolist()
    assert port.top[3].tolist() == [3, 4, 2, 5, 1]
    assert (np.diff(port.shares) <= 0).all() and 0 < port.shares[3, 0] < 1
    assert found.complete and found.reached.all() and not found.failed


def test_several_models_see_the_same_pixels_once(photos: list[Photo]) -> None:
    seen: dict[str, list[int]] = {"one": [], "two": []}

    def watched(name: str, model: Any) -> Any:
        return begin(lambda pixels: (seen[name].append(id(pixels)), model(pixels))[1])

    steps: list[tuple[int, ...]] = []
    models = {"one": watched("one", near), "two": watched("two", far)}
    found = score(
        photos,
        PROTOCOL,
        models,
        FOURS,
        watching=Watching(lambda positions, logits: steps.append((*positions, *logits["one"].shape))),
    )
    assert seen["one"] == seen["two"] and len(seen["one"]) == 3
    assert steps[-1] == (8, 9, 10, 3, 1, CLASSES)
    assert (found.models["one"].ranks != found.models["two"].ranks).all()


def test_a_background_row_moves_labels_one_row_down(photos: list[Photo]) -> None:
    def with_background(pixels: NDArray[Any]) -> NDArray[np.float32]:
        logits = near(pixels)
        return np.concatenate([np.full_like(logits[:, :1], -1e9), logits], axis=1)

    assert np.array_equal(
        scored(photos, with_background, logits={"port": Logits(background=True)}).models["port"].ranks,
        scored(photos).models["port"].ranks,
    )
    assert not np.array_equal(
        scored(photos, with_background).models["port"].ranks, scored(photos).models["port"].ranks
    )


def test_of_several_labels_one_is_enough(tmp_path: Path) -> None:
    found = scored([grey(tmp_path, 101, (0, 5)), grey(tmp_path, 102, (0, 11))])
    assert found.models["port"].ranks.tolist() == [0, 10]


def test_unreadable_photos_fail_for_every_model(photos: list[Photo], tmp_path: Path) -> None:
    (tmp_path / "61.png").write_bytes(b"\x89PNG, cut short")
    found = score(photos, PROTOCOL, {"one": begin(near), "two": begin(far)}, FOURS)
    assert list(found.failed) == [3] and found.failed[3].name == "61.png"
    assert found.reached.all() and all(
        scores.ranks[3] == -1 and not scores.failed for scores in found.models.values()
    )


def test_a_batch_of_only_failures(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    watched: list[object] = []
    found = scored(
        [Photo("a.png", (0,), Bytes(tmp_path / "a.png"))],
        watching=Watching(lambda *seen: watched.append(seen)),
    )
    assert (
        not watched
        and list(found.failed) == [0]
        and found.reached.all()
        and found.models["port"].ranks.tolist() == [-1]
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_fail_by_name(photos: list[Photo], value: float) -> None:
    def broken(pixels: NDArray[Any]) -> NDArray[np.float32]:
        logits = near(pixels)
        logits[logits.argmax(axis=1) == 5, 7] = value
        return logits

    found = scored(photos, broken)
    port = found.models["port"]
    assert port.failed == {5: Failure("101.png", "its logits are not finite")}
    assert port.ranks[5] == -1 and port.top[5].tolist() == [-1] * 5 and not found.failed
    assert np.array_equal(np.delete(port.ranks, 5), np.delete(scored(photos).models["port"].ranks, 5))


def test_fewer_than_five_classes(photos: list[Photo]) -> None:
    found = scored(photos[:3], lambda pixels: near(pixels)[:, :3])
    assert found.models["port"].top.tolist() == [[0, 1, 2, -1, -1], [1, 2, 0, -1, -1], [2, 1, 0, -1, -1]]


def test_ten_crops_give_single_crop_figures_too(tmp_path: Path) -> None:
    picture = np.full((8, 8, 3), 40, np.uint8)
    picture[0], picture[-1] = 255, 255  # the corners are brighter than the centre
    Image.fromarray(picture).save(tmp_path / "a.png")
    port = scored([Photo("a.png", (2,), Bytes(tmp_path / "a.png"))], feed=Feed(10)).models["port"]
    assert port.centre.tolist() == [0] and port.ranks.tolist() == [2]


def test_control_c_keeps_what_was_measured(photos: list[Photo]) -> None:
    def impatient(pixels: NDArray[Any]) -> NDArray[np.float32]:
        if (near(pixels).argmax(axis=1) == 5).any():
            raise KeyboardInterrupt
        return near(pixels)

    found = score(photos, PROTOCOL, {"port": begin(near), "late": begin(impatient)}, FOURS)
    assert not found.complete and found.reached.tolist() == [True] * 4 + [False] * 7
    for scores in found.models.values():
        assert scores.ranks.tolist() == [0, 1, 0, 1] + [-1] * 7 and (scores.top[4:] == -1).all()


def test_a_batch_begins_before_the_last_one_is_waited_for(photos: list[Photo]) -> None:
    steps: list[str] = []

    def model(pixels: NDArray[Any]) -> Callable[[], NDArray[np.float32]]:
        steps.append("begin")
        return lambda: (steps.append("wait"), near(pixels))[1]

    found = score(photos, PROTOCOL, {"port": model}, FOURS)
    assert steps == ["begin", "begin", "wait", "begin", "wait", "wait"]
    assert np.array_equal(found.models["port"].ranks, scored(photos).models["port"].ranks)


def test_control_c_while_a_batch_is_waited_for_keeps_it(photos: list[Photo]) -> None:
    waits: list[int] = []

    def model(pixels: NDArray[Any]) -> Callable[[], NDArray[np.float32]]:
        def wait() -> NDArray[np.float32]:
            waits.append(len(pixels))
            if len(waits) == 1:
                raise KeyboardInterrupt
            return near(pixels)

        return wait

    found = score(photos, PROTOCOL, {"port": model}, FOURS)
    assert not found.complete and found.reached.tolist() == [True] * 4 + [False] * 7


def test_shares_add_up_to_the_whole(photos: list[Photo], tmp_path: Path) -> None:
    many = [Photo(f"{place}", photo.labels, photo.place) for place, photo in enumerate(photos * 5)]
    many[20] = Photo("20", (1,), Bytes(tmp_path / "missing.png"))
    whole, parts = scored(many), [scored(many, feed=Feed(batch_size=4, share=(rank, 2))) for rank in range(2)]
    assert all(0 < part.reached.sum() < len(many) for part in parts)
    found = merge_scored(parts)
    for name in ("ranks", "centre", "losses", "top", "shares"):
        assert np.array_equal(
            getattr(found.models["port"], name), getattr(whole.models["port"], name), equal_nan=True
        )
    assert found.reached.all() and found.failed == whole.failed and list(found.failed) == [20]
