"""Checking a port on disk against its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np

from porter.dtypes import Array, Dtype
from porter.frameworks import Tensors
from porter.graph import site_of, tensor_shapes
from porter.port import GivenFile, Port
from porter.source.references import Source
from porter.verification.evidence import excitement
from porter.verification.inputs import SIGNED, InputRange, make_images, make_telling, ranges
from porter.verification.parity import Parity, compare
from porter.verification.sizes import Sizes

Proof = TypeVar("Proof", "Verdict", "GivenProof")

_NUMBERS = 10_000
"""So many numbers an input size has in all its images at least, up to `_MOST_IMAGES`: two images of a few cells show little."""
_MOST_IMAGES = 64
_MANY_IMAGES = 12
"""Images of a size where most layers cannot be compared one by one."""
CHECKED_DTYPES: tuple[Dtype, ...] = ("float32", "float64")
"""What a port is proved in."""


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
        inputs: see Verdict.
    """

    file: GivenFile
    parities: tuple[Parity, ...]
    notes: tuple[str, ...]
    apart: Mapping[str, float]
    inputs: str

    @property
    def all(self) -> tuple[Parity, ...]:
        return self.parities

    def record(self) -> dict[str, Any]:
        """As `porter verify --json` prints it."""
        return {"reference": self.parities[-1].reference, "dtypes": _summaries(self.parities), "notes": self.notes}


@dataclass(frozen=True)
class Verdict:
    """The comparisons in each number type; the last is the most exact.

    Attributes:
        inputs: the range of the numbers that both sides were fed.
        shipped: the proof of the shipped pads, if the port has training pads.
        rounding: see porter.port.Record.
        notes: on code that no comparison covers.
        given: the proof by the user's own reference; `parities` is empty if no other reference can run.
        disagreement: what two implementations that porter did not write disagree on, if the comparison failed; one is wrong.
    """

    parities: tuple[Parity, ...]
    inputs: str
    shipped: Shipped | None = None
    rounding: str | None = None
    notes: tuple[str, ...] = ()
    given: GivenProof | None = None
    disagreement: str | None = None

    @property
    def ok(self) -> bool:
        return self.proof.ok

    @property
    def all(self) -> tuple[Parity, ...]:
        """Every comparison, in the order in which they are judged."""
        return (*(self.shipped.parities if self.shipped else ()), *self.parities, *(self.given.all if self.given else ()))

    @property
    def proof(self) -> Parity:
        """The most exact comparison, or the first that failed, in float64 if one did."""
        given, failed = self.given.parities if self.given else (), [parity for parity in self.all if not parity.ok]
        return min(failed, key=lambda parity: parity.dtype != "float64") if failed else (self.parities or given)[-1]

    @property
    def rounds(self) -> Parity | None:
        """The comparison whose values round more than they should, though float64 proves the port."""
        return next((parity for parity in self.all if parity.rounds_from is not None), None)

    @property
    def advice(self) -> str | None:
        """What to do next where the reference's values tell nothing."""
        if self.proof.silent is None and self.disagreement is None:
            return None
        return "prove it by another implementation: --reference FILE.py:CALLABLE; or write it unproved: --no-check"

    def failure(self) -> str:
        """One line on the failure, with the first node that differs and its padding decision."""
        return self._failure() if self.disagreement is None else f"not proved: {self.disagreement}; {self._failure()}"

    def _failure(self) -> str:
        proof, bad = self.proof, self.proof.first_bad
        if proof.silent is not None:
            differs = f"; {bad.path} is the first node that differs, relative L2 {bad.rel_l2:.1e}" if bad else ""
            return f"not proved: {proof.silent} on inputs of {self.inputs}, so a wrong port would pass too{differs}"
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
            "range": self.inputs,
            "dtypes": _summaries(self.parities or (self.given.parities if self.given else ())),
            "shipped": self.shipped and self.shipped.record(),
            "given": self.given and self.given.record(),
            "rounding": self.rounding,
            "notes": self.notes,
        }
        record: dict[str, Any] = _finite({**fields, **own})
        return record


