"""ATen's sums, products, norms and matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from porter.filegraph import arithmetic, functions
from porter.filegraph.builder import Value
from porter.filegraph.choices import choose
from porter.filegraph.dataflow import Operand, Reference
from porter.filegraph.file_graph import Stored, Unsupported, first_of
from porter.filegraph.patterns import softplus
from porter.filegraph.products import Product, attention, bilinear, by_matrix, dense, matmul, with_matrices
from porter.filegraph.reductions import norm, reduce
from porter.filegraph.walk import Read, apply
from porter.formats.torch_export.nodes import AtenNode, Walk
from porter.formats.torch_export.sizes import whole_numbers
from porter.graph import LARGEST_FLOAT32, Affine, Clip, LayerNorm, LeakyRelu, PRelu, RmsNorm

COMPARED = {"gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual"}
"""Comparisons, as porter.filegraph.choices calls them."""
KINDS = {
    **COMPARED,
    "add": "Add",
    "sub": "Sub",
    "rsub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "neg": "Neg",
    "sqrt": "Sqrt",
    "rsqrt": "Rsqrt",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "Relu",
    "erf": "Erf",
    "exp": "Exp",
    "log1p": "Log1p",
    "abs": "Abs",
    "where": "Where",
    "clamp_min": "Max",
    "clamp_max": "Min",
    "reciprocal": "Reciprocal",
    "relu6": "Relu6",
    "constant_pad_nd": "pad",
    "reshape": "view",
    "_unsafe_view": "view",
}
"""Names of ops in patterns."""
_LONGEST = 8
"""How many moves a kernel may have gone through."""
_MEANS = "view", ("squeeze", ("avg_pool3d", ("pad", ("view", ("Mul", "x", "x")))))


def kind_of(node: AtenNode) -> str:
    """A node's op as patterns name it."""
    if node.op == "hardtanh" and (node.arguments.get("min_val"), node.arguments.get("max_val")) == (0, 6):
        return "Relu6"
    if node.op == "clamp":
        low, high = (node.arguments.get(name) is not None for name in ("min", "max"))
        return "Clip" if low and high else "Max" if low else "Min"
    if node.op == "mean" and node.arguments.get("keepdim"):
        return "Mean"
    plain = (
        node.op != "rsub" and node.arguments.get("alpha", 1) == 1 and not node.arguments.get("rounding_mode")
    )
    return KINDS.get(node.op, node.op) if plain else node.op


def operands(node: AtenNode) -> Sequence[Operand]:
    """A node's inputs, and the axis of a mean over one."""
    axes = node.arguments.get("dim") if node.op == "mean" else None
    return (*node.inputs, float(axes[0])) if isinstance(axes, list) and len(axes) == 1 else node.inputs


def read_binary(walk: Walk, node: AtenNode) -> Read:
    """A sum, difference, product, quotient, bound or power: of values, or of a value and a constant."""
    first, second = node.arguments["self"], node.arguments["exponent" if node.op == "pow" else "other"]
    if node.arguments.get("alpha", 1) != 1:
        raise Unsupported("with alpha")
    if node.arguments.get("rounding_mode"):
        return read_rounded(walk, node)
    found = (
        arithmetic.response_norm(walk, node, _MEANS, "avg_pool3d", partial(_channels_pooled, walk))
        if node.op == "div"
        else None
    )
    return found or arithmetic.combine(
        walk, node, KINDS[node.op], (second, first) if node.op == "rsub" else (first, second)
    )


def read_rounded(walk: Walk, node: AtenNode) -> Read:
    """A quotient by a number that is rounded, and what such a quotient leaves."""
    divisor = walk.flow.number(node.arguments["other"])
    mode = node.arguments.get("rounding_mode") or ("trunc" if node.op == "fmod" else "floor")
    whole = node.op not in ("remainder", "fmod")
    return functions.by_number(walk, node, node.arguments["self"], divisor, mode, whole)


def read_made(walk: Walk, node: AtenNode) -> Read:
    """Functions of each number that are several of porter's ops, of their attributes."""
    stated = node.arguments
    match node.op:
        case "softshrink":
            maker = functions.soft_shrink(float(stated.get("lambd", 0.5)))
        case "hardshrink":
            maker = functions.hard_shrink(float(stated.get("lambd", 0.5)))
        case "threshold":
            maker = functions.threshold(float(stated["threshold"]), float(stated["value"]))
        case "logit":
            maker = functions.logit(None if stated.get("eps") is None else float(stated["eps"]))
        case _:
            maker = functions.MADE[_OTHER_NAMES.get(node.op, node.op)]
    return functions.made(walk, node, stated["self"], maker)


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
MADE = ("softshrink", "hardshrink", "threshold", "logit", *_OTHER_NAMES, *functions.MADE)
"""What `read_made` reads."""


