"""Which layers read which, by the names in a model's config. The reader of a file and what runs its model
beside a port both take their calls from porter.formats.keras.flow, which is held to these names first.

Numbers of calls and of outputs are not compared. Constants are only counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from porter.base.name_tables import JsonObject
from porter.formats.keras.flow import Flow, LayerCall, LayerPath, Result, results_in
from porter.formats.keras.versions import MODELS
from porter.formats.limits import read_json

_INPUT = "InputLayer"
_ArgumentNames = tuple[int, tuple[str, ...]]
"""The number of a call's arguments without names, and the names of the others."""
_ONE_ARGUMENT: _ArgumentNames = (1, ())


@dataclass(frozen=True)
class _Level:
    """A model in a config, without its inputs.

    Attributes:
        reads: for each layer, the names that each of its calls reads.
        arguments: for each layer, the names of the arguments of each of its calls.
        ends: the layers at which the model ends, whose values it gives, in its order.
    """

    reads: Mapping[str, Sequence[Sequence[str]]]
    arguments: Mapping[str, Sequence[_ArgumentNames]]
    ends: Sequence[str]


def find_misreading(flow: Flow, definition: str | bytes) -> str | None:
    """Return a sentence about the first place where a flow and the names in the config disagree; None if they
    agree.
    """
    levels = dict(_levels(read_json(definition), ()))
    for call in flow.calls:
        if call.kind == _INPUT:
            continue
        sources = [source for source in _calls_of(flow, results_in(call.inbound)) if source.kind != _INPUT]
        # At each depth of its path, a call has neighbours in the model there.
        for depth in range(len(call.path)):
            if (difference := _find_misread_call(call, sources, depth, levels)) is not None:
                return difference
    ends = _calls_of(flow, flow.outputs)
    found = [end.path[0] for end in ends if end.kind != _INPUT]
    expected = [*levels[()].ends]
    # Outputs of a dict are in the file's order in the flow, and by their sorted keys in the level.
    is_equal = sorted(found) == sorted(expected) if flow.names else found == expected
    if not is_equal:
        return f"the model gives {found}, and its config names {expected}"
    return next(filter(None, (_find_inner_source(end, 0, levels) for end in ends)), None)


def _calls_of(flow: Flow, results: Iterable[Result]) -> list[LayerCall]:
    """Return the calls that give these results."""
    return [flow.calls[result.call] for result in results if result.call >= 0]


def find_wrong_turn(turned: Flow, original: Flow) -> str | None:
    """Return a sentence about the first place where a model that porter turned to channels last has other
    wires than the model as its config states it; None if only layers that porter put in stand between them.
    """
    calls = {(call.path, call.call_index) for call in original.calls}
    reads = {(call.path, call.call_index): _values_read(original, call, calls) for call in original.calls}
    for call in turned.calls:
        key = (call.path, call.call_index)
        if key in calls and (sources := _values_read(turned, call, calls)) != reads[key]:
            path = "/".join(call.path)
            return f"'{path}' reads {_paths_of(sources)}, and the model as stated {_paths_of(reads[key])}"
    found, expected = (
        [_original_value(flow, end, calls) for end in flow.outputs] for flow in (turned, original)
    )
    if found == expected:
        return None
    return f"the model gives {_paths_of(found)}, and as stated {_paths_of(expected)}"


_Value = tuple[LayerPath, int, int]
"""A value: the layer, which of its calls, and which of that call's results."""


def _values_read(flow: Flow, call: LayerCall, calls: Collection[tuple[LayerPath, int]]) -> list[_Value]:
    """Return the values of known calls that a call reads, through layers that porter put in between."""
    return [_original_value(flow, result, calls) for result in results_in(call.inbound)]


def _original_value(flow: Flow, value: Result, calls: Collection[tuple[LayerPath, int]]) -> _Value:
    """Return the value of a known call that a value is, or is made from by layers that porter put in. The
    model's image, behind all of these, is an empty path.
    """
    while value.call >= 0:
        call = flow.calls[value.call]
        if (call.path, call.call_index) in calls:
            return call.path, call.call_index, value.output
        value = results_in(call.inbound)[0]
    return (), 0, value.output


def _paths_of(values: Sequence[_Value]) -> list[str]:
    """Return the paths of the layers that give some values, for messages; the image has none."""
    return ["/".join(path) or "the image" for path, _, _ in values]


def _find_misread_call(
    call: LayerCall, sources: Sequence[LayerCall], depth: int, levels: Mapping[LayerPath, _Level]
) -> str | None:
    """Return a sentence about what the layer, or the model, at a depth of a call's path reads otherwise among
    its neighbours; None if it reads what the config states.

    Args:
        sources: the calls whose values it reads, without inputs.
        depth: how many models stand around what is compared.
    """
    model, name, path = call.path[:depth], call.path[depth], call.path[: depth + 1]
    if model not in levels:  # the layer of a wrapper
        return None
    # The sources in the same call of this model, but for those in the same inner model too.
    neighbours = [
        source
        for source in sources
        if _in_same_call(source, call, depth, levels)
        and (depth == len(call.path) - 1 or not _in_same_call(source, call, depth + 1, levels))
    ]
    names_read = [source.path[depth] for source in neighbours]
    calls = levels[model].reads[name]
    label = "/".join(path)
    if path in levels:  # of what a model takes, each of its layers may read a part
        agrees = {*names_read} <= {name for reads in calls for name in reads}
    else:
        # This is the layer's call within one call of its model, which runs them all each time.
        round = call.call_index % len(calls)
        found = _call_argument_names(call)
        expected = levels[model].arguments[name][round]
        if found != expected:
            return f"'{label}' is given {found}, and its config states {expected}"
        agrees = names_read == [*calls[round]]
    if not agrees:
        return f"'{label}' reads {names_read}, and its config names {[*map(list, calls)]}"
    return next(filter(None, (_find_inner_source(source, depth, levels) for source in neighbours)), None)


