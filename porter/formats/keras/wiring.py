"""Which layers read which, by the names in a model's config. The reader of a file and what runs its model
beside a port both take their calls from porter.formats.keras.flow, which is held to these names first.

Numbers of calls and of outputs are not compared. Constants are only counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from porter.base.json import JsonObject
from porter.formats.keras.flow import Flow, LayerCall, LayerPath, Result, results_in
from porter.formats.keras.versions import MODELS
from porter.formats.limits import read_json

_INPUT = "InputLayer"
_Given = tuple[int, tuple[str, ...]]
_ALONE: _Given = (1, ())


@dataclass(frozen=True)
class _Level:
    """A model in a config, without its inputs.

    Attributes:
        reads: for each layer, the names that each of its calls reads.
        given: for each layer, what each of its calls is given, see `_given`.
        ends: the layers whose values the model gives, in its order.
    """

    reads: Mapping[str, Sequence[Sequence[str]]]
    given: Mapping[str, Sequence[_Given]]
    ends: Sequence[str]


def misread(flow: Flow, definition: str | bytes) -> str | None:
    """Where a flow and the names in the config disagree, in words; None if they agree."""
    levels = dict(_levels(read_json(definition), ()))
    for call in flow.calls:
        sources = [source for source in _calls(flow, results_in(call.given)) if source.kind != _INPUT]
        for depth in range(len(call.path) if call.kind != _INPUT else 0):
            if (wrong := _misread(call, sources, depth, levels)) is not None:
                return wrong
    ends = _calls(flow, flow.outputs)
    given = [end.path[0] for end in ends if end.kind != _INPUT]
    wanted = levels[()].ends
    if (sorted(given) != sorted(wanted)) if flow.names else (given != [*wanted]):
        return f"the model gives {given}, and its config names {[*wanted]}"
    return next(filter(None, (_not_an_end(end, 0, levels) for end in ends)), None)


def _calls(flow: Flow, results: Iterable[Result]) -> list[LayerCall]:
    """The calls that give these results."""
    return [flow.calls[each.call] for each in results if each.call >= 0]


def turned_otherwise(turned: Flow, original: Flow) -> str | None:
    """Where a model that porter turned to channels last has other wires than the model as its config states
    it, in words; None if only layers that porter put in stand between them.
    """
    calls = {(call.path, call.call_index) for call in original.calls}
    reads = {(call.path, call.call_index): _sources(original, call, calls) for call in original.calls}
    for call in turned.calls:
        own = (call.path, call.call_index)
        if own in calls and (sources := _sources(turned, call, calls)) != reads[own]:
            whole = "/".join(call.path)
            return f"'{whole}' reads {_names(sources)}, and the model as stated {_names(reads[own])}"
    sources, wanted = ([_named(flow, end, calls) for end in flow.outputs] for flow in (turned, original))
    return None if sources == wanted else f"the model gives {_names(sources)}, and as stated {_names(wanted)}"


_Named = tuple[LayerPath, int, int]
"""A value: the layer, which of its calls, and which of that call's results."""


def _sources(flow: Flow, call: LayerCall, calls: Collection[tuple[LayerPath, int]]) -> list[_Named]:
    return [_named(flow, each, calls) for each in results_in(call.given)]


def _named(flow: Flow, value: Result, calls: Collection[tuple[LayerPath, int]]) -> _Named:
    """The value of a known call that a value is, or is made from by layers that porter put in."""
    while value.call >= 0:
        call = flow.calls[value.call]
        if (call.path, call.call_index) in calls:
            return call.path, call.call_index, value.output
        value = results_in(call.given)[0]
    return (), 0, value.output


def _names(values: Sequence[_Named]) -> list[str]:
    return ["/".join(path) or "the image" for path, _, _ in values]


def _misread(
    call: LayerCall, sources: Sequence[LayerCall], depth: int, levels: Mapping[LayerPath, _Level]
) -> str | None:
    """What the layer, or the model, at a depth of a call's path reads otherwise among its neighbours."""
    within, name, inner = call.path[:depth], call.path[depth], call.path[: depth + 1]
    if within not in levels:  # the layer of a wrapper
        return None
    beside = [
        source
        for source in sources
        if _in_one(source, call, depth, levels)
        and (depth == len(call.path) - 1 or not _in_one(source, call, depth + 1, levels))
    ]
    names_read = [source.path[depth] for source in beside]
    calls = levels[within].reads[name]
    whole = "/".join(inner)
    if inner in levels:  # of what a model takes, each of its layers may read a part
        right = {*names_read} <= {each for reads in calls for each in reads}
    else:
        round = call.call_index % len(calls)
        given = _given_to(call)
        wanted = levels[within].given[name][round]
        if given != wanted:
            return f"'{whole}' is given {given}, and its config states {wanted}"
        right = names_read == [*calls[round]]
    if not right:
        return f"'{whole}' reads {names_read}, and its config names {[*map(list, calls)]}"
    return next(filter(None, (_not_an_end(source, depth, levels) for source in beside)), None)


