"""Errors of the API name arguments, in one translation of what the command line says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import porter
from porter.api.speaking import public
from porter.base.errors import UsageError
from porter.base.options import in_python, parameter_of
from tests.support.checkout import ROOT

SAID = {
    "give --overwrite, or another --out": "give overwrite=True, or another out",
    "add --input-size N, or any for pads that are computed": (
        "add input_size=N, or any for pads that are computed"
    ),
    "give --input-size a fixed size": "give input_size a fixed size",
    "convert again with --input-size any": 'convert again with input_size="any"',
    "write the port without a proof: --no-check": "write the port without a proof: check=False",
    "convert without --stock": "convert without stock",
    "use --device cpu, or a GPU": 'use device="cpu", or a GPU',
    "add --split val": 'add split="val"',
    "--from keras --origin keras": 'source="keras" origin="keras"',
    "add one of these:\n--map 'a b=head/logits'": 'add one of these:\nmapped="a b=head/logits"',
    "--option name=3 changes nothing": 'options={"name": 3} changes nothing',
    "porter convert 'my file.h5' --to tf --no-check, or": (
        'porter.convert("my file.h5", to="tf", check=False), or'
    ),
    "porter eval DIR --data PATH --source measures it": (
        "porter.evaluate(DIR, data=PATH, source=True) measures it"
    ),
    "porter predict DIR photos/*": 'porter.predict(DIR, glob.glob("photos/*"))',
    "porter convert makes one": "porter.convert makes one",
    "porter recipe new NAME --weights FILE drafts one": "porter recipe new NAME --weights FILE drafts one",
    "porter inspect FILE --tensors lists them": "porter inspect FILE --tensors lists them",
}


@pytest.mark.parametrize("typed", SAID)
def test_messages_in_the_words_of_python(typed: str) -> None:
    assert in_python(typed) == SAID[typed]


def test_where_an_argument_is_wrong() -> None:
    assert (
        parameter_of("--no-check") == "check"
        and parameter_of("--from") == "source"
        and parameter_of("a/b") == "a/b"
    )


def messages() -> Iterator[str]:
    """Every text in porter's code that could be part of a message."""
    for file in sorted((ROOT / "porter").rglob("*.py")):
        if "cli" in file.parts or file.name == "options.py":
            continue
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in (each for each in nodes if id(each) not in documentation):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


OF_OTHERS = (
    "pip ",
    "--no-input",
    "--quiet",
    "--no-deps",
    "--dest",
    "--only-binary",
    "--disable-pip",
    "--from-model",
    "--zoo",
)
"""pip's options, and those of commands that no function of the API is."""


def test_no_flag_is_left_in_any_message() -> None:
    left = {
        text: in_python(text)
        for text in messages()
        if "--" in text and not any(each in text for each in OF_OTHERS)
    }
    assert len(left) > 100, "the search has found porter's messages"
    commands = ("porter recipe", "porter inspect FILE --tensors", "porter verify --layers")
    assert {
        text
        for text, said in left.items()
        if " --" in f" {said}" and not any(each in text for each in commands)
    } == set()


def test_an_error_is_told_once_and_keeps_its_kind() -> None:
    @public
    def refuse() -> None:
        raise UsageError("--crops has no 3", where="--crops", next="use --crops 1")

    with pytest.raises(UsageError) as told:
        refuse()
    assert str(told.value) == "crops: crops has no 3 (use crops=1)" and told.value.args == ("crops has no 3",)


def test_functions_name_their_arguments(tmp_path: Path) -> None:
    (tmp_path / "port").mkdir()
    (tmp_path / "weights.pth").write_bytes(b"none")
    with pytest.raises(porter.UsageError, match="give overwrite=True, or another out"):
        porter.convert(tmp_path / "weights.pth", out=tmp_path / "port")
    with pytest.raises(porter.UsageError, match=r"input_size: 'x' is not an input size \(write 224"):
        porter.inspect(tmp_path / "weights.pth", input_size="x")
