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
from porter.recipe.steps import COMMON_KEYS, OPERATIONS

YamlStep = dict[str, Any]
"""A step as it is written: its kind and path first."""
_EXPECTED_VALUES = (1, True, False, "valid", "same")
"""Values that a reader expects where a use does not state a parameter."""
_WORDS_OF_RECIPES = frozenset({*RESERVED, *FUNCTIONS, *COMMON_KEYS, *OPERATIONS})


@dataclass(frozen=True)
class UseStep:
    """A step of one use.

    Attributes:
        name: its path in the use.
        arguments: all of them, also those at their defaults.
        defaults: the default of each.
        inputs: the names of the steps that it reads, `input` for the use's own input.
    """

    name: str
    kind: str
    arguments: Mapping[str, PlainValue]
    defaults: Mapping[str, Any]
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
            name: self._written_by_kind(name)
            for name in sorted(order, key=lambda name: len(self._uses_with(name)) < len(uses))
        }
        self.conditions: dict[str, str] = {}
        self.steps = tuple(step for name in order for step in self._write_steps(name, values[name], order))
        used = self.arguments.used_arguments()
        used.pop("channels", None)
        self.parameters = {name: tuple(vector[i] for i in range(len(uses))) for name, vector in used.items()}
        defaults = self.defaults
        self.parameters = {
            name: self.parameters[name] for name in sorted(self.parameters, key=lambda name: name in defaults)
        }

    @property
    def defaults(self) -> dict[str, PlainValue]:
        """The defaults of parameters that are plain in many uses, or that some uses do not read."""
        defaults = {name: value for name, value in self.arguments.unread.items() if name in self.parameters}
        for name, values in self.parameters.items():
            value, count = Counter(values).most_common(1)[0]
            if value in _EXPECTED_VALUES and 3 * count > len(values):
                defaults[name] = value
        return defaults

    def _uses_with(self, name: str) -> list[int]:
        """Return the numbers of the uses that have a step."""
        return [i for i, parts in enumerate(self.parts) if name in parts]

    def _written_by_kind(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the arguments of a step that have to be written (`_write_arguments`), by the kinds that the
        step has in different uses, such as conv and depthwise_conv.
        """
        uses_by_kind: dict[str, list[int]] = {}
        for i in self._uses_with(name):
            uses_by_kind.setdefault(self.parts[i][name].kind, []).append(i)
        return {
            kind: self._write_arguments(kind, {i: self.parts[i][name] for i in use_numbers})
            for kind, use_numbers in uses_by_kind.items()
        }

    def _write_arguments(self, kind: str, parts: Mapping[int, UseStep]) -> dict[str, Any]:
        """Return the arguments of a step that must be written, as values or as expressions of parameters:
        those that are not at their default in every use, and those that a reader always expects.

        Args:
            parts: the step in each use that has it, by the number of the use.
        """
        written: dict[str, Any] = {}
        any_part = next(iter(parts.values()))
        for key in dict.fromkeys(key for part in parts.values() for key in part.arguments):
            vector = {i: part.arguments[key] for i, part in parts.items()}
            values = set(vector.values())
            # A reader expects the pad of a window of several cells.
            has_window = key == "pad" and any(part.arguments.get("kernel", 1) != 1 for part in parts.values())
            is_required = kind in OPERATIONS and (key in ("filters", "kernel", "units") or has_window)
            if len(values) > 1:
                written[key] = self._express(key, vector, any_part.name)
            elif is_required or values != {any_part.defaults[key]}:
                written[key] = values.pop()
        # a pad with more than its amount is a mapping
        pads = {key.removeprefix("pad."): written.pop(key) for key in list(written) if key.startswith("pad.")}
        if pads:
            amount = {"pad": written["pad"]} if "pad" in written else {}
            written["pad"] = {**amount, **pads}
        order = list(OPERATIONS.get(kind, written))
        return {key: written[key] for key in sorted(written, key=order.index)}

    def _express(self, key: str, vector: Mapping[int, PlainValue], owner: str) -> str:
        """Return an expression such as `=filters*4` that gives an argument its value in each use, by the
        block's parameters; new parameters are added where they are needed.

        Args:
            vector: the value by the number of the use.
            owner: the step, after which a parameter may be named.
        """
        name = key.removeprefix("pad.")
        name = f"{name}_" if name in _WORDS_OF_RECIPES else name
        expression = self.arguments.express(name, vector, _as_word(owner))
        # in recipes, products and quotients are written without spaces
        return f"={expression.replace(' * ', '*').replace(' // ', '//')}"

    def _write_steps(
        self, name: str, kinds: Mapping[str, Mapping[str, Any]], order: Sequence[str]
    ) -> list[YamlStep]:
        """Return the lines of one step: several if it is of several kinds, each with the `when` of its uses.

        Args:
            kinds: the arguments to write, by the kinds that the step has in different uses.
            order: the names of all steps.
        """
        lines: list[YamlStep] = []
        for kind, written in kinds.items():
            use_numbers = [i for i in self._uses_with(name) if self.parts[i][name].kind == kind]
            step: YamlStep = {kind: name}
            inputs = self._write_inputs(name, use_numbers)
            if inputs is not None:
                step["from"] = inputs
            step |= written
            if len(use_numbers) < len(self.uses):
                word = f"has_{_as_word(name)}" if len(kinds) == 1 else f"with_{kind}"
                condition = self._condition(use_numbers, word, name)
                step["when"] = f"={condition}"
                self.conditions[name] = condition if len(kinds) == 1 else ""
            lines.append(step)
        return lines

    def _condition(
        self, use_numbers: Sequence[int], word: str, name: str, among: Sequence[int] | None = None
    ) -> str:
        """Return an expression that holds in the uses `use_numbers`, and not in the others of `among`, by
        default all.

        Args:
            word: the name of an argument that is added if there is no such expression.
            name: the step that the condition is for.
        """
        holds_in = {i: i in use_numbers for i in (range(len(self.uses)) if among is None else among)}
        return self.arguments.condition(holds_in, word, _as_word(name)).replace(" * ", "*")

    def _write_inputs(self, name: str, use_numbers: Sequence[int]) -> str | list[str] | None:
        """Return the step's `from`, a name or a list of names; None if every use reads the step before.
        Raises Unlike if uses read different numbers of values.

        Args:
            use_numbers: the numbers of the uses that have the step.
        """
        count = len(self.parts[use_numbers[0]][name].inputs)
        if any(len(self.parts[i][name].inputs) != count for i in use_numbers):
            raise Unlike
        if count == 1 and all(
            self.parts[i][name].inputs[0] == self._step_before(i, name) for i in use_numbers
        ):
            return None
        sources = [
            self._write_source(name, {i: self.parts[i][name].inputs[index] for i in use_numbers})
            for index in range(count)
        ]
        return sources if count > 1 else sources[0]

    def _step_before(self, use: int, name: str) -> str:
        """Return the step before another in a use, or its input."""
        names = [part.name for part in self.uses[use].parts]
        position = names.index(name)
        return names[position - 1] if position else INPUT

    def _write_source(self, name: str, sources: Mapping[int, str]) -> str:
        """Return the name of the value that is read in each use; if it differs, an expression that chooses
        among the names: `='conv' if has_conv else 'input'`. A step that some uses lack is read under its own
        condition.

        Args:
            sources: the name by the number of the use.
        """
        text, remaining = "=", dict(sources)
        while len(set(remaining.values())) > 1:
            source = max(set(remaining.values()), key=lambda source: (source in self.conditions, source))
            use_numbers = [i for i, other_source in remaining.items() if other_source == source]
            condition = self.conditions.get(source)
            # Its own condition will do if all uses that have it read it.
            if not condition or use_numbers != [i for i in remaining if source in self.parts[i]]:
                word = f"{_as_word(name)}_from_{_as_word(source)}"
                condition = self._condition(use_numbers, word, name, list(remaining))
            text += f"'{source}' if {condition} else "
            remaining = {i: other_source for i, other_source in remaining.items() if other_source != source}
        last_source = next(iter(remaining.values()))
        return last_source if text == "=" else f"{text}'{last_source}'"


def _literal(value: PlainValue) -> str | None:
    """Return the value as expressions write it; None for a list, because they have no lists."""
    if isinstance(value, tuple):
        return None
    return f"'{value}'" if isinstance(value, str) else str(value)


def _as_word(path: str) -> str:
    """Return a path as one word: `stage1/conv` as `stage1_conv`."""
    return path.replace("/", "_").replace(".", "_").replace("-", "_")
