"""References that a user gives: code of their own, or another file of the same weights."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

import porter
from porter.base.errors import PorterError, UsageError
from porter.files import digest
from porter.padding.sizes import InputSizes
from porter.port import ReferenceFile, StoredPort, read_port
from porter.recipe import find_recipe
from porter.source.open import open_source
from porter.source.opened import Opened
from porter.source.place import find
from porter.source.reopening import reopen_source
from porter.verification.check import Check
from porter.verification.proving import prove_against
from porter.verification.references.user_code import load_maker, model_of_code
from porter.verification.references.user_reference import UserReference, parse_reference
from porter.verification.verdict import Verdict
from tests.support.fixtures import Cli
from tests.support.refusals import refused

RECIPE = """\
architecture: mine
variants: {mine: {width: 8}}
options: {classes: 5, bn_epsilon: 1.0e-5}
input: {size: 32}
graph:
  - {conv: stem/conv, filters: =width, kernel: 3, stride: 2, pad: 1}
  - {batch_norm: stem/norm}
  - {relu: stem/relu}
  - {max_pool: stem/pool, kernel: 3, stride: 2, pad: 1}
  - {conv: body/conv, filters: 12, kernel: 3, stride: 2, pad: 1}
  - {relu: body/relu}
  - {global_avg_pool: head/pool}
  - {dense: head/logits, units: =classes}
zoos:
  own:
    framework: torch
    names: {stem/conv: conv1, stem/norm: bn1, body/conv: layer.0, head/logits: fc}
"""

NETWORK = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, pad=1, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.layer = nn.Sequential(nn.Conv2d(8, 12, 3, stride=2, padding=pad, bias=False), nn.ReLU())
        self.fc = nn.Linear(12, classes)

    def forward(self, x):
        return self.fc(self.layer(self.pool(self.relu(self.bn1(self.conv1(x))))).mean((2, 3)))
"""

MODEL = """\
import torch
from torch import nn
from network import Net  # a neighbour

NUMBER, INSTANCE = 5, Net()


class With(Net):
    def __init__(self, end, size=None):
        super().__init__()
        self.end, self.size = end, size

    def forward(self, x):
        assert self.size is None or x.shape[2:] == (self.size, self.size), "another size"
        return self.end(super().forward(x))


def aloud():
    print("text of the user's code")
    return Net()


def wrong_pad():
    return Net(pad=0)


def other_head():
    return Net(classes=7)


def softmaxed():
    return With(lambda x: x.softmax(1))


def log_softmaxed():
    return With(lambda x: x.log_softmax(1))


def single():
    return With(lambda x: torch.from_numpy(x.numpy(force=True).astype("float32")))


def single_inside():
    net = Net()
    single = lambda output: torch.from_numpy(output.numpy(force=True).astype("float32"))
    net.conv1.register_forward_hook(lambda layer, inputs, output: single(output))
    net.bn1.register_forward_pre_hook(lambda layer, inputs: inputs[0].to(layer.weight.dtype))
    return net


def fixed():
    return With(lambda x: x, size=32)


def broken():
    return With(lambda x: x.reshape(3, 7))


def doubled():
    return With(lambda x: (x, x))


def with_another_layer_of_a_nodes_name(layer=nn.Identity):
    net = Net()
    net.stem = nn.ModuleDict({"relu": layer()})
    net.register_forward_hook(lambda module, inputs, output: output + 0 * net.stem["relu"](inputs[0]).sum())
    return net


def with_an_unknown_layer_of_a_nodes_name():
    return with_another_layer_of_a_nodes_name(nn.Tanh)


def renamed():
    net = Net()
    net.first = net.conv1
    return net


def number():
    return 5


def needs_more(what):
    return what
"""

KERAS = """\
import keras


def build(activation=None):
    image = keras.Input((20, 20, 3))
    value = keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu", name="stem")(image)
    value = keras.layers.BatchNormalization(name="norm")(value)
    value = keras.layers.GlobalAveragePooling2D(name="pool")(value)
    return keras.Model(image, keras.layers.Dense(6, activation=activation, name="out")(value))


class Coded(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = build()

    def call(self, images):
        return self.net(images)


def coded():
    model = Coded()
    model.net.load_weights(FILE)
    return model


def loaded():
    return keras.models.load_model(FILE)
"""


