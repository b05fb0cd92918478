import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import porter
from porter.base.errors import FileError, UsageError
from tests.support.checkout import PHOTO
from tests.support.fixtures import Cli, WeightsMaker


def test_both_frameworks_see_the_same_five_classes(weights_file: WeightsMaker, tmp_path: Path) -> None:
    found = {}
    for framework in ("torch", "tf"):
        weights = weights_file("mobilenet_v2_0.35", "torchvision", ".pth")
        porter.convert(
            "mobilenet_v2_0.35",
            "torchvision",
            framework,
            weights=weights,
            out=tmp_path / framework,
            check=False,
        )
        (found[framework],) = porter.predict(tmp_path / framework, [PHOTO])
    one, other = found["torch"], found["tf"]
    assert [guess.name for guess in one.top5] == [guess.name for guess in other.top5]
    assert np.allclose(one.logits, other.logits, rtol=0, atol=1e-4 * np.abs(one.logits).max())
    assert one.logits.shape == (1000,) and one.top5[0].index == int(one.logits.argmax())
    shares = [guess.probability or 0.0 for guess in one.top5]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1


def test_classes_without_names_are_numbers(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file("mobilenet_v2_0.35", "keras", ".h5", classes=10)
    made = porter.convert(
        "mobilenet_v2_0.35", "keras", "torch", weights=weights, out=tmp_path / "p", check=False
    )
    assert made.port.record.classes == 10
    (prediction,) = porter.predict(tmp_path / "p", PHOTO)
    assert all(guess.name is None and guess.wnid is None and guess.index < 10 for guess in prediction.top5)


def test_far_behind_the_best_class_the_logits_still_tell(weights_file: WeightsMaker, tmp_path: Path) -> None:
    state = torch.load(weights_file("mobilenet_v2_0.35", "torchvision", ".pth"), weights_only=True)
    state["classifier.1.weight"] *= 1e6
    torch.save(state, tmp_path / "sure.pth")
    porter.convert(
        "mobilenet_v2_0.35",
        "torchvision",
        "torch",
        weights=tmp_path / "sure.pth",
        out=tmp_path / "p",
        check=False,
    )
    (prediction,) = porter.predict(tmp_path / "p", [PHOTO])
    assert [guess.probability for guess in prediction.top5[1:]] == [0, 0, 0, 0]
    assert [guess.index for guess in prediction.top5] == list(np.argsort(np.negative(prediction.logits))[:5])


def test_a_file_that_is_no_photo(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file("mobilenet_v2_0.35", "keras", ".h5")
    porter.convert("mobilenet_v2_0.35", "keras", "torch", weights=weights, out=tmp_path / "p", check=False)
    (tmp_path / "no.jpg").write_text("no photo")
    with pytest.raises(FileError, match=r"no\.jpg"):
        porter.predict(tmp_path / "p", [tmp_path / "no.jpg"])
    with pytest.raises(UsageError, match="photos, and this is a folder") as folder:
        porter.predict(tmp_path / "p", [tmp_path])
    assert (
        folder.value.next == f'name each photo: porter.predict("{tmp_path / "p"}", "{tmp_path / "no.jpg"}")'
    )


def test_a_single_output_is_a_number_and_no_share_of_one(
    weights_file: WeightsMaker, tmp_path: Path, cli: Cli
) -> None:
    """Its softmax is 1 whatever it is. A sigmoid's value is one, where the source had a sigmoid."""
    weights, port = weights_file("mobilenet_v2_0.35", "torchvision", ".pth", classes=1), tmp_path / "p"
    porter.convert("mobilenet_v2_0.35", "torchvision", "torch", weights=weights, out=port, check=False)
    ((guess,),) = [found.top5 for found in porter.predict(port, [PHOTO])]
    assert guess.probability is None and cli("predict", port, PHOTO).out.splitlines()[1:] == [
        f"  output {guess.logit:.4f}"
    ]
    record = json.loads((port / "port.json").read_text())
    (port / "port.json").write_text(json.dumps({**record, "activation": "sigmoid"}))
    sigmoid = 1 / (1 + math.exp(-guess.logit))
    assert cli("predict", port, PHOTO).out.splitlines()[1:] == [
        f"  output {guess.logit:.4f}, sigmoid {sigmoid:.4f}"
    ]
    with pytest.raises(UsageError, match="this model has one output"):
        porter.evaluate(port, PHOTO.parent)


def test_a_model_of_other_channels_is_refused_with_a_protocol_too(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    weights, port = weights_file("mobilenet_v2_0.35", "torchvision", ".pth"), tmp_path / "p"
    porter.convert("mobilenet_v2_0.35", "torchvision", "torch", weights=weights, out=port, check=False)
    record = json.loads((port / "port.json").read_text())
    (port / "port.json").write_text(
        json.dumps({**record, "input": {**record["input"], "channels": 1}, "preprocess": None})
    )
    for protocol in (None, "resize=squash,size=32,interpolation=pil_bilinear"):
        with pytest.raises(UsageError, match="photos have 3 channels, and this model takes 1"):
            porter.predict(port, [PHOTO], preprocess=protocol)
