"""A table as rules: layers of one kind whose names differ in numbers only are one step in loops over these
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import TypeAlias

from porter.comparison.transfer.variable_table import Row

_NUMBER = re.compile(r"\d+|(?<=\d)[a-z](?=[_./]|$)")
"""A number of a name, or a letter that counts behind one, as in `block2b`."""
_LAST_WORD = re.compile(r"([A-Za-z][a-z]*)[^A-Za-z]*$")
_TAKEN = {"source", "made", "ours", "theirs", "np", "sys", "range", "enumerate", "chr", "count"}
SLOT = "\0{}\0"
"""What stands for a name of a layer of the source: no name has such letters once it is escaped."""
Numbers: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Name:
    """A name as text and numbers in turns: `layer`, 1, `.`, 0, `.conv`, 2, ``.

    Attributes:
        letters: places of numbers that are written as letters.
    """

    texts: tuple[str, ...]
    numbers: Numbers
    letters: tuple[int, ...] = ()


def read_name(text: str) -> Name:
    """Return a name as its texts and numbers. A letter that counts behind a number, as in `block2b`, is a
    number too; a name with padded numbers (`01`) is text only.
    """
    found = [*_NUMBER.finditer(text)]
    # a text lies between the end of one number and the start of the next
    ends = [0, *(each.end() for each in found)]
    starts = [*(each.start() for each in found), len(text)]
    letters = tuple(place for place, each in enumerate(found) if not each[0].isdigit())
    numbers = list[int]()
    for place, each in enumerate(found):
        padded = each[0].isdigit() and str(int(each[0])) != each[0]
        if padded:  # numbers with zeros before them are text
            return Name((text,), ())
        numbers.append(ord(each[0]) - ord("a") if place in letters else int(each[0]))
    return Name(tuple(text[a:b] for a, b in zip(ends, starts, strict=True)), tuple(numbers), letters)


@dataclass(frozen=True)
class LayerKind:
    """What layers of one kind have: each variable's last name, and the expression that makes it, in which
    SLOTs stand for the source's layers.
    """

    op: str
    made: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FilledLayer:
    """A layer of the target, and those of the source that it is made of."""

    kind: LayerKind
    ours: str
    theirs: tuple[str, ...]


def layers_of(rows: Sequence[Row]) -> list[FilledLayer]:
    """Return the rows as the layers that have them, in their order."""
    by_layer: dict[str, list[Row]] = {}
    for row in rows:
        by_layer.setdefault(_split(row.name)[0], []).append(row)
    return [_layer(ours, of_layer) for ours, of_layer in by_layer.items()]


def _layer(ours: str, rows: Sequence[Row]) -> FilledLayer:
    """Return a layer of the target, whose rows say how its variables are made: the source's tensors in it are
    named by the source's layers.

    Args:
        ours: the layer's name.
    """
    prefixes = [*dict.fromkeys(_split(name)[0] for row in rows for name in row.sources)]
    made = list[tuple[str, str]]()
    for row in rows:
        names = {}
        for name in row.sources:
            before, last = _split(name)
            slot = SLOT.format(prefixes.index(before)) if before else ""
            names[name] = f'source[f"{slot}{escaped(last)}"]' if slot else f'source["{escaped(last, False)}"]'
        made.append((_split(row.name)[1], row.text(names)))
    op = next((row.kind for row in rows if row.kind), "variables")
    return FilledLayer(LayerKind(op, tuple(made)), ours, tuple(each for each in prefixes if each))


def _split(name: str) -> tuple[str, str]:
    """Return a tensor's name as that of its layer and the rest, which begins with the mark between them."""
    place = max(name.rfind("/"), name.rfind("."))
    return (name[:place], name[place:]) if place > 0 else ("", name)


def escaped(text: str, in_f: bool = True) -> str:
    """Return a text as it stands between double quotes.

    Args:
        in_f: the quotes are those of an f-string, in which braces are doubled.
    """
    said = "".join(
        f"\\{each}"
        if each in '"\\'
        else each
        if each.isprintable()
        else each.encode("unicode_escape").decode()
        for each in text
    )
    return said.replace("{", "{{").replace("}", "}}") if in_f else said


