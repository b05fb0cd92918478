"""Small classic networks with gates, layer norms and flattened maps, as a recipe or a Keras file gives
them.
"""

from __future__ import annotations

from porter.graph import (
    Add,
    AsMap,
    ChannelScale,
    Dense,
    Flatten,
    Gelu,
    GlobalAvgPool,
    Graph,
    HardSigmoid,
    HardSwish,
    LayerNorm,
    MaxPool,
    Multiply,
    Relu,
    Sigmoid,
    Swish,
)
from porter.padding import Convention, Window
from tests.support.frameworks.torch.graphs import Writer


def mobilenet_v3() -> Graph:
    """Inverted residuals with squeeze-and-excite in some."""
    w = Writer()
    w.conv("stem/conv", 16, 3, 2)
    w.norm("stem/norm")
    w.add("stem/activation", HardSwish())
    settings = [
        (16, 16, 3, 1, True, "relu"),
        (64, 24, 3, 2, False, "relu"),
        (72, 24, 3, 1, False, "relu"),
        (96, 40, 5, 2, True, "hard_swish"),
        (240, 40, 5, 1, True, "hard_swish"),
    ]
    for index, (hidden, filters, kernel, stride, squeeze, activation) in enumerate(settings):
        path, source = f"block{index}", w.last
        act = Relu() if activation == "relu" else HardSwish()
        arguments = {"hidden": hidden, "filters": filters, "kernel": kernel, "stride": stride}
        w.scope(path, "inverted_residual", **arguments, squeeze=squeeze, activation=activation)
        if hidden != w.width[source]:
            w.conv(f"{path}/expand/conv", hidden)
            w.norm(f"{path}/expand/norm")
            w.add(f"{path}/expand/activation", act)
        w.conv(f"{path}/depthwise/conv", hidden, kernel, stride, groups=hidden)
        w.norm(f"{path}/depthwise/norm")
        value = w.add(f"{path}/depthwise/activation", act)
        if squeeze:
            w.scope(f"{path}/se", "squeeze_excite")
            w.add(f"{path}/se/pool", GlobalAvgPool(keep=True))
            w.conv(f"{path}/se/reduce", hidden // 4, bias=True)
            w.add(f"{path}/se/relu", Relu())
            w.conv(f"{path}/se/expand", hidden, bias=True)
            w.add(f"{path}/se/gate", HardSigmoid())
            w.add(f"{path}/se/scale", Multiply(), value, w.last)
        w.conv(f"{path}/project/conv", filters)
        w.norm(f"{path}/project/norm")
        if stride == 1 and w.width[source] == filters:
            w.add(f"{path}/out", Add(), source, w.last)
    w.add("head/pool", GlobalAvgPool())
    w.add("head/logits", Dense(10))
    return w.graph()


def efficientnet() -> Graph:
    """The network as a Keras file's layers: no blocks, and the pool's features reshaped to a map."""
    w = Writer()
    w.conv("stem_conv", 16, 3, 2)
    w.norm("stem_bn")
    w.add("stem_activation", Swish())
    for block, hidden, filters in [("block1a", 16, 16), ("block2a", 64, 24), ("block2b", 96, 24)]:
        source = w.last
        if hidden != w.width[source]:
            w.conv(f"{block}_expand_conv", hidden)
            w.norm(f"{block}_expand_bn")
            w.add(f"{block}_expand_activation", Swish())
        w.conv(f"{block}_dwconv", hidden, 3, 2 if block == "block2a" else 1, groups=hidden)
        w.norm(f"{block}_bn")
        value = w.add(f"{block}_activation", Swish())
        w.add(f"{block}_se_squeeze", GlobalAvgPool())
        w.add(f"{block}_se_reshape", AsMap())
        w.conv(f"{block}_se_reduce", 4, bias=True)
        w.add(f"{block}_se_swish", Swish())
        w.conv(f"{block}_se_expand", hidden, bias=True)
        w.add(f"{block}_se_sigmoid", Sigmoid())
        w.add(f"{block}_se_excite", Multiply(), value, w.last)
        w.conv(f"{block}_project_conv", filters)
        w.norm(f"{block}_project_bn")
        if filters == w.width[source]:
            w.add(f"{block}_add", Add(), w.last, source)
    w.add("avg_pool", GlobalAvgPool())
    w.add("predictions", Dense(10))
    return w.graph()


def convnext() -> Graph:
    """Blocks with a layer norm and a scale for each channel, and layer norms between the stages."""
    w = Writer()
    w.conv("stem/conv", 24, 4, 4, Convention(), bias=True)
    w.add("stem/norm", LayerNorm(1e-6))
    for stage, (depth, width) in enumerate([(2, 24), (3, 48), (5, 64)]):
        if stage:
            w.add(f"stage{stage}/downsample/norm", LayerNorm(1e-6))
            w.conv(f"stage{stage}/downsample/conv", width, 2, 2, Convention(), bias=True)
        for block in range(depth):
            path, source = f"stage{stage}/block{block}", w.last
            w.scope(path, "block", width=width)
            w.conv(f"{path}/depthwise", width, 7, groups=width, bias=True)
            w.add(f"{path}/norm", LayerNorm(1e-6))
            w.conv(f"{path}/expand", 4 * width, bias=True)
            w.add(f"{path}/gelu", Gelu())
            w.conv(f"{path}/project", width, bias=True)
            w.add(f"{path}/scale", ChannelScale())
            w.add(f"{path}/out", Add(), source, w.last)
    w.add("head/pool", GlobalAvgPool())
    w.add("head/norm", LayerNorm(1e-6))
    w.add("head/logits", Dense(10))
    return w.graph()


def vgg() -> Graph:
    """The network for an input of 32x32: its classifier reads a map of 4x4, cell by cell."""
    w = Writer()
    for stage, (depth, width) in enumerate([(2, 8), (2, 16), (3, 32)], 1):
        for number in range(1, depth + 1):
            w.conv(f"block{stage}_conv{number}", width, 3, bias=True)
            w.add(f"block{stage}_relu{number}", Relu())
        w.add(f"block{stage}_pool", MaxPool(Window((2, 2), (2, 2)), Convention()))
    w.add("flatten", Flatten(4, 4, "HWC"))
    for name in ("fc1", "fc2"):
        w.add(name, Dense(64))
        w.add(f"{name}_relu", Relu())
    w.add("predictions", Dense(10))
    return w.graph()
