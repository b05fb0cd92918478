"""Scales, ticks and elements of SVG drawings. Elements escape their contents, and every coordinate is
finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from xml.etree import ElementTree

from markupsafe import Markup

Element = ElementTree.Element
CHARACTER = 7.8
"""Width in px of an average character of a label at the style sheet's 12 px. It is that of DejaVu Sans in
bold, the widest of the fonts, so that labels never touch.
"""


@dataclass(frozen=True)
class AxisScale:
    """A linear map from `low`..`high` to `start`..`end`, which may run backwards; values outside go to the
    nearer end.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high / 2 - self.low / 2  # halves, because the span of the largest floats is infinite
        share = (value / 2 - self.low / 2) / span if span > 0 else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def element(tag: str, *children: Element, text: str | None = None, **attributes: str | float) -> Element:
    """Make an SVG element. Attributes are written as Python names: `text_anchor` for text-anchor, `class_`
    for class.
    """
    texts = {name.rstrip("_").replace("_", "-"): _attribute_text(value) for name, value in attributes.items()}
    node = ElementTree.Element(tag, texts)
    node.text = text
    node.extend(children)
    return node


def drawing(
    width: float, height: float, title: str, description: str, *children: Element, class_: str = ""
) -> Markup:
    """Make a whole drawing, which a screen reader reads as one image with a name and a description."""
    named = (element("title", text=title), element("desc", text=description))
    view = f"0 0 {_attribute_text(width)} {_attribute_text(height)}"
    root = element(
        "svg",
        *named,
        *children,
        viewBox=view,
        width=width,
        height=height,
        role="img",
        class_=f"plot {class_}".strip(),
    )
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def label(x: float, y: float, text: str, anchor: str = "start", class_: str = "label") -> Element:
    return element("text", text=text, x=x, y=y, text_anchor=anchor, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Element:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def dots(places: list[tuple[float, float]], class_: str) -> Element:
    """Make many dots as one path of strokes without length, which round line caps make round. Circles take
    ten times the bytes.
    """
    strokes = "".join(f"M{_attribute_text(x)} {_attribute_text(y)}h0" for x, y in places)
    return element("path", d=strokes, class_=class_)


def shorten_to(text: str, width: float) -> str:
    """Return a text that is about `width` px wide: one that is longer has `…` in place of its middle."""
    room = max(3, int(width / CHARACTER))  # in characters
    if len(text) <= room:
        return text
    head = (room - 1) // 2
    tail = room - 1 - head
    return f"{text[:head]}…{text[-tail:]}"


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` + 1 round numbers from `low` to `high` for an axis, 1, 2 or 5 times a power of
    ten apart: [0, 20, 40] for 0 to 50 with `most` of 3.
    """
    span = high - low
    if not 1e-300 < span < 1e300:
        return [low]
    rough = span / most
    power = 10.0 ** floor(log10(rough))
    # 1e-9 is for numbers that rounding puts just above or below
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = ceil(low / step - 1e-9)
    last = floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _attribute_text(value: str | float) -> str:
    """Write the value of an attribute: a text as it is, a coordinate with at most two decimals, such as
    `12.5`.
    """
    if isinstance(value, str):
        return value
    if not isfinite(value):
        raise ValueError(f"a coordinate is {value}")
    return f"{value:.2f}".rstrip("0").rstrip(".")
