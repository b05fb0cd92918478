"""What a port loses by the rounding of its weights, which its comparison with the source leaves out:
measured, and no proof.
"""

from __future__ import annotations

from dataclasses import replace

from porter.frameworks import is_converted
from porter.verification.check import Check
from porter.verification.inputs import make_images
from porter.verification.numbers import distance
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
    top = {None: "", True: "; no top class changes", False: "; a top class changes"}[loss.argmax_equal]
    if port.record.quantize is not None and not loss.rel_l2:
        none = "the converter rounded no weights: it leaves tensors of fewer than 1,024 numbers in float32"
        return replace(verdict, loss=loss, rounding=none)
    effect = f"the rounding moves the output by {loss.rel_l2:.1e} (relative L2 over {INPUTS} inputs{top})"
    return replace(verdict, loss=loss, rounding=f"{effect}; {verdict.rounding}")
