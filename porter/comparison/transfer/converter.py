"""The text of a converter, as a person writes it for a library, and that of its test."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from porter.comparison.transfer import converter_functions
from porter.comparison.transfer.rules import (
    SLOT,
    LayerKind,
    LoopRule,
    escaped,
    expect_layers,
    kinds_of,
    layers_of,
    loop_lines,
    rules_of,
)
from porter.comparison.transfer.variable_table import Row
from porter.port import INTO_RECORD

_WIDTH = 100


@dataclass(frozen=True)
class About:
    """What a converter says of itself.

    Attributes:
        name: of the module.
        source, target: what it converts.
        reader: how the source's file is read: `safetensors` or `h5`.
        loading: the code that puts its file into the model.
    """

    name: str
    source: str
    target: str
    reader: str
    loading: str


def converter_text(rows: Sequence[Row], about: About) -> str:
    """Return the text of the module that converts: names by rule, loops for repeated blocks; it uses numpy,
    safetensors and h5py only.
    """
    layers = layers_of(rows)
    rules = expect_layers(rules_of(layers), layers)
    kinds = kinds_of(rules)
    used = [row.function for row in rows if row.function]
    functions = [*dict.fromkeys(used), *(["read_h5"] if about.reader == "h5" else [])]
    parts = [_head(about), *map(_function, functions)]
    parts += [_kind(name, kind) for kind, name in kinds.items()]
    body = [line for rule in rules for line in _rule(rule, kinds)]
    lines = [
        "def convert(source):",
        f'    """The tensors of {_said(about.target)} by name."""',
        "    made = {}",
        *body,
        "    return made",
    ]
    parts += ["\n".join(lines), _tail(about)]
    return "\n\n\n".join(parts) + "\n"


def _said(text: str) -> str:
    """Return a text escaped as it may stand inside a docstring."""
    return escaped(text, False)


def _head(about: About) -> str:
    """Return the beginning of the module: its docstring, which says how to run it, and its imports."""
    imports = ["import sys", "", "import numpy as np"]
    functions = "load_file, save_file" if about.reader == "safetensors" else "save_file"
    return "\n".join(
        [
            f'"""Converts {_said(about.source)} to {_said(about.target)}.',
            "",
            f"python {about.name}.py SOURCE.{about.reader} OUT.safetensors",
            '"""',
            "",
            *imports,
            f"from safetensors.numpy import {functions}",
        ]
    )


def _function(name: str) -> str:
    """Return the text of a function as it stands in porter.comparison.transfer.converter_functions, without
    types.
    """
    text = inspect.getsource(getattr(converter_functions, name)).rstrip()
    signature, body = text.split("\n", 1)
    without_types = re.sub(r"(: (Any|float|str [|] Path))|( -> [^:]+(?=:$))", "", signature)
    return f"{without_types}\n{body}"


def _kind(name: str, kind: LayerKind) -> str:
    """Return the text of the function that makes the variables of one kind of layer:
    `def put_conv(made, ours, source, theirs):` and a line for each variable.
    """
    lines = [f"def {name}({', '.join(('made', 'ours', *_needed(kind)))}):"]
    for variable, text in kind.made:
        for place, word in enumerate(_needed(kind)[1:]):
            text = text.replace(SLOT.format(place), f"{{{word}}}")
        lines.append(f'    made[f"{{ours}}{escaped(variable)}"] = {text}')
    return "\n".join(lines)


def _needed(kind: LayerKind) -> tuple[str, ...]:
    """Return the parameters of the function that makes a layer, beside `made` and `ours`, which all have:
    `source` and `theirs`, the name of the source's layer, or `theirs_1` and on for several. Return none if
    all its variables are numbers.
    """
    texts = "".join(text for _, text in kind.made)
    # how many layers of the source stand in the texts as SLOTs, which are numbered from 0
    count = next(place for place in range(len(texts) + 1) if SLOT.format(place) not in texts)
    theirs = ["theirs"] if count == 1 else [f"theirs_{place + 1}" for place in range(count)]
    return ("source", *theirs) if "source[" in texts else ()


def _rule(rule: LoopRule, kinds: Mapping[LayerKind, str]) -> list[str]:
    """Return the lines of a rule: its loops, and inside them a call for each of its steps."""
    indent, lines = "    ", list[str]()
    for line in loop_lines(rule.values, rule.variables):
        lines += _wrapped(indent, line)
        indent += "    "
    for step in rule.steps:
        ours, *theirs = step.texts(rule.variables)
        # `source`, or nothing
        source = _needed(step.kind)[:1]
        arguments = ", ".join(("made", ours, *source, *theirs))
        lines.append(f"{indent}{kinds[step.kind]}({arguments})")
    return lines


def _wrapped(indent: str, line: str) -> list[str]:
    """Return a `for` statement in lines of at most _WIDTH columns: a table `for i, n in ((0, 3), ...):` that
    is too long has its rows on lines of their own.
    """
    if len(indent + line) <= _WIDTH or " in ((" not in line:
        return [indent + line]
    head, _, table = line.partition(" in (")
    rows = re.findall(r"\([^()]*\)", table)
    lines, current = [f"{indent}{head} in ("], ""
    for row in rows:
        # 4 columns of indentation, and a comma
        if len(indent) + 5 + len(current) + len(row) > _WIDTH:
            lines.append(f"{indent}    {current.rstrip()}")
            current = ""
        current += f"{row}, "
    return [*lines, f"{indent}    {current.rstrip()}", f"{indent}):"]


def _tail(about: About) -> str:
    """Return the end of the module: what reads a file, and what runs the conversion, with a comment on how
    the result is loaded.
    """
    read = "load_file" if about.reader == "safetensors" else "read_h5"
    comment = [f"# {line}" for line in ("Then, in the model's framework:", *about.loading.splitlines())]
    return "\n".join(
        [
            f"def read(path):\n    return {read}(path)",
            "",
            "",
            'if __name__ == "__main__":',
            "    made = convert(read(sys.argv[1]))",
            "    save_file({name: np.ascontiguousarray(each) for name, each in made.items()}, sys.argv[2])",
            *(f"    {line}" for line in comment),
        ]
    )


def text_of_test(name: str, source: str) -> str:
    """Return the text of the module that tests a converter.

    Args:
        name: the converter's module.
        source: the path of the source's file, as a default.
    """
    return f'''"""Tests that {name}.py makes the tensors of into.json, bit for bit. SOURCE is its file."""

import json
import os
from hashlib import sha256
from pathlib import Path

import numpy as np
from {name} import convert, read

HERE = Path(__file__).parent
SOURCE = os.environ.get("SOURCE", {source})


def test_tensors_are_those_of_the_table():
    made = convert(read(SOURCE))
    wanted = {{row["name"]: row for row in json.loads((HERE / "{INTO_RECORD}").read_text())["tensors"]}}
    assert made.keys() == wanted.keys()
    for name, tensor in made.items():
        row = wanted[name]
        assert [*tensor.shape] == row["shape"] and tensor.dtype == row["dtype"], name
        assert sha256(np.ascontiguousarray(tensor).tobytes()).hexdigest() == row["sha256"], name


if __name__ == "__main__":
    test_tensors_are_those_of_the_table()
'''
