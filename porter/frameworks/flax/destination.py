"""Flax's ports: the variables of a module of flax.nnx, and its code. See porter.frameworks.Destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from porter.frameworks.code.destination import CodeDestination
from porter.frameworks.defaults import fillings as fillings, refusals as refusals
from porter.frameworks.flax import engine
from porter.frameworks.flax.layout import CAPABILITIES as CAPABILITIES, WEIGHTS_FILE

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.frameworks import PortEngine
    from porter.frameworks.code.code_ports import CodePorts

NAME = "flax"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
MODEL_FILE = WEIGHTS_FILE
PACKAGE = "flax"
NAMES_LAYERS = False
ENGINE: PortEngine = engine


def _ports() -> CodePorts:
    from porter.frameworks.flax.code import PORTS

    return PORTS


_FILES = CodeDestination(_ports)
code_files, write, read_port = _FILES.code_files, _FILES.write, _FILES.read_port
