"""The page of operators says what becomes of each in each format."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("keras")
pytest.importorskip("onnx")

from tests.support.operator_table import FORMATS, PAGE, READ, operators, outcomes


def stated() -> dict[str, dict[str, str]]:
    """By operator and format, what the page says."""
    lines = [
        line.strip("| ").split(" | ") for line in Path(PAGE).read_text().splitlines() if line.startswith("| ")
    ][2:]
    return {
        name.strip(): dict(zip(FORMATS, (cell.strip() for cell in cells), strict=False))
        for name, *cells in lines
    }


def test_the_page_has_every_operator() -> None:
    assert [*stated()] == operators()


@pytest.mark.full
@pytest.mark.parametrize("operator", operators())
def test_what_becomes_of_an_operator(operator: str) -> None:
    found, said = outcomes(operator), stated()[operator]
    assert {format for format, cell in said.items() if cell} == found.keys()
    assert {format: said[format] == READ for format in found} == {
        format: each == READ for format, each in found.items()
    }
