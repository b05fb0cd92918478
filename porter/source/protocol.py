"""How a photo becomes the input of a source: its zoo's protocol, fitted to what the file's own graph does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from porter.base.errors import RecipeError
from porter.data.preprocess import Preprocess
from porter.graph import Affine


def in_proportion(protocol: Preprocess | None, built: tuple[int, int], native: tuple[int, int]) -> Preprocess | None:
    """The zoo's protocol; in proportion if the model was built for squares of another size than the recipe's `native` one."""
    if protocol is None or built == native or built[0] != built[1]:
        return protocol
    try:
        return protocol.at(built[0])
    except RecipeError:  # too large for the protocol, as predict and eval say if the port takes only this size
        return protocol


def scaled(protocol: Preprocess | None, scaling: Sequence[Affine]) -> tuple[Preprocess | None, tuple[str, ...]]:
    """The zoo's protocol; if the file's graph scales its own input, with the scale of pixels that the graph was made for.

    The file does not state that scale. Of pixels from 0 to 255, from 0 to 1 and scaled as the zoo does, it is the one whose span,
    after the file's scaling, is closest to the span that the network was trained on.
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
