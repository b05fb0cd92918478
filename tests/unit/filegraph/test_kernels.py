"""The operators of porter's own engine against torch's and onnxruntime's, in double precision; and that each
argument counts.

tests/unit/frameworks/onnx/test_operators.py holds most of them to onnxruntime too, in every opset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn import functional

from porter.base.dtypes import Numbers
from porter.filegraph.kernels import layouts, values, windows
from porter.filegraph.kernels.layouts import channels_last
from porter.filegraph.kernels.windows import Grid
from tests.support.frameworks.onnx.sessions import averaged

Operator = Callable[..., Any]
STRIDED = Grid((2, 3), (1, 2), (1, 1, 2, 2))


class Case(NamedTuple):
    """An operator, the same of another library, shapes of what they take, and calls with a mistake, which
    have to differ.
    """

    own: Operator
    theirs: Operator
    shapes: tuple[tuple[int, ...], ...] = ((2, 6, 10, 11),)
    wrong: tuple[Operator, ...] = ()


def _grid(grid: Grid, **changed: Any) -> Grid:
    return Grid(
        **{**{name: getattr(grid, name) for name in ("stride", "dilation", "pads", "rounding")}, **changed}
    )


def _conv(groups: int, grid: Grid = STRIDED) -> Operator:
    return lambda x, kernel, bias: windows.conv(x, kernel, bias, grid, groups)


def _transposed(grid: Grid = STRIDED, more: tuple[int, int] = (1, 0), groups: int = 2) -> Operator:
    return lambda x, kernel, bias: windows.conv_transpose(x, kernel, bias, grid.with_more(*more), groups)


def _average(divisor: Any, grid: Grid) -> Operator:
    return lambda x: windows.average_pool(x, (3, 2), grid, divisor)


def _norm(x: torch.Tensor, mean: Any, variance: Any, gamma: Any, beta: Any) -> torch.Tensor:
    return functional.batch_norm(x, mean, variance**2, gamma, beta, eps=0.01)


POOLED, UNEVEN = Grid((2, 2), pads=(1, 1, 1, 1), rounding="ceil"), Grid((2, 3), pads=(1, 0, 0, 1))
CASES: Mapping[str, Case] = {
    "conv": Case(
        _conv(2),
        partial(functional.conv2d, stride=(2, 3), dilation=(1, 2), padding=(1, 2), groups=2),
        ((2, 6, 9, 11), (4, 3, 3, 2), (4,)),
        (
            _conv(2, _grid(STRIDED, pads=(2, 0, 2, 2))),
            _conv(2, _grid(STRIDED, stride=(2, 2))),
            lambda x, kernel, bias: windows.conv(x, kernel[:, :, ::-1], bias, STRIDED, 2),
            lambda x, kernel, bias: windows.conv(x, kernel, None, STRIDED, 2),
        ),
    ),
    "depthwise": Case(
        _conv(6, Grid()),
        partial(functional.conv2d, groups=6),
        ((2, 6, 9, 11), (12, 1, 3, 3), (12,)),
        (_conv(6, Grid((2, 2))),),
    ),
    "pads that differ": Case(
        _conv(1, Grid(pads=(0, 2, 1, -1))),
        lambda x, kernel, bias: functional.conv2d(functional.pad(x, (1, -1, 0, 2)), kernel, bias),
        ((2, 3, 7, 8), (4, 3, 3, 3), (4,)),
        (_conv(1, Grid(pads=(2, 0, 1, -1))), _conv(1, Grid(pads=(0, 2, -1, 1)))),
    ),
    "transposed conv": Case(
        _transposed(),
        partial(
            functional.conv_transpose2d,
            stride=(2, 3),
            dilation=(1, 2),
            padding=(1, 2),
            output_padding=(1, 0),
            groups=2,
        ),
        ((2, 6, 5, 4), (6, 2, 3, 4), (4,)),
        (
            _transposed(more=(0, 0)),
            _transposed(_grid(STRIDED, pads=(2, 0, 2, 2))),
            _transposed(_grid(STRIDED, stride=(3, 3))),
        ),
    ),
    "max pool": Case(
        lambda x: windows.max_pool(x, (3, 2), _grid(POOLED, dilation=(1, 2))),
        partial(
            functional.max_pool2d, kernel_size=(3, 2), stride=2, padding=1, dilation=(1, 2), ceil_mode=True
        ),
        wrong=(
            lambda x: windows.max_pool(x, (3, 2), _grid(POOLED, dilation=(1, 2), rounding="floor")),
            lambda x: windows.max_pool(x, (3, 2), _grid(POOLED, dilation=(1, 2)), fill=0.0),
        ),
    ),
    "average of real cells": Case(
        _average("real_cells", POOLED),
        lambda x: functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False),
        wrong=(_average("clipped_window", POOLED), _average("real_cells", _grid(POOLED, rounding="floor"))),
    ),
    "average with its pads": Case(
        _average("clipped_window", POOLED),
        lambda x: functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=True),
        wrong=(_average("full_window", POOLED), _average("real_cells", POOLED)),
    ),
    "average of all": Case(
        _average("full_window", POOLED),
        lambda x: functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, divisor_override=6),
        wrong=(_average("clipped_window", POOLED),),
    ),
    "average with uneven pads, of onnxruntime": Case(
        _average("clipped_window", UNEVEN),
        lambda x: averaged(x, kernel_shape=[3, 2], strides=[2, 3], pads=[1, 0, 0, 1], count_include_pad=1),
        wrong=(_average("real_cells", UNEVEN), _average("clipped_window", _grid(UNEVEN, pads=(0, 1, 0, 1)))),
    ),
    "batch norm": Case(
        lambda x, mean, spread, gamma, beta: values.batch_norm(x, mean, spread**2 + 0.01, gamma, beta),
        _norm,
        ((2, 6, 3, 4), (6,), (6,), (6,), (6,)),
        (lambda x, mean, spread, gamma, beta: values.batch_norm(x, mean, spread**2 + 0.001, gamma, beta),),
    ),
    "group norm": Case(
        lambda x, gamma, beta: values.group_norm(x, 3, gamma, beta, 0.01),
        lambda x, gamma, beta: functional.group_norm(x, 3, gamma, beta, 0.01),
        ((2, 6, 3, 4), (6,), (6,)),
        (lambda x, gamma, beta: values.group_norm(x, 2, gamma, beta, 0.01),),
    ),
    "layer norm": Case(
        lambda x: values.standardise(x, (3,), 0.01),
        lambda x: functional.layer_norm(x, (11,), eps=0.01),
        wrong=(lambda x: values.standardise(x, (1,), 0.01), lambda x: values.standardise(x, (3,), 0.1)),
    ),
    "response norm": Case(
        lambda x: values.response_norm(x, 5, 0.3, 0.75, 1.5),
        lambda x: functional.local_response_norm(x, 5, 0.3, 0.75, 1.5),
        wrong=(
            lambda x: values.response_norm(x, 3, 0.3, 0.75, 1.5),
            lambda x: values.response_norm(x, 5, 1.5, 0.75, 1.5),
        ),
    ),
    "dense": Case(
        values.dense,
        functional.linear,
        ((2, 5), (3, 5), (3,)),
        (lambda x, kernel, bias: values.dense(x, kernel),),
    ),
    "softmax": Case(
        lambda x: values.softmax(x, 1),
        partial(functional.softmax, dim=1),
        wrong=(lambda x: values.softmax(x, 3), values.sigmoid),
    ),
    "log softmax": Case(lambda x: values.log_softmax(x, 1), partial(functional.log_softmax, dim=1)),
    "relu": Case(values.relu, functional.relu),
    "relu6": Case(
        lambda x: values.relu(9 * x, 6.0),
        lambda x: functional.relu6(9 * x),
        wrong=(lambda x: values.relu(9 * x),),
    ),
    "leaky relu": Case(
        lambda x: values.relu(x, slope=0.1), partial(functional.leaky_relu, negative_slope=0.1)
    ),
    "prelu": Case(
        lambda x, slope: values.relu(x, slope=values.per_channel(slope, x)),
        functional.prelu,
        ((2, 6, 3, 4), (6,)),
    ),
    "elu": Case(lambda x: values.elu(x, 0.7), partial(functional.elu, alpha=0.7), wrong=(values.elu,)),
    "sigmoid": Case(lambda x: values.sigmoid(40 * x), lambda x: torch.sigmoid(40 * x)),
    "hard sigmoid": Case(
        lambda x: values.hard_sigmoid(4 * x, 1 / 6), lambda x: functional.hardsigmoid(4 * x)
    ),
    "hard swish": Case(
        lambda x: values.hard_swish(4 * x), lambda x: functional.hardswish(4 * x), wrong=(values.hard_swish,)
    ),
    "gelu": Case(values.gelu, functional.gelu, wrong=(lambda x: values.gelu(x, True),)),
    "gelu by tanh": Case(lambda x: values.gelu(x, True), partial(functional.gelu, approximate="tanh")),
    "nearest": Case(
        lambda x: layouts.resize_nearest(x, (1, 1, 2, 3)),
        lambda x: functional.interpolate(x, scale_factor=(2, 3)),
        wrong=(lambda x: layouts.resize_nearest(x, (1, 1, 2, 2)),),
    ),
    "flatten": Case(
        lambda x: layouts.flatten(x, "HWC"),
        lambda x: x.permute(0, 2, 3, 1).flatten(1),
        wrong=(layouts.flatten, lambda x: layouts.flatten(x, "WHC")),
    ),
    "reflected pad": Case(
        lambda x: layouts.pad(x, [(0, 0), (0, 0), (1, 2), (3, -1)], "reflect"),
        lambda x: functional.pad(x[..., :-1], (3, 0, 1, 2), "reflect"),
        wrong=(lambda x: layouts.pad(x, [(0, 0), (0, 0), (1, 2), (3, -1)], "edge"),),
    ),
    "channels last": Case(
        lambda x: layouts.with_channels_first(
            channels_last(windows.max_pool)(layouts.with_channels_last(x), (2, 2), Grid((2, 2)))
        ),
        lambda x: functional.max_pool2d(x, 2),
    ),
}


def _apart(found: Numbers, wanted: Numbers) -> float:
    return (
        float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
        if found.shape == wanted.shape
        else np.inf
    )


@pytest.mark.parametrize("name", CASES)
def test_operators_are_what_another_library_computes(name: str) -> None:
    case, rng = CASES[name], np.random.default_rng(0)
    given = [rng.standard_normal(shape) for shape in case.shapes]
    wanted = np.asarray(case.theirs(*map(torch.from_numpy, given)))
    assert _apart(case.own(*given), wanted) <= (1e-14 if "onnxruntime" not in name else 1e-6)
    assert all(_apart(wrong(*given), wanted) > 1e-5 for wrong in case.wrong)
    single = case.own(*(array.astype(np.float32) for array in given))
    assert single.dtype == np.float32 and _apart(single.astype(np.float64), wanted) < 1e-5


def test_same_pads_put_the_odd_cell_behind_or_before() -> None:
    assert [windows.same_pads(5, 3, 2), windows.same_pads(6, 3, 2), windows.same_pads(6, 3, 2, True)] == [
        (1, 1),
        (0, 1),
        (1, 0),
    ]
    assert windows.same_pads(5, 1, 2) == (0, 0)


def test_full_rounding_keeps_a_window_that_begins_in_the_pads() -> None:
    x, grid = np.arange(16.0).reshape(1, 1, 4, 4), Grid((3, 3), pads=(0, 2, 0, 2), rounding="full")
    assert windows.max_pool(x, (2, 2), grid).shape == (1, 1, 3, 3)
    assert windows.max_pool(x, (2, 2), _grid(grid, rounding="ceil")).shape == (1, 1, 2, 2)


def test_a_window_larger_than_the_map_is_an_error() -> None:
    with pytest.raises(ValueError, match="a window is larger than the map and its pads"):
        windows.max_pool(np.zeros((1, 1, 2, 9)), (4, 4))
