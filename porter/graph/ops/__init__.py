"""The ops of a graph: what each computes, its shape rule, its tensors, and whether its values can be
negative.

A value is a map, C×H×W, features, C, or an array of other axes, whose last one is its channels.

Tensors are canonical: convolution kernels are (filters, channels / groups, rows,
columns), those of transposed convolutions (channels, filters / groups, rows, columns), dense kernels (units,
features), everything else a vector of channels.
"""

from __future__ import annotations

# isort: off
# The order in which docs/recipes.md lists the ops.
from porter.graph.ops.kinds import MOST_CONSTANTS, Axis, Coordinates, Function, Mode, Nearest, Order, Side
from porter.graph.ops.op import (
    LARGER,
    OPS,
    Axes,
    OfChannels,
    Op,
    Shape,
    TensorShapes,
    array_shape,
    channels_axis,
    channels_in,
    is_map,
    row_of,
    shape_text,
)
from porter.graph.ops.windows import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AdaptivePool,
    AvgPool,
    Conv,
    ConvTranspose,
    GlobalAvgPool,
    GlobalMaxPool,
    GlobalPool,
    MaxPool,
)
from porter.graph.ops.layers import (
    USUAL_MOMENTUM,
    Affine,
    BatchNorm,
    ChannelScale,
    Dense,
    GroupNorm,
    LayerNorm,
    LocalResponseNorm,
    RmsNorm,
)
from porter.graph.ops.activations import (
    LARGEST_FLOAT32,
    OF_LOGITS,
    Celu,
    Clip,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    LogSoftmax,
    Mish,
    PRelu,
    Relu,
    Relu6,
    Selu,
    Sigmoid,
    Softmax,
    Softplus,
    Softsign,
    Swish,
    Tanh,
    ThresholdedRelu,
)
from porter.graph.ops.elementwise import (
    Abs,
    Ceil,
    Cos,
    Erf,
    Exp,
    Floor,
    Log,
    Power,
    Reciprocal,
    Round,
    Sign,
    Sin,
    Sqrt,
    Step,
)
from porter.graph.ops.joins import Add, Divide, Maximum, Merge, Minimum, Multiply
from porter.graph.ops.axes import (
    AXES,
    AlongAxes,
    Concat,
    ConcatChannels,
    Crop,
    CropAxis,
    CropMap,
    ExtendMap,
    Join,
    Pad,
    PadAxis,
    PadChannels,
    PadMap,
    Reduce,
    ReduceAxis,
    ReduceMap,
    SliceChannels,
)
from porter.graph.ops.maps import (
    AsMap,
    ChannelShuffle,
    DepthToSpace,
    Dropout,
    Flatten,
    Identity,
    SpaceToDepth,
    Upsample,
)
from porter.graph.ops.arrays import (
    CHANNELS_LAST,
    MOST_AXES,
    AddArray,
    Attention,
    MatMul,
    MultiplyArray,
    OfArray,
    PermuteStep,
    Rearrange,
    ReshapeStep,
    Tokens,
    axis_letters,
)
from porter.graph.ops.resizing import AsLarge, CropLike, PadLike, Resize, ResizeLike
