"""A template as a class: its constructor, its `forward`, and the arguments that each use passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from porter.frameworks.torch.source.arguments import Arguments, Vector
from porter.frameworks.torch.source.forward import Forward
from porter.frameworks.torch.source.runs import Run, find_runs
from porter.frameworks.torch.source.template import CHAIN, Alternative, Edge, Template, TemplatePart
from porter.frameworks.torch.source.text import INDENT, Call, Choice, Expression, Item, call, comment, lines, literal
from porter.frameworks.torch.steps import FUNCTIONS, GLOBAL_POOLS, Value

_POSITIONAL: Mapping[str, tuple[str, ...]] = {
    "BatchNorm1d": ("num_features",),
    "BatchNorm2d": ("num_features",),
    "Conv2d": ("in_channels", "out_channels", "kernel_size"),
    "ConstantPad2d": ("padding", "value"),
    "Linear": ("in_features", "out_features"),
    "MaxPool2d": ("kernel_size",),
    "AvgPool2d": ("kernel_size",),
    "PaddedAvgPool2d": ("kernel_size", "stride", "padding"),
    "SameAvgPool2d": ("kernel_size", "stride"),
    "SamePad2d": ("kernel_size", "stride"),
    "ZeroPad2d": ("padding",),
}
_WINDOW: Mapping[str, Value] = {"padding": 0, "dilation": 1, "ceil_mode": False, "count_include_pad": True}
_NORM: Mapping[str, Value] = {"eps": 1e-5, "momentum": 0.1, "affine": True}
# Torch's own defaults (and layers.py's), which a call leaves out.
_DEFAULTS: Mapping[str, Mapping[str, Value]] = {
    "Affine": {"scale": 1.0, "offset": 0.0},
    "BatchNorm1d": _NORM,
    "BatchNorm2d": _NORM,
    "Conv2d": {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "bias": True},
    "Linear": {"bias": True},
    "MaxPool2d": _WINDOW,
    "AvgPool2d": _WINDOW,
    "PaddedAvgPool2d": {"counted": (0, 0, 0, 0)},
    "SameAvgPool2d": {"lower": False},
    "SamePad2d": {"dilation": 1, "lower": False, "value": 0.0},
}
OWN_LAYERS = frozenset({"Affine", "PaddedAvgPool2d", "SameAvgPool2d", "SamePad2d"})
_IDENTITY = "nn.Identity()"


@dataclass(frozen=True)
class Parameter:
    """A constructor argument: its value in each use, and its default, if most uses share one."""

    name: str
    values: Vector
    default: str | None


@dataclass(frozen=True)
class Class:
    """A generated class: its name, its constructor's arguments, and its lines."""

    name: str
    parameters: tuple[Parameter, ...]
    lines: tuple[str, ...]


Classes = Mapping[str, Class]


def write_class(
    name: str, template: Template, given: Mapping[str, Vector], classes: Classes, entry: Sequence[str] = (), defaults: bool = True
) -> Class:
    """The class of a template.

    Args:
        given: the recipe's arguments, and `channels`, in each use.
        classes: those of nested blocks, by name.
        entry: lines that `forward` begins with.
        defaults: whether arguments that are the same in most uses get a default.
    """
    writer = _Writer(template, given, classes, {})
    product = writer.arguments.shared_product()
    if product is not None:
        taken = {*given, *writer.arguments.derived}
        local = next(name for name in ("width", "hidden", "hidden_") if name not in taken)
        writer = _Writer(template, given, classes, {product: local})
        writer.body.insert(0, f"{INDENT * 2}{local} = {product}")
    parameters = _parameters(writer.arguments.used(), defaults)
    signature = ["self", *(p.name if p.default is None else f"{p.name}={p.default}" for p in parameters)]
    forward = Forward(template, writer.flags, {run.names[0]: (run.names, run.pattern, run.numbers) for run in writer.runs})
    written = [
        f"class {name}(nn.Module):",
        *lines("def __init__", Call("", tuple(map(Item, signature))), ":", depth=1),
        f"{INDENT * 2}super().__init__()",
        *writer.body,
        "",
        f"{INDENT}def forward(self, x):",
        *entry,
        *forward.statements(),
    ]
    return Class(name, parameters, tuple(written))


def _owners_first(parts: Sequence[TemplatePart]) -> list[TemplatePart]:
    """The parts in order, but none ahead of a part that its name puts it inside: `a.norm` is set on the layer `a`."""
    places = {part.name: place for place, part in enumerate(parts)}

    def place(part: TemplatePart) -> tuple[int, int]:
        names = part.name.split(".")
        around = [".".join(names[:depth]) for depth in range(1, len(names))]
        return max(places[name] for name in [*(name for name in around if name in places), part.name]), len(around)

    return sorted(parts, key=place)


def _parameters(used: Mapping[str, Vector], defaults: bool) -> tuple[Parameter, ...]:
    found = []
    for name, values in used.items():
        value, count = Counter(values.values()).most_common(1)[0]
        usual = defaults and value in (0, 1) and 2 * count > len(values)
        found.append(Parameter(name, values, literal(value) if usual else None))
    return tuple(sorted(found, key=lambda parameter: parameter.default is not None))


