"""Many ports from a list, some of which end badly."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from porter.base.commands import BatchOptions
from porter.base.errors import FileError, NotInstalled, UsageError
from porter.batch.batch import BatchOutcome, batch
from porter.batch.jobs import read_jobs
from tests.support.fixtures import Cli

STANDIN = """
import json, os, pathlib, signal, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
what = sys.argv[1].partition(".")[0]
with open(f"{out.parent.parent}/begun.txt", "a") as log:
    print(out.name, file=log)
begun = pathlib.Path(f"{out.parent.parent}/begun.txt").read_text().split().count(out.name)
if what == "refused":
    print(json.dumps({"error": {"code": "mapping", "message": "no", "where": "here", "next": None}}))
    sys.exit(2)
if what == "textless":
    print(json.dumps({"error": {"code": "file", "message": "no", "where": chr(0xDCE9), "next": None}}))
    sys.exit(2)
if what == "missing":
    print(json.dumps({"error": {"code": "framework", "message": "no", "where": None, "next": None}}))
    sys.exit(2)
if what == "faulty":
    print(json.dumps({"error": {"code": "internal", "message": "KeyError", "where": None, "next": None}}))
    sys.exit(70)
if what == "listing":
    print("[]")
    sys.exit(1)
if what == "reasonless":
    print(json.dumps({"error": None}))
    sys.exit(1)
if what == "nested":
    print("[" * 100_000)
    sys.exit(1)
if what == "realtime":
    os.kill(os.getpid(), signal.SIGRTMIN + 1)
if what == "broken":
    sys.exit("Traceback")
if what == "foreign":
    sys.stderr.buffer.write(b"caf\\xe9")
    sys.exit(1)
if what == "slow":
    time.sleep(60)
if what == "killed" or (what == "unlucky" and begun < 3):
    os.kill(os.getpid(), signal.SIGKILL)
if what == "large":
    held = bytearray(300_000_000)
    time.sleep(60)
if what != "portless":
    out.mkdir(exist_ok=True)
    (out / "port.json").write_text("{}")
facts = dict.fromkeys(("architecture", "variant", "zoo", "classes"))
facts |= {"parity": {"nodes": [{"rel_l2": 1e-15}], "limit": 1e-10}, "check": "passed", "port": str(out)}
print(json.dumps({} if what == "portless" else facts))
if what == "ashamed":
    sys.exit(1)
if what == "late":
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""A program in place of porter, which does what the subject's name says."""


def made(folder: Path, subjects: list[str], **options: object) -> BatchOutcome:
    """The batch of a list of these subjects."""
    (folder / "standin.py").write_text(STANDIN)
    (folder / "list.csv").write_text("\n".join(("subject", *subjects)))
    asked = BatchOptions(folder / "list.csv", folder / "out", workers=2, **options)  # type: ignore[arg-type]
    return batch(asked, (sys.executable, str(folder / "standin.py")))


def begun(folder: Path) -> list[str]:
    return (folder / "out" / "begun.txt").read_text().split()


def rows(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "out" / "table.csv").open() as table:
        return {row["subject"]: row for row in csv.DictReader(table)}


def test_what_becomes_of_each_is_in_the_table(tmp_path: Path) -> None:
    subjects = ["good.onnx", "refused.onnx", "broken.onnx", "killed.onnx", "unlucky.onnx"]
    found = made(tmp_path, subjects)
    assert not found.ok and found.counts == {"done": 2, "refused": 1, "failed": 2, "waiting": 0}
    table = rows(tmp_path)
    assert [*table] == subjects
    assert table["good.onnx"] | {"state": "done", "distance": "1e-15"} == table["good.onnx"]
    assert (table["refused.onnx"]["code"], table["refused.onnx"]["message"]) == ("mapping", "here: no")
    assert table["broken.onnx"]["message"] == "status 1: Traceback"
    assert table["killed.onnx"]["message"] == "the process was killed by signal 9 (SIGKILL)"
    assert json.loads((tmp_path / "out" / "table.json").read_text())[4]["state"] == "done"
    assert "unlucky.onnx" in (tmp_path / "out" / "table.html").read_text()


