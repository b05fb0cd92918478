"""`porter recipe new --from-model`: a draft runs as it stands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import keras
import pytest

from tests.conftest import Cli, refused

LAYERS = keras.layers


def inverted_residuals() -> keras.Model:
    """Blocks under MobileNetV2's names, whose sums Keras numbers, and a head that is a convolution."""
    image = keras.Input((32, 32, 3))
    value = LAYERS.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name="Conv1")(image)
    value = LAYERS.BatchNormalization(name="bn_Conv1")(value)
    for number, (filters, strides) in enumerate([(8, 1), (8, 1), (16, 2), (16, 1)], 1):
        entry = value
        value = LAYERS.Conv2D(4 * entry.shape[-1], 1, use_bias=False, name=f"block_{number}_expand")(value)
        value = LAYERS.ReLU(6.0, name=f"block_{number}_expand_relu")(
            LAYERS.BatchNormalization(name=f"block_{number}_expand_BN")(value)
        )
        if strides == 2:
            value = LAYERS.ZeroPadding2D(((0, 1), (0, 1)))(value)
        pads = "valid" if strides == 2 else "same"
        value = LAYERS.DepthwiseConv2D(3, strides=strides, padding=pads, use_bias=False, name=f"block_{number}_depthwise")(value)
        value = LAYERS.Conv2D(filters, 1, use_bias=False, name=f"block_{number}_project")(value)
        value = LAYERS.Add()([entry, value]) if entry.shape == value.shape else value
    value = LAYERS.GlobalAveragePooling2D(keepdims=True)(value)
    value = LAYERS.Flatten()(LAYERS.Conv2D(7, 1, name="logits")(value))
    return keras.Model(image, LAYERS.Activation("softmax")(value))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keras.utils.clear_session()  # other tests may have numbered layers before
    keras.utils.set_random_seed(0)
    path = tmp_path_factory.mktemp("drafting") / "mine.keras"
    inverted_residuals().save(path)
    return path


def test_a_draft_ports_the_file_that_it_is_of(saved: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli("recipe", "new", "mine", "--from-model", str(saved), "--out", "recipes/mine.yaml", "--weights", str(saved), "--json")
    made = json.loads(ran.out)
    assert ran.status == 0, ran.out
    assert made["blocks"] == {"block": 4} and made["tensors"] == {"used": 35, "ignored": 0} and made["lines"] < 45
    text = (tmp_path / "recipes" / "mine.yaml").read_text()
    assert "pad: [0, 1, 0, 1]" in text and '"block{b}/expand": "block_{b}_expand"' in text and "activation: softmax" in text
    ported = json.loads(cli(*shlex.split(made["convert"])[1:], "--check", "--json").out)
    assert ported["parity"]["ok"] and ported["variant"] == "mine" and ported["zoo"] == "own"
    refused(cli("recipe", "new", "mine", "--from-model", str(saved), "--out", "recipes/mine.yaml"), "this file exists")
    again = cli("recipe", "new", "mine", "--from-model", str(saved), "--out", "recipes/mine.yaml", "--zoo", "ours", "--overwrite")
    assert "mine from ours" in again.out and "porter convert mine --from ours --to torch" in again.out
