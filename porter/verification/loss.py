"""What rounding loses that a port's comparison with its source leaves out: that of the port's weights, and
that of a source in half precision. It is measured, and no proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from porter.base.dtypes import Array
from porter.base.errors import first_line
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import is_converted
from porter.frameworks.in_memory import Saved
from porter.verification.check import Check
from porter.verification.inputs import make_images
from porter.verification.numbers import distance
from porter.verification.results import Distance, farthest
from porter.verification.saved_graph import ReadGraph, as_model_input
from porter.verification.verdict import Verdict

INPUTS = 8


def with_loss(check: Check, verdict: Verdict) -> Verdict:
    """Add to a verdict how far the rounding of the weights moves the port's output, for a port that a
    converter made with rounded weights, such as half precision or whole numbers. Return any other verdict as
    it is.

    Args:
        check: its tensors are the port's and its source's.
    """
    port, first = check.port, verdict.all[0]
    if not is_converted(port.destination) or verdict.rounding is None or not verdict.ok:
        return verdict
    batch = make_images(first.sizes[0], INPUTS, port.record.input.channels, verdict.fed).astype("float32")
    engine, output = port.destination.ENGINE, port.graph.output
    unrounded = port.build("float32", tensors=check.tensors)
    rounded = port.build()
    wanted, got = (engine.run(model, batch, [output])[output] for model in (unrounded, rounded))
    loss = distance(wanted, got)
    if port.record.quantize is not None and not loss.rel_l2:
        none = "the converter rounded no weights: it leaves tensors of fewer than 1,024 numbers in float32"
        return replace(verdict, loss=loss, rounding=none)
    effect = f"the rounding moves the output by {loss.rel_l2:.1e} {_measured([loss], INPUTS)}"
    return replace(verdict, loss=loss, rounding=f"{effect}; {verdict.rounding}")


def half_precision_loss(checkpoint: Checkpoint, saved: Saved | None, batch: Array) -> str | None:
    """Say how far the outputs of a file, or of the model in memory that was saved as it, are from what is
    ported, because its framework computes in half precision. Return None where it does not, and a line that
    says why where it cannot be measured.

    Args:
        saved: the model in memory; None for a file.
        batch: images N x C x H x W.
    """
    graph = checkpoint.graph
    if graph is None or not graph.halves:
        return None
    read = ReadGraph(checkpoint, as_model_input(batch, saved))
    source = "the file" if saved is None else f"the model {saved.name}"
    fact = f"{source} computes in {' and '.join(graph.halves)}, and is ported in exact arithmetic"
    try:
        if saved is None or saved.run_itself is None:
            in_halves: Sequence[Array] = read.outputs(read.type)
        else:
            in_halves = read.run_model(saved)
        exact_outputs = read.outputs("float64")
        distances = [distance(exact, half) for exact, half in zip(exact_outputs, in_halves, strict=True)]
    except Exception as error:  # whatever a framework raises that lacks an operator in half precision
        return f"{fact}; how far its own outputs are was not measured: {first_line(error)}"
    loss = farthest(distances).rel_l2
    if not math.isfinite(loss):
        return f"{fact}: its own outputs are not finite there"
    return f"{fact}: its own outputs are {loss:.1e} away {_measured(distances, len(batch))}"


def _measured(distances: Sequence[Distance], inputs: int) -> str:
    """Say how a loss was measured, and whether a top class changes, for outputs of which one has classes."""
    same_tops = [of_output.argmax_equal for of_output in distances if of_output.argmax_equal is not None]
    top = ""
    if same_tops:
        top = "; no top class changes" if all(same_tops) else "; a top class changes"
    return f"(relative L2 over {inputs} inputs{top})"
