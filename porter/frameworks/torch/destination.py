"""PyTorch's ports: a state_dict, and a module that reads it. See porter.frameworks.Destination. Torch is
imported only to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from porter.frameworks.defaults import DestinationDefaults
from porter.frameworks.port_tensors import WEIGHTS_FILE
from porter.frameworks.torch import engine
from porter.frameworks.torch.layout import CAPABILITIES

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Dtype
    from porter.frameworks import LayerNames, OwnTensors, PortEngine, Tensors
    from porter.graph import Graph
    from porter.graph.plan import Plan


class TorchDestination(DestinationDefaults):
    """Writes PyTorch's ports."""

    NAME = "torch"
    INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NCHW"
    MODEL_FILE = WEIGHTS_FILE
    PACKAGE = "torch"
    NAMES_LAYERS = False
    ENGINE: PortEngine = engine
    CAPABILITIES = CAPABILITIES

    def fillings(self, graph: Graph, tensors: Tensors) -> dict[str, int]:
        """Return the entries of a state_dict that the source lacks, by key, with the number that fills each
        and changes nothing; see porter.frameworks.torch.state.
        """
        from porter.frameworks.torch import state

        return state.fillings(graph, tensors)

    def code_files(self, plan: Plan, layers: LayerNames) -> dict[str, bytes]:
        """Return `model.py` by its name, as porter writes it today; see porter.frameworks.torch.port_files.
        `layers` is empty, or names a stock class's modules by path.
        """
        from porter.frameworks.torch import port_files

        return port_files.code_files(plan, layers)

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
        porter.frameworks.torch.port_files. `layers` and `about` are unused: every destination takes them.
        """
        from porter.frameworks.torch.port_files import write_port

        return write_port(folder, plan, tensors, dtype)

    def read_port(self, folder: Path, plan: Plan, layers: LayerNames) -> OwnTensors:
        """Read the tensors of a port that `write` or `write_stock` wrote, in porter's axis order."""
        from porter.frameworks.torch.port_files import read_weights

        return read_weights(folder, plan.lowered, layers)


DESTINATION: TorchDestination = TorchDestination()
