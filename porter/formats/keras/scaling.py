"""Constants in a Keras config, and the statistics of a Normalization."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from porter.base.dtypes import Float64Array, NamedArrays
from porter.graph import MOST_CONSTANTS

_LEAST_DEVIATION = 1e-7
"""keras.config.epsilon(), Normalization's lower bound of a deviation."""


def channel_numbers(value: Any) -> Float64Array | None:
    """Return a number, or one number per channel, as a vector; None where `value` is neither."""
    array = numbers_in(value)
    if array is None or array.size > MOST_CONSTANTS:
        return None
    channels = array.shape[-1] if array.ndim else 1
    return array.reshape(-1) if array.size == channels else None


def numbers_in(value: Any) -> Float64Array | None:
    """Return a finite number, or an array of them, as a float64 array; None where `value` is neither, is a
    flag, or holds numbers that are not finite.
    """
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
    """Return mean and variance of a Normalization, of the same length; None where they are missing, or not
    one per channel.

    They are in the config, or in the weights if the layer was adapted to data.
    """
    moments: Iterable[Any] = arguments.get("mean"), arguments.get("variance")
    if arguments.get("mean") is None:
        stored = variables.get("mean"), variables.get("variance")
        moments = (None if array is None else array.astype(np.float64).tolist() for array in stored)
    mean, variance = map(channel_numbers, moments)
    if mean is None or variance is None or (variance < 0).any():
        return None
    # One number is for all channels.
    channels = {len(mean), len(variance)} - {1}
    if len(channels) > 1:
        return None
    mean, variance = np.broadcast_arrays(mean, variance)
    return mean, variance


def normalising(
    mean: Float64Array, variance: Float64Array, invert: bool
) -> tuple[Float64Array, Float64Array]:
    """Return scale and offset of a Normalization, from its mean and variance.

    x becomes (x - mean) / max(sqrt(variance), 1e-7), or the inverse
    (keras/src/layers/preprocessing/normalization.py, call).
    """
    deviation = np.maximum(np.sqrt(variance), _LEAST_DEVIATION)
    return (deviation, mean) if invert else (1 / deviation, -mean / deviation)
