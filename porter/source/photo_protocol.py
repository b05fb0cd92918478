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
from porter.data.protocol_words import protocol_in_words
from porter.graph import Affine
from porter.padding import KnownSize
from porter.port import Facts


def expect_colours(channels: int, where: str, next: str | None = None) -> None:
    """Refuse a model that takes no photos, which have 3 channels.

    Raises:
        UsageError: it takes something else.
    """
    if channels != 3:
        message = f"photos have 3 channels, and this model takes {channels}"
        raise UsageError(message, where=where, next=next)


def protocol_doubt(facts: Facts, zoo: str | None, only_size: KnownSize | None = None) -> tuple[str, ...]:
    """Return one line if photos are prepared as a zoo prepares them and the file is not the zoo's own; none
    otherwise.

    Args:
        only_size: the rows and columns that a port takes, if it takes one size.
    """
    if facts.preprocess is None or facts.protocol_by != "recipe":
        return ()
    protocol = facts.preprocess if only_size is None else _at_square(facts.preprocess, only_size)
    words = protocol_in_words(protocol)
    return (
        (
            f"photos are prepared as {zoo}'s ({words}), because the file does not say how to prepare them; "
            f"{PREPROCESS} states another way"
        ),
    )


def in_proportion(protocol: Preprocess | None, built: KnownSize, native: KnownSize) -> Preprocess | None:
    """Return the zoo's way to prepare photos for a model built at size `built` (rows, columns): if that is a
    square and not the recipe's `native` size, with its resize and crop in proportion. Return None if the zoo
    states none.
    """
    return protocol if protocol is None or built == native else _at_square(protocol, built)


def _at_square(protocol: Preprocess, size: KnownSize) -> Preprocess:
    """Return the protocol with its resize and its crop in proportion to a square size, as 256 and 224 become
    342 and 299; unchanged for sizes that are no square.
    """
    if size[0] != size[1]:
        return protocol
    try:
        return protocol.at(size[0])
    except ProtocolError:
        # Too large for the protocol, as predict and eval say if the port takes only this size.
        return protocol


def with_scaling(
    protocol: Preprocess | None, scaling: Sequence[Affine]
) -> tuple[Preprocess | None, tuple[str, ...]]:
    """Return the zoo's protocol and no note. If the file's graph scales its own input, return the protocol
    with the scale of pixels that the graph was made for, and a note.

    The file does not state that scale. Of pixels from 0 to 255, from 0 to 1 and scaled as the zoo does, it is
    the one whose span, after the file's scaling, is closest to the span that the network was trained on.
    """
    if not scaling or protocol is None:
        return protocol, ()
    unscaled: dict[str, Any] = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    choices = {
        "pixels from 0 to 255": replace(protocol, divide=1.0, **unscaled),
        "pixels from 0 to 1": replace(protocol, divide=255.0, **unscaled),
        "pixels scaled as the zoo does": protocol,
    }
    # `or`, because a scaling by zero has no logarithm
    gain = math.prod(float(np.mean(np.abs(op.scale))) for op in scaling) or 1.0
    # Spans are compared as ratios, hence the logarithm.
    closest = min(choices, key=lambda name: abs(math.log(_span(choices[name]) * gain / _span(protocol))))
    return choices[closest], (f"the model scales its own input: its input is {closest}",)


def _span(protocol: Preprocess) -> float:
    """Return the difference between the brightest and the darkest pixel after they are prepared."""
    return 255 / protocol.divide / float(np.mean(protocol.std))
