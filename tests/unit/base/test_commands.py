"""One table of commands: the functions of the API and the command line are made from it, and each message
names options and commands to whoever reads it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from porter.api.speaking import public
from porter.base import commands, options
from porter.base.call_context import Threads, read_by_a_program
from porter.base.calls import Command, takes
from porter.base.commands import COMMANDS, CONVERT, EVALUATE, FILE, FRAMEWORK, INSPECT, RECIPE_SHOW
from porter.base.errors import UsageError
from porter.base.options import CHECK, FOLD_BN, FROM, MAP, OPTION, OUTPUTS, SPLIT, Option
from porter.port import NOT_MADE
from tests.support.checkout import ROOT

TABLES = {table.name: table for table in COMMANDS}


def test_pages_name_options_that_there_are() -> None:
    known = {flag for table in COMMANDS for option in table.options.values() for flag in option.flags}
    known |= {"--help", "--version", "--install-completion"}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        lines = re.findall(rf"porter (?:{'|'.join(TABLES)}) [^\n`]*", page.read_text(encoding="utf-8"))
        assert set(re.findall(r"--[a-z][\w-]*", " ".join(lines))) <= known, page


def test_a_line_has_what_is_not_the_default() -> None:
    line = CONVERT.line(
        subject="my file.h5", to="tf", dtype="float32", mapped=["a=b", "c=d"], stock="timm", overwrite=False
    )
    assert line == "porter convert 'my file.h5' --to tf --map a=b --map c=d --stock timm"
    assert CONVERT.line(subject="x", stock=True, options={"a": False}, outputs=("p", "q")) == (
        "porter convert x --stock --option a=false --outputs p,q"
    )


SAID: list[tuple[Callable[[], str], str, str]] = [
    (lambda: f"leave out {FOLD_BN}", "leave out --fold-bn", "leave out fold_bn"),
    (lambda: SPLIT("val"), "--split val", 'split="val"'),
    (lambda: CHECK(False), "--no-check", "check=False"),
    (lambda: FOLD_BN(), "--fold-bn", "fold_bn=True"),
    (lambda: FROM.placeholder, "--from ZOO", "source=ZOO"),
    (lambda: MAP(["a b=head/logits"]), "--map 'a b=head/logits'", 'mapped="a b=head/logits"'),
    (lambda: MAP(["a=b", "c=d"]), "--map a=b --map c=d", 'mapped=["a=b", "c=d"]'),
    (lambda: OUTPUTS(["a", "b"]), "--outputs a,b", 'outputs=["a", "b"]'),
    (lambda: OPTION({"top": False}), "--option top=false", 'options={"top": False}'),
    (
        lambda: CONVERT.advise(subject=Path("my file.h5"), to="tf", check=False),
        "porter convert 'my file.h5' --to tf --no-check",
        'porter.convert("my file.h5", to="tf", check=False)',
    ),
    (
        lambda: EVALUATE.advise(folders=["DIR"], data=FILE, source=True),
        "porter eval DIR --data FILE --source",
        'porter.evaluate("DIR", data=FILE, source=True)',
    ),
    (
        lambda: INSPECT.advise(file=FILE, tensors=True),
        "porter inspect FILE --tensors",
        "porter inspect FILE --tensors",
    ),
    (lambda: RECIPE_SHOW.advise(name="x"), "porter recipe show x", "porter recipe show x"),
    (
        lambda: CONVERT.advise(subject=FILE, to=FRAMEWORK),
        "porter convert FILE --to FRAMEWORK",
        "porter.convert(FILE, to=FRAMEWORK)",
    ),
]


@pytest.mark.parametrize(("said", "to_a_typist", "to_a_program"), SAID, ids=[each for _, each, _ in SAID])
def test_each_door_is_answered_in_its_own_words(
    said: Callable[[], str], to_a_typist: str, to_a_program: str
) -> None:
    assert said() == to_a_typist
    with read_by_a_program():
        assert said() == to_a_program
    assert said() == to_a_typist


def test_a_thread_is_answered_in_its_own_words() -> None:
    """Two threads that call the API at once, and the threads that porter starts for one of them."""

    @takes(commands.PadsOptions)
    def asked(given: commands.PadsOptions) -> str:
        both_run.wait(10)
        said = CONVERT.advise(subject=FILE, to=FRAMEWORK)
        with Threads(1) as own:
            assert own.submit(lambda: CONVERT.advise(subject=FILE, to=FRAMEWORK)).result(10) == said
        both_run.wait(10)
        return said

    both_run = Barrier(2)
    with ThreadPoolExecutor(2) as threads, read_by_a_program():
        typed = threads.submit(lambda: asked("x", to="onnx"))
        called = threads.submit(public(asked), "x", to="tf")
        assert typed.result(20) == "porter convert FILE --to onnx"
        assert called.result(20) == 'porter.convert(FILE, to="tf")'


def test_what_was_asked_for_stands_in_place_of_its_word() -> None:
    @takes(commands.PadsOptions)
    def asked(given: commands.PadsOptions) -> str:
        return CONVERT.advise(subject=FILE, to=FRAMEWORK)

    assert asked("x", to="onnx") == "porter convert FILE --to onnx"
    assert CONVERT.advise(subject=FILE, to=FRAMEWORK) == "porter convert FILE --to FRAMEWORK"


def test_a_function_has_the_options_of_its_value() -> None:
    @takes(commands.PadsOptions)
    def asked(given: commands.PadsOptions) -> commands.PadsOptions:
        return given

    assert asked("x", "keras", input_size=(1, 2)) == commands.PadsOptions("x", "keras", input_size=(1, 2))
    with pytest.raises(UsageError, match="--from: expected text, got an object of int"):
        asked("x", 3)  # type: ignore[arg-type]


def texts(tree: ast.Module) -> Iterator[tuple[ast.Constant, str]]:
    """Every text of a module but its documentation, with the literal parts of formatted ones."""
    nodes = [*ast.walk(tree)]
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node, node.value


OF_OTHERS = ("pip ", "--no-input", "--quiet", "--no-deps", "--dest", "--only-binary", "--disable-pip")
"""pip's options."""


