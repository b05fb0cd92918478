"""Keras models that a user's own code makes. See porter.frameworks.given.GivenModels. Keras is imported only
to run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from porter.base.dtypes import Array, Dtype, is_floating, storage_type
from porter.base.errors import first_line
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras import FORMATS
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.given import Shown
from porter.frameworks.tf.frozen.run import channels_first
from porter.frameworks.tf.numbering import first_names
from porter.frameworks.tf.run import tf32
from porter.frameworks.tf.runtime import (
    floating,
    import_keras,
    keep_constants,
    quiet_logger,
    tensorflow_device,
)

LOADED = frozenset(format.name for format in FORMATS)
"""The formats that Keras itself loads."""


def owns(model: object) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, keras.Model)


def prepare(
    make: Callable[[], Any], image: Array, checkpoint: Checkpoint | None, stored: Dtype, dtype: Dtype
) -> tuple[Any, str]:
    """See porter.frameworks.given.GivenModels.prepare: Keras itself loads a file of its own formats."""

    def made() -> Any:
        model = make()
        if not model.built:
            model(_fed(image.astype(dtype), _shape(model, 0)), training=False)
        return model

    with import_tensorflow().device(tensorflow_device("cpu")), floating(dtype):
        model, weights = made(), "with the weights that the code gives it"
        if checkpoint is not None and checkpoint.format in LOADED:
            refusal = _load(model, checkpoint)
            if refusal is None:
                weights = f"with the tensors of {checkpoint.path.name}"
            else:
                model = made()  # a part of the weights may be loaded already
                weights += f", because Keras does not load {checkpoint.path.name} into it: {refusal:.200}"
        if _inputs(model) and any(
            variable.dtype != dtype for variable in model.weights if _is_real(variable)
        ):
            model = _in_dtype(model, dtype)
        keep_constants(model)
        for variable in model.weights:
            if _is_real(variable):
                variable.assign(np.asarray(variable).astype(storage_type(stored)).astype(variable.dtype))
    return model, weights


def _inputs(model: Any) -> list[Any]:
    """The symbolic inputs of a model of layers; empty for a model that is only code."""
    return list(getattr(model, "inputs", None) or ())


def _load(model: Any, checkpoint: Checkpoint) -> str | None:
    """Loads the file's weights, and gives the reason if the model has other numbers than the file then: Keras
    only warns of a layer that it leaves as it is.
    """
    try:
        with catch_warnings():
            simplefilter("ignore")
            model.load_weights(checkpoint.path)
    except (ValueError, TypeError, KeyError, OSError) as error:
        return first_line(error)
    held = Counter(_number(np.asarray(variable)) for variable in model.weights if _is_real(variable))
    same = held == Counter(_number(array) for array in checkpoint.tensors.values() if is_floating(array))
    return None if same else "they have other layers"


def _number(array: Array) -> tuple[tuple[int, ...], int]:
    return array.shape, hash(array.astype(np.float32).tobytes())


def _is_real(variable: Any) -> bool:
    return is_floating(np.asarray(variable))


def _in_dtype(model: Any, dtype: Dtype) -> Any:
    """The same layers in another type: a model that was loaded from a file has the type that the file
    says.
    """
    keras = import_keras()
    inputs = [keras.Input(value.shape[1:], dtype=dtype) for value in _inputs(model)]
    clone = keras.models.clone_model(
        model,
        input_tensors=inputs if len(inputs) > 1 else inputs[0],
        clone_function=lambda layer: type(layer).from_config({**layer.get_config(), "dtype": dtype}),
    )
    clone.set_weights(model.get_weights())
    return clone


def show(
    model: Any, batches: Sequence[Array], layers: Mapping[str, Sequence[str]], arrays: Collection[str | int]
) -> Shown:
    tensorflow, keras = import_tensorflow(), import_keras()
    known = _values(model)
    taps = {
        path: name
        for path, names in layers.items()
        if (name := next((one for one in names if one in known), None))
    }
    tapped = (
        keras.Model(model.inputs, [model.outputs, {path: known[name] for path, name in taps.items()}])
        if taps
        else None
    )
    with tensorflow.device(tensorflow_device("cpu")), tf32(tensorflow, False), quiet_logger(tensorflow):
        # Images come before other inputs, as readers give them.
        order = sorted(range(len(batches)), key=lambda place: len(_shape(model, place)) != 4)
        fed = {place: _fed(batch, _shape(model, place)) for batch, place in zip(batches, order, strict=True)}
        feed = fed[0] if len(fed) == 1 else [fed[place] for place in sorted(fed)]
        outputs, values = (
            (model(feed, training=False), {}) if tapped is None else tapped(feed, training=False)
        )
    found = {
        **dict(enumerate(map(np.asarray, keras.tree.flatten(outputs)))),
        **{path: np.asarray(values[path]) for path in values},
    }
    shown = {key: value if key in arrays else channels_first(value) for key, value in found.items()}
    return Shown(
        tuple(shown[key] for key in shown if isinstance(key, int)), {path: shown[path] for path in values}
    )


def _values(model: Any) -> dict[str, Any]:
    """By name, the value of each layer that is called once. The name of a layer's `activation` is
    `layer:relu`.
    """
    linear = import_keras().activations.linear
    found: dict[str, Any] = {}
    for name, layer in first_names(model).items() if _inputs(model) else ():
        if len(layer._inbound_nodes) != 1 or hasattr(layer, "layers"):
            continue
        activation = getattr(layer, "activation", linear)
        fused = activation is not linear and layer.weights
        found[f"{name}:{getattr(activation, '__name__', 'activation')}" if fused else name] = layer.output
    return found


def _shape(model: Any, place: int) -> tuple[int | None, ...]:
    """Of an input; empty where the model is only code."""
    inputs = _inputs(model)
    return tuple(inputs[place].shape) if inputs else ()


def _fed(batch: Array, shape: tuple[int | None, ...]) -> Any:
    """The batch as an input of a shape takes it: maps as N×H×W×C, unless it states its channels first."""
    channels = batch.shape[1]
    kept = batch.ndim != 4 or (len(shape) == 4 and shape[1] == channels != shape[3])
    return import_tensorflow().constant(np.ascontiguousarray(batch if kept else batch.transpose(0, 2, 3, 1)))
