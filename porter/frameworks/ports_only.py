"""What the engines share that run ports only: no file has a graph of their framework, and no port another
plan's weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from porter.base.errors import CannotRun

if TYPE_CHECKING:  # `porter pads` needs no numpy
    from collections.abc import Mapping

    from porter.base.dtypes import Array, Dtype
    from porter.filegraph.checkpoint import Checkpoint
    from porter.frameworks import Alone
    from porter.graph.plan import Plan
    from porter.padding import Size


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
    """None is built.

    Raises:
        CannotRun: always.
    """
    of = checkpoint.carried and checkpoint.format
    raise CannotRun(
        f"porter runs its own ports in this framework, and no {of} file", where=str(checkpoint.path)
    )


def run_alone(model: Any, fed: Mapping[str, Alone]) -> dict[str, Array]:
    """Nothing: no other implementation's layers are run."""
    return {}


def disagreement(checkpoint: Checkpoint, batch: Array) -> None:
    """None: no other implementation runs such files."""


def twin(model: Any, plan: Plan) -> None:
    """None: a model gets its padding when it is made."""