def read_pair(walk: Walk, node: AtenNode) -> Read:
    """Functions of two values."""
    first, second = node.arguments["self"], node.arguments["other"]
    if node.op == "hypot":
        return functions.hypotenuse(walk, node, first, second)
    if node.op == "logaddexp":
        return functions.log_of_sum(walk, node, first, second)
    return functions.equal(walk, node, first, second, holds=node.op == "eq")


def read_between(walk: Walk, node: AtenNode) -> Read:
    """lerp, whose share is a number or a value."""
    share = node.arguments["weight"]
    number = walk.flow.number(share)
    if number is None and not walk.is_value(share):
        raise Unsupported("by stored numbers of each place")
    return functions.between(
        walk, node, node.arguments["self"], node.arguments["end"], share if number is None else number
    )


def read_distance(walk: Walk, node: AtenNode) -> Read:
    """pairwise_distance: a norm of the differences along the last axis, each with a small number added."""
    first, second = node.arguments["x1"], node.arguments["x2"]
    apart = functions.pair(walk, functions.within(node, "apart"), "Sub", first, second)
    least = Affine((1.0,), (float(node.arguments.get("eps", 1e-6)),))
    added = apply(walk, functions.within(node, "added"), apart, least)
    order, keep = float(node.arguments.get("p", 2)), bool(node.arguments.get("keepdim"))
    return norm(walk, node, added, [-1], keep, order)


def read_cosine(walk: Walk, node: AtenNode) -> Read:
    """cosine_similarity: the product of two values along an axis, over their norms, which are not below a
    small number.
    """
    first, second = node.arguments["x1"], node.arguments["x2"]
    places, least = [int(node.arguments.get("dim", 1))], float(node.arguments.get("eps", 1e-8))
    product = functions.pair(walk, functions.within(node, "product"), "Mul", first, second)
    found = reduce(walk, functions.within(node, "sum"), product, "sum", places, False)
    for name, source in (("first", first), ("second", second)):
        size = norm(walk, functions.within(node, f"{name}_norm"), source, places, False, 2)
        bound = Clip(least, LARGEST_FLOAT32)
        over = apply(walk, functions.within(node, f"{name}_bound"), size, bound)
        last = node if name == "second" else functions.within(node, "quotient")
        found = functions.pair(walk, last, "Div", found, over)
    return found


def _scaled_by(walk: Walk, node: AtenNode, factor: float, kind: str) -> Read:
    """A value plus a factor times the product, or the quotient, of two others."""
    inner = functions.within(node, "product")
    product = functions.pair(walk, inner, kind, node.arguments["tensor1"], node.arguments["tensor2"])
    scaled = apply(walk, functions.within(node, "scaled"), product, Affine((factor,), (0.0,)))
    return functions.pair(walk, node, "Add", scaled, node.arguments["self"])


def read_scaled_sum(walk: Walk, node: AtenNode) -> Read:
    """addcmul and addcdiv; a constant plus the product of a constant and a value is a scale and offset."""
    factor = float(node.arguments.get("value", 1))
    if node.op == "addcdiv" or factor != 1 or walk.flow.is_value(node.arguments["self"]):
        return _scaled_by(walk, node, factor, "Div" if node.op == "addcdiv" else "Mul")
    product = arithmetic.combine(walk, node, "Mul", (node.arguments["tensor1"], node.arguments["tensor2"]))
    return arithmetic.combine_constant(walk, node, "Add", walk.given(product), node.arguments["self"])


