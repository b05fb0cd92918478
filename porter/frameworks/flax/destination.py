"""Flax's ports: the variables of a module of flax.nnx, and its code. See porter.frameworks.Destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from porter.frameworks.code.destination import CodeDestination
from porter.frameworks.flax import engine
from porter.frameworks.flax.layout import CAPABILITIES
from porter.frameworks.port_tensors import WEIGHTS_FILE

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.frameworks import PortEngine
    from porter.frameworks.code.code_ports import CodePorts


class FlaxDestination(CodeDestination):
    """Writes Flax's ports."""

    NAME = "flax"
    INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
    MODEL_FILE = WEIGHTS_FILE
    PACKAGE = "flax"
    CAPABILITIES = CAPABILITIES
    NAMES_LAYERS = False
    ENGINE: PortEngine = engine

    def ports(self) -> CodePorts:
        from porter.frameworks.flax.code import PORTS

        return PORTS


DESTINATION: FlaxDestination = FlaxDestination()
