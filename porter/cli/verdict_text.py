"""The output of `porter verify` for people, and how other commands say how a check ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from porter.base.commands import VERIFY
from porter.base.errors import some
from porter.base.options import LAYERS
from porter.cli.printing import table

if TYPE_CHECKING:
    from porter.verification.results import Parity
    from porter.verification.verdict import Verdict


def parity_line(parity: Parity) -> str:
    """Write one comparison in a line: `float64: same function as ... at 128x97; 122 nodes, the worst 1.0e-14;
    ...`.
    """
    sizes = ", ".join(f"{rows}x{columns}" for rows, columns in parity.sizes)
    worst = parity.worst.rel_l2
    nodes = f"{len(parity.nodes)} nodes" if parity.uncompared or len(parity.nodes) > 1 else "the output only"
    top = f", argmax {parity.argmax}" if parity.argmax else ""
    return (
        f"{parity.dtype}: {parity.outcome} at {sizes}; {nodes}, the worst {worst:.1e}; logits "
        f"{parity.logits.rel_l2:.1e} (limit {parity.limit:.1e}), max {parity.logits.max_abs:.1e}{top}"
    )


def check_lines(result: Verdict) -> list[str]:
    """Return the lines of a check, without its verdict: each comparison, what was compared at cut points,
    what was never reached, and for training pads the proof of the shipped ones.
    """
    lines = [*map(parity_line, result.parities)]
    if result.user_proof:
        lines += [*map(parity_line, result.user_proof.parities), *result.user_proof.notes]
    if result.rounding:
        lines.append(result.rounding)
    for parity in result.parities:
        if parity.cut is not None:
            in_type = "" if parity.dtype == "float64" else f" in {parity.dtype}"
            lines.append(f"layers{in_type}: {parity.cut}")
    if count := len(result.proof.unreached):
        said = "1 bound, pad or epsilon was" if count == 1 else f"{count} bounds, pads or epsilons were"
        lines.append(
            f"{said} never reached in the test, so not checked ({VERIFY.name} with {LAYERS} lists them)"
        )
    if result.shipped is None:
        return lines
    shipped = result.shipped
    proved = [f"shipped pads, {parity_line(parity)}" for parity in result.shipped.parities]
    effect = (
        f"training pads change the logits by {shipped.rel_l2:.1e} (relative L2) "
        f"and the argmax on {shipped.argmax_differ} of {shipped.images} images"
    )
    return [*proved, *lines, effect]


def _reference_line(result: Verdict) -> str:
    """Say what ran beside the port, and on what: `reference: the file's own graph, run by TensorFlow; images,
    26 in float32 and 1 in float64: -1 to 1`.
    """
    parities = result.decisive
    images = " and ".join(f"{parity.inputs} in {parity.dtype}" for parity in parities)
    fed = f"images, {images}: {result.fed.words}"
    return f"reference: {parities[0].reference}, run by {parities[0].run_by}; {fed}"


def verdict(result: Verdict, layers: bool) -> list[str]:
    """Return the lines that `porter verify` prints: the checks, the reason if one fails, the notes, the
    reference, and the nodes that were not compared.

    Args:
        layers: add a table of all nodes, and the nodes whose bounds, pads or epsilons no value reached.
    """
    lines = check_lines(result)
    if not result.ok:
        lines.append(result.failure())
    if layers:
        rows = [
            (node.path, f"{node.rel_l2:.1e}", f"{node.max_abs:.1e}", "" if node.ok else "<-- above the limit")
            for node in result.proof.nodes
        ]
        lines += ["", *table(("node", "relative L2", "max abs", ""), rows)]
        lines += [f"never reached: {path}" for path in result.proof.unreached]
        inside = result.proof.cut.inside if result.proof.cut is not None else ()
        lines += [f"inside the network only: {path}" for path in inside]
    lines += [f"note: {note}" for note in result.notes]
    lines += [_reference_line(result), *result.held]
    if result.proof.uncompared:
        lines.append(
            f"not compared, because the reference has no value for them: {some(result.proof.uncompared)}"
        )
    return lines
