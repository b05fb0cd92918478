"""What TensorFlow.js's converter fused, as TensorFlow's ops: a convolution, its bias and its activation are
one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from porter.formats.tensorflow import FLOAT_TYPE

_FIRST_OPS = {
    "_FusedConv2D": ("Conv2D", ("T", "strides", "padding", "dilations", "data_format", "explicit_paddings")),
    "FusedDepthwiseConv2dNative": (
        "DepthwiseConv2dNative",
        ("T", "strides", "padding", "dilations", "data_format"),
    ),
    "_FusedMatMul": ("MatMul", ("T", "transpose_a", "transpose_b")),
}
"""The first op of each fused op, and its attributes."""
_ACTIVATIONS = frozenset({"Relu", "Relu6", "Elu", "Sigmoid", "Tanh", "LeakyRelu"})


def unfuse(graph: Any) -> None:
    """Replace the fused nodes of a GraphDef. The last of the nodes that replace one has its name.

    Raises:
        ValueError: a node fuses what porter does not know.
    """
    nodes = [part for node in graph.node for part in _unfused_nodes(node, type(node))]
    del graph.node[:]
    graph.node.extend(nodes)


def _unfused_nodes(node: Any, node_class: Any) -> Iterator[Any]:
    """Yield the nodes that a fused one stands for: its first op, and each of its steps; any other node is
    yielded as it is. Raise ValueError for what TensorFlow.js does not run.

    Args:
        node: a NodeDef.
        node_class: NodeDef itself, which makes a node.
    """
    if node.op == "Prelu":
        yield from _prelu_nodes(node, node.input[0], node.input[1], node_class)
        return
    if node.op not in _FIRST_OPS:
        yield node
        return
    op, attributes = _FIRST_OPS[node.op]
    steps = [text.decode("utf-8", "replace") for text in node.attr["fused_ops"].list.s]
    # The inputs of the steps, behind the two of the first op.
    further = list(node.input[2:])
    steps_with_input = {*steps} & {"BiasAdd", "Prelu"}
    if steps[:1] != ["BiasAdd"] or len(steps) > 2 or len(further) < len(steps_with_input):
        raise ValueError(
            f"'{node.name}' fuses {', '.join(steps) or 'nothing'}, which TensorFlow.js does not run"
        )
    first = node_class(name=f"{node.name}/{op}", op=op, input=node.input[:2])
    for name in attributes:
        if name in node.attr:
            first.attr[name].CopyFrom(node.attr[name])
    yield first
    before = first.name
    for count, step in enumerate(steps, 1):
        # The last step gives what the fused node gave.
        name = node.name if count == len(steps) else f"{node.name}/{step}"
        inputs = [before, further.pop(0)] if step in steps_with_input else [before]
        yield from _unfused_step(node, step, node_class(name=name, input=inputs, attr={"T": node.attr["T"]}))
        before = name


def _unfused_step(node: Any, step: str, part: Any) -> Iterator[Any]:
    """Yield what replaces a step that a node fuses.

    Args:
        node: the fused one, which states the step's attributes.
        step: the name of an op, such as `BiasAdd` or an activation.
        part: a NodeDef with the step's name and inputs, which gets its op here.
    """
    if step == "Prelu":
        value, alpha = part.input
        yield from _prelu_nodes(part, value, alpha, type(part))
        return
    if step not in (*_ACTIVATIONS, "BiasAdd"):
        raise ValueError(f"'{node.name}' fuses {step}, which porter does not read")
    part.op = step
    part.attr["T"].type = node.attr["T"].type or FLOAT_TYPE
    if step == "LeakyRelu":
        part.attr["alpha"].CopyFrom(node.attr["leakyrelu_alpha"])
    yield part


def _prelu_nodes(node: Any, value: str, alpha: str, node_class: Any) -> Iterator[Any]:
    """Yield the nodes of Relu(x) - alpha * Relu(-x), the last one under the name of the node."""
    steps = (
        ("positive", "Relu", [value]),
        ("opposite", "Neg", [value]),
        ("below", "Relu", [f"{node.name}/opposite"]),
        ("scaled", "Mul", [alpha, f"{node.name}/below"]),
        ("", "Sub", [f"{node.name}/positive", f"{node.name}/scaled"]),
    )
    for word, op, inputs in steps:
        part = node_class(name=f"{node.name}/{word}".rstrip("/"), op=op, input=inputs)
        part.attr["T"].type = node.attr["T"].type or FLOAT_TYPE
        yield part
