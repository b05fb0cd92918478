"""Graphs written by hand, as recipes expand to them: chains of blocks, shared shortcuts, branches, blocks
within blocks.
"""

from __future__ import annotations

from porter.graph import (
    INPUT,
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    BlockScope,
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
    Shape,
)
from porter.graph.ops import channels_in
from porter.padding import LOWEST, Convention, Window

SAME = Convention("same")
ZEROS_AROUND = Convention("explicit", (1, 1, 1, 1), fill=0.0)


class Writer:
    """Adds nodes one after the other, each fed by the last unless told otherwise."""

    def __init__(self, channels: int = 3) -> None:
        self.nodes: list[Node] = []
        self.scopes: list[BlockScope] = []
        self.channels = channels
        self.shapes: dict[str, Shape] = {INPUT: (channels, None, None)}
        self.width = {INPUT: channels}
        self.last = INPUT

    def add(self, path: str, op: Op, *inputs: str) -> str:
        inputs = inputs or (self.last,)
        self.nodes.append(Node(path, op, inputs))
        self.shapes[path] = op.shape(*(self.shapes[source] for source in inputs))
        self.width[path] = channels_in(self.shapes[path])
        self.last = path
        return path

    def conv(
        self,
        path: str,
        filters: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        pad: Convention = SAME,
        **rest,
    ) -> str:
        source = rest.pop("source", self.last)
        pair = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        return self.add(path, Conv(filters, Window(pair, (stride, stride)), pad, **rest), source)

    def norm(self, path: str, **rest) -> str:
        return self.add(path, BatchNorm(1e-3, 0.001, **rest))

    def scope(self, path: str, block: str, **arguments) -> None:
        self.scopes.append(BlockScope(path, block, arguments))

    def graph(self) -> Graph:
        return Graph(tuple(self.nodes), self.channels, self.last, tuple(self.scopes))


