"""One table of options: the API's signatures have its names and defaults, and pages name no other option."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import porter
from porter.base import options
from porter.base.errors import PorterError, UsageError
from porter.base.options import REQUIRED, Command, items
from porter.conversion.pad_table import pads
from porter.padding import ANY
from porter.padding.sizes import parse_size
from tests.support.checkout import ROOT

TABLES = {table.name: table for table in vars(options).values() if isinstance(table, Command)}
FUNCTIONS: list[tuple[Callable[..., Any], str, set[str]]] = [
    (porter.convert, "convert", {"card"}),
    (porter.verify, "verify", {"layers"}),
    (porter.predict, "predict", set()),
    (porter.evaluate_several, "eval", {"results"}),
    (porter.inspect, "inspect", {"tensors"}),
    (porter.study, "study padding", set()),
    (porter.report, "report", set()),
    (pads, "pads", {"all_sites"}),
]
ONLY_IN_PYTHON = {"example"}
"""What a model in memory is exported with."""


@pytest.mark.parametrize(
    ("function", "name", "only_typed"), FUNCTIONS, ids=[name for _, name, _ in FUNCTIONS]
)
def test_a_functions_signature_is_its_commands_table(
    function: Callable[..., Any], name: str, only_typed: set[str]
) -> None:
    table = {option.name: option for option in TABLES[name].options if option.name not in only_typed}
    signature = {
        key: value
        for key, value in inspect.signature(function).parameters.items()
        if key not in ONLY_IN_PYTHON
    }
    assert signature.keys() == table.keys()
    for parameter in signature.values():
        usual = table[parameter.name].default
        assert usual is REQUIRED or parameter.default in (usual, inspect.Parameter.empty), parameter
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD and not re.search(
            r"\bAny\b", str(parameter.annotation)
        )


def test_one_port_is_measured_with_the_options_of_several() -> None:
    one, several = (
        list(inspect.signature(each).parameters.values())[1:]
        for each in (porter.evaluate, porter.evaluate_several)
    )
    assert [str(parameter) for parameter in one] == [str(parameter) for parameter in several]


def test_pages_name_options_that_there_are() -> None:
    known = {
        flag
        for table in TABLES.values()
        for option in table.options
        for flag in (option.flag or "").split("/")
    }
    known |= {"--json", "--help", "--version", "--install-completion"}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        lines = re.findall(rf"porter (?:{'|'.join(TABLES)}) [^\n`]*", page.read_text(encoding="utf-8"))
        assert set(re.findall(r"--[a-z][\w-]*", " ".join(lines))) <= known, page


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (224, (224, 224)),
        ((225, 201), (225, 201)),
        ([225, 201], (225, 201)),
        ("225x201", (225, 201)),
        ("any", ANY),
    ],
)
def test_a_size_is_a_number_a_pair_or_a_text(given: Any, size: object) -> None:
    assert parse_size(given) == size


@pytest.mark.parametrize("given", [0, -1, 2.5, True, (), (1, 2, 3), ("a", 2), (224, None), "", "axb", 10**9])
def test_what_is_no_size_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="is not an input size"):
        parse_size(given)


def test_one_text_is_one_item() -> None:
    assert (
        items("conv1=stem/conv") == ("conv1=stem/conv",)
        and items(["a", "b"]) == ("a", "b")
        and items(None) == ()
    )


def test_a_size_and_one_text_go_through_the_api(tmp_path: Path) -> None:
    (tmp_path / "weights.h5").write_bytes(b"none")
    for size in (224, (224, 224), "224"):
        with pytest.raises(PorterError) as refused:
            porter.convert(
                "mobilenet_v2",
                "keras",
                weights=tmp_path / "weights.h5",
                input_size=size,
                mapped="a=head/logits",
            )
        assert refused.value.where == str(tmp_path / "weights.h5")


def test_a_line_has_what_is_not_the_default() -> None:
    line = options.CONVERT.line(
        subject="my file.h5", to="tf", dtype="float32", mapped=["a=b", "c=d"], stock="timm"
    )
    assert line == "porter convert 'my file.h5' --to tf --map a=b --map c=d --stock timm"
    assert options.CONVERT.line(subject="x", stock=True, options={"a": False}, outputs=("p", "q")) == (
        "porter convert x --stock --option a=false --outputs p,q"
    )
