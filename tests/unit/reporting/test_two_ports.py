"""Two ports on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import porter
from porter.reporting.records import read_contents
from porter.reporting.two_ports import Pair, compare_contents
from tests.support.fixtures import Cli
from tests.support.reporting.html import parse
from tests.support.reporting.ports import evaluation, full_port, parity, write_port

PAD = {
    "site": "stem/conv",
    "source": "same",
    "realised": "same",
    "kind": "native",
    "why": "it is the destination's own",
}


def test_rows_say_where_two_ports_differ(tmp_path: Path) -> None:
    one = full_port(tmp_path / "one")
    other = full_port(
        tmp_path / "other", dtype="float64", pads=[PAD], evaluation=evaluation(top1=70.0, loss=1.5).summary()
    )
    shown = compare_contents(read_contents(one), read_contents(other))
    assert shown["names"] == ["one", "other"] and shown["relation"].startswith(
        "Both were made from the same file and are proved"
    )
    facts = {row.what: row for row in shown["facts"]}
    assert facts["To"].one != facts["To"].other and facts["Variant"].one == facts["Variant"].other
    assert shown["pads"][0] == Pair("stem/conv", "pad ((0,1),(0,1)) with 0, then valid", "same")
    assert [row.other for row in shown["accuracies"]][:1] == ["70.00 (68.30 to 76.10)"]


def test_facts_of_one_term_are_shown_together(tmp_path: Path) -> None:
    source = {"file": "w.h5", "format": "keras-h5", "sha256": "cd" * 32, "notes": ["one", "two"]}
    reference = {"file": "mine.py", "sha256": "ef" * 32, "maker": "make"}
    ports = [
        read_contents(full_port(tmp_path / name, source=source, reference=reference)) for name in ("a", "b")
    ]
    facts = {row.what: row.one for row in compare_contents(*ports)["facts"]}
    assert (facts["Its sha256"], facts["sha256 of the reference"]) == ("cd" * 32, "ef" * 32)
    assert facts["Note"] == "one; two"


def test_what_is_not_the_same_function_is_not_said_to_be(tmp_path: Path) -> None:
    one, source = (
        read_contents(full_port(tmp_path / "one")),
        {"file": "w.h5", "format": "keras-h5", "sha256": "cd" * 32},
    )
    others: dict[str, dict[str, Any]] = {
        "another file": {"source": source},
        "unproved": {"parity": None},
        "other pads": {"padding": "trained"},
        "differs": {"parity": parity(1.0, ok=False)},
    }
    for name, changes in others.items():
        relation = compare_contents(one, read_contents(full_port(tmp_path / name, **changes)))["relation"]
        assert "same function" not in relation and ("different files" in relation) == (name == "another file")


def test_the_page_is_written_where_the_command_says(tmp_path: Path, cli: Cli) -> None:
    one, other = full_port(tmp_path / "one"), write_port(tmp_path / "other")
    ran = cli("report", one, other)
    assert (
        ran.status == 0 and (tmp_path / "one-and-other.html").is_file() and not (one / "report.html").exists()
    )
    assert porter.report(one, other=other, out=tmp_path / "two.html").missing == {}
    page = parse((tmp_path / "two.html").read_text(encoding="utf-8"))
    assert page.faults == [] and "script" not in {tag for tag, _ in page.tags}
