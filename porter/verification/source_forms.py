"""Which form of a source runs beside a port: an implementation that porter did not write, otherwise porter's
own build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias, TypeVar

from porter.base.dtypes import Dtype
from porter.base.errors import MissingFramework
from porter.frameworks import DESTINATION_NAMES, engine_name, get_destination, get_engine
from porter.source.opened import Opened
from porter.verification.references import (
    FileGraphSource,
    OwnBuild,
    ZooReference,
    rounded,
    rounded_tensors,
    zoo_reference,
)

Form: TypeAlias = FileGraphSource | ZooReference | OwnBuild
T = TypeVar("T")

OF_A_PORT = (
    "the source is a port, so the original file's own graph is not at hand: to prove the function, "
    "convert the original file"
)


def references_of(opened: Opened, dtype: Dtype) -> Iterator[Form]:
    """What the source's function is, with the file's tensors rounded to the port's type: the file's own
    graph, then the zoo's implementation, which porter did not write; or the port's model in which the tensors
    were trained.
    """
    if opened.fitted is None:
        return
    fit, member = opened.fitted.fit, opened.member
    checkpoint = rounded(opened.fitted.checkpoint, dtype, set(fit.tensors.values()))
    if checkpoint.graph is not None:
        whole = FileGraphSource(get_engine(engine_name(checkpoint)), checkpoint, fit)
        yield replace(whole, name=opened.in_memory.graph) if opened.in_memory is not None else whole
    if member is not None and fit.reference_names and member.zoo.reference is not None:
        yield zoo_reference(member.zoo, member.variant, checkpoint, fit)
    if opened.own_model is not None:
        yield replace(own_build(opened, dtype), name=opened.own_model)


def _builder(opened: Opened) -> str:
    """The framework of porter's own build of a source: a zoo of JAX's is built in Flax."""
    return "flax" if opened.framework == "jax" else opened.framework


def own_build(opened: Opened, dtype: Dtype) -> OwnBuild:
    """Porter's own build of the same graph in the source's framework.

    Raises:
        UsageError: porter builds no models of that framework.
    """
    return OwnBuild(get_destination(_builder(opened)), opened.graph, rounded_tensors(opened.tensors, dtype))


def first_that_runs(forms: Iterable[Form], use: Callable[[Form], T]) -> tuple[T | None, tuple[str, ...]]:
    """What `use` gives for the first form that it can run, and why it cannot run those before; None if it can
    run none.

    `use` raises MissingFramework for a form that it cannot run.
    """
    failures: list[str] = []
    for form in forms:
        try:
            return use(form), tuple(failures)
        except MissingFramework as error:
            failures.append(str(error))
    return None, tuple(failures)


def with_fallback(
    opened: Opened, destination: str, dtype: Dtype, use: Callable[[Form], T]
) -> tuple[T, tuple[str, ...]]:
    """What `use` gives for the file's own graph, otherwise for the zoo's implementation, otherwise for
    porter's own build in the source's framework; and for porter's own build, why neither of the others can
    run.

    Args:
        destination: the port's framework.
        dtype: the file's tensors are rounded to this type.

    Raises:
        MissingFramework: neither of the first two can run, and porter's own build is the port itself, or
            porter only reads the source's format.
    """
    result, failures = first_that_runs(references_of(opened, dtype), use)
    if result is not None:
        return result, ()
    if opened.file.format == "port":
        failures = (OF_A_PORT, *failures)
    only = None
    if destination == _builder(opened):
        only = f"only porter's own build of the source in {destination} is left, and that is the port itself"
    elif _builder(opened) not in DESTINATION_NAMES:
        only = f"porter has no build of its own of a source in {opened.file.format}"
    if only is not None:
        instead = (
            "give another implementation to porter convert: --reference FILE.py:CALLABLE, or a file "
            "with its graph"
        )
        raise MissingFramework("; ".join([*failures, only]), next=instead)
    return use(own_build(opened, dtype)), failures
