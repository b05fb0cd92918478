"""What a user asks of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from porter.base.errors import UsageError
from porter.base.options import OPTION
from porter.padding import Size
from porter.recipe.expressions import Value


@dataclass(frozen=True)
class Wishes:
    """How a source is opened, where a user says it.

    Attributes:
        background: keep row 0 of the zoo's own head if it is ImageNet's background class.
        map: from `--map`, as SRC=NODE: the file's layer of a node; of the head, the layer that gives the
            logits.
        options: of the recipe; they override the zoo's own (porter.recipe.choose_options).
        size: from `--input-size`, for a file that states no input size.
        keep_activation: keep the softmax or the sigmoid that gives a file's only output; no recipe is used
            then.
        outputs: the file's names of the values that the port gives, instead of the file's own outputs; no
            recipe is used then.
        as_given: the outputs are the file's own: no recipe is used that pools the maps of a file without a
            head, and none for a model in memory.
        origin: the zoo that the weights come from, whatever else states another one (porter.source.origin).
    """

    background: bool = False
    map: tuple[str, ...] = ()
    options: Mapping[str, Value] = field(default_factory=dict)
    size: Size | None = None
    keep_activation: bool = False
    outputs: tuple[str, ...] = ()
    as_given: bool = False
    origin: str | None = None


NONE = Wishes()


def expect_no_options(wishes: Wishes, where: str, reason: str) -> None:
    """Refuse options of a recipe, because the source itself states them."""
    if wishes.options:
        message = f"{OPTION} {', '.join(wishes.options)} changes nothing here: {reason}"
        raise UsageError(message, where=where, next="leave it out")
