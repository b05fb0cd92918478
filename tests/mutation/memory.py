"""Ports and sources in memory, which the proof takes as those on disk."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from porter.base.dtypes import Dtype, NamedArrays
from porter.base.errors import PorterError
from porter.frameworks import Tensors, get_destination
from porter.frameworks.reference_models import Shown as Models
from porter.graph import Graph
from porter.graph.plan import make_plan
from porter.padding import Size
from porter.padding.sizes import InputSizes
from porter.port import Record, ReferenceFile, StoredPort
from porter.verification import proving
from porter.verification.check import PROVED_DTYPES, Check
from porter.verification.references import source_references
from porter.verification.references.own_build import OwnBuild
from porter.verification.references.reference import CutReference
from porter.verification.references.user_reference import UserReference
from porter.verification.stored_numbers import unrounded_tensors
from porter.verification.user_proof import prove_by_user_reference
from porter.verification.verdict import Verdict
from tests.support.arrays import Array
from tests.support.parity import Remembered

CRASHED = "crashed"


@dataclass(frozen=True)
class MemoryPort(StoredPort):
    """A port whose tensors are in memory."""

    held: Tensors = field(default_factory=dict, repr=False)

    def tensors(self) -> dict[str, dict[str, Array]]:
        return {path: dict(roles) for path, roles in self.held.items()}


def memory_port(
    graph: Graph, tensors: Tensors, size: Size, native: tuple[int, int], destination: str, **facts: Any
) -> MemoryPort:
    """A port of a graph.

    Args:
        size: that it is planned for; None in it for every size.
        native: the source's.
        facts: of its record.
    """
    writer = get_destination(destination)
    plan = make_plan(graph, size, writer.CAPABILITIES)
    shown = SimpleNamespace(channels=graph.channels, native_size=native, size=plan.only_size)
    stated = {
        "input": shown,
        "dtype": "float32",
        "framework": destination,
        "layers": {},
        "preprocess": None,
        "absorbed": {},
    }
    record = Record.model_construct(**{**stated, "folded": None, "evaluated": (), **facts})
    return MemoryPort(Path("memory"), record, graph, plan, writer, tensors)


@dataclass(frozen=True)
class Shown:
    """A source of which some values are seen only, as a zoo's code shows those of its modules."""

    source: CutReference
    paths: frozenset[str]
    name: str = "another implementation"
    run_by: str = "its own code"

    def takes(self, size: tuple[int, int]) -> bool:
        return self.source.takes(size)

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        return {path: value for path, value in self.source.run(batch, dtype).items() if path in self.paths}

    def run_cut(self, batch: Array, paths: Collection[str], cut: NamedArrays) -> dict[str, Array]:
        asked = [path for path in paths if path in self.paths]
        return self.source.run_cut(batch, asked, {path: cut[path] for path in asked if path in cut})

    def is_moved(self, path: str) -> bool:
        return self.source.is_moved(path)


@dataclass(frozen=True)
class MemorySource:
    """What a port is compared with (porter.source.opened.Opened): one reference, which runs each batch once,
    or as `--reference` the one that is `given`.
    """

    reference: Remembered
    graph: Graph
    tensors: Tensors
    framework: str
    built_size: tuple[int, int] | None = None
    given: UserReference | None = None
    fitted: None = None
    shipped: None = None
    in_memory: None = None


def _references_of(source: MemorySource, dtype: Dtype) -> Iterator[Remembered]:
    """In place of porter.verification.references.source_references.references_of."""
    yield source.reference


def memory_source(graph: Graph, tensors: Tensors, paths: frozenset[str]) -> MemorySource:
    """A right function, computed by porter's own torch build, which shows the values at `paths`."""
    torch = get_destination("torch")
    return MemorySource(Remembered(Shown(OwnBuild(torch, graph, tensors), paths)), graph, tensors, torch.NAME)


def given_source(source: MemorySource, native: tuple[int, int], misnamed: Mapping[str, str]) -> MemorySource:
    """The source as somebody's own code, whose layers are paired by their names.

    Args:
        misnamed: by path, the node whose value the layer of that name gives.
    """
    paths, own = source.graph.outputs, OwnBuild(get_destination("torch"), source.graph, source.tensors)
    remembered = Remembered(own)

    def shown(batch: Array, dtype: Dtype, asked: Collection[str] | None) -> Models:
        values = remembered.run(batch, dtype)
        return Models(
            tuple(values[path] for path in paths), {path: values[other] for path, other in misnamed.items()}
        )

    file = ReferenceFile(file="own.py", sha256="0" * 64, maker="make")
    return replace(
        source, given=UserReference("the given own.py:make", file, source.graph, InputSizes(native), shown)
    )


def ask(port: StoredPort, source: MemorySource) -> tuple[Verdict | None, str]:
    """The proof's verdict on a port, and what it says: as `porter convert` asks it. None if it raises an
    error of porter's.

    float64 is asked first: where its values tell and differ, no other type makes the verdict better.
    """
    opened: Any = source
    try:
        with np.errstate(all="ignore"):
            verdict, said = _asked(port, opened, ("float64",))
            if verdict.ok or verdict.proof.silent is not None:
                verdict, said = _asked(port, opened, PROVED_DTYPES)
    except PorterError as error:
        return None, str(error)
    except Exception as error:  # of the destination: a wrong port may crash, which refuses it too
        return None, f"{CRASHED}: {type(error).__name__}: {error}"
    return verdict, "; ".join(said) if verdict.ok else verdict.failure()


def _asked(port: StoredPort, opened: Any, dtypes: Sequence[Dtype]) -> tuple[Verdict, tuple[str, ...]]:
    if opened.given is None:
        with (
            patch.object(source_references, "references_of", _references_of),
            patch.object(proving, "references_of", _references_of),
        ):
            return proving.prove_against(Check(port, tuple(dtypes)), opened)
    tensors = unrounded_tensors(port, opened.graph, opened.tensors) if port.record.computed else None
    unfolded = OwnBuild(port.destination, opened.graph, opened.tensors)
    proof = prove_by_user_reference(
        Check(port, tuple(dtypes), tensors=tensors), port.record.input.native_size, opened.given, unfolded
    )
    return Verdict((), proof.fed, user_proof=proof), proof.notes


def with_function(port: MemoryPort, graph: Graph, tensors: Mapping[str, Mapping[str, Array]]) -> MemoryPort:
    """The port with another graph, planned as it is, and other tensors."""
    size = port.plan.only_size
    plan = make_plan(graph, size or (None, None), port.destination.CAPABILITIES)
    return replace(port, graph=graph, plan=replace(plan, only_size=size or plan.only_size), held=tensors)
