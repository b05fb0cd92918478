"""What is said first of a file that could not be opened as what was asked for.

The rule is what works before what might: a setting of `--map` that opens the file; the step that the
error itself names, if the file looks like the variant that was asked for; a port beside the file whose model
has its tensors; the variant that it looks like; the file's own graph; and only then a recipe of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from porter.base.commands import CONVERT, FRAMEWORK, INSPECT, NAME, PORT, RECIPE_LIST, RECIPE_NEW
from porter.base.errors import MappingError, PorterError, UsageError
from porter.base.options import MAP, RECIPES
from porter.base.package import page
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.torch_export import SAVE
from porter.padding.sizes import size_text
from porter.recipe import convert_command
from porter.source.by_recipe import Likeliest, open_with_origin
from porter.source.fitting.candidate import Candidate
from porter.source.origin import KnownOrigin, as_stated_zoo
from porter.source.ports_beside import find_ports_beside, line_for_trained
from porter.source.ranking.rank import LIKELY, rank
from porter.source.wishes import Wishes

_SAVING_WITH_GRAPH: Mapping[str | None, str] = {
    "torch": SAVE,
    "tf": "model.export('FOLDER') in Keras, or tf.saved_model.save(model, 'FOLDER'),",
}
"""The call that saves a model with its graph, by the framework of its code."""


def with_advice(
    error: MappingError, candidate: Candidate, known_origin: KnownOrigin, wishes: Wishes
) -> MappingError:
    """Return the error of a file that is not the variant, with the settings of `--map` that open it and the
    best next step. Only settings that open the file when tried are kept. If none does, the next step is
    another file.

    Args:
        known_origin: where the weights come from.
        wishes: how the file was to be opened.
    """
    without_map = _line_by_own_graph(candidate) or (
        "give the whole model (.keras, SavedModel), or a file without the layers after the network"
    )
    tried = MappingError(
        error.message,
        where=error.where,
        next=f"no {MAP} settles it: {without_map}" if error.maps else error.next,
        maps=[
            setting for setting in error.maps if _opens_with_setting(candidate, known_origin, wishes, setting)
        ],
    )
    tried.next = _next_step(tried, candidate)
    return tried


def _opens_with_setting(
    candidate: Candidate, known_origin: KnownOrigin, wishes: Wishes, setting: str
) -> bool:
    """Return whether the file opens with a setting of `--map`, such as `classifier.4=head/logits`, in place
    of those that the user gave for the same node: the layers beside a head can make it fail.
    """
    node = setting.rpartition("=")[2]
    # A node has one setting: those of the same node are replaced.
    kept_settings = (wished for wished in wishes.map if wished.rpartition("=")[2] != node)
    try:
        open_with_origin(candidate, known_origin, replace(wishes, map=(*kept_settings, setting)))
    except PorterError:
        return False
    return True


def _line_by_own_graph(candidate: Candidate) -> str | None:
    """Return the command that ports a file by its own graph, without a recipe; None if it carries none. A
    graph that states no size is ported at the recipe's.
    """
    graph, path = candidate.checkpoint.graph, candidate.checkpoint.path
    if graph is None:
        return None
    size = None if graph.built_size else size_text(candidate.member.native_size())
    line = CONVERT.advise(subject=path, to=FRAMEWORK, input_size=size)
    return f"a file with its graph needs no recipe: {line}"


def _next_step(error: MappingError, candidate: Candidate) -> str | None:
    """Return the error's own advice, unless the file looks like another variant or zoo than was asked for:
    then the command for that one. Return None if there is nothing to advise.
    """
    member, checkpoint, recipes = candidate.member, candidate.checkpoint, candidate.member.recipe.path.parent
    matches = rank(checkpoint, recipes).matches
    # the variants with the best score, if it is a good one; several may share it
    likely = [match for match in matches if match.score == matches[0].score >= LIKELY]
    is_as_asked = any(match.member.is_a == member.is_a for match in likely)
    if is_as_asked or (error.maps and not likely):
        return error.next or _line_by_own_graph(candidate)
    if not likely:
        return _line_by_own_graph(candidate) or advice_without_recipe(checkpoint)
    best = as_stated_zoo(likely[0].candidate).member
    return f"it looks like {best.name}: {convert_command(best, FRAMEWORK, checkpoint.path, recipes)}"


def error_without_graph(
    checkpoint: Checkpoint, likeliest: Likeliest, recipes: Path | None = None
) -> UsageError:
    """Return the error for a file of tensors that was to be opened by its own graph, with the best next step:
    the ports that were trained to it, the variant that it looks like, or a recipe. Where a statement beside
    the file names a network that no recipe has, return that error.
    """
    advice = advice_without_recipe(checkpoint)
    opened = likeliest.opened
    usage_errors = [problem for _, problem in likeliest.problems if isinstance(problem, UsageError)]
    if opened is None and usage_errors:
        # It says which network is stated, which no recipe has.
        return usage_errors[0]
    if opened is not None and opened.member is not None:
        advice = convert_command(opened.member, FRAMEWORK, checkpoint.path, recipes)
        if opened.facts.twins and opened.facts.origin is None:
            advice = (
                f"{INSPECT.advise(file=checkpoint.path)} prints the line for each network that takes "
                "these tensors"
            )
    if ports := find_ports_beside(checkpoint):
        advice = ", or ".join(line_for_trained(port, checkpoint) for port in ports)
    other_notes = [note for note in checkpoint.notes if note != checkpoint.unread]
    notes = f" ({'; '.join(other_notes)})" if other_notes else ""
    content = f"is {checkpoint.unread}" if checkpoint.unread else "holds tensors and no graph"
    message = f"this file {content}{notes}, so a recipe has to say what its tensors are"
    return UsageError(message, where=str(checkpoint.path), next=advice)


def advice_if_trained(checkpoint: Checkpoint) -> str:
    """Return what to type for a file of tensors if it is a port's, after further training."""
    line = CONVERT.advise(subject=PORT, weights=checkpoint.path, to=FRAMEWORK)
    return f"if this is the model of a port after further training, {line} ports it with that port's graph"


def how_to_save_graph(checkpoint: Checkpoint) -> str | None:
    """Return how to save the model of a file of tensors with its graph; None if the file has a graph, or its
    framework is unknown.
    """
    line = (
        None
        if checkpoint.graph is not None or checkpoint.unread
        else _SAVING_WITH_GRAPH.get(checkpoint.dialect)
    )
    return line and f"if you have the model's code, {line} saves the graph too, and no recipe is needed"


def advice_without_recipe(checkpoint: Checkpoint) -> str:
    """Return what to do with a file that no recipe fits, for the end of an error: save its model with a
    graph, or draft a recipe.
    """
    draft = (
        f"{RECIPE_LIST.advise()} shows the networks that porter knows; for another network, "
        f"{RECIPE_NEW.advise(name=NAME, weights=checkpoint.path)} drafts a recipe to complete "
        f"({page('authoring.md')}), and {RECIPES.placeholder} names its folder"
    )
    return f"no recipe fits this file: {'; '.join(filter(None, (how_to_save_graph(checkpoint), draft)))}"
