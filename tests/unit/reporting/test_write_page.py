"""`porter report` and `porter.report`: one file, whole, and nothing else touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

import porter
from porter.base.errors import ChecksumError, FileError, PorterError, UsageError
from porter.cli.app import main
from porter.evaluation.details import MAX_PAIRS
from porter.evaluation.results import Evaluation
from porter.port import ReferenceFile
from porter.reporting.records import read_contents
from porter.verification.inputs import SIGNED
from porter.verification.results import Distance, FirstBad, NodeDistance, Parity
from porter.verification.verdict import Shipped, UserProof, Verdict
from tests.support.reporting.ports import details, evaluation, full_port, write_port

Cli = Callable[..., str]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["porter", "report", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        assert not exited.value.code
        return capsys.readouterr().out

    return run


def test_the_command_writes_into_the_port_and_names_what_is_missing(cli: Cli, tmp_path: Path) -> None:
    write_port(tmp_path / "port")
    said = cli("port")
    assert (
        said.startswith("port/report.html\n")
        and "porter eval port --source --weights weights.h5 --data PATH" in said
    )
    found = json.loads(cli("port", "--out", "page.html", "--json"))
    assert (
        found["report"] == "page.html"
        and not found["sections"]["study"]
        and "The padding study" in found["missing"]
    )
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "port" / "report.html").read_bytes()
    assert sorted(path.name for path in (tmp_path / "port").iterdir()) == [
        "model.safetensors",
        "port.json",
        "report.html",
    ]


def test_the_commands_on_the_terminal_work_from_where_they_are_printed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "my ports").mkdir()
    write_port(tmp_path / "my ports" / "port")
    assert "porter eval 'my ports/port' --source" in cli("my ports/port")


def test_a_report_needs_no_framework(tmp_path: Path) -> None:
    code = f"import sys, porter; porter.report({str(full_port(tmp_path / 'port'))!r}); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "porter.reporting.page" in loaded and not {"torch", "tensorflow", "keras"} & set(loaded)


def test_an_older_report_is_replaced_and_no_other_file(tmp_path: Path) -> None:
    folder = full_port(tmp_path / "port")
    target = porter.report(folder, tmp_path / "page.html").path
    assert porter.report(folder, target).path == target
    for path in (folder / "port.json", folder / "model.safetensors"):
        before = path.read_bytes()
        with pytest.raises(UsageError, match="not one of porter's reports"):
            porter.report(folder, path)
        assert path.read_bytes() == before
    with pytest.raises(UsageError, match="folder"):
        porter.report(folder, tmp_path)
    with pytest.raises(FileError, match="cannot be written"):
        porter.report(folder, tmp_path / "absent" / "page.html")


def test_through_a_link_the_file_behind_it_is_written(tmp_path: Path) -> None:
    folder = full_port(tmp_path / "port")
    (tmp_path / "link.html").symlink_to("page.html")
    porter.report(folder, tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "page.html").read_text().startswith(
        "<!DOCTYPE html>"
    )


@pytest.mark.parametrize("name", ["report.html", "evaluation.json", "port.json", "model.safetensors"])
def test_a_link_in_a_port_is_not_followed(tmp_path: Path, name: str) -> None:
    folder = full_port(tmp_path / "port")
    porter.report(folder)
    (folder / name).rename(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PorterError, match=r"plain file|a link") as caught:
        porter.report(folder)
    assert caught.value.where == str(folder / name) and (tmp_path / "elsewhere").read_bytes() == before


def test_a_pipe_where_the_report_should_go(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="a pipe"):
        porter.report(full_port(tmp_path / "port"), tmp_path / "pipe")


def test_a_report_is_of_the_model_that_lies_there(tmp_path: Path) -> None:
    folder = full_port(tmp_path / "port")
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ChecksumError, match="sha256"):
        porter.report(folder)
    assert not (folder / "report.html").exists()


def test_an_evaluation_comes_back_from_its_record(tmp_path: Path) -> None:
    measured: Evaluation = evaluation()
    assert read_contents(full_port(tmp_path / "port", evaluation=measured.summary())).evaluation == measured


def test_a_verdict_comes_back_from_its_record(tmp_path: Path) -> None:
    logits = Distance(inf, 1e-14, inf, None, None, False)
    first = FirstBad("b", inf, "b", "valid", "same", ((4, 4), (3, 3)), ("a",))
    nodes = (NodeDistance("a", 1e-15, 1e-15, 1e-10), NodeDistance("b", inf, inf, 1e-10, inf))
    parity = Parity(
        False, "keras", "float64", ((32, 32),), 4, 1e-10, 0.0, logits, first, nodes, ("c",), top_changed=True
    )
    given = UserProof(
        ReferenceFile(file="net.py", sha256="ab" * 32, maker="make"), (parity,), ("a note",), {}, SIGNED
    )
    shipped = Shipped((parity,), 0.5, 1, 4)
    verdict = Verdict(
        (parity,), SIGNED, shipped, "a rounding", ("another",), logits, given, "a disagreement", ("held",)
    )
    read = read_contents(full_port(tmp_path / "port", parity=verdict.record())).comparison
    assert read is not None and {**vars(parity), "range": SIGNED.words}.items() <= vars(read).items()
    assert (
        read.shipped == shipped.record() and read.given == given.record() and read.dtypes == read.given.dtypes
    )
    assert (read.worst, read.holds, read.disagreement, read.notes, read.held) == (
        nodes[1],
        False,
        "a disagreement",
        ("another",),
        ("held",),
    )


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"pairs": [[1, 2, 3]]}',
        '{"pairs": "none"}',
        '{"photos": [{"name": "\\ud800"}]}',
        "[" * 100_000,
        json.dumps({"pairs": [[0, 0]] * (MAX_PAIRS + 1)}),
        json.dumps({"photos": details()["photos"] * 7}),
        json.dumps({"photos": [{**details()["photos"][0], "port": details()["photos"][0]["port"] * 2}]}),
    ],
)
def test_damaged_details_are_refused_with_their_place(text: str, tmp_path: Path) -> None:
    folder = full_port(tmp_path / "port")
    (folder / "evaluation.json").write_text(text)
    with pytest.raises(FileError, match=r"evaluation\.json") as refused:
        porter.report(folder)
    assert refused.value.next and not (folder / "report.html").exists()


def test_details_too_large_to_be_porters_are_not_read(tmp_path: Path) -> None:
    folder = full_port(tmp_path / "port")
    with (folder / "evaluation.json").open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(FileError, match="too large"):
        porter.report(folder)


@pytest.mark.parametrize("parity", [{}, {"nodes": []}, {"ok": 1e400}])
def test_a_damaged_comparison_is_refused(parity: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(PorterError, match="parity"):
        porter.report(full_port(tmp_path / "port", parity=parity))
