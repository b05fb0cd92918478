"""keras.applications' own models, loaded by layer names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Dtype, NamedArrays
from porter.base.errors import MappingError, UsageError
from porter.base.options import INPUT_SIZE, STOCK
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import RETURNED, LayerNames
from porter.frameworks.tf.layout import COUNTER_NAMES, expect_cover
from porter.frameworks.tf.numbering import first_names
from porter.frameworks.tf.ports.archive import save
from porter.frameworks.tf.run import Runner, attach_runner
from porter.frameworks.tf.runtime import (
    import_keras,
    keep_constants,
    keras_defaults,
    restore_initializers,
    tensorflow_device,
    zero_initializers,
)
from porter.graph.plan import Plan
from porter.padding import KnownSize, Size
from porter.zoos.implementation import (
    Build,
    BuildRequest,
    Implementation,
    StockClass,
    StockLibrary,
    StockModel,
    expect_usual,
)
from porter.zoos.tables import KERAS, SCALES_AGAIN

_PADDED_FOR_ONE_SIZE = ("EfficientNet", "MobileNetV2", "MobileNetV3")
"""What the constructors begin with that call keras.applications.imagenet_utils.correct_pad, which looks at
the size of its map.
"""
_NESTED = ("ConvNeXt",)
"""The models that call Sequentials, and layers of keras.applications' own."""
_DEVIATIONS = (0.229, 0.224, 0.225)


def build_by(
    library: str, construct: Callable[[str, int, tuple[int, int]], Any], any_size: Callable[[str], bool]
) -> Build:
    """Return a function that builds the Keras models that `construct` makes. Weights are assigned by the
    model's own layer names; in a counted checkpoint (one that names layers by class and number), by Keras's
    counters.

    Args:
        library: the name that errors say.
        construct: makes the model of a variant for a number of classes and a size, without weights.
        any_size: whether the model of a variant runs at every size.
    """

    def build(request: BuildRequest) -> Any:
        """Build the model of a request, with its weights assigned. Its layers are its taps, the names under
        which a run gives values.
        """
        expect_usual(library, request.options)
        with import_tensorflow().device(tensorflow_device("cpu")), keras_defaults(request.dtype):
            with zero_initializers():
                model = construct(request.variant, request.classes, request.size)
            restore_initializers(model)
            keep_constants(model)
            _keep_double_gelu(model)
            layers = _layers_by_counter(model) if request.checkpoint.counted else first_names(model)
            _assign(layers, request.checkpoint)
        values = {name: layer.output for name, layer in first_names(model).items()}
        values[RETURNED] = model.output
        attach_runner(Runner(model, values, any_size=any_size(request.variant)))
        return model

    return build


def _keep_double_gelu(model: Any) -> None:
    """Make GELUs of a float64 model compute in float64 throughout: TensorFlow's rounds the root of 2 in it
    to float32.
    """
    for layer in model.layers:
        activation_name = getattr(getattr(layer, "activation", None), "__name__", None)
        if activation_name == "gelu" and layer.compute_dtype == "float64":
            layer.activation = lambda value: (
                value * 0.5 * (1 + import_keras().ops.erf(value * np.sqrt(np.float64(0.5))))
            )


def _runs_at_any_size(variant: str) -> bool:
    """Return whether the model of a variant is right at every size: its pads do not depend on the size."""
    name, _ = KERAS.get(variant, ("", {}))
    return not name.startswith(_PADDED_FOR_ONE_SIZE)


def _build(request: BuildRequest) -> Any:
    """Build a model of keras.applications with its weights. Options that its constructor has as arguments
    are passed on; others are refused.
    """
    _, constructor_arguments = KERAS.get(request.variant, ("", {}))
    taken = {name: value for name, value in request.options.items() if name in constructor_arguments}
    foreign = {name: value for name, value in request.options.items() if name not in taken}
    construct = partial(_construct_model, options=taken)
    return build_by("keras", construct, _runs_at_any_size)(replace(request, options=foreign))


def _construct_model(variant: str, classes: int, size: KnownSize, options: Mapping[str, Any] = {}) -> Any:
    """Make the model of keras.applications without its weights, giving logits: one that calls Sequentials
    with their layers in their place, and where the table of models says so, with the additional Rescaling of
    its pretrained weights.
    """
    if variant not in KERAS:
        raise UsageError(f"reference 'keras' has no variant '{variant}'", next=f"it has {', '.join(KERAS)}")
    name, arguments = KERAS[variant][0], {**_arguments(variant, classes, size), **options}
    scales_again = arguments.pop(SCALES_AGAIN, False)
    try:
        model = getattr(import_keras().applications, name)(**arguments)
    except ValueError as error:
        raise UsageError(
            f"keras.applications.{name} cannot be built at {size[0]}x{size[1]}: {error}"
        ) from None
    if scales_again:
        return _with_second_scaling(model)
    return _without_sequentials(model) if name.startswith(_NESTED) else model


def _without_sequentials(model: Any) -> Any:
    """Return a clone of a model with the layers of its Sequentials in their place, so that each of them shows
    its value.
    """
    keras = import_keras()

    def call(layer: Any, *values: Any, **named: Any) -> Any:
        """Call a layer; for a Sequential, call copies of its layers one after the other."""
        if not isinstance(layer, keras.Sequential):
            return layer(*values, **named)
        (value,) = values
        for inner in layer.layers:
            value = type(inner).from_config(inner.get_config())(value)  # without the call in the Sequential
        return value

    return keras.models.clone_model(model, call_function=call)


