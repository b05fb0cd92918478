"""What the layers of toy models compute, for porter's own engine: as the file says it, not as read.py takes
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from porter.base.dtypes import Numbers
from porter.filegraph.kernels import values, windows
from porter.filegraph.kernels.layouts import channels_last, resize_nearest
from porter.filegraph.kernels.windows import Grid
from porter.filegraph.program import KernelProgram, OperatorCall, Row

Stated = Mapping[str, Any]


def program(definition: bytes) -> KernelProgram:
    stated = json.loads(definition)
    steps = [
        OperatorCall(each["kind"], (*each["from"], *each.get("weights", ())), (each["name"],), each)
        for each in stated["layers"]
    ]
    last = stated["layout"] == "NHWC"
    return KernelProgram(
        "image", tuple(steps), _rows(channels_last if last else lambda kernel: kernel, 3 if last else 1), last
    )


def _rows(on_maps: Callable[..., Any], channels: int) -> Mapping[str, Row]:
    """The rows of a layout.

    Args:
        on_maps: a kernel of maps N×C×H×W, for those of the layout.
        channels: their axis.
    """
    conv, deconv, max_pool, average_pool = map(
        on_maps, (windows.conv, windows.conv_transpose, windows.max_pool, windows.average_pool)
    )
    norm, lrn, upsample = map(on_maps, (values.batch_norm, values.response_norm, resize_nearest))
    cells = tuple({1, 2, 3} - {channels})

    def pool(stated: Stated, x: Numbers) -> Numbers:
        sides = (stated["side"], stated["side"])
        pooled: Numbers = (
            max_pool(x, sides, _grid(stated))
            if stated["kind"] == "max_pool"
            else average_pool(x, sides, _grid(stated), stated["divisor"])
        )
        return pooled

    return {
        "conv": lambda stated, x, kernel, bias=None: conv(
            x, kernel, bias, _grid(stated), stated.get("groups", 1)
        ),
        "deconv": lambda stated, x, kernel, bias=None: deconv(
            x, kernel, bias, _grid(stated), stated.get("groups", 1)
        ),
        "max_pool": pool,
        "average_pool": pool,
        "norm": lambda stated, x, mean, variance, *held: norm(x, mean, variance + stated["epsilon"], *held),
        "lrn": lambda stated, x: lrn(x, stated["size"], stated["alpha"], stated["beta"], stated["bias"]),
        "dense": lambda stated, x, kernel, bias=None: values.dense(x, kernel, bias),
        "flatten": lambda stated, x: x.reshape(len(x), -1),
        "upsample": lambda stated, x: upsample(x, (1, 1, stated["factor"], stated["factor"])),
        "add": lambda stated, *several: sum(several),
        "concat": lambda stated, *several: np.concatenate(several, channels if several[0].ndim == 4 else 1),
        "mean": lambda stated, x: x.mean(cells),
        "relu": lambda stated, x: values.relu(x),
        "relu6": lambda stated, x: values.relu(x, 6.0),
        "leaky_relu": lambda stated, x: values.relu(x, slope=stated["slope"]),
        "sigmoid": lambda stated, x: values.sigmoid(x),
        "tanh": lambda stated, x: np.tanh(x),
        "softmax": lambda stated, x: values.softmax(x, 1),
    }


def _grid(stated: Stated) -> Grid:
    stride, dilation = stated.get("stride", 1), stated.get("dilation", 1)
    grid = Grid((stride, stride), (dilation, dilation), tuple(stated.get("pads", (0, 0, 0, 0))))
    return replace(grid, rounding="ceil") if stated.get("ceil") else grid
