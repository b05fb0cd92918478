"""Casts to the type of another value."""

from __future__ import annotations

from dataclasses import replace

from porter.formats.torch_export.nodes import AtenNode, AtenProgram


def with_types(program: AtenProgram) -> AtenProgram:
    """The program in which a cast to the type of another value is one to this type, so that it does not
    depend on the value.
    """
    nodes = {name: _with_type(node, program.types.get(name)) for name, node in program.nodes.items()}
    return replace(program, nodes=nodes)


def _with_type(node: AtenNode, kind: int | None) -> AtenNode:
    """A node whose value has this ScalarType.

    Raises:
        ValueError: it casts no value.
    """
    if node.op not in ("type_as", "to") or "other" not in node.arguments or kind is None:
        return node
    source = node.arguments["self"]
    if not isinstance(source, tuple):
        raise ValueError(f"a cast of {source!r:.40}")
    return replace(node, op="to", inputs=(source,), arguments={"self": source, "dtype": kind})
