"""What the tests of this folder build: one site, a small graph of every op, and MobileNetV2 by hand."""

from __future__ import annotations

from functools import cache

import numpy as np

from porter.graph import (
    INPUT,
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    ConcatChannels,
    Conv,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    Graph,
    Identity,
    MaxPool,
    Node,
    Op,
    Relu,
    Relu6,
    Resize,
    ResizeLike,
    tensor_shapes,
)
from porter.padding import LOWEST, Convention, Window, row
from tests.support.arrays import Array
from tests.support.frameworks.every_op import ending_at, every_op, one_of_each
from tests.support.padding.windows import divisors

SAME = Convention("same")
ONE = Window((1, 1))


def explicit(*pads: int, **others: object) -> Convention:
    return Convention("explicit", pads, **others)  # type: ignore[arg-type]


def random_tensors(graph: Graph, seed: int = 0) -> dict[str, dict[str, Array]]:
    """Weights under which values neither fade nor saturate on their way through a MobileNet."""
    rng = np.random.default_rng(seed)

    def tensor(role: str, shape: tuple[int, ...]) -> Array:
        if role == "kernel":
            return rng.normal(0, 1.6 / np.sqrt(np.prod(shape[1:])), shape)
        return rng.uniform(0.7, 1.4, shape) if role in ("variance", "gamma") else rng.normal(0, 0.2, shape)

    return {
        path: {role: tensor(role, shape) for role, shape in roles.items()}
        for path, roles in tensor_shapes(graph).items()
    }


def window_loop(op: Conv | MaxPool | AvgPool, maps: Array, tensors: dict[str, Array]) -> Array:
    """A windowed op over C×H×W, cell by cell, as `porter.padding.row` says its source places windows."""
    window, convention = op.window, op.convention
    rows, columns = (row(convention, window, axis, size) for axis, size in enumerate(maps.shape[1:]))
    down, across = (divisors(convention, window, axis, size) for axis, size in enumerate(maps.shape[1:]))
    spread = max(window.extent(0), window.extent(1)) + max(window.stride) + 8
    padded = np.pad(maps, ((0, 0), (spread, spread), (spread, spread)), constant_values=convention.fill)
    columns_of_output = []
    for r in range(rows.count):
        cells = []
        for c in range(columns.count):
            top = spread + rows.start + r * window.stride[0]
            left = spread + columns.start + c * window.stride[1]
            seen = padded[
                :,
                top : top + window.extent(0) : window.dilation[0],
                left : left + window.extent(1) : window.dilation[1],
            ]
            if isinstance(op, MaxPool):
                cells.append(seen.max(axis=(1, 2)))
            elif isinstance(op, AvgPool):
                cells.append(seen.sum(axis=(1, 2)) / (down[r] * across[c]))
            else:
                grouped = zip(np.split(seen, op.groups), np.split(tensors["kernel"], op.groups), strict=True)
                cell = np.concatenate([np.einsum("ihw,oihw->o", part, kernel) for part, kernel in grouped])
                cells.append(cell + tensors.get("bias", 0.0))
        columns_of_output.append(np.stack(cells, axis=-1))
    return np.stack(columns_of_output, axis=1)


@cache
def few_ops() -> Graph:
    """The graph with every op, of which it has one of each for maps and one for others, and no resizes."""
    graph = every_op()
    others = [path for path in graph.outputs if not isinstance(graph.by_path[path].op, Resize | ResizeLike)]
    return ending_at(graph, one_of_each(graph, others))


