"""`porter compare` of small networks from several hands."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

import porter
import porter.testing
from porter.comparison.comparison_result import Comparison
from porter.comparison.found_difference import FoundDifference
from porter.comparison.judging import decide, stated_differences
from porter.comparison.junit import write_junit
from porter.verification.numbers import distance
from tests.support.fixtures import Cli
from tests.support.refusals import refused

SIZE = 24
CODE = """
import torch
from torch import nn


class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.entry = nn.Conv2d(3, 8, 3, 2, 1)
        self.deep = nn.Conv2d(8, 8, 3, 1, 1, bias=False)
        self.deep_norm = nn.BatchNorm2d(8, eps=EPSILON)
        self.out = nn.Conv2d(8, 5, 1)

    def forward(self, image):
        value = nn.functional.max_pool2d(torch.relu(self.entry(image)), POOL)
        value = ACTIVATION(self.deep_norm(self.deep(value))) + value
        return self.out(value.mean((2, 3), keepdim=True)).flatten(1)


def build():
    model = Mine()
    model.load_state_dict(torch.load(PATH, weights_only=True))
    return model
"""
RIGHT = {"EPSILON": "1e-5", "POOL": "3, 2, 1", "ACTIVATION": "torch.relu"}


class Theirs(nn.Module):
    """A network with a norm behind each convolution, and a dense head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        value = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(image))), 3, 2, 1)
        value = value + torch.relu(self.bn2(self.conv2(value)))
        return torch.as_tensor(self.fc(value.mean((2, 3))))


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    torch.manual_seed(0)
    model = Theirs()
    for norm in (model.bn1, model.bn2):
        norm.weight.data.uniform_(0.5, 1.5)
        norm.bias.data.normal_(0, 0.3)
        norm.load_state_dict(
            {**norm.state_dict(), "running_mean": torch.randn(8) / 4, "running_var": torch.rand(8) + 0.4}
        )
    return model.eval()


