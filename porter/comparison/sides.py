"""One of two models that are compared: opened, and its graph proved against the model itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory

from porter.base.commands import Example, Model
from porter.base.errors import CannotRun, NotInstalled, PorterError, UsageError
from porter.conversion.convert import write_trial
from porter.formats.recognition import is_there
from porter.frameworks.in_memory import expect_subject
from porter.frameworks.reference_models import framework_of
from porter.padding import Size
from porter.port import StoredPort
from porter.recipe.spelling import hint
from porter.source.hub_download import repository_of
from porter.source.open import open_source
from porter.source.opened import Opened
from porter.source.place import InMemory, Place, PortFolder, find
from porter.source.wishes import Wishes
from porter.verification.references.user_code import model_of_code, parse_code

_TORCH_EXPORT = "torch-export"
"""The format of modules of torch, exported or in memory."""
_LISTED = re.compile(r"(^|/)layer_(\d+)(?=/|$)")
"""A module of a list, whose name is a number."""
IN = "torch"
"""What graphs are built in to be run: it has every op."""


@dataclass(frozen=True)
class SideProof:
    """Whether a graph is the function of the model that it was read from, and by what, in words."""

    holds: bool
    words: str


@dataclass(frozen=True)
class Side:
    """A model that is compared.

    Attributes:
        name: what the user calls it.
        place: where it is.
    """

    name: str
    place: Place

    @property
    def needs_size(self) -> bool:
        """Return whether the size of its input has to be given: a module of torch or of Flax without an
        example says none.
        """
        place = self.place
        return (
            isinstance(place, InMemory)
            and place.example is None
            and framework_of(place.model) in ("torch", "flax")
        )

    def open(self, size: Size | None, recipes: Path | None) -> Opened:
        """Open the model, and return its graph and tensors. Raises as porter.source.open.open_source."""
        return open_source(self.place, Wishes(size=size, as_given=True), recipes=recipes)

    def prove(self, opened: Opened, size: Size) -> SideProof:
        """Compare the graph with the model itself, and return whether it is the model's function; see
        `proved`.
        """
        return proved(opened, size, self.place.port if isinstance(self.place, PortFolder) else None)


def layer_names(opened: Opened) -> Mapping[str, str]:
    """Return what a model itself calls the nodes of its graph, by path; an empty mapping where a recipe
    names them. The graph writes torch's `blocks.0.conv` as `blocks/layer_0/conv`; here it is torch's again.
    """
    names = opened.facts.names
    if opened.file.format != _TORCH_EXPORT:
        return names
    return {path: _LISTED.sub(r"\1\2", name).replace("/", ".") for path, name in names.items()}


def proved(opened: Opened, size: Size, port: StoredPort | None = None) -> SideProof:
    """Compare a graph that was read with the model itself, node by node in float64, and return whether it is
    the model's function, with the words that say so. A port is not compared again.

    Args:
        size: rows and columns of the input.
        port: the source, if it is one: its record has the comparison.
    """
    from porter.verification.check import Check
    from porter.verification.proving import prove_against

    if port is not None:
        record = port.record
        if record.parity is None or not record.parity.get("ok"):
            return SideProof(False, f"its check was {record.check}")
        return SideProof(
            True, f"port.json has its graph, which was compared with {record.parity['reference']}"
        )
    try:
        with TemporaryDirectory(prefix="porter-") as folder:
            trial = write_trial(Path(folder), opened, IN, size, "float64")
            verdict, _ = prove_against(Check(trial, ("float64",)), opened, size=size)
    except (NotInstalled, CannotRun) as error:
        return SideProof(False, str(error))
    except PorterError as error:
        return SideProof(False, error.message)
    if not verdict.ok:
        return SideProof(False, verdict.failure())
    proof = verdict.proof
    worst = f"the worst of {len(proof.nodes)} nodes {proof.worst.rel_l2:.1e}"
    return SideProof(proof.proves, f"{proof.outcome} in float64, {worst}")


def side_of(model: str | PathLike[str] | Model, example: Example, where: str) -> Side:
    """Return what a user gives to be compared, as one side: a path, code as `FILE.py:CALLABLE`, which is run,
    or a model.

    Args:
        example: what a module of torch or Flax is exported with.
        where: the argument that errors name.

    Raises:
        UsageError: it is none of these, there is no such file, or the code raises an exception.
    """
    subject = expect_subject(model, "a file, a port or FILE.py:CALLABLE", where)
    if not isinstance(subject, str | PathLike):
        return Side(type(subject).__name__, InMemory(subject, example))
    text = fspath(subject)
    code = parse_code(text)
    if code is not None:
        return Side(text, InMemory(model_of_code(*code), example))
    path = Path(text)
    if repository_of(path) is None and not is_there(path):
        next_step = hint(path.name, [sibling.name for sibling in path.parent.glob("*")])
        raise UsageError("there is no such file", where=text, next=next_step)
    if path.suffix == ".py":
        raise UsageError(
            "code needs the name of what makes its model", where=text, next=f"write {text}:CALLABLE"
        )
    return Side(text, find(path))
