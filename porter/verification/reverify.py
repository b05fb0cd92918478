"""Compares a port on disk with its source again."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from os import fspath
from pathlib import Path

from porter.base.calls import takes
from porter.base.commands import VerifyOptions
from porter.base.errors import CheckFailed, some
from porter.base.options import REFERENCE, path_of
from porter.graph import Graph, shapes
from porter.graph.memory_bounds import count_numbers
from porter.graph.ops import shape_text
from porter.port import Record, StoredPort, read_port
from porter.source.in_memory import parse_weights
from porter.source.reopening import reopen_source
from porter.verification import proving
from porter.verification.check import PROVED_DTYPES, Check
from porter.verification.references.user_reference import parse_reference
from porter.verification.verdict import Verdict

_MOST_NUMBERS, _MOST_TIMES = 1 << 24, 4
"""A port's values may have so many numbers in any case; more, if they are at most so many times the source's.
"""


@takes(VerifyOptions)
def verify(asked: VerifyOptions) -> Verdict:
    """Compare a port with its source again, node by node: in float64, which decides, and in float32. Return
    the verdict, whose notes say what a reader has to know, such as that code of the port was changed.

    Args:
        weights: the file or the model in memory that the port was made from; None for the zoo's published
            one.
        float64: compare in float64 only.
        tolerance: the limit on relative L2 distance; None for 1e-10 in float64, and in float32 for the larger
            of 1e-5 and four times the source's own rounding, at most 1e-4.
        reference: as for `convert`.
    """
    user_reference = None if asked.reference is None else parse_reference(fspath(asked.reference))
    port = read_port(Path(asked.folder))
    check = Check(port, ("float64",) if asked.float64 else PROVED_DTYPES, asked.tolerance, asked.device)
    source = reopen_source(port, parse_weights(asked.weights), path_of(asked.recipes))
    _expect_outputs(port, source.graph)
    _expect_as_large(port, source.graph)
    verdict, warnings = proving.prove_against(check, source, user_reference)
    return replace(
        verdict, notes=(*warnings, *_notes_on_reference(port.record, verdict), *notes_on_code(port))
    )


def _expect_outputs(port: StoredPort, source: Graph) -> None:
    """Expect that a port's graph, which a stranger may have written, gives what its source's gives, in that
    order: the reference shows the values of both, whichever of them are outputs.
    """
    folded = {norm: path for path, norm in (port.record.folded or {}).items()}
    # A norm that the port has folded is the layer before it.
    wanted = tuple(folded.get(path, path) for path in source.outputs)
    if port.graph.outputs != wanted:
        raise CheckFailed(
            f"the port is not the source's function: it gives {some(port.graph.outputs)}, and its source "
            f"{some(wanted)}",
            where=port.folder,
            next="convert again",
        )


def _expect_as_large(port: StoredPort, source: Graph) -> None:
    """Refuse a port whose values are much larger than those of its source's: a stranger may have written its
    graph, and large values take memory before a comparison can fail.

    Raises:
        CheckFailed: with the first node that is larger.
    """
    size = port.record.input.native_size
    port_shapes = shapes(port.graph, size)
    source_shapes = shapes(source, size)
    numbers_of_port = sum(map(count_numbers, port_shapes.values()))
    numbers_of_source = sum(map(count_numbers, source_shapes.values()))
    if numbers_of_port <= max(_MOST_NUMBERS, _MOST_TIMES * numbers_of_source):
        return
    path = next(
        path
        for path, shape in port_shapes.items()
        if count_numbers(shape) > count_numbers(source_shapes.get(path, ()))
    )
    where = (
        f"{shape_text(port_shapes[path])} in the port and {shape_text(source_shapes[path])} in its source"
        if path in source_shapes
        else "not in its source"
    )
    message = f"the port is not the source's function: {path}, the first node that is larger, is {where}"
    raise CheckFailed(message, where=port.folder, next="convert again")


def _notes_on_reference(record: Record, verdict: Verdict) -> tuple[str, ...]:
    """Return a note if the user's own reference that proved the port is not the one that it was compared with
    now.
    """
    proving, user_proof = record.reference, verdict.user_proof
    if proving is None:
        return ()
    if user_proof is not None and user_proof.file is not None and user_proof.file.sha256 == proving.sha256:
        return ()
    now = "" if user_proof is None else "; this is another file"
    note = (
        f"the port was proved by {proving.file}, sha256 {proving.sha256[:12]}..., which {REFERENCE} gave{now}"
    )
    return (note,)


def notes_on_code(port: StoredPort) -> tuple[str, ...]:
    """Return a note for each file of code that this porter would write differently. No comparison covers
    code: porter runs none.
    """
    version = port.record.versions.get("porter", "of an unknown version")
    return tuple(
        f"{name} is not what this porter writes for the port, which porter {version} made: read the file "
        "before you run it"
        for name, text in port.destination.code_files(port.plan, port.record.layers).items()
        if sha256(text).hexdigest() != port.record.model.get(name)
    )
