"""What an op's attribute may be: each kind is a type, which says how a plain value is read, what it is in
words, and its schema.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args

from porter.padding import LARGEST, LOWEST, Convention, Pads, Window

MOST_CONSTANTS = 4096
"""The most constants that an op may have: more than the channels of any model. A larger array is weights."""
LARGEST_ARRAY = 2**28
"""The most numbers of a trained array: 1 GiB in float32."""
_MOST_SIZES = 8
"""The most axes of a trained array."""
LARGEST_COUNT = 2**24
"""The most channels, filters, groups and units: far more than any model has, and far too few to exhaust the
memory.
"""

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """What an attribute may be.

    Attributes:
        name: in the schema of recipes.
        words: a value of this kind, for messages.
        convert: the attribute from a plain value, where lists are tuples; None if the value is of another
            kind.
        schema: JSON Schema of a plain value.
    """

    name: str
    words: str
    convert: Callable[[Any], Any] = field(compare=False)
    schema: Mapping[str, Any] = field(compare=False)

    def read(self, value: object) -> Any:
        """Return the attribute for a plain value: tuples for lists, and minus infinity for "-inf".

        Raises:
            ValueError: its type or its range is wrong.
        """
        converted = self.convert(value)
        if converted is None:
            raise ValueError(f"expected {self.words}, got {short_text(value)}")
        return converted


def short_text(value: object) -> str:
    """Write a value for a message, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def integer(value: object, least: int, most: int) -> int | None:
    """Return a whole number between two bounds; None for another value."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return value if isinstance(value, int) and is_integer and least <= value <= most else None


def number(
    value: object, least: float = -sys.float_info.max, most: float = sys.float_info.max
) -> float | None:
    """Return a finite number between two bounds; None for another value. A whole one may be too large for
    float(), so it is compared first.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        return None
    return float(value)


def _all_of(value: object, convert: Callable[[object], T | None]) -> tuple[T, ...] | None:
    """Return what the items of a list become; None for another value, or if one becomes None."""
    converted = [convert(item) for item in value] if isinstance(value, list | tuple) else [None]
    items = tuple(item for item in converted if item is not None)
    return items if len(items) == len(converted) else None


def numbers(value: object) -> tuple[float, ...] | None:
    """Return 1 to MOST_CONSTANTS finite numbers; None for another value."""
    items = _all_of(value, number)
    return items if items and len(items) <= MOST_CONSTANTS else None


def _fill(value: object) -> float | None:
    """Return a finite number, or LOWEST for "-inf"; None for another value."""
    return LOWEST if value in ("-inf", LOWEST) else number(value)


def _pads(value: object) -> tuple[int, ...] | None:
    """Return four amounts: top, bottom, left, right; None for another value."""
    pads = _all_of(value, partial(integer, least=-LARGEST, most=LARGEST))
    return pads if pads and len(pads) == 4 else None


def _sizes(value: object) -> tuple[int, ...] | None:
    """Return the sizes of an array: whole numbers from 1 whose product is bounded; None for another value."""
    sizes = _all_of(value, partial(integer, least=1, most=LARGEST_COUNT))
    fits = sizes is not None and 0 < len(sizes) <= _MOST_SIZES and math.prod(sizes) <= LARGEST_ARRAY
    return sizes if fits else None


def _scale(value: object) -> tuple[float, ...] | None:
    """Return two factors above 0, or none; None for another value."""
    if value in ([], ()):
        return ()
    factors = numbers(value) if value else None
    return factors if factors and len(factors) == 2 and min(factors) > 0 else None


def _cells(value: object) -> tuple[int, ...] | None:
    """Return rows and columns, or nothing; None for another value."""
    cells = _all_of(value, partial(integer, least=1, most=LARGEST_COUNT))
    return cells if cells is not None and len(cells) in (0, 2) else None


def _window(value: object) -> Window | None:
    """Return a window from an object of port.json with its fields; None for another value."""
    entry = _entry(value, {"kernel", "stride", "dilation"})
    return None if entry is None else Window(**entry)


def _convention(value: object) -> Convention | None:
    """Return a window's convention (how it pads, rounds and averages) from an object of port.json with its
    fields; None for another value. JSON has no infinity, so "-inf" stands for the fill of a max pool.
    """
    entry = _entry(value, {"rule", "pads", "fill", "average", "rounding"})
    if entry is None:
        return None
    fill = LOWEST if entry["fill"] == "-inf" else entry["fill"]
    return Convention(**{**entry, "fill": fill})


def _entry(value: object, keys: set[str]) -> dict[str, Any] | None:
    """Return the values of an object that has exactly these keys, with lists as tuples; None for another
    value. The class that takes the values checks them.
    """
    if not isinstance(value, Mapping) or set(value) != keys:
        return None
    return {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}


