"""The activation in which a reference that a user gives ends, and the source's port does not.

Its functions are not those of porter.filegraph.kernels, which run files that are compared here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from porter.base.dtypes import Array
from porter.graph import OF_LOGITS
from porter.source.opened import Opened

_SUM_TOLERANCE = 1e-4
"""The most by which the sum of float32 probabilities misses 1."""
_LEAST_LOGARITHM = -80.0
"""Logarithms of probabilities below it are taken for it: float32 has no digits left there."""


@dataclass(frozen=True)
class Ending:
    """An activation in which a reference ends and which its source's port lacks: what is compared in place of
    the logits.

    Attributes:
        of_logits: from the port's logits.
        of_outputs: from the reference's outputs.
    """

    of_logits: Callable[[Array], Array]
    of_outputs: Callable[[Array], Array]


def ending_of(name: str, opened: Opened, outputs: Sequence[Array]) -> tuple[Ending | None, tuple[str, ...]]:
    """Find out whether the reference ends in an activation that the port lacks, such as a softmax after which
    its outputs are probabilities. Return what is then compared in place of logits, and a line that says so;
    None and no line where they are comparable as they are.

    Args:
        name: of the reference.
        outputs: of the reference for two images.
    """
    value = outputs[0].reshape(len(outputs[0]), -1).astype(np.float64)
    port_ends_in_activation = isinstance(opened.graph.by_path[opened.graph.output].op, OF_LOGITS)
    if port_ends_in_activation or len(outputs) > 1:
        return None, ()
    # Logarithms of probabilities are at most 0. The bound of 1 keeps the exponentials of others finite.
    for activation, ending, probabilities in (
        ("softmax", Ending(log_softmax, _renormalised_logarithms), value),
        ("log_softmax", Ending(log_softmax, log_softmax), np.exp(np.minimum(value, 1))),
    ):
        if _sum_to_one(probabilities):
            logarithms = (
                "the logarithms of the probabilities are compared, which are equal too if all logits "
                "differ by one number"
            )
            return ending, (f"{name} ends in a {activation}, which the port lacks: {logarithms}",)
    if opened.facts.activation == "sigmoid" and value.min() >= 0 and value.max() <= 1:
        return Ending(sigmoid, np.asarray), (
            f"{name} ends in a sigmoid, which the port lacks: the probabilities are compared",
        )
    return None, ()


def _sum_to_one(probabilities: Array) -> bool:
    """Return whether each row of N x C numbers could be probabilities."""
    return (
        probabilities.shape[1] > 1
        and probabilities.min() >= 0
        and np.allclose(probabilities.sum(axis=1), 1, rtol=0, atol=_SUM_TOLERANCE)
    )


def _renormalised_logarithms(probabilities: Array) -> Array:
    """Return the logarithms of N x C probabilities, scaled to sum to 1: they sum to less if a row was
    dropped.
    """
    with np.errstate(divide="ignore"):
        return log_softmax(np.log(probabilities))


def log_softmax(logits: Array) -> Array:
    """Return the logarithms of the probabilities that N x C logits give, at least `_LEAST_LOGARITHM`."""
    # The largest is subtracted, so that no exponential is infinite.
    below = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    log_of_sum = np.log(np.exp(below).sum(axis=-1, keepdims=True))
    logarithms: Array = np.maximum(below - log_of_sum, _LEAST_LOGARITHM)
    return logarithms


def sigmoid(logits: Array) -> Array:
    """Return the probabilities 1 / (1 + exp(-logit)), one by one, of logits of any shape."""
    with np.errstate(over="ignore"):
        probabilities: Array = 1 / (1 + np.exp(-logits.astype(np.float64)))
    return probabilities
