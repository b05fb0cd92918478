"""Drawings: every coordinate finite and inside, whatever the figures are."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from math import inf, nan
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from porter.evaluation.padding_study.study_results import Case
from porter.reporting.plots.accuracy import AccuracyRow, plot_accuracy
from porter.reporting.plots.logits import plot_logits
from porter.reporting.plots.node_distances import plot_nodes
from porter.reporting.plots.study import plot_study
from porter.reporting.svg import AxisScale, drawing, element, round_ticks, shorten_to
from porter.verification.results import NodeDistance
from tests.support.reporting.ports import study

WIDTHS = (340, 700)
anything = st.none() | st.floats() | st.just(0.0)
PLACED = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy"}


def inside(text: str) -> ElementTree.Element:
    """Parses a drawing, and asserts that all of it is within its view."""
    root = ElementTree.fromstring(text)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for part in root.iter():
        for name in PLACED & set(part.attrib):
            end = width if "x" in name else height
            assert -0.01 <= float(part.attrib[name]) <= end + 0.01, (part.tag, name, part.attrib)
        for number in re.findall(r"[-\w.]+", part.attrib.get("d", "")):
            assert "nan" not in number and "inf" not in number
    assert root[0].tag == "title" and root[0].text and root[1].tag == "desc" and root[1].text
    return root


def nodes_of(*errors: tuple[float | None, float | None]) -> list[NodeDistance]:
    """As they are read from a record, whose numbers may be null."""
    rows = [(f"stage{index // 3}/conv{index}", error, limit) for index, (error, limit) in enumerate(errors)]
    fields = [
        {"path": path, "rel_l2": error, "max_abs": error, "limit": limit} for path, error, limit in rows
    ]
    return TypeAdapter(list[NodeDistance]).validate_python(fields)


@given(st.lists(st.tuples(anything, anything), min_size=1, max_size=30), st.sampled_from(WIDTHS))
def test_nodes_of_any_figures(errors: list[tuple[float | None, float | None]], width: int) -> None:
    nodes = nodes_of(*errors)
    inside(plot_nodes(nodes, nodes[-1], width))


@pytest.mark.parametrize("width", WIDTHS)
def test_five_hundred_nodes_each_have_their_mark(width: int) -> None:
    nodes = nodes_of(*((1e-15 * (1 + index % 7), 1e-10) for index in range(500)))
    root = inside(plot_nodes(nodes, nodes[6], width))
    assert len([part for part in root.iter("circle") if part.get("class") == "dot"]) == 500
    labels = [
        part
        for part in root.iter("text")
        if part.get("text-anchor") == "middle" and part.get("class") == "label"
    ]
    places = sorted(float(part.attrib["x"]) for part in labels)
    assert len(places) >= 3 and all(after - before > 20 for before, after in pairwise(places))


def test_zero_the_worst_the_limit_and_what_is_beyond_it_are_told_apart() -> None:
    nodes = nodes_of((0.0, 1e-10), (1e-15, 1e-10), (1e-4, 1e-10), (None, 1e-10))
    root = inside(plot_nodes(nodes, nodes[3], 700))
    marks = [part.get("class") for part in root.iter() if part.get("class") in ("zero", "dot", "cross")]
    assert marks == ["zero", "dot", "cross", "cross"]
    heights = {part.get("class"): float(part.attrib["cy"]) for part in root.iter("circle")}
    assert heights["zero"] > heights["dot"] > heights["ring"]
    texts = [part.text or "" for part in root.iter("text")]
    assert "stage1/conv3 not finite" in texts and "limit 1.0e-10" in texts and {"0", "∞"} <= set(texts)
    assert "2 are beyond the limit" in (root[1].text or "")


@pytest.mark.parametrize("width", WIDTHS)
def test_where_every_node_is_equal_none_is_the_worst_and_the_limit_stands_on_top(width: int) -> None:
    nodes = nodes_of((0.0, 1e-10), (0.0, 1e-10))
    root = inside(plot_nodes(nodes, nodes[0], width))
    assert [part.get("class") for part in root.iter("circle")] == ["zero", "zero"]
    heights = {part.text: float(part.attrib["y"]) for part in root.iter("text")}
    assert (
        heights["1e-10"] < heights["1e-11"] < heights["0"]
        and "relative L2 distance from the source" in heights
    )


def test_a_limit_of_every_node_is_a_line_of_steps() -> None:
    nodes = nodes_of((1e-6, 1e-5), (1e-6, 4e-5), (1e-6, 2e-5))
    root = inside(plot_nodes(nodes, nodes[0], 700))
    path = next(part for part in root.iter("path") if part.get("class") == "limit")
    assert len(set(re.findall(r"V([\d.]+)", path.attrib["d"]))) == 3


@given(st.lists(st.tuples(anything, anything), max_size=30))
def test_logits_of_any_figures(pairs: list[tuple[float | None, float | None]]) -> None:
    inside(plot_logits(pairs))


def test_equal_logits_lie_on_the_diagonal() -> None:
    root = inside(plot_logits([(-3.0, -3.0), (0.5, 0.5), (8.0, 8.0), (None, 1.0), (inf, 1.0)]))
    dots = next(part for part in root.iter("path") if part.get("class") == "dots").attrib["d"]
    places = [tuple(map(float, place.split())) for place in re.findall(r"M([^h]+)h0", dots)]
    assert len(places) == 3
    (x0, y0), (x1, y1), (x2, y2) = places
    assert (x1 - x0) / (x2 - x0) == pytest.approx((y1 - y0) / (y2 - y0), abs=1e-3)


@given(
    st.lists(st.tuples(st.floats(), st.none() | st.tuples(st.floats(), st.floats())), max_size=4),
    st.sampled_from(WIDTHS),
)
def test_accuracies_of_any_figures(rows: list[tuple[float, tuple[float, float] | None]], width: int) -> None:
    inside(plot_accuracy([AccuracyRow(f"row {index}", *row) for index, row in enumerate(rows)], width))


def test_an_interval_lies_around_its_dot_and_a_published_figure_has_none() -> None:
    root = inside(
        plot_accuracy([AccuracyRow("port", 72.4, (68.3, 76.1)), AccuracyRow("published", 71.9, None)], 700)
    )
    low, high = bounds(root)
    dot = next(float(part.attrib["cx"]) for part in root.iter("circle"))
    assert low < dot < high
    assert len([part for part in root.iter("path") if part.get("class") == "diamond"]) == 1


@given(st.floats(0, 100), st.floats(0, 100), st.sampled_from(WIDTHS))
def test_an_axis_of_accuracy_has_two_numbers_at_least(top1: float, published: float, width: int) -> None:
    root = inside(
        plot_accuracy([AccuracyRow("port", top1, None), AccuracyRow("published", published, None)], width)
    )
    numbers = [
        part
        for part in root.iter("text")
        if part.get("text-anchor") == "middle" and part.text != "top-1 accuracy, %"
    ]
    assert len(numbers) >= 2


def bounds(root: ElementTree.Element) -> tuple[float, float]:
    bar = next(
        part
        for part in root.iter("line")
        if part.get("class") == "interval" and part.get("y1") == part.get("y2")
    )
    return float(bar.attrib["x1"]), float(bar.attrib["x2"])


@given(
    st.lists(st.tuples(st.text(max_size=80), *[st.none() | st.floats()] * 4), max_size=5),
    st.sampled_from(WIDTHS),
)
def test_studies_of_any_figures(cases: list[tuple[Any, ...]], width: int) -> None:
    case: Any = Case
    made = [
        case(name.translate(CONTROLS), "same", {}, *figures[:3], None, figures[3], 1.0)
        for name, *figures in cases
    ]
    inside(plot_study(study(*made), width))


CONTROLS = dict.fromkeys((*range(32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF))
"""What XML, by which these tests read drawings, has no place for."""


def test_photos_without_classes_have_bars_of_entropy() -> None:
    one, other = (
        Case(name, "same", {}, None, None, None, None, entropy, 1.0)
        for name, entropy in (("a", 0.8), ("b", 1.2))
    )
    root = inside(plot_study(replace(study(one, other), judged_by="entropy"), 700))
    bars = [float(part.attrib["width"]) for part in root.iter("rect") if "bar" in part.attrib["class"]]
    assert len(bars) == 2 and bars[0] / bars[1] == pytest.approx(2 / 3, rel=1e-2)
    assert any(part.text == "Entropy in nats of each padding convention" for part in root.iter())


def test_bars_are_as_long_as_their_errors_and_the_case_that_the_study_names_is_marked() -> None:
    root = inside(plot_study(study(), 700))
    first = [float(part.attrib["width"]) for part in root.iter("rect") if "first" in part.attrib["class"]]
    assert first[0] / first[1] == pytest.approx(27.6 / 31.2, rel=1e-3)
    assert [part.text for part in root.iter("text") if "◂" in (part.text or "")] == [
        "1. case 1  ◂ trained with"
    ]
    assert sum("trained" in part.attrib["class"] for part in root.iter("rect")) == 3


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(2, 8),
)
def test_ticks_are_few_and_in_order(one: float, other: float, most: int) -> None:
    low, high = min(one, other), max(one, other)
    ticks = round_ticks(low, high, most)
    assert len(ticks) <= most + 1 and ticks == sorted(ticks)


def test_ticks_are_round() -> None:
    assert round_ticks(-11.2, 12.1, 5) == [-10, -5, 0, 5, 10]
    assert round_ticks(68, 76.4, 6) == [68, 70, 72, 74, 76]


@given(
    st.floats(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_scale_never_leaves_its_ends(value: float, low: float, high: float) -> None:
    assert 10 <= AxisScale(min(low, high), max(low, high), 10, 90)(value) <= 90


def test_a_coordinate_that_is_not_finite_is_a_fault() -> None:
    with pytest.raises(ValueError, match="coordinate"):
        element("line", x1=nan)


def test_text_is_escaped_and_cut_in_its_middle() -> None:
    assert "<b>" not in drawing(10, 10, "<b>", "a & b")
    assert shorten_to("stage1/unit1/conv2", 78) == "stag…conv2" and shorten_to("stem", 72) == "stem"
