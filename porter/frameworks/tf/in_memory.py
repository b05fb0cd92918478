"""Keras models in memory. See porter.frameworks.in_memory.ModelsInMemory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from porter.base.errors import UsageError, first_line
from porter.frameworks.in_memory import Saved
from porter.frameworks.tf.reference_models import inputs_of, run_as_it_is
from porter.frameworks.tf.run import usual_size_of
from porter.frameworks.tf.runtime import import_keras
from porter.padding import Size


def save(model: Any, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
    """Save the model as Keras itself does (`.keras`), or, where layers of classes that are not Keras's do not
    state enough, as the graph that TensorFlow traces of it; see
    porter.frameworks.in_memory.ModelsInMemory.save. Raise UsageError where neither is possible. `example` is
    unused: a model that is built states its inputs.
    """
    keras = import_keras()
    expect_built(model)
    size = size or usual_size_of(model)
    symbolic_inputs, path = inputs_of(model), folder / f"{model.name}.keras"

    def describe(path: Path, graph: str, fixed: Callable[[], Saved] | None = None) -> Saved:
        """Describe the file that the model was saved as; see Saved for `graph`, and for `fixed` its
        `save_fixed`.
        """
        takes_integers = any("int" in value.dtype for value in keras.tree.flatten(symbolic_inputs))
        itself = partial(run_as_it_is, model)
        return Saved(
            model.name,
            path,
            graph,
            usual_size_of(model),
            run_itself=itself,
            takes_integers=takes_integers,
            save_fixed=fixed,
        )

    def save_traced() -> Saved:
        """Save the graph that TensorFlow traces of the model."""
        signature = keras.tree.map_structure(
            lambda value: keras.InputSpec(value.dtype, _with_size(value.shape, size)), symbolic_inputs
        )
        model.export(folder / "traced", format="tf_saved_model", input_signature=[signature], verbose=False)
        return describe(folder / "traced", "the graph that TensorFlow traces")

    try:
        with _forgetting_calls(model):
            _with_stated_layers(keras, model, size).save(path)
    # Layers that do not state enough: the traced graph needs no statements.
    except _REFUSED as error:
        try:
            return save_traced()
        except _REFUSED:
            raise UsageError(
                f"Keras cannot save it: {first_line(error)}", where=model.name, next=_FUNCTIONAL
            ) from None
    return describe(path, "the graph that Keras saves", save_traced)


def _with_size(shape: Sequence[int | None], size: Size | None) -> tuple[int | None, ...]:
    """Return an input's shape N×H×W×C, with the rows and columns of `size` where the shape leaves them
    open.
    """
    if len(shape) != 4 or size is None:
        return tuple(shape)
    batch, rows, columns, channels = shape
    return batch, rows or size[0], columns or size[1], channels


def _with_stated_layers(keras: ModuleType, model: Any, size: Size | None) -> Any:
    """Return a model whose configuration states all of its layers, which are the same objects: the model
    itself, or a functional one of what its code calls.

    Raises:
        ValueError: a layer of a class that is not Keras's does not say its own name.
    """
    # A model of a class of its own is only code, and is called once on symbols.
    if not getattr(model, "inputs", None):
        inputs = keras.tree.map_structure(
            lambda value: keras.Input(_with_size(value.shape, size)[1:]), inputs_of(model)
        )
        model = keras.Model(keras.tree.flatten(inputs), model.call(inputs), name=model.name)
    for layer in model._flatten_layers(include_self=False):
        if "name" not in layer.get_config():
            raise ValueError(f"'{layer.name}' is a {type(layer).__name__}, whose class has no get_config()")
    return _with_inner_layers(keras, model) if _hides_layers(keras, model) else model


@contextmanager
def _forgetting_calls(model: Any) -> Iterator[None]:
    """Make the layers of a model forget, at the end, the calls that were made within the context, so that the
    user's own model stays as it was.
    """
    operations = [
        operation
        for layer in model._flatten_layers()
        for operation in (layer, *getattr(layer, "operations", ()))
    ]
    # Keras appends each call to these lists.
    call_lists = [
        calls for operation in operations for calls in (operation._inbound_nodes, operation._outbound_nodes)
    ]
    counts_before = [len(calls) for calls in call_lists]
    try:
        yield
    finally:
        for calls, count in zip(call_lists, counts_before, strict=True):
            del calls[count:]


_REFUSED = (ValueError, TypeError, AttributeError, NotImplementedError, OSError)
"""What Keras, and layers that are not its own, raise where they cannot say what they are."""


def _hides_layers(keras: ModuleType, model: Any) -> bool:
    """Say whether a value is, or has among its layers, a model of a class that is not Keras's, such as
    KerasHub's: its configuration states its own arguments and not its layers.
    """
    return isinstance(model, keras.Model) and (
        type(model).__module__.partition(".")[0] != "keras"
        or any(_hides_layers(keras, layer) for layer in model.layers)
    )


def _with_inner_layers(keras: ModuleType, model: Any, inputs: Any = None) -> Any:
    """Return a model of Keras's own class with the same layers; a model among them that hides its layers is
    replaced by these.
    """

    def call(layer: Any, *arguments: Any, **options: Any) -> Any:
        """Call a layer, or in place of a model that hides its layers these layers."""
        if _hides_layers(keras, layer):
            return _with_inner_layers(keras, layer, arguments[0]).output
        return layer(*arguments, **options)

    connected = keras.Model(model.input, model.output, name=model.name)
    return keras.models.clone_model(connected, inputs, clone_function=lambda layer: layer, call_function=call)


_FUNCTIONAL = (
    "make it of layers that Keras connects: inputs = keras.Input(SHAPE); keras.Model(inputs, "
    "model.call(inputs))"
)


def expect_built(model: Any) -> None:
    """Refuse a model that is not built: it has no weights yet, or nothing says what it takes.

    Raises:
        UsageError: says how to build it.
    """
    if not model.built or inputs_of(model) is None:
        next_step = "call it on a batch first: model(numpy.zeros((1, ROWS, COLUMNS, CHANNELS)))"
        raise UsageError("the model is not built, so it has no weights yet", where=model.name, next=next_step)