def test_no_message_spells_an_option_or_a_command() -> None:
    """A message that spells them is said in the wrong words to one of its readers."""
    flags = {
        flag
        for table in COMMANDS
        for option in table.options.values()
        for flag in option.flags
        if flag != "None"
    }
    spelt = re.compile(
        rf"(?<![\w-])(?:{'|'.join(map(re.escape, flags))})(?![\w-])"
        rf"|\bporter (?:{'|'.join(TABLES)})\b"
    )
    found = {}
    for file in sorted((ROOT / "porter").rglob("*.py")):
        if (
            file in ((ROOT / "porter/base/options.py"), (ROOT / "porter/base/commands.py"))
            or "cli" in file.parts
        ):
            continue
        for node, text in texts(ast.parse(file.read_text(encoding="utf-8"))):
            if spelt.search(text) and not any(each in text for each in (*OF_OTHERS, NOT_MADE)):
                found[f"{file.relative_to(ROOT)}:{node.lineno}"] = text
    assert found == {}


def test_no_text_names_an_option_before_its_reader_is_known() -> None:
    """A text that is made when a module is imported would say flags to everybody."""
    names = {
        name
        for room in (options, commands)
        for name, each in vars(room).items()
        if isinstance(each, Option | Command)
    }
    early = {}
    for file in sorted((ROOT / "porter").rglob("*.py")):
        if file.parent.name == "base":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
        outside = [
            node for body in bodies for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
        for node in (each for top in outside for each in ast.walk(top)):
            said = isinstance(node, ast.FormattedValue) or (
                isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[0] in {"str", *names}
            )
            if said and any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node)):
                early[f"{file.relative_to(ROOT)}: {ast.unparse(node)}"] = node
    assert early == {}
