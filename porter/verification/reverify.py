"""Comparing a port on disk with its source again."""

from __future__ import annotations

from pathlib import Path

from porter.dtypes import Dtype
from porter.errors import UsageError
from porter.port import read_port
from porter.recipe import find_recipe
from porter.sources import open_source
from porter.verification.check import Verdict, check


def verify(
    folder: Path, *, weights: Path | None, float64: bool, device: str, tolerance: float | None, recipes: Path | None
) -> Verdict:
    """See porter.verify.

    Raises:
        UsageError: the weights are not the ones that the port was made from.
    """
    port = read_port(folder)
    record = port.record
    recipe = find_recipe(record.variant, recipes)
    opened = open_source(recipe, record.variant, recipe.zoo(record.zoo, record.variant), weights, record.background)
    if opened.file.sha256 != record.source.sha256:
        raise UsageError(
            f"the port was made from {record.source.file}, sha256 {record.source.sha256[:12]}..., not from this file, "
            f"{opened.file.sha256[:12]}...",
            where=str(weights or opened.file.file),
            next=f"give --weights the {record.source.file} that the port was made from",
        )
    dtypes: tuple[Dtype, ...] = ("float32", "float64") if float64 else ("float32",)
    source = opened.reference(record.dtype) or opened.own(record.dtype)
    return check(port, source, dtypes, tolerance, device)
