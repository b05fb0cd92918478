"""What the destinations have in common whose ports CodePorts writes. See porter.frameworks.Destination."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from porter.frameworks.defaults import DestinationDefaults

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Dtype
    from porter.frameworks import LayerNames, OwnTensors, Tensors
    from porter.frameworks.code.code_ports import CodePorts
    from porter.graph.plan import Plan


class CodeDestination(DestinationDefaults, ABC):
    """Three functions of a destination. `layers` and `about` are unused: every destination takes them."""

    @abstractmethod
    def ports(self) -> CodePorts:
        """Import and return the framework's CodePorts."""

    def code_files(self, plan: Plan, layers: LayerNames) -> dict[str, bytes]:
        """Return `model.py` by its name, as porter writes it today."""
        from porter.frameworks.code.code_ports import SOURCE_FILE

        return {SOURCE_FILE: self.ports().source(plan).encode()}

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
        porter.frameworks.code.code_ports.
        """
        return self.ports().write(folder, plan, tensors, dtype)

    def read_port(self, folder: Path, plan: Plan, layers: LayerNames) -> OwnTensors:
        """Return the canonical tensors of a port that `write` wrote, by path and role."""
        return self.ports().read(folder, plan)
