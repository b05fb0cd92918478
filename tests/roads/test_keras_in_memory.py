"""Keras models that a user holds are ported. The graph that Keras saves proves a port, and the model itself,
which stays as it is, has to give what that graph gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import pytest
import torch

import porter
from porter.base.dtypes import Dtype
from porter.base.errors import Contradiction, UsageError
from porter.formats.reading import read_checkpoint
from porter.frameworks.tf import in_memory
from porter.frameworks.tf.keras_files.build import build_keras_file
from porter.frameworks.tf.run import run_reference
from tests.support.arrays import Array
from tests.support.keras_models import HALF_MODELS, KERAS_MODELS, SIDE, given_to

pytestmark = pytest.mark.usefixtures("in_double")


@pytest.fixture
def convert(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    keras.utils.set_random_seed(0)
    yield lambda model, **how: porter.convert(model, out=tmp_path / "port", overwrite=True, **how)


def own_outputs(model: Any, given: Any, traced: bool = False) -> list[Array]:
    """Those of a dict in its order; in that of its keys where TensorFlow traced the model."""
    found = model(given, training=False)
    flat = found.values() if isinstance(found, dict) and not traced else keras.tree.flatten(found)
    return [np.asarray(each) for each in flat]


def distance(own: Array, other: Array) -> float:
    wanted, got = own.astype(np.float64), other.astype(np.float64)
    return float(np.linalg.norm(wanted - got) / np.linalg.norm(wanted))


def port_outputs(made: Any, given: Any) -> list[Array]:
    """A port's in torch, its maps as N x H x W x C, for the first map and then the other inputs."""
    batches = sorted(keras.tree.flatten(given), key=lambda each: each.ndim != 4)
    taken = [torch.from_numpy(each.transpose(0, 3, 1, 2) if each.ndim == 4 else each) for each in batches]
    with torch.no_grad():
        found = porter.load(made.port.folder)(*taken)
    values = [each.numpy() for each in (found if isinstance(found, tuple) else [found])]
    return [each.transpose(0, 2, 3, 1) if each.ndim == 4 else each for each in values]


@pytest.mark.parametrize("name", KERAS_MODELS)
def test_models_of_keras(convert: Callable[..., Any], name: str) -> None:
    model, given = KERAS_MODELS[name](keras), given_to(name)
    before = [weight.tobytes() for weight in model.get_weights()]
    calls = [len(layer._inbound_nodes) for layer in model._flatten_layers()]
    made = convert(model, to="torch")
    double = made.verdict.parities[-1]
    assert made.verdict.ok and double.dtype == "float64" and double.reference.startswith("the graph that ")
    (held,) = made.verdict.held
    assert held.startswith(f"the outputs: held to the model {model.name} itself, ")
    wanted = own_outputs(model, given, "traces" in double.reference)
    got = port_outputs(made, given)
    assert [each.shape for each in wanted] == [each.shape for each in got]
    assert all(np.allclose(ours, own, rtol=0, atol=2e-5) for ours, own in zip(got, wanted, strict=True))
    assert [weight.tobytes() for weight in model.get_weights()] == before
    assert [len(layer._inbound_nodes) for layer in model._flatten_layers()] == calls


def small(outputs: Callable[[Any, Any], Any] = lambda features, logits: logits) -> Any:
    image = keras.Input((SIDE, SIDE, 3))
    features = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3, name="stem")(image))
    return keras.Model(image, outputs(features, keras.layers.Dense(4, name="top")(features)))


