"""ATen's convolutions and pools. Their maps are N×C×H×W."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from porter.base.dtypes import Numbers
from porter.base.name_tables import by_name
from porter.filegraph.dataflow import OperatorNode, StoredTensor
from porter.filegraph.file_graph import Stored, Unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layers import symmetric_pads
from porter.filegraph.layouts.axes import View
from porter.filegraph.layouts.dims import Dim
from porter.filegraph.tensors.stacks import stack_maps, unstack_maps
from porter.filegraph.tensors.tensor import Tensor
from porter.filegraph.walk import Read
from porter.formats.torch_export.constants import convolve_pointwise
from porter.formats.torch_export.op_readers import AtenFunction, Call
from porter.graph import Conv, ConvTranspose
from porter.graph.ops import Function
from porter.padding import LOWEST, Average, Convention, Pads, Window

Pair = Sequence[int] | int
"""Rows and columns, or one number for both."""


@dataclass(frozen=True, kw_only=True)
class _Convolution(Call):
    """A kernel is filters×channels/groups×rows×columns, a transposed one
    channels×filters/groups×rows×columns. A convolution over one axis is one along the channels, or one over a
    map of one row.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: Pair = 1
    padding: Pair | str = 0
    dilation: Pair = 1
    groups: int = 1
    transposed: bool = False
    output_padding: Pair = 0

    def read(self) -> Tensor | Numbers:
        """Return the convolution or the transposed one: of a constant, along one axis, or over a map, by the
        kernel's axes.
        """
        if self.x.array is not None:
            return self._convolve_constant(self.x.array)
        kernel, tensors = _kernel_and_tensors(self.weight, self.bias)
        if len(kernel.shape) == 3:
            return self._convolve_axis(kernel, tensors)
        if len(kernel.shape) != 4:
            raise Unsupported(f"of {len(kernel.shape) - 2} axes")
        window = Window((kernel.shape[2], kernel.shape[3]), _pair(self.stride), _pair(self.dilation))
        pads = _read_pads(window, self.padding)
        if self.transposed:
            top, bottom, left, right = pads
            rows, columns = _pair(self.output_padding)
            cut = (top, bottom - rows, left, right - columns)
            filters = kernel.shape[1] * self.groups
            op = ConvTranspose(filters, window, cut, self.groups, "bias" in tensors)
            return _expect_map(self.x).apply_op(op, **tensors)
        conv = Conv(kernel.shape[0], window, Convention.stated(pads, 0.0), self.groups)
        return self.x.derive("conv", lambda node: _add_conv(self.x, node, conv, tensors))

    def _convolve_constant(self, x: Numbers) -> Numbers:
        """Return a 1x1 convolution of a constant map; others are Unsupported."""
        is_plain = self.stride in (1, [1, 1]) and self.padding in (0, [0, 0]) and self.groups == 1
        if not is_plain or self.transposed:
            raise Unsupported("of a constant with strides, pads or groups")
        return convolve_pointwise(
            x, self.weight.numbers(), None if self.bias is None else self.bias.numbers()
        )

    def _convolve_axis(self, kernel: StoredTensor, tensors: Mapping[str, Stored]) -> Tensor:
        """Return a convolution along one axis, as one of a map of one row. A plain one without bias may run
        along the channels of a map instead, where the value is one.
        """
        if self.transposed or isinstance(self.padding, str):
            raise Unsupported("of 1 axis that is transposed or has pads by a rule")
        (_, stride), (_, dilation), (_, pad) = map(_pair, (self.stride, self.dilation, self.padding))
        window = Window((1, kernel.shape[2]), (1, stride), (1, dilation))
        op = Conv(kernel.shape[0], window, Convention.stated((0, 0, pad, pad), 0.0), self.groups)
        x = self.x
        in_row = x.as_row_map().conv(op, tensors).without_rows()
        if (stride, dilation, self.groups) != (1, 1, 1) or self.bias is not None:
            return in_row
        # Along the channels if the value's axes allow it.
        return x.conv_along_channels(self.weight.reference, (pad, pad)).or_else(in_row)


def _kernel_and_tensors(weight: Tensor, bias: Tensor | None) -> tuple[StoredTensor, dict[str, Stored]]:
    """Return the kernel of a convolution, and its tensors by role: `kernel` and, if there is one, `bias`.
    Raise Unsupported if one of them is computed.
    """
    kernel = weight.walk.weights(weight.source)
    vector = None if bias is None else bias.walk.weights(bias.source)
    if kernel is None:
        raise Unsupported("with a kernel that is computed")
    if bias is not None and (vector is None or len(vector.shape) != 1):
        raise Unsupported("with a bias that is computed")
    tensors = {"kernel": Stored(kernel.name, "OIW" if len(kernel.shape) == 3 else "OIHW")}
    if vector is not None:
        tensors["bias"] = Stored(vector.name)
    return kernel, tensors


def _read_pads(window: Window, padding: Pair | str) -> Pads:
    """Return the pads that a convolution states as numbers, or as a rule by its name."""
    if not isinstance(padding, str):
        return symmetric_pads(_pair(padding))
    # The odd cell comes last, as in TensorFlow (torch/nn/modules/conv.py).
    rows, columns = (window.extent(axis) - 1 if padding == "same" else 0 for axis in (0, 1))
    return rows // 2, rows - rows // 2, columns // 2, columns - columns // 2


def _expect_map(x: Tensor) -> Tensor:
    """Return `x`, and raise Unsupported if it is not a map."""
    if not (x.value.is_map or x.value.shape is None):
        raise Unsupported("of something else than a map")
    return x


