"""All uses of one block as one template: the parts of each use, their differences, and their inputs.

A use has a number. A use that lacks a part passes the part's input on; a part may be another layer in each
use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from porter.frameworks.code.language import CHAIN, ROW
from porter.frameworks.code.plan_layers import Layer
from porter.frameworks.code.tree import Body, Part, Reuse
from porter.graph.blocks.block_uses import Unlike, merge_orders
from porter.graph.blocks.parameters import PlainValue


@dataclass(frozen=True)
class Alternative:
    """What a part is in some of a block's uses: a layer or a use of a class, or a chain of parts.

    Attributes:
        kind: its class.
        at: the numbers of these uses.
        arguments: by the argument's name and the number of the use: `{"stride": {0: 2, 1: 1}}`.
        parts: of a chain or row.
        why: a comment for the reader of model.py.
    """

    kind: str
    at: tuple[int, ...]
    arguments: Mapping[str, Mapping[int, PlainValue]]
    parts: tuple[TemplatePart, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Edge:
    """The part that feeds another: `source`, or `other` in the uses where the flag, by the number of the use,
    is false.
    """

    source: str
    other: str | None = None
    flag: Mapping[int, bool] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if self.other is None else (self.source, self.other)


@dataclass(frozen=True)
class TemplatePart:
    """A part over all uses. In the uses that lack it, its value is that of the input number `through`.

    Attributes:
        again: the part that it is another call of. No use lacks it then, and it has no alternatives.
    """

    name: str
    alternatives: tuple[Alternative, ...]
    inputs: tuple[Edge, ...]
    through: int | None
    again: str | None = None

    @property
    def at(self) -> frozenset[int]:
        return frozenset(use for alternative in self.alternatives for use in alternative.at)


@dataclass(frozen=True)
class Template:
    """All uses of a block. `variables` are the arguments of its `forward`, by their names among the parts."""

    parts: tuple[TemplatePart, ...]
    outputs: tuple[Edge, ...]
    uses: int
    variables: Mapping[str, str]


@dataclass(frozen=True)
class FlagKey:
    """What a flag of a class tells its uses apart by: whether a part is there, or what feeds an input.

    Attributes:
        part: its name; None for the outputs.
        number: of the input; None for the part itself.
    """

    part: str | None
    number: int | None = None


@dataclass(frozen=True)
class ClassUse:
    """A use of a nested block: its class, and the arguments of this use."""

    name: str
    arguments: Mapping[str, PlainValue]


ClassUses = Mapping[str, ClassUse]
"""What uses a block, by the path of the use."""


def unify(bodies: Mapping[int, Body], classes: ClassUses, functions: Collection[str]) -> Template:
    """Unify the uses of a block as one template, from which one class is written: two residual blocks, one
    with a shortcut convolution and one without, give parts of which the second use lacks `shortcut`.

    Args:
        bodies: the module of each use, by the number of the use.
        classes: the classes of nested blocks' uses.
        functions: kinds that stand for themselves in every use (Language.functions).

    Raises:
        Unlike: their parts have different orders, or inputs that no condition tells apart.
    """
    order = _common_order([[part.name for part in body.parts] for body in bodies.values()])
    by_name = {use: {part.name: part for part in body.parts} for use, body in bodies.items()}
    first_body, *_ = bodies.values()
    variables = first_body.variables
    flow = _Flow(by_name, variables)
    parts = []
    for name in order:
        # the part of this name in each use that has it
        part_by_use = {use: parts_of[name] for use, parts_of in by_name.items() if name in parts_of}
        again = _repeated_part(part_by_use, len(bodies))
        parts.append((name, again, _make_alternatives(part_by_use, classes, functions)))
        flow.add(name, part_by_use)
    outputs = zip(*(body.outputs for body in bodies.values()), strict=True)
    # what feeds each output
    ends = tuple(flow.edge(dict(zip(bodies, sources, strict=True))) for sources in outputs)
    unified = tuple(
        TemplatePart(name, alternatives, flow.edges[name], flow.through.get(name), again)
        for name, again, alternatives in parts
    )
    return Template(unified, ends, len(bodies), variables)


def _repeated_part(parts: Mapping[int, Part], uses: int) -> str | None:
    """Return the part that `parts`, one for each use, are another call of; None where they are no calls of
    other parts. Raise Unlike where only some are, or some of the `uses` lack the call.
    """
    called = {part.content.part if isinstance(part.content, Reuse) else None for part in parts.values()}
    if called != {None} and (len(called) > 1 or len(parts) < uses):
        raise Unlike
    return called.pop()


def signature(body: Body, classes: ClassUses) -> tuple[object, ...]:
    """Return a key that is equal for bodies that differ only in arguments, so that one class surely does for
    them: names, classes and inputs of the parts, and of chains also what is in them.
    """
    return (
        body.outputs,
        *(
            (
                part.name,
                _class_name(part, classes),
                part.inputs,
                () if (chain := _chain_of(part)) is None else signature(chain, classes),
            )
            for part in body.parts
        ),
    )


def _chain_of(part: Part) -> Body | None:
    """Return the chain or the row that a part is; None for any other part."""
    return part.content if isinstance(part.content, Body) and part.content.block is None else None


def _class_name(part: Part, classes: ClassUses) -> str:
    """Return the class of a part: a layer's such as `Conv2d`, a block's, CHAIN or ROW; for a further call
    of another part, `conv1 again`.
    """
    content = part.content
    if isinstance(content, Layer):
        return content.kind
    if isinstance(content, Reuse):
        return f"{content.part} again"
    if content.block is None:
        return ROW if content.row else CHAIN
    return classes[content.path].name


def _common_order(orders: Sequence[Sequence[str]]) -> list[str]:
    """Return one order of the parts of all uses, given the names of each use's parts in order: `[a, c]` and
    `[a, b, c]` give `[a, b, c]`.

    Raises:
        Unlike: no order fits all, or a part such as `stem.conv` stands in a module `stem` in some uses only.
    """
    merged_names = merge_orders(orders)
    for inner in merged_names:
        containers = {outer for outer in merged_names if inner.startswith(f"{outer}.")}
        if not containers:
            continue
        # A container may not be a module in one use and none in another.
        if any(inner not in order or not containers <= set(order) for order in orders):
            raise Unlike
    return merged_names


def _make_alternatives(
    parts: Mapping[int, Part], classes: ClassUses, functions: Collection[str]
) -> tuple[Alternative, ...]:
    """Return a part in each of its classes, with the uses that have it. Raise Unlike where a function is only
    one of the classes, because `forward` applies functions itself.
    """
    kinds: dict[str, list[int]] = {}
    for use, part in parts.items():
        kinds.setdefault(_class_name(part, classes), []).append(use)
    if len(kinds) > 1 and not kinds.keys().isdisjoint(functions):
        raise Unlike
    return tuple(
        _make_alternative(kind, {use: parts[use] for use in uses}, classes, functions)
        for kind, uses in kinds.items()
    )


def _make_alternative(
    kind: str, parts: Mapping[int, Part], classes: ClassUses, functions: Collection[str]
) -> Alternative:
    """Return what a part is in the uses that have it as the class `kind`: a chain or row with its own parts,
    or a layer or block with its arguments in each use.
    """
    at = tuple(parts)
    if kind in (CHAIN, ROW):
        bodies = {use: chain for use, part in parts.items() if (chain := _chain_of(part)) is not None}
        return Alternative(kind, at, {}, unify(bodies, classes, functions).parts)
    values: dict[str, dict[int, PlainValue]] = {}
    for use, part in parts.items():
        content = part.content
        # A further call has the arguments of the first.
        if isinstance(content, Reuse):
            continue
        arguments = content.arguments if isinstance(content, Layer) else classes[content.path].arguments
        for slot, value in arguments.items():
            values.setdefault(slot, {})[use] = value
    contents = [part.content for part in parts.values()]
    why = next((content.why for content in contents if isinstance(content, Layer) and content.why), "")
    return Alternative(kind, at, values, (), why)


class _Flow:
    """Finds the inputs of each part, in order, and remembers which input replaces an absent part.

    Attributes:
        parts: the parts of each use, by the number of the use and by name.
        entries: names of the block's own inputs.
        edges: what feeds each part, by its name, in the order of its inputs.
        through: of parts that some uses lack, the number of the input that they pass on there.
    """

    def __init__(self, parts: Mapping[int, Mapping[str, Part]], entries: Collection[str]) -> None:
        self.parts, self.entries = parts, entries
        self.edges: dict[str, tuple[Edge, ...]] = {}
        self.through: dict[str, int] = {}

    def add(self, name: str, part_by_use: Mapping[int, Part]) -> None:
        """Note what feeds a part of the block, in each use of the block.

        Args:
            name: of the part, in the block's code.
            part_by_use: that part by the number of the use.

        Raises:
            Unlike: it has different numbers of inputs in two uses, so they cannot share one class.
        """
        counts = {len(part.inputs) for part in part_by_use.values()}
        if len(counts) != 1:
            raise Unlike
        self.edges[name] = tuple(
            self.edge({use: part.inputs[number] for use, part in part_by_use.items()})
            for number in range(counts.pop())
        )

    def edge(self, sources: Mapping[int, str]) -> Edge:
        """Return the edge to write, given the part that is the source in each use: one part, if the others
        lack it and pass the right value on; otherwise two, told apart by a flag. Raise Unlike where these are
        not enough.
        """
        named = [*dict.fromkeys(sources.values())]
        # The latest part first, because what is absent passes on what came before it.
        for name in [*reversed(self.edges), *self.entries]:
            if name in named and self._stands_for(name, sources):
                return Edge(name)
        if len(named) == 2:
            # The flag is true in the uses of the rarer source; of the first one where both are as frequent.
            rarer, usual = sorted(named, key=list(sources.values()).count)
            return Edge(rarer, usual, {use: source == rarer for use, source in sources.items()})
        raise Unlike

    def _stands_for(self, name: str, sources: Mapping[int, str]) -> bool:
        """Say whether the part `name`, or what it passes on in uses that lack it, is the source in each use.

        On the way, `edges` and `through` get the inputs that absent parts have to pass on for this. They are
        set back if the answer is no.
        """
        edges, through = dict(self.edges), dict(self.through)
        if all(self._resolves(name, use, source) for use, source in sources.items()):
            return True
        self.edges, self.through = edges, through
        return False

    def _resolves(self, name: str, use: int, wanted: str) -> bool:
        """Say whether a name stands for the wanted source in a use: the name itself where the use has that
        part, otherwise the value that passes through the absent part, by the input that is noted or by any of
        its inputs.
        """
        if name in self.entries or name in self.parts[use]:
            return name == wanted
        numbers = [self.through[name]] if name in self.through else range(len(self.edges[name]))
        return any(self._passes(name, number, use, wanted) for number in numbers)

    def _passes(self, name: str, number: int, use: int, wanted: str) -> bool:
        """Say whether an absent part has the wanted value at the input `number`, and if so note that the part
        passes this input on. Where the input has two sources and none is chosen for this use, the right one
        is chosen.
        """
        edge = self.edges[name][number]
        chosen = edge.flag.get(use)  # None where no source is chosen for this use
        for source, flag in ((edge.source, True), (edge.other, False)):
            if source is not None and chosen in (None, flag) and self._resolves(source, use, wanted):
                if edge.other is not None:
                    inputs = list(self.edges[name])
                    inputs[number] = replace(edge, flag={**edge.flag, use: flag})
                    self.edges[name] = tuple(inputs)
                self.through[name] = number
                return True
        return False