def _one_of(name: str, literal: object) -> Kind:
    """Make the kind of an attribute whose values are the words of a Literal."""
    words: tuple[str, ...] = get_args(literal)
    return Kind(
        name,
        f"one of {', '.join(words)}",
        lambda value: value if value in words else None,
        {"enum": list(words)},
    )


def whole_number(name: str, least: int, most: int) -> Kind:
    """Make the kind of an attribute whose values are whole numbers between two bounds."""
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Kind(
        name, f"a whole number from {least} to {most}", partial(integer, least=least, most=most), schema
    )


COUNT = whole_number("Count", 1, LARGEST_COUNT)
WHOLE = whole_number("Whole", -LARGEST_COUNT, LARGEST_COUNT)
FLAG = Kind(
    "bool", "true or false", lambda value: value if isinstance(value, bool) else None, {"type": "boolean"}
)
_SHARE = Kind(
    "Share",
    "a number from 0 to 1",
    partial(number, least=0, most=1),
    {"type": "number", "minimum": 0, "maximum": 1},
)
_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 1}
_WHOLE_NUMBERS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1},
    "minItems": 1,
    "maxItems": _MOST_SIZES,
}
_AMOUNTS = {
    "type": "array",
    "items": {"type": "integer", "minimum": -LARGEST, "maximum": LARGEST},
    "minItems": 4,
    "maxItems": 4,
}
PADS = Kind("Pads", f"[top, bottom, left, right], at most {LARGEST} each", _pads, _AMOUNTS)

_SCALE = {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "maxItems": 2}
_CELLS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1, "maximum": LARGEST_COUNT},
    "maxItems": 2,
}

Count = Annotated[int, COUNT]
Whole = Annotated[int, WHOLE]
Flag = Annotated[bool, FLAG]
Share = Annotated[float, _SHARE]
Number = Annotated[float, Kind("Number", "a finite number", number, {"type": "number"})]
Fill = Annotated[float, Kind("Fill", "a finite number, or -.inf", _fill, {"type": "number"})]
Constants = Annotated[
    tuple[float, ...], Kind("Constants", f"1 to {MOST_CONSTANTS} finite numbers", numbers, _NUMBERS)
]
Sizes = Annotated[
    tuple[int, ...], Kind("Sizes", f"1 to {_MOST_SIZES} whole numbers from 1", _sizes, _WHOLE_NUMBERS)
]
Amounts = Annotated[Pads, PADS]
Scale = Annotated[
    tuple[float, ...], Kind("Scale", "[rows, columns], two numbers above 0, or []", _scale, _SCALE)
]
Cells = Annotated[tuple[int, ...], Kind("Cells", "[rows, columns], or []", _cells, _CELLS)]
Geometry = Annotated[Window, Kind("Window", "an object with dilation, kernel, stride", _window, {})]
Padding = Annotated[
    Convention, Kind("Convention", "an object with average, fill, pads, rounding, rule", _convention, {})
]
_Order = Literal["CHW", "HWC"]
_Blocks = Literal["DCR", "CRD"]
_Function = Literal["mean", "max", "norm"]
_Axis = Literal["channels", "rows", "columns"]
_Mode = Literal["edge", "reflect", "symmetric", "wrap"]
_Side = Literal["start", "end", "both", "none"]
_Interpolation = Literal["nearest", "linear", "cubic"]
_Coordinates = Literal["half_pixel", "align_corners", "asymmetric"]
_Nearest = Literal["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]
Order = Annotated[_Order, _one_of("Order", _Order)]
Blocks = Annotated[_Blocks, _one_of("Blocks", _Blocks)]
Function = Annotated[_Function, _one_of("Function", _Function)]
Axis = Annotated[_Axis, _one_of("Axis", _Axis)]
Mode = Annotated[_Mode, _one_of("Mode", _Mode)]
Side = Annotated[_Side, _one_of("Side", _Side)]
Interpolation = Annotated[_Interpolation, _one_of("Interpolation", _Interpolation)]
Coordinates = Annotated[_Coordinates, _one_of("Coordinates", _Coordinates)]
Nearest = Annotated[_Nearest, _one_of("Nearest", _Nearest)]


_ATTRIBUTES: dict[type[Any], Mapping[str, Kind]] = {}


def attributes(op: type[Any]) -> Mapping[str, Kind]:
    """Return the attributes of an op by name, each with its kind. The text of an annotation names a type of
    this module, or of the op's own.
    """
    if op not in _ATTRIBUTES:
        # typing.get_type_hints would take 15 ms at each start
        types = {**globals(), **vars(sys.modules[op.__module__])}
        # a type such as Annotated[int, COUNT] has its kind as metadata
        _ATTRIBUTES[op] = {
            attribute.name: types[str(attribute.type)].__metadata__[0] for attribute in fields(op)
        }
    return _ATTRIBUTES[op]


def defaults(op: type[Any]) -> dict[str, Any]:
    """Return the defaults of an op's attributes, by name, for those that have one."""
    return {attribute.name: attribute.default for attribute in fields(op) if attribute.default is not MISSING}
