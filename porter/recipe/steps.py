"""The steps of graphs and blocks, with their keys checked and their expressions not yet evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from porter.base.errors import RecipeError
from porter.graph import OPS
from porter.graph.ops.kinds import COUNT, FLAG, PADS, Kind, attributes, defaults
from porter.recipe.expressions import is_expression, parse, placeholders
from porter.recipe.faults import Faults
from porter.recipe.kinds import CONSTANTS, EPSILON, MULTIPLIER, PAD, PAIR
from porter.recipe.source import Location, RecipeSource
from porter.recipe.spelling import hint

REQUIRED = object()


class Attribute(NamedTuple):
    """An attribute of an operation.

    Attributes:
        says: what it means, unless the operation's own text does.
    """

    kind: Kind
    default: Any = REQUIRED
    says: str = ""


_STRIDES = {
    "stride": Attribute(PAIR, 1, "rows and columns from one window to the next"),
    "dilation": Attribute(PAIR, 1, "rows and columns from one cell of a window to the next"),
}
_WINDOW = {
    **_STRIDES,
    "pad": Attribute(PAD, "valid", "the convention of zoos whose `padding` says nothing of this site"),
}
_KERNEL = "rows and columns of the window"
_BIAS = Attribute(FLAG, False, "whether a trained number is added to each channel")
_GROUPED = {"groups": Attribute(COUNT, 1, "groups of channels, each with filters of its own"), "bias": _BIAS}
SPELLED_OTHERWISE: Mapping[str, Mapping[str, Attribute]] = {
    "conv": {
        "filters": Attribute(COUNT, says="channels of the output"),
        "kernel": Attribute(PAIR, 1, _KERNEL),
        **_WINDOW,
        **_GROUPED,
    },
    "depthwise_conv": {
        "kernel": Attribute(PAIR, says=_KERNEL),
        **_WINDOW,
        "multiplier": Attribute(MULTIPLIER, 1, "channels of the output for each of the input"),
        "bias": _BIAS,
    },
    "batch_norm": {
        "epsilon": Attribute(EPSILON, "=bn_epsilon", "is added to the variance"),
        "momentum": Attribute(EPSILON, "=bn_momentum", "the weight of each new batch, as in torch"),
        "scale": Attribute(FLAG, "=bn_scale", "whether there is a trained factor"),
        "center": Attribute(FLAG, "=bn_center", "whether there is a trained summand"),
    },
    "affine": {"scale": Attribute(CONSTANTS, 1), "offset": Attribute(CONSTANTS, 0)},
    "max_pool": {"kernel": Attribute(PAIR, says=_KERNEL), **_WINDOW},
    "avg_pool": {"kernel": Attribute(PAIR, says=_KERNEL), **_WINDOW},
    "conv_transpose": {
        "filters": Attribute(COUNT, says="channels of the output"),
        "kernel": Attribute(PAIR, 1, _KERNEL),
        **_STRIDES,
        "cut": Attribute(
            PADS, (0, 0, 0, 0), "rows and columns taken from the sum: [top, bottom, left, right]"
        ),
        **_GROUPED,
    },
}
"""Operations that recipes spell in another way than the graph. The defaults of a batch norm come from the
options.
"""
ATTRIBUTES: Mapping[str, Mapping[str, Attribute]] = {
    **SPELLED_OTHERWISE,
    **{
        name: {key: Attribute(kind, defaults(op).get(key, REQUIRED)) for key, kind in attributes(op).items()}
        for name, op in OPS.items()
        if name not in SPELLED_OTHERWISE
    },
}
"""Every operation with its attributes."""
OPERATIONS: Mapping[str, Mapping[str, Any]] = {
    name: {key: attribute.default for key, attribute in known.items()} for name, known in ATTRIBUTES.items()
}
"""Every operation with the defaults of its attributes."""

COMMON_KEYS = ("when", "from", "repeat", "first", "last")
NORM, WITH_NORM = "norm", frozenset({"conv", "depthwise_conv"})
"""The key with the path of the batch norm that follows, and the operations that have it."""


@dataclass(frozen=True)
class RecipeStep:
    """One step as written.

    Attributes:
        kind: an operation, or a block of the recipe.
        path: of the node, relative to the block; may hold `{index}` or `{count}`.
        arguments: attributes or block parameters, not evaluated.
        overrides: the arguments of `first` and `last`, which replace them in the first and the last
            repetition.
        branches: of a concat.
        location: in the file.
    """

    kind: str
    path: str
    arguments: Mapping[str, Any]
    overrides: Mapping[str, Mapping[str, Any]]
    when: Any
    inputs: Any
    repeat: Any
    branches: tuple[tuple[RecipeStep, ...], ...]
    location: Location

    def written(self, key: str, place: Mapping[str, Any]) -> tuple[Location, Any]:
        """Return where the argument `key` is written, and its value as written, not evaluated; in the first
        and the last repetition what overrides it there.

        Args:
            place: says by its `first` and `last` which repetition it is.
        """
        for end in ("last", "first"):
            if place[end] and key in self.overrides[end]:
                return (*self.location, end, key), self.overrides[end][key]
        return (*self.location, key), self.arguments.get(key)

    @property
    def numbered(self) -> bool:
        """Whether the path has its own place for a repeated step's number."""
        return bool(placeholders(self.path) & {"index", "count"})


