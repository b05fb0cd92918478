"""Ports proved against the zoos' own implementations."""

from __future__ import annotations

from pathlib import Path

import porter
from porter.conversion import Conversion
from porter.recipe import find_recipe
from porter.sources import open_source
from porter.verification.check import Verdict, check
from porter.verification.parity import Parity


def check_parity(variant: str, zoo: str, framework: str, weights: Path, folder: Path, size: str | None = None) -> Parity:
    """Converts, with the check that every conversion makes, and returns its comparison in float64."""
    made = porter.convert(variant, zoo, framework, weights=weights, out=folder / "port", input_size=size, check=True)
    assert made.verdict is not None
    return _expect_proof(made, made.verdict)


def check_small(variant: str, zoo: str, framework: str, weights: Path, folder: Path, size: tuple[int, int]) -> Parity:
    """As `check_parity`, at one small size, where the check of a port that takes every size runs at its native one."""
    text = f"{size[0]}x{size[1]}"
    made = porter.convert(variant, zoo, framework, weights=weights, out=folder / "port", input_size=text, check=False)
    recipe = find_recipe(variant)
    opened = open_source(recipe, variant, recipe.zoo(zoo, variant), weights)
    reference = next(iter(opened.references("float32")))
    return _expect_proof(made, check(made.port, reference, [size], ("float32", "float64")))


def _expect_proof(made: Conversion, verdict: Verdict) -> Parity:
    """1e-10 at every node in float64, convolutions and the head among them, and no more than rounding in float32."""
    single, double = verdict.parities
    record = made.port.record
    assert (single.dtype, double.dtype) == ("float32", "float64")
    assert double.reference == find_recipe(record.variant).zoo(record.zoo, record.variant).reference
    assert all(node.rel_l2 <= 1e-10 for node in double.nodes) and double.logits.argmax_equal
    assert single.logits.rel_l2 <= max(1e-5, 4 * single.source_rounding) and single.logits.argmax_equal
    weighted = {node.path for node in made.port.graph.nodes if node.op_name in ("conv", "dense")}
    assert weighted <= {node.path for node in double.nodes}
    return double
