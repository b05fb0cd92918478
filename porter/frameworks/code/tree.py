"""The layers of a plan as nested modules: blocks, chains, and single layers. The layers `stem/conv` and
`stem/norm` become the parts `conv` and `norm` of a module `stem`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from keyword import iskeyword

from porter.base.errors import GraphError
from porter.filegraph.names import Names
from porter.frameworks.code.language import Language
from porter.frameworks.code.plan_layers import Layer, LayerStep
from porter.graph import INPUT, BlockScope, Graph

ENTRY = ""
"""The name of a body's own input among its parts. A further input of the whole model has the name of its
argument behind `=`, which no part's name begins with.
"""
_ARGUMENT = "="


@dataclass(frozen=True)
class Reuse:
    """Another call of a part, by its name; by its path, while names are not known."""

    part: str


@dataclass(frozen=True)
class Part:
    """A member of a module: a layer, a nested module or another call of one of both, and the names of the
    parts that feed it.

    If its container is not a module, its name begins with the container's: `stem.conv`.
    """

    name: str
    content: Layer | Body | Reuse
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Body:
    """A module with one input, the value at the path `source`.

    Attributes:
        outputs: the names of the parts that give them; only the whole model may have several.
        block: the name of its block in the recipe; without one it is a chain.
        further: arguments of the whole model after its first, by the path of each.
        row: it is numbered uses of one block, which have places and no names.
    """

    path: str
    source: str
    parts: tuple[Part, ...]
    outputs: tuple[str, ...]
    block: str | None = None
    arguments: Mapping[str, object] | None = None
    further: Mapping[str, str] = field(default_factory=dict)
    row: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """The arguments of its `forward`, by the names under which its parts read them: `{"": "x"}`, for a
        model with a second input `mask` also `"=mask": "mask"`.
        """
        return {ENTRY: "x", **{f"{_ARGUMENT}{name}": name for name in self.further.values()}}

    def bodies(self) -> Iterator[Body]:
        """Yield this module and all modules within it."""
        yield self
        for part in self.parts:
            if isinstance(part.content, Body):
                yield from part.content.bodies()


def make_tree(graph: Graph, steps: Sequence[LayerStep], language: Language) -> Body:
    """Make the tree of the whole model, of which model.py's classes are written: the steps `stem/conv` and
    `stem/norm` become the parts `conv` and `norm` of a module `stem`.

    A container with several inputs or outputs is not a module: its members become its parent's. So do those
    of a container of which one layer is called elsewhere too, unless the whole container is.

    Raises:
        GraphError: part of a path is no Python name, or a name that modules have already.
    """
    for step in steps:
        for name in step.path.split("/"):
            if not name.isidentifier() or iskeyword(name) or name in language.of_modules:
                message = (
                    f"model.py needs paths of Python names that {language.module} does not use, got '{name}'"
                )
                raise GraphError(message, where=step.path, next="rename the step")
    remaining = _without_reshapes(graph, steps, language)
    body = _Nesting(graph, remaining, language).body("", remaining, INPUT, graph.outputs)
    return replace(
        _with_rows(body, language), block="model", arguments={}, further=_further_arguments(graph, language)
    )


def _further_arguments(graph: Graph, language: Language) -> dict[str, str]:
    """Return the names that `forward` has for a model's inputs after its first, which is `x`: by the path of
    each, such as `{"text/mask": "text_mask"}`.
    """
    taken = Names(language.reserved | {"x"})
    return {further.path: taken.take(further.path.replace("/", "_")) for further in graph.further_inputs}


def _without_reshapes(graph: Graph, steps: Sequence[LayerStep], language: Language) -> list[LayerStep]:
    """Return the steps without those that turn the features of a global pool, N x C, into a map N x C x 1 x 1
    again. The pool before such a step then keeps its map (in Flax by `keepdims=True`), and what read the step
    reads the pool. A step stays if the features are read by another one too.
    """
    by_path = {step.path: step for step in steps}
    reads = Counter(graph.outputs)
    reads.update(source for step in steps for source in step.inputs)
    pools = dict[str, str]()  # the pool's path by that of the step that is left out
    kept = dict[str, Layer]()  # the pool's new layer by its path
    for step in steps:
        source = by_path.get(step.inputs[0])
        makes_map = step.layer == language.of_map and step.path not in graph.outputs
        # Nothing else reads the features.
        if makes_map and source is not None and reads[source.path] == 1:
            # the same pool with its axes kept; None where the source is no such pool
            pool = language.keep_map(source.layer)
            if pool is not None:
                pools[step.path], kept[source.path] = source.path, pool
    return [
        replace(
            step,
            layer=kept.get(step.path, step.layer),
            inputs=tuple(pools.get(path, path) for path in step.inputs),
        )
        for step in steps
        if step.path not in pools
    ]


@dataclass(frozen=True)
class _PlacedPart:
    """A part before it and its inputs have names: all are still paths. `output` is the path of the value that
    it gives, and `place` the index of its first step in the graph.
    """

    path: str
    content: Layer | Body | Reuse
    inputs: tuple[str, ...]
    output: str
    place: int


class _Nesting:
    """The steps of a graph, to be put into the modules that their paths name."""

    def __init__(self, graph: Graph, steps: Sequence[LayerStep], language: Language) -> None:
        self.language = language
        self.scopes: dict[str, BlockScope] = {scope.path: scope for scope in graph.scopes}
        self.single = _blocks_in_one_place(self.scopes)
        self.arguments = {
            path: f"{_ARGUMENT}{name}" for path, name in _further_arguments(graph, language).items()
        }
        self.places = {step.path: index for index, step in enumerate(steps)}
        self.steps = {step.path: step for step in steps}
        self.inside: dict[str, list[LayerStep]] = {}
        """The steps in each container, by its path."""
        for step in steps:
            # each container around the step
            for end in (index.start() for index in re.finditer("/", step.path)):
                self.inside.setdefault(step.path[:end], []).append(step)
        groups = [tuple(call.path for call in calls) for calls in graph.calls.values() if len(calls) > 1]
        self.calls = {path: group for group in groups for path in group}
        """The calls of each layer that is called several times, by the path of each."""
        # Who reads each value, by path; "" stands for whoever reads the outputs.
        self.readers: dict[str, set[str]] = {path: {""} for path in graph.outputs}
        for step in steps:
            for source in step.inputs:
                self.readers.setdefault(source, set()).add(step.path)

    def body(self, prefix: str, steps: list[LayerStep], source: str, outputs: Sequence[str]) -> Body:
        """Return the module of these steps, in which each part's inputs are named as the parts that feed it.

        Args:
            prefix: the path of the container, with a slash behind it; empty for the model.
            source: the path of the only value that the steps read from outside.
            outputs: the paths of the values that the module gives.
        """
        placed = self._place_parts(prefix, steps)
        # A part of a container that is no module has a dotted name.
        called = {part.path: part.path.removeprefix(prefix).replace("/", ".") for part in placed}
        names = {**self.arguments, source: ENTRY, **{part.output: called[part.path] for part in placed}}
        parts = tuple(
            Part(
                called[part.path],
                Reuse(called[part.content.part]) if isinstance(part.content, Reuse) else part.content,
                tuple(names[path] for path in part.inputs),
            )
            for part in placed
        )
        return Body(prefix.rstrip("/"), source, parts, tuple(names[path] for path in outputs))

    def _place_parts(self, prefix: str, steps: list[LayerStep]) -> list[_PlacedPart]:
        """Return the parts of a module in the order of the graph: single layers, and modules of the layers
        that one path leads to. Where these cannot be a module, their parts stand here.
        """
        groups: dict[str, list[LayerStep]] = {}
        for step in steps:
            groups.setdefault(step.path.removeprefix(prefix).split("/")[0], []).append(step)
        placed: list[_PlacedPart] = []
        for name, members in groups.items():
            path = prefix + name
            # A path may be a layer and hold others: then it is no module of theirs.
            layers = [step for step in members if step.path == path]
            inside = [step for step in members if step.path != path]
            for step in layers:
                content = step.layer if step.shares is None else Reuse(step.shares)
                placed.append(_PlacedPart(path, content, step.inputs, path, self.places[path]))
            module = self._make_module(path, inside) if inside and not layers else None
            if module is not None:
                placed.append(module)
            elif inside:
                placed += self._place_parts(f"{path}/", inside)
        return sorted(placed, key=lambda part: part.place)

    def _make_module(self, path: str, steps: list[LayerStep]) -> _PlacedPart | None:
        """Return the steps inside a container, such as those of `layer1/0`, as one part: a module of them, or
        where they repeat the layers of another container, a call of its module. None if they read or give
        several values, or make no module.
        """
        within = {step.path for step in steps}
        # the values that the steps read from outside, and those of theirs that are read outside
        sources = {source for step in steps for source in step.inputs} - within
        outputs = [inner for inner in within if self.readers.get(inner, set()) - within]
        if len(sources) != 1 or len(outputs) != 1:
            return None
        (source,), (output,) = sources, outputs
        called = self._called_container(path, steps)
        content: Layer | Body | Reuse | None = None
        if called == path:
            content = self._module_content(path, steps, source, outputs)
        elif called is not None and self._make_module(called, self.inside[called]) is not None:
            content = Reuse(called)
        if content is None:
            return None
        place = min(self.places[inner] for inner in within)
        return _PlacedPart(path, content, (source,), output, place)

    def _module_content(
        self, path: str, steps: list[LayerStep], source: str, outputs: list[str]
    ) -> Layer | Body | Reuse | None:
        """Return a container's steps as the recipe's block or as a chain, or the layer itself where they are
        one without tensors, which needs no module around it. None if they are neither block nor chain.
        """
        body = self.body(f"{path}/", steps, source, outputs)
        scope = self.scopes.get(path)
        is_chain = _is_chain(body, self.language)
        # A chain needs no class of its own if it is a row of one block's uses, or its block has one place.
        needs_no_class = _is_row(body, self.language) or (
            is_chain and scope is not None and scope.block in self.single
        )
        if scope is not None and not needs_no_class:
            return replace(body, block=scope.block, arguments=scope.arguments)
        if not is_chain:
            return None
        if len(body.parts) == 1 and self._has_no_tensors(body.parts[0].content):
            return body.parts[0].content
        if self.language.rows and _is_numbered(body.parts):
            return replace(body, row=True)
        return _with_rows(body, self.language)

    def _has_no_tensors(self, content: Layer | Body | Reuse) -> bool:
        """Say whether the names of a part's tensors are the same with and without a module around it."""
        return isinstance(content, Layer) and content.kind not in self.language.with_tensors

    def _called_container(self, path: str, steps: Sequence[LayerStep]) -> str | None:
        """Return the container whose module the container `path` calls: if the layers of `head2` are those of
        `head1` called again, `head2` has `head1`, and `head1` has itself.

        Args:
            steps: those in the container `path`.

        Returns:
            `path` itself also where none of its layers is called elsewhere. None where only some of them
            are, or where the calls read or give other values.
        """
        within = {step.path for step in steps}
        groups = [self.calls[inner] for inner in within if inner in self.calls]
        # The calls of one layer that is called outside this container too.
        crossing = next((group for group in groups if not within.issuperset(group)), ())
        if not crossing:
            return path
        # The layer's names in this container, such as `/conv`.
        names = [inner.removeprefix(path) for inner in within.intersection(crossing)]
        # The containers of all its calls: their paths without the layer's name.
        containers = {
            path,
            *(call.removesuffix(name) for call in crossing for name in names if call.endswith(name)),
        }
        for group in groups:
            names_here = {inner.removeprefix(path) for inner in within.intersection(group)}
            # Every layer has to be called in each of the containers.
            if set(group) != {container + name for container in containers for name in names_here}:
                return None
        flow = self._flow_key(path)
        if any(self._flow_key(container) != flow for container in containers):
            return None
        # The module is in the container whose layers are all first calls.
        first_calls = {self.steps[inner].shares or inner for group in groups for inner in group}
        modules = [
            container
            for container in containers
            if all(call.startswith(f"{container}/") for call in first_calls)
        ]
        return modules[0] if modules else None

    def _flow_key(self, container: str) -> object:
        """Return a key of a container's layers and of where their values go, which is equal for containers
        that compute the same: how many values it reads from outside, and for each layer its name in the
        container, class, arguments, inputs ("" for one from outside), and whether it is read inside only.
        """
        inside = {step.path: step for step in self.inside.get(container, ())}
        sources = {source for step in inside.values() for source in step.inputs} - inside.keys()
        return len(sources), [
            (
                path.removeprefix(container),
                step.layer.kind,
                step.layer.arguments,
                [source.removeprefix(container) if source in inside else "" for source in step.inputs],
                self.readers.get(path, set()) <= inside.keys(),
            )
            for path, step in inside.items()
        ]


