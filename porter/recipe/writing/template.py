"""All uses of one block as one list of steps, with parameters for what differs between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from porter.graph import INPUT
from porter.graph.blocks.block_uses import Unlike, merge_orders
from porter.graph.blocks.parameters import Arguments, PlainValue
from porter.recipe.expressions import FUNCTIONS
from porter.recipe.recipe import RESERVED
from porter.recipe.steps import COMMON, OPERATIONS

YamlStep = dict[str, Any]
"""A step as it is written: its kind and path first."""
_USUAL = (1, True, False, "valid", "same")
"""Values that a reader expects where a use does not state a parameter."""
_TAKEN = frozenset({*RESERVED, *FUNCTIONS, *COMMON, *OPERATIONS})


@dataclass(frozen=True)
class UseStep:
    """A step of one use.

    Attributes:
        name: its path in the use.
        arguments: all of them, also those at their defaults.
        usual: the defaults.
        inputs: the names of the steps that it reads, `input` for the use's own input.
    """

    name: str
    kind: str
    arguments: Mapping[str, PlainValue]
    usual: Mapping[str, Any]
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Use:
    """One use of a block, or a whole graph: its steps in order, and the channels of its input."""

    parts: tuple[UseStep, ...]
    channels: int


class BlockTemplate:
    """The steps of a block.

    Attributes:
        steps: as they are written.
        parameters: by name, the value in each use.
        defaults: of the parameters that are plain in many uses, or that some uses do not read.

    Raises:
        Unlike: the uses' steps have different orders, or inputs that cannot be told apart.
    """

    def __init__(self, uses: Sequence[Use]) -> None:
        self.uses = uses
        self.parts = [{part.name: part for part in use.parts} for use in uses]
        self.arguments = Arguments(
            {"channels": {i: use.channels for i, use in enumerate(uses)}}, _literal, only_written=True
        )
        order = merge_orders([[part.name for part in use.parts] for use in uses])
        # Steps that every use has name the parameters.
        values = {
            name: self._values(name)
            for name in sorted(order, key=lambda name: len(self._at(name)) < len(uses))
        }
        self.conditions: dict[str, str] = {}
        self.steps = tuple(step for name in order for step in self._steps(name, values[name], order))
        used = self.arguments.used_arguments()
        used.pop("channels", None)
        self.parameters = {name: tuple(vector[i] for i in range(len(uses))) for name, vector in used.items()}
        defaults = self.defaults
        self.parameters = {
            name: self.parameters[name] for name in sorted(self.parameters, key=lambda name: name in defaults)
        }

    @property
    def defaults(self) -> dict[str, PlainValue]:
        defaults = {name: value for name, value in self.arguments.unread.items() if name in self.parameters}
        for name, values in self.parameters.items():
            value, count = Counter(values).most_common(1)[0]
            if value in _USUAL and 3 * count > len(values):
                defaults[name] = value
        return defaults

    def _at(self, name: str) -> list[int]:
        return [i for i, parts in enumerate(self.parts) if name in parts]

    def _values(self, name: str) -> dict[str, dict[str, Any]]:
        """The arguments that are not at their defaults, by kind and as they are written."""
        kinds: dict[str, list[int]] = {}
        for i in self._at(name):
            kinds.setdefault(self.parts[i][name].kind, []).append(i)
        return {kind: self._written(kind, {i: self.parts[i][name] for i in at}) for kind, at in kinds.items()}

    def _written(self, kind: str, parts: Mapping[int, UseStep]) -> dict[str, Any]:
        """The arguments of a step whose values must be written, as numbers or as expressions of
        parameters.
        """
        written: dict[str, Any] = {}
        for slot in dict.fromkeys(slot for part in parts.values() for slot in part.arguments):
            vector = {i: part.arguments[slot] for i, part in parts.items()}
            usual = next(iter(parts.values())).usual[slot]
            values = set(vector.values())
            windowed = slot == "pad" and any(part.arguments.get("kernel", 1) != 1 for part in parts.values())
            always = kind in OPERATIONS and (slot in ("filters", "kernel", "units") or windowed)
            if values != {usual} or (len(values) == 1 and always):
                written[slot] = (
                    values.pop()
                    if len(values) == 1
                    else self._expression(slot, vector, next(iter(parts.values())).name)
                )
        pads = {
            slot.removeprefix("pad."): written.pop(slot) for slot in list(written) if slot.startswith("pad.")
        }
        if pads:
            written["pad"] = {**({"pad": written["pad"]} if "pad" in written else {}), **pads}
        order = list(OPERATIONS.get(kind, written))
        return {slot: written[slot] for slot in sorted(written, key=order.index)}

    def _expression(self, slot: str, vector: Mapping[int, PlainValue], owner: str) -> str:
        """An expression that gives a slot its value in each use."""
        name = slot.removeprefix("pad.")
        name = f"{name}_" if name in _TAKEN else name
        return "=" + self.arguments.express(name, vector, _word(owner)).replace(" * ", "*").replace(
            " // ", "//"
        )

    def _steps(
        self, name: str, kinds: Mapping[str, Mapping[str, Any]], order: Sequence[str]
    ) -> list[YamlStep]:
        """The lines of one step: several if it is of several kinds, each with the `when` of its uses."""
        lines: list[YamlStep] = []
        for kind, written in kinds.items():
            at = [i for i in self._at(name) if self.parts[i][name].kind == kind]
            step: YamlStep = {kind: name}
            inputs = self._inputs(name, at)
            if inputs is not None:
                step["from"] = inputs
            step |= written
            if len(at) < len(self.uses):
                word = f"has_{_word(name)}" if len(kinds) == 1 else f"with_{kind}"
                step["when"] = f"={self._condition(at, word, name)}"
                self.conditions[name] = step["when"][1:] if len(kinds) == 1 else ""
            lines.append(step)
        return lines

    def _condition(self, at: Sequence[int], word: str, name: str, among: Sequence[int] | None = None) -> str:
        here = {i: i in at for i in (range(len(self.uses)) if among is None else among)}
        return self.arguments.condition(here, word, _word(name)).replace(" * ", "*")

    def _inputs(self, name: str, at: Sequence[int]) -> str | list[str] | None:
        """The step's `from`; None where every use reads the step before."""
        count = len(self.parts[at[0]][name].inputs)
        if any(len(self.parts[i][name].inputs) != count for i in at):
            raise Unlike
        if count == 1 and all(self.parts[i][name].inputs[0] == self._before(i, name) for i in at):
            return None
        sources = [
            self._source(name, {i: self.parts[i][name].inputs[index] for i in at}) for index in range(count)
        ]
        return sources if count > 1 else sources[0]

    def _before(self, use: int, name: str) -> str:
        names = [part.name for part in self.uses[use].parts]
        place = names.index(name)
        return names[place - 1] if place else INPUT

    def _source(self, name: str, sources: Mapping[int, str]) -> str:
        """The name of what is read in each use. A step that some uses lack is read under its own
        condition.
        """
        text, left = "=", dict(sources)
        while len(set(left.values())) > 1:
            source = max(set(left.values()), key=lambda source: (source in self.conditions, source))
            at = [i for i, other in left.items() if other == source]
            own = self.conditions.get(source)
            if not own or at != [i for i in left if source in self.parts[i]]:
                own = self._condition(at, f"{_word(name)}_from_{_word(source)}", name, list(left))
            text += f"'{source}' if {own} else "
            left = {i: other for i, other in left.items() if other != source}
        last = next(iter(left.values()))
        return last if text == "=" else f"{text}'{last}'"


def _literal(value: PlainValue) -> str | None:
    """The value as expressions write it; they have no lists."""
    if isinstance(value, tuple):
        return None
    return f"'{value}'" if isinstance(value, str) else str(value)


def _word(path: str) -> str:
    return path.replace("/", "_").replace(".", "_").replace("-", "_")
