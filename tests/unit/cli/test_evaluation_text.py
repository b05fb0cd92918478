"""What `porter eval` prints and how it ends, over results made up here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from porter.base.errors import UsageError
from porter.base.ways_to_run import Run
from porter.cli.app import main
from porter.cli.evaluation_text import evaluation, evaluations
from porter.data.photos import Failure
from porter.evaluation.csv_tables import write_results
from porter.evaluation.results import Accuracy, Agreement, Differing, Evaluation, OfPort
from porter.evaluation.speed import Tried
from tests.support.fixtures import Cli

FOUND = Evaluation(
    photos=("val", "class folders"),
    images=500,
    top1=82.8,
    top5=96.6,
    ci95=(79.25, 85.85),
    loss=0.71234,
    failed=tuple(Failure(f"n01440764/{number}.JPEG", "a broken image") for number in range(7)),
    excluded=(Failure("x.JPEG", "no label in ReaL"),),
    classes_present=498,
    protocol="shorter side 256",
    crops=1,
    precision="fp32",
    run="fp32",
    device="cpu",
    source=None,
    published={"top1": 71.878, "top5": 90.286, "size": 224, "source": "torchvision", "note": None},
    verdict="not comparable",
    why="500 images",
    expected=None,
    ok=True,
    complete=True,
    per_second=123.4,
    fed="224x224: resized to 256, cropped to 224",
)
SQUASHED = {"resize": "squash", "size": 256, "crop": 224, "interpolation": "pil_bicubic"}
BESIDE = Agreement(
    reference="torchvision",
    accuracy=Accuracy(500, 83.0, 96.8, (79.46, 86.03)),
    compared=493,
    agreeing=486,
    max_abs=3.1e-05,
    rel_l2=1.7e-06,
    differing=tuple(Differing(f"n01440764/d{number}.JPEG", (3,), 3, 4) for number in range(7)),
)

Ended = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ended:
    """Runs `porter eval` with what porter.evaluate gives put in; exit status, stdout, stderr."""

    def run(found: Evaluation | BaseException, *arguments: str) -> tuple[int, str, str]:
        asked: dict[str, Any] = {}

        def evaluated(folders: Any, data: Any, **options: Any) -> tuple[OfPort, ...]:
            asked.update(options)
            if isinstance(found, BaseException):
                raise found
            return tuple(OfPort(str(folder), "lenet", "torch", found, 61_706) for folder in folders)

        monkeypatch.setattr("porter.evaluation.evaluate.evaluate_several", evaluated)
        monkeypatch.setattr(sys, "argv", ["porter", "eval", "port", "--data", "val", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        return int(exited.value.code or 0), captured.out, captured.err

    return run


def test_a_table_for_people() -> None:
    text = "\n".join(evaluation(replace(FOUND, source=BESIDE)))
    for line in (
        "protocol   shorter side 256",
        "fed        224x224: resized to 256, cropped to 224",
        "images     500, of which 7 failed and count as not recognised; 498 classes present",
        "left out   1, such as x.JPEG: no label in ReaL",
        "port       82.800  96.600  0.7123  79.25 to 85.85",
        "source     83.000  96.800          79.46 to 86.03",
        "published  71.878  90.286",
        (
            "agreement  486 of 493 photos with torchvision; logits differ by 3.1e-05 at "
            "most, relative L2 1.7e-06"
        ),
        "differs    n01440764/d0.JPEG: source 3, port 4, right 3",
        "           and 2 more (--json names all)",
        "failed     n01440764/4.JPEG: a broken image",
        "verdict    not comparable: 500 images",
    ):
        assert f"  {line}\n" in text + "\n"
    assert (
        "n01440764/5.JPEG" not in text
        and "n01440764/d5.JPEG" not in text
        and "INCOMPLETE" not in text
        and "expected" not in text
    )


def test_a_part_of_the_photos_is_told_from_all_of_them() -> None:
    lines = evaluation(replace(FOUND, limit=500))
    assert (
        "  images     500 (--limit), of which 7 failed and count as not recognised; 498 classes present"
        in lines
    )


def test_photos_cannot_write_to_the_terminal(ended: Ended) -> None:
    failed = (Failure("\x1b[8mn01440764/a\nverdict    reproduced", "its label is \u202e7"),)
    _, out, _ = ended(replace(FOUND, photos=("val\x1b[0m", "class folders"), failed=failed))
    assert "\n  failed     \\x1b[8mn01440764/a\\nverdict    reproduced: its label is \\u202e7\n" in out
    assert out.startswith("val\\x1b[0m (class folders)\n") and all(
        line.isprintable() for line in out.splitlines()
    )
    _, out, _ = ended(replace(FOUND, failed=failed), "--json")
    assert json.loads(out)["failed"][0]["file"] == failed[0].name
    assert out.isascii() and all(line.isprintable() for line in out.splitlines())


def test_json_is_one_object(ended: Ended) -> None:
    status, out, err = ended(replace(FOUND, source=BESIDE), "--json")
    record = json.loads(out)
    assert (
        status == 0
        and err == ""
        and record["verdict"] == "not comparable"
        and record["ci95"] == [79.25, 85.85]
    )
    assert len(record["failed"]) == 7 and len(record["source"]["differing"]) == 7


def test_several_ports_are_one_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = (
        OfPort("one", "lenet", "torch", replace(FOUND, failed=(), expected=(82.0, 1.0)), 61_706),
        OfPort(
            "two",
            "vgg16",
            "onnx",
            replace(
                FOUND,
                failed=(),
                protocol="squashed",
                loss=None,
                expected=(80.0, 1.0),
                ok=False,
                preprocess=SQUASHED,
            ),
            138_357_544,
        ),
    )
    monkeypatch.setattr("porter.evaluation.evaluate.evaluate_several", lambda folders, data, **_: found)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["porter", "eval", "one", "two", *arguments, "--data", "val"])
        with pytest.raises(SystemExit) as exited:
            main()
        return int(exited.value.code or 0), capsys.readouterr().out

    status, out = run("--results", str(tmp_path / "figures.csv"))
    assert status == 1
    assert out.splitlines() == [
        "val (class folders)",
        "  run        fp32 on cpu",
        "  protocol 1 shorter side 256",
        "  protocol 2 squashed",
        (
            "  port  is     framework  protocol  photos  top-1   top-5   loss    top-1 at 95 %   "
            "photos/s  verdict"
        ),
        (
            "  one   lenet  torch      1         500     82.800  96.600  0.7123  79.25 to 85.85  123.4     "
            "not comparable"
        ),
        (
            "  two   vgg16  onnx       2         500     82.800  96.600          79.25 to 85.85  123.4     "
            "not comparable"
        ),
        "  expected   one: top-1 82 within 1: met",
        "  expected   two: top-1 80 within 1: MISSED",
    ]
    line = (tmp_path / "figures.csv").read_text().splitlines()[2]
    assert line == "two,vgg16,onnx,squashed,500,82.8,96.6,,123.4,vgg16,224,17.2,3.4,138.36,0.875,bicubic"
    assert [each["port"] for each in json.loads(run("--json")[1])["ports"]] == ["one", "two"]
    monkeypatch.setattr(
        "porter.evaluation.evaluate.evaluate_several", lambda folders, data, **_: found[:1]
    )  # Ctrl-C in the second pass
    status, out = run()
    assert status == 130 and "INCOMPLETE" in out


def test_a_port_whose_folder_is_no_text_stands_in_the_table(tmp_path: Path) -> None:
    write_results(tmp_path / "figures.csv", [OfPort("caf\udce9", "lenet", "torch", FOUND, 61_706)])
    assert (tmp_path / "figures.csv").read_text().splitlines()[1].startswith(r"caf\udce9,lenet,torch,")


@pytest.mark.parametrize("ok", [True, False])
def test_what_was_expected_decides_the_status(ended: Ended, ok: bool) -> None:
    status, out, _ = ended(
        replace(FOUND, expected=(82.0, 0.5), ok=ok), "--expect-top1", "82", "--tolerance", "0.5"
    )
    assert status == (0 if ok else 1)
    assert f"expected   top-1 82 within 0.5: {'met' if ok else 'MISSED'}" in out


def test_the_verdict_does_not_decide_it(ended: Ended) -> None:
    assert ended(replace(FOUND, verdict="off by -9.00", why=""))[0] == 0


def test_control_c_prints_what_was_measured(ended: Ended) -> None:
    status, out, _ = ended(replace(FOUND, complete=False))
    assert status == 130 and "INCOMPLETE" in out and "82.800" in out


def test_control_c_leaves_the_table_of_results_and_says_so(ended: Ended, tmp_path: Path) -> None:
    table = tmp_path / "figures.csv"
    status, _, err = ended(replace(FOUND, complete=False), "--results", str(table))
    assert status == 130 and not table.exists()
    assert err == f"warning: {table} is not written: the run was interrupted\n"


def test_control_c_before_anything_was_measured(ended: Ended) -> None:
    status, out, err = ended(KeyboardInterrupt("before the first photos"))
    assert (status, out, err) == (130, "", "error: interrupted: before the first photos\n")


def test_only_the_first_process_prints(ended: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert ended(replace(FOUND, expected=(1.0, 0.5), ok=False)) == (1, "", "")
    assert ended(UsageError("no such thing"), "--json") == (2, "", "error: no such thing\n")


@pytest.mark.parametrize("option", ["--predictions", "--results"])
def test_a_table_that_could_not_be_written_is_refused_before_the_run(
    cli: Cli, option: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    for name, words in (("none/seen.csv", "there is no folder"), ("folder", "this is a folder")):
        ran = cli("eval port --data photos", option, tmp_path / name)  # neither of which is there
        assert ran.status == 2 and words in ran.err


def test_among_five_classes_there_is_no_top_5() -> None:
    assert any("top-5" in line for line in evaluation(replace(FOUND, classes=6)))
    lines = evaluation(replace(FOUND, classes=5))
    assert not any("top-5" in line or "96.6" in line for line in lines)
    assert any(line.split() == ["port", "82.800", "0.7123", "79.25", "to", "85.85"] for line in lines)
    few = OfPort("p", "mine", "tf", replace(FOUND, classes=2), 61_706)
    tables = [
        " ".join(evaluations(ports, len(ports))) for ports in ([few], [few, replace(few, evaluation=FOUND)])
    ]
    assert "top-5" not in tables[0] and "top-5" in tables[1]


def test_a_long_run_says_what_limited_it_and_a_fast_one_what_it_was_chosen_from(ended: Ended) -> None:
    tried = (
        Tried(Run("bf16"), 2000.0),
        Tried(Run(), 900.0),
        Tried(Run("fp16"), 0.0, "its logits are not finite"),
    )
    long: dict[str, Any] = {
        "run": "bf16",
        "network": 2000.0,
        "waited": 0.93,
        "tried": tried,
        "fp32": Accuracy(500, 82.6, 96.4, (79.0, 85.7)),
    }
    status, out, _ = ended(replace(FOUND, real=Accuracy(490, 90.0, 99.0, (87.0, 92.4)), **long))
    assert status == 0 and out.splitlines()[3:7] == [
        "  run        bf16 on cpu, 123.4 images/s; preparing photos limits it: the network can take "
        "2,000 images/s, and waited for photos 93 % of the time",
        "  tried      bf16: 2,000 images/s of made photos",
        "  tried      fp32: 900 images/s of made photos",
        "  tried      fp16: its logits are not finite",
    ]
    assert "  in fp32    82.600" in out and "  by ReaL    90.000" in out
    assert "the network limits it" in ended(replace(FOUND, network=130.0, waited=0.4))[1]
