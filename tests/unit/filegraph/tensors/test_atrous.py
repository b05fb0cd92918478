"""Atrous convolutions and pools as TensorFlow writes them: held to TensorFlow's own values, at open sizes and
at known ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.filegraph.file_graph import Foreign
from porter.formats.tf_graph.read import read_frozen_graph
from porter.graph import Affine, AvgPool, BatchNorm, Conv, MaxPool, Relu
from porter.padding import Convention
from tests.support.formats.tf_graph.file_graphs import expect_same, frozen, images, tensorflow, variable

pytest.importorskip("tensorflow")
Make = Callable[[Any], Any]


def convolved(x: Any, padding: str = "VALID") -> Any:
    return tensorflow().nn.conv2d(x, variable("weights", 3, 3, 3, 4), 1, padding)


def normed(x: Any) -> Any:
    tf = tensorflow()
    numbers = (
        variable("mean", 4),
        variable("variance", 4, positive=True),
        variable("beta", 4),
        variable("gamma", 4),
    )
    return tf.nn.relu(tf.nn.batch_normalization(convolved(x), *numbers, variance_epsilon=2e-3))


def biased(x: Any) -> Any:
    return tensorflow().nn.bias_add(convolved(x), variable("bias", 4)) * 0.5


def by_channel(x: Any) -> Any:
    return tensorflow().compat.v1.nn.depthwise_conv2d_native(
        x, variable("weights", 3, 3, 3, 2), [1, 1, 1, 1], "VALID"
    )


def atrous(padding: str, op: Make, rate: tuple[int, int] = (2, 3)) -> Make:
    """What tf.nn.atrous_conv2d and slim's convolutions with a rate wrote: the pads are computed from the size
    by FloorMod.
    """
    return lambda x: tensorflow().compat.v1.nn.with_space_to_batch(
        x, rate, padding, lambda taken, *_: op(taken), filter_shape=[3, 3], spatial_dims=[1, 2]
    )


OPS = {
    "conv": (convolved, [Conv]),
    "bias": (biased, [Conv, Affine]),
    "norm": (normed, [Conv, BatchNorm, Relu]),
    "depth": (by_channel, [Conv]),
}


@pytest.mark.parametrize("size", [(12, 11), (None, None)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("case", OPS)
def test_one_convolution_with_a_dilation(
    tmp_path: Path, case: str, padding: str, size: tuple[int | None, int | None]
) -> None:
    make, expected = OPS[case]
    path = tmp_path / "graph.pb"
    output = frozen(path, atrous(padding, make), size)
    checkpoint = read_frozen_graph(path)
    first, *_ = checkpoint.carried.nodes
    assert [
        type(node.op) for node in checkpoint.carried.nodes
    ] == expected and checkpoint.carried.size == size
    assert isinstance(first.op, Conv) and first.op.window.dilation == (2, 3)
    assert first.op.convention == (
        Convention("explicit", (2, 2, 3, 3)) if padding == "SAME" else Convention()
    )
    expect_same(checkpoint, images(), output)


def by_hand(pads: Any, crops: Any, op: Make, block: tuple[int, int] = (2, 2)) -> Make:
    def make(x: Any) -> Any:
        return tensorflow().batch_to_space(op(tensorflow().space_to_batch(x, block, pads)), block, crops)

    return make


@pytest.mark.parametrize("pads", [[[2, 2], [2, 2]], [[0, 0], [0, 1]]])
@pytest.mark.parametrize(("kind", "op"), [("max_pool2d", MaxPool), ("avg_pool2d", AvgPool)])
def test_one_pool_with_a_dilation(tmp_path: Path, kind: str, op: type[Any], pads: Any) -> None:
    """The cells around the map are zeros, which an average counts."""
    path = tmp_path / "graph.pb"
    output = frozen(
        path,
        by_hand(
            pads, [[0, 0], [0, 1]], lambda x: getattr(tensorflow().nn, kind)(x, (3, 2), 1, "VALID"), (2, 3)
        ),
    )
    checkpoint = read_frozen_graph(path)
    assert [type(node.op) for node in checkpoint.carried.nodes] == [op]
    first: Any = checkpoint.carried.nodes[0].op
    assert first.window.dilation == (2, 3)
    expect_same(checkpoint, images(), output)


@pytest.mark.parametrize("pads", [[[4, 0]], [[2, 2]], [[0, 0]]])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_row_of_cells(tmp_path: Path, axis: int, pads: Any) -> None:
    """What Keras writes for a Conv1D with a dilation: an ExpandDims before the convolution makes a map of the
    row.
    """
    tf, path = tensorflow(), tmp_path / "graph.pb"
    kernel = (1, 3) if axis == 1 else (3, 1)

    def inside(row: Any) -> Any:
        return tf.squeeze(
            tf.nn.conv2d(tf.expand_dims(row, axis), variable("weights", *kernel, 3, 4), 1, "VALID"), [axis]
        )

    def make(x: Any) -> Any:
        return tf.batch_to_space(
            inside(tf.space_to_batch(tf.reshape(x, [-1, 132, 3]), [2], pads)), [2], [[0, 0]]
        )

    output = frozen(path, make, (12, 11))
    checkpoint = read_frozen_graph(path)
    assert [type(node.op) for node in checkpoint.carried.nodes if isinstance(node.op, Conv | Foreign)] == [
        Conv
    ]
    expect_same(checkpoint, images(), output)


def test_the_first_ops_of_that_name(tmp_path: Path) -> None:
    """TensorFlow before 0.12 has one number for rows and columns, as an attribute."""
    path, raw = tmp_path / "graph.pb", tensorflow().raw_ops

    def make(x: Any) -> Any:
        apart = raw.SpaceToBatch(input=x, paddings=[[2, 2], [3, 2]], block_size=2)
        return raw.BatchToSpace(input=convolved(apart), crops=[[0, 0], [1, 0]], block_size=2)

    output = frozen(path, make)
    checkpoint = read_frozen_graph(path)
    assert [type(node.op) for node in checkpoint.carried.nodes] == [Conv]
    expect_same(checkpoint, images(), output)


def test_crops_that_are_not_all_of_the_pads(tmp_path: Path) -> None:
    """A cell is cropped where none was padded: it takes no part."""
    path = tmp_path / "graph.pb"
    output = frozen(path, by_hand([[2, 2], [0, 1]], [[0, 1], [1, 0]], convolved))
    checkpoint = read_frozen_graph(path)
    expect_same(checkpoint, images(), output)
    assert [type(node.op).__name__ for node in checkpoint.carried.nodes] == ["CropMap", "Conv"]


def test_a_pad_in_front_is_one_of_the_convolution(tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    output = frozen(
        path,
        lambda x: atrous("VALID", normed)(tensorflow().pad(x, [[0, 0], [1, 1], [2, 1], [0, 0]])),
        (None, None),
    )
    checkpoint = read_frozen_graph(path)
    assert [type(node.op) for node in checkpoint.carried.nodes] == [Conv, BatchNorm, Relu]
    expect_same(checkpoint, images(), output)


def shifted(x: Any) -> Any:
    return tensorflow().add(convolved(x), np.arange(100, dtype=float).reshape(5, 5, 4))


AROUND = [[1, 1], [1, 2]]
FOREIGN: dict[str, Make] = {
    "with a stride or pads of its own": by_hand(AROUND, [[0, 0], [0, 0]], lambda x: convolved(x, "SAME")),
    "before Mean": by_hand(AROUND, [[0, 0], [0, 0]], lambda x:
        (y := convolved(x)) - tensorflow().reduce_mean(y, [1, 2], True)),
    "before Relu": by_hand(AROUND, [[0, 0], [0, 0]], lambda x: convolved(tensorflow().nn.relu(x))),
    "an array of 4x5x5 does not fit 4x10x10": by_hand(AROUND, [[0, 0], [0, 0]], shifted),
    "crops a whole block or more": by_hand(AROUND, [[0, 2], [0, 0]], convolved),
    "before StridedSlice": by_hand(AROUND, [[0, 0], [0, 0]], lambda x: convolved(x)[:, 1:]),
    "without a BatchToSpaceND": lambda x: convolved(tensorflow().space_to_batch(x, (2, 2), AROUND)),
    "before an op of several values": lambda x: tensorflow().batch_to_space(
        convolved(tensorflow().space_to_batch(x, (2, 2), AROUND))
        + tensorflow().space_to_batch(x[:, 1:-1, 1:, :1], (2, 2), [[0, 0], [0, 0]]), (2, 2), [[0, 0], [0, 0]]
    ),
    "a pool of a map that is taken apart": by_hand(AROUND, [[0, 0], [0, 0]], lambda x:
        tensorflow().nn.max_pool2d(x, 2, 1, "SAME")),
    "by another block": lambda x: tensorflow().batch_to_space(
        convolved(tensorflow().space_to_batch(x, (2, 1), AROUND)), (1, 2), [[0, 0], [0, 0]]
    ),
}  # fmt: skip


@pytest.mark.parametrize("words", FOREIGN)
def test_what_is_no_convolution_is_named(tmp_path: Path, words: str) -> None:
    path = tmp_path / "graph.pb"
    frozen(path, FOREIGN[words])
    kinds = [node.op.kind for node in read_frozen_graph(path).carried.nodes if isinstance(node.op, Foreign)]
    assert any(words in kind for kind in kinds), kinds


def test_an_open_size_that_the_block_does_not_always_divide(tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    frozen(path, by_hand(AROUND, [[0, 0], [0, 0]], convolved), (None, None))
    assert "no whole number, at some size" in str(read_frozen_graph(path).carried.nodes[0].op)
    first: Any = read_frozen_graph(path, size=(12, 11)).carried.nodes[0].op
    assert first.window.dilation == (2, 2)
