"""The model that a user holds, beside the graph that it was saved as. Its port is proved with that graph,
which has to be the model's function.
"""

from __future__ import annotations

import numpy as np

from porter.base.dtypes import Array, Dtype
from porter.base.errors import CannotRun, Contradiction, NotInstalled, escaped
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import engine_name, get_engine
from porter.frameworks.batches import arrays_for_inputs
from porter.frameworks.in_memory import Saved
from porter.graph.ops import shape_text
from porter.padding import ANY
from porter.verification.numbers import moved, norms
from porter.verification.parity import FLOAT32_LIMIT, OTHER_FUNCTION, OWN_ROUNDING, ROUNDING_DRAWS
from porter.verification.references.user_code import running_model
from porter.verification.results import severity
from porter.verification.witnesses import Testimony


def compare_with_saved_graph(saved: Saved, checkpoint: Checkpoint, batch: Array) -> Testimony:
    """Compare the outputs of a model that a user holds with those of the graph that it was saved as, which is
    what porter reads and ports; return in words how near they are.

    Args:
        checkpoint: what the model was saved as, as read.
        batch: images N x C x H x W.

    Raises:
        Contradiction: the model gives more outputs or fewer, of other shapes, or further apart than number
            types round.
        UsageError: the model raises an exception.
    """
    read = ReadGraph(checkpoint, as_model_input(batch, saved))
    itself = f"the model {saved.name} itself"
    worst = 0.0
    model_outputs = read.run_model(saved)
    count = len(model_outputs)
    if count != len(read.taps):
        raise Contradiction(f"{itself} gives {count} outputs, and {saved.graph} has {len(read.taps)}")
    try:
        read_outputs = read.outputs(read.type)
    except (NotInstalled, CannotRun) as error:
        held = f"the outputs: by porter's reading only, because {escaped(error.message)}"
        # A copy of the model is a reference of its own (porter.verification.references.user_reference).
        return Testimony((held,), None if saved.make_copy else f"{itself}, whose file does not run")
    for number, (wanted, got) in enumerate(zip(model_outputs, read_outputs, strict=True)):
        where = f"output {number + 1} of {itself}" if count > 1 else f"the output of {itself}"
        if wanted.shape != got.shape:
            of_model, as_read = (shape_text(value.shape[1:]) for value in (wanted, got))
            raise Contradiction(f"{where} is {of_model}, and in {saved.graph} as porter reads it {as_read}")
        rel_l2 = severity(norms(wanted, got).rel_l2)
        if rel_l2 > FLOAT32_LIMIT:
            # The network's own rounding may explain more. Measuring it takes several runs.
            limit = min(OTHER_FUNCTION, OWN_ROUNDING * read.rounding(number))
            if rel_l2 > limit:
                raise Contradiction(
                    f"{where} is {rel_l2:.1e} from that of {saved.graph} as porter reads it "
                    f"(limit {limit:.1e})"
                )
        worst = max(worst, rel_l2)
    return Testimony((f"the outputs: held to {itself}, {worst:.1e} apart",))


def as_model_input(batch: Array, saved: Saved | None) -> Array:
    """Return images N x C x H x W as a model takes them: in single precision, and rounded where it takes
    whole numbers.
    """
    takes_integers = saved is not None and saved.takes_integers
    return (np.rint(batch) if takes_integers else batch).astype(np.float32)


class ReadGraph:
    """A graph as porter reads it, run by its engine.

    Attributes:
        taps: what its framework calls the outputs, in their order.
        type: the number type that the file states.
    """

    def __init__(self, checkpoint: Checkpoint, images: Array) -> None:
        self._checkpoint, self._images, self._graph = checkpoint, images, checkpoint.carried
        self._engine = get_engine(engine_name(checkpoint))
        self._models = dict[Dtype, object]()
        # by the file's node, the tap: the name under which the engine gives its value
        named = {node: tap for tap, node in self._graph.given.items()}
        self.taps = [named[node] for node in self._graph.outputs]
        self.type: Dtype = self._graph.halves[0] if self._graph.halves else "float32"

    def run_model(self, saved: Saved) -> tuple[Array, ...]:
        """Run the model that was saved, and return its outputs in their order."""
        assert saved.run_itself is not None, "the model is run as it is"
        arrays = {number for number, tap in enumerate(self.taps) if tap in self._graph.arrays}
        with running_model(f"the model {saved.name} itself"):
            return saved.run_itself(
                arrays_for_inputs(self._images, self._graph), arrays, self._graph.output_names
            )

    def outputs(self, dtype: Dtype, seed: int | None = None) -> list[Array]:
        """Return the graph's outputs in a number type; with a `seed`, those of inputs that are moved by one
        rounding.
        """
        if dtype not in self._models:
            size = ANY if self._graph.resizable else self._graph.size
            self._models[dtype] = self._engine.build_file(self._checkpoint, dtype, size)
        batch = self._images if seed is None else moved(self._images, seed)
        batch = batch.astype(np.float64) if dtype == "float64" else batch
        values = self._engine.run_reference(self._models[dtype], batch, {tap: tap for tap in self.taps})
        return [values[tap] for tap in self.taps]

    def rounding(self, output: int) -> float:
        """Return how far float32, or the file's half precision, moves an output from float64: the largest of
        several draws, each with other roundings of the inputs.
        """
        exact = self.outputs("float64")[output]
        drawn = (self.outputs(self.type, seed)[output] for seed in (None, *range(ROUNDING_DRAWS)))
        return max(norms(exact, value).rel_l2 for value in drawn)