def _with_second_scaling(model: Any) -> Any:
    """Return a clone of an EfficientNet with one more Rescaling, as its constructor builds it with
    weights="imagenet", which would download them.
    """
    keras = import_keras()

    def call(layer: Any, *values: Any, **named: Any) -> Any:
        """Call a layer; behind a Normalization, call the additional Rescaling."""
        value = layer(*values, **named)
        if not isinstance(layer, keras.layers.Normalization):
            return value
        return keras.layers.Rescaling([1.0 / math.sqrt(deviation) for deviation in _DEVIATIONS])(value)

    return keras.models.clone_model(model, call_function=call)


def _arguments(variant: str, classes: int, size: KnownSize) -> dict[str, Any]:
    """Return the arguments that build a variant without weights and without its softmax."""
    _, own_arguments = KERAS[variant]
    return {
        "weights": None,
        "classes": classes,
        "classifier_activation": None,
        "input_shape": (*size, 3),
        **own_arguments,
    }


def stock_class(model: StockModel, size: Size) -> StockClass:
    """Return the class that keras.applications has for a variant, and the arguments that build it for an
    input of `size`, giving logits.

    Raises:
        UsageError: it has no class, or `size` is not fixed: its models are padded for the size that they are
            built for.
    """
    variant, classes = model.variant, model.classes
    if variant not in KERAS:
        raise UsageError(
            f"keras.applications has no class of {variant}", where=STOCK, next=f"convert without {STOCK}"
        )
    name, arguments = KERAS[variant]
    if name.startswith(_NESTED):
        raise UsageError(
            f"keras.applications.{name} has layers of its own, which keras.models.load_model does not know",
            where=STOCK,
            next=f"convert without {STOCK}",
        )
    if SCALES_AGAIN in arguments:
        raise UsageError(
            f"keras.applications.{name} builds the layers of its pretrained weights "
            "only when it downloads them",
            where=STOCK,
            next=f"convert without {STOCK}",
        )
    rows, columns = size
    if rows is None or columns is None:
        raise UsageError(
            "keras.applications pads for the size that a model is built for",
            where=STOCK,
            next=f"give {INPUT_SIZE} a fixed size",
        )
    return StockClass(f"keras.applications.{name}", _arguments(variant, classes, (rows, columns)))


def build_stock(model: StockModel, size: KnownSize, checkpoint: Checkpoint, dtype: Dtype) -> Any:
    """Build the model of keras.applications for `--stock`, with the weights of a checkpoint, as
    IMPLEMENTATION.build does. Its layers have the names that the first model of a process has, without
    numbers that this process has counted.
    """
    keras = import_keras()
    numbered = IMPLEMENTATION.build(BuildRequest(model.variant, model.classes, size, checkpoint, dtype))
    names = {layer.name: name for name, layer in first_names(numbered).items()}
    with import_tensorflow().device(tensorflow_device("cpu")):
        copy = keras.models.clone_model(
            numbered,
            input_tensors=keras.Input((*size, 3), dtype=dtype, name="input_layer"),
            clone_function=lambda layer: type(layer).from_config(
                {**layer.get_config(), "name": names[layer.name]}
            ),
        )
        copy.set_weights(numbered.get_weights())
    return copy


def write_stock(
    folder: Path,
    plan: Plan,
    model: StockModel,
    arrays: NamedArrays,
    layers: LayerNames,
    dtype: Dtype,
) -> dict[str, str]:
    """Write `model.keras` as keras.applications' own class of a variant, built for `plan.only_size`, and
    return the sha256 of each file. `layers` is unused: all stock libraries take the same arguments.

    Raises:
        MappingError: `arrays` and the class do not cover each other, or a shape differs.
        CannotRun: TensorFlow or Keras is not installed.
    """
    assert plan.only_size is not None, "a class of keras.applications is built for one size"
    return save(build_stock(model, plan.only_size, Checkpoint(folder, "memory", "tf", arrays), dtype), folder)


def _layers_by_counter(model: Any) -> dict[str, Any]:
    """Return the layers that have weights by class and place in `model.layers`, as `.weights.h5` names them:
    `conv2d`, `conv2d_1`.
    """
    counts: dict[str, int] = {}
    by_counter: dict[str, Any] = {}
    for layer in model.layers:
        if layer.weights:
            kind = COUNTER_NAMES[type(layer).__name__]
            count = counts.get(kind, 0)
            counts[kind] = count + 1
            by_counter[f"{kind}_{count}" if count else kind] = layer
    return by_counter


def _assign(layers: Mapping[str, Any], checkpoint: Checkpoint) -> None:
    """Assign the tensors to the layers' variables by name, of which a variable may have several spellings;
    all of both must be used.

    Raises:
        MappingError: a variable or a tensor is left, or the shapes differ.
    """
    unused = dict(checkpoint.tensors)
    missing: list[str] = []
    for name, layer in layers.items():
        for variable in layer.weights:
            # Keras 2's name for the kernel of a DepthwiseConv2D is `depthwise_kernel`; a LayerScale's gamma
            # has no name of its own.
            attribute = next((key for key, value in vars(layer).items() if value is variable), variable.name)
            spellings = [
                f"{name}/{variable.name}",
                f"{name}/depthwise_{variable.name}",
                f"{name}/{attribute}",
            ]
            key = next((spelling for spelling in spellings if spelling in unused), None)
            if key is None:
                missing.append(spellings[0])
                continue
            array = unused.pop(key)
            if array.shape != tuple(variable.shape):
                raise MappingError(
                    f"{key}: expected shape {tuple(variable.shape)}, got {array.shape}",
                    where=checkpoint.path,
                )
            variable.assign(array)
        # A Normalization computes with numbers beside its variables, which it makes of them here.
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()
    expect_cover(missing, unused, where=checkpoint.path)


IMPLEMENTATION = Implementation(
    _build,
    _runs_at_any_size,
    stock=StockLibrary(stock_class, write_stock, takes_any_size=False),
)
