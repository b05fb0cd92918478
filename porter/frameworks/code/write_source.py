"""`model.py` as a person would write it, in the words of a framework's language."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from porter.frameworks.code.input_checks import input_checks
from porter.frameworks.code.language import Language
from porter.frameworks.code.model_classes import docstring, model_classes, named_norms
from porter.frameworks.code.own_layers import needed_definitions
from porter.frameworks.code.plan_layers import LayerStep
from porter.frameworks.code.tree import make_tree
from porter.graph import INPUT
from porter.graph.plan import Plan

_STANDARD_IMPORTS = {
    "import math": r"math\.",
    "import re": r"re\.",
    "from collections import OrderedDict": r"OrderedDict\(",
    "from collections.abc import Callable, Sequence": r"Callable\[",
    "from functools import partial": r"partial\(",
    "from pathlib import Path": r"Path\(",
    "from typing import Any": r"Any\b",
}
"""Lines that import from the standard library, and patterns of what needs them."""


def write_source(plan: Plan, steps: Sequence[LayerStep], language: Language, loader: str) -> str:
    """Return the text of model.py.

    Args:
        steps: the layers of the plan.
        loader: the text of the function that loads the weights.

    Raises:
        GraphError: part of a path is no Python name.
    """
    tree = make_tree(plan.lowered, steps, language)
    checks = input_checks(plan, {INPUT: "x", **tree.further}, language)
    body = model_classes(tree, plan.lowered, steps, language, checks)
    # copies of porter's own layers that the classes call
    own_layers = needed_definitions(body, language.own_layers)
    norms = named_norms(tree, language)
    text = "\n\n\n".join(filter(None, (norms, own_layers, body, loader)))
    imports = [*_needed(_STANDARD_IMPORTS, text), "", *_needed(language.imports, text)]
    # One blank line before a statement, two before a class or function.
    blank_lines = [""] if norms else ["", ""]
    return "\n".join((docstring(plan, tree, language.images), "", *imports, *blank_lines, text)) + "\n"


def _needed(imports: Mapping[str, str], text: str) -> Iterator[str]:
    """Yield the lines of imports that the text needs: it has the pattern, at the beginning of a name."""
    for line, pattern in imports.items():
        if re.search(rf'(?<![\w."]){pattern}', text):
            yield line
