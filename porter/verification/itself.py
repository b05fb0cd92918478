"""What a user's own model gives as it is. Its port is proved with the graph that the model was saved as, and
that has to be the model's function.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from porter.base.dtypes import Array, Dtype
from porter.base.errors import Contradiction
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import engine_name, get_engine
from porter.frameworks.images import as_taken
from porter.frameworks.in_memory import Saved
from porter.graph.ops import shape_text
from porter.padding import ANY
from porter.verification.numbers import moved, norms
from porter.verification.parity import FLOAT32_LIMIT, OWN_ROUNDING
from porter.verification.user_code import running_model

_MOST = 0.1
"""No rounding moves an output by more."""
_DRAWS = 4
"""How often the rounding of a network is drawn, each time with its inputs moved by one rounding."""


def held_to_itself(saved: Saved, checkpoint: Checkpoint, batch: Array) -> tuple[str, ...]:
    """How near a model's outputs are to those of the graph that it was saved as, in a sentence.

    Args:
        checkpoint: what the model was saved as, as read.
        batch: images N x C x H x W.

    Raises:
        Contradiction: the model gives more outputs or fewer, of other shapes, or further apart than number
            types round.
        NotInstalled, CannotRun: the graph cannot be run.
        UsageError: the model raises an exception.
    """
    graph, itself = checkpoint.carried, f"the model {saved.name} itself"
    named = {node: tap for tap, node in graph.given.items()}
    taps = [named[node] for node in graph.outputs]
    images = (np.rint(batch) if saved.whole else batch).astype(np.float32)
    arrays = {place for place, tap in enumerate(taps) if tap in graph.arrays}
    assert saved.itself is not None, "the model is run as it is"
    with running_model(itself):
        own = saved.itself(as_taken(images, graph), arrays, graph.output_names)
    if len(own) != len(taps):
        raise Contradiction(f"{itself} gives {len(own)} outputs, and {saved.graph} has {len(taps)}")
    read, worst = _Read(checkpoint, images, taps), 0.0
    for place, (wanted, got) in enumerate(zip(own, read.outputs("float32"), strict=True)):
        where = f"output {place + 1} of {itself}" if len(taps) > 1 else f"the output of {itself}"
        if wanted.shape != got.shape:
            theirs, ours = (shape_text(value.shape[1:]) for value in (wanted, got))
            raise Contradiction(f"{where} is {theirs}, and in {saved.graph} as porter reads it {ours}")
        apart = norms(wanted, got).rel_l2
        if apart > FLOAT32_LIMIT and apart > (limit := min(_MOST, OWN_ROUNDING * read.rounding(place))):
            raise Contradiction(
                f"{where} is {apart:.1e} from that of {saved.graph} as porter reads it (limit {limit:.1e})"
            )
        worst = max(worst, apart)
    return (f"the outputs: held to {itself}, {worst:.1e} apart",)


class _Read:
    """A graph as porter reads it, run by its engine."""

    def __init__(self, checkpoint: Checkpoint, images: Array, taps: Sequence[str]) -> None:
        self._checkpoint, self._images, self._taps = checkpoint, images, taps
        self._models: dict[Dtype, object] = {}
        self._engine = get_engine(engine_name(checkpoint))

    def outputs(self, dtype: Dtype, seed: int | None = None) -> list[Array]:
        """The outputs in a type; with a `seed`, of inputs that are moved by one rounding."""
        if dtype not in self._models:
            graph = self._checkpoint.carried
            self._models[dtype] = self._engine.build_file(
                self._checkpoint, dtype, ANY if graph.resizable else graph.size
            )
        batch = self._images if seed is None else moved(self._images, seed)
        found = self._engine.run_reference(
            self._models[dtype], batch.astype(dtype), {tap: tap for tap in self._taps}
        )
        return [found[tap] for tap in self._taps]

    def rounding(self, place: int) -> float:
        """How far an output in float32 is from itself in float64, at most of several draws."""
        exact = self.outputs("float64")[place]
        drawn = (self.outputs("float32", seed)[place] for seed in (None, *range(_DRAWS)))
        return max(norms(exact, value).rel_l2 for value in drawn)
