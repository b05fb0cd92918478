"""Which reference of a source runs beside a port: an implementation that porter did not write, otherwise
porter's own build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from porter.base.dtypes import Dtype
from porter.base.errors import CannotRun, NotInstalled
from porter.base.options import REFERENCE
from porter.frameworks import DESTINATION_NAMES, engine_name, get_destination, get_engine
from porter.source.opened import Opened
from porter.verification.references.file_graph_reference import FileGraphReference
from porter.verification.references.own_build import OwnBuild
from porter.verification.references.rounded_tensors import round_checkpoint, round_tensors
from porter.verification.references.zoo_reference import ZooReference, zoo_reference

SourceReference: TypeAlias = FileGraphReference | ZooReference | OwnBuild
T = TypeVar("T")

OF_A_PORT = (
    "the source is a port, so the original file's own graph is not at hand: to prove the function, "
    "convert the original file"
)


def references_of(opened: Opened, dtype: Dtype) -> Iterator[SourceReference]:
    """Yield the references of a source, best first, with the file's tensors rounded to the port's type: the
    file's own graph, then the zoo's implementation, which porter did not write; or, for a port's model in
    which a user trained the tensors, that model.
    """
    if opened.fitted is None:
        return
    fit, member = opened.fitted.fit, opened.member
    checkpoint = round_checkpoint(opened.fitted.checkpoint, dtype, set(fit.tensors.values()))
    if checkpoint.graph is not None:
        own_graph = FileGraphReference(get_engine(engine_name(checkpoint)), checkpoint, fit)
        in_memory = opened.in_memory
        yield own_graph if in_memory is None else replace(own_graph, name=in_memory.graph)
    if member is not None and fit.in_zoo.names and member.zoo.reference is not None:
        yield zoo_reference(member.zoo, member.variant, checkpoint, fit)
    if opened.own_model is not None:
        yield replace(own_build(opened, dtype), name=opened.own_model)


def _builder(opened: Opened) -> str:
    """Return the framework in which porter builds a source itself. A zoo of JAX's is built in Flax."""
    return "flax" if opened.framework == "jax" else opened.framework


def own_build(opened: Opened, dtype: Dtype) -> OwnBuild:
    """Build the source's graph in the source's framework by porter's own code.

    Raises:
        UsageError: porter builds no models of that framework.
    """
    return OwnBuild(get_destination(_builder(opened)), opened.graph, round_tensors(opened.tensors, dtype))


@dataclass(frozen=True)
class NotRun:
    """A reference that does not run, and why."""

    reference: str
    error: NotInstalled | CannotRun

    def __str__(self) -> str:
        return f"{self.reference} was not run: {self.error}"


def first_that_runs(
    references: Iterable[SourceReference], use: Callable[[SourceReference], T]
) -> tuple[T | None, tuple[NotRun, ...]]:
    """Return what `use` gives for the first reference that it can run, or None if it can run none; and the
    references before, which it cannot run, each with its error. `use` raises NotInstalled or CannotRun for
    one that it cannot run.
    """
    failures: list[NotRun] = []
    for reference in references:
        try:
            return use(reference), tuple(failures)
        except (NotInstalled, CannotRun) as error:
            failures.append(NotRun(reference.name, error))
    return None, tuple(failures)


def with_fallback(
    opened: Opened, destination: str, dtype: Dtype, use: Callable[[SourceReference], T]
) -> tuple[T, tuple[str, ...]]:
    """Return what `use` gives for the file's own graph, otherwise for the zoo's implementation, otherwise for
    porter's own build in the source's framework; and why those before cannot run, in sentences.

    Args:
        destination: the port's framework.
        dtype: the file's tensors are rounded to this type.

    Raises:
        NotInstalled: neither of the first two can run, one of them because a package is missing, and porter's
            own build is the port itself, or porter only reads the source's format.
        CannotRun: neither can run here at all, and porter's own build is no other either.
    """
    result, failures = first_that_runs(references_of(opened, dtype), use)
    reasons = tuple(map(str, failures))
    if result is not None:
        return result, reasons
    if opened.file.format == "port":
        reasons = (OF_A_PORT, *reasons)
    # why porter's own build in the source's framework cannot be the reference either
    unusable = None
    if destination == _builder(opened):
        unusable = (
            f"only porter's own build of the source in {destination} is left, and that is the port itself"
        )
    elif _builder(opened) not in DESTINATION_NAMES:
        unusable = f"porter has no build of its own of a source in {opened.file.format}"
    if unusable is not None:
        instead = (
            f"convert with another implementation: {REFERENCE('FILE.py:CALLABLE')}, or a file with its graph"
        )
        is_missing = any(isinstance(failure.error, NotInstalled) for failure in failures)
        error = NotInstalled if is_missing else CannotRun
        raise error("; ".join([*reasons, unusable]), next=instead)
    return use(own_build(opened, dtype)), reasons
