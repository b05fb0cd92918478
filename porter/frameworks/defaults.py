"""What most frameworks have in common, for their engines, destinations and dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from porter.base.errors import CannotRun

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from collections.abc import Collection, Mapping, Sequence

    from porter.base.dtypes import Array, Dtype
    from porter.base.errors import PorterError
    from porter.filegraph.checkpoint import Checkpoint
    from porter.frameworks import LayerNames, Tensors
    from porter.graph import Graph
    from porter.graph.plan import Plan
    from porter.padding import Size


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """Refuse the file: no file has a graph of this framework.

    Raises:
        CannotRun: always.
    """
    format_name = checkpoint.carried and checkpoint.format
    raise CannotRun(
        f"porter runs its own ports in this framework, and no {format_name} file", where=checkpoint.path
    )


def disagreement(checkpoint: Checkpoint, batch: Array) -> None:
    """Return None, whatever the file and the batch: there are no two other implementations that run such
    files.
    """


def with_other_pads(model: Any, plan: Plan) -> None:
    """Return None, for models that cannot share their weights with one of other pads: a model gets its
    padding when it is made.
    """


class DestinationDefaults:
    """What most destinations give. See porter.frameworks.Destination."""

    def refusals(self, plan: Plan) -> Sequence[PorterError]:
        """Return no refusals: the framework has words for every op."""
        return ()

    def code_files(self, plan: Plan, layers: LayerNames) -> Mapping[str, bytes]:
        """Return no files: a port has no code."""
        return {}

    def fillings(self, graph: Graph, tensors: Tensors) -> Mapping[str, int]:
        """Return no fillings: the model has only the tensors that the graph has."""
        return {}


def counted_layers(graph: Graph, convolutions: Collection[str], layers: LayerNames) -> Mapping[str, str]:
    """Return no counted layers: files have the layers' own names."""
    return {}


def numbered_layers(layers: Collection[str], tensors: Collection[str]) -> Mapping[str, str]:
    """Return no numbered layers: names are the user's own, or the code's."""
    return {}
