"""The builder that every reader of a file's graph uses: what becomes one node, and what stays several."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from porter.base.errors import MappingError
from porter.filegraph.builder import CELLS, Builder
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign, Stored, to_canonical
from porter.filegraph.layer_values import Value
from porter.filegraph.to_graph import to_graph
from porter.graph import (
    Add,
    Affine,
    AvgPool,
    Clip,
    ConcatChannels,
    Conv,
    CropMap,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    HardSigmoid,
    Identity,
    MaxPool,
    Op,
    PadMap,
    ReduceMap,
    Relu,
    Relu6,
    SliceChannels,
)
from porter.padding import LOWEST, Convention, Window

THREE = Window((3, 3))
SAME, VALID, LOW = Convention("same"), Convention(), Convention(fill=LOWEST)
KERNEL = {"kernel": Stored("k", "HWIO")}

Layers = Callable[[Builder], Value]


def built(layers: Layers, size: tuple[int | None, int | None] = (8, 6), fixed: bool = False) -> FileGraph:
    """The graph of some layers over an image of four channels."""
    builder = Builder(4, size, fixed=fixed)
    return builder.finish([layers(builder)])


def padded(builder: Builder, fill: float = 0.0) -> Value:
    """The input with pads of two layers."""
    return builder.pad("b", builder.pad("a", builder.input, (0, 1, 0, 1), fill), (2, 0, 0, 0), fill)


def conv(builder: Builder, value: Value, convention: Convention = VALID) -> Value:
    return builder.conv("conv", value, Conv(5, THREE, convention), KERNEL)


def pool(builder: Builder, value: Value, function: str, convention: Convention) -> Value:
    return builder.pool("pool", value, function, THREE, convention)  # type: ignore[arg-type]


def sixth(builder: Builder, offset: float, high: float) -> Value:
    """As Keras writes MobileNet v3's hard sigmoid, with offset 3 and high 6."""
    return builder.affine(
        "s",
        builder.clip("c", builder.affine("o", builder.input, (1.0,), (offset,)), 0.0, high),
        (1 / 6,),
        (0.0,),
    )


def cut(builder: Builder, parts: dict[int, slice]) -> Value:
    value = builder.cut("c", builder.input, parts)
    assert value is not None
    return value


def each_scaled(builder: Builder, *places: int) -> Value:
    """As torchvision writes `transform_input`: each channel times 2, and its place added to it."""
    found = []
    for place in places:
        channel = cut(builder, {0: slice(place, place + 1)})
        found.append(
            builder.affine("o", builder.affine("s", channel, (2.0,), (0.0,)), (1.0,), (float(place),))
        )
    return builder.concat("join", *found)


BOTH = (2, 1, 0, 1)
SCALED = [Affine((2.0,), (0.0,))]
CASES: dict[str, tuple[Layers, list[Op | Foreign]]] = {
    "pads go into a conv": (lambda b: conv(b, padded(b)), [Conv(5, THREE, Convention("explicit", BOTH))]),
    "pads that are no zeros do not": (lambda b: conv(b, padded(b, 1.0)),
        [PadMap(BOTH, 1.0), Conv(5, THREE, VALID)]),
    "nor those before 'same'": (lambda b: conv(b, padded(b), SAME), [PadMap(BOTH), Conv(5, THREE, SAME)]),
    "a max pool reads them": (lambda b: pool(b, padded(b), "max", LOW),
        [MaxPool(THREE, Convention("explicit", BOTH))]),
    "an average counts them": (
        lambda b: pool(b, padded(b), "mean", VALID),
        [AvgPool(THREE, Convention("explicit", BOTH, average="full_window"))],
    ),
    "pads of two kinds are two nodes": (
        lambda b: pool(b, padded(b), "max", Convention("explicit", (1, 1, 1, 1), LOWEST)),
        [PadMap(BOTH), MaxPool(THREE, Convention("explicit", (1, 1, 1, 1), LOWEST))],
    ),
    "a window that rounds up ends at the pads": (
        lambda b: pool(b, padded(b), "max", Convention(fill=LOWEST, rounding="ceil")),
        [PadMap(BOTH), MaxPool(THREE, Convention(fill=LOWEST, rounding="ceil"))],
    ),
    "a window of one cell": (lambda b: b.pool("pool", b.input, "mean", Window((1, 1)), SAME), [Identity()]),
    "negative pads crop": (lambda b: b.pad("p", b.input, (-1, 2, 0, -3)),
        [CropMap((1, 0, 0, 3)), PadMap((0, 2, 0, 0))]),
    "no pads": (lambda b: b.pad("p", b.input, (0, 0, 0, 0)), [Identity()]),
    "dense on a map": (
        lambda b: b.dense("d", b.input, 5, {**KERNEL, "bias": Stored("b")}),
        [Conv(5, Window((1, 1)), VALID, bias=True)],
    ),
    "a bias of its own": (lambda b: b.bias("sum", conv(b, b.input), Stored("b")) or b.input,
        [Conv(5, THREE, VALID, bias=True)]),
    "a scaling by nothing": (lambda b: b.affine("s", b.input, (1.0,), (0.0, -0.0)), [Identity()]),
    "a scaling": (lambda b: b.affine("s", b.input, (2.0,), (1.0, 2.0, 3.0, 4.0)),
        [Affine((2.0,) * 4, (1.0, 2.0, 3.0, 4.0))]),
    "a scaling of each channel": (lambda b: each_scaled(b, 0, 1, 2, 3),
        [Affine((2.0,) * 4, (0.0, 1.0, 2.0, 3.0))]),
    "a scaling of two channels, turned around": (
        lambda b: each_scaled(b, 1, 0),
        [SliceChannels(1, 2), *SCALED, Affine((1.0,), (1.0,)), SliceChannels(0, 1), *SCALED,
            ConcatChannels()],
    ),
    "relu6 in two steps": (lambda b: b.clip("m", b.add("r", Relu(), b.input), high=6), [Relu6()]),
    "relu6 in the other two": (lambda b: b.clip("m", b.clip("n", b.input, high=6), low=0), [Relu6()]),
    "relu": (lambda b: b.clip("m", b.input, low=0), [Relu()]),
    "relu6(x + 3) / 6": (lambda b: sixth(b, 3.0, 6.0), [HardSigmoid()]),
    "relu6(x + 2) / 6": (lambda b: sixth(b, 2.0, 6.0),
        [Affine((1.0,), (2.0,)), Relu6(), Affine((1 / 6,), (0.0,))]),
    "clip(x + 3, 0, 5) / 6": (lambda b: sixth(b, 3.0, 5.0),
        [Affine((1.0,), (3.0,)), Clip(0.0, 5.0), Affine((1 / 6,), (0.0,))]),
    "any clips": (lambda b: b.clip("m", b.clip("n", b.input, -1, 3), 1, 9), [Clip(1, 3)]),
    "one bound": (lambda b: b.clip("m", b.input, high=2.0), [Clip(-float(np.finfo(np.float32).max), 2.0)]),
    "a difference": (lambda b: b.subtract("s", b.input, b.add("r", Relu(), b.input)),
        [Relu(), Affine((-1.0,), (0.0,)), Add()]),
    "an average of two": (lambda b: b.average("a", b.input, b.input), [Add(), Affine((0.5,), (0.0,))]),
    "mean over a map": (lambda b: b.reduce("m", b.input, "mean", CELLS, False), [GlobalAvgPool()]),
    "max over everything": (
        lambda b: b.reduce("m", b.input, "max", (2, 1, 0), True),
        [GlobalMaxPool(True), ReduceMap("max", "channels")],
    ),
    "channels turned around": (lambda b: cut(b, {0: slice(None, None, -1)}),
        [SliceChannels(3, -1, -1)]),
    "every second cell": (
        lambda b: cut(b, {1: slice(1, None, 2), 2: slice(None, -1)}),
        [CropMap((1, 0, 0, 1)), MaxPool(Window((1, 1), (2, 1)), LOW)],
    ),
    "an op that does not fit": (
        lambda b: b.add("d", Dense(3), b.input),
        [Foreign("a dense layer of 3 units that does not fit: expected an input of rank 1, got 4x8x6")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_layers_become(name: str) -> None:
    layers, ops = CASES[name]
    assert [node.op for node in built(layers).nodes] == ops


def test_slices_of_a_map_of_unknown_size() -> None:
    def every_second(b: Builder) -> Value:
        return cut(b, {1: slice(1, -2, 2)})

    assert [node.op for node in built(every_second, (None, None)).nodes] == [
        node.op for node in built(every_second, (9, 9)).nodes
    ]
    builder = Builder(4, (None, None))
    assert builder.cut("c", builder.input, {1: slice(0, 3)}) is None
    assert builder.cut("c", builder.input, {1: slice(None, None, -1)}) is None


def test_a_pool_over_a_whole_map_is_global_where_the_size_is_fixed() -> None:
    def pooled(b: Builder) -> Value:
        return b.pool("pool", b.input, "mean", Window((8, 6)), VALID)

    assert [node.op for node in built(pooled, fixed=True).nodes] == [GlobalAvgPool(keep=True)]
    assert [node.op for node in built(pooled).nodes] == [AvgPool(Window((8, 6)), VALID)]


def test_names_are_unique_and_what_nothing_reads_is_left_out() -> None:
    builder = Builder(4, (8, 6))
    first = builder.add("input", Relu(), builder.input, tap="one")
    builder.add("unread", Relu(), first)
    second = builder.add("input", Relu6(), first)
    graph = builder.finish([second, first, builder.input])
    assert [(node.name, node.inputs, node.tap) for node in graph.nodes] == [
        ("input_2", ("input",), "one"),
        ("input_3", ("input_2",), None),
        ("output", ("input",), None),
    ]
    assert graph.outputs == ("input_3", "input_2", "output")


@pytest.mark.parametrize(
    ("axes", "stored", "shape"),
    [
        ("HWIO", (3, 2, 4, 5), (5, 4, 3, 2)),
        ("OIHW", (5, 4, 3, 2), (5, 4, 3, 2)),
        ("HWIM", (3, 2, 4, 5), (20, 1, 3, 2)),
        ("IO", (4, 5), (5, 4)),
        ("IO", (4, 5), (5, 4, 1, 1)),
        ("HWIO", (1, 1, 4, 5), (5, 4)),
        ("", (1, 1, 4), (4,)),
        ("", (5,), (4,)),
    ],
)
def test_canonical(axes: str, stored: tuple[int, ...], shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(stored)).reshape(stored)
    found = to_canonical(array, Stored("it", axes), shape)
    if math.prod(stored) != math.prod(shape):
        assert found is array
        return
    assert found.shape == shape
    letters = axes.replace("M", "")
    for place, number in np.ndenumerate(array):
        at = dict(zip(axes, place, strict=False))
        if "M" in at:
            at = {**at, "O": at["I"] * 5 + at["M"], "I": 0}
        wanted = tuple(at[letter] for letter in "OIHW" if letter in at) if letters else (place[-1],)
        assert number == found[tuple(index for index, _ in zip((*wanted, 0, 0), shape, strict=False))]


def test_a_scaling_of_more_channels_than_an_op_states_stays_in_parts() -> None:
    builder = Builder(8192, (8, 6))
    halves = [cut(builder, {0: slice(start, start + 4096)}) for start in (0, 4096)]
    graph = builder.finish(
        [builder.concat("join", *(builder.affine("s", half, (2.0,), (0.0,)) for half in halves))]
    )
    assert [node.op for node in graph.nodes][-1] == ConcatChannels() and len(graph.nodes) == 5


def test_layers_that_porter_lacks_are_named_without_those_that_only_follow_them() -> None:
    builder = Builder(3, (8, 6))
    lost = builder.foreign("norm", "GroupNormalization", builder.input)
    mean = builder.reduce("mean", lost, "mean", CELLS, keep=False)
    other = builder.foreign("where", "Where", builder.input)
    with pytest.raises(MappingError) as caught:
        to_graph(builder.finish([mean, other]))
    assert caught.value.message == (
        "porter has no op for 'norm' (GroupNormalization), 'where' (Where); of the nodes behind, 1 "
        "cannot be read"
    )


def test_a_name_of_many_parts_takes_no_memory_for_each() -> None:
    name = "/".join("a" * 100_000)
    file = FileGraph(
        (FileNode(name, Relu(), ("input",)), FileNode(f"{name}/b", Relu(), (name,))),
        (f"{name}/b",),
        3,
        (8, 8),
    )
    tracemalloc.start()
    paths = [node.path for node in to_graph(file).graph.nodes]
    assert (
        tracemalloc.get_traced_memory()[1] < 64 << 20
        and all(len(path) <= 162 for path in paths)
        and len(set(paths)) == 2
    )
    tracemalloc.stop()
