"""Constants in a Keras config, and the statistics of a Normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from porter.base.dtypes import Float64Array, NamedArrays
from porter.graph import MOST_CONSTANTS

_LEAST_DEVIATION = 1e-7
"""keras.config.epsilon(), Normalization's lower bound of a deviation."""


def constant(value: Any) -> Float64Array | None:
    """A number, or one number per channel, as a vector; None where `value` is neither."""
    array = numbers_in(value)
    fits = (
        array is not None
        and array.size <= MOST_CONSTANTS
        and array.size == (array.shape[-1] if array.ndim else 1)
    )
    return array.reshape(-1) if array is not None and fits else None


def numbers_in(value: Any) -> Float64Array | None:
    """A finite number, or an array of them; None where `value` is neither."""
    if isinstance(value, dict) and value.get("class_name") in ("__numpy__", "__tensor__"):
        value = value["config"]["value"] if isinstance(value["config"], dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float | list | tuple):
        return None
    try:
        array = np.asarray(value, np.float64)
    except (ValueError, TypeError):
        return None
    return array if array.size and np.isfinite(array).all() else None


def statistics(
    arguments: Mapping[str, Any], variables: NamedArrays
) -> tuple[Float64Array, Float64Array] | None:
    """Mean and variance of a Normalization, of the same length; None where they are missing, or not one per
    channel.

    They are in the config, or in the weights if it was adapted to data.
    """
    moments = arguments.get("mean"), arguments.get("variance")
    stored = variables.get("mean"), variables.get("variance")
    pair = (
        moments
        if moments[0] is not None
        else tuple(None if one is None else one.astype(np.float64).tolist() for one in stored)
    )
    mean, variance = (constant(one) for one in pair)
    if mean is None or variance is None or (variance < 0).any() or len({len(mean), len(variance)} - {1}) > 1:
        return None
    mean, variance = np.broadcast_arrays(mean, variance)
    return mean, variance


def normalising(
    mean: Float64Array, variance: Float64Array, invert: bool
) -> tuple[Float64Array, Float64Array]:
    """Scale and offset of a Normalization.

    x becomes (x - mean) / max(sqrt(variance), 1e-7), or the inverse
    (keras/src/layers/preprocessing/normalization.py, call).
    """
    deviation = np.maximum(np.sqrt(variance), _LEAST_DEVIATION)
    return (deviation, mean) if invert else (1 / deviation, -mean / deviation)
