"""A file's graph with features where it has maps of one cell, as recipes have them."""

from __future__ import annotations

from dataclasses import replace

from porter.filegraph.file_graph import FileGraph, FileNode, Foreign
from porter.graph import Op, Shape, ops, site_of


def without_cells(file: FileGraph) -> FileGraph:
    """Return the file's graph with features where it has maps of one cell, as recipes have them: global pools
    give features, and reshapes of one cell go. A value that meets a larger map, as in squeeze-and-excite,
    stays.

    A pool whose only window is its whole map, at the size that the file states, becomes a global one, unless
    a window comes after it: small maps make others of such pools.
    """
    shapes_by_name = file.shapes
    leads_to_window = file.leading_to(
        source for node in file.nodes if _has_window(node.op) for source in node.inputs
    )
    file = replace(
        file,
        nodes=tuple(
            _as_global_pool(node, shapes_by_name.get(node.inputs[0]))
            if node.inputs and node.name not in leads_to_window
            else node
            for node in file.nodes
        ),
    )
    # The nodes whose value is a map of one cell, and those of them that some node reads beside a larger map.
    cells: set[str] = set()
    meets_map: set[str] = set()
    for node in file.nodes:
        cells_read = cells.intersection(node.inputs)
        reads_only_cells = bool(cells_read) and cells.issuperset(node.inputs)
        if _makes_cell(node.op) or reads_only_cells:
            cells.add(node.name)
        else:
            meets_map |= cells_read
    # Cells that meet a larger map stay maps, and so does all that leads to them.
    remaining = file.leading_to(meets_map)
    # A reshape that goes is called as what it reads.
    new_names = {name: name for name in file.inputs}
    nodes: list[FileNode] = []
    for node in file.nodes:
        inputs = tuple(new_names[name] for name in node.inputs)
        becomes_features = node.name in cells - remaining
        is_reshape = isinstance(node.op, ops.Flatten | ops.AsMap)
        if becomes_features and is_reshape and inputs[0] not in file.inputs:
            new_names[node.name] = inputs[0]
            continue
        new_names[node.name] = node.name
        op = node.op
        if becomes_features and isinstance(op, ops.GlobalAvgPool | ops.GlobalMaxPool):
            op = type(op)()
        nodes.append(replace(node, op=op, inputs=inputs))
    # by the tap, the name under which the file's engine gives a value
    given = {tap: new_names[name] for tap, name in file.given.items()}
    return replace(
        file, nodes=tuple(nodes), outputs=tuple(new_names[name] for name in file.outputs), given=given
    )


def _has_window(op: Op | Foreign) -> bool:
    """Return whether an op, such as a 3x3 convolution, reads several cells of its input for each that it
    gives.
    """
    # the window and pads of the op; None if it has none
    site = site_of(op)
    return site is not None and site.window.kernel != (1, 1)


def _as_global_pool(node: FileNode, shape: Shape | None) -> FileNode:
    """Return a pool whose only window is its whole map as a global pool that keeps its cell; any other node
    as it is. Without a known shape it stays, too.
    """
    op = node.op
    if not isinstance(op, ops.AvgPool | ops.MaxPool) or op.convention.rule != "valid" or shape is None:
        return node
    if op.window.kernel != shape[1:]:
        return node
    global_pool = ops.GlobalAvgPool if isinstance(op, ops.AvgPool) else ops.GlobalMaxPool
    return replace(node, op=global_pool(keep=True))


def _makes_cell(op: Op | Foreign) -> bool:
    """Return whether an op gives a map of one cell, as a global pool does, or only reshapes one."""
    return isinstance(op, ops.GlobalAvgPool | ops.GlobalMaxPool | ops.AsMap) or op == ops.Flatten()
