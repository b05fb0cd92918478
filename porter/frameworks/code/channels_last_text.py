"""`model.py` as a person would write it for a framework with the channels last: what Flax's and MLX's have in
common.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from porter.frameworks.code.forward import OPERATORS
from porter.frameworks.code.input_checks import refusal
from porter.frameworks.code.language import Apply, Language, Norm
from porter.frameworks.code.plan_layers import Layer
from porter.frameworks.code.text import Bracketed, Choice, Expression, Item, call, flat, literal
from porter.graph.blocks.parameters import PlainValue

_SHORTEST = 3
"""So many equal modules of a row are written one by one."""
_IN_LOADER = {"load_file"}
"""What is imported for the loader only."""


@dataclass(frozen=True)
class ChannelsLastLanguage(Language):
    """How the code of a framework with the channels last says a model.

    Attributes:
        arrays: what its module of arrays is imported as, such as `jnp`.
        positional: the arguments that have no keyword, by kind.
        defaults: of arguments, by kind; those at their defaults are left out.
    """

    layers: str
    arrays: str
    identity: str
    begin: tuple[str, ...]
    of_modules: frozenset[str]
    functions: Collection[str]
    with_tensors: Collection[str]
    of_map: Layer
    norms: Mapping[str, Norm]
    positional: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, Mapping[str, PlainValue]]
    own_layers: Mapping[str, str]
    imports: Mapping[str, str]
    passed: str = ""
    images = "N x H x W x {channels}"
    method = "__call__"
    rows = True

    @property
    def imported(self) -> frozenset[str]:
        return frozenset({*self._names_imported - _IN_LOADER, "partial", *self.own_layers})

    @property
    def taken(self) -> frozenset[str]:
        in_loader = self._names_imported & _IN_LOADER
        return frozenset({"Path", "math", "re", "BatchNorm", *in_loader, *self.passed_names})

    @property
    def _names_imported(self) -> set[str]:
        return {line.split()[-1] for line in self.imports}

    def apply_function(self, function: str, inputs: Sequence[Expression]) -> Expression:
        """Return the expression of one of `functions` applied to values: `mx.concatenate([a, b], axis=-1)`;
        values with an operator between them, `a + b`; or calls of two within each other,
        `mx.maximum(mx.maximum(a, b), c)`.
        """
        if function == "concat":
            values = Bracketed("", tuple(map(Item, inputs)), "[]")
            return Bracketed(f"{self.arrays}.concatenate", (Item(values), Item("-1", "axis")))
        if function in OPERATORS:
            return OPERATORS[function].join(
                f"({flat(value)})" if isinstance(value, Choice) else str(value) for value in inputs
            )
        return reduce(partial(call, f"{self.arrays}.{function}"), inputs)

    def _call_layer(
        self,
        kind: str,
        texts: Mapping[str, Expression],
        values: Sequence[Expression],
        name: str | None = None,
    ) -> Bracketed:
        """Return the call of a layer's class or function: `nn.Conv2d(3, 64, 7, stride=2)`.

        Args:
            texts: of all arguments, by name.
            values: what a function is applied to, in front of its arguments.
            name: of what is called, if that is not `kind`.
        """
        positional = self.positional.get(kind, ())
        named = self._stated_arguments(kind, texts, positional)
        return call(name or kind, *values, *(texts[slot] for slot in positional), **named)

    def _stated_arguments(
        self, kind: str, texts: Mapping[str, Expression], positional: Sequence[str] = ()
    ) -> dict[str, Expression]:
        """Return the arguments that are stated by keyword: those that are neither at their defaults nor
        positional.
        """
        defaults = {slot: literal(value) for slot, value in self.defaults.get(kind, {}).items()}
        return {
            slot: text
            for slot, text in texts.items()
            if slot not in positional and defaults.get(slot) != text
        }

    def construct(self, kind: str, texts: Mapping[str, Expression], name: str | None) -> Expression:
        """Return the expression that makes a layer: for a module the call of its class, or of `name` where it
        is given; for a function a `partial` with its arguments, or its bare name if all are at their
        defaults.
        """
        if kind in self.with_tensors:
            constructor_call = self._call_layer(kind, texts, (), name)
            return replace(constructor_call, items=(*constructor_call.items, *self.passed_items))
        named = self._stated_arguments(kind, texts)
        return call("partial", kind, **named) if named else kind

    def chain(self, items: tuple[Item, ...], row: bool) -> Bracketed:
        """Return the expression of layers one after the other: a Sequential for a `row`, whose layers have no
        names, otherwise `Layers`. Many equal layers of a row become `*(layer for _ in range(n))`.
        """
        if not row:
            return Bracketed("Layers", items)
        texts = {flat(item.value) for item in items}
        if len(texts) == 1 and len(items) > _SHORTEST:
            items = (Item(f"*({texts.pop()} for _ in range({len(items)}))"),)
        return Bracketed(f"{self.layers}.Sequential", tuple(Item(item.value) for item in items))

    def keep_map(self, layer: Layer) -> Layer | None:
        """Return the global pool that keeps the map of one that does not; None for other layers."""
        if layer.arguments.get("axis") != (1, 2):
            return None
        return replace(layer, arguments={**layer.arguments, "keepdims": True})

    def inline(self, kind: str, texts: Mapping[str, Expression]) -> Apply | None:
        """Return the call of a function; None for a module with tensors."""
        return None if kind in self.with_tensors else partial(self._call_layer, kind, texts)

    def add_part(self, target: str, name: str, layer: Expression) -> Bracketed:
        """Return the call that adds a part to a module (`self`) or to a row."""
        if target == "self":
            return call("setattr", "self", f'f"{name}"', layer)
        return call(f"{target}.layers.append", layer)

    def get_part(self, name: str) -> str:
        """Return the expression of the part of that name."""
        return f'getattr(self, f"{name}")'

    def refuse_size(self, x: str, rows: int, columns: int, message: str) -> list[str]:
        """Return the lines that raise an error where a map has another size."""
        return refusal(f"if {x}.shape[1:3] != ({rows}, {columns})", f"{message} {{{x}.shape[1:3]}}")

    def refuse_shape(self, x: str, axes: int, wrong_sizes: Sequence[str], message: str) -> list[str]:
        """Return the lines that raise an error where an input that is no map has another shape."""
        condition = " or ".join([f"{x}.ndim != {axes}", *wrong_sizes])
        return refusal(f"if {condition}", f"{message} {{{x}.shape}}")
