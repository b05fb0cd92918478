"""Keras models that a user's own code makes. See porter.frameworks.reference_models.UserModels. Keras is
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
from porter.filegraph.kernels.layouts import with_channels_first
from porter.formats.keras import FORMATS
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.reference_models import Shown
from porter.frameworks.tf.run import tf32
from porter.frameworks.tf.runtime import import_keras, keras_defaults, quiet_logger, tensorflow_device

LOADED = frozenset(format.name for format in FORMATS)
"""The formats that Keras itself loads."""

KEEPS_TYPES = True
"""Layers keep the number types that they were made in."""


def prepare(
    make: Callable[[], Any], image: Array, checkpoint: Checkpoint | None, stored: Dtype, dtype: Dtype
) -> tuple[Any, str]:
    """Make a model by `make`, build it by a call on `image` if it is not built, and return it with a few
    words on its weights. If the file is of a format of Keras's, Keras loads it; otherwise, or where that does
    not give all weights, the model keeps its own. They are rounded to `stored`, and layers compute in
    `dtype`. See porter.frameworks.reference_models.UserModels.prepare.
    """

    def make_built() -> Any:
        """Make the model, and call it once on the image if it has no weights yet."""
        model = make()
        if not model.built:
            model(_as_input(image.astype(dtype)), training=False)
        return model

    with import_tensorflow().device(tensorflow_device("cpu")), keras_defaults(dtype):
        model, weights = make_built(), "with the weights that the code gives it"
        if checkpoint is not None and checkpoint.format in LOADED:
            refusal = _load(model, checkpoint)
            if refusal is None:
                weights = f"with the tensors of {checkpoint.path.name}"
            else:
                model = make_built()  # a part of the weights may be loaded already
                weights += (
                    f", because Keras does not load {checkpoint.path.name} into it: {shortened(refusal)}"
                )
        if stored != "float64":
            for variable in filter(_has_floats, model.weights):
                rounded = np.asarray(variable).astype(storage_type(stored))
                variable.assign(rounded.astype(variable.dtype))
    return model, weights


def _load(model: Any, checkpoint: Checkpoint) -> str | None:
    """Load the file's weights into the model. Return None if it then has them all, otherwise the reason in
    words. It is found by comparing the arrays, because Keras only warns of a layer that it leaves as it is.
    """
    try:
        with catch_warnings():
            simplefilter("ignore")
            model.load_weights(checkpoint.path)
    except (ValueError, TypeError, KeyError, OSError) as error:
        return first_line(error)
    # Without names: the model has the same arrays as the file, each as often.
    in_model = Counter(_fingerprint(np.asarray(variable)) for variable in filter(_has_floats, model.weights))
    in_file = Counter(_fingerprint(array) for array in checkpoint.tensors.values() if is_floating(array))
    return None if in_model == in_file else "they have other layers"


def _fingerprint(array: Array) -> tuple[tuple[int, ...], int]:
    """Return an array's shape and a hash of its numbers in float32, to compare sets of weights without
    names.
    """
    return array.shape, hash(array.astype(np.float32).tobytes())


def _has_floats(variable: Any) -> bool:
    return is_floating(np.asarray(variable))


def show(
    model: Any, batches: Sequence[Array], layers: Mapping[str, Sequence[str]], arrays: Collection[str | int]
) -> Shown:
    """Run the model and return its outputs, and no values inside it; see
    porter.frameworks.reference_models.UserModels.show. A layer with a node's name may be another step, or
    have other axes.
    """
    return Shown(run_as_it_is(model, batches, arrays), {})


def run_as_it_is(
    model: Any, batches: Sequence[Array], arrays: Collection[str | int], names: Sequence[str] = ()
) -> tuple[Array, ...]:
    """Run the user's own model on a batch for each input, maps N×C×H×W, and return its outputs, maps N×C×H×W;
    see porter.frameworks.in_memory.Saved.run_itself.

    Args:
        arrays: indices of outputs that are no maps.
        names: the order of the outputs of a model that returns a dict.
    """
    tensorflow, keras = import_tensorflow(), import_keras()
    symbolic_inputs = inputs_of(model)
    shapes = [tuple(value.shape) for value in keras.tree.flatten(symbolic_inputs)]
    # porter's readers of files put the first map before the other inputs.
    first_map = next((index for index, shape in enumerate(shapes) if len(shape) == 4), 0)
    order = [first_map, *(index for index in range(len(shapes)) if index != first_map)]
    with tensorflow.device(tensorflow_device("cpu")), tf32(tensorflow, False), quiet_logger(tensorflow):
        # Back in the order of the model.
        by_index = {
            index: _as_input(batch, shapes[index]) for index, batch in zip(order, batches, strict=True)
        }
        inputs = keras.tree.pack_sequence_as(symbolic_inputs, [by_index[index] for index in sorted(by_index)])
        returned = model(inputs, training=False)
    flat = keras.tree.flatten(returned)
    if isinstance(returned, dict) and returned.keys() == set(names):
        flat = [returned[name] for name in names]
    outputs = enumerate(map(np.asarray, flat))
    return tuple(value if index in arrays else with_channels_first(value) for index, value in outputs)


def inputs_of(model: Any) -> Any:
    """Return Keras's symbolic inputs of a built model, in its own structure, such as a list or a dict; those
    of a model that is only code have the shapes of its first call. Return None where nothing says them.
    """
    inputs = getattr(model, "inputs", None)
    if inputs:
        return getattr(model, "_inputs_struct", inputs[0])  # a Sequential has one input
    shapes = (model.get_build_config() or {}).get("input_shape")
    if not shapes:
        return None
    keras = import_keras()
    return keras.tree.map_shape_structure(lambda shape: keras.KerasTensor((None, *shape[1:])), shapes)


def _as_input(batch: Array, shape: tuple[int | None, ...] = ()) -> Any:
    """Return a batch, of which maps are N×C×H×W, as the tensor that an input of `shape` takes: with channels
    last unless the shape states them first.
    """
    channels = batch.shape[1]
    takes_channels_first = len(shape) == 4 and shape[1] == channels != shape[3]
    if batch.ndim == 4 and not takes_channels_first:
        batch = batch.transpose(0, 2, 3, 1)
    return import_tensorflow().constant(np.ascontiguousarray(batch))