def _blocks_in_one_place(scopes: Mapping[str, BlockScope]) -> set[str]:
    """Return the recipe's blocks that stand in one place only: under one name in one other block, such as the
    `shortcut` of each residual block. Where such a block is a chain, it needs no class of its own.

    Args:
        scopes: the uses of all blocks, by path.
    """
    # By block: the block around each use, None for the model, and the use's name in it.
    places: dict[str, set[tuple[str | None, str]]] = {}
    for scope in scopes.values():
        outer_path = scope.path.rpartition("/")[0]
        while outer_path and outer_path not in scopes:
            outer_path = outer_path.rpartition("/")[0]
        outer = scopes[outer_path].block if outer_path else None
        places.setdefault(scope.block, set()).add((outer, scope.path.removeprefix(f"{outer_path}/")))
    return {
        block
        for block, users in places.items()
        if len(users) == 1 and all(outer is not None for outer, _ in users)
    }


def _is_chain(body: Body, language: Language) -> bool:
    """Say whether each part reads only the one before it, so that a Sequential can hold them. A Sequential
    holds modules: no further call of one, no function such as a sum, no part with a dotted name.
    """
    before = ENTRY
    for part in body.parts:
        is_no_module = isinstance(part.content, Reuse) or (
            isinstance(part.content, Layer) and part.content.kind in language.functions
        )
        if part.inputs != (before,) or is_no_module or "." in part.name:
            return False
        before = part.name
    return body.outputs == (before,)


