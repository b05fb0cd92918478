"""Reading what a fit found: tensors that hold no numbers are refused before anything is computed with
them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from porter.base.dtypes import Dtype, storage_type
from porter.base.errors import FileError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import get_dialect
from porter.graph import Conv, Graph, Node
from porter.padding import Convention, Window
from porter.source.fitting.fit import Fit
from porter.source.opened import read_tensors
from tests.support.arrays import Array

FIT = Fit(
    graph=Graph((Node("conv", Conv(2, Window((1, 1)), Convention()), ("input",)),), 3, "conv"),
    tensors={("conv", "kernel"): "conv.weight"},
    source_classes=2,
    head=None,
)


def read(kernel: Array) -> Array:
    checkpoint = Checkpoint(Path("a.pth"), "torch", "torch", {"conv.weight": kernel})
    return read_tensors(FIT, checkpoint, get_dialect("torch"))["conv"]["kernel"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_tensor_with_a_nan_is_named(dtype: Dtype) -> None:
    kernel = np.zeros((2, 3, 1, 1), storage_type(dtype))
    kernel[1, 2] = np.nan
    with pytest.raises(FileError, match=r"1 of 6 values in tensor 'conv\.weight' are NaN") as caught:
        read(kernel)
    assert caught.value.where == "a.pth"


def test_infinities_may_be_meant() -> None:
    kernel = np.full((2, 3, 1, 1), np.inf, np.float32)
    assert np.isinf(read(kernel)).all()
