"""Flax's ports: the variables of a module of flax.nnx, and its code. See porter.frameworks.Destination."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from porter.frameworks.defaults import fillings as fillings, refusals as refusals
from porter.frameworks.flax import engine
from porter.frameworks.flax.layout import CAPABILITIES as CAPABILITIES, WEIGHTS_FILE

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Dtype
    from porter.frameworks import LayerNames, OwnTensors, PortEngine, Tensors
    from porter.graph.plan import Plan

NAME = "flax"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
MODEL_FILE = WEIGHTS_FILE
PACKAGE = "flax"
NAMES_LAYERS = False
ENGINE: PortEngine = engine


def code_files(plan: Plan, layers: LayerNames) -> dict[str, bytes]:
    """Return `model.py` by its name, as porter writes it today; see porter.frameworks.flax.code. `layers` is
    unused.
    """
    from porter.frameworks.code.code_ports import SOURCE_FILE
    from porter.frameworks.flax.code import model_source

    return {SOURCE_FILE: model_source(plan).encode()}


def write(
    folder: Path,
    plan: Plan,
    tensors: Tensors,
    layers: LayerNames,
    dtype: Dtype,
    about: Mapping[str, str],
) -> dict[str, str]:
    """Write `model.safetensors` and `model.py`, and return the sha256 of each by its name; see
    porter.frameworks.code.code_ports. `layers` and `about` are unused: every destination takes them.
    """
    from porter.frameworks.flax.code import PORTS

    return PORTS.write(folder, plan, tensors, dtype)


def read_port(folder: Path, plan: Plan, layers: LayerNames) -> OwnTensors:
    """Return the canonical tensors of a port that `write` wrote, by path and role. `layers` is unused."""
    from porter.frameworks.flax.code import PORTS

    return PORTS.read(folder, plan)
