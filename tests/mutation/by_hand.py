"""A network that people might write, of the ops that files and recipes have rarely."""

from __future__ import annotations

from porter.graph import (
    Affine,
    AvgPool,
    BatchNorm,
    ChannelShuffle,
    Clip,
    ConcatChannels,
    Conv,
    ConvTranspose,
    CropMap,
    Dense,
    DepthToSpace,
    Elu,
    ExtendMap,
    Flatten,
    Gelu,
    Graph,
    GroupNorm,
    HardSigmoid,
    LeakyRelu,
    LocalResponseNorm,
    MaxPool,
    Multiply,
    PadChannels,
    PadMap,
    PRelu,
    Relu,
    Resize,
    ResizeLike,
    SliceChannels,
    Upsample,
)
from porter.padding import LOWEST, Convention, Window
from tests.support.frameworks.torch.graphs import Writer

SIZE = (18, 16)


def by_hand() -> Graph:
    """Its layers, for images of `SIZE`."""
    w, one, three = Writer(), Window((1, 1)), Window((3, 3))
    w.add("scaling", Affine((1 / 50, 1 / 60, 1 / 70), (-2.0, -1.8, -1.5)))
    w.add("edge", ExtendMap((1, 0, 0, 1), "reflect"))
    w.add("stem", Conv(8, Window((3, 3), (2, 2)), Convention("explicit", (1, 0, 0, 1))))
    w.add("norm", BatchNorm(1e-3, 0.1))
    stem = w.add("response", LocalResponseNorm(3, 0.05, 0.75, 1.0))
    w.add("wide", Conv(8, Window((3, 3), (1, 1), (2, 2)), Convention("same"), groups=2, bias=True))
    w.add("gelu", Gelu())
    w.add("narrow", Conv(8, three, Convention("same"), groups=4))
    w.add("groups", GroupNorm(2, 1e-3))
    w.add("gate", HardSigmoid())
    joined = w.add("joined", Multiply(), stem, "gate")
    w.add("shuffle", ChannelShuffle(2))
    left = w.add("left", SliceChannels(0, 4))
    right = w.add("right", SliceChannels(4, 8), "shuffle")
    w.add("elu", Elu(0.7), left)
    w.add("leaky", LeakyRelu(0.1), right)
    w.add("channels", PadChannels(1, 3), "leaky")
    w.add("concat", ConcatChannels(), "elu", "channels", joined)
    w.add("pad", PadMap((1, 0, 0, 1), 0.0))
    w.add("pool", MaxPool(Window((3, 3), (2, 2)), Convention("explicit", (1, 1, 1, 1), LOWEST)))
    w.add("mean", AvgPool(three, Convention("same")))
    w.add("mix", Conv(16, one, Convention(), bias=True))
    w.add("clip", Clip(-0.6, 0.7))
    w.add("blocks", DepthToSpace(2))
    w.add("up", ConvTranspose(4, Window((3, 3), (2, 2)), (1, 0, 0, 1), bias=True))
    w.add("prelu", PRelu())
    w.add("twice", Upsample(2, 1))
    crop = w.add("crop", CropMap((0, 1, 2, 0)))
    larger = w.add("larger", Resize("cubic", (1.5, 1.25), a=-0.5, inside=True))
    w.add("smaller", ResizeLike("linear", "align_corners"), larger, crop)
    w.add("last", Conv(3, Window((3, 3), (4, 3)), Convention(), bias=True))
    w.add("relu", Relu())
    w.add("flat", Flatten(10, 6))
    w.add("classes", Dense(5))
    return w.graph()