def _given_to(call: LayerCall) -> _Given:
    return len(call.given.arguments), tuple(sorted(call.given.keywords))


def _in_one(one: LayerCall, other: LayerCall, depth: int, levels: Mapping[LayerPath, _Level]) -> bool:
    """Whether two calls come from the same call of the model at a depth of their paths."""
    return one.path[:depth] == other.path[:depth] and _round(one, depth, levels) == _round(
        other, depth, levels
    )


def _round(call: LayerCall, depth: int, levels: Mapping[LayerPath, _Level]) -> int:
    """How many calls of the model at a depth of a call's path come before the one that it is from."""
    round = call.call_index
    for above in reversed(range(depth, len(call.path))):
        level = levels.get(call.path[:above])
        round //= max(1, len(level.reads.get(call.path[above], ()))) if level else 1
    return round


def _not_an_end(source: LayerCall, depth: int, levels: Mapping[LayerPath, _Level]) -> str | None:
    """A model whose value another layer takes from within it, and not from an end."""
    for below in range(depth + 1, len(source.path)):
        level = levels.get(source.path[:below])
        if level is not None and source.path[below] not in level.ends:
            whole = "/".join(source.path[:below])
            given = source.path[below]
            return f"'{whole}' gives {given}, and its config names {[*level.ends]}"
    return None


def _levels(model: JsonObject, path: LayerPath) -> Iterator[tuple[LayerPath, _Level]]:
    """The layers of a model and of each model within it, with what they read."""
    config = model["config"]
    layers = config if isinstance(config, list) else config["layers"]
    named = {_name(layer): layer for layer in layers}
    names = [name for name, layer in named.items() if layer["class_name"] != _INPUT]
    if isinstance(config, list) or model["class_name"] == "Sequential":
        reads = {name: [names[max(index - 1, 0) : index]] for index, name in enumerate(names)}
        yield path, _Level(reads, dict.fromkeys(names, (_ALONE,)), names[-1:])
    else:
        yield path, _functional(config, named, names)
    for name in names:
        if named[name]["class_name"] in MODELS and "config" in named[name]:
            yield from _levels(named[name], (*path, name))


def _functional(config: JsonObject, named: Mapping[str, JsonObject], names: Sequence[str]) -> _Level:
    nodes = {name: named[name].get("inbound_nodes") or () for name in names}
    reads = {name: [_names_in(node, names) for node in every] for name, every in nodes.items()}
    given = {name: [*map(_given, every)] for name, every in nodes.items()}
    return _Level(reads, given, _names_in(config["output_layers"], names))


def _name(layer: JsonObject) -> str:
    config = layer["config"]
    name: str = layer.get("name") or (config["name"] if isinstance(config, dict) else "sequential")
    return name


def _given(node: Any) -> _Given:
    """How many arguments a call has by place, one before Keras 3, and the names of the others."""
    if isinstance(node, dict) and "args" in node:
        return len(node["args"]), tuple(sorted(node["kwargs"]))
    first = (
        next(iter(node.values())) if isinstance(node, dict) else node if isinstance(node[0], str) else node[0]
    )
    return 1, tuple(sorted(first[3])) if len(first) > 3 else ()


def _names_in(value: Any, names: Sequence[str]) -> list[str]:
    """The layers among `names` that a value names as `["conv", 0, 0]`; those of keyword arguments, which
    stand behind one of them, come last.
    """
    names_of_layers, later = list[str](), list[str]()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            for _, each in sorted(value.items()):
                look(each)
        elif isinstance(value, list) and len(value) > 2 and isinstance(value[0], str):
            if value[0] in names and type(value[1]) is type(value[2]) is int:
                names_of_layers.append(value[0])
            later.extend(name for each in value[3:] for name in _names_in(each, names))
        elif isinstance(value, list):
            for each in value:
                look(each)

    look(value)
    return names_of_layers + later
