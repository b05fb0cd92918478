"""The distance between the logits of source and port, photo by photo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import NamedArrays
from porter.data.photos import Photo, take_evenly
from porter.evaluation.results import Accuracy, Agreement, Differing
from porter.evaluation.scoring import Scored
from porter.verification.numbers import distance

PORT_ROLE, SOURCE_ROLE, PLAIN_ROLE = "port", "source", "fp32"
"""The roles of the models in a pass: the port, its source beside it, and the port in fp32 beside a faster
run.
"""

PAIRED_PHOTOS = 20
PAIRS_PER_PHOTO = 200
"""The logits of a scatter plot: this many photos, spread over the set, and this many classes of each, spread
over the head.
"""


@dataclass
class PhotoDistances:
    """Watches a pass over `photos` photos (porter.evaluation.scoring.Watch).

    Attributes:
        max_abs: for each photo, the largest distance between two logits; NaN unless both gave finite ones.
        rel_l2: for each photo, the relative L2 distance, over all crops.
        pairs: (source, port) of sampled logits of the centre crop, by photo.
    """

    photos: int
    max_abs: NDArray[np.float64] = field(init=False)
    rel_l2: NDArray[np.float64] = field(init=False)
    pairs: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.max_abs, self.rel_l2 = np.full(self.photos, np.nan), np.full(self.photos, np.nan)
        self._paired = set(take_evenly(range(self.photos), PAIRED_PHOTOS))

    def watch(self, positions: Sequence[int], logits: NamedArrays) -> None:
        """Compare the logits (N x crops x classes) of both models for the photos at these positions, and keep
        their distances and, for some photos, pairs of logits. Photos with logits that are not finite are
        passed over.
        """
        for position, source, port in zip(positions, logits[SOURCE_ROLE], logits[PORT_ROLE], strict=True):
            if not (np.isfinite(source).all() and np.isfinite(port).all()):
                continue
            between = distance(source, port)
            self.max_abs[position], self.rel_l2[position] = between.max_abs, between.rel_l2
            if position in self._paired:
                classes = take_evenly(range(source.shape[-1]), PAIRS_PER_PHOTO)
                pairs = np.stack([source[0, classes], port[0, classes]], axis=1)  # of the centre crop
                self.pairs[position] = pairs.astype(np.float64)


def merge_distances(parts: Sequence[PhotoDistances]) -> PhotoDistances:
    """Return the distances that several processes measured, each of its part of the same photos."""
    joined = PhotoDistances(parts[0].photos)
    for part in parts:
        # A photo that another process compared is NaN here, which fmax passes over.
        joined.max_abs = np.fmax(joined.max_abs, part.max_abs)
        joined.rel_l2 = np.fmax(joined.rel_l2, part.rel_l2)
        joined.pairs |= part.pairs
    return joined


def differing_positions(scored: Scored) -> list[int]:
    """Return the positions of the photos in which source and port see different classes, where both see
    one.
    """
    source, port = scored.models[SOURCE_ROLE].top[:, 0], scored.models[PORT_ROLE].top[:, 0]
    return [int(position) for position in np.flatnonzero((source >= 0) & (port >= 0) & (source != port))]


def agreement(
    reference: str, accuracy: Accuracy, photos: Sequence[Photo], scored: Scored, distances: PhotoDistances
) -> Agreement:
    """Return the result of the comparison: how many answers agree, how far apart logits are at most, and the
    photos that differ.

    Args:
        accuracy: the source's.
    """
    source, port = scored.models[SOURCE_ROLE].top[:, 0], scored.models[PORT_ROLE].top[:, 0]
    compared = int(((source >= 0) & (port >= 0)).sum())
    positions = differing_positions(scored)
    differing = tuple(
        Differing(photos[position].name, photos[position].labels, int(source[position]), int(port[position]))
        for position in positions
    )
    return Agreement(
        reference=reference,
        accuracy=accuracy,
        compared=compared,
        agreeing=compared - len(positions),
        max_abs=float(np.nanmax(distances.max_abs)) if compared else 0.0,
        rel_l2=float(np.nanmax(distances.rel_l2)) if compared else 0.0,
        differing=differing,
    )
