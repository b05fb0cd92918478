"""Keras models that a user's own code makes. See porter.frameworks.reference_models.GivenModels. Keras is
imported only to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from porter.base.dtypes import Array, Dtype, is_floating, storage_type
from porter.base.errors import first_line, shortened
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras import FORMATS
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.reference_models import Shown
from porter.frameworks.tf.frozen.run import channels_first
from porter.frameworks.tf.run import tf32
from porter.frameworks.tf.runtime import floating, import_keras, quiet_logger, tensorflow_device

LOADED = frozenset(format.name for format in FORMATS)
"""The formats that Keras itself loads."""

KEEPS_TYPES = True
"""Layers keep the number types that they were made in."""


def prepare(
    make: Callable[[], Any], image: Array, checkpoint: Checkpoint | None, stored: Dtype, dtype: Dtype
) -> tuple[Any, str]:
    """See porter.frameworks.reference_models.GivenModels.prepare: Keras itself loads a file of its own
    formats.
    """

    def made() -> Any:
        model = make()
        if not model.built:
            model(_fed(image.astype(dtype)), training=False)
        return model

    with import_tensorflow().device(tensorflow_device("cpu")), floating(dtype):
        model, weights = made(), "with the weights that the code gives it"
        if checkpoint is not None and checkpoint.format in LOADED:
            refusal = _load(model, checkpoint)
            if refusal is None:
                weights = f"with the tensors of {checkpoint.path.name}"
            else:
                model = made()  # a part of the weights may be loaded already
                weights += (
                    f", because Keras does not load {checkpoint.path.name} into it: {shortened(refusal)}"
                )
        for variable in model.weights if stored != "float64" else ():
            if _is_real(variable):
                variable.assign(np.asarray(variable).astype(storage_type(stored)).astype(variable.dtype))
    return model, weights


def _load(model: Any, checkpoint: Checkpoint) -> str | None:
    """Load the file's weights, and give the reason if the model has other numbers than the file then: Keras
    only warns of a layer that it leaves as it is.
    """
    try:
        with catch_warnings():
            simplefilter("ignore")
            model.load_weights(checkpoint.path)
    except (ValueError, TypeError, KeyError, OSError) as error:
        return first_line(error)
    counts = Counter(_number(np.asarray(variable)) for variable in model.weights if _is_real(variable))
    same = counts == Counter(_number(array) for array in checkpoint.tensors.values() if is_floating(array))
    return None if same else "they have other layers"


def _number(array: Array) -> tuple[tuple[int, ...], int]:
    return array.shape, hash(array.astype(np.float32).tobytes())


def _is_real(variable: Any) -> bool:
    return is_floating(np.asarray(variable))


def show(
    model: Any, batches: Sequence[Array], layers: Mapping[str, Sequence[str]], arrays: Collection[str | int]
) -> Shown:
    """See porter.frameworks.reference_models.GivenModels.show. A layer with a node's name may be another
    step, or have other axes, so that only the outputs are shown.
    """
    return Shown(run_as_it_is(model, batches, arrays), {})


def run_as_it_is(
    model: Any, batches: Sequence[Array], arrays: Collection[str | int], names: Sequence[str] = ()
) -> tuple[Array, ...]:
    """See porter.frameworks.in_memory.Saved.itself."""
    tensorflow, keras = import_tensorflow(), import_keras()
    taken = inputs_of(model)
    shapes = [tuple(value.shape) for value in keras.tree.flatten(taken)]
    # Readers give the first map before the other inputs.
    first = next((index for index, shape in enumerate(shapes) if len(shape) == 4), 0)
    order = [first, *(index for index in range(len(shapes)) if index != first)]
    with tensorflow.device(tensorflow_device("cpu")), tf32(tensorflow, False), quiet_logger(tensorflow):
        fed = {index: _fed(batch, shapes[index]) for index, batch in zip(order, batches, strict=True)}
        inputs = keras.tree.pack_sequence_as(taken, [fed[index] for index in sorted(fed)])
        found = model(inputs, training=False)
    flat = keras.tree.flatten(found)
    if isinstance(found, dict) and found.keys() == set(names):
        flat = [found[name] for name in names]
    outputs = enumerate(map(np.asarray, flat))
    return tuple(value if index in arrays else channels_first(value) for index, value in outputs)


def inputs_of(model: Any) -> Any:
    """Return Keras's symbolic values of what a built model takes, in its own structure; of a model that is
    only code by the shapes of its first call. None where nothing says them.
    """
    if inputs := getattr(model, "inputs", None):
        return getattr(model, "_inputs_struct", inputs[0])  # a Sequential has one
    keras = import_keras()
    shapes = (model.get_build_config() or {}).get("input_shape")
    return shapes and keras.tree.map_shape_structure(
        lambda shape: keras.KerasTensor((None, *shape[1:])), shapes
    )


def _fed(batch: Array, shape: tuple[int | None, ...] = ()) -> Any:
    """Return the batch as an input of a shape takes it: maps as N×H×W×C, unless it states its channels
    first.
    """
    channels = batch.shape[1]
    is_as_given = batch.ndim != 4 or (len(shape) == 4 and shape[1] == channels != shape[3])
    return import_tensorflow().constant(
        np.ascontiguousarray(batch if is_as_given else batch.transpose(0, 2, 3, 1))
    )