def _is_row(body: Body, language: Language) -> bool:
    """Say whether a body is two or more uses of one block, one after the other. Such a row is a chain and no
    class, because one class for rows of several lengths would have absent units.
    """
    return len(body.parts) > 1 and _are_uses(body.parts) and _is_chain(body, language)


def _are_uses(parts: Sequence[Part]) -> bool:
    """Say whether the parts are uses of one block."""
    blocks = {part.content.block if isinstance(part.content, Body) else None for part in parts}
    return len(blocks) == 1 and None not in blocks


def _is_numbered(parts: Sequence[Part]) -> bool:
    """Say whether the parts are uses of one block called `unit1`, `unit2` and so on, or from 0."""
    names = [part.name for part in parts]
    word = _word(parts[0].name)
    return _are_uses(parts) and any(
        names == [f"{word}{start + index}" for index in range(len(names))] for start in (0, 1)
    )


def _word(name: str) -> str:
    """Return a name without its number: `unit` of `unit1`."""
    return name.rstrip("0123456789")


def _with_rows(body: Body, language: Language) -> Body:
    """Return a module in which one row, `units`, stands for the parts `unit1`, `unit2` and so on that follow
    each other. A framework without rows (lists of modules that have no names) keeps the module as it is.
    """
    if not language.rows:
        return body
    reads = Counter([*body.outputs, *(name for part in body.parts for name in part.inputs)])
    words_called_again = {_word(part.content.part) for part in body.parts if isinstance(part.content, Reuse)}
    taken = {part.name for part in body.parts} | language.of_modules | language.reserved
    # By the last part of a row, which others read, the row's name.
    row_names = dict[str, str]()
    parts = list[Part]()
    for word, group in groupby(body.parts, lambda part: _word(part.name)):
        members = list(group)
        name = f"{word.rstrip('_')}s"
        is_free = name.isidentifier() and name not in taken and word not in words_called_again
        row = _make_row(name, members, body.path, reads) if is_free else None
        if row is None:
            parts += members
        else:
            parts.append(row)
            row_names[members[-1].name] = name

    def renamed(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(row_names.get(name, name) for name in names)

    return replace(
        body,
        parts=tuple(replace(part, inputs=renamed(part.inputs)) for part in parts),
        outputs=renamed(body.outputs),
    )


def _make_row(name: str, members: Sequence[Part], path: str, reads: Mapping[str, int]) -> Part | None:
    """Return one part, the row `name` of these members. None where they are not numbered uses of one block,
    or where anything but the next member reads one of them.

    Args:
        path: of the module that the members stand in.
        reads: how often each part of that module is read, by its name.
    """
    first, last = members[0], members[-1]
    are_a_chain = all(
        after.inputs == (before.name,) and reads[before.name] == 1 for before, after in pairwise(members)
    )
    if len(members) < 2 or not are_a_chain or not _is_numbered(members):
        return None
    if not isinstance(first.content, Body):
        return None
    inner = (replace(first, inputs=(ENTRY,)), *members[1:])
    return Part(name, Body(path, first.content.source, inner, (last.name,), row=True), first.inputs)
