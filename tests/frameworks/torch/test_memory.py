"""The memory of batches."""

from __future__ import annotations

import platform
import resource

import numpy as np
import pytest
from torch import nn

from porter.data.preprocess import Preprocess
from porter.frameworks.torch.evaluate import make_classifier


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep what they keep")
def test_a_batch_takes_the_memory_of_the_last_one() -> None:
    model = nn.Sequential(nn.Conv2d(3, 48, 1), nn.ReLU(), nn.Conv2d(48, 1, 1))
    classify = make_classifier(model, Preprocess("none", 256, "none"), "cpu", "fp32", None)
    pixels, faults = np.zeros((4, 1, 256, 256, 3), np.uint8), []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        classify(pixels)()
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert faults[-1] < 4 * 256 * 256 * 48 * 4 // 4096 / 4, "pages of one map of 50 MB"
