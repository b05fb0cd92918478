"""How a photo becomes the input of a source: its zoo's protocol, fitted to what the file's own graph does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from porter.base.errors import UsageError
from porter.base.options import PREPROCESS
from porter.data.preprocess import Preprocess, ProtocolError
from porter.data.statements import in_words
from porter.graph import Affine
from porter.padding import KnownSize
from porter.port import Facts


def expect_colours(channels: int, where: str, next: str | None = None) -> None:
    """Expects that a model takes photos, which have 3 channels.

    Raises:
        UsageError: it takes something else.
    """
    if channels != 3:
        message = f"photos have 3 channels, and this model takes {channels}"
        raise UsageError(message, where=where, next=next)


def doubted(facts: Facts, zoo: str | None, only: KnownSize | None = None) -> tuple[str, ...]:
    """One line where photos are prepared as a zoo prepares them, and the file is not the zoo's.

    Args:
        only: the rows and columns that a port takes, if it takes one size.
    """
    if facts.preprocess is None or facts.protocol_by != "recipe":
        return ()
    words = in_words(facts.preprocess if only is None else _for_squares(facts.preprocess, only))
    return (
        (
            f"photos are prepared as {zoo}'s ({words}), because the file does not say how to prepare them; "
            f"{PREPROCESS} states another way"
        ),
    )


def in_proportion(protocol: Preprocess | None, built: KnownSize, native: KnownSize) -> Preprocess | None:
    """The zoo's protocol; in proportion if the model was built for squares of another size than the recipe's
    `native` one.
    """
    return protocol if protocol is None or built == native else _for_squares(protocol, built)


def _for_squares(protocol: Preprocess, size: KnownSize) -> Preprocess:
    """The protocol in proportion to a square size; unchanged for other sizes."""
    if size[0] != size[1]:
        return protocol
    try:
        return protocol.at(size[0])
    except ProtocolError:
        # Too large for the protocol, as predict and eval say if the port takes only this size.
        return protocol


def scaled(
    protocol: Preprocess | None, scaling: Sequence[Affine]
) -> tuple[Preprocess | None, tuple[str, ...]]:
    """The zoo's protocol; if the file's graph scales its own input, with the scale of pixels that the graph
    was made for.

    The file does not state that scale. Of pixels from 0 to 255, from 0 to 1 and scaled as the zoo does, it is
    the one whose span, after the file's scaling, is closest to the span that the network was trained on.
    """
    if not scaling or protocol is None:
        return protocol, ()
    plain: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    choices = {
        "pixels from 0 to 255": replace(protocol, divide=1.0, **plain),
        "pixels from 0 to 1": replace(protocol, divide=255.0, **plain),
        "pixels scaled as the zoo does": protocol,
    }
    gain = math.prod(float(np.mean(np.abs(op.scale))) for op in scaling) or 1.0
    chosen = min(choices, key=lambda name: abs(math.log(_span(choices[name]) * gain / _span(protocol))))
    return choices[chosen], (f"the model scales its own input: its input is {chosen}",)


def _span(protocol: Preprocess) -> float:
    """The difference between the brightest and the darkest pixel after they are prepared."""
    return 255 / protocol.divide / float(np.mean(protocol.std))