def _moved(model: Any) -> Any:
    model.get_layer("top").bias.assign(model.get_layer("top").bias + 1e-3)
    return model


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full if "bfloat16" not in name else ()) for name in HALF_MODELS],
)
def test_models_of_half_precision(convert: Callable[..., Any], name: str, tmp_path: Path) -> None:
    """A port is in exact arithmetic, and convert says how far the model's own outputs are."""
    model, given, half = HALF_MODELS[name](keras), given_to(name), name.split()[1]
    file, wanted = tmp_path / f"model.{'keras' if half == 'float16' else 'h5'}", own_outputs(model, given)
    model.save(file)
    for source in (model, file):
        made = convert(source, to="torch")
        (said,) = [each for each in made.warnings if half in each]
        figure = re.search(r"its own outputs are (\d\.\de-0\d) away", said)
        lost = max(map(distance, port_outputs(made, given), wanted))
        assert made.verdict.ok and figure is not None and lost / 8 < float(figure[1]) < 8 * lost, said
        assert any(
            note == f"its layers compute in {half}, and are read in exact arithmetic"
            for note in made.port.record.source.notes
        )
    checkpoint = read_checkpoint(file)
    taps = {tap: tap for tap in checkpoint.carried.given}
    as_stated = build_keras_file(checkpoint, cast(Dtype, half), (SIDE, SIDE))
    found = run_reference(as_stated, given.transpose(0, 3, 1, 2), taps)
    apart = [distance(own, found[tap]) for own, tap in zip(wanted, taps, strict=True)]
    assert max(apart) < lost / 4


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another number": (
        _moved,
        r"output 1 of the model .* itself is [\d.]+e-\d\d from that of the graph that",
    ),
    "another order": (lambda model: keras.Model(model.input, model.output[::-1]), "output 1 of the model"),
    "one output less": (
        lambda model: keras.Model(model.input, model.output[0]),
        "gives 2 outputs, and .* has 1",
    ),
    "another shape": (
        lambda model: keras.Model(model.input, [keras.ops.expand_dims(model.output[0], 1), model.output[1]]),
        "output 1 of the model .* itself is 4, and in the graph that Keras saves as porter reads it 1x4",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_saved_otherwise_is_told_by_the_model(
    convert: Callable[..., Any], wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file is of another model, as if porter read it wrongly: only the model itself knows."""
    change, said = WRONG[wrong]
    right = in_memory._with_stated_layers

    def changed(module: Any, model: Any, size: Any) -> Any:
        copy = keras.models.clone_model(right(module, model, size))
        copy.set_weights(model.get_weights())
        return change(copy)

    model = small(lambda features, logits: [logits, features])
    monkeypatch.setattr(in_memory, "_with_stated_layers", changed)
    with pytest.raises(Contradiction, match=said):
        convert(model)
    assert not (tmp_path / "port").exists()


def test_models_of_classes_that_hide_their_layers(convert: Callable[..., Any]) -> None:
    """As KerasHub's: their configuration is their own arguments."""

    class Hub(keras.Model):
        def __init__(self, width: int, nested: Any = None, **named: Any) -> None:
            image = keras.Input((SIDE, SIDE, 3))
            maps = (
                keras.layers.Conv2D(width, 3, activation="relu")(image) if nested is None else nested(image)
            )
            super().__init__(image, keras.layers.Conv2D(width, 1)(maps), **named)
            self.width, self.nested = width, nested

        def get_config(self) -> dict[str, Any]:
            return {
                "width": self.width,
                "nested": self.nested and keras.saving.serialize_keras_object(self.nested),
            }

        @classmethod
        def from_config(cls, config: dict[str, Any]) -> Any:
            nested = config["nested"] and cls.from_config(config["nested"]["config"])
            return cls(config["width"], nested)

    deep, image = Hub(4, Hub(5)), keras.Input((SIDE, SIDE, 3))
    given = given_to("")
    for model in (deep, keras.Model(image, keras.layers.GlobalAveragePooling2D()(deep(image)))):
        before = [weight.tobytes() for weight in model.get_weights()]
        made = convert(model, to="torch")
        assert [weight.tobytes() for weight in model.get_weights()] == before and made.verdict.ok
        (ours,), (own,) = port_outputs(made, given), own_outputs(model, given)
        assert np.allclose(ours, own, rtol=0, atol=1e-5)


def test_what_is_no_graph_with_stated_layers(convert: Callable[..., Any]) -> None:
    lazy = keras.Sequential([keras.layers.Conv2D(4, 3)])
    with pytest.raises(UsageError, match=r"not built.*call it on a batch first"):
        convert(lazy)

    class Code(keras.Model):
        """Keras remembers the first argument only."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = keras.layers.Conv2D(4, 3)

        def call(self, images: Any, mask: Any) -> Any:
            return self.conv(images) * mask

    model = Code()
    model(np.zeros((1, SIDE, SIDE, 3), "float32"), np.zeros((1, 1, 1, 1), "float32"))
    with pytest.raises(UsageError, match=r"Keras cannot save it: .*keras\.Model\(inputs, model\.call"):
        convert(model)


def test_models_of_tf_keras_are_given_as_files() -> None:
    tf_keras = pytest.importorskip("tf_keras")
    model = tf_keras.Sequential([tf_keras.Input((SIDE, SIDE, 3)), tf_keras.layers.Conv2D(4, 3)])
    with pytest.raises(UsageError, match=r"expected a variant, .*tf_keras's: save it, model\.save\("):
        porter.convert(model)