def network() -> Graph:
    """A small graph with a depthwise and a grouped convolution, every kind of front pad, and a head with
    norms.

    None of the affine nodes' constants is a float32, so that one rounded to it shows in float64.
    """
    three = Window((3, 3), (2, 2))
    steps: list[tuple[str, Op, tuple[str, ...]]] = [
        ("pixels/one", Affine((1 / 3,), (-1 / 7,)), (INPUT,)),
        (
            "pixels/each",
            Affine((1 / 0.229, 1 / 0.224, 1 / 0.225), (-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225)),
            ("pixels/one",),
        ),
        ("stem/conv", Conv(8, three, explicit(1, 1, 1, 1), bias=True), ("pixels/each",)),
        ("stem/norm", BatchNorm(1e-3, 0.01), ("stem/conv",)),
        ("stem/pool", MaxPool(Window((3, 3)), explicit(1, 0, 2, 1, fill=LOWEST)), ("stem/norm",)),
        ("stem/relu", Relu(), ("stem/pool",)),
        ("a/depthwise/conv", Conv(8, Window((3, 3)), SAME, groups=8), ("stem/relu",)),
        ("a/norm", BatchNorm(1e-5, 0.1, scale=False), ("a/depthwise/conv",)),
        ("a/relu", Relu6(), ("a/norm",)),
        ("b/grouped", Conv(8, Window((3, 3)), SAME, groups=2), ("stem/relu",)),
        ("b/norm", BatchNorm(1e-5, 0.1, center=False), ("b/grouped",)),
        ("b/average", AvgPool(Window((3, 3)), explicit(1, 1, 1, 1)), ("b/norm",)),
        ("b/same", Identity(), ("b/average",)),
        ("sum", Add(), ("a/relu", "b/same")),
        ("join", ConcatChannels(), ("sum", "stem/relu")),
        ("dilated", Conv(6, Window((3, 3), (2, 2), (2, 2)), explicit(2, 2, 2, 2)), ("join",)),
        ("pool/mean", GlobalAvgPool(), ("dilated",)),
        ("pool/most", GlobalMaxPool(), ("dilated",)),
        ("pool/both", ConcatChannels(), ("pool/mean", "pool/most")),
        ("head/norm", BatchNorm(1e-3, 0.01), ("pool/both",)),
        ("head/relu6", Relu6(), ("head/norm",)),
        ("head/dense", Dense(7, bias=False), ("head/relu6",)),
        ("head/dense/norm", BatchNorm(1e-3, 0.01, scale=False, center=False), ("head/dense",)),
        ("head/relu", Relu(), ("head/dense/norm",)),
        ("head/each", Affine(tuple(0.1 * n for n in range(1, 8)), (-0.3,)), ("head/relu",)),
        ("head/one", Affine((1.1,), tuple(0.1 * n for n in range(7))), ("head/each",)),
        ("logits", Dense(5), ("head/one",)),
    ]
    return Graph(tuple(Node(path, op, inputs) for path, op, inputs in steps), 3, "logits")


def mobilenet_v2(alpha: float, classes: int) -> Graph:
    """MobileNetV2 with keras.applications' layer names for paths (keras/src/applications/mobilenet_v2.py)."""

    def rounded(channels: float) -> int:
        whole = max(8, int(channels + 4) // 8 * 8)
        return whole + 8 if whole < 0.9 * channels else whole

    nodes: list[Node] = []

    def step(path: str, op: Op, *inputs: str) -> str:
        nodes.append(Node(path, op, inputs))
        return path

    norm = BatchNorm(1e-3, 0.001)
    x = step("Conv1", Conv(rounded(32 * alpha), Window((3, 3), (2, 2)), SAME), INPUT)
    x = step("Conv1_relu", Relu6(), step("bn_Conv1", norm, x))
    channels = rounded(32 * alpha)
    stages = [(16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)]
    blocks = [
        (width, stride if first == 0 else 1) for width, count, stride in stages for first in range(count)
    ]
    for index, (width, stride) in enumerate(blocks):
        prefix, entry, filters = f"block_{index}_" if index else "expanded_conv_", x, rounded(width * alpha)
        wide = channels * 6 if index else channels
        if index:
            x = step(f"{prefix}expand", Conv(wide, ONE, SAME), x)
            x = step(f"{prefix}expand_relu", Relu6(), step(f"{prefix}expand_BN", norm, x))
        x = step(f"{prefix}depthwise", Conv(wide, Window((3, 3), (stride, stride)), SAME, groups=wide), x)
        x = step(f"{prefix}depthwise_relu", Relu6(), step(f"{prefix}depthwise_BN", norm, x))
        x = step(f"{prefix}project_BN", norm, step(f"{prefix}project", Conv(filters, ONE, SAME), x))
        if stride == 1 and channels == filters:
            x = step(f"{prefix}add", Add(), entry, x)
        channels = filters
    x = step(
        "Conv_1_bn",
        norm,
        step("Conv_1", Conv(1280 if alpha <= 1 else rounded(1280 * alpha), ONE, Convention()), x),
    )
    x = step("global_average_pooling2d", GlobalAvgPool(), step("out_relu", Relu6(), x))
    step("predictions", Dense(classes), x)
    return Graph(tuple(nodes), 3, "predictions")
