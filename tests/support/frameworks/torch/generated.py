"""The text of model.py: as a module, beside the built one, and as ruff would format it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from porter.frameworks.torch.code import model_source
from porter.frameworks.torch.destination import DESTINATION as framework
from porter.graph.plan import Plan
from tests.support.arrays import Array


def model_of(source: str) -> Any:
    """A `Model` of the text `source`, in float64 and in eval mode."""
    namespace: dict[str, Any] = {"__name__": "model"}
    exec(compile(source, "model.py", "exec"), namespace)
    return namespace["Model"]().double().eval()


def expect_the_same_as_built(
    plan: Plan, tensors: Mapping[str, Mapping[str, Array]], x: Array
) -> tuple[torch.Tensor, ...]:
    """The outputs of a plan's model.py for a batch, after they were found to be the same bits as those of the
    built module.
    """
    built: nn.Module = framework.ENGINE.build(plan, tensors, {}, "float64")
    model = model_of(model_source(plan))
    model.load_state_dict(built.state_dict())
    with torch.inference_mode():
        found, wanted = model(torch.from_numpy(x)), built(torch.from_numpy(x))
    assert isinstance(found, tuple) is isinstance(wanted, tuple) is bool(plan.graph.further)
    outputs: tuple[torch.Tensor, ...] = found if plan.graph.further else (found,)
    for output, value, path in zip(
        outputs, wanted if plan.graph.further else (wanted,), plan.graph.outputs, strict=True
    ):
        assert torch.equal(output, value), path
    return outputs


def expect_formatted(path: Path) -> None:
    ruff = shutil.which("ruff", path=Path(sys.executable).parent)
    assert ruff is not None
    for arguments in (["format", "--diff"], ["check", "--select", "E,F,W,I,B"]):
        result = subprocess.run(
            [ruff, *arguments, "--isolated", "--line-length", "100", path], capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr
