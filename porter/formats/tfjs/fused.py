"""What TensorFlow.js's converter fused, as TensorFlow's ops: a convolution, its bias and its activation are
one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_KEPT = {
    "_FusedConv2D": ("Conv2D", ("T", "strides", "padding", "dilations", "data_format", "explicit_paddings")),
    "FusedDepthwiseConv2dNative": (
        "DepthwiseConv2dNative",
        ("T", "strides", "padding", "dilations", "data_format"),
    ),
    "_FusedMatMul": ("MatMul", ("T", "transpose_a", "transpose_b")),
}
"""The first op of each fused op, and its attributes."""
_FLOAT = 1
"""types.proto: what a node has that leaves its type out."""
_OF_ONE = frozenset({"Relu", "Relu6", "Elu", "Sigmoid", "Tanh", "LeakyRelu"})


def unfuse(graph: Any) -> None:
    """Replaces the fused nodes of a GraphDef. The last of the nodes that replace one has its name.

    Raises:
        ValueError: a node fuses what porter does not know.
    """
    nodes = [made for node in graph.node for made in _parts(node, type(node))]
    del graph.node[:]
    graph.node.extend(nodes)


def _parts(node: Any, kind: Any) -> Iterator[Any]:
    """The nodes that a fused one stands for."""
    if node.op == "Prelu":
        yield from _slopes(node, node.input[0], node.input[1], kind)
        return
    if node.op not in _KEPT:
        yield node
        return
    op, attributes = _KEPT[node.op]
    steps = [text.decode("utf-8", "replace") for text in node.attr["fused_ops"].list.s]
    further = list(node.input[2:])
    if steps[:1] != ["BiasAdd"] or len(steps) > 2 or len(further) < len({*steps} & {"BiasAdd", "Prelu"}):
        raise ValueError(
            f"'{node.name}' fuses {', '.join(steps) or 'nothing'}, which TensorFlow.js does not run"
        )
    made = kind(name=f"{node.name}/{op}", op=op, input=node.input[:2])
    for name in attributes:
        if name in node.attr:
            made.attr[name].CopyFrom(node.attr[name])
    yield made
    before = made.name
    for count, step in enumerate(steps, 1):
        name = node.name if count == len(steps) else f"{node.name}/{step}"
        taken = [before, *([further.pop(0)] if step in ("BiasAdd", "Prelu") else [])]
        yield from _step(node, step, kind(name=name, input=taken, attr={"T": node.attr["T"]}))
        before = name


def _step(node: Any, step: str, made: Any) -> Iterator[Any]:
    """What replaces a step that a node fuses; `made` has its name and its inputs."""
    if step == "Prelu":
        value, alpha = made.input
        yield from _slopes(made, value, alpha, type(made))
        return
    if step not in (*_OF_ONE, "BiasAdd"):
        raise ValueError(f"'{node.name}' fuses {step}, which porter does not read")
    made.op = step
    made.attr["T"].type = node.attr["T"].type or _FLOAT
    if step == "LeakyRelu":
        made.attr["alpha"].CopyFrom(node.attr["leakyrelu_alpha"])
    yield made


def _slopes(node: Any, value: str, alpha: str, kind: Any) -> Iterator[Any]:
    """Relu(x) - alpha * Relu(-x), under the name of the node."""
    steps = (
        ("positive", "Relu", [value]),
        ("opposite", "Neg", [value]),
        ("below", "Relu", [f"{node.name}/opposite"]),
        ("scaled", "Mul", [alpha, f"{node.name}/below"]),
        ("", "Sub", [f"{node.name}/positive", f"{node.name}/scaled"]),
    )
    for word, op, inputs in steps:
        made = kind(name=f"{node.name}/{word}".rstrip("/"), op=op, input=inputs)
        made.attr["T"].type = node.attr["T"].type or _FLOAT
        yield made