def _call_argument_names(call: LayerCall) -> _ArgumentNames:
    """Return how many arguments a call has without names, and the sorted names of the others."""
    return len(call.inbound.arguments), tuple(sorted(call.inbound.keywords))


def _in_same_call(
    first: LayerCall, second: LayerCall, depth: int, levels: Mapping[LayerPath, _Level]
) -> bool:
    """Return whether two calls come from the same call of the model at a depth of their paths."""
    if first.path[:depth] != second.path[:depth]:
        return False
    return _round(first, depth, levels) == _round(second, depth, levels)


def _round(call: LayerCall, depth: int, levels: Mapping[LayerPath, _Level]) -> int:
    """Return in which call of an outer model a layer's call happens, counted from 0. A model that is called
    twice and whose config calls a layer three times has calls 0 to 2 in round 0 and 3 to 5 in round 1.

    Args:
        depth: of the outer model: how many of the path's names lead to it.
        levels: the models by path.
    """
    round = call.call_index
    for above in reversed(range(depth, len(call.path))):
        level = levels.get(call.path[:above])
        # In each call of the model above, the layer is called as often as its config says.
        round //= max(1, len(level.reads.get(call.path[above], ()))) if level else 1
    return round


def _find_inner_source(source: LayerCall, depth: int, levels: Mapping[LayerPath, _Level]) -> str | None:
    """Return a sentence about a model whose value another layer takes from within it, and not from an end;
    None for others.
    """
    for below in range(depth + 1, len(source.path)):
        level = levels.get(source.path[:below])
        if level is not None and source.path[below] not in level.ends:
            model = "/".join(source.path[:below])
            return f"'{model}' gives {source.path[below]}, and its config names {[*level.ends]}"
    return None


def _levels(model: JsonObject, path: LayerPath) -> Iterator[tuple[LayerPath, _Level]]:
    """Yield each model, the outermost one and those within it, with its path and its level: what its layers
    read, in how many arguments, and which layers give its values.
    """
    config = model["config"]
    layers = config if isinstance(config, list) else config["layers"]
    named = {_layer_name(layer): layer for layer in layers}
    names = [name for name, layer in named.items() if layer["class_name"] != _INPUT]
    if isinstance(config, list) or model["class_name"] == "Sequential":
        # Each reads the one before it, and the first one the model's input, which counts for none.
        reads = {name: [names[max(index - 1, 0) : index]] for index, name in enumerate(names)}
        yield path, _Level(reads, dict.fromkeys(names, (_ONE_ARGUMENT,)), names[-1:])
    else:
        yield path, _functional_level(config, named, names)
    for name in names:
        if named[name]["class_name"] in MODELS and "config" in named[name]:
            yield from _levels(named[name], (*path, name))


def _functional_level(config: JsonObject, named: Mapping[str, JsonObject], names: Sequence[str]) -> _Level:
    """Return a functional model's layers with what they read, by their `inbound_nodes`."""
    nodes = {name: named[name].get("inbound_nodes") or () for name in names}
    reads = {name: [_names_in(node, names) for node in calls] for name, calls in nodes.items()}
    arguments = {name: [*map(_argument_names, calls)] for name, calls in nodes.items()}
    return _Level(reads, arguments, _names_in(config["output_layers"], names))


def _layer_name(layer: JsonObject) -> str:
    """Return a layer's own name, as porter.formats.keras.config.layer_name does, for a config that has been
    read before.
    """
    config = layer["config"]
    name: str = layer.get("name") or (config["name"] if isinstance(config, dict) else "sequential")
    return name


def _argument_names(node: Any) -> _ArgumentNames:
    """Return how many arguments a call has without names, one before Keras 3, and the names of the others.
    Keras 1 and 2 keep the names of the others behind the first reference.
    """
    if isinstance(node, dict) and "args" in node:
        return len(node["args"]), tuple(sorted(node["kwargs"]))
    # The first reference: of a call with a dict, with a value that is no list, or with a list.
    if isinstance(node, dict):
        first = next(iter(node.values()))
    elif isinstance(node[0], str):
        first = node
    else:
        first = node[0]
    # It is `[layer, call, output]`, with the keywords behind these if there are any.
    keywords = first[3] if len(first) > 3 else ()
    return 1, tuple(sorted(keywords))


def _names_in(value: Any, names: Sequence[str]) -> list[str]:
    """Return the layers among `names` that a value names as `["conv", 0, 0]`; those of keyword arguments,
    which stand behind one of them, come last.
    """
    names_of_layers, later = list[str](), list[str]()

    def look(value: Any) -> None:
        """Append the names in `value` to those of its own level or, from a keyword argument, to the later
        ones.
        """
        if isinstance(value, dict):
            for _, item in sorted(value.items()):
                look(item)
        elif isinstance(value, list) and len(value) > 2 and isinstance(value[0], str):
            if value[0] in names and type(value[1]) is type(value[2]) is int:
                names_of_layers.append(value[0])
            later.extend(name for keywords in value[3:] for name in _names_in(keywords, names))
        elif isinstance(value, list):
            for item in value:
                look(item)

    look(value)
    return names_of_layers + later