def _channels_pooled(walk: Walk, pool: AtenNode, value: Value) -> int | None:
    """Over how many channels of a value an average over five axes is taken."""
    padded = walk.flow.nodes[pool.source[0]]
    squares = walk.flow.nodes[padded.source[0]]
    kernel, stride = (whole_numbers(walk, pool, name) for name in ("kernel_size", "stride"))
    size, pads = kernel[0], whole_numbers(walk, padded, "pad")
    along = squares.sizes[0][1:3] == (1, value.channels) and len(squares.sizes[0]) == 5
    plain = (
        kernel[1:] == [1, 1]
        and stride == [1, 1, 1]
        and pool.arguments.keys() == {"self", "kernel_size", "stride"}
    )
    fits = (
        along
        and plain
        and pads == [0, 0, 0, 0, size // 2, (size - 1) // 2]
        and not padded.arguments.get("value")
    )
    return size if fits else None


def read_negative(walk: Walk, node: AtenNode) -> Read:
    return arithmetic.negative(walk, node, node.arguments["self"])


def read_clip(walk: Walk, node: AtenNode) -> Read:
    if node.op == "hardtanh":
        low, high = (
            float(node.arguments.get(name, default))
            for name, default in (("min_val", -1.0), ("max_val", 1.0))
        )
        return arithmetic.clip(walk, node, node.arguments["self"], low, high)
    bounds = {"min": -math.inf, "max": math.inf}
    for name in bounds.keys() & node.arguments.keys():
        if node.arguments[name] is not None:
            bound = walk.flow.number(node.arguments[name])
            if bound is None:
                raise Unsupported("with computed bounds")
            bounds[name] = bound
    return arithmetic.clip(walk, node, node.arguments["self"], bounds["min"], bounds["max"])


def read_batch_norm(walk: Walk, node: AtenNode) -> Read:
    """batch_norm and its forms for inference, whose further outputs nothing reads."""
    tensors = _given(node, gamma="weight", beta="bias", mean="running_mean", variance="running_var")
    if not {"mean", "variance"} <= tensors.keys():
        raise Unsupported("with the statistics of its input")
    if node.arguments.get("training"):
        raise Unsupported("in training mode (call model.eval() before torch.export.export)")
    epsilon, momentum = (float(node.arguments[name]) for name in ("eps", "momentum"))
    return arithmetic.batch_norm(walk, node, node.arguments["input"], tensors, epsilon, momentum)


def read_layer_norm(walk: Walk, node: AtenNode) -> Read:
    """layer_norm and rms_norm over the last axes."""
    places = range(-len(node.arguments["normalized_shape"]), 0)
    tensors = _given(node, gamma="weight", beta="bias")
    op: LayerNorm | RmsNorm = LayerNorm(
        float(node.arguments.get("eps", 1e-5)), "gamma" in tensors, "beta" in tensors
    )
    if node.op == "rms_norm":
        op = RmsNorm(node.arguments["eps"], "gamma" in tensors)
    return arithmetic.norm_of_cells(walk, node, node.arguments["input"], op, tensors, places)


def read_group_norm(walk: Walk, node: AtenNode) -> Read:
    groups, epsilon = (
        node.arguments[name]
        for name in (("num_groups", "eps") if node.op == "group_norm" else ("group", "eps"))
    )
    tensors = _given(node, gamma="weight", beta="bias")
    return arithmetic.group_norm(walk, node, node.arguments["input"], int(groups), tensors, float(epsilon))


def read_instance_norm(walk: Walk, node: AtenNode) -> Read:
    """A norm of each channel of an image, or by stored statistics."""
    tensors, epsilon = _given(node, gamma="weight", beta="bias"), float(node.arguments["eps"])
    if node.arguments["use_input_stats"]:
        return arithmetic.instance_norm(walk, node, node.arguments["input"], tensors, epsilon)
    tensors |= _given(node, mean="running_mean", variance="running_var")
    return arithmetic.batch_norm(
        walk, node, node.arguments["input"], tensors, epsilon, float(node.arguments["momentum"])
    )


def _given(node: AtenNode, **roles: str) -> dict[str, Reference]:
    """Arguments by role, without those that are not given."""
    return {role: source for role, name in roles.items() if (source := node.arguments.get(name)) is not None}


def read_linear(walk: Walk, node: AtenNode) -> Read:
    product = Product(node.arguments["weight"], "OI", node.arguments.get("bias"))
    return dense(walk, node, node.arguments["input"], product)


def read_bilinear(walk: Walk, node: AtenNode) -> Read:
    sources = [node.arguments[name] for name in ("input1", "input2")]
    if None in sources:
        raise ValueError("a product of nothing")
    return bilinear(walk, node, sources, node.arguments["weight"], node.arguments.get("bias"))


def read_product(walk: Walk, node: AtenNode) -> Read:
    """mm, bmm, matmul and addmm, with a kernel."""
    bias, factors = None, (1.0, 1.0)
    if node.op == "addmm":
        source, kernel, bias = (node.arguments[name] for name in ("mat1", "mat2", "self"))
        factors = float(node.arguments.get("alpha", 1)), float(node.arguments.get("beta", 1))
    else:
        source, kernel = node.inputs
        if walk.is_value(source) and walk.is_value(kernel):
            return matmul(walk, node, node.inputs)
        if not walk.is_value(source):
            return by_matrix(walk, node, source, kernel)
    held = walk.flow.weights(kernel)
    matrix = Product(*_matrix(walk, kernel), bias, factors)
    if held is None or len(held.shape) < 3 or bias is not None:
        return dense(walk, node, source, matrix)
    return first_of(
        lambda: dense(walk, node, source, matrix), lambda: with_matrices(walk, node, source, held)
    )


def read_attention(walk: Walk, node: AtenNode) -> Read:
    """scaled_dot_product_attention without dropout."""
    if node.arguments.get("is_causal") or node.arguments.get("enable_gqa") or node.arguments.get("dropout_p"):
        raise Unsupported("that is causal, of grouped queries or with dropout")
    heads = [walk.array(node.arguments[name]) for name in ("query", "key", "value")]
    return attention(walk, node, heads, _mask(walk, node), node.arguments.get("scale"))


def _mask(walk: Walk, node: AtenNode) -> Reference | None:
    """What is added to the scores. A constant of truths says which scores count: nothing is added where all
    do, otherwise minus infinity to the others. transformers makes one for any model while it is exported, and
    none otherwise (masking_utils.py, `_ignore_bidirectional_mask_sdpa`). A constant that is only repeated is
    added as it is.
    """
    mask: Reference | None = node.arguments.get("attn_mask")
    if mask is None or walk.flow.is_value(mask):
        return mask
    while (source := walk.flow.nodes[mask[0]]).op == "expand":
        mask = source.source
    counts = walk.flow.value(mask)
    if counts is None or counts.dtype.kind != "b":
        return mask
    return None if counts.all() else walk.flow.stated(f"{node.name}:counted", np.where(counts, 0.0, -np.inf))


def _matrix(walk: Walk, kernel: Reference) -> tuple[Reference, str]:
    """The stored kernel that a constant is, and its axes: it may be transposed, and repeated for every row of
    images.
    """
    axes, node = "IO", walk.flow.nodes[kernel[0]]
    for _ in range(_LONGEST):
        if node.name in walk.flow.live or node.op not in (
            "permute",
            "transpose",
            "t",
            "expand",
            "view",
            "clone",
        ):
            break
        before = walk.flow.nodes[node.source[0]]
        sizes, own = before.sizes[0], node.sizes[0]
        if node.op in ("permute", "transpose", "t") and len(sizes) == 2:
            axes = axes[::-1]
        elif node.op in ("permute", "transpose", "t") or sizes[-2:] != own[-2:]:
            break
        node = before
    return (node.name, 0), axes


def read_elu(walk: Walk, node: AtenNode) -> Read:
    """scale * Elu(x), which a SELU is too."""
    alpha, factor, inner = (float(node.arguments.get(name, 1)) for name in ("alpha", "scale", "input_scale"))
    if inner != 1:
        raise Unsupported("with scales")
    return apply(walk, node, node.arguments["self"], *arithmetic.scaled_elu(alpha, factor))


def read_random_slope(walk: Walk, node: AtenNode) -> Read:
    """rrelu, whose slope is outside of training the mean of its bounds."""
    if node.arguments.get("training"):
        raise Unsupported("in training mode (call model.eval() before torch.export.export)")
    lower, upper = (
        float(node.arguments.get(name, default)) for name, default in (("lower", 1 / 8), ("upper", 1 / 3))
    )
    return apply(walk, node, node.arguments["self"], LeakyRelu((lower + upper) / 2))


def read_where(walk: Walk, node: AtenNode) -> Read:
    """A choice; a PReLU, as torch decomposes it, is where(x > 0, x, slopes * x)."""
    test, source, other = (node.arguments[name] for name in ("condition", "self", "other"))
    product, found = walk.flow.nodes[other[0]], walk.flow.match(walk.flow.nodes[test[0]], ("Greater", "x", 0))
    slopes = [each for each in product.inputs if each != source]
    if (
        found is None
        or found["x"] != source
        or product.op != "mul"
        or len(product.inputs) != 2
        or len(slopes) != 1
    ):
        return choose(walk, node, test, source, other)
    return arithmetic.slopes(walk, node, source, slopes[0])


def read_masked(walk: Walk, node: AtenNode) -> Read:
    """masked_fill: a number where a comparison holds."""
    source, test, number = (node.arguments[name] for name in ("self", "mask", "value"))
    if not isinstance(number, tuple):
        number = walk.flow.stated(f"{node.name}:number", np.asarray(number, np.float64))
    return choose(walk, node, test, number, source)


def read_softplus(walk: Walk, node: AtenNode) -> Read:
    op = softplus(node.arguments.get("threshold", 20)) if node.arguments.get("beta", 1) == 1 else None
    if op is None:
        raise Unsupported("with a beta or threshold")
    return apply(walk, node, node.arguments["self"], op)


def read_prelu(walk: Walk, node: AtenNode) -> Read:
    """One slope, or one for each channel, which are the second axis."""
    source, alpha = node.arguments["self"], node.arguments["weight"]
    tensor = walk.flow.tensor(alpha)
    if tensor is None or len(tensor.shape) > 1:
        raise Unsupported("with computed slopes")
    view = walk.by_cell(source, 1)
    if tensor.shape == (view.value.channels,) and walk.views.has_channels(view, 1):
        return walk.views.like(
            view, walk.builder.add(node.name, PRelu(), view.value, tensors={"alpha": Stored(tensor.name)})
        )
    return arithmetic.slopes(walk, node, source, alpha)
