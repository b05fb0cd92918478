"""torch's two exporters to ONNX."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.onnx._internal.exporter._registration import ONNXRegistry

_OPERATORS = staticmethod(cache(ONNXRegistry.from_torchlib))
"""The newer exporter makes this table at every call, which takes longer than to export a small network."""


def export_to_onnx(
    network: torch.nn.Module, images: tuple[torch.Tensor, ...], file: Path, **settings: Any
) -> None:
    """`torch.onnx.export` with these settings, without what it warns of."""
    with warnings.catch_warnings(action="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", _OPERATORS)
        torch.onnx.export(network, images, str(file), **settings)
