"""A Keras model's config, read as plain JSON, as one list of layer calls with nested models flattened."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

from porter.base.dtypes import Dtype
from porter.base.name_tables import JsonObject
from porter.formats.keras.call_arguments import Inbound, KerasHistory, parse_inbound, parse_references
from porter.formats.keras.config import inner_layer, is_foreign, layer_name, refusing_damaged_config
from porter.formats.keras.precision import compute_type, halves_in
from porter.formats.keras.versions import DEFAULTS, MODELS, is_operation, modern, operation
from porter.formats.limits import MOST_NODES, StatedFields, read_json

LayerPath = tuple[str, ...]
"""The names of the models that a layer is nested in, outermost first, and its own."""

_MOST_DEPTH = 32
_VERSION, _BACKEND = "keras_version", "backend"
Stated: TypeAlias = Mapping[str, str | None]
"""What a file says of its Keras by name, None where it does not."""
_SHAPES = ("batch_shape", "batch_input_shape", "build_input_shape")


@dataclass(frozen=True)
class Result:
    """The result of a call: the call's place in Flow.calls, -1 for the model's input, and which of its
    results.
    """

    call: int
    output: int = 0


SOURCE = Result(-1)


@dataclass(frozen=True)
class LayerCall:
    """One call of one layer.

    Attributes:
        path: names of the models around it, outermost first, and its own.
        kind: its class, by its name in today's Keras; an operation's begins with `keras.ops.`. The layers of
            a model represent it.
        arguments: its config.
        inbound: the arguments of the call, with `Result` for each tensor.
        call_index: how many calls of the same layer come before it.
        training: the value that its place fixed, or None.
    """

    path: LayerPath
    kind: str
    arguments: JsonObject = field(repr=False)
    inbound: Inbound
    call_index: int = 0
    training: bool | None = None


@dataclass(frozen=True)
class Flow:
    """A model's calls in topological order.

    Attributes:
        outputs: the model's outputs.
        shape: of its image, or where it takes none of its first input, batch first, as the config states it;
            empty where it states none.
        further: the shapes of the other inputs, by the names of their layers; an InputLayer is called for
            each.
        keras: the major version of the Keras that wrote it.
        backend: what that Keras ran on, `tensorflow` or `theano`; empty where nothing says so.
        names: of the outputs, where the model gives a dict.
        input_type: of its first input, in which layers may have what is fed.
        halves: the types of half precision that the config states for its layers.
    """

    calls: tuple[LayerCall, ...]
    outputs: tuple[Result, ...]
    shape: tuple[int | None, ...]
    keras: int
    backend: str = ""
    names: tuple[str, ...] = ()
    further: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    input_type: Dtype = "float32"
    halves: tuple[Dtype, ...] = ()


def results_in(argument: Any) -> list[Result]:
    """Return the values in one argument, or in all arguments of a call, in order: those of a dict by its
    sorted keys. `(Result(1), [2.0], {"mask": Result(0)})` gives the results of the calls 1 and 0. Return none
    where there is only a constant.
    """
    if isinstance(argument, Inbound):
        return results_in((argument.arguments, tuple(argument.keywords.values())))
    if isinstance(argument, Result):
        return [argument]
    if isinstance(argument, dict):
        return [value for _, item in sorted(argument.items()) for value in results_in(item)]
    if isinstance(argument, tuple):
        return [value for item in argument for value in results_in(item)]
    return []


def read_flow(text: str | bytes, where: str) -> Flow | None:
    """Read the calls that a model's config describes; return None where the model is not made of a list of
    layers.

    Raises:
        FileError: it is not JSON, or not a Keras model's config.
    """
    with refusing_damaged_config(where):
        model = read_json(text)
        if not _is_model(model):
            return None
        calls = _CallRecorder()
        shapes = _shapes_by_input(model)
        # The image is the first input of four axes, or just the first input; each other one becomes a call.
        maps = [name for name, shape in shapes.items() if len(shape) == 4]
        image = maps[0] if maps else next(iter(shapes))
        inputs = [SOURCE if name == image else calls.add(_input_layer((name,), 0)) for name in shapes]
        image_shape = shapes.pop(image)
        outputs, names = _order_outputs(model, _flatten(calls, model, _CallPlace(), inputs))
        return Flow(
            calls=tuple(calls.recorded),
            outputs=tuple(outputs),
            shape=image_shape,
            keras=_version(model, calls.recorded),
            backend=str(model.get(_BACKEND, "")),
            names=names,
            further=shapes,
            input_type=_input_type(model, image),
            halves=halves_in(model["config"]),
        )


def _order_outputs(model: JsonObject, outputs: list[Result]) -> tuple[list[Result], tuple[str, ...]]:
    """Return a model's outputs in the order in which it gives them, and their names where it gives a dict; no
    names otherwise. Keras lists the outputs of a dict by its sorted keys.
    """
    by_name = model["config"].get("output_layers") if isinstance(model["config"], dict) else None
    if not isinstance(by_name, dict) or len(by_name) != len(outputs):
        return outputs, ()
    outputs_by_name = dict(zip(sorted(by_name), outputs, strict=True))
    return [outputs_by_name[name] for name in by_name], tuple(by_name)


def names_within(text: str | bytes, where: str) -> dict[str, frozenset[str]]:
    """Return, for each layer of the outermost model that is a model itself, the names of all layers in it, at
    any depth: `{"backbone": frozenset({"conv1", "bn1"})}`.

    Raises:
        FileError: as `read_flow`.
    """
    with refusing_damaged_config(where):
        model = read_json(text)
        layers = _layers(model) if _is_model(model) else []
        return {
            layer_name(layer): frozenset(_names(layer, 0))
            for layer in layers
            if _is_model(layer) or inner_layer(layer) is not None
        }


def with_stated(text: str | bytes, metadata: Stated, where: str) -> str | bytes:
    """Return a model's config together with what `metadata`, which the file has beside the config, says of
    the Keras that wrote it and of its backend. Return the text as it is where that adds nothing.

    Raises:
        FileError: it is not JSON.
    """
    stated = {name: value for name, value in metadata.items() if value}
    with refusing_damaged_config(where):
        model = read_json(text) if stated else None
    if not isinstance(model, dict) or not stated.keys() - model.keys():
        return text
    # The config's own statement comes before the one beside it.
    return json.dumps({**model, **{**stated, **model}})


def with_places(arguments: Any, places: Mapping[int, int]) -> Any:
    """Return a call's arguments for a flow in which the calls stand at other places, because others were put
    in between; constants stay as they are.

    Args:
        arguments: of one call, or a part of them.
        places: the new place of each call in the flow, by its old one.
    """
    if isinstance(arguments, Result):
        return replace(arguments, call=places[arguments.call])
    if isinstance(arguments, Inbound):
        return replace(
            arguments,
            arguments=with_places(arguments.arguments, places),
            keywords=with_places(arguments.keywords, places),
        )
    if isinstance(arguments, tuple):
        return tuple(with_places(argument, places) for argument in arguments)
    if isinstance(arguments, Mapping):
        return StatedFields((name, with_places(argument, places)) for name, argument in arguments.items())
    return arguments


def _version(model: JsonObject, calls: Sequence[LayerCall]) -> int:
    """Return the major version of Keras. Where a config says nothing, Keras 3 is known by the form of its
    calls, and others are Keras 2's.
    """
    major = re.match(r"[123](?=\.)", str(model.get(_VERSION)))
    if major:
        return int(major[0])
    return 3 if any(call.inbound.keras3 for call in calls) else 2


def _is_model(layer: JsonObject) -> bool:
    """Return whether a layer is a model itself, whose config the file has."""
    return layer["class_name"] in MODELS and "config" in layer


def _names(model: JsonObject, depth: int) -> Iterator[str]:
    """Yield the names of a model's layers, also of those in models and wrappers within it; of a wrapper those
    of its layer.
    """
    if depth > _MOST_DEPTH:
        raise ValueError(f"models are nested deeper than {_MOST_DEPTH}")
    inner = inner_layer(model)
    for layer in _layers(model) if inner is None else [inner]:
        yield layer_name(layer)
        if _is_model(layer) or inner_layer(layer) is not None:
            yield from _names(layer, depth + 1)


def _layers(model: JsonObject) -> list[JsonObject]:
    """Return a model's layers. Keras 1, and Keras 2 before 2.2.3, wrote a Sequential's config as the list
    itself. Raise ValueError where two of them have one name.
    """
    config = model["config"]
    layers = config if isinstance(config, list) else config["layers"]
    names = [layer_name(layer) for layer in layers]
    if len(set(names)) < len(names):
        raise ValueError("two layers of one model have the same name")
    return list(layers)


@dataclass
class _CallRecorder:
    """The calls so far, and the number of calls of models that were made on the way."""

    recorded: list[LayerCall] = field(default_factory=list)
    models: int = 0

    def add(self, call: LayerCall) -> Result:
        """Append a call and return its result. Raise ValueError for too many calls."""
        if len(self.recorded) >= MOST_NODES:
            raise ValueError(f"its layers are called more than {MOST_NODES} times")
        self.recorded.append(call)
        return Result(len(self.recorded) - 1)

    def enter(self) -> None:
        """Count a call of a model, and raise ValueError for too many. It may have no layers, and models
        within each other that are called twice are exponentially many.
        """
        self.models += 1
        if self.models > MOST_NODES:
            raise ValueError(f"its models are called more than {MOST_NODES} times")


@dataclass(frozen=True)
class _CallPlace:
    """Where a call stands.

    Attributes:
        path: the models that it is in, and what is called.
        call_index: how many calls of the same layer come before.
        training: whether it is one of training; None where nothing says so.
    """

    path: LayerPath = ()
    call_index: int = 0
    training: bool | None = None

    def within(self, name: str, call_index: int) -> _CallPlace:
        """Return the place of a call of `name` within this one."""
        return replace(self, path=(*self.path, name), call_index=call_index)


def _flatten(
    calls: _CallRecorder, model: JsonObject, position: _CallPlace, inputs: Sequence[Result]
) -> list[Result]:
    """Add the calls of a model's layers to `calls`, for one call of the model with `inputs`, and return the
    results of that call. A Sequential's layers are called one after the other, those of any other model as
    its nodes say; an input that is not given is an InputLayer of its own.

    Args:
        position: where the model stands among the models around it, and how many calls of it came before.
    """
    calls.enter()
    if len(position.path) > _MOST_DEPTH:
        raise ValueError(f"models are nested deeper than {_MOST_DEPTH}")
    if model["class_name"] == "Sequential" or isinstance(model["config"], list):
        return _flatten_sequential(calls, model, position, inputs)
    config = model["config"]
    layers = {layer_name(layer): layer for layer in _layers(model)}
    # A node is a call of a layer in this model, with its arguments.
    nodes = {
        name: [parse_inbound(node, layers) for node in layer.get("inbound_nodes") or ()]
        for name, layer in layers.items()
    }
    starts = [reference.layer for reference in parse_references(config["input_layers"])]
    outputs = parse_references(config["output_layers"])
    results: dict[tuple[str, int], list[Result]] = {}
    for index, name in enumerate(starts):
        path = (*position.path, name)
        results[name, 0] = [
            inputs[index] if index < len(inputs) else calls.add(_input_layer(path, position.call_index))
        ]
    resolver = _Resolver(layers, nodes)
    for name, index in resolver.order(outputs):
        if (name, index) in results:
            continue
        if not nodes[name]:
            raise ValueError(f"layer '{name}' is never called")
        inbound = nodes[name][index].resolve(
            lambda reference: _pick(results[resolver.key(reference)], reference.output)
        )
        # A call of the model calls each layer as often as the layer has nodes, so this is the layer's next
        # round.
        layer_position = position.within(name, position.call_index * len(nodes[name]) + index)
        results[name, index] = _call(calls, layers[name], layer_position, inbound)
    # `of_model`, because Keras counts the calls in a model's outputs otherwise than those in its nodes.
    return [_pick(results[resolver.key(reference, of_model=True)], reference.output) for reference in outputs]


def _flatten_sequential(
    calls: _CallRecorder, model: JsonObject, position: _CallPlace, inputs: Sequence[Result]
) -> list[Result]:
    """Add the calls of a Sequential's layers to `calls`, each with the first result of the one before, and
    return the results of the last one.
    """
    values = list(inputs)
    for layer in _layers(model):
        if layer["class_name"] != "InputLayer":
            layer_position = position.within(layer_name(layer), position.call_index)
            values = _call(calls, layer, layer_position, Inbound((values[0],), {}))
    return values


def _call(calls: _CallRecorder, layer: JsonObject, position: _CallPlace, inbound: Inbound) -> list[Result]:
    """Add a call of a layer to `calls`, or the calls of a model's or a wrapper's layers, and return its
    results. A user's class becomes a kind that no layer has; older names of classes and arguments become
    today's.
    """
    training = inbound.keywords.get("training")
    if isinstance(training, bool):
        position = replace(position, training=training)
    kind, config = layer["class_name"], layer["config"]
    if not isinstance(kind, str):
        raise ValueError("a layer's class is not text")
    if not isinstance(config, Mapping):
        raise ValueError(f"the config of a {kind:.40} is no table")
    if kind in MODELS:
        return _flatten(calls, layer, position, _inputs_of(layer, inbound))
    if is_foreign(layer):
        kind = f"{kind} of {layer.get('module') or 'the user'}"
        arguments = config
    else:
        inner = inner_layer(layer)
        # In training a SpectralNormalization changes the kernel of its inner layer.
        changes_inner = kind == "SpectralNormalization" and position.training
        if inner is not None and not changes_inner:
            return _call(calls, inner, position.within(layer_name(inner), position.call_index), inbound)
        kind, arguments = modern(kind, config)
        if isinstance(layer.get("module"), str):  # of Keras's own, which may leave out what has a default
            arguments = {**DEFAULTS.get(kind, {}), **arguments}
        if is_operation(layer):
            kind, arguments = operation(kind, arguments)
    return [
        calls.add(LayerCall(position.path, kind, arguments, inbound, position.call_index, position.training))
    ]


def _inputs_of(model: JsonObject, inbound: Inbound) -> list[Result]:
    """Return the values that a nested model is called with, in the order of its inputs. A dict of values has
    the keys of the model's dict of inputs, or the names of its list of inputs
    (keras/src/models/functional.py, _standardize_inputs).
    """
    argument = inbound.arguments[0] if inbound.arguments else None
    if not isinstance(argument, dict) or model["class_name"] == "Sequential":
        return results_in(inbound)
    inputs = model["config"]["input_layers"]
    if isinstance(inputs, dict) and inputs.keys() != argument.keys():
        raise ValueError(
            f"model '{layer_name(model)}' has the inputs {sorted(inputs)}, and is called with "
            f"{sorted(argument)}"
        )
    names = (
        sorted(inputs)
        if isinstance(inputs, dict)
        else [reference.layer for reference in parse_references(inputs)]
    )
    return [value for name in names for value in results_in(argument[name])]


def _input_layer(path: LayerPath, call_index: int) -> LayerCall:
    return LayerCall(path, "InputLayer", {}, Inbound((), {}), call_index)


def _pick(values: Sequence[Result], output: int) -> Result:
    """Return one output of a call, or of a model, from its results.

    Raises:
        ValueError: there is no such output.
    """
    if type(output) is not int or output < 0 or (output and values == [SOURCE]):
        raise ValueError(f"no call gives output {output!r:.20}")
    # A layer's call is recorded with its first result only; the others are counted from it.
    return values[output] if len(values) > 1 or not output else Result(values[0].call, output)


class _Resolver:
    """Finds the call of a layer that a reference means, and the order of a model's calls."""

    def __init__(self, layers: Mapping[str, JsonObject], nodes: Mapping[str, Sequence[Inbound]]) -> None:
        self._kinds = {name: layer["class_name"] for name, layer in layers.items()}
        self._nodes = nodes
        self._modern = any(node.keras3 for calls in nodes.values() for node in calls)

    def key(self, reference: KerasHistory, of_model: bool = False) -> tuple[str, int]:
        """Return the layer and the number of its call that a reference means. `of_model`: the reference is
        one of the model's outputs.

        In Keras 2 the creation of a nested model is its call 0 (keras/engine/functional.py, get_config).
        Keras 3 counts its calls from 0, but in `output_layers` from 1, except a Sequential's
        (keras/src/models/functional.py, get_config and get_tensor).
        """
        name, call = reference.layer, reference.call
        if name not in self._nodes:
            raise ValueError(f"no layer is named '{name}'")
        count = max(len(self._nodes[name]), 1)
        kind = self._kinds[name]
        if kind in MODELS:
            counts_from_1 = not self._modern or (of_model and kind != "Sequential")
            # A model that is called once may be counted from 0 or from 1.
            call = 0 if count == 1 and call <= 1 else call - counts_from_1
        if not 0 <= call < count:
            raise ValueError(f"layer '{name}' has no call {reference.call}")
        return name, call

    def order(self, outputs: Sequence[KerasHistory]) -> list[tuple[str, int]]:
        """Return every call that the outputs need, each after the calls that it needs itself: layers' names
        and the numbers of their calls.
        """
        waiting = [self.key(reference, of_model=True) for reference in outputs]
        needs: dict[tuple[str, int], list[tuple[str, int]]] = {}
        while waiting:
            name, index = key = waiting.pop()
            if key in needs:
                continue
            calls = self._nodes[name]
            needs[key] = [self.key(reference) for reference in calls[index].references()] if calls else []
            waiting += needs[key]
        try:
            return list(TopologicalSorter(needs).static_order())
        except CycleError as error:
            raise ValueError(error.args[0]) from None  # without the calls, which may be many


