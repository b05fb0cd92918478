"""From a recipe's steps to the graph of one variant in one zoo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from porter.errors import GraphError, RecipeError
from porter.graph import INPUT, OPS, Add, AvgPool, BatchNorm, Concat, Conv, Dense, Graph, MaxPool, Node, Op, Scope, shapes
from porter.padding import Convention, SiteKind, Window
from porter.recipe.errors import did_you_mean
from porter.recipe.expressions import ExpressionError, evaluate
from porter.recipe.paddings import convention
from porter.recipe.patterns import fill, match
from porter.recipe.schema import BlockSpec, Recipe, Zoo
from porter.recipe.source import Block

MAX_NODES = 5000
MAX_REPEAT = 500
MAX_NESTING = 8
BN_MOMENTUM = 0.1

# What a step may say beyond its path, `from` and `when`; a value is the default, ... stands for one that must be given.
_WINDOWED = {"kernel": 1, "stride": 1, "dilation": 1, "pad": "valid"}
_ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    **{name: {} for name in OPS},
    "conv": {"filters": ..., **_WINDOWED, "groups": 1, "bias": False},
    "depthwise_conv": {**_WINDOWED, "multiplier": 1, "bias": False},
    "batch_norm": {"epsilon": "=bn_epsilon", "momentum": None, "scale": None, "center": None},
    "max_pool": {**_WINDOWED, "kernel": ...},
    "avg_pool": {**_WINDOWED, "kernel": ...},
    "dense": {"units": ..., "bias": True},
    "concat": {"branches": None},
}
_COMMON = ("from", "when")
_CONTROL = ("repeat", "first", "last")


@dataclass
class _Frame:
    """Where steps are read: the graph itself, or one use of a block.

    Attributes:
        prefix: of the paths of its nodes.
        start: the path that `from: input` means.
        names: of its steps, to the paths that they gave.
        scope: what expressions may use.
    """

    prefix: str
    start: str
    scope: Mapping[str, Any]
    names: dict[str, str] = field(default_factory=dict)


def expand(recipe: Recipe, variant: str, zoo: Zoo, options: Mapping[str, Any]) -> Graph:
    """The graph of `variant` as `zoo` has it.

    Args:
        options: beyond the zoo's own, such as the number of classes of a fine-tuned file.

    Raises:
        RecipeError: a step, an expression or a shape is wrong there; it says at which line.
    """
    return _Expansion(recipe, variant, zoo, options).graph()


class _Expansion:
    def __init__(self, recipe: Recipe, variant: str, zoo: Zoo, options: Mapping[str, Any]) -> None:
        for place, given in ((("zoos", zoo.name, "options"), zoo.options), ((), options)):
            for name in given:
                if name not in recipe.options:
                    raise RecipeError(
                        f"there is no option '{name}'", where=recipe.where(*place, name), next=did_you_mean(name, recipe.options)
                    )
        self.recipe, self.zoo = recipe, zoo
        self.scope = {**recipe.variants[variant], **recipe.options, **zoo.options, **options}
        self.nodes: list[Node] = []
        self.scopes: list[Scope] = []
        self.lines: dict[str, int] = {}
        self.channels: dict[str, int] = {INPUT: recipe.input.channels}
        self.counters: dict[str, int] = {}
        self.padded: set[str] = set()

    def graph(self) -> Graph:
        output = self._steps(self.recipe.graph, _Frame("", INPUT, self.scope), INPUT, self.recipe.document.lines["graph"])
        graph = Graph(tuple(self.nodes), self.recipe.input.channels, output, tuple(self.scopes))
        try:
            shapes(graph, self.recipe.native_size())
        except GraphError as error:
            raise RecipeError(f"{error.where}: {error.message}", where=self._at(self.lines[str(error.where)])) from None
        for pattern in self.zoo.padding:
            if pattern not in self.padded:
                sites = [node.path for node in self.nodes if isinstance(node.op, Conv | MaxPool | AvgPool)]
                where = self.recipe.where("zoos", self.zoo.name, "padding", pattern)
                raise RecipeError(f"'{pattern}' is no padding site", where=where, next=did_you_mean(pattern, sites))
        return graph

    def _at(self, line: int) -> str:
        return f"{self.recipe.path}:{line}"

    @contextmanager
    def _located(self, line: int) -> Iterator[None]:
        try:
            yield
        except ExpressionError as error:
            raise RecipeError(str(error), where=self._at(line), next=error.hint) from None

    def _steps(self, steps: Any, frame: _Frame, before: str, line: int) -> str:
        """Adds the steps one after another and returns the path of the last."""
        if not isinstance(steps, list) or not all(isinstance(step, Block) for step in steps):
            raise RecipeError("steps are a list of mappings", where=self._at(line))
        for step in steps:
            with self._located(step.line):
                before = self._step(step, frame, before)
        return before

    def _step(self, step: Block, frame: _Frame, before: str) -> str:
        kind = self._kind(step)
        block = self.recipe.blocks.get(kind)
        known = [kind, *_COMMON, *(_ATTRIBUTES[kind] if block is None else [*block.parameters, *_CONTROL])]
        for key in step:
            if key not in known:
                raise RecipeError(
                    f"unknown key '{key}' of {kind}", where=self._at(step.lines[key]), next=did_you_mean(key, known[1:])
                )
        if not self._evaluated(step, "when", True, frame.scope):
            return before
        sources = self._sources(step, frame, before)
        if block is not None:
            return self._uses(step, kind, block, frame, sources[0])
        path = self._path(str(step[kind]), frame, {})
        if kind == "concat" and "branches" in step:
            branches = step["branches"] if isinstance(step["branches"], list) else []
            sources = [self._steps(branch, frame, sources[0], step.lines["branches"]) for branch in branches]
        self._add(Node(path, self._op(kind, step, frame, path, sources[0]), tuple(sources)), step.line)
        frame.names[str(step[kind])] = path
        return path

    def _kind(self, step: Block) -> str:
        known = [*_ATTRIBUTES, *self.recipe.blocks]
        found = [key for key in step if key in known]
        if len(found) != 1:
            hint = did_you_mean(next(iter(step), ""), known)
            raise RecipeError(
                f"a step is one op or block and its path, got {', '.join(step)}", where=self._at(step.line), next=hint
            )
        return found[0]

    def _sources(self, step: Block, frame: _Frame, before: str) -> list[str]:
        names = step.get("from", [])
        found = []
        for name in names if isinstance(names, list) else [names]:
            if name != INPUT and name not in frame.names:
                hint = did_you_mean(str(name), [*frame.names, INPUT])
                raise RecipeError(f"there is no earlier step '{name}'", where=self._at(step.lines["from"]), next=hint)
            found.append(frame.start if name == INPUT else frame.names[name])
        return found or [before]

    def _path(self, template: str, frame: _Frame, counts: Mapping[str, int]) -> str:
        return frame.prefix + fill(template, {**frame.scope, **counts})

    def _uses(self, step: Block, kind: str, block: BlockSpec, frame: _Frame, before: str) -> str:
        """One or several uses of a block, each in a frame of its own."""
        repeat = self._evaluated(step, "repeat", 1, frame.scope)
        if not isinstance(repeat, int) or not 1 <= repeat <= MAX_REPEAT:
            raise RecipeError(f"a block is repeated 1 to {MAX_REPEAT} times, got {repeat!r}", where=self._at(step.lines["repeat"]))
        if frame.prefix.count("/") > MAX_NESTING:
            raise RecipeError(f"blocks nest at most {MAX_NESTING} deep", where=self._at(step.line))
        for index in range(1, repeat + 1):
            given: dict[str, Any] = {**block.parameters, **{key: step[key] for key in step if key in block.parameters}}
            for end, applies in (("first", index == 1), ("last", index == repeat)):
                over = step.get(end, {})
                if not isinstance(over, Block) and over != {}:
                    raise RecipeError(f"'{end}' is a mapping of parameters", where=self._at(step.lines[end]))
                for key in over:
                    if key not in block.parameters:
                        raise RecipeError(
                            f"{kind} has no parameter '{key}'",
                            where=self._at(over.lines[key]),
                            next=did_you_mean(key, block.parameters),
                        )
                given.update(over if applies else {})
            arguments = {key: self._resolved(value, frame.scope) for key, value in given.items()}
            missing = [key for key, value in arguments.items() if value is None]
            if missing:
                raise RecipeError(f"{kind} needs '{missing[0]}'", where=self._at(step.line))
            template = str(step[kind])
            count = self.counters.get(template, 0)
            self.counters[template] = count + 1
            path = self._path(template, frame, {"index": index, "count": count})
            arguments["channels"] = self.channels[before]
            self.scopes.append(Scope(path, kind, arguments))
            scope = {**self.scope, **arguments, "index": index, "first": index == 1, "last": index == repeat}
            before = self._steps(block.steps, _Frame(f"{path}/", before, scope), before, step.line)
            frame.names[path.removeprefix(frame.prefix)] = before
        return before

    def _evaluated(self, step: Block, key: str, default: Any, scope: Mapping[str, Any]) -> Any:
        with self._located(step.lines.get(key, step.line)):
            return self._resolved(step.get(key, default), scope)

    def _resolved(self, value: Any, scope: Mapping[str, Any]) -> Any:
        if isinstance(value, str) and value.startswith("="):
            return evaluate(value[1:], scope)
        return [self._resolved(item, scope) for item in value] if isinstance(value, list) else value

    def _add(self, node: Node, line: int) -> None:
        if node.path in self.channels:
            raise RecipeError(
                f"two steps give '{node.path}' at once", where=self._at(line), next="let their 'when' exclude each other"
            )
        if len(self.nodes) >= MAX_NODES:
            raise RecipeError(f"a graph has at most {MAX_NODES} nodes", where=self._at(line))
        inputs = [self.channels[path] for path in node.inputs]
        if isinstance(node.op, Add) and len(set(inputs)) > 1:
            raise RecipeError(f"{node.path} adds {' and '.join(map(str, inputs))} channels", where=self._at(line))
        given = {Conv: getattr(node.op, "filters", 0), Dense: getattr(node.op, "units", 0), Concat: sum(inputs)}
        self.channels[node.path] = given.get(type(node.op), inputs[0])
        self.lines[node.path] = line
        self.nodes.append(node)

    def _op(self, kind: str, step: Block, frame: _Frame, path: str, source: str) -> Op:
        values = {}
        for key, default in _ATTRIBUTES[kind].items():
            if default is ... and key not in step:
                raise RecipeError(f"{kind} needs '{key}'", where=self._at(step.line))
            values[key] = self._evaluated(step, key, default, frame.scope)
        options, line = frame.scope, step.line
        if kind == "batch_norm":
            momentum, scale, center = (values[key] for key in ("momentum", "scale", "center"))
            return BatchNorm(
                epsilon=float(values["epsilon"]),
                momentum=float(options.get("bn_momentum", BN_MOMENTUM) if momentum is None else momentum),
                scale=bool(options.get("bn_scale", True) if scale is None else scale),
                center=bool(options.get("bn_center", True) if center is None else center),
            )
        if kind == "dense":
            return Dense(self._count(values, "units", line), bool(values["bias"]))
        if kind not in ("conv", "depthwise_conv", "max_pool", "avg_pool"):
            return OPS[kind]()  # type: ignore[call-arg]
        window = Window(*(self._pair(values[key], key, line) for key in ("kernel", "stride", "dilation")))
        if kind == "max_pool":
            return MaxPool(window, self._convention("max_pool", path, values["pad"]))
        if kind == "avg_pool":
            return AvgPool(window, self._convention("avg_pool", path, values["pad"]))
        padding = self._convention("conv", path, values["pad"])
        if kind == "depthwise_conv":
            channels = self.channels[source]
            return Conv(channels * self._count(values, "multiplier", line), window, padding, channels, bool(values["bias"]))
        groups = self._count(values, "groups", line)
        return Conv(self._count(values, "filters", line), window, padding, groups, bool(values["bias"]))

    def _count(self, values: Mapping[str, Any], key: str, line: int) -> int:
        value = values[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise RecipeError(f"'{key}' is a whole number from 1, got {value!r}", where=self._at(line))
        return value

    def _pair(self, value: Any, key: str, line: int) -> tuple[int, int]:
        pair = value if isinstance(value, list) else [value, value]
        if len(pair) != 2:
            raise RecipeError(f"'{key}' is a number or [rows, columns], got {value!r}", where=self._at(line))
        return self._count({key: pair[0]}, key, line), self._count({key: pair[1]}, key, line)

    def _convention(self, kind: SiteKind, path: str, written: Any) -> Convention:
        """The zoo's convention at a site, else the one that the graph declares there."""
        for pattern, value in self.zoo.padding.items():
            if match(pattern, path) is not None:
                self.padded.add(pattern)
                with self._located(int(self.recipe.where("zoos", self.zoo.name, "padding", pattern).rsplit(":", 1)[1])):
                    return convention(value, kind)
        return convention(written, kind)
