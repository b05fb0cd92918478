"""`model.py` of a port: the plan as a person would write it. It needs torch, safetensors and the standard
library only.

It is made from the same steps as the built module, without torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from porter.frameworks.code.input_checks import input_checks
from porter.frameworks.code.model_classes import docstring, model_classes, named_norms
from porter.frameworks.code.own_layers import needed_definitions
from porter.frameworks.code.tree import make_tree
from porter.frameworks.torch.code.language import LANGUAGE
from porter.frameworks.torch.code.loader import CHAIN_FUNCTION, loader_code
from porter.frameworks.torch.code.signatures import OWN_LAYERS
from porter.frameworks.torch.layer_steps import make_steps
from porter.graph import INPUT
from porter.graph.plan import Plan


def model_source(plan: Plan, names: Mapping[str, str] | None = None) -> str:
    """Return the text of model.py.

    Args:
        names: of modules that have another name in the state_dict beside it, their names in model.py by
            those in the state_dict.

    Raises:
        GraphError: part of a path is no Python name. PaddingError: torch's layers lack a realisation.
    """
    steps = make_steps(plan)
    tree = make_tree(plan.lowered, steps, LANGUAGE)
    checks = input_checks(plan, {INPUT: "x", **tree.further}, LANGUAGE)
    body = model_classes(tree, plan.lowered, steps, LANGUAGE, checks)
    own_layers = needed_definitions(body, OWN_LAYERS)
    first_line = docstring(plan, tree, "N x {channels} x H x W")
    parts = [
        _head_with_imports(first_line, named_norms(tree, LANGUAGE), own_layers + body),
        CHAIN_FUNCTION if "chain(" in body else "",
        own_layers,
        body,
        loader_code(names or {}),
    ]
    return "\n\n\n".join(filter(None, parts)) + "\n"


def _head_with_imports(docstring: str, norms: str, body: str) -> str:
    """Return the docstring, the imports that the body needs, and the norms that have names, as the first
    lines of model.py.
    """
    # Each import that the text may need, and whether it does.
    standard_imports = {
        "import math": re.search(r"\bmath\.", body) is not None,
        "import re": re.search(r"\bre\.", body) is not None,
        "from collections import OrderedDict": "chain(" in body,
        "from collections.abc import Callable, Sequence": "Callable[" in body,
        "from functools import partial": bool(norms),
        "from pathlib import Path": True,
        "from typing import Any": "Any," in body,
    }
    other_imports = {
        "import torch": True,
        "from safetensors.torch import load_file": True,
        "from torch import nn": True,
        "from torch.nn import functional as F": "F." in body,
    }
    standard, others = (
        [line for line, is_needed in imports.items() if is_needed]
        for imports in (standard_imports, other_imports)
    )
    return "\n".join((docstring, "", *standard, "", *others, "", norms)).rstrip()