@dataclass(frozen=True)
class NamedStep:
    """A layer whose names have variables in place of numbers.

    Attributes:
        names: first the target's layer, then the source's.
        columns: for each number of the names in turn: the variable that gives it and what is added, or no
            variable and the number itself.
    """

    kind: LayerKind
    names: tuple[Name, ...]
    columns: tuple[tuple[int | None, int], ...]

    def at(self, values: Numbers) -> FilledLayer:
        """Return the layer for these values of the variables."""
        numbers = [add if index is None else values[index] + add for index, add in self.columns]
        said = list[str]()
        for name in self.names:
            own, numbers = numbers[: len(name.numbers)], numbers[len(name.numbers) :]
            marks = [
                chr(ord("a") + number) if place in name.letters else str(number)
                for place, number in enumerate(own)
            ]
            said.append("".join(text + mark for text, mark in zip(name.texts, [*marks, ""], strict=True)))
        return FilledLayer(self.kind, said[0], tuple(said[1:]))

    def texts(self, variables: Sequence[str]) -> list[str]:
        """Return the names as strings of Python, f-strings where a variable stands in them."""
        columns, said = [*self.columns], list[str]()
        for name in self.names:
            own, columns = columns[: len(name.numbers)], columns[len(name.numbers) :]
            # an index is that of a variable; without it, `add` is the number itself
            is_f = any(index is not None for index, _ in own)
            marks = list[str]()
            for place, (index, add) in enumerate(own):
                letter = place in name.letters
                if index is None:
                    marks.append(chr(ord("a") + add) if letter else str(add))
                elif letter:
                    marks.append(f"{{chr({ord('a') + add} + {variables[index]})}}")
                else:
                    sign = f" {'+' if add > 0 else '-'} {abs(add)}" if add else ""
                    marks.append(f"{{{variables[index]}{sign}}}")
            text = "".join(
                escaped(text, is_f) + mark for text, mark in zip(name.texts, [*marks, ""], strict=True)
            )
            said.append(f'{"f" * is_f}"{text}"')
        return said


@dataclass(frozen=True)
class LoopRule:
    """Steps that are done for each of some values of their variables; once, where there are none.

    Attributes:
        values: of the variables, sorted.
        variables: their names.
    """

    steps: tuple[NamedStep, ...]
    values: tuple[Numbers, ...]
    variables: tuple[str, ...]

    def layers(self) -> Iterator[FilledLayer]:
        for values in self.values:
            yield from (step.at(values) for step in self.steps)


def rules_of(layers: Sequence[FilledLayer]) -> list[LoopRule]:
    """Return the rules (loops over steps) that give these layers, in the order in which the target has the
    first of each. Layers whose names differ in numbers only are one step, and steps over the same values one
    rule.
    """
    groups: dict[tuple[object, ...], list[tuple[tuple[Name, ...], Numbers]]] = {}
    for layer in layers:
        names = tuple(map(read_name, (layer.ours, *layer.theirs)))
        skeleton = layer.kind, tuple((name.texts, name.letters) for name in names)
        numbers = tuple(number for name in names for number in name.numbers)
        groups.setdefault(skeleton, []).append((names, numbers))
    merged: dict[tuple[object, ...], list[tuple[NamedStep, tuple[Numbers, ...], tuple[str, ...]]]] = {}
    for (kind, *_), members in groups.items():
        assert isinstance(kind, LayerKind)
        names = members[0][0]
        step, values = _step(kind, names, [numbers for _, numbers in members])
        variables = _variables(step)
        own = tuple(sorted(values))
        merged.setdefault((own, variables) if variables else (len(merged),), []).append(
            (step, own, variables)
        )
    return [LoopRule(tuple(step for step, *_ in steps), *steps[0][1:]) for steps in merged.values()]


def _step(
    kind: LayerKind, names: tuple[Name, ...], rows: Sequence[Numbers]
) -> tuple[NamedStep, list[Numbers]]:
    """Return a step for layers whose names have these numbers, and the values of its variables for each. The
    source's numbers are the variables where they can be: a number that differs from another one by a constant
    is that one plus the constant.

    Args:
        names: those of the first layer, the target's first.
        rows: the numbers in the names of each layer.
    """
    columns = [*zip(*rows, strict=True)]
    own = len(names[0].numbers)
    found = list[tuple[int, ...]]()
    said: dict[int, tuple[int | None, int]] = {}
    # the numbers of the source's names first
    for place in (*range(own, len(columns)), *range(own)):
        column = columns[place]
        if len({*column}) == 1:
            # one number in all layers
            said[place] = None, column[0]
            continue
        for index, known in enumerate(found):
            if len({one - other for one, other in zip(column, known, strict=True)}) == 1:
                said[place] = index, column[0] - known[0]
                break
        else:
            said[place] = len(found), 0
            found.append(column)
    values: list[Numbers] = [*zip(*found, strict=True)] if found else [()] * len(rows)
    return NamedStep(kind, names, tuple(said[place] for place in range(len(columns)))), values


