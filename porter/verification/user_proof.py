"""Checks a port with the user's own reference (`--reference`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from porter.base.errors import UsageError, some
from porter.graph import INPUT, BatchNorm, Graph
from porter.padding.sizes import size_text
from porter.verification.check import Check
from porter.verification.evidence import LEAST, variation
from porter.verification.inputs import SMOOTH
from porter.verification.numbers import norms
from porter.verification.references.reference import Reference
from porter.verification.references.user_reference import UserReference
from porter.verification.results import Parity, most_exact
from porter.verification.sizes import Sizes, sizes_to_compare
from porter.verification.stored_numbers import Shifted, with_port_paths
from porter.verification.verdict import UserProof, first_telling

ROUNDED = 1e-6
"""Weights no further apart, in relative L2 distance, are the same numbers rounded to float32 in two ways
(measured: 7e-8).
"""


def prove_by_user_reference(
    check: Check, native: tuple[int, int], reference: UserReference, unfolded: Reference
) -> UserProof:
    """Compare a port with the user's own reference; in float32 only if it does not run in float64, or its
    rounded numbers differ there.

    Args:
        unfolded: the source's graph with the norms that the port may have folded.
        native: rows and columns of the port's input.

    Raises:
        UsageError: it does not run at the port's size.
    """
    check = check if reference.exact else replace(check, dtypes=("float32",))
    sizes = sizes_to_compare(check.port.plan, native, reference, reference.sizes.built, check.dtypes)
    if sizes is None:
        size = size_text(check.port.plan.only_size or reference.sizes.built)
        raise UsageError(
            f"{reference.name} cannot be run at the port's size, {size}", next="give one that takes it"
        )
    source = with_port_paths(check.port.record, reference)
    return first_telling(
        _proof(fed, reference, unfolded, sizes) for fed in check.with_each_range(source, sizes)
    )


def _proof(check: Check, reference: UserReference, unfolded: Reference, sizes: Sizes) -> UserProof:
    """Compare with the user's reference on one range of inputs, in the most exact type first, and return the
    proof. Layers that are paired with nodes by their names only may be other layers of the port, whose values
    the reference's are equal to: these are left out, with a note.
    """
    parities: list[Parity] = []
    source: Reference = with_port_paths(check.port.record, reference)
    notes, rounding, graph = reference.notes, _why_rounded(reference), check.port.graph
    of_logits = None if reference.ending is None else reference.ending.of_logits
    for dtype in sorted(check.dtypes, reverse=True):  # float64 first: it decides what the function is
        rough = SMOOTH if parities else check.rough  # what does not decide is measured on photos
        proved = any(parity.ok for parity in parities)
        (parity,) = replace(check, dtypes=(dtype,), rough=rough, proved=proved).against(
            source, sizes, of_logits
        )
        if dtype == "float64" and rounding and not parity.ok:
            notes += (f"{reference.name} is compared in float32: {rounding}",)
            continue
        misnamed = {}
        if reference.named and not parities:
            # only in the first type: then the pairs are settled
            misnamed = _find_misnamed(replace(check, dtypes=(dtype,)), source, unfolded, sizes, parity)
        if misnamed:
            listed = some(
                [
                    f"{path} ({rel_l2:.1e} apart, equal to {equal_path})"
                    for path, (rel_l2, equal_path) in misnamed.items()
                ]
            )
            note = (
                f"layers of {reference.name} with these names are other layers of the port, and are not "
                f"compared: {listed}"
            )
            notes = (*notes, note)
            parity = parity.without_nodes(misnamed.keys())
            source = Shifted(source, {}, misnamed)
        parities.insert(0, parity)  # the last is the most exact
    if not parities:
        parities = list(replace(check, dtypes=("float32",)).against(source, sizes, of_logits))
    if reference.named and _differs_inside_only(most_exact(parities), graph):
        notes += (
            "the outputs are equal: if this layer of the reference is not the port's, give it another name",
        )
    unproved = _unproved_reason(reference, graph)
    if unproved is not None and all(parity.ok for parity in parities):
        parities = [replace(parity, ok=False, silent=unproved) for parity in parities]
    return UserProof(reference.file, tuple(parities), notes, reference.apart, check.fed)


def _differs_inside_only(parity: Parity, graph: Graph) -> bool:
    """Return whether some node differs and no output does: then its layer of the reference may be another
    one.
    """
    if parity.silent is not None:
        return False
    wrong = {node.path for node in parity.nodes if not node.ok}
    return bool(wrong) and wrong.isdisjoint(graph.outputs)


def _find_misnamed(
    check: Check, source: Reference, unfolded: Reference, sizes: Sizes, parity: Parity
) -> dict[str, tuple[float, str]]:
    """Find the nodes that differ because the reference's value of that name is the value of another node, or
    the input, and return by path the distance and the other's path.

    A value that the port has nowhere is a mistake, also where the outputs do not show it.

    Args:
        unfolded: the source's graph with the norms that the port may have folded.
        parity: the comparison in which nodes differ.
    """
    wrong = {
        node.path: node for node in parity.nodes if not node.ok and node.path not in check.port.graph.outputs
    }
    if not wrong:
        return {}
    batch = replace(check, rough=SMOOTH).batches(sizes)[parity.dtype][0]
    reference_values = source.run(batch, parity.dtype)
    port_values = {INPUT: batch, **check.values(batch, parity.dtype)}
    if folded := check.port.record.folded:  # the port has no value of a layer before its norm
        unfolded_values = unfolded.run(batch, parity.dtype)
        port_values |= {f"{path} without its norm": unfolded_values[path] for path in folded}

    def equal_values(path: str, limit: float) -> Iterator[str]:
        """Yield the port's other values that are equal to the reference's at `path`, which varies."""
        value = reference_values[path]
        for other_path, other_value in port_values.items():
            if other_path == path or other_value.size != value.size:
                continue
            if variation(value.reshape(len(value), -1)) < LEAST:
                continue
            if norms(value, other_value.reshape(value.shape)).rel_l2 <= limit:
                yield other_path

    equals = {path: next(equal_values(path, node.limit), None) for path, node in wrong.items()}
    return {
        path: (wrong[path].rel_l2, other_path)
        for path, other_path in equals.items()
        if other_path is not None
    }


def _unproved_reason(reference: UserReference, graph: Graph) -> str | None:
    """Say why equal values prove nothing: a kernel of the reference is not the source's. None if all are.

    A norm can be the same function with other numbers; a kernel that gives the same values with other numbers
    is not excited.
    """
    kernels = {
        path: distance
        for path, distance in reference.apart.items()
        if not isinstance(graph.by_path[path].op, BatchNorm)
    }
    farthest = max(kernels, key=kernels.__getitem__, default=None)
    if farthest is None or kernels[farthest] <= ROUNDED:
        return None
    return (
        f"the weights of {farthest} are {kernels[farthest]:.1e} from the source's, and its values are equal"
    )


def _why_rounded(reference: UserReference) -> str | None:
    """Say why the reference's numbers are the source's to float32's rounding only; None if they are not."""
    if reference.rounded:
        return "in one of both, batch norms or their epsilons were rounded to it"
    distances = reference.apart
    farthest = max(distances, key=distances.__getitem__, default=None)
    if farthest is None or distances[farthest] > ROUNDED:
        return None
    reason = f"its weights are the source's to rounding only, {distances[farthest]:.1e} apart at {farthest}"
    return (
        f"{reason}, as where two exporters fold batch norms; to compare in float64, take files that "
        "keep their norms, such as .pt2"
    )
