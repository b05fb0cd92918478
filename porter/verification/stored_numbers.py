"""The numbers that a port stores: each is the source's, bit for bit, or was computed from the source's in
float64 and rounded once when it was stored.

A comparison of values shows which number stands where, and shows a number itself to 1e-10 of what its channel
gives; a smaller mistake, such as the last bit of a small one, shows in the bits only.

Rounding can change the logits of a deep network more than a fault in the computation does (measured on
calibrated random weights: 1e-6 to 2e-6 at float32). So the two are proved separately. The numbers before
rounding must give the source's function, to the same limit as any port; and the stored numbers must be their
rounding, bit for bit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays, cast
from porter.base.errors import CheckFailed
from porter.frameworks import OwnTensors, Tensors, is_converted
from porter.graph import Graph
from porter.graph.folding import absorb_biases, fold_norms
from porter.port import Record, StoredPort
from porter.verification.references.reference import CutReference, Reference, Wrapped


def unrounded_tensors(port: StoredPort, graph: Graph, tensors: Tensors) -> OwnTensors:
    """Compute the tensors of a port again from its source's graph and tensors, and return them as they were
    before they were rounded to the port's type. A tensor that only the port has is returned as it is stored,
    and so are all of a converted port.

    Raises:
        CheckFailed: a stored tensor is not the rounding of the computed one.
    """
    record = port.record
    exact = tensors if record.folded is None else fold_norms(graph, tensors).tensors
    exact = absorb_biases(exact, record.absorbed)
    if is_converted(port.destination):  # the file is compared as it is
        return {path: dict(roles) for path, roles in {**exact, **port.tensors()}.items()}
    return expect_numbers(port, exact)


def expect_numbers(port: StoredPort, exact: Tensors) -> OwnTensors:
    """Expect that a port stores the numbers of `exact`, each rounded once to the port's type, and return them
    as they are before that.

    Args:
        exact: by the port's paths. A tensor that is only in the port fills a place of the destination, and is
            returned as it is stored.

    Raises:
        CheckFailed: a stored number is another one.
    """
    unrounded: OwnTensors = {}
    for path, roles in port.tensors().items():
        unrounded[path] = {role: exact.get(path, {}).get(role, stored) for role, stored in roles.items()}
        for role, stored in roles.items():
            wanted = cast(unrounded[path][role], port.record.dtype, f"{path}:{role}", allow_overflow=True)
            # NaNs are rare, and a comparison that allows for them takes ten times as long.
            are_equal = partial(np.array_equal, wanted, stored)
            if not are_equal() and not are_equal(equal_nan=stored.dtype.kind == "f"):
                raise CheckFailed(
                    f"expected the source's numbers, rounded once to {port.record.dtype}, got others",
                    where=f"{path}:{role}",
                    next="convert again",
                )
    return unrounded


@dataclass
class Shifted(Wrapped):
    """A source whose values are asked for by the paths of a port with folded norms or absorbed biases, or
    that does not show some of them. In a port whose `conv1` took in the norm `bn1`, the value at `conv1` is
    the source's at `bn1`.

    Attributes:
        folded: path of each layer of the port that took in a norm, to the norm with the same values in the
            source.
        hidden: layers whose values differ from the source's, because the norm after them took in their bias.
    """

    folded: Mapping[str, str]
    hidden: Collection[str]

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        """Return the source's values under the port's paths; without `hidden` ones, because a norm took in
        their bias.
        """
        wanted = None
        if paths is not None:
            wanted = {path for path in map(self._source_path, paths) if path is not None}
        values = self.source.run(batch, dtype, wanted)
        unchanged = {
            path: value
            for path, value in values.items()
            if path not in self.folded and path not in self.hidden
        }
        return unchanged | {path: values[norm] for path, norm in self.folded.items() if norm in values}

    def run_cut(self, batch: Array, paths: Collection[str], cut: NamedArrays) -> dict[str, Array]:
        """Run the source with values replaced, under the port's paths, as
        CutReference of porter.verification.references.reference says: return values by path. Paths that the
        source has not are left out; without a source that can be cut, return none.
        """
        if not isinstance(self.source, CutReference):
            return {}
        source_paths = {path: self._source_path(path) for path in paths}
        source_cut = {
            source_path: value
            for path, value in cut.items()
            if (source_path := self._source_path(path)) is not None
        }
        wanted = [path for path in source_paths.values() if path is not None]
        values = self.source.run_cut(batch, wanted, source_cut)
        return {
            path: values[source_path] for path, source_path in source_paths.items() if source_path in values
        }

    def is_moved(self, path: str) -> bool:
        """Ask the source under the port's path; see porter.verification.references.reference.CutReference."""
        source_path = self._source_path(path)
        return (
            source_path is not None
            and isinstance(self.source, CutReference)
            and self.source.is_moved(source_path)
        )

    def _source_path(self, path: str) -> str | None:
        """Return the source's path of a value of the port; None where the source does not show it."""
        return None if path in self.hidden else self.folded.get(path, path)


def with_port_paths(record: Record, source: Reference) -> Reference:
    """Return the source with its values under the port's paths, which differ where numbers are computed."""
    if not record.computed:
        return source
    return Shifted(source, record.folded or {}, frozenset(record.absorbed.values()))
