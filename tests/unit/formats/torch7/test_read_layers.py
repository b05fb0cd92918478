"""Every module of nn's with its fields, by the reader's graph and by porter's own engine, held to torch. It
has Torch7's functions: the two could share a mistake. OpenCV computes the same of what it reads.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from porter.filegraph.file_graph import Foreign
from porter.formats.reading import read_checkpoint
from porter.frameworks.numpy.engine import build_file, run_reference
from tests.support.arrays import Array
from tests.support.filegraph.values import distance, values_of
from tests.support.torch7_files import Module, Sizes, write_torch7

IMAGE = (2, 3, 9, 8)
Compute = Callable[[Tensor], Tensor]


class Case(NamedTuple):
    """What a file holds, and what torch computes of images.

    Attributes:
        width: of a long of the machine that wrote the file, in bytes.
    """

    held: Any
    compute: Callable[[Tensor], Tensor | Sequence[Tensor]]
    width: int = 8


def numbers(name: str, *shape: int) -> Array:
    return np.random.default_rng(zlib.crc32(f"{name} {shape}".encode())).normal(0, 0.6, shape).astype("f4")


def images() -> Array:
    return numbers("images", *IMAGE)


def tensor(array: Array | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(array)


def known(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(numbers(name, *shape))


def sides(name: str, pair: tuple[int, int]) -> dict[str, int]:
    """A field for rows and one for columns, such as kH and kW."""
    return {f"{name}H": pair[0], f"{name}W": pair[1]}


def window(
    kernel: tuple[int, int] = (3, 3), strides: tuple[int, int] = (1, 1), pads: tuple[int, int] = (0, 0)
) -> dict[str, int]:
    return sides("k", kernel) | sides("d", strides) | sides("pad", pads)


def conv(
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int] = (0, 0),
    dilations: tuple[int, int] = (1, 1),
    groups: int = 1,
    bias: bool = True,
    kind: str = "SpatialConvolution",
) -> Case:
    weight, held = numbers("weight", 6, 3 // groups, *kernel), numbers("bias", 6) if bias else None
    stated: dict[str, Any] = window(kernel, strides, pads) | sides("dilation", dilations)
    stored = weight.reshape(6, -1) if kind.endswith("MM") else weight
    more = {"groups": groups} if kind.startswith("cudnn") else {}
    module = Module(kind, nInputPlane=3, nOutputPlane=6, **stated, **more, weight=stored, bias=held)
    kernels, own = torch.from_numpy(weight), tensor(held)
    return Case(module, lambda x: F.conv2d(x, kernels, own, strides, pads, dilations, groups))


def of_padding() -> Case:
    """Old files have one number of pads."""
    stated: dict[str, Any] = {**OLD, "padding": 1, "weight": numbers("weight", 6, 3, 3, 2)}
    module = Module("SpatialConvolution", nInputPlane=3, nOutputPlane=6, **stated)
    return Case(module, lambda x: F.conv2d(x, known("weight", 6, 3, 3, 2), None, (2, 1), 1))


def transposed(
    strides: tuple[int, int] = (2, 2),
    pads: tuple[int, int] = (0, 0),
    more: tuple[int, int] = (0, 0),
    bias: bool = True,
) -> Case:
    weight, held = numbers("weight", 3, 4, 3, 2), numbers("bias", 4) if bias else None
    stated: dict[str, Any] = window((3, 2), strides, pads) | sides("adj", more)
    module = Module(
        "SpatialFullConvolution", nInputPlane=3, nOutputPlane=4, **stated, weight=weight, bias=held
    )
    kernels, own = torch.from_numpy(weight), tensor(held)
    return Case(module, lambda x: F.conv_transpose2d(x, kernels, own, strides, pads, more))


def pool(
    kind: str,
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int] = (0, 0),
    ceil: bool = False,
    counted: bool = True,
    **stated: Any,
) -> Case:
    own: dict[str, Any] = {**window(kernel, strides, pads), "ceil_mode": ceil, **stated}
    if kind == "Max":
        return Case(
            Module("SpatialMaxPooling", **own), lambda x: F.max_pool2d(x, kernel, strides, pads, 1, ceil)
        )
    module = Module("SpatialAveragePooling", **{"count_include_pad": counted, "divide": True, **own})
    divisor = None if own.get("divide", True) else 1
    return Case(module, lambda x: F.avg_pool2d(x, kernel, strides, pads, ceil, counted, divisor))


def norm(channels: int, affine: bool = True, kind: str = "SpatialBatchNormalization") -> Module:
    variance = np.abs(numbers("variance", channels)) + np.float32(0.3)
    own = {"weight": numbers("gain", channels), "bias": numbers("shift", channels)} if affine else {}
    return Module(
        kind, eps=1e-3, affine=affine, running_mean=numbers("mean", channels), running_var=variance, **own
    )


def of_deviations() -> Module:
    """A norm of old files, which keeps one over the deviation."""
    module = norm(3)
    module.fields["running_std"] = ((module.fields.pop("running_var") + 1e-3) ** -0.5).astype(np.float32)
    return module


def normed(x: Tensor, affine: bool = True) -> Tensor:
    held = norm(x.shape[1], affine).fields
    mean, variance, gain, shift = (
        tensor(held.get(name)) for name in ("running_mean", "running_var", "weight", "bias")
    )
    return F.batch_norm(x, mean, variance, gain, shift, eps=1e-3)


def simple(kind: str, compute: Compute, /, **fields: Any) -> Case:
    return Case(Module(kind, **fields), compute)


def chain(*modules: Module) -> Module:
    return Module("Sequential", *modules)


def table(*modules: Module) -> Module:
    return Module("ConcatTable", *modules)


TANH, HALF = Module("Tanh"), Module("MulConstant", constant_scalar=0.5)
ABOVE_ZERO = chain(Module("Sigmoid"), Module("AddConstant", constant_scalar=0.5))


def merged(kind: str, compute: Callable[[Tensor, Tensor], Tensor]) -> Case:
    model = chain(table(TANH, ABOVE_ZERO), Module(kind))
    return Case(model, lambda x: compute(torch.tanh(x), torch.sigmoid(x) + 0.5))


def joined(axis: int, *modules: Module) -> Case:
    return Case(chain(*modules), lambda x: torch.cat([torch.tanh(x), x / 2], axis))


def padded(kind: str, mode: str, *pads: int) -> Case:
    fields = dict(zip(("pad_l", "pad_r", "pad_t", "pad_b"), pads, strict=True))
    return simple(f"Spatial{kind}Padding", lambda x: F.pad(x, pads, mode), **fields)


def padding(pads: Sequence[int], value: float, **fields: int) -> Case:
    """Cells of a number before or behind one axis."""
    return simple("Padding", lambda x: F.pad(x, [*pads], value=value), **fields, value=value, index=1)


def view(*given: int, kind: str = "View", **fields: Any) -> Module:
    return Module(kind, size=Sizes(given), **fields)


def dense(flat: Module, bias: bool = True) -> Case:
    weight, held = numbers("weight", 5, 216), numbers("bias", 5) if bias else None
    kernels, own = torch.from_numpy(weight), tensor(held)
    head = Module("Linear", weight=weight, bias=held)
    return Case(chain(flat, head), lambda x: F.linear(x.flatten(1), kernels, own))


def of_features(compute: Compute, *modules: Module) -> Case:
    """Modules of N x C."""
    whole = Module("SpatialAdaptiveAveragePooling", **sides("", (1, 1)))
    return Case(
        chain(whole, view(3, numElements=3, numInputDims=3), *modules), lambda x: compute(x.mean((2, 3)))
    )


def deep(x: Tensor) -> Tensor:
    """Maps along the channels, with zeros around smaller ones: of one row less behind."""
    return torch.cat([x / 2, F.pad(F.max_pool2d(x, (2, 3), 1), (1, 1, 0, 1))], 1)


def twice() -> Case:
    """A module that runs on its own output."""
    held = Module("SpatialConvolution", nInputPlane=3, nOutputPlane=3, **window(pads=(1, 1)))
    held.fields |= {"weight": numbers("weight", 3, 3, 3, 3), "bias": numbers("bias", 3)}

    def compute(x: Tensor) -> Tensor:
        return F.conv2d(x, known("weight", 3, 3, 3, 3), known("bias", 3), padding=1)

    return Case(chain(held, TANH, held), lambda x: compute(torch.tanh(compute(x))))


def tables(index: int) -> Case:
    """Tables in tables, one value of which is chosen."""
    ways = table(table(TANH, HALF), Module("Sigmoid"), Module("Identity"))
    each = Module("ParallelTable", Module("CSubTable"), Module("Square"), HALF)

    def compute(x: Tensor) -> Tensor:
        values = [torch.tanh(x) - x / 2, torch.sigmoid(x) ** 2, x / 2]
        return values[index - 1 if index > 0 else index]

    return Case(chain(ways, each, Module("SelectTable", index=index)), compute)


def flattened() -> Case:
    ways = table(table(TANH, HALF), Module("Identity"))
    return Case(
        chain(ways, Module("FlattenTable"), Module("JoinTable", dimension=1, nInputDims=3)),
        lambda x: torch.cat([torch.tanh(x), x / 2, x], 1),
    )


def mapped() -> Case:
    return Case(
        chain(table(TANH, HALF), Module("MapTable", Module("Square")), Module("CSubTable")),
        lambda x: torch.tanh(x) ** 2 - (x / 2) ** 2,
    )


def of_mode(mode: str, counted: bool) -> Case:
    """cudnn's names say whether pads count."""
    stated = {**window((3, 3), (2, 2), (1, 1)), "mode": f"CUDNN_POOLING_AVERAGE_COUNT_{mode}_PADDING"}
    return simple("cudnn.SpatialAveragePooling", lambda x: F.avg_pool2d(x, 3, 2, 1, False, counted), **stated)