@dataclass(frozen=True)
class Mine:
    """A network of somebody's own in a folder: its code, recipe and weights; its opened source, and a port of
    it.
    """

    folder: Path
    opened: Opened
    port: StoredPort

    def verdict(self, reference: str) -> Verdict:
        given = parse_reference(str(self.folder / reference))
        return prove_against(Check(self.port), self.opened, given)[0]


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Mine:
    import torch

    folder = tmp_path_factory.mktemp("mine")
    (folder / "recipes").mkdir()
    (folder / "recipes" / "mine.yaml").write_text(RECIPE)
    files = {
        "network.py": NETWORK,
        "model.py": MODEL,
        "syntax.py": "def build(:\n",
        "ends.py": "import sys\n\nsys.exit(3)\n",
    }
    files["base.py"] = "class Over(BaseException):\n    pass\n\n\ndef build():\n    raise Over('all')\n"
    for name, text in {**files, "lacking.py": "import tensorflow\n"}.items():
        (folder / name).write_text(text)
    (folder / "loop.py").symlink_to("loop.py")
    torch.manual_seed(0)
    net = load_maker(folder / "network.py", "Net")()
    net(torch.rand(8, 3, 32, 32))  # calibrates the norm
    for tensor in net.bn1.parameters():
        tensor.data += 0.1 * torch.randn_like(tensor)
    torch.save(net.state_dict(), folder / "mine.pth")
    recipes, weights = folder / "recipes", folder / "mine.pth"
    port = porter.convert(
        "mine", "own", "torch", weights=weights, out=folder / "port", recipes=recipes, check=False
    ).port
    recipe = find_recipe("mine", recipes)
    return Mine(folder, open_source(find(weights), member=recipe.member("mine", "own")), port)


def test_the_authors_code_proves_a_port_that_nothing_else_proves(
    mine: Mine, cli: Cli, tmp_path: Path
) -> None:
    given = ("--weights", mine.folder / "mine.pth", "--recipes", mine.folder / "recipes")
    reference = ("--reference", mine.folder / "model.py:aloud")
    ran = cli("convert mine --from own --to torch", *given, *reference, "--out", "port")
    assert ran.status == 0 and "the given model.py:aloud ran with the tensors of mine.pth" in ran.out
    assert (
        "float64: same function as the given model.py:aloud at" in ran.out
        and "text of the user's code" in ran.err
    )
    record = read_port(tmp_path / "port").record
    assert record.proved and record.reference is not None and record.parity is not None
    assert record.reference.model_dump() == {
        "file": "model.py",
        "sha256": digest(mine.folder / "model.py"),
        "maker": "aloud",
    }
    assert str(mine.folder / "model.py") not in (tmp_path / "port" / "port.json").read_text()
    assert {"stem/conv", "stem/norm", "body/conv"} <= {node["path"] for node in record.parity["nodes"]}
    assert "the same function as the given model.py:aloud" in Path(cli("report port").out.strip()).read_text()
    refused(cli("verify port", *given), "only porter's own build of the source in torch is left")
    found = json.loads(cli("verify port", *given, *reference, "--float64", "--json").out)
    assert found["ok"] and found["dtype"] == "float64" and found["reference"] == "the given model.py:aloud"


def test_a_wrong_reference_is_found_at_the_node_where_it_starts(mine: Mine, cli: Cli) -> None:
    given = ("--weights", mine.folder / "mine.pth", "--recipes", mine.folder / "recipes")
    reference = ("--reference", mine.folder / "model.py:wrong_pad")
    words = (
        "not the function of the given model.py:wrong_pad: body/conv is the first node that differs",
        "no port was written",
    )
    refused(cli("convert mine --from own --to torch", *given, *reference), *words, status=1)
    ran = cli("verify", mine.port.folder, *given, *reference, "--json")
    found = json.loads(ran.out)
    assert (ran.status, found["ok"], found["first_bad"]["path"]) == (1, False, "body/conv")


ACCEPTED = {
    "model.py:softmaxed": "the logarithms of the probabilities are compared",
    "model.py:log_softmaxed": "ends in a log_softmax, which the port lacks",
    "model.py:single": "runs in float32 only",
    "model.py:single_inside": "runs in float32 only",
    "model.py:with_another_layer_of_a_nodes_name": (
        "names are other layers of the port, and are not compared: stem/relu ("
    ),
}


@pytest.mark.parametrize("reference", ACCEPTED)
def test_a_reference_of_another_form_is_compared_and_that_is_said(reference: str, mine: Mine) -> None:
    found = mine.verdict(reference)
    assert found.ok and found.proof.proves and found.user_proof is not None
    assert any(ACCEPTED[reference] in note for note in found.user_proof.notes)
    assert all(len(compared.nodes) >= 4 for compared in found.user_proof.parities)


def test_it_is_compared_at_the_sizes_that_it_takes(mine: Mine) -> None:
    assert len(mine.verdict("network.py:Net").proof.sizes) > 1
    assert mine.verdict("model.py:fixed").proof.sizes == ((32, 32),)


def test_a_file_of_one_size_is_not_tried_at_another(mine: Mine) -> None:
    def shown(batch: Any, dtype: Any, paths: Any) -> NoReturn:
        raise AssertionError("it ran, and runtimes fail in ways of their own")

    file = ReferenceFile(file="mine.onnx", sha256="0" * 64, maker=None)
    reference = UserReference(
        "the given mine.onnx", file, mine.opened.graph, InputSizes((32, 32), (32, 32)), shown
    )
    assert reference.takes((32, 32)) and not reference.takes((97, 128))


