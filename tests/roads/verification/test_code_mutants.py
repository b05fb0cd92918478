"""Mistakes that `scripts/mutants --code` plants in porter's own source."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.mutation.corpus import Given, Item
from tests.mutation.of_code import Mistake, mistakes_in, plant
from tests.mutation.of_code_lines import lines_of
from tests.mutation.of_code_page import part, part_of, table, with_part
from tests.mutation.of_code_trial import STATES, outcome, same_function

SOURCE = '''
"""A module."""
SIZE = 3


def padded(size: int, kernel: int = 2) -> int:
    if size < 0:
        raise ValueError(f"{size} is below {0}")
    return size + kernel if size > 1 and kernel else max(size, 1)


SIZES = {"first": (1, 2)}
PICK = {"first": lambda one, other: (one, other)}
'''


@pytest.fixture
def mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Mistake]:
    """Of a module `changed`, by their kinds with their places among those of a kind."""
    (tmp_path / "changed.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "changed", raising=False)
    found = mistakes_in(tmp_path / "changed.py")
    kinds = [each.kind for each in found]
    return {
        f"{kind} {kinds[:place].count(kind)}": each
        for place, (kind, each) in enumerate(zip(kinds, found, strict=True))
    }


def test_they_are_in_functions_and_not_in_words(mistakes: dict[str, Mistake]) -> None:
    of_padded = {
        "branch 0",
        "comparison 0",
        "constant 0",
        "branch 1",
        "operator 0",
        "and, or 0",
        "comparison 1",
        "constant 1",
    }
    of_tables = {"constant 3", "constant 4", "constant 5", "order 1"}
    assert set(mistakes) == of_padded | {"swapped arguments 0", "constant 2", "order 0"} | of_tables
    assert {kind for kind, each in mistakes.items() if each.table} == of_tables


@pytest.mark.parametrize(
    ("kind", "given", "before", "after"),
    [
        ("operator 0", (5, 2), 7, 3),
        ("branch 1", (5, 2), 7, 5),
        ("comparison 1", (1, 2), 1, 3),
        ("and, or 0", (0, 2), 1, 2),
        ("constant 2", (0, 2), 1, 2),
    ],
)
def test_a_mistake_changes_functions_that_were_made_before(
    kind: str, given: tuple[int, int], before: int, after: int, mistakes: dict[str, Mistake]
) -> None:
    padded = import_module("changed").padded
    assert padded(*given) == before
    assert plant(mistakes[kind]) == 1 and padded(*given) == after


def test_a_function_without_a_name_has_mistakes_too(mistakes: dict[str, Mistake]) -> None:
    pick = import_module("changed").PICK["first"]
    assert plant(mistakes["order 0"]) == 1 and pick(1, 2) == (2, 1)


def test_a_mistake_in_a_table_is_wherever_the_table_is(
    mistakes: dict[str, Mistake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reading.py").write_text("from changed import SIZES as OWN\nMORE = {**OWN, 'other': 3}\n")
    monkeypatch.delitem(sys.modules, "reading", raising=False)
    reading = import_module("reading")
    assert plant(mistakes["order 1"]) == 3
    assert import_module("changed").SIZES == reading.OWN == {"first": (2, 1)}
    assert reading.MORE == {"first": (2, 1), "other": 3}


class Ending:
    """A nursery whose children end as they are told: a file's state each, or a signal."""

    functions: ClassVar[dict[str, str]] = {}

    def __init__(self, *states: str) -> None:
        self.states = states

    def child(self, act: object) -> tuple[bytes, int]:
        said: list[int] = []
        for state in self.states:
            self.states = self.states[1:]
            if state in ("killed", "raised"):
                return bytes(said), signal.SIGSEGV if state == "killed" else 0
            said.append(STATES.index(state))
        return bytes(said), 0


