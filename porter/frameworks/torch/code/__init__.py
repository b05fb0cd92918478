"""`model.py` of a port: the plan as a person would write it. It needs torch, safetensors and the standard
library only.

It is made from the same steps as the built module, without torch.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.frameworks.code.write_source import write_source
from porter.frameworks.torch.code.language import LANGUAGE
from porter.frameworks.torch.code.loader import loader_code
from porter.frameworks.torch.layer_steps import make_steps
from porter.graph.plan import Plan


def model_source(plan: Plan, names: Mapping[str, str] | None = None) -> str:
    """Return the text of model.py.

    Args:
        names: of modules that have another name in the state_dict beside it, their names in model.py by
            those in the state_dict.

    Raises:
        GraphError: part of a path is no Python name. PaddingError: torch's layers lack a realisation.
    """
    return write_source(plan, make_steps(plan), LANGUAGE, loader_code(names or {}))
