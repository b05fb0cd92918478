"""The first lines of a model's forward, which refuse inputs of other shapes."""

from __future__ import annotations

from collections.abc import Mapping

from porter.frameworks.code.language import Language
from porter.graph import Shape, axes_text
from porter.graph.ops import is_map
from porter.graph.plan import Plan, taken_shapes


def input_checks(plan: Plan, names: Mapping[str, str], language: Language) -> list[str]:
    """Return the lines that refuse a map of another size, where it is fixed, and any other input of another
    shape. No lines for a map of open size.

    Args:
        names: of the arguments, by path.
    """
    reason = "the pads are right at" if plan.fixed_by_pads else "the layers fit"
    return [
        line
        for path, shape in taken_shapes(plan).items()
        for line in _input_check(names[path], shape, reason, language)
    ]


def _input_check(x: str, shape: Shape, reason: str, language: Language) -> list[str]:
    """Return the lines that refuse an input `x` of another shape. `reason` begins the message on a map of
    another size.
    """
    if not is_map(shape):
        wrong_sizes = [
            f"{x}.shape[{axis}] != {size}" for axis, size in enumerate(shape, 1) if size is not None
        ]
        title = "the input" if x == "x" else x
        message = f"{title} is {axes_text(shape)}, got"
        return language.refuse_shape(x, 1 + len(shape), wrong_sizes, message)
    _, rows, columns = shape
    if rows is None or columns is None:
        return []
    return language.refuse_size(x, rows, columns, f"{reason} {rows}x{columns} only, got")


def refusal(condition: str, message: str) -> list[str]:
    """Return the lines that raise an error in a model's forward, with the inside of an f-string as its
    message, where a condition holds: `if x.ndim != 3`.
    """
    return [f"        {condition}:", f'            raise ValueError(f"{message}")']
