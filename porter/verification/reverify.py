"""Compares a port on disk with its source again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

from porter.dtypes import Dtype
from porter.errors import MissingFramework, UsageError
from porter.frameworks import Tensors
from porter.padding import ANY, Size
from porter.port import OWN_BUILD, Port, Record, read_port
from porter.source.given import Given, GivenReference, open_given
from porter.source.ladder import Form, first_that_runs, on_ladder
from porter.source.of_port import source_of
from porter.source.opened import Opened
from porter.source.references import OwnBuild, Source
from porter.verification.check import GivenProof, Verdict, check
from porter.verification.computed import Shifted, unrounded_tensors
from porter.verification.parity import Parity
from porter.verification.sizes import check_sizes
from porter.verification.trained import check_trained

ROUNDED = 1e-6
"""Weights no further apart, in relative L2 distance, are the same numbers rounded to float32 in two ways (measured: 7e-8)."""


def verify(
    folder: Path,
    *,
    weights: Path | None,
    float64: bool,
    device: str,
    tolerance: float | None,
    given: Given | None,
    recipes: Path | None,
) -> Verdict:
    """See porter.verify."""
    port = read_port(folder)
    dtypes: tuple[Dtype, ...] = ("float32", "float64") if float64 else ("float32",)
    verdict, warnings = check_against(port, source_of(port, weights, recipes), dtypes, tolerance, device, given)
    return replace(verdict, notes=(*warnings, *_notes_on_reference(port.record, verdict), *notes_on_code(port)))


def _notes_on_reference(record: Record, verdict: Verdict) -> tuple[str, ...]:
    """A note if the reference of the user's own that proved the port is not the one that it was compared with now."""
    proving, given = record.reference, verdict.given
    if proving is None or (given is not None and given.file.sha256 == proving.sha256):
        return ()
    now = "" if given is None else "; this is another file"
    return (f"the port was proved by {proving.file}, sha256 {proving.sha256[:12]}..., which --reference gave{now}",)


def notes_on_code(port: Port) -> tuple[str, ...]:
    """A note for each file of code that this porter would write differently. No comparison covers code: porter runs none."""
    by = port.record.versions.get("porter", "of an unknown version")
    return tuple(
        f"{name} is not what this porter writes for the port, which porter {by} made: read the file before you run it"
        for name, text in port.framework.code_files(port.plan, port.record.layers).items()
        if sha256(text).hexdigest() != port.record.model.get(name)
    )


def check_against(
    port: Port,
    opened: Opened,
    dtypes: Sequence[Dtype],
    tolerance: float | None = None,
    device: str = "cpu",
    given: Given | None = None,
    size: Size = ANY,
) -> tuple[Verdict, tuple[str, ...]]:
    """Compares a port with the file's own graph or the zoo's implementation, and with the reference that is `given`. If none can
    run, the port is compared with porter's own build in the source's framework. If the port has training pads, this proves a
    build with the shipped pads, and the port is compared with that build with its pads replaced.

    Returns the verdict, and warnings about the limits of the proof.

    Args:
        size: rows and columns in place of the native size, where the port takes any.

    Raises:
        UsageError: the reference that is given cannot be run, or has other outputs than the source.
        MissingFramework: no reference can run here, and porter's own build in the source's framework is the port itself; or what
            the reference that is given needs is not installed.
    """
    record, (rows, columns) = port.record, size
    native = record.input.native_size if rows is None or columns is None else (rows, columns)
    # Computed numbers are compared with the source's numbers as they are, not with rounded ones.
    dtype: Dtype = "float64" if record.computed else record.dtype
    tensors = unrounded_tensors(port, opened.graph, opened.tensors) if record.computed else None

    def against(form: Form) -> Verdict:
        own = isinstance(form, OwnBuild)
        sizes = check_sizes(port.plan, native, form, None if own else opened.built_size, dtypes)
        if sizes is None:
            raise MissingFramework(
                f"{form.name} cannot be run at the port's size", next="convert with an --input-size that it takes"
            )
        if opened.shipped is None or own:
            return check(port, _as_ported(record, form), sizes, dtypes, tolerance, device, tensors)
        as_ported = partial(_as_ported, record)
        return check_trained(port, form, opened.own(dtype), opened.shipped, as_ported, sizes, dtypes, tolerance, device, tensors)

    if given is not None:
        proof = _given_proof(port, native, open_given(given, opened, dtype), dtypes, tolerance, device, tensors)
        found, failures = first_that_runs(opened.references(dtype), against)
        return replace(found or Verdict((), rounding=record.rounding), given=proof), () if found else failures
    verdict, failures = on_ladder(opened, record.framework, dtype, against)
    if verdict.proof.reference != OWN_BUILD:
        return verdict, ()
    build = f"porter's own build of the source in {opened.framework.NAME}"
    said = f"compared with {build}: the two frameworks agree, which does not prove the graph"
    return verdict, (*failures, said)


def _given_proof(
    port: Port,
    native: tuple[int, int],
    reference: GivenReference,
    dtypes: Sequence[Dtype],
    tolerance: float | None,
    device: str,
    tensors: Tensors | None,
) -> GivenProof:
    """The comparison with the user's own reference; in float32 only if it cannot run in float64, or its rounded numbers differ
    there.
    """
    types: tuple[Dtype, ...] = tuple(dtypes) if reference.exact else ("float32",)
    sizes = check_sizes(port.plan, native, reference, reference.native, types)
    if sizes is None:
        size = "{}x{}".format(*port.plan.only_size or reference.native)
        raise UsageError(f"{reference.name} cannot be run at the port's size, {size}", next="give one that takes it")

    def compared(shown: GivenReference) -> tuple[Parity, ...]:
        source = _as_ported(port.record, shown)
        return check(port, source, sizes, types, tolerance, device, tensors, reference.ending).parities

    parities, notes = compared(reference), reference.notes
    single = tuple(parity for parity in parities if parity.dtype == "float32")
    rounding = _rounding(reference)
    if rounding and not all(parity.ok for parity in parities if parity not in single):
        parities = single
        notes += (f"{reference.name} is compared in float32: {rounding}",)
    misnamed = dict.fromkeys(node.path for parity in parities for node in parity.nodes if not node.ok)
    if misnamed and all(parity.logits.rel_l2 <= parity.limit and parity.logits.argmax_equal for parity in parities):
        # Layers are paired by their names, and equal logits say that these are no pairs.
        parities = compared(replace(reference, with_nodes=False))
        said = f"only the outputs are compared, because layers of {reference.name} with these names give other values"
        notes += (f"{said}: {', '.join(misnamed)}",)
    return GivenProof(reference.file, parities, notes, reference.apart)


def _rounding(reference: GivenReference) -> str | None:
    """How the reference's numbers are the source's to float32's rounding only, if they are."""
    if reference.rounded:
        return "in one of both, batch norms or their epsilons were rounded to it"
    path = max(reference.apart, key=reference.apart.__getitem__, default=None)
    if path is None or reference.apart[path] > ROUNDED:
        return None
    said = f"its weights are the source's to rounding only, {reference.apart[path]:.1e} apart at {path}"
    return f"{said}, as where two exporters fold batch norms; to compare in float64, take files that keep their norms, such as .pt2"


def _as_ported(record: Record, source: Source) -> Source:
    return Shifted(source, record.folded or {}, frozenset(record.absorbed.values())) if record.computed else source
