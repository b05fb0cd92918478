"""Checking a port on disk against its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from porter.dtypes import Array, Dtype
from porter.frameworks import Tensors
from porter.plan import Plan
from porter.port import Port
from porter.verification.inputs import test_batch
from porter.verification.parity import Parity, compare
from porter.verification.source import Source

IMAGES = 2
"""Per input size; logits vary across images, and a wrong pad moves every one of them."""


@dataclass(frozen=True)
class Shipped:
    """What stands behind the check of a port with the pads of training.

    Attributes:
        parities: of the same graph with the shipped pads, in the source's framework, with the reference.
        rel_l2: how far the pads of training take the reference's logits, as relative L2 distance in float64.
        argmax_differ: on how many of `images` the largest logit is at another place.
    """

    parities: tuple[Parity, ...]
    rel_l2: float
    argmax_differ: int
    images: int

    def record(self) -> dict[str, Any]:
        """As `porter verify --json` prints it."""
        fields = {"rel_l2": self.rel_l2, "argmax_differ": self.argmax_differ, "images": self.images}
        summaries = {parity.dtype: _summary(parity) for parity in self.parities}
        return {"reference": self.parities[-1].reference, **fields, "dtypes": summaries}


@dataclass(frozen=True)
class Verdict:
    """A comparison in one number type or in both; the last is the most exact.

    Attributes:
        shipped: where the port has the pads of training.
        rounding: see porter.port.Record.
        notes: on what no comparison covers.
    """

    parities: tuple[Parity, ...]
    shipped: Shipped | None = None
    rounding: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.proof.ok

    @property
    def proof(self) -> Parity:
        """The most exact comparison, or the first that failed."""
        before = self.shipped.parities if self.shipped else ()
        return next((parity for parity in (*before, *self.parities) if not parity.ok), self.parities[-1])

    def failure(self) -> str:
        """One line on what failed, with the first node that stands out and its padding decision."""
        proof, bad = self.proof, self.proof.first_bad
        what = "the port" if proof in self.parities else "porter's own build with the shipped pads"
        if bad is None:
            return f"the logits' largest value is at another place in {proof.dtype} (relative L2 {proof.logits.rel_l2:.1e})"
        decision = "" if bad.site is None else f"; padding at {bad.site}: {bad.source} in the source, {bad.realised} in {what}"
        return (
            f"{what} is not the source's function: {bad.path} is the first node that differs, relative L2 {bad.rel_l2:.1e} "
            f"in {proof.dtype}{decision}"
        )

    def record(self) -> dict[str, Any]:
        """As `porter verify --json` prints it: the proof, and every comparison's logits by number type."""
        fields = asdict(self.proof)
        summaries = {parity.dtype: _summary(parity) for parity in self.parities}
        shipped = self.shipped and self.shipped.record()
        own = {"ok": self.ok, "dtypes": summaries, "shipped": shipped, "rounding": self.rounding, "notes": self.notes}
        record: dict[str, Any] = _finite({**fields, **own})
        return record


def check(
    port: Port,
    source: Source,
    sizes: Sequence[tuple[int, int]],
    dtypes: Sequence[Dtype],
    tolerance: float | None = None,
    device: str = "cpu",
    tensors: Tensors | None = None,
) -> Verdict:
    """Compares a port with its source in each of `dtypes`.

    Args:
        sizes: of the input, rows and columns, to compare at.
        tolerance: see porter.verification.parity.compare.
        device: where the port runs, `cpu` or `cuda`; the source runs on the CPU.
        tensors: of the port, instead of the stored ones.
    """
    models: dict[Dtype, Any] = {}

    def run(batch: Array, dtype: Dtype) -> Mapping[str, Array]:
        if dtype not in models:
            models[dtype] = port.build(dtype, device, tensors)
        taps = [node.path for node in port.graph.nodes]
        return port.framework.run(models[dtype], batch.astype(np.dtype(dtype)), taps)

    parities = compare(port.plan, source, run, test_batches(port, sizes), dtypes, tolerance)
    return Verdict(parities, rounding=port.record.rounding)


def test_batches(port: Port, sizes: Sequence[tuple[int, int]]) -> list[Array]:
    """One batch N x C x H x W of each size, prepared as the port's input is."""
    protocol, channels = port.record.preprocess, port.record.input.channels
    return [test_batch(size, IMAGES, channels, protocol) for size in sizes]


def check_sizes(plan: Plan, native: tuple[int, int], source: Source, built: tuple[int, int] | None) -> list[tuple[int, int]]:
    """The sizes to compare at: the only one a port takes, or its native one and an odd, oblong one, where pads differ.

    Of these, what the source can be run on; where that is none, the size that it was `built` for, if the port takes that.
    """
    wanted = [native, (native[0] + 1, max(1, native[1] - 23))] if plan.size is None else [plan.size]
    taken = [size for size in wanted if source.takes(size)]
    return taken or ([built] if built is not None and plan.size is None else [])


def _summary(parity: Parity) -> dict[str, Any]:
    return {
        "ok": parity.ok,
        "logits": asdict(parity.logits),
        "limit": parity.limit,
        "source_rounding": parity.source_rounding,
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: a distance that is none becomes null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
