"""The ops of a program by the names that porter's patterns use."""

from __future__ import annotations

from collections.abc import Sequence

from porter.filegraph.dataflow import SourceOrNumber
from porter.formats.torch_export.nodes import AtenNode

KINDS = {
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "lt": "Less",
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


def kind_of(node: AtenNode) -> str:
    """Return a node's op under the name that porter's patterns use: hardtanh to 6 is a `Relu6`, a clamp with
    one bound a `Max` or a `Min`, a mean that keeps its axes a `Mean`, and others are as `KINDS` has them. An
    op keeps its own name where it has a factor, a rounding or other operands' order.
    """
    if node.op == "hardtanh" and (node.arguments.get("min_val"), node.arguments.get("max_val")) == (0, 6):
        return "Relu6"
    if node.op == "clamp":
        has_min, has_max = (node.arguments.get(name) is not None for name in ("min", "max"))
        if has_min and has_max:
            return "Clip"
        return "Max" if has_min else "Min"
    if node.op == "mean" and node.arguments.get("keepdim"):
        return "Mean"
    is_plain = (
        node.op != "rsub" and node.arguments.get("alpha", 1) == 1 and not node.arguments.get("rounding_mode")
    )
    return KINDS.get(node.op, node.op) if is_plain else node.op


def operands(node: AtenNode) -> Sequence[SourceOrNumber]:
    """Return a node's inputs, and the axis of a mean over one behind them, which porter's patterns
    look at.
    """
    axes = node.arguments.get("dim") if node.op == "mean" else None
    if isinstance(axes, list) and len(axes) == 1:
        return (*node.inputs, float(axes[0]))
    return node.inputs