@dataclass(frozen=True)
class Block:
    """Steps used like an operation. `parameters` maps names to defaults; None means that it must be given.
    `inputs` names what it reads; the first is also `input`.
    """

    name: str
    parameters: Mapping[str, Any]
    inputs: tuple[str, ...]
    steps: tuple[RecipeStep, ...]
    location: Location

    def place(self, parameter: str) -> Location:
        """Return the location in the recipe where a parameter is declared."""
        return (*self.location, "parameters", parameter)


def with_branches(steps: Iterable[RecipeStep]) -> Iterator[RecipeStep]:
    """Yield the steps of a list and those of their branches."""
    for step in steps:
        yield step
        for branch in step.branches:
            yield from with_branches(branch)


def find_cycle(
    steps: Iterable[RecipeStep], blocks: Mapping[str, Block], above: tuple[str, ...] = ()
) -> tuple[tuple[str, ...], RecipeStep] | None:
    """Find the first step that uses a block inside itself. Return the names of the blocks on the way, such
    as `('a', 'b', 'a')`, and the step; None if there is none.

    Args:
        above: the blocks around `steps`, outermost first.
    """
    for step in with_branches(steps):
        if step.kind in above:
            return (*above[above.index(step.kind) :], step.kind), step
        if step.kind in blocks:
            cycle = find_cycle(blocks[step.kind].steps, blocks, (*above, step.kind))
            if cycle is not None:
                return cycle
    return None


def parse_steps(
    source: RecipeSource, location: Location, listed: Any, blocks: Mapping[str, Mapping[str, Any]]
) -> tuple[RecipeStep, ...]:
    """Return the steps of a list in the file. `blocks` has the parameters of the recipe's blocks by name.

    Raises:
        RecipeError: an operation, key or argument is unknown or missing, or a value is a wrong expression.
    """
    if not isinstance(listed, tuple) or not listed:
        raise RecipeError("expected a list of steps", where=source.where(location))
    faults = Faults()
    steps = list[RecipeStep]()
    for index, values in enumerate(listed):
        with faults.collect():
            steps += _parse_step_with_norm(source, (*location, index), values, blocks)
    faults.expect_none()
    return tuple(steps)


def _parse_step_with_norm(
    source: RecipeSource, location: Location, values: Any, blocks: Mapping[str, Mapping[str, Any]]
) -> tuple[RecipeStep, ...]:
    """Return a step as it is written, or two for a convolution with `norm: PATH`: the convolution, and
    behind it a batch norm at that path, under the same condition.

    Raises:
        RecipeError: as `parse_steps`, or such a convolution is repeated.
    """
    if not isinstance(values, dict) or NORM not in values or not WITH_NORM & values.keys():
        return (_parse_step(source, location, values, blocks),)
    without_norm = {key: value for key, value in values.items() if key != NORM}
    step = _parse_step(source, location, without_norm, blocks)
    if step.repeat is not None:
        where = source.where((*location, NORM), key=True)
        raise RecipeError(
            f"a step with 'repeat' cannot have '{NORM}'",
            where=where,
            next="make a block of the two, and repeat it",
        )
    condition = {"when": values["when"]} if "when" in values else {}
    return step, _parse_step(source, (*location, NORM), {"batch_norm": values[NORM], **condition}, blocks)