@pytest.fixture(scope="module")
def onnx_file(theirs: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network as another program's file would be: no port.json is beside it."""
    folder = tmp_path_factory.mktemp("onnx")
    porter.convert(theirs, to="onnx", input_size=SIZE, out=folder / "port", check=False)
    return (folder / "port" / "model.onnx").rename(folder / "net.onnx")


def write_code(path: Path, theirs: Any, change: Any = None, **words: str) -> Path:
    """Somebody's rewrite of the network, whose first norm is in its convolution."""
    fused = torch.nn.utils.fusion.fuse_conv_bn_eval(theirs.conv1, theirs.bn1).state_dict()
    state = {f"entry.{name}": tensor for name, tensor in fused.items()}
    state |= {f"deep.{name}": tensor for name, tensor in theirs.conv2.state_dict().items()}
    state |= {f"deep_norm.{name}": tensor for name, tensor in theirs.bn2.state_dict().items()}
    state |= {"out.weight": theirs.fc.weight.data[:, :, None, None], "out.bias": theirs.fc.bias.data}
    torch.save(state if change is None else change(state), path.with_suffix(".pth"))
    text = CODE.replace("PATH", repr(str(path.with_suffix(".pth"))))
    for name, word in (RIGHT | words).items():
        text = text.replace(name, word)
    path.write_text(text)
    return path


def test_a_rewrite_by_another_hand_is_the_same_function(
    cli: Cli, theirs: nn.Module, onnx_file: Path, tmp_path: Path
) -> None:
    code = write_code(tmp_path / "mine.py", theirs)
    ran = cli("compare", str(onnx_file), f"{code}:build", "--json", "--junit", str(tmp_path / "report.xml"))
    assert ran.status == 0, ran.out + ran.err
    record = json.loads(ran.out)
    assert record["ok"] and record["verdict"] == "same" and record["differences"] == []
    assert record["nodes"] == {"paired": 8, "only_a": [], "only_b": []}
    assert record["parity"]["rel_l2"] <= 1e-6 and record["parity"]["argmax_equal"]
    assert any("equal to rounding to float32 only" in note for note in record["notes"])
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("1", "0")


def rolled(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.roll(1, 0) if name.startswith("out.") else tensor for name, tensor in state.items()}


MISTAKES = {"EPSILON": "1e-3", "POOL": "3, 2, 1, ceil_mode=True", "ACTIVATION": "nn.functional.gelu"}


def test_all_mistakes_of_a_port_are_named_in_one_run(
    cli: Cli, theirs: nn.Module, onnx_file: Path, tmp_path: Path
) -> None:
    code = write_code(tmp_path / "mine.py", theirs, rolled, **MISTAKES)
    ran = cli("compare", str(onnx_file), f"{code}:build", "--layers", "--junit", str(tmp_path / "report.xml"))
    assert ran.status == 1
    lines = ran.out.splitlines()
    assert lines[0] == "A and B differ: 4 differences"
    assert [line.split()[0] for line in lines[1:5]] == ["padding", "epsilon", "activation", "labels"]
    assert "epsilon 1e-05, 0.001" in lines[2] and "B's label 0 is A's 4" in lines[4]
    assert (
        any(re.match(r"layer1|relu|conv2", line) for line in lines)
        and "apart for the same numbers" in ran.out
    )
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("5", "5")


def test_a_test_fails_with_the_differences_and_a_page_draws_them(
    theirs: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Theirs().eval()
    other.load_state_dict(theirs.state_dict())
    other.fc.bias.data += 0.5
    found = porter.compare(theirs, other, input_size=SIZE)
    shown = found._repr_html_()
    assert (
        "<script" not in found.report(tmp_path / "<b>.html").read_text()
        and shown in (tmp_path / "<b>.html").read_text()
    )
    assert shown.count("background") == 1 and shown.count("<tr") == 1 + len(found.layers) == 9
    assert re.search(r'<tr style="background:#ffebe9"><td>fc</td><td>fc</td><td>dense</td>', shown)
    monkeypatch.setattr(porter.testing, "compare", lambda a, b: found)
    with pytest.raises(AssertionError, match=r"other weights at 1 layer\n  bias +fc: another bias"):
        porter.testing.assert_same(theirs, other)


def test_layers_have_the_names_that_each_model_gives_them() -> None:
    torch.manual_seed(0)
    stages = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Sequential(nn.Conv2d(4, 4, 3)))
    image = torch.zeros(1, 3, 16, 16)
    wrong = copy.deepcopy(stages)
    with torch.no_grad():
        wrong[1][0].bias += 1.0  # type: ignore[index]  # modules have no types
    (found,) = porter.compare(stages.eval(), wrong.eval(), example=image).differences
    assert (found.kind, found.a, found.b) == ("bias", "1.0", "1.0") and "1.0" in found.text


def test_a_port_has_the_proof_in_its_record(theirs: nn.Module, tmp_path: Path) -> None:
    porter.convert(theirs, to="torch", input_size=SIZE, out=tmp_path / "proved", fold_bn=True)
    same = porter.compare(tmp_path / "proved", theirs, input_size=SIZE)
    assert same.ok and "port.json" in same.proofs[0].words
    porter.convert(theirs, to="torch", input_size=SIZE, out=tmp_path / "unproved", check=False)
    undecided = porter.compare(tmp_path / "unproved", theirs, input_size=SIZE)
    assert undecided.verdict == "undecided" and not undecided.ok and undecided.differences == ()
    assert "A is not proved: its check was" in str(undecided)


class Padded(nn.Module):
    """A convolution that pads as TensorFlow does an even map."""

    def __init__(self, ends: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.ends = nn.Conv2d(3, 4, 3, 2), ends

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.conv(nn.functional.pad(image, self.ends)).mean((2, 3)))


def test_pads_are_compared_for_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last window of an even map does not reach its pad, so that only odd ones show the difference."""
    monkeypatch.setattr("porter.comparison.compare._USUAL", (SIZE, SIZE))
    one, other = (Padded(ends).eval() for ends in ((1, 1, 1, 1), (1, 0, 1, 0)))
    found = porter.compare(one, other, input_size="any")
    assert found.verdict == "differs" and [each.kind for each in found.differences] == ["padding"]
    assert found.size == "any size: pads at every one, the rest at 24x24 and 57x42"


class Unreadable(nn.Module):
    """A network with an operator that porter has no op for."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.scale * torch.fft.fft2(image).abs().mean((2, 3))


def test_what_cannot_be_read_is_compared_at_outputs_only() -> None:
    undecided = porter.compare(Unreadable(1.0), Unreadable(1.0), input_size=SIZE)
    assert undecided.verdict == "undecided" and undecided.parity is not None and undecided.parity.rel_l2 == 0
    assert "A cannot be read" in undecided.summary and "B cannot be read" in undecided.summary
    differs = porter.compare(Unreadable(1.0), Unreadable(1.1), input_size=SIZE)
    assert differs.verdict == "differs" and "the outputs are 1.0e-01 apart" in str(differs)


def test_an_activation_at_the_end_is_part_of_the_function(theirs: nn.Module) -> None:
    found = porter.compare(nn.Sequential(theirs, nn.Softmax(1)).eval(), theirs, input_size=SIZE)
    assert found.verdict == "differs" and found.parity is not None and found.parity.rel_l2 == 0
    assert [(each.kind, each.text) for each in found.differences] == [
        ("missing", "A ends in a softmax, B in none; what comes before it is compared")
    ]


def test_names_that_xml_has_no_characters_for_are_escaped(tmp_path: Path) -> None:
    difference = FoundDifference("bias", None, None, "a\x1b\uffff<b>: another bias", None)
    found = Comparison("caf\udce9.onnx", "b", "differs", (difference,), None)
    write_junit(tmp_path / "report.xml", found)
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert suite.attrib["name"] == r"caf\udce9.onnx and b"
    failure = suite.findall("testcase/failure")[1]
    assert failure.attrib["message"] == r"a\x1b\uffff<b>: another bias"
    assert failure.text is not None and failure.text.count("\n") == str(found).count("\n") > 0


def test_names_of_classes_that_differ_are_told() -> None:
    def opened(*names: str, rows: int = 2, format: str = "onnx") -> Any:
        facts = SimpleNamespace(activation=None, class_names=names, source_classes=rows, classes=2)
        return SimpleNamespace(facts=facts, file=SimpleNamespace(format=format))

    assert [each.text for each in stated_differences(opened("cat", "dog"), opened("dog", "cat"))] == [
        "class 0 is 'cat' in A, 'dog' in B"
    ]
    assert [each.kind for each in stated_differences(opened("cat"), opened("cat", "dog"))] == ["labels"]
    assert [*stated_differences(opened("cat"), opened())] == [], "one of them states none"
    assert [each.text[:20] for each in stated_differences(opened(rows=3), opened())] == [
        "A has 3 rows, B 2: t"
    ]
    assert [*stated_differences(opened(rows=3), opened(format="port"))] == [], (
        "the port of a file lacks its background"
    )


def test_layers_that_differ_where_no_output_does_decide_nothing() -> None:
    zero, one = torch.zeros(1, 3).numpy(), torch.ones(1, 3).numpy()
    found = [FoundDifference("activation", "relu", "relu", "relu: high inf, 6", 0.5, ("relu", "relu"))]
    assert decide(found, distance(one, one), [])[0] == "undecided"
    assert decide(found, distance(one, zero), [])[0] == "differs"
    assert decide(found, distance(one, one * 1.00001), [])[0] == "differs"
    assert decide(found, distance(one, one * 1.00001), [], rounded=True)[0] == "undecided", (
        "it may be rounding"
    )
    assert decide([], distance(one, one), [])[0] == "same"
    for each in ([], found):
        assert decide(each, distance(one, zero), ["A is not proved: no reason"])[0] == "undecided"
    assert decide([], distance(one, zero), [])[0] == "undecided", (
        "the graphs are equal and the outputs are not"
    )
    assert decide([], None, [])[0] == "undecided"


def test_wrong_arguments_say_what_to_type(
    cli: Cli, theirs: nn.Module, onnx_file: Path, tmp_path: Path
) -> None:
    code = write_code(tmp_path / "mine.py", theirs)
    refused(cli("compare", str(onnx_file), str(code)), "code needs the name", f"write {code}:CALLABLE")
    refused(
        cli("compare", str(onnx_file), str(tmp_path / "mien.py")),
        "there is no such file",
        "did you mean 'mine.py'?",
    )
    refused(
        cli("compare", f"{code}:build", f"{code}:build"),
        "does not say the size of its input",
        "--input-size N",
    )
    refused(
        cli("compare", str(onnx_file), f"{code}:biuld"), "the code has no 'biuld'", "did you mean 'build'?"
    )
    for tolerance in (math.nan, 0.0, 1e9):
        with pytest.raises(porter.UsageError, match="expected a number above 0 and below 1, got"):
            porter.compare(onnx_file, onnx_file, tolerance=tolerance)
    with pytest.raises(
        porter.UsageError, match=r"expected a file, a port or FILE.py:CALLABLE, a torch.nn.Module"
    ):
        porter.compare(onnx_file, 3)
