from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from porter.base.errors import UsageError
from porter.base.ways_to_run import FP32, Run
from porter.data.preparing import normalise
from porter.data.preprocess import Preprocess
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import get_destination
from porter.frameworks.tf.runtime import import_keras
from tests.support.evaluation.protocols import PROTOCOLS, pixels_of

FRAMEWORK = get_destination("tf")


@pytest.fixture(scope="module")
def shows() -> Any:
    """A model that gives its input."""
    keras = import_keras()
    inputs = keras.Input((None, None, 3))
    return keras.Model(inputs, keras.layers.Reshape((-1,))(inputs))


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
@pytest.mark.parametrize("crops", [1, 10])
def test_pixels_are_scaled_as_porter_data_does_to_the_last_bit(
    shows: Any, protocol: Preprocess, crops: int
) -> None:
    pixels = pixels_of(protocol, photos=3, crops=crops)
    got = FRAMEWORK.ENGINE.classifier(shows, protocol, "cpu", FP32)(pixels)()
    wanted = normalise(pixels, protocol).transpose(0, 1, 3, 4, 2).reshape(3 * crops, -1)
    assert got.dtype == np.float32 and np.array_equal(got, wanted)


def test_the_tf32_switch_is_put_back(shows: Any) -> None:
    enabled = import_tensorflow().config.experimental.tensor_float_32_execution_enabled
    before = enabled()
    for precision in ("fp32", "tf32"):
        FRAMEWORK.ENGINE.classifier(shows, PROTOCOLS[0], "cpu", Run(precision))(pixels_of(PROTOCOLS[0]))()
        assert enabled() == before


def test_bf16_is_refused(shows: Any) -> None:
    with pytest.raises(UsageError, match="not in bf16"):
        FRAMEWORK.ENGINE.classifier(shows, PROTOCOLS[0], "cpu", Run("bf16"))
