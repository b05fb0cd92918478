"""ATen's ops in porter's terms, one reader each, by their names without overloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from porter.filegraph.arithmetic import LOG_SIGMOID, ones, square
from porter.filegraph.choices import both, comparison, either, opposite
from porter.filegraph.products import einsum
from porter.filegraph.walk import Outputs, Read, apply, unary
from porter.formats.torch_export import arithmetic, moves, patches, windows
from porter.formats.torch_export.constants import COPIES, RESHAPED, SAME
from porter.formats.torch_export.nodes import AtenNode, Walk
from porter.formats.torch_export.plain import PLAIN
from porter.formats.torch_export.sizes import SIZES, read_size
from porter.graph import ChannelShuffle, DepthToSpace, Gelu, HardSigmoid, Op, Reciprocal, Sqrt

Reader = Callable[[Walk, AtenNode], Outputs]


def _each(make: Callable[[AtenNode], Op]) -> Reader:
    """Reads an op of each number."""
    return lambda walk, node: apply(walk, node, moves.taken(node), make(node))


def _map(make: Callable[[AtenNode], Op]) -> Reader:
    """Reads an op of a map in torch's own layout."""

    def read(walk: Walk, node: AtenNode) -> Read:
        return walk.builder.add(node.name, make(node), walk.value(moves.taken(node)))

    return read


