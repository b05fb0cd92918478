"""TensorFlow Lite's ports: a model.tflite. See porter.frameworks.Destination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from porter.base.errors import GraphError
from porter.frameworks.defaults import DestinationDefaults
from porter.frameworks.tf.ports.sites import CAPABILITIES as KERAS
from porter.frameworks.tflite import FILE, engine
from porter.graph import ops

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Dtype
    from porter.base.errors import PorterError
    from porter.frameworks import LayerNames, OwnTensors, PortEngine, Tensors
    from porter.graph.plan import Plan

_CAPABILITIES = replace(
    KERAS,
    wide_strides="XNNPACK, by which TensorFlow Lite runs convolutions, computes SAME wrongly where a stride "
    "is larger than the kernel",
)
"""https://github.com/google-ai-edge/LiteRT/issues/4847"""


class LiteDestination(DestinationDefaults):
    """Writes TensorFlow Lite's ports."""

    NAME = "tflite"
    INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
    MODEL_FILE = FILE
    PACKAGE = "tensorflow"
    NAMES_LAYERS = False
    IN_FLOAT32 = CONVERTED = True
    ENGINE: PortEngine = engine
    CAPABILITIES = _CAPABILITIES

    def refusals(self, plan: Plan) -> list[PorterError]:
        """Return an error for each op that TensorFlow Lite has no operator for; these would need TensorFlow's
        own kernels beside it.
        """
        lacking = [
            node
            for node in plan.lowered.nodes
            if isinstance(node.op, ops.Erf) or getattr(node.op, "mode", None) == "cubic"
        ]
        return [
            GraphError(f"TensorFlow Lite has no operator for {node.op.words}", where=node.path)
            for node in lacking
        ]

    def write(
        self,
        folder: Path,
        plan: Plan,
        tensors: Tensors,
        layers: LayerNames,
        dtype: Dtype,
        about: Mapping[str, str],
    ) -> dict[str, str]:
        """Write `model.tflite` and return its sha256 by its name; see porter.frameworks.tflite.port_files.
        `layers` is unused.
        """
        from porter.frameworks.tflite.port_files import write as write_lite

        return write_lite(folder, plan, tensors, dtype, about)

    def read_port(self, folder: Path, plan: Plan, layers: LayerNames) -> OwnTensors:
        """Return the file itself, as one tensor of its bytes under its name; see
        porter.frameworks.is_converted. `plan` and `layers` are unused.
        """
        from porter.frameworks.tflite.port_files import read_file

        return read_file(folder)


DESTINATION: LiteDestination = LiteDestination()