class _Writer:
    """Writes a constructor's body; what it needs to be told becomes an argument as it goes."""

    def __init__(self, template: Template, given: Mapping[str, Vector], classes: Classes, products: Mapping[str, str]) -> None:
        self.template, self.classes = template, classes
        self.arguments = Arguments(given, products)
        self.flags: dict[tuple[str | None, int | None], str] = {}
        self.runs: list[Run] = []
        self.body: list[str] = []
        alone = template.uses == 1
        root_runs = find_runs(template.parts, classes) if alone else []
        self.runs = list(root_runs)
        inside = {name: run for run in root_runs for name in run.names}
        containers: set[str] = set()
        for part in _owners_first(template.parts):
            self._containers(part.name, containers)
            run = inside.get(part.name)
            if run is None:
                self._part(part, alone)
            elif run.names[0] == part.name:
                self.body += run.lines("self", self._call)
            for number, edge in enumerate(part.inputs):
                self._flag(edge, part.name, number)
        self._flag(template.output, None, 0)

    def _containers(self, name: str, containers: set[str]) -> None:
        *parents, own = name.split(".")
        for depth in range(1, len(parents) + 1):
            container = ".".join(parents[:depth])
            if container not in containers:
                self.body.append(f"{INDENT * 2}self.{container} = nn.Module()")
                containers.add(container)
        containers.add(name if not parents else f"{'.'.join(parents)}.{own}")

    def _flag(self, edge: Edge, name: str | None, number: int) -> None:
        if edge.other is None:
            return
        source = (edge.source or "input").replace(".", "_")
        self._set_flag((name, number), f"{(name or 'output').replace('.', '_')}_from_{source}", edge.here)

    def _set_flag(self, key: tuple[str | None, int | None], flag: str, here: Mapping[int, bool]) -> None:
        taken = {*self.flags.values(), *(part.name.split(".")[0] for part in self.template.parts)}
        while flag in taken:
            flag += "_"
        self.flags[key] = flag
        self.body.append(f"{INDENT * 2}self.{flag} = {self.arguments.condition(here, flag)}")

    def _part(self, part: TemplatePart, alone: bool) -> None:
        everywhere = len(part.at) == self.template.uses
        functions = [alternative for alternative in part.alternatives if alternative.kind in FUNCTIONS]
        if functions:
            if not everywhere:
                flag = "residual" if functions[0].kind == "add" else f"with_{part.name.replace('.', '_')}"
                self._set_flag((part.name, None), flag, {use: use in part.at for use in range(self.template.uses)})
            return
        if alone and part.alternatives[0].kind == CHAIN:
            chained = part.alternatives[0].parts
            runs = find_runs(chained, self.classes)
            if runs and runs[0].names == tuple(member.name for member in chained):
                self.body.append(f"{INDENT * 2}self.{part.name} = nn.Sequential()")
                self.body += runs[0].lines(f"self.{part.name}", self._call)
                return
        rest = set(range(self.template.uses))
        word = "if"
        for alternative in part.alternatives:
            value = self._value(alternative, part.name)
            left = rest - set(alternative.at)
            if word == "if" and not left:
                self.body += comment(alternative.why, 2)
                self.body += lines(f"self.{part.name} = ", value, depth=2)
                return
            if left:
                here = {use: use in alternative.at for use in rest}
                condition = self.arguments.condition(here, f"with_{part.name.replace('.', '_')}")
                self.body.append(f"{INDENT * 2}{word} {condition}:")
            else:
                self.body.append(f"{INDENT * 2}else:")
            self.body += comment(alternative.why, 3)
            self.body += lines(f"self.{part.name} = ", value, depth=3)
            rest, word = left, "elif"
        if rest:
            self.body += [f"{INDENT * 2}else:", f"{INDENT * 3}self.{part.name} = {_IDENTITY}"]

    def _value(self, alternative: Alternative, owner: str) -> Expression:
        if alternative.kind == CHAIN:
            return Call("chain", tuple(self._member(member, alternative.at, owner) for member in alternative.parts))
        texts = {slot: self.arguments.express(slot, vector, owner) for slot, vector in alternative.arguments.items()}
        return self._call(alternative.kind, texts)

    def _member(self, part: TemplatePart, at: Sequence[int], owner: str) -> Item:
        """A member of a chain, which some of the uses `at` may lack."""
        rest = set(at)
        choices: list[tuple[Expression, str]] = []
        why = next((alternative.why for alternative in part.alternatives if alternative.why), "")
        for alternative in part.alternatives:
            value = self._value(alternative, f"{owner}_{part.name}")
            left = rest - set(alternative.at)
            if not left:
                break
            here = {use: use in alternative.at for use in rest}
            choices.append((value, self.arguments.condition(here, f"with_{part.name}")))
            rest = left
        else:
            value = _IDENTITY
        for yes, condition in reversed(choices):
            value = Choice(yes, condition, value)
        return Item(value, part.name, why)

    def _call(self, kind: str, texts: Mapping[str, Expression]) -> Call:
        if kind in GLOBAL_POOLS:
            return call("nn.Sequential", f"nn.{GLOBAL_POOLS[kind]}(1)", "nn.Flatten()")
        if kind in self.classes:
            parameters = self.classes[kind].parameters
            positional = [texts[p.name] for p in parameters if p.default is None]
            return call(kind, *positional, **{p.name: texts[p.name] for p in parameters if p.default not in (None, texts[p.name])})
        defaults = {slot: literal(value) for slot, value in _DEFAULTS.get(kind, {}).items()}
        first = _POSITIONAL.get(kind, ())
        if texts.get("stride") == "stride" and first[-1:] == ("kernel_size",):
            first = (*first, "stride")
        named = {slot: text for slot, text in texts.items() if slot not in first and defaults.get(slot) != text}
        head = kind if kind in OWN_LAYERS else f"nn.{kind}"
        return call(head, *(texts[slot] for slot in first), **named)
