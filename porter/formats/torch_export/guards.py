"""The sizes at which a program of open sizes holds: a model that looks at its input's size is traced one way,
and its guards say when.

Guards are Python expressions of sizes, such as `(L['x'].size()[3] % 2) == 0`. They are read as arithmetic and
never run.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence

from porter.base.errors import GraphError
from porter.base.name_tables import JsonObject
from porter.graph import Graph, shapes
from porter.graph.ops import Shape

Guard = Callable[[Sequence[int]], float]
_MOST_CHARACTERS = 1 << 16
"""Characters of all guards together."""
_LARGEST_SIDE = 4096
"""The size of an image that guards are tried up to: every guard is computed at every size."""
_MOST_STEPS = 1 << 24
"""Characters times the sizes that they are tried at: some two seconds."""
_MOST_SHAPES = 1 << 21
"""Nodes times the sizes that their shapes are computed at: some six seconds."""
_SIZES_BEYOND = 64
"""So many sizes past the traced one are tried, more than the strides of a network together."""
_FUNCTIONS: Mapping[type | str, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Not: operator.not_,
    ast.And: lambda *values: all(values),
    ast.Or: lambda *values: any(values),
    "max": max,
    "min": min,
    "abs": abs,
    "math.trunc": math.trunc,
    "torch.sym_float": float,
}


def traced_sizes(program: JsonObject, image: str) -> list[int] | None:
    """Return the sizes of the image that a program was traced with, batch first: torch.export records the
    sizes of its example as hints. Return None where it does not say one of them.

    Args:
        program: as in porter.formats.torch_export.archive.Archive.
    """
    sizes: list[int] = []
    for size in program["graph_module"]["graph"]["tensor_values"][image]["sizes"]:
        hint = size if "as_int" in size else size["as_expr"].get("hint") or {}
        if "as_int" not in hint:
            return None
        sizes.append(int(hint["as_int"]))
    return sizes


def holds_at_every_size(program: JsonObject, image: str, traced: Sequence[int], graph: Graph) -> bool:
    """Return whether a program is the model's at all sizes at which its maps have more than one cell along
    each axis that has more in the traced one: torch assumes that of every size. Sizes that the graph itself
    refuses do not count.

    Args:
        traced: as `traced_sizes` gives them.
        graph: what the program computes.
    """
    symbols = _open_size_symbols(program, image)
    ranges = program["range_constraints"]
    try:
        code = program.get("guards_code") or []
        length = len("".join(code))
        is_small = max(traced[2:]) <= _LARGEST_SIDE and len(graph.nodes) * sum(traced[2:]) <= _MOST_SHAPES
        if symbols is None or length > _MOST_CHARACTERS or not is_small:
            return False
        guards = [_compile_guard(ast.parse(text, mode="eval").body) for text in code]
        steps = 0
        for axis, symbol in symbols.items():
            side = traced[2 + axis]
            # Smaller sizes are not tried: torch assumes more than one cell.
            least = _least_size(graph, axis, (traced[2], traced[3]))
            if not _allows_all_from(least, ranges.get(symbol) or {}):
                return False
            # From the least size to some beyond the traced one, along this axis only.
            tried = [
                [*traced[: 2 + axis], size, *traced[3 + axis :]]
                for size in range(least, max(least, side) + _SIZES_BEYOND)
            ]
            steps += len(tried) * length
            if steps > _MOST_STEPS or not all(_holds_at(guards, graph, sizes) for sizes in tried):
                return False
    except (ValueError, SyntaxError, RecursionError, MemoryError, ArithmeticError, IndexError):
        # No arithmetic of sizes.
        return False
    return True


def why_only_size(program: JsonObject, image: str) -> str:
    """Return a sentence about why a program of open sizes is read at the one that it was traced with: it
    states a largest size, or it is not certain to be the model's at every other one.
    """
    axes = {0: "rows", 1: "columns"}
    largest = {
        axes[axis]: (program["range_constraints"].get(symbol) or {}).get("max_val")
        for axis, symbol in (_open_size_symbols(program, image) or {}).items()
    }
    stated = " and ".join(f"{count} {name}" for name, count in largest.items() if count is not None)
    if not stated:
        return (
            "its sizes are open, but it looks at them or states a least one, so it may be another function "
            "than the model at other sizes"
        )
    return (
        f"it states at most {stated}, and torch may have left out what larger images take: export it without "
        "a largest size for a port of any size"
    )


def _open_size_symbols(program: JsonObject, image: str) -> dict[int, str] | None:
    """Return the names of the image's open sizes by the map's axes, 0 for rows and 1 for columns:
    `{0: "s1", 1: "s2"}`. Return None where a size is no single symbol (`2*s0`), or both are the same one.
    """
    sizes = program["graph_module"]["graph"]["tensor_values"][image]["sizes"][2:]
    texts = {axis: str(size["as_expr"]["expr_str"]) for axis, size in enumerate(sizes) if "as_expr" in size}
    # A symbol is written as `Symbol('s1', positive=True)` or as `s1`.
    matches = {axis: re.fullmatch(r"Symbol\('(\w+)'[^()]*\)|(\w+)", text) for axis, text in texts.items()}
    names = {axis: symbol[1] or symbol[2] for axis, symbol in matches.items() if symbol}
    return names if len({*texts.values()}) == len(names) == len(texts) else None


def _allows_all_from(least: int, bounds: Mapping[str, int | None]) -> bool:
    """Return whether bounds of a size, as a program states them, leave out no size from the least one on."""
    return bounds.get("max_val") is None and (bounds.get("min_val") or 0) <= least


def _holds_at(guards: Sequence[Guard], graph: Graph, sizes: Sequence[int]) -> bool:
    """Return whether a program is the model's at sizes of its image, or the graph refuses them."""
    return all(guard(sizes) for guard in guards) or _shapes_or_none(graph, sizes) is None


