"""Checking a port on disk against its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from porter.dtypes import Array, Dtype
from porter.frameworks import Tensors
from porter.port import GivenFile, Port
from porter.source.references import Source
from porter.verification.inputs import make_batch
from porter.verification.parity import Parity, compare
from porter.verification.sizes import Sizes

IMAGES = 2
"""Images for each input size. Logits differ between images, and a wrong pad changes the logits of each."""


@dataclass(frozen=True)
class Shipped:
    """The proof of the shipped pads, for a port with training pads.

    Attributes:
        parities: comparisons of the same graph with the shipped pads, in the source's framework, with the reference.
        rel_l2: the relative L2 distance between the reference's logits and those with training pads, in float64.
        argmax_differ: the number of `images` whose largest logit is at another place.
    """

    parities: tuple[Parity, ...]
    rel_l2: float
    argmax_differ: int
    images: int

    def record(self) -> dict[str, Any]:
        """As `porter verify --json` prints it."""
        fields = {"rel_l2": self.rel_l2, "argmax_differ": self.argmax_differ, "images": self.images}
        return {"reference": self.parities[-1].reference, **fields, "dtypes": _summaries(self.parities)}


@dataclass(frozen=True)
class GivenProof:
    """The comparisons with the user's own reference (`--reference`), and notes on what it ran with.

    Attributes:
        apart: see porter.source.given.GivenReference.
    """

    file: GivenFile
    parities: tuple[Parity, ...]
    notes: tuple[str, ...]
    apart: Mapping[str, float]

    def record(self) -> dict[str, Any]:
        """As `porter verify --json` prints it."""
        return {"reference": self.parities[-1].reference, "dtypes": _summaries(self.parities), "notes": self.notes}


@dataclass(frozen=True)
class Verdict:
    """The comparisons in each number type; the last is the most exact.

    Attributes:
        shipped: the proof of the shipped pads, if the port has training pads.
        rounding: see porter.port.Record.
        notes: on code that no comparison covers.
        given: the proof by the user's own reference; `parities` is empty if no other reference can run.
    """

    parities: tuple[Parity, ...]
    shipped: Shipped | None = None
    rounding: str | None = None
    notes: tuple[str, ...] = ()
    given: GivenProof | None = None

    @property
    def ok(self) -> bool:
        return self.proof.ok

    @property
    def proof(self) -> Parity:
        """The most exact comparison, or the first that failed."""
        before, given = self.shipped.parities if self.shipped else (), self.given.parities if self.given else ()
        return next((parity for parity in (*before, *self.parities, *given) if not parity.ok), (self.parities or given)[-1])

    @property
    def exact(self) -> Parity | None:
        """The comparison in float64 that holds, where float32 misses its limit by less than ten times: that is rounding only."""
        proof, bad = self.proof, self.proof.first_bad
        near = bad is not None and bad.shapes is None and proof.logits.rel_l2 < 10 * proof.limit
        if not near or proof.dtype != "float32" or proof not in self.parities:
            return None
        return next((parity for parity in self.parities if parity.ok and parity.dtype == "float64"), None)

    def failure(self) -> str:
        """One line on the failure, with the first node that differs and its padding decision."""
        proof, bad = self.proof, self.proof.first_bad
        if self.exact is not None and bad is not None:
            sizes = ", ".join(f"{rows}x{columns}" for rows, columns in self.exact.sizes)
            said = f"the port is the source's function in float64 at {sizes} (logits {self.exact.logits.rel_l2:.1e})"
            lost = f"logits {proof.logits.rel_l2:.1e} (limit {proof.limit:.1e}), from {bad.path} on"
            return f"{said} and rounds more than it may in float32: {lost}"
        given = self.given is not None and proof in self.given.parities
        if self.given is not None and given:
            what, whose, notes = "the port", f"the function of {proof.reference}", "".join(f"; {note}" for note in self.given.notes)
        else:
            what = "the port" if proof in self.parities else "porter's own build with the shipped pads"
            whose, notes = "the source's function", ""
        if bad is None:
            place = f"the logits' largest value is at another place in {proof.dtype} (relative L2 {proof.logits.rel_l2:.1e})"
            return f"{what} is not {whose}: {place}{notes}" if given else place
        source = "" if given else f"{bad.source} in the source, "
        said = f"relative L2 {bad.rel_l2:.1e} in {proof.dtype}"
        if bad.shapes is not None:
            theirs, ours = ("x".join(map(str, shape)) for shape in bad.shapes)
            said = f"{ours} in {what} and {theirs} in {proof.reference}"
        if bad.unseen:
            said += f"; before it {', '.join(bad.unseen[:5])} could not be compared"
        apart = self.given.apart if self.given is not None and given else {}
        other = next((path for path in (bad.path, *bad.unseen) if path in apart), None)
        if other is not None:
            said += f"; the weights of {other} are {apart[other]:.1e} from the source's"
        elif bad.site is not None:
            said += f"; padding at {bad.site}: {source}{bad.realised} in {what}"
        return f"{what} is not {whose}: {bad.path} is the first node that differs, {said}{notes}"

    def record(self) -> dict[str, Any]:
        """As `porter verify --json` prints it: the proof, and every comparison's logits by number type."""
        fields = asdict(self.proof)
        own = {
            "ok": self.ok,
            "dtypes": _summaries(self.parities or (self.given.parities if self.given else ())),
            "shipped": self.shipped and self.shipped.record(),
            "given": self.given and self.given.record(),
            "rounding": self.rounding,
            "notes": self.notes,
        }
        record: dict[str, Any] = _finite({**fields, **own})
        return record