@pytest.mark.parametrize(
    ("states", "worst", "place"),
    [
        (("equal", "equal", "equal"), "equal", 0),
        (("equal", "refused", "crashed"), "refused", 1),
        (("refused", "killed", "proved and wrong"), "proved and wrong", 2),
        (("equal", "killed", "refused"), "crashed", 1),
        (("raised", "raised", "raised"), "crashed", 0),
    ],
)
def test_a_file_that_is_refused_hides_no_other(states: tuple[str, ...], worst: str, place: int) -> None:
    items = [Item(f"onnx-{number}", Path("model.onnx"), np.ones(1), Given(())) for number in range(3)]
    nursery: Any = Ending(*states)
    mistake = Mistake(Path("plan.py"), 1, "order", 0)
    assert outcome(mistake, items, nursery) == (worst, items[place].name)


LOGITS = np.array([[1.0, -2.0, 0.5], [3.0, 0.25, -1.0]])
SHARES = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
RATES = 1 / (1 + np.exp(-LOGITS))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (Given((SHARES,)), Given((LOGITS,), "softmax")),
        (Given((LOGITS,), "softmax"), Given((SHARES,))),
        (Given((np.log(SHARES),)), Given((LOGITS,), "log_softmax")),
        (Given((RATES,)), Given((LOGITS,), "sigmoid")),
        (Given((LOGITS,), "softmax"), Given((LOGITS,), "softmax")),
    ],
)
def test_a_port_may_keep_the_activation_at_the_end(found: Given, wanted: Given) -> None:
    assert same_function(found, wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (Given((LOGITS,)), Given((LOGITS,), "softmax")),
        (Given((LOGITS,), "softmax"), Given((LOGITS,))),
        (Given((LOGITS,), "sigmoid"), Given((LOGITS,), "softmax")),
        (Given((SHARES,), "softmax"), Given((LOGITS,), "softmax")),
        (Given((SHARES[:, ::-1],)), Given((LOGITS,), "softmax")),
        (Given((SHARES * (1 + 1e-4),)), Given((LOGITS,), "softmax")),
        (Given((LOGITS + 1,), "softmax"), Given((LOGITS,), "softmax")),
        (Given((SHARES, SHARES)), Given((LOGITS,), "softmax")),
    ],
)
def test_a_wrong_port_is_wrong_whether_it_keeps_the_activation_or_not(found: Given, wanted: Given) -> None:
    assert not same_function(found, wanted)


FOUND = [
    {"key": "porter/graph/plan.py:1:order:0", "kind": "order", "state": state, "file": "f", "seconds": "0.2"}
    for state in ("refused", "refused", "proved and wrong")
]


def test_the_tables_count_by_room_and_by_module() -> None:
    found = table(FOUND, 1)
    assert "| graph | 3 | 2 | 0 | 0 | 0 | 0 | 1 | 0 |" in found and "| padding | 0 |" in found
    assert "| together | 3 | 2 | 0 | 0 | 0 | 0 | 1 | 0 |" in found
    assert "| graph/plan.py | 3 | 2 | 0 | 0 | 0 | 0 | 1 | 0 |" in table(FOUND, 2)


def test_the_page_has_its_part_once() -> None:
    one, other = (part(FOUND, {"onnx": files}, 9, "Commit 1234567.") for files in (2, 5))
    page = with_part(with_part("# Mutants\n", one), other)
    assert page.startswith("# Mutants\n\n## Mistakes") and part_of(page) == other and one not in page
    assert "5 of onnx" in page and "200 ms" in page and "`porter/graph/plan.py:1:order:0` (order)" in page
    assert part_of("# Mutants\n") == "" and with_part("# Mutants\n", "") == "# Mutants\n"


class Stub:
    """Ports nothing, and counts how often it is asked."""

    asked = 0

    def child(self, act: object) -> tuple[bytes, int]:
        self.asked += 1
        return b'{"state": "equal", "seconds": 1.5, "lines": {"porter/graph/plan.py": [1, 3]}}', 0


def test_lines_are_kept_until_the_file_changes(tmp_path: Path) -> None:
    nursery: Any = Stub()
    for content, asked in ((b"one", 1), (b"one", 1), (b"two", 2)):
        (tmp_path / "model.onnx").write_bytes(content)
        item = Item("onnx-000", tmp_path / "model.onnx", np.ones((1, 1, 2, 2)), Given((np.ones(3),)))
        assert lines_of(item, nursery).lines == {"porter/graph/plan.py": [1, 3]} and nursery.asked == asked
