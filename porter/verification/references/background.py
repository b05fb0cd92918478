"""Heads that have a class for the background, which a port may lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from porter.base.dtypes import Array, NamedArrays
from porter.frameworks import Classifier
from porter.source.fitting.fit import Fit


def path_with_background(fit: Fit) -> str | None:
    """Return the path of the head whose row 0 the port lacks; None if the port has all rows."""
    return fit.graph.output if drops_background(fit) else None


def drops_background(fit: Fit) -> bool:
    """Return whether the port lacks row 0 of the source's head, as where a head of 1,001 classes has one for
    the background.
    """
    return "drop_background" in fit.transforms.get(fit.graph.output, ())


def without_background_logit(classifier: Classifier) -> Classifier:
    """Return the classifier without the first of its logits, that of the background."""
    return with_changed_logits(classifier, lambda logits: logits[:, 1:])


def with_changed_logits(classifier: Classifier, change: Callable[[Array], Array]) -> Classifier:
    """Return the classifier with `change` applied to its logits, once they are waited for: a classifier
    begins to compute, and gives a function that waits for the result.
    """

    def classify(pixels: NDArray[Any]) -> Callable[[], Array]:
        pending = classifier(pixels)
        return lambda: change(pending())

    return classify


def without_background(values: NamedArrays, path: str | None) -> dict[str, Array]:
    """Return the values by path; the one at `path`, logits of a head with a background class, without its
    column 0.
    """
    return {known: value[:, 1:] if known == path else value for known, value in values.items()}
