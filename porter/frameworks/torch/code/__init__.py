"""`model.py` of a port: the plan as a person would write it. It needs torch, safetensors and the standard
library only.

It is made from the same steps as the built module, without torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from porter.frameworks.code.model_classes import docstring, model_classes, named_norms
from porter.frameworks.code.own_layers import needed_definitions
from porter.frameworks.code.tree import make_tree
from porter.frameworks.torch.code.language import LANGUAGE
from porter.frameworks.torch.code.loader import CHAIN_FUNCTION, loader_code, shape_checks
from porter.frameworks.torch.code.signatures import OWN_LAYERS
from porter.frameworks.torch.layer_steps import make_steps
from porter.graph import INPUT
from porter.graph.plan import Plan


def model_source(plan: Plan, names: Mapping[str, str] | None = None) -> str:
    """Write the text of model.py.

    Args:
        names: modules that have another name in the state_dict beside it: that name to the name here.

    Raises:
        GraphError: part of a path is no Python name. PaddingError: torch's layers lack a realisation.
    """
    steps = make_steps(plan)
    tree = make_tree(plan.lowered, steps, LANGUAGE)
    body = model_classes(
        tree, plan.lowered, steps, LANGUAGE, shape_checks(plan, {INPUT: "x", **tree.further})
    )
    own = needed_definitions(body, OWN_LAYERS)
    parts = [
        _head_with_imports(
            docstring(plan, tree, "N x {channels} x H x W"), named_norms(tree, LANGUAGE), own + body
        ),
        *([CHAIN_FUNCTION] if "chain(" in body else []),
        *([own] if own else []),
        body,
        loader_code(names or {}),
    ]
    return "\n\n\n".join(parts) + "\n"


def _head_with_imports(docstring: str, norms: str, body: str) -> str:
    """Return the docstring, the imports that the body needs, and the norms that have names, as the first
    lines of model.py.
    """
    functional = "from torch.nn import functional as F\n" if "F." in body else ""
    standard = "".join(f"import {name}\n" for name in ("math", "re") if re.search(rf"\b{name}\.", body))
    standard += "from collections import OrderedDict\n" if "chain(" in body else ""
    standard += "from collections.abc import Callable, Sequence\n" if "Callable[" in body else ""
    standard += "from functools import partial\n" if norms else ""
    paths = "from pathlib import Path\n" + ("from typing import Any\n" if "Any," in body else "")
    return (
        f"{docstring}\n\n{standard}{paths}\nimport torch\nfrom safetensors.torch import load_file\nfrom "
        "torch import nn\n"
        f"{functional}\n{norms}"
    ).rstrip()
