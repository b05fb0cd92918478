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
class Verdict:
    """A comparison in one number type or in both; the last is the most exact."""

    parities: tuple[Parity, ...]

    @property
    def ok(self) -> bool:
        return all(parity.ok for parity in self.parities)

    @property
    def proof(self) -> Parity:
        """The most exact comparison, or the first that failed."""
        return next((parity for parity in self.parities if not parity.ok), self.parities[-1])

    def failure(self) -> str:
        """One line on what failed, with the first node that stands out and its padding decision."""
        proof, bad = self.proof, self.proof.first_bad
        if bad is None:
            return f"the logits' largest value is at another place in {proof.dtype} (relative L2 {proof.logits.rel_l2:.1e})"
        decision = "" if bad.site is None else f"; padding at {bad.site}: {bad.source} in the source, {bad.realised} in the port"
        return (
            f"the port is not the source's function: {bad.path} is the first node that differs, relative L2 {bad.rel_l2:.1e} "
            f"in {proof.dtype}{decision}"
        )

    def record(self) -> dict[str, Any]:
        """As `porter verify --json` prints it: the proof, and every comparison's logits by number type."""
        fields = asdict(self.proof)
        summaries = {parity.dtype: _summary(parity) for parity in self.parities}
        record: dict[str, Any] = _finite({**fields, "ok": self.ok, "dtypes": summaries})
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
    protocol, channels = port.record.preprocess, port.record.input.channels
    batches = [test_batch(size, IMAGES, channels, protocol) for size in sizes]
    models: dict[Dtype, Any] = {}

    def run(batch: Array, dtype: Dtype) -> Mapping[str, Array]:
        if dtype not in models:
            models[dtype] = port.build(dtype, device, tensors)
        taps = [node.path for node in port.graph.nodes]
        return port.framework.run(models[dtype], batch.astype(np.dtype(dtype)), taps)

    return Verdict(compare(port.plan, source, run, batches, dtypes, tolerance))


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
