"""A conversion whose check must have proved the port against the zoo's own implementation."""

from __future__ import annotations

from pathlib import Path

import porter
from porter.recipe import find_recipe
from porter.verification.parity import Parity


def check_parity(variant: str, zoo: str, framework: str, weights: Path, folder: Path, size: str | None = None) -> Parity:
    """Converts, and returns the comparison in float64: 1e-10 at every node, convolutions and the head among them."""
    made = porter.convert(variant, zoo, framework, weights=weights, out=folder / "port", input_size=size, check=True)
    assert made.verdict is not None
    single, double = made.verdict.parities
    assert (single.dtype, double.dtype) == ("float32", "float64")
    assert double.reference == find_recipe(variant).zoo(zoo, variant).reference
    assert all(node.rel_l2 <= 1e-10 for node in double.nodes) and double.logits.argmax_equal
    assert single.logits.rel_l2 <= max(1e-5, 4 * single.source_rounding) and single.logits.argmax_equal
    weighted = {node.path for node in made.port.graph.nodes if node.op_name in ("conv", "dense")}
    assert weighted <= {node.path for node in double.nodes}
    return double