VIEWS: Mapping[str, Reader] = {
    **dict.fromkeys((*SAME, "to"), moves.read_same),
    **dict.fromkeys(moves.DROPOUTS, moves.read_dropout),
    **dict.fromkeys(RESHAPED, moves.read_reshape),
    **dict.fromkeys(("reshape_as", "view_as"), moves.read_reshape_as),
    "flatten": moves.read_flatten,
    "unflatten": moves.read_unflatten,
    "squeeze": moves.read_squeeze,
    "unsqueeze": moves.read_unsqueeze,
    "permute": moves.read_permute,
    **dict.fromkeys(("transpose", "swapaxes", "t"), moves.read_transpose),
    "movedim": moves.read_moved_axes,
    **dict.fromkeys(("expand", "expand_as"), moves.read_expand),
    "slice": moves.read_slice,
    "select": moves.read_select,
    "narrow": moves.read_narrow,
    "unfold": moves.read_windows,
    "diagonal": moves.read_diagonal,
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "unbind"), moves.read_split),
}
"""Ops whose values may be the memory of what they take."""
READERS: Mapping[str, Reader] = {
    **{name: _each(row.read) for name, row in PLAIN.items()},
    **dict.fromkeys(("convolution", "conv1d", "conv2d", "conv_transpose2d"), windows.read_convolution),
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), windows.read_max_pool),
    "avg_pool2d": windows.read_average_pool,
    "avg_pool1d": windows.read_row_pool,
    **dict.fromkeys(
        ("adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_max_pool2d"), windows.read_adaptive_pool
    ),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_max_pool1d"), windows.read_adaptive_row),
    **dict.fromkeys(
        ("add", "sub", "rsub", "mul", "div", "pow", "maximum", "minimum"), arithmetic.read_binary
    ),
    **dict.fromkeys(("hardtanh", "clamp", "clamp_min", "clamp_max"), arithmetic.read_clip),
    **dict.fromkeys(
        (
            "batch_norm",
            "_native_batch_norm_legit_no_training",
            "_native_batch_norm_legit",
            "native_batch_norm",
        ),
        arithmetic.read_batch_norm,
    ),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), arithmetic.read_layer_norm),
    **dict.fromkeys(("group_norm", "native_group_norm"), arithmetic.read_group_norm),
    "instance_norm": arithmetic.read_instance_norm,
    **dict.fromkeys(("mm", "bmm", "matmul", "addmm"), arithmetic.read_product),
    "linear": arithmetic.read_linear,
    "bilinear": arithmetic.read_bilinear,
    "einsum": lambda walk, node: einsum(walk, node, str(node.arguments["equation"]), node.inputs),
    "scaled_dot_product_attention": arithmetic.read_attention,
    **dict.fromkeys(("addcmul", "addcdiv"), arithmetic.read_scaled_sum),
    "where": arithmetic.read_where,
    "masked_fill": arithmetic.read_masked,
    **{op: comparison(kind) for op, kind in arithmetic.COMPARED.items()},
    **dict.fromkeys(("logical_and", "bitwise_and", "__and__"), both),
    **dict.fromkeys(("logical_or", "bitwise_or", "__or__"), either),
    **dict.fromkeys(("logical_not", "bitwise_not"), opposite),
    "neg": arithmetic.read_negative,
    "zeros_like": moves.read_blank,
    "ones_like": lambda walk, node: ones(walk, node, moves.taken(node)),
    "full_like": lambda walk, node: ones(walk, node, moves.taken(node), float(node.arguments["fill_value"])),
    "elu": arithmetic.read_elu,
    "rrelu": arithmetic.read_random_slope,
    "gelu": _each(lambda node: Gelu(node.arguments.get("approximate", "none") == "tanh")),
    "hardsigmoid": _each(lambda node: HardSigmoid()),
    "prelu": arithmetic.read_prelu,
    "_prelu_kernel": arithmetic.read_prelu,
    "softplus": arithmetic.read_softplus,
    **dict.fromkeys(arithmetic.MADE, arithmetic.read_made),
    **dict.fromkeys(("remainder", "fmod", "floor_divide"), arithmetic.read_rounded),
    **dict.fromkeys(("hypot", "logaddexp", "eq", "ne"), arithmetic.read_pair),
    "lerp": arithmetic.read_between,
    "pairwise_distance": arithmetic.read_distance,
    "cosine_similarity": arithmetic.read_cosine,
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), moves.read_softmax),
    **VIEWS,
    **dict.fromkeys((*COPIES, "_to_copy"), moves.read_same),
    **dict.fromkeys(("cat", "concat"), moves.read_concat),
    "stack": moves.read_stack,
    **dict.fromkeys(("repeat", "tile"), moves.read_copies),
    "repeat_interleave": moves.read_repeated,
    "roll": moves.read_roll,
    "flip": moves.read_flip,
    "rot90": moves.read_quarter_turns,
    **dict.fromkeys(("tril", "triu"), moves.read_triangle),
    "glu": moves.read_glu,
    "index": moves.read_index,
    "pixel_unshuffle": moves.read_unshuffle,
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), moves.read_variance),
    "index_select": moves.read_places,
    "im2col": patches.read_patches,
    "col2im": patches.read_map,
    **dict.fromkeys(("pad", "constant_pad_nd", "reflection_pad2d", "replication_pad2d"), moves.read_pad),
    **dict.fromkeys(("mean", "amax", "amin", "linalg_vector_norm", "sum"), moves.read_reduce),
    **dict.fromkeys(("max", "min"), moves.read_largest),
    "logsumexp": moves.read_log_sum,
    "prod": moves.read_product_along,
    "cumsum": moves.read_running_sums,
    **dict.fromkeys(moves.UPSAMPLES, moves.read_upsample),
    "square": lambda walk, node: square(walk, node, node.arguments["self"]),
    "rsqrt": unary(lambda node: (Sqrt(), Reciprocal())),
    "log_sigmoid": unary(lambda node: LOG_SIGMOID),
    "channel_shuffle": _map(lambda node: ChannelShuffle(int(node.arguments["groups"]))),
    "pixel_shuffle": _map(lambda node: DepthToSpace(int(node.arguments["upscale_factor"]), "CRD")),
    **dict.fromkeys(SIZES, read_size),
}
INNER = frozenset({"avg_pool3d"})
"""Ops that are read only as parts of several ops that are one layer (porter.filegraph.patterns)."""
