"""A program in which nodes that no reader takes are others: casts to the type of another value, and products
of one-hot vectors and a table, because the vectors of all positions would take gigabytes.
"""

from __future__ import annotations

from collections.abc import Mapping
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


ROWS = "rows_at_places"
"""The op that such a product is: of whole numbers, whose axes go into the order `dims`, and a table."""


def with_table_rows(program: AtenProgram) -> AtenProgram:
    """Return the program with rows of a table in place of products with what one_hot gives: `one_hot(places,
    16).float() @ table` becomes `table[places]`. The axes of the one-hot vectors may have been moved, but for
    the last one.
    """
    if not any(node.op == "one_hot" for node in program.nodes.values()):
        return program
    nodes = dict(program.nodes)
    for name, node in program.nodes.items():
        if node.op == "matmul" and (lookup := _row_lookup(program.nodes, node)) is not None:
            nodes[name] = lookup
    return replace(program, nodes=nodes)


def _row_lookup(nodes: Mapping[str, AtenNode], product: AtenNode) -> AtenNode | None:
    """Return the node that takes rows of a table in place of a product with one-hot rows, such as
    `one_hot(places, 16).float() @ table`; None if `product` is no such.
    """
    # `dims`: which axis of the one-hot rows each axis of the product's first value is.
    dims = [*range(len(product.sizes[0]))]
    source, table = product.inputs
    while (node := nodes[source[0]]).op in ("permute", "to", "_to_copy"):
        if node.op == "permute":
            dims = [node.arguments["dims"][axis] % len(dims) for axis in dims]
        source = node.source
    if node.op != "one_hot" or not dims:
        return None
    keeps_last_axis = dims[-1] == len(dims) - 1
    if not keeps_last_axis or len(node.sizes[0]) != len(dims):
        return None
    return replace(product, op=ROWS, inputs=(node.source, table), arguments={"dims": dims[:-1]})
