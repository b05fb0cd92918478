"""The reference that a user gives: the model in memory that is ported, or with `--reference` code of their
own that makes a model, or another file that carries its graph.

It shows at least its outputs, and the values of layers that can be paired with nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from porter.base.dtypes import Array, Dtype
from porter.base.errors import PorterError, UsageError
from porter.base.options import REFERENCE
from porter.frameworks.in_memory import Saved
from porter.frameworks.reference_models import Shown
from porter.graph import Graph
from porter.padding import KnownSize
from porter.padding.sizes import InputSizes
from porter.port import ReferenceFile
from porter.source.opened import Opened
from porter.verification.references.endings import Ending
from porter.verification.references.user_code import parse_code

IMAGES = 2
"""Images that a reference is tried with."""


@dataclass(frozen=True)
class ReferenceName:
    """What `--reference` names: a file, and the callable in it if it is code. Or the model that the user
    holds.
    """

    file: Path
    maker: str | None = None
    in_memory: Saved | None = None

    def file_record(self, sha256: str) -> ReferenceFile:
        """Return what port.json has of the file."""
        return ReferenceFile(file=self.file.name, sha256=sha256, maker=self.maker)

    @property
    def name(self) -> str:
        """The name of the reference in messages and in port.json, such as `the given net.py:build`."""
        if self.in_memory:
            return f"the model {self.in_memory.name} itself"
        return f"the given {self.file.name}:{self.maker}" if self.maker else f"the given {self.file.name}"


def model_itself(opened: Opened) -> ReferenceName | None:
    """Return the model in memory that is ported as a reference of its own port; None where the source is no
    such model, or the file that porter reads is the model.
    """
    saved = opened.in_memory
    if saved is None or saved.make_copy is None:
        return None
    return ReferenceName(Path(saved.name), in_memory=saved)


def parse_reference(text: str) -> ReferenceName:
    """Return what `--reference` names: FILE.py:CALLABLE, or a FILE that carries its graph.

    Raises:
        UsageError: there is no such file, or code is given without its callable.
    """
    named = ReferenceName(*(parse_code(text) or (Path(text),)))
    if not named.file.exists():
        raise UsageError("there is no such file", where=f"{REFERENCE(named.file)}", next="check the path")
    if named.maker is None and named.file.suffix == ".py":
        next = f"{REFERENCE(named.file)}:CALLABLE, the class or function that gives the model"
        raise UsageError("code needs the name of what makes its model", where=f"{REFERENCE(text)}", next=next)
    return named


@dataclass(frozen=True)
class UserReference:
    """A reference that a user gives (porter.verification.references.reference.Reference).

    Attributes:
        file: for port.json; None for a model in memory.
        notes: what it ran with, and how it was compared, one line each.
        exact: it runs in float64 too; otherwise its values are float32's in every type.
        rounded: it or the source has numbers of the other rounded to float32 (see pairing.py).
        apart: how far a file's weights are from the source's (pairing.weight_distances).
        sizes: those at which it runs.
        graph: of the source.
        ending: makes a port's logits and its outputs comparable; None if they are.
        shown: runs it on a batch, in a type.
        dropped: path of the head whose row 0 the port lacks.
        named: its layers are paired with nodes by their names only.
        run_by: what runs it, in words.
    """

    name: str
    file: ReferenceFile | None
    graph: Graph
    sizes: InputSizes
    shown: Callable[[Array, Dtype, Collection[str] | None], Shown]
    notes: tuple[str, ...] = ()
    exact: bool = True
    rounded: bool = False
    apart: Mapping[str, float] = field(default_factory=dict)
    ending: Ending | None = None
    dropped: str | None = None
    named: bool = True
    run_by: str = "its own code"

    def takes(self, size: KnownSize) -> bool:
        """Return whether the reference runs at a size (rows, columns); it is tried, unless it states its
        sizes.
        """
        if size == self.sizes.built or self.sizes.only is not None:
            return self.sizes.takes(size)
        try:
            self.shown(np.zeros((1, self.graph.channels, *size), np.float32), "float32", ())
        except PorterError:
            return False
        return True

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        """Run the reference, and return its values by path with its outputs made comparable: without the
        background row that the port lacks, and behind the activation in which the reference ends. See
        Reference.run.
        """
        shown = self.shown(batch, dtype if self.exact else "float32", paths)
        outputs = dict(zip(self.graph.outputs, shown.outputs, strict=True))
        if self.dropped is not None:
            outputs[self.dropped] = outputs[self.dropped][:, 1:]
        if self.ending is not None:
            outputs = {path: self.ending.of_outputs(value) for path, value in outputs.items()}
        return {**shown.values, **outputs}


def trial_images(graph: Graph, size: KnownSize) -> Array:
    """Make two images N x C x H x W of random numbers, with which a reference is tried."""
    return np.random.default_rng(0).standard_normal((IMAGES, graph.channels, *size))
