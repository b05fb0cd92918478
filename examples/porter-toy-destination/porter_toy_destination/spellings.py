"""How the toy format says each op that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from porter.base.errors import GraphError, PaddingError
from porter.frameworks.numpy.nets import NetArray
from porter.graph import AvgPool, Conv, MaxPool, Op, ops
from porter.padding import Realisation
from porter_toy_destination.maker import ToyNode

Spelling: TypeAlias = Callable[[ToyNode[Any]], object]


def _plain(
    kind: str, stated: Callable[[Any], Mapping[str, Any]] = lambda op: {}, roles: tuple[str, ...] = ()
) -> Spelling:
    """Return the spelling of an op as one layer, of the values that the op takes and of its tensors of these
    roles.
    """
    return lambda node: node.result(kind, *node.inputs, held=node.tensors(*roles), **stated(node.op))


def _norm(node: ToyNode[ops.BatchNorm]) -> None:
    """The format's norm has both factors."""
    neutral: Mapping[str, NetArray] = {
        "gamma": np.ones(node.channels),
        "beta": np.zeros(node.channels),
    }
    factors = [node.tensors(role) or (neutral[role],) for role in ("gamma", "beta")]
    held = (*node.tensors("mean", "variance"), *factors[0], *factors[1])
    node.result("norm", *node.inputs, held=held, epsilon=node.op.epsilon)


def _transposed(node: ToyNode[ops.ConvTranspose]) -> None:
    if min(node.op.cut) < 0:
        raise GraphError("a toy deconv adds no cells", where=node.path)
    held = node.tensors("kernel", "bias")
    node.result(
        "deconv",
        *node.inputs,
        held=held,
        groups=node.op.groups,
        pads=node.op.cut,
        **_steps(node.path, node.op),
    )


def _steps(path: str, op: Conv | MaxPool | AvgPool | ops.ConvTranspose) -> dict[str, Any]:
    stride, dilation = op.window.stride, op.window.dilation
    if len({*stride}) > 1 or len({*dilation}) > 1:
        raise GraphError("a toy layer has one stride and one dilation", where=path)
    return {"stride": stride[0], "dilation": dilation[0]}


def _upsample(node: ToyNode[ops.Upsample]) -> None:
    if node.op.rows != node.op.columns:
        raise GraphError("a toy upsample has one factor", where=node.path)
    node.result("upsample", *node.inputs, factor=node.op.rows)


def _flatten(node: ToyNode[ops.Flatten]) -> None:
    if node.op.order == "HWC":
        raise GraphError("a toy flatten goes channel by channel", where=node.path)
    node.result("flatten", *node.inputs)


def _lrn(node: ToyNode[ops.LocalResponseNorm]) -> None:
    op = node.op
    if op.size % 2 == 0:
        raise GraphError("a toy lrn has an odd size", where=node.path)
    node.result("lrn", *node.inputs, size=op.size, alpha=op.alpha * op.size, beta=op.beta, bias=op.bias)


def _pool(node: ToyNode[ops.GlobalAvgPool]) -> None:
    if node.op.keep:
        raise GraphError("a toy mean gives features", where=node.path)
    node.result("mean", *node.inputs)


SPELLINGS: Mapping[type[Op], Spelling] = {
    ops.ConvTranspose: _transposed,
    ops.Dense: _plain("dense", roles=("kernel", "bias")),
    ops.BatchNorm: _norm,
    ops.LocalResponseNorm: _lrn,
    ops.Relu: _plain("relu"),
    ops.Relu6: _plain("relu6"),
    ops.LeakyRelu: _plain("leaky_relu", lambda op: {"slope": op.slope}),
    ops.Sigmoid: _plain("sigmoid"),
    ops.Tanh: _plain("tanh"),
    ops.Softmax: _plain("softmax"),
    ops.Add: _plain("add"),
    ops.Concat: _plain("concat"),
    ops.GlobalAvgPool: _pool,
    ops.Upsample: _upsample,
    ops.Flatten: _flatten,
}


def add_windowed(node: ToyNode[Any], realisation: Realisation) -> None:
    """The format says every pad of zeros around a convolution, and none that is real around a pool."""
    native, op = realisation.native, node.op
    if (
        realisation.front
        or realisation.subsample
        or realisation.by_cell
        or native.rule not in ("valid", "explicit")
    ):
        raise PaddingError(f"a toy model has no layers for '{realisation}'", where=node.path)
    if not isinstance(op, Conv) and len({*op.window.kernel}) > 1:
        raise GraphError("a toy pool has one side", where=node.path)
    stated = {"pads": native.pads, **_steps(node.path, op)}
    if isinstance(op, Conv):
        held = node.tensors("kernel", "bias")
        node.result("conv", *node.inputs, held=held, groups=op.groups, **stated)
        return
    stated |= {"side": op.window.kernel[0], "ceil": native.rounding == "ceil"}
    stated |= {"divisor": native.average} if isinstance(op, AvgPool) else {}
    node.result("max_pool" if isinstance(op, MaxPool) else "average_pool", *node.inputs, **stated)