def _variables(step: NamedStep) -> tuple[str, ...]:
    """Return a name for each variable: the word before its number, otherwise a letter."""
    words: dict[int, str] = {}
    columns = iter(step.columns)
    before = [(name, place) for name in step.names for place in range(len(name.numbers))]
    own = len(step.names[0].numbers)
    placed = [*zip(before, columns, strict=True)]
    for (name, place), (index, _) in (*placed[own:], *placed[:own]):
        if index is None or index in words:
            continue
        found = _LAST_WORD.search("".join(name.texts[: place + 1]))
        word = found[1].lower().removesuffix("s") if found else ""
        usable = len(word) > 1 and not iskeyword(word) and word not in {*_TAKEN, *words.values()}
        words[index] = (
            word
            if usable
            else next(each for each in ("i", "j", "k", "n", "m", "p", "q", "r") if each not in words.values())
        )
    return tuple(words[index] for index in sorted(words))


def loop_lines(values: Sequence[Numbers], variables: Sequence[str]) -> list[str]:
    """Return the `for` statements of these values, one inside the other: ranges where all values of the first
    variable have the same inner loop, a range with counts where only its length differs, otherwise a table.
    """
    if not variables:
        return []
    first, *others = variables
    inner = {each[0]: tuple(sorted(rest[1:] for rest in values if rest[0] == each[0])) for each in values}
    starts = sorted(inner)
    if len({*inner.values()}) == 1:
        return [f"for {first} in {_range(starts)}:", *loop_lines(inner[starts[0]], others)]
    seconds = {start: sorted({each[0] for each in rest}) for start, rest in inner.items()}
    rests = {
        tuple(sorted(each[1:] for each in rest if each[0] == second))
        for start, rest in inner.items()
        for second in seconds[start]
    }
    # where the second variable begins
    low = {each[0] for each in seconds.values()}
    if len(rests) == len(low) == 1 and all(map(_is_range, [starts, *seconds.values()])):
        (start,), count = low, f"{others[0]}s" if len(others[0]) > 1 else "count"
        sizes = tuple(len(seconds[each]) for each in starts)
        ends = f"{start}, {start} + {count}" if start else count
        begin = f", {starts[0]}" if starts[0] else ""
        return [
            f"for {first}, {count} in enumerate({sizes}{begin}):",
            f"for {others[0]} in range({ends}):",
            *loop_lines(next(iter(rests)), others[1:]),
        ]
    return [f"for {', '.join(variables)} in {_table(values)}:"]


def _is_range(values: Sequence[int]) -> bool:
    return [*values] == [*range(values[0], values[0] + len(values))]


def _range(values: Sequence[int]) -> str:
    if _is_range(values) and len(values) > 1:
        return f"range({values[0]}, {values[-1] + 1})" if values[0] else f"range({values[-1] + 1})"
    return str(tuple(values))


def _table(values: Sequence[Numbers]) -> str:
    return str(tuple(values))


def checked(rules: Sequence[LoopRule], layers: Sequence[FilledLayer]) -> Sequence[LoopRule]:
    """Return the rules, which have to give these layers, each once."""
    given = [layer for rule in rules for layer in rule.layers()]
    assert len(given) == len(layers) and {*given} == {*layers}, "the rules give other layers than the table"
    return rules


def kinds_of(rules: Sequence[LoopRule]) -> Mapping[LayerKind, str]:
    """Return a function's name for each kind of layer, numbered from 2 on where several would have one."""
    words = {"batch_norm": "norm", "layer_norm": "norm", "group_norm": "norm"}
    names: dict[LayerKind, str] = {}
    for rule in rules:
        for step in rule.steps:
            if step.kind not in names:
                word, place = f"put_{words.get(step.kind.op, step.kind.op)}", 2
                name = word
                while name in names.values():
                    name, place = f"{word}_{place}", place + 1
                names[step.kind] = name
    return names