def _least_size(graph: Graph, axis: int, traced: tuple[int, int]) -> int:
    """Return the least size at which the graph has maps of more than one cell along an axis, wherever it has
    them at the traced size. Return the traced size if no smaller one does.

    Args:
        graph: what the program computes.
        axis: 0 for rows, 1 for columns.
        traced: rows and columns of the image that the program was traced with.
    """
    traced_shapes = shapes(graph, traced)
    # Maps only, whose shapes are channels, rows and columns; features have one axis.
    wide_maps = [path for path, shape in traced_shapes.items() if len(shape) == 3 and shape[1 + axis] != 1]

    def suffices(size: int) -> bool:
        """Return whether all the wide maps have more than one cell at this size."""
        shapes_there = _shapes_or_none(graph, (*traced[:axis], size, *traced[axis + 1 :]))
        if shapes_there is None:
            return False
        return all((shapes_there[path][1 + axis] or 0) > 1 for path in wide_maps)

    return next(filter(suffices, range(traced[axis])), traced[axis])


def _shapes_or_none(graph: Graph, sizes: Sequence[int]) -> Mapping[str, Shape] | None:
    """Return the shapes at the rows and columns that `sizes` end with; None where the graph has none, as in a
    U-Net at odd sizes.
    """
    try:
        return shapes(graph, (sizes[-2], sizes[-1]))
    except GraphError:
        return None


def _compile_guard(node: ast.expr) -> Guard:
    """Return a guard, or a part of one, as a function of the image's sizes.

    Raises:
        ValueError: it is not arithmetic of sizes.
    """
    key: type | str
    match node:
        case ast.Constant(value=int(number) | float(number)):
            return lambda sizes: number
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(attr="size"), args=[]), slice=ast.Constant(value=int(index))
        ):
            return operator.itemgetter(index)
        case ast.UnaryOp(op=op, operand=operand):
            key = type(op)
            parts = [operand]
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            key = type(op)
            parts = [left, right]
        case ast.BoolOp(op=op, values=parts):
            key = type(op)
        case ast.Call(func=ast.Name(id=key), args=parts, keywords=[]):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name), args=parts, keywords=[]):
            key = f"{module}.{name}"
        case _:
            key = type(node)
            parts = []
    if key not in _FUNCTIONS:
        raise ValueError(f"a guard is not arithmetic of sizes: {key}")
    function = _FUNCTIONS[key]
    arguments = [_compile_guard(part) for part in parts]
    return lambda sizes: function(*(argument(sizes) for argument in arguments))
