"""The output of `porter compare` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from porter.cli.printing import table

if TYPE_CHECKING:
    from porter.comparison.comparison_result import Comparison


def comparison(found: Comparison, layers: bool) -> list[str]:
    """Return the lines of `porter compare`: the verdict and what differs, how far the outputs are apart, how
    many layers are paired, and notes. With `layers`, add a table of the layers.
    """
    lines = found.lines()
    if found.parity is not None:
        top = {None: "", True: ", argmax equal", False: ", argmax differs"}[found.parity.argmax_equal]
        lines.append(f"outputs: relative L2 {found.parity.rel_l2:.1e} at {found.size}{top}")
    if found.layers:
        paired = sum(layer.a is not None and layer.b is not None for layer in found.layers)
        unpaired = ""
        if found.only_a or found.only_b:
            unpaired = f", {len(found.only_a)} only in A, {len(found.only_b)} only in B"
        lines.append(f"layers: {paired} paired{unpaired}")
    # There may be no proofs.
    proofs = zip(("A", "B"), (found.a, found.b), found.proofs, strict=False)
    lines += [f"{side}: {name}: {proof.words}" for side, name, proof in proofs]
    lines += [f"note: {note}" for note in found.notes]
    if layers:
        rows = [
            (layer.a or "-", layer.b or "-", layer.kind, "" if layer.apart is None else f"{layer.apart:.1e}")
            for layer in found.layers
        ]
        lines += ["", *table(("A", "B", "kind", "apart for the same numbers"), rows)]
    return lines