def check(
    port: Port,
    source: Source,
    sizes: Sizes,
    dtypes: Sequence[Dtype],
    tolerance: float | None = None,
    device: str = "cpu",
    tensors: Tensors | None = None,
    ending: Callable[[Array], Array] | None = None,
) -> Verdict:
    """Compares a port with its source in each of `dtypes`.

    Args:
        sizes: the input sizes to compare at.
        tolerance: see porter.verification.parity.compare.
        device: where the port runs, `cpu` or `cuda`; the source runs on the CPU.
        tensors: of the port, instead of the stored ones.
        ending: applied to the port's logits, where the source shows what comes after them.
    """
    models: dict[Dtype, Any] = {}
    batches, taps = make_batches(port, sizes, dtypes), [node.path for node in port.graph.nodes]

    def run(batch: Array, dtype: Dtype) -> Mapping[str, Array]:
        if dtype not in models:
            models[dtype] = port.build(dtype, device, tensors)
        last = batch is batches[dtype][-1]  # models are large: each is released after its last batch
        values = port.framework.run(models.pop(dtype) if last else models[dtype], batch.astype(np.dtype(dtype)), taps)
        output = port.graph.output
        return values if ending is None else {**values, output: ending(values[output])}

    parities = compare(port.plan, source, run, batches, tolerance)
    return Verdict(parities, rounding=port.record.rounding)


def make_batches(port: Port, sizes: Sizes, dtypes: Sequence[Dtype]) -> dict[Dtype, list[Array]]:
    """For each of `dtypes`, the images of each size, prepared like the port's input: 1 x C x H x W each, so that the values of one
    image are held at a time.

    The limit in float32 is for several images together: for one image with few logits, rounding exceeds it by chance.
    """
    protocol, channels = port.record.preprocess, port.record.input.channels
    images = {size: np.split(make_batch(size, IMAGES, channels, protocol), IMAGES) for dtype in dtypes for size in sizes.of(dtype)}
    return {dtype: [image for size in sizes.of(dtype) for image in images[size]] for dtype in dtypes}


def _summaries(parities: Sequence[Parity]) -> dict[str, dict[str, Any]]:
    """What is recorded of the comparison in each number type."""
    return {
        parity.dtype: {
            "ok": parity.ok,
            "logits": asdict(parity.logits),
            "limit": parity.limit,
            "source_rounding": parity.source_rounding,
        }
        for parity in parities
    }


def _finite(value: Any) -> Any:
    """The value for JSON: an infinite or undefined distance becomes null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
