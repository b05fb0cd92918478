"""One graph with every op, and with the attributes that change how a destination says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from porter.graph import (
    OPS,
    Abs,
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    Add,
    AddArray,
    Affine,
    AsMap,
    Attention,
    AvgPool,
    BatchNorm,
    Celu,
    ChannelScale,
    ChannelShuffle,
    Clip,
    ConcatChannels,
    Conv,
    ConvTranspose,
    CropAxis,
    CropLike,
    CropMap,
    Dense,
    DepthToSpace,
    Divide,
    Dropout,
    Elu,
    ExtendMap,
    Flatten,
    Gelu,
    GlobalAvgPool,
    GlobalMaxPool,
    Graph,
    GroupNorm,
    HardSigmoid,
    Identity,
    Join,
    LayerNorm,
    LeakyRelu,
    LocalResponseNorm,
    MatMul,
    Maximum,
    MaxPool,
    Minimum,
    Multiply,
    MultiplyArray,
    Op,
    PadAxis,
    PadChannels,
    PadLike,
    PadMap,
    Power,
    Rearrange,
    ReduceAxis,
    ReduceMap,
    Resize,
    ResizeLike,
    RmsNorm,
    SliceChannels,
    Softmax,
    Softplus,
    SpaceToDepth,
    Step,
    ThresholdedRelu,
    Tokens,
    Upsample,
    tensor_shapes,
)
from porter.graph.ops import OfChannels, activations, elementwise
from porter.padding import LOWEST, Convention, Window
from tests.support.arrays import Array
from tests.support.frameworks.torch.graphs import Writer

SIZE = (7, 6)
CHANNELS = 8
EACH = tuple(number / 7 - 0.5 for number in range(CHANNELS))
"""A number for each channel, none of which is a float32."""
THREE, STRIDED = Window((3, 3)), Window((3, 2), (2, 3))

PLAIN = tuple(op() for op in OPS.values() if op.__module__ == activations.__name__ and not fields(op))
"""Every activation without attributes."""
OF_NUMBERS: tuple[Op, ...] = (
    *(op() for op in OPS.values() if op.__module__ == elementwise.__name__ and not fields(op)),
    Power(3.0),
    Power(1 / 3),
    Power(-1.5),
    Step(),
    Step(True),
)
"""Functions of each number, of which some take only what is above 0."""
OF_VALUES: tuple[Op, ...] = (
    Affine((0.5,), (1 / 3,)),
    BatchNorm(1e-3, 0.01),
    BatchNorm(1e-3, 0.1, scale=False),
    BatchNorm(1e-5, 0.1, center=False),
    LayerNorm(1e-6),
    LayerNorm(1e-3, scale=False),
    LayerNorm(1e-3, center=False),
    LayerNorm(0.1, scale=False, center=False),
    ChannelScale(),
    ChannelScale(bias=True),
    RmsNorm(1e-6),
    RmsNorm(0.1, scale=False),
    GroupNorm(2, 1e-3),
    GroupNorm(1, 1e-5, scale=False),
    GroupNorm(4, 0.1, center=False),
    ThresholdedRelu(0.3),
    ThresholdedRelu(-0.2),
    Clip(-0.5, 0.7),
    LeakyRelu(0.3),
    LeakyRelu(1.3),
    LeakyRelu(-0.2),
    Elu(),
    Elu(0.3),
    Celu(),
    Celu(0.7),
    Softplus(),
    Softplus(True),
    HardSigmoid(),
    HardSigmoid(0.2),
    HardSigmoid(0.2, 0.4),
    Gelu(),
    Gelu(approximate=True),
    *PLAIN,
    Identity(),
    Dropout(0.3),
    PadChannels(1, 2),
    PadChannels(0, 3),
    SliceChannels(2, 7),
    SliceChannels(1, 8, 3),
    SliceChannels(7, 1, -2),
    SliceChannels(7, -1, -1),
)
"""Ops of maps and of features."""
OF_EACH = (Affine(EACH, (1 / 3,)), Affine((-1.1,), EACH), Affine(EACH, EACH[::-1]))
OF_CELLS = tuple(
    op for op in OF_VALUES if not isinstance(op, OfChannels | GroupNorm | PadChannels | SliceChannels)
)
"""The ops that take arrays too."""

SIDES: tuple[Any, ...] = (("end", "start"), ("start", "both"), ("both", "none"), ("none", "end"))
RULES: tuple[Any, ...] = ("align_corners", "half_pixel", "asymmetric")
ROUNDINGS: tuple[Any, ...] = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
RESIZES: tuple[Op, ...] = (
    *(Resize("linear", (2.0, 3.0), coordinates=rule) for rule in RULES),
    *(Resize("linear", (1.5, 0.5), coordinates=rule) for rule in RULES),
    *(Resize(mode, size=(11, 4), coordinates=rule) for mode in ("linear", "cubic") for rule in RULES),
    Resize("linear", size=(1, 6)),
    Resize("cubic", (2.0, 4.0)),
    Resize("cubic", (2.0, 4.0), a=-0.5, inside=True),
    Resize("cubic", (1.5, 2.5), coordinates="asymmetric", a=-0.6),
    Resize("cubic", size=(13, 9), a=-0.5, inside=True),
    *(
        Resize("nearest", (0.5, 2.0), coordinates=rule, rounding=each)
        for rule in RULES[1:]
        for each in ROUNDINGS
    ),
)
"""Resizes of maps of any size."""
OF_MAPS: tuple[Op, ...] = (
    Conv(4, THREE, Convention("same"), groups=2),
    MaxPool(THREE, Convention("same", fill=LOWEST)),
    MaxPool(Window((3, 3), dilation=(2, 2)), Convention(fill=LOWEST)),
    AvgPool(THREE, Convention()),
    AvgPool(
        Window((3, 3), (2, 2)),
        Convention("explicit", (1, 1, 1, 1), average="clipped_window", rounding="ceil"),
    ),
    ConvTranspose(4, STRIDED),
    ConvTranspose(4, THREE, (1, 1, 1, 1), 2, bias=True),
    ConvTranspose(8, STRIDED, (0, 1, 0, 1), 8),
    ConvTranspose(4, STRIDED, (1, 0, 2, 0), bias=True),
    ConvTranspose(4, STRIDED, (0, -1, 1, -1), bias=True),
    ConvTranspose(4, Window((2, 3), (3, 1), (1, 2)), (0, -1, 3, 1), bias=True),
    ConvTranspose(4, STRIDED, (-1, 2, 0, -7), 2, True),
    GlobalAvgPool(),
    GlobalAvgPool(keep=True),
    GlobalMaxPool(),
    GlobalMaxPool(keep=True),
    *(
        ReduceMap(function, axis)
        for function in ("mean", "max", "norm")
        for axis in ("channels", "rows", "columns")
    ),
    GroupNorm(8, 1e-3, scale=False, center=False),
    LocalResponseNorm(5, 2e-5, 0.75, 1.0),
    LocalResponseNorm(4, 0.3, 0.5, 2.0),
    LocalResponseNorm(2, 1.0, 1.0, 0.1),
    Dropout(0.5, True),
    PadMap((1, 2, 0, 3)),
    PadMap((1, 0, 0, 0), -2.5),
    CropMap((1, 0, 2, 1)),
    *(ExtendMap((1, 2, 0, 3), mode) for mode in ("edge", "reflect", "symmetric", "wrap")),
    ChannelShuffle(2),
    ChannelShuffle(4),
    DepthToSpace(2),
    DepthToSpace(2, "CRD"),
    Upsample(2, 2),
    Upsample(3, 1),
    Upsample(1, 41),
    *RESIZES,
)
OF_SEVERAL: tuple[Op, ...] = (Add(), Multiply(), Maximum(), Minimum(), ConcatChannels())


ARRAYS: tuple[tuple[str, Op, tuple[str, ...]], ...] = (
    ("cells", Rearrange("c h w -> (h w) c"), ("stem",)),
    ("grid", Rearrange("c h w -> w h c"), ("stem",)),
    ("lists", Rearrange("c h w -> c (h w)"), ("stem",)),
    ("products", MatMul(), ("lists", "cells")),
    ("shares", MatMul(True), ("cells", "cells")),
    ("rows", MatMul(True), ("grid",) * 2),
    ("mixed", MatMul(), ("cells", "products")),
    ("turned", Rearrange("w h c -> c h w", map=True), ("grid",)),
    ("parts", Rearrange("t (k=4 c) -> k t () c"), ("cells",)),
    ("whole", Rearrange("k t u c -> (t u) (c k)"), ("parts",)),
    ("longer", Join(0), ("cells", "products", "cells")),
    ("wider", Join(1), ("cells", "cells")),
    ("planes", Join(2), ("grid", "grid")),
    ("fewer", CropAxis(0, 1, 2), ("cells",)),
    ("every", CropAxis(1, 1, 0, 3), ("cells",)),
    ("inner", CropAxis(1, 0, 1, 2), ("grid",)),
    ("three", Join(1), ("cells",) * 3),
    ("joint", Attention(4, 0.02), ("three",)),
    ("apart", Attention(2, 0.01), ("cells", "products", "products")),
    ("planes_of_heads", Attention(2, 0.05), ("grid", "grid", "grid")),
    ("edged", PadAxis(0, 1, 2), ("cells",)),
    ("walled", PadAxis(2, 0, 1, -0.5), ("grid",)),
    *(
        (f"{function}_{axis}", ReduceAxis(function, axis), ("grid",))
        for function in ("mean", "max", "norm")
        for axis in range(3)
    ),
    *((f"{function}_cell", ReduceAxis(function, 0), ("cells",)) for function in ("mean", "max", "norm")),
    ("shifted", AddArray((1, 8)), ("cells",)),
    ("scaled", MultiplyArray((1, 8)), ("cells",)),
    ("fixed", AddArray((8, 8)), ("products",)),
    ("thick", AddArray((8, 1, 1)), ("stem",)),
    ("thin_rows", MultiplyArray((1, 8)), ("products",)),
    ("classes", Tokens(2), ("cells",)),
    ("one", Rearrange("h c -> () h c"), ("max_0",)),
    ("sum", Add(), ("grid", "one")),
    ("number", Rearrange("() ->"), ("single",)),
    ("curved", Elu(0.5), ("number",)),
    ("more", Dense(3), ("cells",)),
    ("each", Dense(5, bias=False), ("grid",)),
)
"""Arrays of a map, each with the values that it reads, also of an open size."""

NEAREST: tuple[Op, ...] = tuple(
    Resize("nearest", size=(11, 5), coordinates=rule, rounding=each) for rule in RULES for each in ROUNDINGS
)
FLATTENED: tuple[Op, ...] = (
    Flatten(*SIZE),
    Flatten(*SIZE, "HWC"),
    Rearrange("c h w -> (w c h)"),
    Rearrange("c h (w k=2) -> (c k) w h", map=True),
    AdaptiveAvgPool(3, 5),
    AdaptiveAvgPool(13, 2),
    AdaptiveMaxPool(4, 1),
    AdaptiveMaxPool(*SIZE),
    AddArray((8, *SIZE)),
    MultiplyArray((1, 1, SIZE[1])),
    *NEAREST,
)
"""These fix the size of the input, adaptive pools only where the destination has none of its own."""


def every_op(of_maps: Sequence[Op] = OF_MAPS) -> Graph:
    """All of them read the same map or the same features, and each is an output."""
    w = Writer()
    w.conv("stem", CHANNELS)
    w.add("features", GlobalAvgPool())
    w.add("first", SliceChannels(0, 3), "stem")
    w.add("last", SliceChannels(5, 8), "stem")
    w.add("small", MaxPool(THREE, Convention(fill=LOWEST)), "stem")
    w.add("thin", GlobalMaxPool(keep=True), "first")
    w.add("single", Dense(1), "features")
    w.add("large", DepthToSpace(2), "stem")
    w.add("size", Abs(), "stem")
    w.add("above", Affine((1.0,), (0.3,)), "size")
    w.add("above_features", GlobalAvgPool(), "above")
    cases: list[tuple[Op, tuple[str, ...]]] = [
        (op, (path,)) for op in OF_NUMBERS for path in ("above", "above_features")
    ]
    cases += [(op, ("stem",)) for op in (*of_maps, *OF_VALUES, *OF_EACH)]
    cases += [(op, ("features",)) for op in (*OF_VALUES, *OF_EACH, Dense(3), AsMap())] + [
        (Softmax(), ("single",))
    ]
    cases += [(op, inputs) for op in OF_SEVERAL for inputs in (("first", "last"), ("first", "last", "first"))]
    cases += [(Divide(), inputs) for inputs in (("first", "thin"), ("thin", "thin"))]
    cases += [(op, ("thin", "last")) for op in OF_SEVERAL if not isinstance(op, ConcatChannels)]
    cases += [(SpaceToDepth(2, order), ("large",)) for order in ("DCR", "CRD")]
    arrays = [w.add(path, op, *inputs) for path, op, inputs in ARRAYS]
    cases += [(op, ("cells",)) for op in OF_CELLS]
    cases += [(ResizeLike(mode, rule), ("small", "stem")) for mode in ("linear", "cubic") for rule in RULES]
    cases += [
        (ResizeLike("linear"), ("thin", "stem")),
        (ResizeLike("cubic", a=-0.5, inside=True), ("stem", "small")),
        (ResizeLike("nearest", "asymmetric", rounding="floor"), ("small", "stem")),
        *((PadLike(*sides), ("small", "stem")) for sides in SIDES),
        *((CropLike(*sides), ("stem", "small")) for sides in SIDES),
    ]
    paths = [w.add(f"{op.name}_{number}", op, *inputs) for number, (op, inputs) in enumerate(cases)]
    return replace(w.graph(), output=paths[0], further=(*paths[1:], *arrays))


def images(size: tuple[int, int] = SIZE) -> Array:
    return np.random.default_rng(1).standard_normal((2, 3, *size))


def tensors_of(graph: Graph) -> Mapping[str, Mapping[str, Array]]:
    draw = np.random.default_rng(0)
    return {
        path: {
            role: draw.uniform(0.5, 1.5, shape)
            if role in ("variance", "gamma")
            else draw.standard_normal(shape)
            for role, shape in roles.items()
        }
        for path, roles in tensor_shapes(graph).items()
    }


def ending_at(graph: Graph, paths: Sequence[str]) -> Graph:
    """The part of a graph that these values need, which are its outputs."""
    needed, left = set[str](), [*paths]
    while left:
        path = left.pop()
        if path in graph.by_path and path not in needed:
            needed.add(path)
            left += graph.by_path[path].inputs
    nodes = tuple(node for node in graph.nodes if node.path in needed)
    return replace(graph, nodes=nodes, output=paths[0], further=tuple(paths[1:]))


def one_of_each(graph: Graph, paths: Sequence[str]) -> list[str]:
    """A value of each op among these, for maps and for others. Each resize has a layer or operations of its
    own, and is one.
    """
    of = {path: graph.by_path[path].op for path in paths}
    kinds = {
        (op if isinstance(op, Resize) else type(op), len(graph.open_shapes[path])): path
        for path, op in of.items()
    }
    return [*kinds.values()]