def mobilenet_v2(
    pad: Convention = SAME, classes: int = 10, settings=None, alpha: float = 1.0, stem: int = 32
) -> Graph:
    """MobileNetV2 (arXiv:1801.04381, table 2), or a smaller one by `settings`: expansion, filters, repeats,
    stride.
    """
    w = Writer()
    w.conv("stem/conv", stem, 3, 2, pad)
    w.norm("stem/norm")
    w.add("stem/relu", Relu6())
    rows = settings or [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    index = 0
    for expansion, filters, repeats, first_stride in rows:
        for repeat in range(repeats):
            stride, path = (first_stride if repeat == 0 else 1), f"block{index}"
            w.scope(path, "inverted_residual", filters=filters, stride=stride, expansion=expansion)
            inverted_residual(w, path, max(8, int(filters * alpha + 4) // 8 * 8), stride, expansion, pad)
            index += 1
    w.conv("head/conv", 1280 if settings is None else 64)
    w.norm("head/norm")
    w.add("head/relu", Relu6())
    w.add("head/pool", GlobalAvgPool())
    w.add("head/logits", Dense(classes))
    return w.graph()


def small_mobilenet(pad: Convention = SAME, alpha: float = 1.0) -> Graph:
    return mobilenet_v2(
        pad, settings=[(1, 8, 1, 1), (6, 16, 2, 2), (6, 24, 3, 2), (6, 24, 1, 1)], alpha=alpha, stem=8
    )


def inverted_residual(
    w: Writer, path: str, filters: int, stride: int, expansion: int, pad: Convention
) -> None:
    source, channels = w.last, w.width[w.last]
    if expansion > 1:
        w.conv(f"{path}/expand/conv", expansion * channels)
        w.norm(f"{path}/expand/norm")
        w.add(f"{path}/expand/relu", Relu6())
    hidden = expansion * channels
    w.conv(f"{path}/depthwise/conv", hidden, 3, stride, pad, groups=hidden)
    w.norm(f"{path}/depthwise/norm")
    w.add(f"{path}/depthwise/relu", Relu6())
    w.conv(f"{path}/project/conv", filters)
    w.norm(f"{path}/project/norm")
    if stride == 1 and channels == filters:
        w.add(f"{path}/out", Add(), source, f"{path}/project/norm")


def resnet_v2(depths=(2, 3), pool: Convention = ZEROS_AROUND, identity: bool = True) -> Graph:
    """Pre-activation bottlenecks, the stride in a stage's last unit: the shortcut is a convolution, a pool or
    an identity.

    Without `identity` units that neither stride nor widen have no shortcut, as in porter's recipe: they add
    their input.
    """
    w = Writer()
    w.conv("stem/conv", 8, 7, 2, Convention("explicit", (3, 3, 3, 3)), bias=True)
    w.add("stem/pool", MaxPool(Window((3, 3), (2, 2)), pool))
    for stage, depth in enumerate(depths, 1):
        for unit in range(1, depth + 1):
            stride = 2 if unit == depth and stage < len(depths) else 1
            path, width = f"stage{stage}/unit{unit}", 4 * 2 ** (stage - 1)
            w.scope(path, "unit", width=width, stride=stride)
            bottleneck(w, path, width, stride, first=unit == 1, identity=identity)
    w.norm("head/norm")
    w.add("head/relu", Relu())
    w.add("head/pool", GlobalAvgPool())
    w.add("head/logits", Dense(10))
    return w.graph()


def bottleneck(w: Writer, path: str, width: int, stride: int, first: bool, identity: bool) -> None:
    source = shortcut = w.last
    w.norm(f"{path}/preact/norm")
    relu = w.add(f"{path}/preact/relu", Relu())
    if first:
        shortcut = w.conv(f"{path}/shortcut", 4 * width, 1, stride, Convention(), bias=True)
    elif stride > 1:
        shortcut = w.add(f"{path}/shortcut", MaxPool(Window((1, 1), (stride, stride)), Convention()), source)
    elif identity:
        shortcut = w.add(f"{path}/shortcut", Identity(), source)
    w.conv(f"{path}/conv1", width, source=relu)
    w.norm(f"{path}/norm1")
    w.add(f"{path}/relu1", Relu())
    w.conv(f"{path}/conv2", width, 3, stride, Convention("explicit", (1, 1, 1, 1)))
    w.norm(f"{path}/norm2")
    w.add(f"{path}/relu2", Relu())
    w.conv(f"{path}/conv3", 4 * width, bias=True)
    w.add(f"{path}/out", Add(), shortcut, f"{path}/conv3")


def inception() -> Graph:
    """Blocks within blocks, branches, an average over real cells, nodes at the root beside blocks."""
    w = Writer()
    valid = Convention()
    cbr(w, "conv1", 8, 3, 2, valid)
    w.add("pool1", MaxPool(Window((3, 3), (2, 2)), Convention(fill=LOWEST)))
    for index, pool in enumerate((8, 16)):
        path, source = f"mixed{index}", w.last
        w.scope(path, "inception_a", pool=pool)
        ends = [cbr(w, f"{path}/branch1x1", 8, source=source)]
        cbr(w, f"{path}/branch7x7_1", 6, source=source)
        cbr(w, f"{path}/branch7x7_2", 6, (1, 7))
        ends.append(cbr(w, f"{path}/branch7x7_3", 12, (7, 1)))
        w.add(f"{path}/pool", AvgPool(Window((3, 3)), SAME), source)
        ends.append(cbr(w, f"{path}/branch_pool", pool))
        w.add(f"{path}/out", ConcatChannels(), *ends)
    path, source = "mixed2", w.last
    w.scope(path, "reduction_a")
    ends = [cbr(w, f"{path}/branch3x3", 12, 3, 2, valid, source=source)]
    ends.append(w.add(f"{path}/pool", MaxPool(Window((3, 3), (2, 2)), Convention(fill=LOWEST)), source))
    w.add(f"{path}/out", ConcatChannels(), *ends)
    w.add("head/pool", GlobalAvgPool())
    w.add("head/logits", Dense(10))
    return w.graph()


def fine_tuned() -> Graph:
    """What people put around a backbone: constants on the pixels, and a head of dense layers with norms on
    features.

    None of the constants is a float32, so that one rounded to it shows in float64.
    """
    w = Writer()
    w.add("pixels", Affine((1 / 3,), (-1 / 7,)))
    w.add(
        "channels",
        Affine((1 / 0.229, 1 / 0.224, 1 / 0.225), (-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225)),
    )
    w.conv("stem/conv", 8, 3, 2)
    w.norm("stem/norm")
    w.add("stem/relu", Relu())
    w.add("stem/shifted", Affine((1.0,), (-0.7,)))
    w.add("stem/pool", MaxPool(Window((3, 3), (2, 2)), ZEROS_AROUND))
    w.add("head/pool", GlobalMaxPool())
    w.norm("head/norm")
    w.add("head/dense1", Dense(16))
    w.add("head/relu1", Relu())
    w.norm("head/norm1", scale=False, center=False)
    w.add("head/scaled", Affine(tuple(0.1 * n for n in range(1, 17)), (0.3,)))
    w.add("head/dense2", Dense(12, bias=False))
    w.norm("head/norm2", scale=False)
    w.add("head/relu2", Relu6())
    w.add("head/logits", Dense(5))
    return w.graph()


def cbr(
    w: Writer,
    path: str,
    filters: int,
    kernel=1,
    stride: int = 1,
    pad: Convention = SAME,
    source: str | None = None,
) -> str:
    w.scope(
        path,
        "cbr",
        filters=filters,
        kernel=kernel if isinstance(kernel, int) else None,
        stride=stride,
        pad=pad.rule,
    )
    w.conv(f"{path}/conv", filters, kernel, stride, pad, source=source or w.last)
    w.norm(f"{path}/bn", scale=False)
    return w.add(f"{path}/relu", Relu())
