"""Keras models in memory. See porter.frameworks.in_memory.ModelsInMemory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from porter.base.errors import UsageError, first_line
from porter.frameworks.in_memory import Saved
from porter.frameworks.tf.runtime import import_keras
from porter.padding import Size


def save(model: Any, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
    """The model as Keras itself saves it: `.keras`. Where that says too little, because layers are of classes
    that are not Keras's, the graph that TensorFlow traces of it.
    """
    keras = import_keras()
    expect_built(model)
    path = folder / f"{model.name}.keras"

    def copied() -> Any:
        copy = keras.models.clone_model(model)
        copy.set_weights(model.get_weights())
        return copy

    def traced() -> Saved:
        signature = [keras.InputSpec(value.dtype, _sized(value.shape, size)) for value in model.inputs]
        model.export(folder / "traced", format="tf_saved_model", input_signature=signature, verbose=False)
        return Saved(
            model.name,
            folder / "traced",
            "the graph that TensorFlow traces",
            copied=_copying(copied),
            rounded=True,
        )

    try:
        (_opened(keras, copied()) if _hides_layers(keras, model) else model).save(path)
    except _REFUSED as error:
        try:
            return traced()
        except _REFUSED:
            raise UsageError(
                f"Keras cannot save it: {first_line(error)}", where=model.name, next=_FUNCTIONAL
            ) from None
    return Saved(model.name, path, "the graph that Keras saves", copied=copied, fixed=traced)


def _sized(shape: Sequence[int | None], size: Size | None) -> tuple[int | None, ...]:
    """The shape of an input N×H×W×C with the rows and columns of a size where it leaves them open."""
    if len(shape) != 4 or size is None:
        return tuple(shape)
    return shape[0], *(own or given for own, given in zip(shape[1:3], size, strict=True)), shape[3]


def _copying(copied: Callable[[], Any]) -> Callable[[], Any] | None:
    """None where a layer's configuration does not make another one."""
    try:
        copied()
    except _REFUSED:
        return None
    return copied


_REFUSED = (ValueError, TypeError, AttributeError, NotImplementedError, OSError)
"""What Keras, and layers that are not its own, raise where they cannot say what they are."""


def _hides_layers(keras: ModuleType, model: Any) -> bool:
    """Whether it is, or has among its layers, a model of a class that is not Keras's, such as KerasHub's,
    whose configuration is its own arguments and not its layers.
    """
    return isinstance(model, keras.Model) and (
        type(model).__module__.partition(".")[0] != "keras"
        or any(_hides_layers(keras, layer) for layer in model.layers)
    )


def _opened(keras: ModuleType, model: Any, inputs: Any = None) -> Any:
    """A model of Keras's own class, of the same layers, with those of models that hide theirs."""

    def call(layer: Any, *given: Any, **named: Any) -> Any:
        return (
            _opened(keras, layer, given[0]).output if _hides_layers(keras, layer) else layer(*given, **named)
        )

    connected = keras.Model(model.input, model.output, name=model.name)
    return keras.models.clone_model(connected, inputs, clone_function=lambda layer: layer, call_function=call)


_FUNCTIONAL = (
    "make it of layers that Keras connects: inputs = keras.Input(SHAPE); keras.Model(inputs, "
    "model.call(inputs))"
)


def expect_built(model: Any) -> None:
    """Refuses a model that has no weights yet, or no graph.

    Raises:
        UsageError: with the way round.
    """
    if not model.built:
        next_step = "call it on a batch first: model(numpy.zeros((1, ROWS, COLUMNS, CHANNELS)))"
        raise UsageError("the model is not built, so it has no weights yet", where=model.name, next=next_step)
    if not getattr(model, "inputs", None):
        raise UsageError(
            f"a {type(model).__name__} is code, and Keras keeps no graph of it",
            where=model.name,
            next=_FUNCTIONAL,
        )
