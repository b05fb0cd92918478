"""ATen's sums, products, norms and matrix products."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from porter.base.name_tables import by_name
from porter.filegraph.file_graph import Unsupported
from porter.filegraph.layer_values import Value
from porter.filegraph.layouts.dims import fixed_sizes
from porter.filegraph.matching.match import match
from porter.filegraph.matching.norms import match_response_norm
from porter.filegraph.matching.patterns import softplus_op
from porter.filegraph.tensors import functions, norms
from porter.filegraph.tensors.attention import AttentionScores
from porter.filegraph.tensors.products import Product
from porter.filegraph.tensors.several import attention, bilinear, matmul, matmul_stored, maximum, minimum
from porter.filegraph.tensors.tensor import Scope, Tensor
from porter.filegraph.value_names import NodeOutput
from porter.formats.torch_export.nodes import AtenNode, Walk
from porter.formats.torch_export.op_readers import AtenFunction, Call
from porter.formats.torch_export.program_sizes import whole_numbers
from porter.graph import ops

_MOST_MOVES = 8
"""How many moves a kernel may have gone through."""
_CHANNEL_MEANS = "view", ("squeeze", ("avg_pool3d", ("pad", ("view", ("Mul", "x", "x")))))
"""The pattern of what torch's local response norm divides by, means over channels of squares by a pool over
five axes: each op, and behind it what it reads.
"""


def _sub(x: Tensor, other: Tensor, alpha: float = 1) -> Tensor:
    """Return x - alpha * other."""
    return x - (other if alpha == 1 else alpha * other)


def _div(scope: Scope, x: Tensor, other: Tensor, rounding_mode: str | None = None) -> Tensor:
    """Return a quotient, rounded if `rounding_mode` says how. Where it is the last step of torch's local
    response norm, return the whole norm.
    """
    if rounding_mode is not None:
        return functions.whole_quotient(x, other, rounding_mode)
    count_channels = partial(_count_pooled_channels, scope.walk)
    norm = match_response_norm(scope, _CHANNEL_MEANS, "avg_pool3d", count_channels)
    return norm or x.real() / other


def _count_pooled_channels(walk: Walk, pool: AtenNode, value: Value) -> int | None:
    """Return over how many channels of a value a pool over five axes takes means; None if it does anything
    else too.
    """
    # The squares get an axis of one cell, and pads along the channels, before they are pooled.
    padded = walk.flow.nodes[pool.source[0]]
    squares = walk.flow.nodes[padded.source[0]]
    kernel, stride = (whole_numbers(walk, pool, name) for name in ("kernel_size", "stride"))
    size = kernel[0]
    pads = whole_numbers(walk, padded, "pad")
    is_along_channels = squares.sizes[0][1:3] == (1, value.channels) and len(squares.sizes[0]) == 5
    is_plain_pool = (
        kernel[1:] == [1, 1]
        and stride == [1, 1, 1]
        and pool.arguments.keys() == {"self", "kernel_size", "stride"}
    )
    has_its_pads = pads == [0, 0, 0, 0, size // 2, (size - 1) // 2] and not padded.arguments.get("value")
    return size if is_along_channels and is_plain_pool and has_its_pads else None


def _clamp(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    """Return `x` within two bounds; one that is None does not bound it."""
    low = -math.inf if min is None else min.number()
    high = math.inf if max is None else max.number()
    return x.clip(low, high)


def _addcmul(x: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    """Return x + value * tensor1 * tensor2."""
    product = tensor1 * tensor2
    return x + (product if value == 1 else value * product)


def _addcdiv(x: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    """Return x + value * tensor1 / tensor2."""
    quotient = tensor1 / tensor2
    return x + (quotient if value == 1 else value * quotient)


# Activations with attributes.


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """Return an ELU times `scale`, as SELU is; one whose input is scaled is Unsupported."""
    if input_scale != 1:
        raise Unsupported("with scales")
    return functions.scaled_elu(x, alpha, scale)


def _rrelu(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """Return a leaky ReLU whose slope is the mean of the bounds, as it is outside of training."""
    _expect_inference(training)
    return x.apply_elementwise(ops.LeakyRelu((lower + upper) / 2))


def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Return a softplus; porter has no op for one with a beta, or with some thresholds."""
    op = softplus_op(threshold) if beta == 1 else None
    if op is None:
        raise Unsupported("with a beta or threshold")
    return x.apply_elementwise(op)


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    """Return a PReLU by one slope, or by one for each channel, which are the second axis. Computed slopes are
    Unsupported.
    """
    walk = x.walk
    tensor = walk.flow.tensor(weight.reference)
    if tensor is None or len(tensor.shape) > 1:
        raise Unsupported("with computed slopes")
    view = walk.layouts.with_channels_at(x.source, 1)
    if tensor.shape != (view.value.channels,) or not walk.views.has_channels(view, 1):
        return x.prelu(weight)
    names = {"alpha": tensor.name}
    return x.derive("prelu", lambda node: norms.apply_per_channel(walk, node, view, ops.PRelu(), names))


