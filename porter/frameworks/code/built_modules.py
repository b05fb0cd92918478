"""The engine of a framework that runs its own ports only, as modules that its graph_module.py builds. The
framework is imported only when something is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from porter.base.package import expect_installed, install
from porter.frameworks import UNCUT

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from porter.base.dtypes import Array, Dtype, NamedArrays
    from porter.frameworks import LayerNames, Tensors
    from porter.graph.plan import Plan


@dataclass(frozen=True)
class BuiltModules:
    """Builds and runs them; see porter.frameworks.PortEngine.

    Attributes:
        framework: the folder of its graph_module.py.
        packages: those that it needs.
    """

    framework: Literal["flax", "mlx"]
    packages: tuple[str, ...]

    def build(
        self, plan: Plan, tensors: Tensors, layers: LayerNames, dtype: Dtype, device: str = "cpu"
    ) -> Any:
        """Build the plan as a module in inference mode, with canonical `tensors`, in `dtype`, and return it.
        `layers` is unused: every engine takes it.
        """
        for package in self.packages:
            expect_installed(package, install(self.framework))
        return self._graph_module.build_model(plan, tensors, dtype, device)

    def run(
        self, model: Any, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT
    ) -> dict[str, Array]:
        """Run the module on a batch N×C×H×W and return the values at `taps`, paths of nodes, by path; maps
        are N×C×H×W. By path, `cut` has arrays that are read in place of values.
        """
        values: dict[str, Array] = self._graph_module.run_model(model, batch, taps, cut)
        return values

    def run_reference(
        self, model: Any, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
    ) -> dict[str, Array]:
        """Return the values at the paths that `taps` has, as `run` does. The layers' names in `taps` are
        unused: porter knows no other implementation in such a framework than its own.
        """
        return self.run(model, batch, list(taps), cut)

    @property
    def _graph_module(self) -> Any:
        return import_module(f"porter.frameworks.{self.framework}.graph_module")