PAIRS: dict[str, Any] = {"kernel": (3, 2), "strides": (2, 3), "pads": (1, 0)}
OLD = sides("k", (3, 2)) | sides("d", (2, 1))
CASES: dict[str, Case] = {
    "conv": conv(),
    "conv without bias": conv(bias=False),
    "conv of pads and strides": conv((3, 2), (2, 1), (1, 0)),
    "conv of a matrix": conv((3, 2), (1, 2), (0, 1), kind="SpatialConvolutionMM"),
    "conv of groups": conv(pads=(1, 1), groups=3, kind="cudnn.SpatialConvolution"),
    "conv dilated": conv((3, 2), (1, 1), (2, 1), (2, 3), kind="SpatialDilatedConvolution"),
    "conv of a short long": conv(pads=(1, 0))._replace(width=4),
    "conv of an old file": of_padding(),
    "conv that runs twice": twice(),
    "transposed": transposed(),
    "transposed with pads": transposed((2, 1), (1, 0)),
    "transposed with more cells": transposed((2, 3), (1, 0), (1, 2)),
    "transposed without bias": transposed(bias=False),
    "max pool": pool("Max"),
    "max pool of pairs": pool("Max", **PAIRS),
    "max pool rounded up": pool("Max", strides=(2, 3), ceil=True),
    "max pool rounded up with pads": pool("Max", (2, 3), (2, 2), (1, 1), True),
    "max pool of an old file": simple("SpatialMaxPooling", lambda x: F.max_pool2d(x, (3, 2), (2, 1)), **OLD),
    "mean pool": pool("Average"),
    "mean pool of pairs": pool("Average", **PAIRS),
    "mean pool of real cells": pool("Average", (3, 3), (2, 2), (1, 1), counted=False),
    "mean pool rounded up": pool("Average", strides=(2, 3), ceil=True),
    "mean pool rounded up with pads": pool("Average", (3, 3), (2, 2), (1, 1), True),
    "mean pool rounded up of real cells": pool("Average", (3, 3), (2, 2), (1, 1), True, False),
    "mean pool that counts pads": of_mode("INCLUDE", True),
    "mean pool that counts no pads": of_mode("EXCLUDE", False),
    "mean pool of an old file": simple(
        "SpatialAveragePooling", lambda x: F.avg_pool2d(x, (3, 2), (2, 1)), **OLD
    ),
    "sum pool": pool("Average", (3, 2), (2, 1), divide=False),
    "whole mean": simple(
        "SpatialAdaptiveAveragePooling", lambda x: x.mean((2, 3), keepdim=True), **sides("", (1, 1))
    ),
    "whole maximum": simple(
        "SpatialAdaptiveMaxPooling", lambda x: x.amax((2, 3), keepdim=True), **sides("", (1, 1))
    ),
    "norm": Case(norm(3), normed),
    "norm without gains": Case(norm(3, affine=False), lambda x: normed(x, False)),
    "norm of deviations": Case(of_deviations(), normed),
    "norm of features": of_features(normed, norm(3, kind="BatchNormalization")),
    "norm of each image": Case(
        Module(
            "InstanceNormalization", nOutput=3, eps=1e-2, weight=numbers("gain", 3), bias=numbers("shift", 3)
        ),
        lambda x: F.instance_norm(x, weight=known("gain", 3), bias=known("shift", 3), eps=1e-2),
    ),
    "response norm": simple(
        "SpatialCrossMapLRN",
        lambda x: F.local_response_norm(x, 3, 0.5, 0.6, 2.0),
        size=3,
        alpha=0.5,
        beta=0.6,
        k=2,
    ),
    "dense": dense(view(-1, numElements=1, numInputDims=3)),
    "dense without bias": dense(view(216), bias=False),
    "dense of a batch's view": dense(view(-1, 216)),
    "reshape": dense(view(216, kind="Reshape", nelement=216)),
    "view of maps": Case(view(9, 3, 8), lambda x: x.reshape(-1, 9, 3, 8)),
    "sum": merged("CAddTable", torch.add),
    "difference": merged("CSubTable", torch.sub),
    "product": merged("CMulTable", torch.mul),
    "quotient": merged("CDivTable", torch.div),
    "larger": merged("CMaxTable", torch.maximum),
    "smaller": merged("CMinTable", torch.minimum),
    "concat": joined(1, Module("Concat", TANH, HALF, dimension=2)),
    "concat of rows": joined(2, Module("Concat", TANH, HALF, dimension=3)),
    "join": joined(1, table(TANH, HALF), Module("JoinTable", dimension=2)),
    "join of an image's rows": joined(2, table(TANH, HALF), Module("JoinTable", dimension=2, nInputDims=3)),
    "join of columns": joined(3, table(TANH, HALF), Module("JoinTable", dimension=4, nInputDims=4)),
    "deep concat": Case(
        Module("DepthConcat", HALF, Module("SpatialMaxPooling", **window((2, 3))), dimension=2), deep
    ),
    "first of tables": tables(1),
    "second of tables": tables(2),
    "last of tables": tables(-1),
    "tables in one": flattened(),
    "table of one module": mapped(),
    "several outputs": Case(table(TANH, ABOVE_ZERO), lambda x: [torch.tanh(x), torch.sigmoid(x) + 0.5]),
    "model of a training": Case({"epoch": 9, "model": TANH}, torch.tanh),
    "model of a table": Case({"some": TANH, "epoch": 9}, torch.tanh),
    "model of several cards": Case(Module("DataParallelTable", TANH, HALF), torch.tanh),
    "nothing": Case(chain(Module("Identity"), TANH, Module("Contiguous"), Module("Copy")), torch.tanh),
    "relu": simple("ReLU", F.relu, inplace=True),
    "relu6": Case(chain(Module("MulConstant", constant_scalar=9), Module("ReLU6")), lambda x: F.relu6(9 * x)),
    "threshold": simple("Threshold", lambda x: F.threshold(x, 0, 0), threshold=0, val=0),
    "threshold above zero": simple("Threshold", lambda x: x.clamp(min=0.25), threshold=0.25, val=0.25),
    "hard tanh": simple("HardTanh", lambda x: x.clamp(-0.5, 0.75), min_val=-0.5, max_val=0.75),
    "leaky relu": simple("LeakyReLU", lambda x: F.leaky_relu(x, 0.2), negval=0.2),
    "prelu": simple(
        "PReLU", lambda x: F.prelu(x, known("slope", 3)), nOutputPlane=3, weight=numbers("slope", 3)
    ),
    "prelu of one slope": simple(
        "PReLU", lambda x: F.prelu(x, known("slope", 1)), nOutputPlane=0, weight=numbers("slope", 1)
    ),
    "elu": simple("ELU", lambda x: F.elu(x, 0.5), alpha=0.5),
    "softplus": simple("SoftPlus", F.softplus, beta=1, threshold=20),
    "softplus with a factor": simple("SoftPlus", lambda x: F.softplus(x, 2), beta=2, threshold=20),
    "softsign": simple("SoftSign", F.softsign),
    "sigmoid": simple("Sigmoid", torch.sigmoid),
    "tanh": simple("Tanh", torch.tanh),
    "square": simple("Square", torch.square),
    "product with a number": simple("MulConstant", lambda x: x * 0.3, constant_scalar=0.3),
    "sum with a number": simple("AddConstant", lambda x: x + 0.3, constant_scalar=0.3),
    "softmax": simple("SoftMax", lambda x: F.softmax(x, 1)),
    "softmax of cells": simple("SpatialSoftMax", lambda x: F.softmax(x, 1)),
    "softmax of features": of_features(lambda x: F.softmax(x, 1) / 2, Module("SoftMax"), HALF),
    "logarithm of a softmax": of_features(lambda x: F.log_softmax(x, 1) / 2, Module("LogSoftMax"), HALF),
    "dropout that scales": Case(chain(TANH, Module("Dropout", p=0.25, v2=True)), torch.tanh),
    "dropout that does not": simple("Dropout", lambda x: x * 0.75, p=0.25),
    "dropout of maps": simple("SpatialDropout", lambda x: x * 0.75, p=0.25),
    "zeros": padded("Zero", "constant", 1, 2, 0, 3),
    "reflected": padded("Reflection", "reflect", 1, 2, 0, 3),
    "repeated": padded("Replication", "replicate", 1, 2, 0, 3),
    "cells behind": padding((0, 0, 0, 2), 0.5, dim=3, pad=2, nInputDim=4),
    "cells before": padding((1, 0), 0.5, dim=3, pad=-1, nInputDim=3),
    "channels behind": padding((0, 0, 0, 0, 0, 2), 0.0, dim=1, pad=2, nInputDim=3),
    "shaved": simple("ShaveImage", lambda x: x[:, :, 2:-2, 2:-2], size=2),
    "nearest": simple("SpatialUpSamplingNearest", lambda x: F.interpolate(x, scale_factor=2), scale_factor=2),
    "bilinear": simple(
        "SpatialUpSamplingBilinear",
        lambda x: F.interpolate(x, scale_factor=3, mode="bilinear", align_corners=True),
        scale_factor=3,
    ),
    "part of the rows": simple("Narrow", lambda x: x[:, :, 2:7], dimension=3, index=3, length=5),
    "part of the columns": simple("Narrow", lambda x: x[..., 1:6], dimension=-1, index=2, length=5),
    "part of the channels": simple("Narrow", lambda x: x[:, 1:3], dimension=2, index=2, length=2),
    "mean of rows": simple("Mean", lambda x: x.mean(2), dimension=3),
    "mean of an image's columns": simple("Mean", lambda x: x.mean(3), dimension=3, nInputDims=3),
    "mean of columns that stay": simple("Mean", lambda x: x.mean(3, True), dimension=4, squeeze=False),
    "maximum of rows": simple("Max", lambda x: x.amax(2), dimension=2, nInputDims=3),
}
OPENCV = (
    "conv",
    "conv without bias",
    "conv of pads and strides",
    "conv of a matrix",
    "conv of groups",
    "conv dilated",
    "transposed",
    "transposed with pads",
    "transposed with more cells",
    "transposed without bias",
    "max pool",
    "max pool of pairs",
    "max pool rounded up",
    "max pool rounded up with pads",
    "mean pool",
    "mean pool of pairs",
    "mean pool of real cells",
    "mean pool rounded up",
    "mean pool rounded up with pads",
    "mean pool rounded up of real cells",
    "norm",
    "norm without gains",
    "norm of deviations",
    "response norm",
    "dense",
    "dense without bias",
    "dense of a batch's view",
    "reshape",
    "view of maps",
    "concat",
    "concat of rows",
    "join",
    "join of columns",
    "model of a training",
    "model of a table",
    "relu",
    "relu6",
    "prelu",
    "prelu of one slope",
    "elu",
    "sigmoid",
    "tanh",
    "square",
    "product with a number",
    "softmax",
    "dropout that scales",
    "dropout that does not",
    "dropout of maps",
    "zeros",
    "reflected",
    "cells behind",
    "cells before",
    "channels behind",
    "shaved",
    "nearest",
)
"""What OpenCV reads, and as nn computed it."""


