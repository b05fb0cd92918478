"""How the toy format says each op that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from porter.base.errors import GraphError, PaddingError
from porter.frameworks.numpy.nets import Held
from porter.graph import AvgPool, Conv, MaxPool, Node, Op, ops
from porter.padding import Realisation
from tests.support.toy_destination.maker import ToyMaker

Spelling: TypeAlias = Callable[[ToyMaker, Node, Any], object]


def _plain(
    kind: str, stated: Callable[[Any], Mapping[str, Any]] = lambda op: {}, roles: tuple[str, ...] = ()
) -> Spelling:
    """One layer of the values that the op takes, and of its tensors of these roles."""
    return lambda maker, node, op: maker.layer(
        kind, node.path, *node.inputs, held=maker.trained(node.path, *roles) if roles else (), **stated(op)
    )


def _norm(maker: ToyMaker, node: Node, op: ops.BatchNorm) -> None:
    """The format's norm has both factors."""
    neutral: Mapping[str, Held] = {
        "gamma": np.ones(maker.channels(node.path)),
        "beta": np.zeros(maker.channels(node.path)),
    }
    factors = [maker.trained(node.path, role) or (neutral[role],) for role in ("gamma", "beta")]
    held = (*maker.trained(node.path, "mean", "variance"), *factors[0], *factors[1])
    maker.layer("norm", node.path, *node.inputs, held=held, epsilon=op.epsilon)


def _transposed(maker: ToyMaker, node: Node, op: ops.ConvTranspose) -> None:
    if min(op.cut) < 0:
        raise GraphError("a toy deconv adds no cells", where=node.path)
    held = maker.trained(node.path, "kernel", "bias")
    maker.layer(
        "deconv", node.path, *node.inputs, held=held, groups=op.groups, pads=op.cut, **_steps(node, op)
    )


def _steps(node: Node, op: Conv | MaxPool | AvgPool | ops.ConvTranspose) -> dict[str, Any]:
    stride, dilation = op.window.stride, op.window.dilation
    if len({*stride}) > 1 or len({*dilation}) > 1:
        raise GraphError("a toy layer has one stride and one dilation", where=node.path)
    return {"stride": stride[0], "dilation": dilation[0]}


def _upsample(maker: ToyMaker, node: Node, op: ops.Upsample) -> None:
    if op.rows != op.columns:
        raise GraphError("a toy upsample has one factor", where=node.path)
    maker.layer("upsample", node.path, *node.inputs, factor=op.rows)


def _flatten(maker: ToyMaker, node: Node, op: ops.Flatten) -> None:
    if op.order == "HWC":
        raise GraphError("a toy flatten goes channel by channel", where=node.path)
    maker.layer("flatten", node.path, *node.inputs)


def _lrn(maker: ToyMaker, node: Node, op: ops.LocalResponseNorm) -> None:
    if op.size % 2 == 0:
        raise GraphError("a toy lrn has an odd size", where=node.path)
    maker.layer(
        "lrn", node.path, *node.inputs, size=op.size, alpha=op.alpha * op.size, beta=op.beta, bias=op.bias
    )


def _pool(maker: ToyMaker, node: Node, op: ops.GlobalAvgPool) -> None:
    if op.keep:
        raise GraphError("a toy mean gives features", where=node.path)
    maker.layer("mean", node.path, *node.inputs)


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


def windowed(maker: ToyMaker, node: Node, op: Conv | MaxPool | AvgPool, realisation: Realisation) -> None:
    """The format says every pad of zeros around a convolution, and none that is real around a pool."""
    native, window, pool = realisation.native, op.window, not isinstance(op, Conv)
    if (
        realisation.front
        or realisation.subsample
        or realisation.by_cell
        or native.rule not in ("valid", "explicit")
    ):
        raise PaddingError(f"a toy model has no layers for '{realisation}'", where=node.path)
    if pool and len({*window.kernel}) > 1:
        raise GraphError("a toy pool has one side", where=node.path)
    stated = {"pads": native.pads, **_steps(node, op)}
    if isinstance(op, Conv):
        maker.layer(
            "conv",
            node.path,
            *node.inputs,
            held=maker.trained(node.path, "kernel", "bias"),
            groups=op.groups,
            **stated,
        )
        return
    stated |= {"side": window.kernel[0], "ceil": native.rounding == "ceil"}
    stated |= {"divisor": native.average} if isinstance(op, AvgPool) else {}
    maker.layer("max_pool" if isinstance(op, MaxPool) else "average_pool", node.path, *node.inputs, **stated)
