"""Compares a port on disk with its source, by every reference that can run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from porter.base.dtypes import Array, Dtype
from porter.base.errors import CannotRun, NotInstalled, some
from porter.base.options import FOLD_BN, INPUT_SIZE
from porter.frameworks import computes_in_float32
from porter.graph import BatchNorm, tensor_shapes
from porter.padding import ANY, KnownSize, Size
from porter.port import OWN_BUILD, Record, StoredPort
from porter.source.opened import Opened
from porter.verification.check import Check
from porter.verification.inputs import make_images
from porter.verification.loss import INPUTS, half_precision_loss, with_loss
from porter.verification.memory import release, weights_in
from porter.verification.parity import MOST_ROUNDING
from porter.verification.references.file_graph_reference import FileGraphReference
from porter.verification.references.open_reference import open_user_reference
from porter.verification.references.own_build import OwnBuild
from porter.verification.references.reference import Reference
from porter.verification.references.source_references import (
    SourceReference,
    first_that_runs,
    own_build,
    references_of,
    with_fallback,
)
from porter.verification.references.user_reference import IMAGES, ReferenceName, model_itself
from porter.verification.results import rounds_more
from porter.verification.saved_graph import compare_with_saved_graph
from porter.verification.sizes import Sizes, sizes_to_compare
from porter.verification.stored_numbers import expect_numbers, unrounded_tensors, with_port_paths
from porter.verification.training_pads_proof import prove_trained
from porter.verification.user_proof import prove_by_user_reference
from porter.verification.verdict import Verdict, first_telling
from porter.verification.witnesses import ask_witness

_NO_SECOND = "what runs the source in float32, which does not run the file"
"""Named as what was not asked how it reads the file, where only float64 was compared."""


def prove_against(
    check: Check, opened: Opened, user_reference: ReferenceName | None = None, size: Size = ANY
) -> tuple[Verdict, tuple[str, ...]]:
    """Compare a port with the file's own graph or the zoo's implementation, and with the user's own
    reference, if there is one; then its stored numbers with the source's, bit for bit, unless the user
    sets a tolerance.

    If none can run, the port is compared with porter's own build in the source's framework. If the port has
    training pads, this proves a build with the shipped pads, and the port is compared with that build with
    its pads replaced.

    Returns the verdict, and warnings about the limits of the proof.

    Args:
        size: rows and columns in place of the native size, where the port takes any.

    Raises:
        UsageError: the reference that is given cannot be run, or has other outputs than the source.
        NotInstalled, CannotRun: no reference can run here, and porter's own build in the source's framework
            is the port itself; or the reference that is given cannot run.
        Contradiction: what porter reads of the source differs from itself.
        CheckFailed: the same function to the limit, but a stored number is not the source's.
    """
    verdict, warnings = _compare_with_references(check, opened, user_reference or model_itself(opened), size)
    record = check.port.record
    # Values come first, because they name the layer; computed numbers were held before they were run.
    are_stored_as_they_are = not (record.computed or record.quantize or check.tensors)
    if verdict.ok and are_stored_as_they_are and not check.tolerance:
        release(weights_in(check.port.graph))  # the models that ran
        expect_numbers(check.port, opened.tensors)
    return verdict, warnings


def _compare_with_references(
    check: Check, opened: Opened, user_reference: ReferenceName | None, size: Size
) -> tuple[Verdict, tuple[str, ...]]:
    """Compare a port's values with the references and the user's own, and return the verdict with warnings;
    see `prove_against`.
    """
    port, record = check.port, check.port.record
    rows, columns = size
    native = record.input.native_size if rows is None or columns is None else (rows, columns)
    # Computed numbers are compared with the source's numbers as they are, not with rounded ones.
    dtype: Dtype = "float64" if record.computed else record.dtype
    if record.computed:
        check = replace(check, tensors=unrounded_tensors(port, opened.graph, opened.tensors))

    comparison = _SourceComparison(check, opened, native, dtype)
    if user_reference is not None:
        verdict = comparison.with_user_reference(user_reference)
        return verdict, (*verdict.not_run, *_cautions(port, opened, verdict))
    verdict = comparison.with_first()
    if verdict.proof.reference != OWN_BUILD:
        return verdict, (*verdict.not_run, *_cautions(port, opened, verdict))
    build = f"porter's own build of the source in {opened.framework}"
    caution = f"compared with {build}: the two frameworks agree, which does not prove the graph"
    return verdict, (*verdict.not_run, caution, *_cautions(port, opened, verdict))


@dataclass(frozen=True)
class _SourceComparison:
    """A port beside its source, to be compared by one reference or another.

    Attributes:
        native: rows and columns of the port's input.
        dtype: the type that the source's tensors are rounded to.
    """

    check: Check
    opened: Opened
    native: KnownSize
    dtype: Dtype

    def with_user_reference(self, user_reference: ReferenceName) -> Verdict:
        """Compare the port with the user's own reference, and with the first of the source's that runs."""
        check, opened, record = self.check, self.opened, self.check.port.record
        unfolded = OwnBuild(check.port.destination, opened.graph, opened.tensors)
        proof = prove_by_user_reference(
            check, self.native, open_user_reference(user_reference, opened, self.dtype), unfolded
        )
        without_user, failures = first_that_runs(references_of(opened, self.dtype), self.with_reference)
        without_user = without_user or Verdict((), proof.fed, rounding=record.rounding)
        verdict = with_loss(check, replace(without_user, user_proof=proof))
        # A verdict that failed names the node that differs, whatever a witness says.
        verdict = _with_testimony(verdict, opened, record) if verdict.ok else verdict
        return replace(verdict, not_run=(*verdict.not_run, *map(str, failures)))

    def with_first(self) -> Verdict:
        """Compare the port with the references of its source, or with porter's own build if none runs. The
        verdict says what the references disagree on where it failed or rests on rounding.
        """
        opened, record = self.opened, self.check.port.record
        verdict, not_run = with_fallback(opened, record.framework, self.dtype, self.with_reference)
        verdict = with_loss(self.check, verdict)
        failed = not verdict.ok and verdict.proof.silent is None
        verdict = replace(_with_testimony(verdict, opened, record), not_run=(*verdict.not_run, *not_run))
        if failed or _rests_on_rounding(verdict):
            # One of the references may be what is wrong: it then disagrees with another one.
            image = make_images(verdict.proof.sizes[0], 1, record.input.channels, verdict.fed)
            references = references_of(opened, self.dtype)
            if failed:
                disagreement = _describe_disagreement(references, self.with_reference, image)
            else:
                disagreement = _disagreement_of_programs(references, image)
            verdict = replace(verdict, disagreement=disagreement)
        return verdict

    def with_reference(self, reference: SourceReference) -> Verdict:
        """Compare the port with one reference of its source; see `prove_against`."""
        check, opened, port = self.check, self.opened, self.check.port
        is_own_build = isinstance(reference, OwnBuild)
        sizes = sizes_to_compare(
            port.plan, self.native, reference, None if is_own_build else opened.built_size, check.dtypes
        )
        if sizes is None:
            raise CannotRun(
                f"{reference.name} cannot be run at the port's size",
                next=f"convert with an {INPUT_SIZE} that it takes",
            )
        if computes_in_float32(port.destination):  # float64 says nothing of how the file takes other sizes
            sizes = replace(sizes, rounded=tuple(dict.fromkeys((*sizes.rounded, *sizes.exact))))
        as_ported = partial(with_port_paths, port.record)
        if opened.shipped is None or is_own_build:
            return _prove(check, as_ported(reference), sizes)
        # The port has training pads, which the reference lacks: training_pads_proof proves it in two steps.
        build = own_build(opened, self.dtype)
        shipped = opened.shipped
        return first_telling(
            prove_trained(fed, reference, build, shipped, as_ported, sizes)
            for fed in check.with_each_range(reference, sizes)
        )


def _prove(check: Check, source: Reference, sizes: Sizes) -> Verdict:
    """Compare with a source in every number type, and return the verdict. Where onnxruntime, which runs the
    source in float32, refuses it, compare in float64 only; port and source are then at least run, and the
    verdict says why.

    Raises:
        CannotRun: it refuses, and the port's file computes in float32 only.
    """
    try:
        return check.prove(source, sizes)
    except CannotRun as error:
        if computes_in_float32(check.port.destination):  # its file computes in float32 only
            raise
        in_float64 = replace(check, dtypes=("float64",)).prove(source, sizes)
        check.expect_runs()
        reason = f"compared in float64 only: {error.message}"
        return replace(in_float64, not_run=(reason,)).held_to((), _NO_SECOND)


def _with_testimony(verdict: Verdict, opened: Opened, record: Record) -> Verdict:
    """Return the verdict with what the model that a user holds, or a witness of the source's file (a program
    that porter did not write), says of porter's reading.

    Raises:
        Contradiction: one of them reads or gives something else.
    """
    saved, fitted = opened.in_memory, opened.fitted
    if saved is None or saved.run_itself is None or fitted is None:
        # Outputs at which the user ended the graph are not the file's.
        testimony = ask_witness(opened, min(verdict.proof.sizes, key=prod), not record.ended_at)
    else:
        testimony = compare_with_saved_graph(
            saved, fitted.checkpoint, _images_of_smallest_size(verdict, opened, record, IMAGES)
        )
    return verdict.held_to(testimony.held, testimony.unheld)


def _images_of_smallest_size(verdict: Verdict, opened: Opened, record: Record, count: int) -> Array:
    """Make images of the smallest size that was compared; for a model that a user holds, of the size that it
    takes.
    """
    model_size = opened.built_size if opened.in_memory else None
    size = model_size or min(verdict.proof.sizes, key=prod)
    return make_images(size, count, record.input.channels, verdict.fed)


def _rests_on_rounding(verdict: Verdict) -> bool:
    """Return whether the verdict rests on the source's rounding: whether a value that is further away than
    any limit was allowed, because the source in that type is as far from itself in float64, or because errors
    of float32 may be that large there (`Parity.faint`).

    Where two programs run the source's number types, such a value can also be a mistake of one of them.
    """
    nodes = (node for parity in verdict.all for node in parity.nodes)
    return any(parity.faint for parity in verdict.all) or any(
        min(node.rel_l2, node.rounding) > MOST_ROUNDING for node in nodes
    )


def _describe_disagreement(
    references: Iterable[SourceReference], compare_with: Callable[[SourceReference], Verdict], image: Array
) -> str | None:
    """Say what the references (the ways in which a source can be run) disagree on, the first of which says
    that the port is wrong; None if they agree.

    Args:
        compare_with: compares the port with one of them.
        image: one image N x C x H x W.
    """
    known = list(references)
    if disagreement := _disagreement_of_programs(known, image):
        return disagreement
    for reference in known[1:]:
        with suppress(NotInstalled, CannotRun):
            if compare_with(reference).ok:
                return (
                    f"{known[0].name} and {reference.name} disagree, and the port is the function of "
                    f"{reference.name}"
                )
    return None


def _disagreement_of_programs(references: Iterable[SourceReference], image: Array) -> str | None:
    """Say what the programs that run the first reference disagree on, such as onnxruntime and ONNX's own
    implementation; None if they agree, or one cannot run.
    """
    first = next(iter(references), None)
    if not isinstance(first, FileGraphReference):
        return None
    with suppress(NotInstalled, CannotRun):  # one of the two cannot run
        return first.disagreement(image)
    return None


def _cautions(port: StoredPort, opened: Opened, verdict: Verdict) -> tuple[str, ...]:
    """Return what a reader has to know of a verdict, in sentences: rounding above its limit, one size only,
    no second reading, kernels that no input excited, and what half precision loses.
    """
    cautions = list[str]()
    rounds, proof = verdict.rounds, verdict.proof
    if rounds is not None:
        has_norms = port.record.folded is None and any(
            isinstance(node.op, BatchNorm) for node in port.graph.nodes
        )
        node = next(node for node in rounds.nodes if node.path == rounds.rounds_from)
        figures = f"{node.rel_l2:.1e} (limit {node.limit:.1e}, the source's own rounding {node.rounding:.1e})"
        advice = f"; norms that are folded round less: {FOLD_BN()}" if has_norms else ""
        cautions.append(f"{rounds_more(rounds.dtype, node.path)}: {figures}{advice}")
    sizes = {size for parity in verdict.parities for size in parity.sizes}
    if port.plan.only_size is None and len(sizes) == 1 and proof.reference != OWN_BUILD:
        rows, columns = sizes.pop()
        cautions.append(
            f"the port takes every size and is proved at {rows}x{columns}: {proof.reference} takes no other"
        )
    if proof.unheld is not None:
        cautions += verdict.held
    kernels = [path for path in proof.unexcited if "kernel" in tensor_shapes(port.graph).get(path, {})]
    if kernels:
        cautions.append(
            f"{some(kernels)} gave the same values for every input, so nothing is known of their weights"
        )
    if verdict.ok and opened.fitted is not None:
        images = _images_of_smallest_size(verdict, opened, port.record, INPUTS)
        lost = half_precision_loss(opened.fitted.checkpoint, opened.in_memory, images)
        cautions += [] if lost is None else [lost]
    return tuple(cautions)
