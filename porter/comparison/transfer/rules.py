"""A table as rules: layers of one kind whose names differ in numbers only are one step in loops over these
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from keyword import iskeyword
from typing import TypeAlias

from porter.comparison.transfer.variable_table import Row

_NUMBER = re.compile(r"\d+|(?<=\d)[a-z](?=[_./]|$)")
"""A number of a name, or a letter that counts behind one, as in `block2b`."""
_MOST_DIGITS = 18
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
    """Return a name as its texts and numbers: `layer1.0.conv2` is `layer`, 1, `.`, 0, `.conv`, 2 and an
    empty text. A letter that counts behind a number, as in `block2b`, is a number too; a name with padded
    numbers (`01`) is text only.
    """
    matches = [*_NUMBER.finditer(text)]
    # a text lies between the end of one number and the start of the next
    starts = [0, *(match.end() for match in matches)]
    ends = [*(match.start() for match in matches), len(text)]
    letters = tuple(place for place, match in enumerate(matches) if not match[0].isdigit())
    numbers = list[int]()
    for place, match in enumerate(matches):
        if place in letters:
            numbers.append(ord(match[0]) - ord("a"))
        elif len(match[0]) <= _MOST_DIGITS and str(int(match[0])) == match[0]:
            numbers.append(int(match[0]))
        else:
            # A number with zeros before it, or a hash of digits, is text.
            return Name((text,), ())
    texts = tuple(text[start:end] for start, end in zip(starts, ends, strict=True))
    return Name(texts, tuple(numbers), letters)


@dataclass(frozen=True)
class LayerKind:
    """What layers of one kind have: each variable's last name, and the expression that makes it, in which
    SLOTs stand for the source's layers.
    """

    op: str
    made: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FilledLayer:
    """A layer of the target, and those of the source that it is made of.

    Attributes:
        ours: the target's name of the layer.
        theirs: the source's names.
    """

    kind: LayerKind
    ours: str
    theirs: tuple[str, ...]


def layers_of(rows: Sequence[Row]) -> list[FilledLayer]:
    """Return the layers of the target that the rows (one for each variable) belong to, in their order."""
    by_layer: dict[str, list[Row]] = {}
    for row in rows:
        by_layer.setdefault(_split(row.name)[0], []).append(row)
    return [_layer(ours, of_layer) for ours, of_layer in by_layer.items()]


def _layer(ours: str, rows: Sequence[Row]) -> FilledLayer:
    """Return a layer of the target from the rows of its variables: the expressions that make them, with a
    SLOT in place of each name of a layer of the source.

    Args:
        ours: the layer's name.
    """
    prefixes = [*dict.fromkeys(_split(name)[0] for row in rows for name in row.sources)]
    expressions = list[tuple[str, str]]()
    for row in rows:
        names = {}
        for name in row.sources:
            source_layer, variable = _split(name)
            if source_layer:
                slot = SLOT.format(prefixes.index(source_layer))
                names[name] = f'source[f"{slot}{escaped(variable)}"]'
            else:
                names[name] = f'source["{escaped(variable, False)}"]'
        expressions.append((_split(row.name)[1], row.text(names)))
    op = next((row.kind for row in rows if row.kind), "variables")
    return FilledLayer(LayerKind(op, tuple(expressions)), ours, tuple(filter(None, prefixes)))


def _split(name: str) -> tuple[str, str]:
    """Return a tensor's name as that of its layer and the rest, with the mark between them: `layer1.0.conv`
    and `.weight`. A name without such a mark is all rest.
    """
    place = max(name.rfind("/"), name.rfind("."))
    return (name[:place], name[place:]) if place > 0 else ("", name)


def escaped(text: str, in_f: bool = True) -> str:
    r"""Return a text as it stands between double quotes in Python: with `\"` for a quote.

    Args:
        in_f: the quotes are those of an f-string, in which braces are doubled.
    """

    def escape(letter: str) -> str:
        """Return a letter as a string of Python has it."""
        if letter in '"\\':
            return f"\\{letter}"
        return letter if letter.isprintable() else letter.encode("unicode_escape").decode()

    in_quotes = "".join(map(escape, text))
    return in_quotes.replace("{", "{{").replace("}", "}}") if in_f else in_quotes


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
        """Return the layer of the target, and those of the source, whose names have these values of the
        variables in place of their numbers: `layer1.0` for (1, 0).
        """
        numbers = iter([add if index is None else values[index] + add for index, add in self.columns])
        layer_names = list[str]()
        for name in self.names:
            # the numbers of this name as they are written
            marks = [
                chr(ord("a") + number) if place in name.letters else str(number)
                for place, number in enumerate(islice(numbers, len(name.numbers)))
            ]
            layer_names.append(_alternating(name.texts, marks))
        ours, *theirs = layer_names
        return FilledLayer(self.kind, ours, tuple(theirs))

    def texts(self, variables: Sequence[str]) -> list[str]:
        """Return the names as strings of Python, f-strings where a variable stands in them:
        `f"layer{i}.conv"`.
        """
        columns = iter(self.columns)
        texts = list[str]()
        for name in self.names:
            # An index is that of a variable; without it, `add` is the number itself.
            columns_of_name = [*islice(columns, len(name.numbers))]
            is_f = any(index is not None for index, _ in columns_of_name)
            marks = list[str]()
            for place, (index, add) in enumerate(columns_of_name):
                is_letter = place in name.letters
                if index is None:
                    marks.append(chr(ord("a") + add) if is_letter else str(add))
                elif is_letter:
                    marks.append(f"{{chr({ord('a') + add} + {variables[index]})}}")
                elif add == 0:
                    marks.append(f"{{{variables[index]}}}")
                else:
                    sign = "+" if add > 0 else "-"
                    marks.append(f"{{{variables[index]} {sign} {abs(add)}}}")
            text = _alternating([escaped(text, is_f) for text in name.texts], marks)
            texts.append(f'f"{text}"' if is_f else f'"{text}"')
        return texts


def _alternating(texts: Sequence[str], marks: Sequence[str]) -> str:
    """Return texts with marks between them in one text; there is one mark fewer."""
    return "".join(text + mark for text, mark in zip(texts, [*marks, ""], strict=True))


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
    # Layers that are alike but for the numbers in their names.
    groups: dict[tuple[object, ...], list[tuple[tuple[Name, ...], Numbers]]] = {}
    for layer in layers:
        names = tuple(map(read_name, (layer.ours, *layer.theirs)))
        skeleton = layer.kind, tuple((name.texts, name.letters) for name in names)
        numbers = tuple(number for name in names for number in name.numbers)
        groups.setdefault(skeleton, []).append((names, numbers))
    # Steps with the same loops; a step without loops stays alone.
    merged: dict[tuple[object, ...], LoopRule] = {}
    for (kind, *_), members in groups.items():
        assert isinstance(kind, LayerKind)
        names, _ = members[0]
        step, values = _step(kind, names, [numbers for _, numbers in members])
        variables = _variables(step)
        loops = tuple(sorted(values))
        key: tuple[object, ...] = (loops, variables) if variables else (len(merged),)
        steps = merged[key].steps if key in merged else ()
        merged[key] = LoopRule((*steps, step), loops, variables)
    return [*merged.values()]


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
    # for each number in the names, its values in all layers
    columns = [*zip(*rows, strict=True)]
    count_in_target = len(names[0].numbers)
    variables = list[tuple[int, ...]]()
    # for each number in the names: the variable (None for a constant), and what is added to it
    terms: dict[int, tuple[int | None, int]] = {}
    # the numbers of the source's names first
    for place in (*range(count_in_target, len(columns)), *range(count_in_target)):
        column = columns[place]
        if len({*column}) == 1:
            # one number in all layers
            terms[place] = None, column[0]
            continue
        for index, variable in enumerate(variables):
            differences = {number - value for number, value in zip(column, variable, strict=True)}
            if len(differences) == 1:
                terms[place] = index, differences.pop()
                break
        else:
            terms[place] = len(variables), 0
            variables.append(column)
    values: list[Numbers] = [*zip(*variables, strict=True)] if variables else [()] * len(rows)
    return NamedStep(kind, names, tuple(terms[place] for place in range(len(columns)))), values


def _variables(step: NamedStep) -> tuple[str, ...]:
    """Return a name for each variable of a step's loops: the word before its number, as `layer` for the 1 in
    `layer1.0`, otherwise a letter.
    """
    words: dict[int, str] = {}
    positions = [(name, place) for name in step.names for place in range(len(name.numbers))]
    count_in_target = len(step.names[0].numbers)
    placed = [*zip(positions, step.columns, strict=True)]
    # The source's names come first, as in `_step`.
    for (name, place), (index, _) in (*placed[count_in_target:], *placed[:count_in_target]):
        if index is None or index in words:
            continue
        match = _LAST_WORD.search("".join(name.texts[: place + 1]))
        word = match[1].lower().removesuffix("s") if match else ""
        usable = len(word) > 1 and not iskeyword(word) and word not in {*_TAKEN, *words.values()}
        letters = (letter for letter in "ijknmpqr" if letter not in words.values())
        words[index] = word if usable else next(letters, f"n{index}")
    return tuple(words[index] for index in sorted(words))


def loop_lines(values: Sequence[Numbers], variables: Sequence[str]) -> list[str]:
    """Return the `for` statements that give the variables these values, one inside the other: ranges where
    all values of the first variable have the same inner loop, a range with counts where only its length
    differs (`for layer, blocks in enumerate((3, 4, 6, 3), 1):`), otherwise a table of all values.
    """
    if not variables:
        return []
    first, *others = variables
    # by each value of the first variable, the values of the others
    inner = _by_first(values)
    starts = sorted(inner)
    if len({*inner.values()}) == 1:
        return [f"for {first} in {_range(starts)}:", *loop_lines(inner[starts[0]], others)]
    by_second = {start: _by_first(rest) for start, rest in inner.items()}
    seconds = {start: sorted(rests) for start, rests in by_second.items()}
    innermost = {rest for rests in by_second.values() for rest in rests.values()}
    # where the second variable begins
    lowest = {values_of_second[0] for values_of_second in seconds.values()}
    are_ranges = all(map(_is_range, [starts, *seconds.values()]))
    if len(innermost) == len(lowest) == 1 and are_ranges:
        # The second variable runs from one start, through as many values as a table of counts says.
        (start,) = lowest
        count_name = f"{others[0]}s" if len(others[0]) > 1 else "count"
        counts = tuple(len(seconds[value]) for value in starts)
        range_text = f"{start}, {start} + {count_name}" if start else count_name
        enumerate_from = f", {starts[0]}" if starts[0] else ""
        return [
            f"for {first}, {count_name} in enumerate({counts}{enumerate_from}):",
            f"for {others[0]} in range({range_text}):",
            *loop_lines(next(iter(innermost)), others[1:]),
        ]
    return [f"for {', '.join(variables)} in {tuple(values)}:"]


def _by_first(values: Sequence[Numbers]) -> dict[int, tuple[Numbers, ...]]:
    """Return by each first number the rest of the rows that begin with it, sorted: `{1: ((0,), (1,))}` for
    (1, 0) and (1, 1).
    """
    return {first: tuple(sorted(row[1:] for row in values if row[0] == first)) for first, *_ in values}


def _is_range(values: Sequence[int]) -> bool:
    return [*values] == [*range(values[0], values[0] + len(values))]


def _range(values: Sequence[int]) -> str:
    if _is_range(values) and len(values) > 1:
        return f"range({values[0]}, {values[-1] + 1})" if values[0] else f"range({values[-1] + 1})"
    return str(tuple(values))


def expect_layers(rules: Sequence[LoopRule], layers: Sequence[FilledLayer]) -> Sequence[LoopRule]:
    """Return the rules, after an assertion that they give exactly these layers, each once."""
    layers_of_rules = [layer for rule in rules for layer in rule.layers()]
    assert len(layers_of_rules) == len(layers) and {*layers_of_rules} == {*layers}, (
        "the rules give other layers than the table"
    )
    return rules


def kinds_of(rules: Sequence[LoopRule]) -> Mapping[LayerKind, str]:
    """Return the name of the function that makes each kind of layer: `put_conv`, and `put_conv_2` for
    another kind of convolution.
    """
    words = {"batch_norm": "norm", "layer_norm": "norm", "group_norm": "norm"}
    names: dict[LayerKind, str] = {}
    for rule in rules:
        for step in rule.steps:
            if step.kind not in names:
                word = f"put_{words.get(step.kind.op, step.kind.op)}"
                numbered = (f"{word}_{number}" for number in count(2))
                names[step.kind] = next(
                    name for name in chain([word], numbered) if name not in names.values()
                )
    return names
