"""The distance of every node of a port from its source, in the order of computation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import ceil, floor, isfinite, log10

from markupsafe import Markup

from porter.reporting.sentences import distance_text
from porter.reporting.svg import CHARACTER, AxisScale, Element, drawing, element, label, line, shorten_to
from porter.verification.results import NodeDistance

HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 46, 10, 34, 42
BAND = 28
"""Height of the bands for values without a logarithm: zero below, values that are not finite above."""
MAX_DECADES = 8
"""The most steps between the first labelled line and the last."""


def plot_nodes(nodes: Sequence[NodeDistance], worst: NodeDistance, width: int) -> Markup:
    """Draw the relative L2 distance of each node on a log scale, with the limit. The worst node is named, and
    nodes beyond the limit are crosses.

    Nodes that are equal bit for bit are in a row marked 0, nodes that are not finite in a row marked ∞.
    """
    across = AxisScale(0, max(1, len(nodes) - 1), LEFT + 6, width - RIGHT - 6)
    values = [value for node in nodes for value in (node.rel_l2, node.limit) if _has_logarithm(value)]
    decades = [log10(value) for value in values] or [-16.0, -10.0]
    high = ceil(max(decades))
    low = min(floor(min(decades)), high - 1)
    # a row below the axis for zeros, one above for what is not finite
    bottom = HEIGHT - BOTTOM - (BAND if any(node.rel_l2 == 0 for node in nodes) else 0)
    top = TOP + (BAND if any(not _is_distance(node.rel_l2) for node in nodes) else 0)
    down = AxisScale(low, high, bottom, top)
    places = [(across(index), _height(node.rel_l2, down, top, bottom)) for index, node in enumerate(nodes)]
    parts = [
        label(LEFT, 11, "relative L2 distance from the source"),
        *_draw_decades(low, high, down, width),
        *([_draw_band(bottom + BAND / 2, "0", width)] if bottom < HEIGHT - BOTTOM else []),
        *([_draw_band(top - BAND / 2, "∞", width)] if top > TOP else []),
        *_draw_stages(nodes, across, width),
        *_draw_limit(nodes, across, down, width),
        *(_draw_node(node, x, y) for node, (x, y) in zip(nodes, places, strict=True)),
        *(_name_worst(worst, *places[nodes.index(worst)], width) if worst.rel_l2 != 0 else ()),
    ]
    beyond = sum(not node.ok for node in nodes)
    zeros = sum(node.rel_l2 == 0 for node in nodes)
    description = (
        f"{len(nodes)} nodes from the input to the output. The worst is {worst.path} at "
        f"{distance_text(worst.rel_l2)}; "
        f"{zeros} are exactly equal; {beyond} are beyond the limit."
    )
    return drawing(width, HEIGHT, "Relative L2 distance of each node from the source", description, *parts)


def _is_distance(value: float) -> bool:
    return isfinite(value) and value >= 0


def _has_logarithm(value: float) -> bool:
    return isfinite(value) and value > 0


def _height(value: float, down: AxisScale, top: float, bottom: float) -> float:
    """Return the y of a distance on the log scale `down`. Zero is in the band below the scale, and what is
    not finite in the one above.
    """
    if not _is_distance(value):
        return top - BAND / 2
    return bottom + BAND / 2 if value == 0 else down(log10(value))


def _draw_decades(low: int, high: int, down: AxisScale, width: int) -> list[Element]:
    """Draw a line for each power of ten from `low` to `high`, or for every second or third if there are many,
    and its label such as 1e-7.
    """
    step = max(1, ceil((high - low) / MAX_DECADES))
    parts = []
    for decade in range(low, high + 1, step):
        y = down(decade)
        parts += [line(LEFT, y, width - RIGHT, y, "grid"), label(LEFT - 6, y + 4, f"1e{decade}", "end")]
    return parts


def _draw_band(y: float, text: str, width: int) -> Element:
    return element("g", line(LEFT, y, width - RIGHT, y, "grid dotted"), label(LEFT - 6, y + 4, text, "end"))


def _draw_stages(nodes: Sequence[NodeDistance], across: AxisScale, width: int) -> list[Element]:
    """Draw the graph's stages below the axis, by the first part of each path: `layer1` for `layer1/0/conv1`,
    with a line between two stages. Names that would touch the name before are left out.
    """
    elements: list[Element] = []
    index, free_from = 0, 0.0
    for name, members in groupby(nodes, key=lambda node: node.path.split("/", 1)[0]):
        count = sum(1 for _ in members)
        if index:
            between = across(index - 0.5)
            elements.append(line(between, HEIGHT - BOTTOM, between, HEIGHT - BOTTOM + 5, "axis"))
        shown = shorten_to(name, 96)
        half = len(shown) * CHARACTER / 2
        # under the middle of its nodes, but within the drawing
        middle = (across(index) + across(index + count - 1)) / 2
        centre = min(max(middle, LEFT + half), width - RIGHT - half)
        if centre - half >= free_from:
            elements.append(label(centre, HEIGHT - BOTTOM + 20, shown, "middle"))
            free_from = centre + half + CHARACTER
        index += count
    return [line(LEFT, HEIGHT - BOTTOM, width - RIGHT, HEIGHT - BOTTOM, "axis"), *elements]


def _draw_limit(
    nodes: Sequence[NodeDistance], across: AxisScale, down: AxisScale, width: int
) -> list[Element]:
    """Draw the limit as a line of steps, because in float32 every node has its own."""
    known = [(index, log10(node.limit)) for index, node in enumerate(nodes) if _has_logarithm(node.limit)]
    if not known:
        return []
    steps = [f"M{LEFT} {down(known[0][1]):.2f}"]
    for index, decade in known:
        # to the middle between two nodes, then up or down to the next limit
        steps.append(f"H{across(index - 0.5):.2f}V{down(decade):.2f}")
    path = element("path", d="".join([*steps, f"H{width - RIGHT}"]), class_="limit")
    limits = {node.limit for node in nodes if _has_logarithm(node.limit)}
    text = f"limit {distance_text(limits.pop())}" if len(limits) == 1 else "limit of each node"
    return [path, label(width - RIGHT, down(known[-1][1]) - 6, text, "end", "label limit-label")]


def _draw_node(node: NodeDistance, x: float, y: float) -> Element:
    """Draw the mark of a node: a cross above the limit, a circle at a distance of 0, otherwise a dot."""
    title = element("title", text=f"{node.path}: {distance_text(node.rel_l2)}")
    if not node.ok:
        return element("path", title, d=f"M{x - 4:.2f} {y - 4:.2f}l8 8m0 -8l-8 8", class_="cross")
    return element("circle", title, cx=x, cy=y, r=2.4, class_="zero" if node.rel_l2 == 0 else "dot")


def _name_worst(worst: NodeDistance, x: float, y: float, width: int) -> list[Element]:
    """Draw a ring round the worst node, and its name."""
    text = f"{shorten_to(worst.path, width - LEFT - RIGHT - 90)} {distance_text(worst.rel_l2)}"
    half = len(text) * CHARACTER / 2
    centre = min(max(x, LEFT + half), width - RIGHT - half)
    return [
        element("circle", cx=x, cy=y, r=5, class_="ring"),
        label(centre, y - 10, text, "middle", "label named"),
    ]