def _parse_step(
    source: RecipeSource, location: Location, values: Any, blocks: Mapping[str, Mapping[str, Any]]
) -> RecipeStep:
    """Return a step, such as `{conv: stem/conv, filters: 32}`, whose one key that is an operation or a block
    tells what it is. Its keys and its path are checked, and its values stay unevaluated.

    Raises:
        RecipeError: as `parse_steps`.
    """
    if not isinstance(values, dict):
        raise RecipeError(
            "a step must be a mapping, such as {conv: stem/conv, filters: 32}", where=source.where(location)
        )
    defaults_by_kind = {**OPERATIONS, **blocks}
    kinds = [key for key in values if key in defaults_by_kind]
    if not kinds:
        word = next(iter(values), "")
        with source.at((*location, word), key=True):
            raise RecipeError(
                f"'{word}' is neither an operation nor a block of this recipe",
                next=hint(word, defaults_by_kind),
            )
    kind = kinds[0]
    allowed = {*defaults_by_kind[kind], *COMMON_KEYS}
    if kind == "concat":
        allowed.add("branches")
    _expect_known_keys(source, location, kind, [key for key in values if key != kind], allowed)
    path = values[kind]
    if not isinstance(path, str) or not path or path.startswith("/") or path.endswith("/"):
        raise RecipeError(
            f"'{kind}' needs a path, such as {kind}: stem/conv", where=source.where((*location, kind))
        )
    overrides = {
        key: _parse_overrides(source, (*location, key), values.get(key, {}), kind, defaults_by_kind[kind])
        for key in ("first", "last")
    }
    arguments = {key: value for key, value in values.items() if key in defaults_by_kind[kind]}
    if missing := _missing_argument(kind, defaults_by_kind[kind], arguments, overrides):
        raise RecipeError(f"'{kind}' needs '{missing}'", where=source.where(location))
    branches = values.get("branches", ())
    if not isinstance(branches, tuple):
        raise RecipeError(
            "'branches' must be a list of lists of steps", where=source.where((*location, "branches"))
        )
    # Exactly one of the two.
    if kind == "concat" and ("from" in values) == bool(branches):
        raise RecipeError("a concat needs either 'branches' or 'from'", where=source.where(location))
    with source.at((*location, kind)):
        placeholders(path)
    expect_expressions(source, location, {key: value for key, value in values.items() if key != "branches"})
    return RecipeStep(
        kind=kind,
        path=path,
        arguments=MappingProxyType(arguments),
        overrides=overrides,
        when=values.get("when", True),
        inputs=values.get("from"),
        repeat=values.get("repeat"),
        branches=tuple(
            parse_steps(source, (*location, "branches", index), branch, blocks)
            for index, branch in enumerate(branches)
        ),
        location=location,
    )


def _missing_argument(
    kind: str,
    defaults: Mapping[str, Any],
    arguments: Mapping[str, Any],
    overrides: Mapping[str, Mapping[str, Any]],
) -> str | None:
    """Return the first argument that an operation or block needs and a step does not give; None if it gives
    all. One that `first` and `last` of two repetitions both give is given.
    """
    # A parameter of a block has None for a default if it must be given.
    required = REQUIRED if kind in OPERATIONS else None
    for key, default in defaults.items():
        is_overridden = all(key in override for override in overrides.values())
        if default is required and key not in arguments and not is_overridden:
            return key
    return None


def _parse_overrides(
    source: RecipeSource, location: Location, values: Any, kind: str, known: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the arguments in a step's `first` or `last`, which replace its own in the first or last
    repetition; their keys are checked.
    """
    if not isinstance(values, dict):
        raise RecipeError(
            f"'{location[-1]}' must be a mapping, such as {{stride: 2}}", where=source.where(location)
        )
    _expect_known_keys(source, location, kind, values, known)
    return MappingProxyType(values)


def _expect_known_keys(
    source: RecipeSource, location: Location, kind: str, keys: Iterable[str], known: Iterable[str]
) -> None:
    """Refuse keys that an operation or a block does not have."""
    faults = Faults()
    for key in keys:
        with faults.collect(), source.at((*location, key), key=True):
            if key not in known:
                raise RecipeError(f"'{kind}' has no '{key}'", next=hint(key, known))
    faults.expect_none()


def expect_expressions(source: RecipeSource, location: Location, value: Any) -> None:
    """Refuse values that begin with `=` and are not expressions, at any depth."""
    faults = Faults()
    for place, text in find_expressions(location, value):
        with faults.collect(), source.at(place):
            parse(text)
    faults.expect_none()


def find_expressions(location: Location, value: Any) -> Iterator[tuple[Location, str]]:
    """Yield the expressions in a value, at any depth: where each is, and its text without the `=`."""
    if isinstance(value, str):
        if is_expression(value):
            yield location, value[1:].strip()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from find_expressions((*location, key), item)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from find_expressions((*location, index), item)
