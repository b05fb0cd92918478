"""A recipe tried on a file of weights: the mapping and, where a reference exists, the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from porter.base.errors import CannotRun, CheckFailed, MappingError, NotInstalled, PorterError, some
from porter.conversion.convert import write_trial
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import get_dialect
from porter.graph import site_of, tensor_shapes
from porter.recipe import Member, Recipe, expand, layer_names
from porter.recipe.expansion import expand_steps
from porter.recipe.zoo_names import tensor_names
from porter.source.by_recipe import open_candidate
from porter.source.opened import Opened
from porter.source.origin import as_stated_zoo
from porter.source.place import file_at
from porter.source.ranking.rank import rank_variants
from porter.source.reading import read

if TYPE_CHECKING:
    from porter.verification.verdict import Verdict


@dataclass(frozen=True)
class WeightsTrial:
    """The result of a trial.

    Attributes:
        opened: the file as the variant and zoo that it fits best; None if it fits none.
        verdict: the comparison of the recipe's network with a reference; None if none was made.
        skipped: why there is no verdict, if nothing is wrong.
        error: why the file does not fit, or the numbers differ.
    """

    opened: Opened | None = None
    verdict: Verdict | None = None
    skipped: str | None = None
    error: PorterError | None = None

    def record(self) -> dict[str, Any]:
        """Return the record that `porter recipe check --json` prints."""
        opened = self.opened
        member = opened.member if opened else None
        return {
            "variant": member.variant if member else None,
            "zoo": member.zoo.name if member else None,
            "tensors": opened.lists.counts() if opened else None,
            "parity": self.verdict.record() if self.verdict else None,
            "skipped": self.skipped,
            "error": self.error and self.error.record(),
        }


def try_weights(recipe: Recipe, weights: Path) -> WeightsTrial:
    """Fit a file to the variant and zoo of a recipe that fits best, compare porter's build of it in the zoo's
    own framework with the file's own graph or the zoo's implementation, and return the verdict, or why there
    is none: no name fits, the file does not cover the graph, or nothing runs here.

    Raises:
        FileError: the file cannot be read.
    """
    checkpoint = read(file_at(weights))
    matches = rank_variants(checkpoint, recipe).matches
    if not matches:
        return WeightsTrial(error=_no_name_fits_error(recipe, checkpoint))
    try:
        opened = open_candidate(as_stated_zoo(matches[0].candidate))
    except MappingError as error:
        return WeightsTrial(error=error)
    from porter.verification.check import Check
    from porter.verification.proving import prove_against

    with TemporaryDirectory() as folder:
        try:
            verdict, _ = prove_against(Check(write_trial(Path(folder), opened)), opened)
        except (NotInstalled, CannotRun) as error:
            return WeightsTrial(opened, skipped=str(error))
    if verdict.ok:
        return WeightsTrial(opened, verdict)
    advice = "compare the step's pad, kernel, stride and options with the zoo's code"
    return WeightsTrial(
        opened,
        verdict,
        error=CheckFailed(
            verdict.failure(), where=_location_of_difference(opened.member, verdict), next=advice
        ),
    )


def _location_of_difference(member: Member | None, verdict: Verdict) -> str | None:
    """Return where the padding of the first node that differs is written, otherwise its step; None where no
    node is known to differ.
    """
    differing = verdict.proof.first_bad
    if member is None or differing is None:
        return None
    graph, steps = expand_steps(member)
    path = differing.site or differing.path
    # the window and pads of a convolution or a pool
    site = site_of(graph.by_path[path].op)
    rules = [rule for rule in member.zoo.padding if site is not None and rule.matches(path, site.kind)]
    return member.recipe.source.where(rules[0].location if rules else steps[path])


def _no_name_fits_error(recipe: Recipe, checkpoint: Checkpoint) -> MappingError:
    """Return the error of a file that has no name of the recipe, with the first name that the recipe expects
    and some that the file has; or that no zoo is of the file's framework.
    """
    where, names = str(checkpoint.path), sorted(checkpoint.tensors)
    for member in recipe.members():
        if checkpoint.dialect in (None, member.zoo.framework):
            graph = expand(member)
            layers = layer_names(member, graph)
            dialect = get_dialect(member.zoo.framework)
            # the likeliest name of the first node's first tensor
            path, *_ = tensor_shapes(graph)
            (expected, *_), *_ = tensor_names(dialect, graph, path, layers[path]).values()
            message = f"no tensor of the file has a name of this recipe, whose first name is {expected}"
            place = recipe.source.where(layers[path].location)
            return MappingError(f"{message} ({place})", where=where, next=f"the file has {some(names)}")
    frameworks = sorted({zoo.framework for zoo in recipe.zoos.values()})
    message = f"this is a {checkpoint.dialect} file, and the recipe's zoos are of {', '.join(frameworks)}"
    return MappingError(message, where=where)
