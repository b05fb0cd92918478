"""The text of the layers that a framework lacks, of which model.py has copies of those that it needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from importlib.resources import files


def definitions(package: str, *names: str) -> dict[str, str]:
    """Return the text of the classes and functions of a package's modules, by name, in their order, so that
    model.py can have copies of them. The modules are read and not run.

    Args:
        names: of the modules' files, such as `layers.py`.
    """
    texts: dict[str, str] = {}
    for name in names:
        text = files(package).joinpath(name).read_text(encoding="utf-8")
        lines = text.splitlines()  # ast.get_source_segment would split the text again for each
        nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        texts |= {node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]) for node in nodes}
    return texts


def needed_definitions(body: str, known: Mapping[str, str]) -> str:
    """Return the text of those definitions in `known` that `body`, or another of them, calls or hands on, in
    their order.

    Args:
        known: the text of classes and functions, by name; each uses only those before it.
    """
    texts: list[str] = []
    # Backwards, because a definition uses only those before it: `texts` has those that are needed so far.
    for name, text in reversed([*known.items()]):
        # called, `crop(x)`, or handed on, `apply(crop, x)`
        if re.search(rf"(?<![\w.]){name}(?=[(),])", "\n".join([body, *texts])):
            texts.insert(0, text)
    return "\n\n\n".join(texts)