def _add_conv(x: Tensor, node: OperatorNode, op: Conv, tensors: Mapping[str, Stored]) -> View | Value:
    """Add a convolution of a map, or of several maps of each image, which then are stacked to one, and return
    its value.
    """
    pads = op.convention.pads
    stack = stack_maps(x.walk, node, x.view, op.window, pads)
    conv = x.walk.builder.conv
    if stack is None:
        return conv(node.name, _expect_map(x).value, op, tensors)
    op = replace(op, convention=Convention.stated(stack.pads, 0.0))
    return unstack_maps(x.walk, node, stack, conv(node.name, stack.value, op, tensors))


@dataclass(frozen=True, kw_only=True)
class _Pool(Call):
    """A pool over rows and columns, which moves by its window if it states no stride."""

    x: Tensor
    kernel_size: Pair
    stride: Pair = ()
    padding: Pair = 0
    ceil_mode: bool = False

    @property
    def window(self) -> Window:
        """Return the window of the pool."""
        return Window(_pair(self.kernel_size), _pair(self.stride or self.kernel_size))

    def convention(self, fill: float, average: Average = "real_cells") -> Convention:
        """Return the pads of the pool, what fills them, and how an average and the size are counted."""
        pads = symmetric_pads(_pair(self.padding))
        return Convention.stated(pads, fill, average, "ceil" if self.ceil_mode else "floor")

    def add_pool(self, name: str, function: Function, window: Window, convention: Convention) -> Tensor:
        """Return a pool of a map, or without pads of several maps of each image."""
        return self.x.derive(name, lambda node: _add_pool(self.x, node, function, window, convention))


@dataclass(frozen=True, kw_only=True)
class _MaxPool(_Pool):
    """The pads take no part. Of a pool with places, nothing reads the places."""

    dilation: Pair = 1

    def read(self) -> Tensor:
        """Return the largest numbers of the windows, in which pads take no part."""
        window = replace(self.window, dilation=_pair(self.dilation))
        return self.add_pool("pool", "max", window, self.convention(LOWEST))


@dataclass(frozen=True, kw_only=True)
class _AvgPool(_Pool):
    """An average pool: it divides by all cells of a window and of the pads in it, or by the real ones, or by
    a number.
    """

    count_include_pad: bool = True
    divisor_override: int | None = None

    def read(self) -> Tensor:
        """Return the means of the windows, by all cells, by the real ones, or by `divisor_override`."""
        average: Average = "real_cells"
        if self.divisor_override or (self.count_include_pad and not self.ceil_mode):
            average = "full_window"
        elif self.count_include_pad:
            average = "clipped_window"
        mean = self.add_pool("mean", "mean", self.window, self.convention(0.0, average))
        cells = math.prod(self.window.kernel)
        factor = cells / self.divisor_override if self.divisor_override else 1.0
        return mean if factor == 1 else factor * mean


@dataclass(frozen=True, kw_only=True)
class _AvgPool1d(_Pool):
    """An average pool without pads, as a pool over a map of one row."""

    count_include_pad: bool = True

    def read(self) -> Tensor:
        """Return the means of windows over one axis; with pads it is Unsupported."""
        if any(_pair(self.padding)):
            raise Unsupported("with pads")
        (_, cells), (_, step) = self.window.kernel, self.window.stride
        return (
            self.x.as_row_map()
            .pool("mean", Window((1, cells), (1, step)), self.convention(0.0))
            .without_rows()
        )


def _add_pool(
    x: Tensor, node: OperatorNode, function: Function, window: Window, convention: Convention
) -> Read:
    """Add a pool of a map, or without pads of several maps of each image, and return its value."""
    # There are neither pads nor a cut window, which would reach from one stacked map into the next.
    is_plain = not any(convention.pads) and convention.rounding == "floor"
    stack = stack_maps(x.walk, node, x.view, window, convention.pads) if is_plain else None
    pool = x.walk.builder.pool
    if stack is None:
        return pool(node.name, x.value, function, window, convention)
    convention = replace(convention, rule="explicit", pads=stack.pads)
    return unstack_maps(x.walk, node, stack, pool(node.name, stack.value, function, window, convention))


def _adaptive_pool_function(function: Function) -> AtenFunction:
    """Return the function of a pool to so many rows and columns, or to as many of both."""

    def pool(x: Tensor, output_size: Sequence[Dim]) -> Tensor:
        """Return the pool of a map to so many rows and columns."""
        if not x.value.is_map:
            raise Unsupported("of something else than a map")
        counts = output_size[0], output_size[-1]
        return x.adaptive_pool(function, counts)

    return pool


def _global_pool_function(function: Function) -> AtenFunction:
    """Return the function of a pool of the last axis to one number; to more it is Unsupported."""

    def pool(x: Tensor, output_size: Sequence[int]) -> Tensor:
        if output_size != [1]:
            raise Unsupported("to more than one number")
        return x.reduce(function, [-1], True)

    return pool


def _pair(argument: Pair) -> tuple[int, int]:
    """Return rows and columns of an argument that is one number or two."""
    numbers = [argument] if isinstance(argument, int) else argument
    return numbers[0], numbers[-1]


FUNCTIONS: Mapping[str, AtenFunction] = by_name(
    {
        "conv1d conv2d convolution": _Convolution,
        "max_pool2d max_pool2d_with_indices": _MaxPool,
        "adaptive_avg_pool2d _adaptive_avg_pool2d": _adaptive_pool_function("mean"),
        "adaptive_avg_pool1d": _global_pool_function("mean"),
        "adaptive_max_pool1d": _global_pool_function("max"),
        "adaptive_max_pool2d": _adaptive_pool_function("max"),
        "avg_pool1d": _AvgPool1d,
        "avg_pool2d": _AvgPool,
        "conv_transpose2d": partial(_Convolution, transposed=True),
    }
)