def _where(scope: Scope, condition: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """Return a choice between two values, or a PReLU, because torch decomposes that to where(x > 0, x, slopes
    * x).
    """
    flow = scope.walk.flow
    product, comparison = (flow.nodes[tensor.reference[0]] for tensor in (other, condition))
    above_0 = match(flow, comparison, ("Greater", "x", 0))
    # What the product multiplies `x` by.
    slopes = [source for source in product.inputs if source != x.source]
    is_scaled = product.op == "mul" and len(slopes) == 1 < len(product.inputs)
    if is_scaled and above_0 is not None and above_0["x"] == x.source:
        return x.prelu(scope.tensor(slopes[0]))
    return functions.where(condition, x, other)


def _masked_fill(scope: Scope, x: Tensor, mask: Tensor, value: Tensor | float) -> Tensor:
    """Return a number where a comparison holds, and `x` elsewhere."""
    return functions.where(mask, value if isinstance(value, Tensor) else scope.constant(value), x)


def _expect_inference(training: bool) -> None:
    """Raise Unsupported for an op in training mode."""
    if training:
        raise Unsupported("in training mode (call model.eval() before torch.export.export)")


# Norms, whose further outputs nothing reads.


@dataclass(frozen=True, kw_only=True)
class _StoredNorm(Call):
    """A norm that may have stored statistics."""

    x: Tensor
    eps: float
    momentum: float
    weight: Tensor | None = None
    bias: Tensor | None = None
    running_mean: Tensor | None = None
    running_var: Tensor | None = None

    def apply_statistics(self) -> Tensor:
        """Return the norm by the stored statistics."""
        return self.x.batch_norm(
            self.eps,
            self.momentum,
            gamma=self.weight,
            beta=self.bias,
            mean=self.running_mean,
            variance=self.running_var,
        )


@dataclass(frozen=True, kw_only=True)
class _BatchNorm(_StoredNorm):
    """A batch norm by stored statistics."""

    training: bool = False

    def read(self) -> Tensor:
        """Return the norm by the running statistics. A constant that is normed by its own statistics, in
        training mode or where none are stored, is another constant.

        Raises:
            Unsupported: a value that depends on the image is normed by its own statistics.
        """
        if self.x.array is not None and (self.training or self.running_mean is None):
            # The statistics of a constant are the same for every image.
            return _standardise(self.x, self.eps, self.weight, self.bias)
        if self.running_mean is None or self.running_var is None:
            raise Unsupported("with the statistics of its input")
        _expect_inference(self.training)
        return self.apply_statistics()


@dataclass(frozen=True, kw_only=True)
class _InstanceNorm(_StoredNorm):
    """A norm of each channel of an image, or by stored statistics."""

    use_input_stats: bool

    def read(self) -> Tensor:
        """Return the norm by each image's own statistics, or by the stored ones."""
        if self.use_input_stats:
            return self.x.instance_norm(self.eps, gamma=self.weight, beta=self.bias)
        return self.apply_statistics()


def _standardise(x: Tensor, eps: float, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return a constant normed by its own statistics: a kernel that a model standardises as it runs."""
    axes = [0, *range(2, x.rank)]  # all but the channels'
    count = float(math.prod(fixed_sizes(x.sizes[axis] for axis in axes)))
    # The shape in which a number for each channel broadcasts against `x`.
    by_channel = [-1, *[1] * (x.rank - 2)]
    centred = x - x.sum(axes, True) / count
    normed = centred / functions.sqrt((centred * centred).sum(axes, True) / count + eps)
    scaled = normed if weight is None else normed * weight.reshape(by_channel)
    return scaled if bias is None else scaled + bias.reshape(by_channel)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> list[Tensor]:
    """Return the kernel `v` scaled so that its norms are `g`, and these norms; there is one for each cell of
    an axis or, with `dim` -1, one of all numbers.
    """
    reduced = [axis for axis in range(v.rank) if dim == -1 or axis != dim]
    norms = v.reduce("norm", reduced, True)
    return [v * (g / norms), norms.reshape(g.sizes)]


# Matrix products.


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a dense layer of a value, or of a constant."""
    if x.array is not None:
        product = matmul(x, weight, (False, True))
        return product if bias is None else product + bias
    return x.dense(Product(weight.reference, "OI", None if bias is None else bias.reference))


def _matmul(x: Tensor, other: Tensor) -> Tensor:
    """Return a matrix product of two constants, of two values, or of a value and stored numbers on either
    side.
    """
    are_constants = x.array is not None and other.array is not None
    if are_constants or (x.is_value and other.is_value):
        return matmul(x, other)
    if not x.is_value:
        return matmul_stored(x, other)
    # A value by stored numbers, which may be several matrices. A single one is a dense layer's kernel.
    matrix = x.dense(Product(*_find_kernel(x.walk, other.reference)))
    stored = x.walk.weights(other.source)
    return matrix if stored is None or len(stored.shape) < 3 else matrix.or_else(x.with_matrices(stored))


def _find_kernel(walk: Walk, kernel: NodeOutput) -> tuple[NodeOutput, str]:
    """Return the stored kernel that a constant is made from, and the order of the kernel's axes: of
    `kernel.t()` it is the kernel and "OI", because a product takes "IO". A kernel that is repeated for every
    row of images is the kernel itself. A constant that is made otherwise is returned as it is.
    """
    axes = "IO"
    node = walk.flow.nodes[kernel[0]]
    for _ in range(_MOST_MOVES):
        is_transposition = node.op in ("permute", "transpose", "t")
        if node.name in walk.flow.live or not (is_transposition or node.op in ("expand", "view", "clone")):
            break
        before = walk.flow.nodes[node.source[0]]
        sizes_before, sizes = before.sizes[0], node.sizes[0]
        if is_transposition and len(sizes_before) == 2:
            axes = axes[::-1]
        # What changes the last two axes otherwise makes another matrix.
        elif is_transposition or sizes_before[-2:] != sizes[-2:]:
            break
        node = before
    return (node.name, 0), axes


@dataclass(frozen=True, kw_only=True)
class _Attention(Call):
    """Attention of queries to keys and values, whose heads are an axis."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def read(self) -> Tensor:
        """Return the attention, with its mask if there is one; Unsupported if it is causal, of grouped
        queries or with dropout.
        """
        if self.is_causal or self.enable_gqa or self.dropout_p:
            raise Unsupported("that is causal, of grouped queries or with dropout")
        mask = None
        if self.attn_mask is not None:
            mask = _mask_to_add(self.attn_mask.scope, self.attn_mask.reference)
        return attention(self.query, self.key, self.value, AttentionScores(mask, self.scale))


def _mask_to_add(scope: Scope, mask: NodeOutput) -> NodeOutput | None:
    """Return what is added to the scores of an attention; None if nothing is.

    A constant of truths says which scores count: nothing is added where all do, otherwise minus infinity to
    the others. transformers makes one for any model while it is exported, and none otherwise
    (masking_utils.py, `_ignore_bidirectional_mask_sdpa`). A constant that is only repeated is added as it is,
    and so is a mask that depends on the image.
    """
    flow = scope.walk.flow
    if flow.is_live(mask):
        return mask
    while (source := flow.nodes[mask[0]]).op == "expand":
        mask = source.source
    truths = flow.constant(mask)
    if truths is None or truths.dtype.kind != "b":
        return mask
    return None if truths.all() else scope.constant(np.where(truths, 0.0, -np.inf)).reference


_OTHER_NAMES = {
    "fix": "trunc",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
    "special_erfc": "erfc",
    "special_exp2": "exp2",
}


FUNCTIONS: Mapping[str, AtenFunction] = by_name(
    {
        **functions.FUNCTIONS,
        **{name: functions.FUNCTIONS[kind] for name, kind in _OTHER_NAMES.items()},
        "add": lambda x, other, alpha=1: x + (other if alpha == 1 else alpha * other),
        "addcdiv": _addcdiv,
        "addcmul": _addcmul,
        "addmm": lambda x, mat1, mat2, alpha=1, beta=1: mat1.dense(
            Product(*_find_kernel(x.walk, mat2.reference), x.reference, (alpha, beta))
        ),
        "bilinear": lambda input1, input2, weight, bias=None: bilinear(input1, input2, weight, bias),
        "clamp": _clamp,
        "clamp_max": _clamp,
        "clamp_min": _clamp,
        "cosine_similarity": lambda x1, x2, dim=1, eps=1e-8: functions.cosine_similarity(x1, x2, [dim], eps),
        "div": _div,
        "elu": _elu,
        "eq": lambda x, other: functions.equal(x, other),
        "ge": lambda x, other: x >= other,
        "gt": lambda x, other: x > other,
        "le": lambda x, other: x <= other,
        "lt": lambda x, other: x < other,
        "floor_divide": lambda x, other: functions.whole_quotient(x, other, "floor"),
        "fmod": lambda x, other: functions.remainder(x, other, "trunc"),
        "full_like": lambda x, fill_value, dtype=None: x.full_like(fill_value),
        "gelu": lambda x, approximate="none": x.apply_elementwise(ops.Gelu(approximate == "tanh")),
        "group_norm": lambda x, num_groups, weight=None, bias=None, eps=1e-5: x.group_norm(
            num_groups, eps, gamma=weight, beta=bias
        ),
        "hardshrink": lambda x, lambd=0.5: functions.hard_shrink(x, lambd),
        "hardsigmoid": lambda x: x.apply_elementwise(ops.HardSigmoid()),
        "hardtanh": lambda x, min_val=-1.0, max_val=1.0: x.clip(min_val, max_val),
        "hypot": lambda x, other: functions.hypot(x, other),
        "instance_norm": _InstanceNorm,
        "lerp": lambda x, end, weight: x + weight * (end - x),
        "linear": _linear,
        "log_sigmoid": lambda x: functions.log_sigmoid(x),
        "logaddexp": lambda x, other: functions.log_add_exp(x, other),
        "logit": lambda x, eps=None: functions.logit(x, eps),
        "masked_fill": _masked_fill,
        "maximum": lambda x, other: maximum(x, other),
        "minimum": lambda x, other: minimum(x, other),
        "mul": lambda x, other: x * other,
        "native_group_norm": lambda x, group, eps, weight=None, bias=None: x.group_norm(
            group, eps, gamma=weight, beta=bias
        ),
        "ne": lambda x, other: functions.not_equal(x, other),
        "neg": lambda x: -x,
        "ones_like": lambda x, dtype=None: x.full_like(1.0),
        "pairwise_distance": lambda x1, x2, p=2, eps=1e-6, keepdim=False: functions.norm(
            x1 - x2 + eps, p, [-1], keepdim
        ),
        "pow": lambda x, exponent: x**exponent,
        "remainder": lambda x, other: functions.remainder(x, other, "floor"),
        "rms_norm": lambda x, normalized_shape, eps, weight=None: x.rms_norm(
            range(-len(normalized_shape), 0), eps, gamma=weight
        ),
        "rrelu": _rrelu,
        "rsqrt": functions.rsqrt,
        "rsub": lambda x, other, alpha=1: _sub(other, x, alpha),
        "scaled_dot_product_attention": _Attention,
        "softplus": _softplus,
        "softshrink": lambda x, lambd=0.5: functions.soft_shrink(x, lambd),
        "square": lambda x: x * x,
        "sub": _sub,
        "threshold": lambda x, threshold, value: functions.threshold(x, threshold, value),
        "where": _where,
        "_prelu_kernel prelu": _prelu,
        "_weight_norm _weight_norm_interface": _weight_norm,
        "dot": lambda x, tensor: matmul(x, tensor),
        "vdot": lambda x, other: matmul(x, other),
        "mv": lambda x, vec: matmul(x, vec),
        "bmm mm": lambda x, mat2: _matmul(x, mat2),
        "matmul": _matmul,
        "layer_norm native_layer_norm": lambda x, normalized_shape, weight=None, bias=None, eps=1e-5: (
            x.layer_norm(range(-len(normalized_shape), 0), eps, gamma=weight, beta=bias)
        ),
        "batch_norm native_batch_norm": _BatchNorm,
        "_native_batch_norm_legit _native_batch_norm_legit_no_training": _BatchNorm,
    }
)
