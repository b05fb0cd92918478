"""MLX's ports: the variables of a module of mlx.nn, and its code. See porter.frameworks.Destination."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from porter.base.errors import GraphError, UsageError
from porter.base.options import DTYPE
from porter.frameworks.code.destination import CodeDestination
from porter.frameworks.mlx import engine
from porter.frameworks.mlx.layout import CAPABILITIES, variables
from porter.frameworks.port_tensors import FILLS, WEIGHTS_FILE

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Dtype
    from porter.base.errors import PorterError
    from porter.frameworks import LayerNames, PortEngine, Tensors
    from porter.frameworks.code.code_ports import CodePorts
    from porter.graph import Graph
    from porter.graph.plan import Plan


class MlxDestination(CodeDestination):
    """Writes MLX's ports."""

    NAME = "mlx"
    INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
    MODEL_FILE = WEIGHTS_FILE
    PACKAGE = "mlx"
    NAMES_LAYERS = False
    IN_FLOAT32 = True
    ENGINE: PortEngine = engine
    CAPABILITIES = CAPABILITIES

    def fillings(self, graph: Graph, tensors: Tensors) -> dict[str, int]:
        """Return the numbers that fill variables which the norms of MLX have and the source lacks, by the
        paths of these variables: 1 for a scale, 0 for an offset.
        """
        return {
            f"{node.path.replace('/', '.')}.{name}": FILLS[role]
            for node in graph.nodes
            for role, name in variables(node.op).items()
            if role not in node.op.tensors(1)
        }

    def refusals(self, plan: Plan) -> list[PorterError]:
        """Return a refusal of each norm with an epsilon of 0, because the norms of MLX take none."""
        lacking = [node for node in plan.lowered.nodes if getattr(node.op, "epsilon", 1) == 0]
        return [
            GraphError(
                f"the norms of MLX take no epsilon of 0, as {node.op.words} has",
                where=node.path,
                next="port to torch",
            )
            for node in lacking
        ]

    def ports(self) -> CodePorts:
        from porter.frameworks.mlx.code import PORTS

        return PORTS

    def write(
        self,
        folder: Path,
        plan: Plan,
        tensors: Tensors,
        layers: LayerNames,
        dtype: Dtype,
        about: Mapping[str, str],
    ) -> dict[str, str]:
        """Write `model.safetensors` and `model.py`, and return the sha256 of each by its name; see
        CodeDestination.write.

        Raises:
            UsageError: MLX does not compute in this type.
        """
        if dtype == "float64":
            message = "MLX computes convolutions and exponentials in float32, of float64 too"
            raise UsageError(message, where=DTYPE, next=f"write {DTYPE('float32')}")
        return super().write(folder, plan, tensors, layers, dtype, about)


DESTINATION: MlxDestination = MlxDestination()