@dataclass(frozen=True)
class Check:
    """How a port is run to be compared.

    Attributes:
        dtypes: the number types to compare in.
        tolerance: see porter.verification.parity.compare.
        device: where the port runs, `cpu` or `cuda`; the source runs on the CPU.
        tensors: of the port, instead of the stored ones.
        fed: the range of the images.
        images: so many at each size, and more where they are small.
    """

    port: Port
    dtypes: tuple[Dtype, ...]
    tolerance: float | None = None
    device: str = "cpu"
    tensors: Tensors | None = None
    fed: InputRange = SIGNED
    images: int = 2

    def fed_with(self, source: Source, sizes: Sizes) -> Iterator[Check]:
        """This check with each range of inputs that a network may take, the one that it states or that excites the source most
        first (porter.verification.inputs.ranges).
        """
        graph, channels, size = self.port.graph, self.port.record.input.channels, sizes.of(self.dtypes[-1])[0]

        def excites(taken: InputRange) -> float:
            with np.errstate(all="ignore"):
                return excitement(source.run(make_images(size, 1, channels, taken), "float32"))

        for taken in ranges(graph, self.port.record.preprocess, excites):
            yield replace(self, fed=taken)

    def batches(self, sizes: Sizes) -> dict[Dtype, list[Array]]:
        """For each number type, the images of each size, N x C x H x W: one at a time, so that no more values are held, unless they
        are small. The number type that decides what the function is has `images` of a size, another has two.

        The limit in float32 is for several images together: for one image with few logits, rounding exceeds it by chance.
        """
        found: dict[Dtype, list[Array]] = {}
        for dtype in self.dtypes:
            least = self.images if dtype == "float64" or "float64" not in self.dtypes else 2
            found[dtype] = [batch for size in sizes.of(dtype) for batch in self._batches(size, least)]
        return found

    def _batches(self, size: tuple[int, int], least: int) -> list[Array]:
        channels = self.port.record.input.channels
        enough = -(-_NUMBERS // (channels * size[0] * size[1]))
        count = max(least, min(enough, _MOST_IMAGES))
        return np.array_split(make_telling(size, count, channels, self.fed), count if enough <= least else 2)

    def against(self, source: Source, sizes: Sizes, ending: Callable[[Array], Array] | None = None) -> tuple[Parity, ...]:
        """Compares the port with a source in each number type; on more images if the source shows little but its outputs.

        Args:
            ending: applied to the port's logits, where the source shows what comes after them.
        """
        found = self._compared(source, sizes, ending)
        computing = {node.path for node in self.port.graph.nodes if site_of(node.op)} | tensor_shapes(self.port.graph).keys()
        hidden = computing & set(found[-1].uncompared)
        if self.images >= _MANY_IMAGES or 2 * len(hidden) < len(computing) or not all(parity.ok for parity in found):
            return found
        return replace(self, images=_MANY_IMAGES)._compared(source, sizes, ending)

    def _compared(self, source: Source, sizes: Sizes, ending: Callable[[Array], Array] | None) -> tuple[Parity, ...]:
        port = self.port
        models: dict[Dtype, Any] = {}
        batches, taps = self.batches(sizes), [node.path for node in port.graph.nodes]

        def run(batch: Array, dtype: Dtype) -> Mapping[str, Array]:
            if dtype not in models:
                models[dtype] = port.build(dtype, self.device, self.tensors)
            last = batch is batches[dtype][-1]  # models are large: each is released after its last batch
            values = port.framework.run(models.pop(dtype) if last else models[dtype], batch.astype(np.dtype(dtype)), taps)
            output = port.graph.output
            return values if ending is None else {**values, output: ending(values[output])}

        return compare(port.plan, source, run, batches, self.tolerance)

    def prove(self, source: Source, sizes: Sizes) -> Verdict:
        """The comparison with a source, on inputs that tell if there are any."""
        return first_telling(check.verdict(source, sizes) for check in self.fed_with(source, sizes))

    def verdict(self, source: Source, sizes: Sizes) -> Verdict:
        """The comparison with a source on the inputs of this check."""
        return Verdict(self.against(source, sizes), self.fed.words, rounding=self.port.record.rounding)


def first_telling(proofs: Iterable[Proof]) -> Proof:
    """The first proof on values that tell, otherwise the first of all."""
    first: Proof | None = None
    for proof in proofs:
        if all(parity.ok or parity.silent is None for parity in proof.all):
            return proof
        first = first or proof
    assert first is not None, "a network takes one range of inputs at least"
    return first


def _summaries(parities: Sequence[Parity]) -> dict[str, dict[str, Any]]:
    """What is recorded of the comparison in each number type."""
    return {
        parity.dtype: {
            "ok": parity.ok,
            "rounds_from": parity.rounds_from,
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
