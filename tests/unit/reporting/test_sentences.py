"""What a report says: the verdict, the warnings, the protocol, and commands that porter takes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from porter.cli.app import app
from porter.cli.verdict_text import parity_line
from porter.data.preprocess import Preprocess
from porter.data.protocol_words import input_in_words, protocol_in_words, steps_in_words
from porter.recipe.published import is_non_commercial
from porter.reporting.command_lines import convert, evaluate, reproduce, study as study_again
from porter.reporting.page import missing_sections
from porter.reporting.records import Contents, read_contents
from porter.reporting.sentences import conclude, facts, warn
from tests.support.reporting.ports import evaluation, full_port, parity, study, write_port

SUMMARY = {"ok": True, "logits": parity(0.0)["logits"], "limit": 1e-10, "source_rounding": 0.0}
SHIPPED = {
    "reference": "keras",
    "rel_l2": 0.23,
    "argmax_differ": 2,
    "images": 2,
    "dtypes": {"float64": SUMMARY},
}
GIVEN = {
    "reference": "the given model.py:build",
    "dtypes": {"float64": SUMMARY},
    "notes": ["it ran with its own weights"],
}


def contents_of(folder: Path, **changes: Any) -> Contents:
    return read_contents(write_port(folder, **changes))


def test_a_proof_names_its_reference_its_worst_node_and_its_logits(tmp_path: Path) -> None:
    stated = {**parity(1e-15, 6.6e-14, 0.0), "held": ["the file's tensors: held to h5py"]}
    said = conclude(contents_of(tmp_path / "port", parity=stated, check="passed"))
    assert (said.standing, said.word) == ("proved", "Proved")
    for words in (
        "same function as keras",
        "3 nodes",
        "stage0/conv1",
        "6.6e-14",
        "1.3e-14",
        "float64",
        "225×201",
        "The file's tensors: held to h5py.",
    ):
        assert words in said.sentence


def test_a_proof_by_a_reference_of_ones_own_says_so(tmp_path: Path) -> None:
    reference = {"file": "model.py", "sha256": "0" * 64, "maker": "build"}
    contents = contents_of(
        tmp_path / "port", parity=parity(1e-15, given=GIVEN), check="passed", reference=reference
    )
    assert "same function as keras and as the given model.py:build" in conclude(contents).sentence
    assert "It ran with its own weights." in warn(contents)
    assert any("code of the user’s own, which was run" in fact.text for fact in facts(contents.record))
    assert all("--reference model.py:build" in line for line in reproduce(contents, "port")[:2])


ARGMAX = [
    (True, False, "equal"),
    (False, False, "differs in a tie"),
    (False, True, "DIFFERS"),
    (None, False, None),
]


@pytest.mark.parametrize(("equal", "changed", "words"), ARGMAX)
def test_a_report_says_of_the_argmax_what_the_command_says(
    tmp_path: Path, equal: bool | None, changed: bool, words: str | None
) -> None:
    stated = parity(1e-15, top_changed=changed)
    stated["logits"] = {**stated["logits"], "argmax_equal": equal}
    contents = contents_of(tmp_path / "port", parity=stated, check="passed")
    assert contents.comparison is not None
    for said in (conclude(contents).sentence, parity_line(contents.comparison)):
        assert f", argmax {words}" in said if words else "argmax" not in said


def test_a_report_says_what_was_compared_at_cut_points(tmp_path: Path) -> None:
    stated = parity(1e-15, cut={"linear": 3, "others": 2, "inside": ["block1/pool"], "joined": 4})
    said = conclude(contents_of(tmp_path / "port", parity=stated, check="passed")).sentence
    assert (
        "At cut points: 5 of 10 nodes equal for random inputs of their own, 3 of them linear; "
        "4 together with those beside them; 1 inside the network only." in said
    )


def test_where_every_node_is_equal_none_is_called_the_worst(tmp_path: Path) -> None:
    said = conclude(contents_of(tmp_path / "port", parity=parity(0.0, 0.0), check="passed"))
    assert "2 nodes, all equal bit for bit" in said.sentence and "worst" not in said.sentence


@pytest.mark.parametrize(
    ("changes", "standing", "words"),
    [
        ({"check": "skipped: torchvision is not installed"}, "unproved", "torchvision is not installed"),
        (
            {"parity": parity(1e-15, reference="self"), "check": "agrees with porter's own build"},
            "unproved",
            "own build",
        ),
        ({"parity": parity(1e-15, reference="self"), "check": "passed"}, "unproved", "own build"),
        (
            {"parity": parity(1e-15, 1e-4), "check": "passed"},
            "differs",
            "stage0/conv1 is the first node that differs",
        ),
        ({"parity": parity(1e-15, None), "check": "passed"}, "differs", "not finite"),
        ({"parity": parity(1e-15, ok=False), "check": "passed"}, "differs", "does not compute"),
        (
            {"parity": parity(1e-15, given={**GIVEN, "dtypes": {"float64": {**SUMMARY, "ok": False}}})},
            "differs",
            "does not",
        ),
        (
            {"parity": parity(1e-15, shipped={**SHIPPED, "dtypes": {"float64": {**SUMMARY, "ok": False}}})},
            "differs",
            "does not",
        ),
    ],
)
def test_nothing_less_is_called_a_proof(
    changes: dict[str, Any], standing: str, words: str, tmp_path: Path
) -> None:
    said = conclude(contents_of(tmp_path / "port", **changes))
    assert said.standing == standing and words in said.sentence and said.word != "Proved"


def test_warnings_say_what_limits_the_port(tmp_path: Path) -> None:
    found = parity(1e-15, shipped=SHIPPED)
    contents = contents_of(
        tmp_path / "port", parity=found, check="passed", padding="trained", background=True
    )
    said = " ".join(warn(contents))
    for words in (
        "only at an input of 224×224",
        "trained with",
        "2.3e-01",
        "2 of 2 inputs",
        "background",
        "not for commercial use",
        "as before stem/pool, from a model exported to ONNX",
    ):
        assert words in said
    assert "ONNX" not in " ".join(
        warn(replace(contents, record=contents.record.model_copy(update={"framework": "onnx"})))
    )
    assert "The shipped pads were proved against keras." in conclude(contents).sentence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float16"}, "Compared with the weights of both sides rounded to float16"),
        (
            {"dtype": "bfloat16", "folded": {"a": "b"}},
            "Compared before the port's weights were rounded to bfloat16",
        ),
    ],
)
def test_a_proof_of_half_precision_says_that_it_leaves_the_rounding_out(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    assert words in " ".join(
        warn(contents_of(tmp_path / "port", parity=parity(1e-15), check="passed", **changes))
    )
    assert "rounded" not in " ".join(warn(contents_of(tmp_path / "unchecked", **changes)))
    assert "rounded" not in " ".join(
        warn(contents_of(tmp_path / "single", parity=parity(1e-15), check="passed"))
    )


def parsed(command: str) -> dict[str, Any]:
    """The parameters that porter takes a line for; a word that it does not know is an error."""
    program, name, *arguments = shlex.split(command)
    assert program == "porter"
    return dict(get_command(app).commands[name].make_context(name, arguments).params)  # type: ignore[attr-defined]


def test_the_commands_are_porters_own(tmp_path: Path) -> None:
    contents = read_contents(full_port(tmp_path / "my port"))
    lines = [line for line in reproduce(contents, "my port") if not line.startswith("porter study")]
    names = [shlex.split(line)[1] for line in lines]
    assert names == ["convert", "verify", "eval", "report"]
    given = [parsed(line) for line in lines]
    assert all(Path("my port") in (*found.values(), *(found.get("folders") or ())) for found in given)


def source(**changes: Any) -> dict[str, Any]:
    return {"source": {"file": "my weights.h5", "format": "keras-h5", "sha256": "ab" * 32, **changes}}


@pytest.mark.parametrize(
    ("changes", "weights"),
    [(source(), "my weights.h5"), (source(published=True), None), (source(format="port"), "PORT")],
    ids=["own", "published", "port"],
)
def test_the_commands_ask_for_weights_that_are_not_the_published_ones(
    changes: dict[str, Any], weights: str | None, tmp_path: Path
) -> None:
    contents = contents_of(tmp_path / "port", study=study().record(), **changes)
    lines = {shlex.split(line)[1]: line for line in reproduce(contents, "port")}
    assert "--port port" in lines.pop("study") and lines.pop("report")
    for line in lines.values():
        assert parsed(line)["weights"] == (weights and Path(weights))


@pytest.mark.parametrize(
    "changes",
    [
        {"output": "features", "classes": 0},
        {"preprocess": None},
        {"input": {"layout": "NCHW", "size": [160, 224], "native_size": [224, 224], "channels": 3}},
    ],
    ids=["features", "no protocol", "no square"],
)
def test_what_eval_refuses_is_not_suggested(changes: dict[str, Any], tmp_path: Path) -> None:
    contents = contents_of(tmp_path / "port", **changes)
    assert [shlex.split(line)[1] for line in reproduce(contents, "port")] == ["convert", "verify", "report"]
    assert [what for what, _ in missing_sections(contents, "port")] == ["The error of every node"]


def test_the_line_that_converts_again_has_every_option(tmp_path: Path) -> None:
    contents = contents_of(
        tmp_path / "port",
        **{
            "padding": "trained",
            "dtype": "float16",
            "background": True,
            "folded": {},
            "mapped": ["fc=head/logits"],
            "chosen": {"transform_input": False},
        },
        **{
            "variant": "; rm -rf ~",
            "input": {"layout": "NCHW", "size": [225, 201], "native_size": [224, 224], "channels": 3},
        },
    )
    found = parsed(convert(contents.record, "port"))
    wanted = {
        "subject": "; rm -rf ~",
        "source": "keras",
        "to": "torch",
        "padding": "trained",
        "input_size": "225x201",
    }
    assert {name: found[name] for name in wanted} == wanted
    assert (
        found["dtype"] == "float16" and found["keep_background"] and found["fold_bn"] and not found["stock"]
    )
    assert list(found["options"]) == ["transform_input=false"]
    assert list(found["mapped"]) == ["fc=head/logits"] and str(found["weights"]) == "weights.h5"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (
            {"framework": "tflite", "quantize": "dynamic"},
            {"to": "tflite", "quantize": "dynamic", "dtype": "float32"},
        ),
        ({"framework": "tflite", "dtype": "float16"}, {"to": "tflite", "quantize": None, "dtype": "float16"}),
        ({"framework": "flax", "dtype": "float16"}, {"to": "flax", "quantize": None, "dtype": "float16"}),
    ],
)
def test_the_line_that_converts_again_says_how_weights_are_rounded(
    changes: dict[str, Any], wanted: dict[str, Any], tmp_path: Path
) -> None:
    record = contents_of(tmp_path / "port").record.model_copy(update=changes)
    found = parsed(convert(record, "port"))
    assert {name: found[name] for name in wanted} == wanted


def test_the_line_that_evaluates_again_has_every_option(tmp_path: Path) -> None:
    run = evaluation(
        crops=10,
        precision="bf16",
        device="cuda",
        limit=500,
        labels="own.csv",
        real_labels="real.json",
        class_names="own.txt",
    )
    found = parsed(evaluate(contents_of(tmp_path / "port").record, "port", run))
    wanted = {"crops": 10, "precision": "bf16", "device": "cuda", "limit": 500, "labels": Path("own.csv")}
    wanted |= {"class_names": Path("own.txt"), "real_labels": Path("real.json")}
    wanted |= {"source": True, "data": Path("sample/val")}
    assert {name: found[name] for name in wanted} == wanted


def test_the_line_that_evaluates_names_the_recipes_without_the_source_too(tmp_path: Path) -> None:
    record = contents_of(tmp_path / "port", recipes="mine").record
    for run in (None, evaluation(source=None)):
        assert parsed(evaluate(record, "port", run))["recipes"] == Path("mine")


def test_the_line_that_studies_again_has_every_option(tmp_path: Path) -> None:
    record = contents_of(tmp_path / "port").record
    own = {"resize": "squash", "size": 96, "interpolation": "pil_box"}
    line = study_again(
        record, "port", replace(study(), limit=16, labels="real.json", class_names="own.txt", preprocess=own)
    )
    stated = "--crops 10 --preprocess resize=squash,size=96,interpolation=pil_box"
    assert line.endswith(
        f"--port port {stated} --limit 16 --labels real.json --class-names own.txt --data sample/val"
    )
    assert study_again(record, "port", None).endswith("--port port --data PATH")


def test_a_licence_with_the_word_nc_is_non_commercial() -> None:
    assert all(map(is_non_commercial, ("CC-BY-NC-4.0", "CC BY-NC 4.0")))
    assert not any(map(is_non_commercial, ("NCSA", "Apache-2.0", None)))


def test_a_port_that_computes_its_pads_is_made_so_again(tmp_path: Path) -> None:
    pad = {
        "site": "stem/conv",
        "source": "same",
        "realised": "pad same with 0, then valid",
        "kind": "dynamic pad layer",
        "why": "",
    }
    at_any = {"layout": "NCHW", "size": None, "native_size": [224, 224], "channels": 3}
    assert (
        parsed(convert(contents_of(tmp_path / "a", input=at_any, pads=[pad]).record, "a"))["input_size"]
        == "any"
    )
    assert parsed(convert(contents_of(tmp_path / "b", input=at_any).record, "b"))["input_size"] is None


def test_a_protocol_is_told_step_by_step() -> None:
    steps = steps_in_words(
        Preprocess(
            "squash",
            299,
            "tf1_bilinear",
            central_fraction=0.875,
            divide=127.5,
            mean=(1, 1, 1),
            channels="bgr",
        )
    )
    assert [step.split()[0] for step in steps] == [
        "Decode",
        "Keep",
        "Resize",
        "Reverse",
        "Divide",
        "Subtract",
    ]
    assert "87.5 %" in steps[1] and "299×299" in steps[2] and steps[-1] == "Subtract 1."
    cropped = Preprocess(
        "shorter_side", 256, "pil_bicubic", crop=224, crop_rounding="down", std=(0.229, 0.224, 0.225)
    )
    coloured = steps_in_words(cropped)
    assert (
        coloured[2] == "Keep the 224×224 pixels at the centre, rounded down."
        and coloured[3] == "Divide by 0.229, 0.224 and 0.225, channel by channel."
    )
    square = Preprocess("square", 224, "tf_bicubic", central_fraction=0.875, crop_rounding="up")
    kept = "Keep a square of 87.5 % of the shorter side at the centre, rounded up, and resize it to 224×224"
    assert len(steps := steps_in_words(square)) == 2 and steps[1].startswith(kept)
    assert protocol_in_words(square).startswith("central square of 87.5% 224x224 by TensorFlow's bicubic")
    assert input_in_words(square, 224, 224) == "224x224: cut to a square of 87.5%, resized to 224x224"