def test_code_whose_names_are_not_the_files_keeps_its_own_weights(mine: Mine) -> None:
    found = mine.verdict("model.py:renamed")
    assert not found.ok
    assert (
        "with the weights that the code gives it, because the file has no 'first.weight'" in found.failure()
    )


REFUSED = {
    "model.py": ("needs the name", "model.py:CALLABLE"),
    "nowhere.py:build": ("no such file",),
    "nowhere.keras": ("no such file",),
    "model.py:Nett": ("has no 'Nett'", "did you mean 'Net'?"),
    "model.py:NUMBER": ("cannot be called",),
    "model.py:INSTANCE": ("is a model", "def build(): return INSTANCE"),
    "model.py:number": ("number() gives a int, expected a torch.nn.Module, a keras.Model or an nnx.Module",),
    "model.py:needs_more": ("TypeError: needs_more() missing 1 required positional argument",),
    "model.py:other_head": ("fc.weight: the reference has shape (7, 12), the file (5, 12)",),
    "model.py:doubled": ("expected 1 outputs, as the source gives, got 2",),
    "model.py:broken": ("model.py:56: RuntimeError: shape '[3, 7]' is invalid", "this is your own code"),
    "syntax.py:build": ("syntax.py:1: SyntaxError",),
    "ends.py:build": ("ends.py:3: SystemExit: 3",),
    "base.py:build": ("base.py:6: Over: all", "this is your own code"),
    "loop.py:build": ("loop.py",),
    "lacking.py:build": ("lacking.py:1: ModuleNotFoundError", "pip install"),
    "mine.pth": ("this torch file carries no graph", "FILE.py:CALLABLE", "as a .pt2 of torch", "files.md"),
}


@pytest.mark.parametrize("reference", REFUSED)
def test_mistakes_are_told_as_the_users(reference: str, mine: Mine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # not installed
    with pytest.raises(PorterError) as caught:
        mine.verdict(reference)
    assert caught.value.status == 2
    for word in REFUSED[reference]:
        assert word in str(caught.value)


def test_a_layer_that_the_port_has_nowhere_is_a_mistake_or_another_layers_name(mine: Mine) -> None:
    verdict = mine.verdict("model.py:with_an_unknown_layer_of_a_nodes_name")
    assert not verdict.ok
    assert "stem/relu is the first node that differs" in verdict.failure()
    assert (
        "the outputs are equal: if this layer of the reference is not the port's, give it another name"
        in verdict.failure()
    )


def test_a_reference_needs_the_check(mine: Mine, cli: Cli) -> None:
    given = (
        "--weights",
        mine.folder / "mine.pth",
        "--recipes",
        mine.folder / "recipes",
        "--reference",
        mine.folder / "model.py:aloud",
    )
    refused(
        cli("convert mine --from own --to torch", *given, "--no-check"),
        "--no-check",
        "leave out --reference or --no-check",
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights in several files, and in a file with one number changed."""
    import keras

    folder = tmp_path_factory.mktemp("exported")
    (folder / "model.py").write_text(f"FILE = {str(folder / 'net.keras')!r}\n{KERAS}")
    keras.utils.set_random_seed(0)
    build: Any = load_maker(folder / "model.py", "build")
    net, whole = build(), build("softmax")
    whole.set_weights(net.get_weights())
    whole.save(folder / "net.keras")
    net.save_weights(folder / "net.weights.h5")
    whole.export(folder / "net", verbose=False)
    kernel = whole.get_layer("norm").gamma
    kernel.assign(kernel * 1.001)
    whole.save(folder / "other.keras")
    return folder


SAME = ("net", "model.py:build", "model.py:loaded", "model.py:coded")
"""References of one function, each of which shows all of its nodes."""


def test_a_model_that_cannot_be_put_in_inference_mode_is_told_of_its_code(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    code = """\
import torch

class Net(torch.nn.Module):
    def eval(self):
        return super().train(False).missing
"""
    (tmp_path / "model.py").write_text(code)
    with pytest.raises(UsageError, match="AttributeError: 'Net' object has no attribute 'missing'") as caught:
        model_of_code(tmp_path / "model.py", "Net")
    assert caught.value.where == f"{tmp_path / 'model.py'}:5"
    assert caught.value.next == "this is your own code, which porter runs"


def test_another_export_and_keras_code_prove_a_port(exported: Path, tmp_path: Path) -> None:
    file = exported / "net.keras"
    port = porter.convert(file, to="torch", out=tmp_path / "port", check=False).port
    opened = reopen_source(port, file, None)

    def verdict(reference: str) -> Verdict:
        return prove_against(Check(port), opened, parse_reference(str(exported / reference)))[0]

    for reference in SAME:
        found = verdict(reference)
        assert found.ok and found.parities[-1].reference == "the file's own graph", found.failure()
        shown = [len(parity.nodes) for parity in found.user_proof.parities] if found.user_proof else []
        assert shown == 2 * [5], reference
    bad = verdict("other.keras").proof.first_bad
    assert bad is not None and bad.path == "norm"
