"""Keras models in memory. See porter.frameworks.in_memory.ModelsInMemory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from porter.base.errors import UsageError, first_line
from porter.frameworks.in_memory import Saved
from porter.frameworks.tf.runtime import import_keras
from porter.padding import Size


def save(model: Any, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
    """The model as Keras itself saves it: `.keras`."""
    keras = import_keras()
    expect_built(model)
    path = folder / f"{model.name}.keras"

    def copied() -> Any:
        copy = keras.models.clone_model(model)
        copy.set_weights(model.get_weights())
        return copy

    try:
        (_opened(keras, copied()) if _hides_layers(keras, model) else model).save(path)
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        raise UsageError(f"Keras cannot save it: {first_line(error)}", where=model.name, next=_FUNCTIONAL) from None

    return Saved(model.name, path, "the graph that Keras saves", copied=copied)


def _hides_layers(keras: ModuleType, model: Any) -> bool:
    """Whether it is, or has among its layers, a model of a class that is not Keras's, such as KerasHub's, whose configuration is
    its own arguments and not its layers.
    """
    return isinstance(model, keras.Model) and (
        type(model).__module__.partition(".")[0] != "keras" or any(_hides_layers(keras, layer) for layer in model.layers)
    )


def _opened(keras: ModuleType, model: Any, inputs: Any = None) -> Any:
    """A model of Keras's own class, of the same layers, with those of models that hide theirs."""

    def call(layer: Any, *given: Any, **named: Any) -> Any:
        return _opened(keras, layer, given[0]).output if _hides_layers(keras, layer) else layer(*given, **named)

    connected = keras.Model(model.input, model.output, name=model.name)
    return keras.models.clone_model(connected, inputs, clone_function=lambda layer: layer, call_function=call)


_FUNCTIONAL = "make it of layers that Keras connects: inputs = keras.Input(SHAPE); keras.Model(inputs, model.call(inputs))"


def expect_built(model: Any) -> None:
    """Refuses a model that has no weights yet, or no graph.

    Raises:
        UsageError: with the way round.
    """
    if not model.built:
        next_step = "call it on a batch first: model(numpy.zeros((1, ROWS, COLUMNS, CHANNELS)))"
        raise UsageError("the model is not built, so it has no weights yet", where=model.name, next=next_step)
    if not getattr(model, "inputs", None):
        raise UsageError(f"a {type(model).__name__} is code, and Keras keeps no graph of it", where=model.name, next=_FUNCTIONAL)
