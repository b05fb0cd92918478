"""The kinds of the arguments that ATen's ops state, by their names, or those of an op's own: a program may
state any, and readers take these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from porter.filegraph.file_graph import Unsupported
from porter.formats.torch_export.nodes import AtenNode

Kind = Callable[[Any], bool]


def _is_value(argument: Any) -> bool:
    return isinstance(argument, tuple)


def _is_whole(argument: Any) -> bool:
    return type(argument) is int


def _is_number(argument: Any) -> bool:
    return isinstance(argument, int | float | tuple)  # a number, or a value that is one


def _list_of(kind: Kind) -> Kind:
    """Return the test whether an argument is a list of a kind, in which some may be None."""
    return lambda argument: (
        isinstance(argument, list) and all(item is None or kind(item) for item in argument)
    )


def _one_or_several(kind: Kind) -> Kind:
    return lambda argument: kind(argument) or _list_of(kind)(argument)


def _is_size(argument: Any) -> bool:
    return _is_whole(argument) or _is_value(argument)


_NAMES_BY_KIND: Mapping[Kind, str] = {
    _is_value: """input input1 input2 weight bias running_mean running_var mask condition query key attn_mask
        tensor1 tensor2 mat1 mat2 vec batch1 batch2 grid embedding.indices""",
    _is_number: """self other value exponent min max a b eps alpha beta p momentum scale input_scale
        threshold min_val max_val dropout_p
        arange.start arange.end arange.step linspace.start linspace.end""",
    _list_of(_is_value): "tensors indices",
    _is_whole: """dimension offset diagonal dim0 dim1 dim2 axis0 axis1 start_dim end_dim groups
        upscale_factor downscale_factor""",
    _one_or_several(_is_whole): "dim dims shifts kernel_size stride dilation output_padding normalized_shape",
    _one_or_several(
        _is_size
    ): "shape size repeats tile.dims output_size index start end step split_size split_sizes chunks",
    lambda stated: isinstance(stated, str) or _one_or_several(_is_whole)(stated): "padding",
    lambda stated: isinstance(
        stated, bool
    ): """keepdim training train transposed ceil_mode count_include_pad align_corners unbiased
        use_input_stats is_causal enable_gqa half_to_float""",
    lambda stated: isinstance(stated, str): "mode equation approximate indexing rounding_mode",
}
_KINDS = {name: kind for kind, names in _NAMES_BY_KIND.items() for name in names.split()}


def expect_kinds(node: AtenNode, nodes: Mapping[str, AtenNode]) -> None:
    """Raise an error if what a node states is not of the kinds that its op takes.

    Args:
        nodes: all of the program, by name.

    Raises:
        Unsupported: an argument is computed, and porter's op states it.
        ValueError: an argument is of another kind.
    """
    for name, argument in node.arguments.items():
        # An op's own kind of this argument comes before that of all ops.
        kind = _KINDS.get(f"{node.op}.{name}", _KINDS.get(name))
        if kind is not None and argument is not None and not kind(argument):
            for item in argument if isinstance(argument, list) else [argument]:
                # A value (NodeOutput), where the op takes a number.
                if isinstance(item, tuple):
                    raise Unsupported(f"whose argument '{name}' is {_describe_number(nodes[item[0]])}")
            raise ValueError(f"its argument '{name:.40}' is {argument!r:.40}")


def _describe_number(node: AtenNode) -> str:
    """Return words for a number that the program computes: the number of images, or another one."""
    if node.op == "sym_size" and node.arguments["dim"] == 0:
        return "the number of images"
    return "computed as the model runs"
