"""Casts to the type of another value."""

from __future__ import annotations

from dataclasses import replace

from porter.formats.torch_export.nodes import AtenNode, AtenProgram


def state_cast_types(program: AtenProgram) -> AtenProgram:
    """Return the program in which a cast to the type of another value, such as `x.type_as(y)`, is one to this
    type, such as `x.to(torch.float32)`, so that it does not depend on the value.
    """
    nodes = {name: _state_type(node, program.types.get(name)) for name, node in program.nodes.items()}
    return replace(program, nodes=nodes)


def _state_type(node: AtenNode, kind: int | None) -> AtenNode:
    """Return a node that states its type in place of the value that has it, if it is a cast to another
    value's type; other nodes as they are.

    Args:
        kind: the ScalarType of the node's value; None if the program does not say it.

    Raises:
        ValueError: it casts no value.
    """
    if node.op not in ("type_as", "to") or "other" not in node.arguments or kind is None:
        return node
    source = node.arguments["self"]
    if not isinstance(source, tuple):
        raise ValueError(f"a cast of {source!r:.40}")
    return replace(node, op="to", inputs=(source,), arguments={"self": source, "dtype": kind})
