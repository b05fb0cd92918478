"""How the code of a framework names the tensors of its layers and orders their axes, in files that do not say
it themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from porter.frameworks import LayerNames
from porter.graph import Graph, Node

if TYPE_CHECKING:
    from porter.base.dtypes import Array
    from porter.graph.plan import Plan


class Dialect(Protocol):
    """The module-level names of a dialect. A zoo's framework says which one its files have."""

    SEPARATOR: str
    """The text between the parts of a tensor's name."""
    AVERAGE_SUFFIX: str | None
    """The end of a moving average's name, after the tensor's name."""

    def tensor_names(self, graph: Graph, node: Node, layer: str) -> Mapping[str, tuple[str, ...]]:
        """Return, for each role of a node's tensors, the names that a file may give it in `layer`, likeliest
        first.

        Beside the canonical roles there may be `batches`, the number of batches that a normalisation has
        seen. It is kept, but never needed.
        """

    def counted_layers(
        self, graph: Graph, convolutions: Collection[str], layers: LayerNames
    ) -> Mapping[str, str]:
        """Return layer names by path for files that have class counters instead of names
        (Checkpoint.counted); empty if the framework has no such files.

        `convolutions` are dense nodes that are 1x1 convolutions in the source, `layers` the names that its
        layers have otherwise.
        """

    def numbered_layers(self, layers: Collection[str], tensors: Collection[str]) -> Mapping[str, str]:
        """Return the names, in a file with these `tensors`, of those of `layers` that the framework numbered
        when it made them; empty if the framework numbers nothing.
        """

    def to_canonical(self, graph: Graph, node: Node, role: str, array: Array) -> Array:
        """Return a file's array in porter's axis order (a view where possible).

        Raises:
            MappingError: the array has another rank.
        """

    def from_canonical(self, graph: Graph, node: Node, role: str, array: Array) -> Array:
        """Undo `to_canonical`."""


class PortDialect(Dialect, Protocol):
    """The dialect of a framework in which ports are trained on."""

    def port_keys(self, plan: Plan, layers: LayerNames) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Return the names by path and role that a file saved from a port's model gives its tensors,
        likeliest first. Tensors that only the destination's own layers have are among them, such as the gamma
        of a norm without a scale.

        Args:
            layers: as `Destination.write` (porter.frameworks).
        """


_DIALECTS = {
    name: f"porter.frameworks.{name}.dialect"
    for name in ("tf", "torch", "flax", "mlx", "jax", "mxnet", "caffe")
}


def get_dialect(framework: str) -> Dialect:
    """Return the dialect of a framework's code. This imports no framework."""
    return cast(Dialect, import_module(_DIALECTS[framework]))


def get_port_dialect(framework: str) -> PortDialect:
    """Return the dialect of one of porter.frameworks.TRAINED."""
    return cast(PortDialect, get_dialect(framework))


def without_batch(graph: Graph, node: Node, array: Array) -> Array:
    """Return a trained array without the axis for images that the parameters of transformers have, which are
    added to a batch.
    """
    axes = len(node.op.tensors(graph.channels_by_path[node.source])["value"])
    return array[0] if array.ndim > axes and array.shape[0] == 1 else array