def _shapes_by_input(model: JsonObject) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of a model's inputs by the names of their layers. An only input has an empty name,
    because it is called nowhere.
    """
    config = model["config"]
    references = config.get("input_layers") if isinstance(config, dict) else None
    starts = [] if references is None else [reference.layer for reference in parse_references(references)]
    if len(starts) < 2:
        return {"": _input_shape(model)}
    layers = {layer_name(layer): layer for layer in _layers(model)}
    return {name: _input_shape(layers[name]) if name in layers else () for name in starts}


def _input_type(model: JsonObject, image: str) -> Dtype:
    """Return the type that a model's image has, float32 where the config has no InputLayer for it.

    Args:
        image: the name of its InputLayer; empty for an only input, which then is the first one.
    """
    layers = _layers(model)
    inputs = [
        layer for layer in layers if layer["class_name"] == "InputLayer" and image in ("", layer_name(layer))
    ]
    return compute_type(inputs[0]["config"].get("dtype")) if inputs else "float32"


def _input_shape(model: JsonObject) -> tuple[int | None, ...]:
    """Return the shape of a model's first input, batch first, which versions of Keras state in different
    places; an empty one where none is stated.
    """
    config = model["config"]
    fields = config if isinstance(config, dict) else {}
    if model["class_name"] in MODELS and isinstance(config, dict | list):
        layers = _layers(model)
        first = layers[0] if layers else None
        if "input_layers" in fields:
            start = parse_references(fields["input_layers"])[0].layer
            first = next((layer for layer in layers if layer_name(layer) == start), None)
        # The first layer may be a model, which states it further within.
        if first is not None and (shape := _input_shape(first)):
            return shape
    shape = next((fields[key] for key in _SHAPES if fields.get(key)), ())
    if not all(size is None or type(size) is int for size in shape):
        raise ValueError("the input's shape has other things than whole numbers")
    return tuple(shape)
