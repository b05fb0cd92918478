"""Models that are fed with arrays, as evaluations run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from porter.data.preprocess import Preprocess
from porter.dtypes import Array
from porter.frameworks import Classifier


def classifier_of(logits: Callable[[Array], Array], protocol: Preprocess) -> Classifier:
    """What classifies photos with a model on the CPU.

    Args:
        logits: gives them for images N×C×H×W; a head that is a convolution gives maps of one cell.
    """
    from porter.data.pipeline import normalise

    def classify(pixels: NDArray[Any]) -> Callable[[], Array]:
        images = normalise(pixels, protocol)
        value = logits(images.reshape(-1, *images.shape[2:]))
        return lambda: value.reshape(len(value), -1).astype("float32", copy=False)

    return classify
