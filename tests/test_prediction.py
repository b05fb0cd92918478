from pathlib import Path

import numpy as np
import pytest

import porter
from porter.errors import FileError
from tests.conftest import WeightsMaker

PHOTO = Path(__file__).parents[1] / "scripts" / "photos" / "chelsea.png"


def test_both_frameworks_see_the_same_five_classes(weights_file: WeightsMaker, tmp_path: Path) -> None:
    found = {}
    for framework in ("torch", "tf"):
        weights = weights_file("mobilenet_v2", "torchvision", ".pth")
        porter.convert("mobilenet_v2", "torchvision", framework, weights=weights, out=tmp_path / framework, check=False)
        (found[framework],) = porter.predict(tmp_path / framework, [PHOTO])
    torch, tf = found["torch"], found["tf"]
    assert [guess.name for guess in torch.top5] == [guess.name for guess in tf.top5]
    assert np.allclose(torch.logits, tf.logits, rtol=0, atol=1e-4 * np.abs(torch.logits).max())
    assert torch.logits.shape == (1000,) and torch.top5[0].index == int(torch.logits.argmax())
    shares = [guess.probability for guess in torch.top5]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1


def test_classes_without_names_are_numbers(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file("mobilenet_v2_0.35", "keras", ".h5", classes=10)
    made = porter.convert("mobilenet_v2_0.35", "keras", "torch", weights=weights, out=tmp_path / "p", check=False)
    assert made.port.record.classes == 10
    (prediction,) = porter.predict(tmp_path / "p", [PHOTO])
    assert all(guess.name is None and guess.wnid is None and guess.index < 10 for guess in prediction.top5)


def test_a_file_that_is_no_photo(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file("mobilenet_v2_0.35", "keras", ".h5")
    porter.convert("mobilenet_v2_0.35", "keras", "torch", weights=weights, out=tmp_path / "p", check=False)
    (tmp_path / "no.jpg").write_text("no photo")
    with pytest.raises(FileError, match=r"no\.jpg"):
        porter.predict(tmp_path / "p", [tmp_path / "no.jpg"])
