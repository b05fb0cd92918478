"""Products of one-hot vectors and a table, which are rows of the table: the vectors of all positions would
take gigabytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from porter.formats.torch_export.nodes import AtenNode, AtenProgram

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
