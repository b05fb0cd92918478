"""The functions of the API. Each is the one that the command line calls, with the same options."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import wraps
from inspect import signature
from shutil import rmtree
from tempfile import mkdtemp
from typing import ParamSpec
from weakref import finalize

from porter.api.port import Filled, Ported, open_port
from porter.api.speaking import public
from porter.base.calls import takes
from porter.base.commands import ListModelsOptions
from porter.base.errors import UsageError
from porter.comparison import compare as comparing
from porter.comparison.transfer.fill import Filling, fill
from porter.conversion import convert as conversion
from porter.evaluation import evaluate as evaluation, prediction
from porter.evaluation.padding_study import study as studies
from porter.files import path_of
from porter.frameworks.in_memory import Held, is_model
from porter.port.folder import load as _load
from porter.recipe import known_variants
from porter.recipe.spelling import hint
from porter.reporting import write_page
from porter.source import inspection
from porter.verification import reverify

P = ParamSpec("P")


def _converted(function: Callable[P, conversion.Conversion]) -> Callable[P, conversion.Conversion | Filling]:
    """Return `convert` so that it fills a class of the user's, where `into` names one."""
    into: Callable[..., Filling] = fill

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> conversion.Conversion | Filling:
        """Call `convert`, or what fills a class if `into` names one."""
        return function(*args, **kwargs) if kwargs.get("into") is None else into(*args, **kwargs)

    return called


def _ported(function: Callable[P, conversion.Conversion | Filling]) -> Callable[P, Ported]:
    """Return `convert` so that it gives a Ported, which people hold. The port of a model in memory is in a
    temporary folder, which goes with it, where no other folder is given.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Ported:
        """Call `convert`, and return the port with the model in memory that it was made from. A temporary
        folder is removed with the port, or if the conversion fails.
        """
        given = signature(function).bind(*args, **kwargs).arguments
        subject = given["subject"]
        held = Held(subject, given.get("example")) if is_model(subject) else None
        if held is None or given.get("out") is not None:
            return _held(function(*args, **kwargs), held)
        folder = mkdtemp(prefix="porter-")
        kwargs["out"] = f"{folder}/port"
        try:
            port = _held(function(*args, **kwargs), held)
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise
        finalize(port, rmtree, folder, ignore_errors=True)
        return port

    called.__annotations__ = {**function.__annotations__, "return": Ported}
    called.__signature__ = signature(function).replace(return_annotation=Ported)  # type: ignore[attr-defined]
    return called


def _held(made: conversion.Conversion | Filling, held: Held | None) -> Ported:
    """Return what a conversion made as people hold it, with the model in memory that it was made from."""
    return Filled(made) if isinstance(made, Filling) else Ported(made, held)


convert = public(_ported(_converted(conversion.convert)))
verify = public(reverify.verify)
compare = public(comparing.compare)
predict = public(prediction.predict)
evaluate = public(evaluation.evaluate)
evaluate_several = public(evaluation.evaluate_several)
inspect = public(inspection.inspect)
study = public(studies.study)
report = public(write_page.report)
load = public(_load)
open = public(open_port)


@public
@takes(ListModelsOptions)
def list_models(asked: ListModelsOptions) -> list[tuple[str, str]]:
    """List the variants that porter has recipes of, each with a zoo that has it: `("resnet50v2", "keras")`.

    Args:
        name: of a variant, with `*` and `?` for any letters.
        zoo: only those of this zoo.
        recipes: as `convert`.

    Raises:
        UsageError: no recipe has the zoo.
    """
    zoo = asked.zoo
    known, _ = known_variants(path_of(asked.recipes))
    listed = [(entry.variant, entry.zoo) for entry in known]
    zoos = {zoo_of_variant for _, zoo_of_variant in listed}
    if zoo is not None and zoo not in zoos:
        raise UsageError(f"there is no zoo '{zoo}'", where="zoo", next=hint(zoo, zoos))
    return [
        (variant, zoo_of_variant)
        for variant, zoo_of_variant in listed
        if fnmatchcase(variant, asked.name) and zoo in (None, zoo_of_variant)
    ]