def test_what_has_ended_is_not_made_again(tmp_path: Path) -> None:
    subjects = ["good.onnx", "refused.onnx", "broken.onnx"]
    made(tmp_path, subjects)
    again = made(tmp_path, [*subjects, "other.onnx"])
    assert again.skipped == 2 and begun(tmp_path).count("good.onnx-torch") == 1
    assert begun(tmp_path).count("broken.onnx-torch") == 2
    (tmp_path / "out" / "ports" / "good.onnx-torch" / "port.json").unlink()
    made(tmp_path, subjects)
    assert begun(tmp_path).count("good.onnx-torch") == 2 and begun(tmp_path).count("other.onnx-torch") == 1


def test_a_program_that_makes_no_port_is_done_too(tmp_path: Path) -> None:
    (first,) = made(tmp_path, ["portless.onnx"]).results
    assert (first.state, first.port, first.check, first.distance) == ("done", None, None, None)
    again = made(tmp_path, ["portless.onnx"])
    assert again.skipped == 1 and again.results == (first,) and len(begun(tmp_path)) == 1


def test_what_a_missing_package_or_a_fault_of_porters_ended_is_made_again(tmp_path: Path) -> None:
    found = made(tmp_path, ["missing.onnx", "faulty.onnx"])
    assert [result.state for result in found.results] == ["refused", "failed"]
    assert made(tmp_path, ["missing.onnx", "faulty.onnx"]).skipped == 0 and len(begun(tmp_path)) == 4


def test_what_another_version_of_porter_refused_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = ["good.onnx", "refused.onnx"]
    made(tmp_path, subjects)
    monkeypatch.setattr("porter.batch.results.__version__", "99.0")
    made(tmp_path, subjects)
    assert sorted(begun(tmp_path)) == ["good.onnx-torch", "refused.onnx-torch", "refused.onnx-torch"]


def test_what_is_killed_after_it_has_printed_is_not_done(tmp_path: Path) -> None:
    (late,) = made(tmp_path, ["late.onnx"]).results
    assert (late.state, late.code, late.attempts) == ("failed", "killed", 3)


def test_what_ends_badly_after_it_has_printed_is_not_done(tmp_path: Path) -> None:
    (ashamed,) = made(tmp_path, ["ashamed.onnx"]).results
    assert (ashamed.state, ashamed.code, ashamed.message) == ("failed", "error", "status 1: ")


def test_a_name_that_is_no_text_stands_in_the_tables(tmp_path: Path) -> None:
    made(tmp_path, ["textless.onnx"])
    assert rows(tmp_path)["textless.onnx"]["message"] == r"\udce9: no"


def test_what_a_program_says_in_another_encoding_stops_no_other_job(tmp_path: Path) -> None:
    foreign, good = made(tmp_path, ["foreign.onnx", "good.onnx"]).results
    assert (foreign.message, good.state) == (r"status 1: caf\xe9", "done")


@pytest.mark.parametrize("subject", ["listing", "reasonless", "nested"])
def test_other_json_of_a_program_is_a_failure(subject: str, tmp_path: Path) -> None:
    assert made(tmp_path, [f"{subject}.onnx", "good.onnx"]).counts["done"] == 1
    assert rows(tmp_path)[f"{subject}.onnx"]["message"] == "status 1: "


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="every signal of this system has a name")
def test_a_signal_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    made(tmp_path, ["realtime.onnx"])
    number = signal.SIGRTMIN + 1
    said = f"the process was killed by signal {number} (signal {number})"
    assert rows(tmp_path)["realtime.onnx"]["message"] == said


def test_a_file_that_changed_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.onnx").write_text("one")
    made(tmp_path, ["good.onnx"])
    Path("good.onnx").write_text("another")
    assert made(tmp_path, ["good.onnx"]).skipped == 0 and len(begun(tmp_path)) == 2


def test_what_takes_too_long_is_killed(tmp_path: Path) -> None:
    (slow,) = made(tmp_path, ["slow.onnx"], timeout=1.0).results
    assert (slow.state, slow.message, slow.attempts) == ("failed", "it took longer than 1 s", 1)


def test_what_takes_too_much_memory_is_killed(tmp_path: Path) -> None:
    (large,) = made(tmp_path, ["large.onnx"], memory=0.2).results
    assert re.fullmatch(r"it took 0\.\d GB of memory, more than 0\.2", large.message or "")
    assert large.peak is not None and large.peak > 2e8