def written(case: Case, path: Path) -> Path:
    return write_torch7(path, case.held, case.width)


def by_torch(case: Case) -> list[Array]:
    with torch.no_grad():
        found = case.compute(torch.from_numpy(images()))
    return [each.numpy() for each in ([found] if isinstance(found, Tensor) else found)]


def by_opencv(file: Path) -> Array:
    """Without fusion: see tests/unit/formats/caffe/test_read.py."""
    model = cv2.dnn.readNetFromTorch(str(file))
    model.enableFusion(False)
    model.setInput(images())
    return np.asarray(model.forward())


@pytest.mark.parametrize("name", CASES)
def test_a_module_is_what_torch_computes(name: str, tmp_path: Path) -> None:
    file, batch = written(CASES[name], tmp_path / "model.t7"), images()
    checkpoint = read_checkpoint(file, size=IMAGE[2:])
    graph = checkpoint.graph
    assert graph is not None and not any(isinstance(node.op, Foreign) for node in graph.nodes)
    ends = {end: graph.by_name[end].tap or end for end in graph.outputs}
    read = values_of(graph, checkpoint.tensors, batch)
    run = run_reference(build_file(checkpoint, "float64", graph.size), batch.astype(np.float64), ends)
    for end, value in zip(ends, by_torch(CASES[name]), strict=True):
        for found in (read[end], run[end]):
            assert found.shape == value.shape and distance(found, value) <= 1e-6


@pytest.mark.parametrize("name", OPENCV)
def test_opencv_computes_the_same(name: str, tmp_path: Path) -> None:
    (value,) = by_torch(CASES[name])
    found = by_opencv(written(CASES[name], tmp_path / "model.t7"))
    assert found.shape == value.shape and distance(found, value) <= 1e-6
