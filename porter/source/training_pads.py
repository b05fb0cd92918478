"""The pads that weights were trained with, where a zoo's own code has other pads (a recipe's
`padding_as_trained`).

Keras's ResNet v2 is an example: slim trained its weights with SAME at the stem's pool, and Keras puts zeros
on every side there.
"""

from __future__ import annotations

from dataclasses import replace

from porter.base.errors import UsageError
from porter.base.options import PADDING
from porter.graph.pads import with_conventions
from porter.port import Padding
from porter.recipe import Member, trained_conventions
from porter.source.opened import Opened


def parse_padding(text: str, member: Member) -> Padding:
    """Return what `--padding` asks for: the pads of the zoo's code (`shipped`), or those that the weights
    were trained with (`trained`).

    Raises:
        UsageError: another word, or `trained` where the zoo records no pads of training.
    """
    if text == "trained":
        if not member.zoo.padding_as_trained:
            raise _no_training_pads(member)
        return "trained"
    if text == "shipped":
        return "shipped"
    raise UsageError(f"'{text}' is not a padding", where=str(PADDING), next="write shipped or trained")


def _no_training_pads(member: Member) -> UsageError:
    """Return the error for a zoo that records no pads of training other than the shipped ones."""
    return UsageError(
        f"zoo '{member.zoo.name}' records no pads of training for {member.variant} that differ from the "
        "shipped ones",
        where=str(member.recipe.path),
        next=f"leave out {PADDING('trained')}",
    )


def with_padding(opened: Opened, padding: Padding) -> Opened:
    """Return an opened source with the pads that the user asks for. `shipped` are those that the zoo's code
    has. `trained` are those that the weights were trained with, where the recipe lists them: they take the
    place of the shipped ones at these sites only, and the result keeps the shipped graph as `shipped`.

    A port that already has the pads of training is left as it is.

    Raises:
        UsageError: the zoo's pads of training are those that it ships, or shipped pads are asked of a port
            that no longer has them.
    """
    if padding == opened.facts.padding:
        return opened
    if padding == "shipped":
        raise UsageError(
            "this port has the pads that its weights were trained with, and not the shipped ones",
            where=opened.file.file,
            next=f"add {PADDING('trained')}, or give the weights file that it was made from",
        )
    assert opened.member is not None, "only a recipe states pads of training"
    graph = with_conventions(opened.graph, trained_conventions(opened.member))
    # A file's own graph may have the pads of training already.
    own_graph = opened.fitted is not None and opened.fitted.checkpoint.graph is not None
    if graph == opened.graph and not own_graph:
        raise _no_training_pads(opened.member)
    return replace(opened, facts=opened.stating(padding=padding), graph=graph, shipped=opened.graph)
