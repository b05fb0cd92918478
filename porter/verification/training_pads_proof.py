"""Checks a port with training pads, which no implementation of the zoo has.

It takes two steps. Porter's own build of the source, with the shipped pads and in the source's framework, is
proved against the zoo's implementation or the file's graph. Then the port is compared with the same build
with training pads; only the pads differ from the proved build.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.graph import Graph, site_of
from porter.graph.plan import make_plan
from porter.verification.check import Check
from porter.verification.numbers import distance
from porter.verification.parity import NodeLimits, compare
from porter.verification.references.own_build import OwnBuild
from porter.verification.references.reference import Reference, Wrapped
from porter.verification.sizes import Sizes
from porter.verification.verdict import Shipped, Verdict

AsPorted = Callable[[Reference], Reference]


@dataclass
class _Kept(Wrapped):
    """A source, and its logits in float64 by batch: N x C."""

    output: str
    logits: dict[tuple[tuple[int, ...], bytes], Array] = field(default_factory=dict)

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> NamedArrays:
        """Run the source, and keep its logits for the port with training pads."""
        values = self.source.run(batch, dtype, paths)
        if dtype == "float64" and self.output in values:
            self.logits[batch.shape, batch.tobytes()] = values[self.output].reshape(len(batch), -1)
        return values


def prove_trained(
    check: Check, reference: Reference, own: OwnBuild, shipped: Graph, as_ported: AsPorted, sizes: Sizes
) -> Verdict:
    """Prove a port with training pads in two steps, and return the verdict: a build with the shipped pads is
    compared with the reference, then the port with that build after its pads are replaced. The verdict also
    says how far the logits of shipped and of training pads are apart, and how many top classes differ.

    Args:
        own: porter's build of the source with training pads.
        shipped: the same graph with the shipped pads.
        as_ported: gives a source its values under the port's paths.

    Raises:
        NotInstalled: the reference cannot be run here.
    """
    destination, output = own.destination, shipped.output
    before = _Kept(reference, output)
    after = _Kept(replace(own, name=_name_of_build(own.graph, shipped)), output)
    plan = make_plan(shipped, sizes.rounded[0], destination.CAPABILITIES)
    proof = compare(
        plan, before, replace(own, graph=shipped).run, check.batches(sizes), NodeLimits(check.tolerance)
    )
    verdict = check.verdict(as_ported(after), sizes)
    # A comparison in float32 may have run one of the two on further batches, to measure its rounding.
    in_both = [batch for batch in before.logits if batch in after.logits]
    wanted, got = (np.concatenate([kept.logits[batch] for batch in in_both]) for kept in (before, after))
    differ = int((wanted.argmax(axis=1) != got.argmax(axis=1)).sum())
    return replace(verdict, shipped=Shipped(proof, distance(wanted, got).rel_l2, differ, len(wanted)))


def _name_of_build(trained: Graph, shipped: Graph) -> str:
    """Return the name of a build with training pads, with the nodes where they are, or with how many there
    are.
    """
    # A site is a node's window with its pads; only pads differ here.
    replaced = [
        node.path
        for node in trained.nodes
        if (site := site_of(node.op)) and site != site_of(shipped.by_path[node.path].op)
    ]
    sites = ", ".join(replaced) if len(replaced) <= 3 else f"{len(replaced)} sites"
    return f"porter's own build of the source, with training pads at {sites or 'no site'}"