def test_shards_make_the_table_of_one_process(tmp_path: Path) -> None:
    subjects = [f"good{n}.onnx" for n in range(5)] + ["refused.onnx"]
    for shard in ("1/2", "2/2"):
        assert made(tmp_path, subjects, shard=shard).counts["waiting"] == (3 if shard == "1/2" else 0)
    alone = tmp_path / "alone"
    alone.mkdir()
    made(alone, subjects)
    assert (alone / "out" / "table.csv").read_text() == (tmp_path / "out" / "table.csv").read_text()
    assert sorted(begun(tmp_path)) == sorted(begun(alone))


def test_a_batch_that_is_killed_goes_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 5)).eval()
    torch.export.save(torch.export.export(model, (torch.randn(1, 3, 16, 16),)), tmp_path / "a.pt2")
    (tmp_path / "list.toml").write_text(
        '[[ports]]\nsubject = "a.pt2"\nto = ["torch", "onnx"]\ncheck = false\n'
    )
    command = [sys.executable, "-m", "porter", "batch", "list.toml", "--out", "out", "--workers", "2"]
    first = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
    while len([*(tmp_path / "out" / "logs").glob("*.txt")]) < 2:
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    subprocess.run(command, cwd=tmp_path, check=True)
    assert {row["state"] for row in rows(tmp_path).values()} == {"done"}
    assert len([*(tmp_path / "out" / "ports").glob("*/model.*")]) >= 2
    assert not [*(tmp_path / "out" / "ports").glob(".*")]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("subject\n", FileError, "the list has no line"),
        ("subject,too\na,b", UsageError, "list.csv:2: 'too' is no column of such a list"),
        ("to\ntorch", UsageError, "the line has no 'subject'"),
        ("subject\na\na", UsageError, "'a-torch' is asked for twice"),
        ("subject,check\na,maybe", UsageError, "'maybe' is neither true nor false"),
        ("subject,from\nresnet9*,keras", UsageError, "no variant is called"),
        ("subject,\na,b", UsageError, "list.csv:2: '' is no column of such a list"),
        ("subject\na\0", UsageError, "list.csv:2: a text has the character NUL"),
        (f"subject\n{'a' * 300}*", UsageError, "no variant is called"),
        ("subject\na\0*", UsageError, "no variant is called"),
        ("subject\na,b", UsageError, "more values than there are columns"),
    ],
)
def test_a_list_that_is_wrong(text: str, error: type[Exception], said: str, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(error, match=said):
        read_jobs(tmp_path / "list.csv")


@pytest.mark.parametrize("value", ["1" * 5_000, "[" * 100_000], ids=["digits", "brackets"])
def test_toml_beyond_the_bounds_of_its_reader_is_refused(value: str, tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text(f"subject = {value}")
    with pytest.raises(FileError, match="the list is no TOML"):
        read_jobs(tmp_path / "list.toml")


def test_what_a_line_stands_for(tmp_path: Path) -> None:
    file = tmp_path / "list.toml"
    file.write_text(
        '[[ports]]\nsubject = "resnet5?v2"\nfrom = "*"\nto = ["torch", "onnx"]\n'
        '[[ports]]\nsubject = "a/model.onnx"\nmap = ["x=y", "z=w"]\nfold-bn = true\noption = {alpha = 0.5}\n'
    )
    *variants, one = read_jobs(file)
    assert {(job.subject, job.source) for job in variants} >= {
        ("resnet50v2", "keras"),
        ("resnet50v2", "tensornets"),
    }
    assert {job.to for job in variants} == {"torch", "onnx"} and len({job.name for job in variants}) == len(
        variants
    )
    assert one.words[3:] == ("--map", "x=y", "--map", "z=w", "--fold-bn", "--option", "alpha=0.5")
    assert one.name.startswith("model.onnx-torch-")


def test_the_arguments(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "list.csv").write_text("subject\na.onnx\n")
    for options, said in (
        (("--shard", "3/2"), "expected I/N, got '3/2'"),
        (("--shard", f"1/{'9' * 5_000}"), "expected I/N, got '1/999"),
        (("--workers", "0"), "expected a number above 0, got 0"),
        (("--on", "moon"), "expected local or ray, got 'moon'"),
    ):
        ran = cli("batch", tmp_path / "list.csv", "--out", tmp_path / "out", *options)
        assert ran.status == 2 and said in ran.err


def test_memory_that_nothing_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(NotInstalled, match="psutil is needed"):
        made(tmp_path, ["a.onnx"], memory=1.0)
    assert not (tmp_path / "out").exists()
