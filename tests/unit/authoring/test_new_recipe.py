"""`porter recipe new --from-model`: a draft runs as it stands."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

import porter
from porter.authoring.draft.draft import draft_recipe
from porter.authoring.new_recipe import new_recipe
from porter.formats.reading import read_checkpoint, read_with_digests
from porter.graph import Add, BatchNorm, Conv, Graph, Node, Op, Relu
from porter.graph.blocks.find_blocks import find_blocks
from porter.padding import Convention, Window
from porter.source.own_graph import open_graph
from porter.verification.references.user_code import load_maker
from tests.support.fixtures import Cli
from tests.support.recipe.recipes import VALID, write
from tests.support.refusals import refused
from tests.support.weights_files import published_like
from tests.unit.frameworks.torch.test_code import loaded_from

pytestmark = pytest.mark.usefixtures("in_double")

LAYERS = keras.layers


def inverted_residuals() -> keras.Model:
    """Blocks under MobileNetV2's names, whose sums Keras numbers, and a head that is a convolution."""
    image = keras.Input((32, 32, 3))
    value = LAYERS.Conv2D(8, 3, strides=2, padding="same", use_bias=False, name="Conv1")(image)
    value = LAYERS.BatchNormalization(name="bn_Conv1")(value)
    for number, (filters, strides) in enumerate([(8, 1), (8, 1), (16, 2), (16, 1)], 1):
        entry = value
        value = LAYERS.Conv2D(4 * entry.shape[-1], 1, use_bias=False, name=f"block_{number}_expand")(value)
        value = LAYERS.ReLU(6.0, name=f"block_{number}_expand_relu")(
            LAYERS.BatchNormalization(name=f"block_{number}_expand_BN")(value)
        )
        if strides == 2:
            value = LAYERS.ZeroPadding2D(((0, 1), (0, 1)))(value)
        pads = "valid" if strides == 2 else "same"
        value = LAYERS.DepthwiseConv2D(
            3, strides=strides, padding=pads, use_bias=False, name=f"block_{number}_depthwise"
        )(value)
        value = LAYERS.Conv2D(filters, 1, use_bias=False, name=f"block_{number}_project")(value)
        value = LAYERS.Add()([entry, value]) if entry.shape == value.shape else value
    value = LAYERS.GlobalAveragePooling2D(keepdims=True)(value)
    value = LAYERS.Flatten()(LAYERS.Conv2D(7, 1, name="logits")(value))
    return keras.Model(image, LAYERS.Activation("softmax")(value))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keras.utils.clear_session()  # other tests may have numbered layers before
    keras.utils.set_random_seed(0)
    path = tmp_path_factory.mktemp("drafting") / "mine.keras"
    inverted_residuals().save(path)
    return path


def test_a_draft_ports_the_file_that_it_is_of(
    saved: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli(
        "recipe new mine --from-model",
        str(saved),
        "--out",
        "recipes/mine.yaml",
        "--weights",
        str(saved),
        "--json",
    )
    made = json.loads(ran.out)
    assert ran.status == 0, ran.out
    assert made["blocks"] == {"block": 4} and made["tensors"]["used"] == 35 and made["lines"] < 45
    text = (tmp_path / "recipes" / "mine.yaml").read_text()
    assert (
        "pad: [0, 1, 0, 1]" in text
        and '"block{b}/expand": "block_{b}_expand"' in text
        and "activation: softmax" in text
    )
    ported = json.loads(cli(*shlex.split(made["next"])[1:], "--check", "--json").out)
    assert ported["parity"]["ok"] and ported["variant"] == "mine" and ported["zoo"] == "own"
    refused(cli("recipe new mine --from-model", str(saved), "--out", "recipes/mine.yaml"), "this file exists")
    again = cli(
        "recipe new mine --from-model",
        str(saved),
        "--out",
        "recipes/mine.yaml",
        "--zoo",
        "ours",
        "--overwrite",
    )
    assert "mine from ours" in again.out and "porter convert mine --from ours --to torch" in again.out
    tensors = dict(read_checkpoint(saved).tensors)
    kernel = next(name for name, array in tensors.items() if array.ndim == 4)
    save_file({**tensors, kernel: np.zeros((3, 3, 3, 5), np.float32)}, "other.safetensors")
    other = (
        "recipe",
        "new",
        "third",
        "--from-model",
        str(saved),
        "--out",
        "third.yaml",
        "--weights",
        "other.safetensors",
    )
    tried = cli(*other)
    assert (
        tried.status == 2
        and "next     porter recipe check third.yaml --weights other.safetensors" in tried.out
    )
    (place,) = re.findall(r"\((\S+):\d+:\d+\)", tried.out)[:1] or [None]
    assert Path(str(place)) == Path("third.yaml") and Path("third.yaml").is_file(), tried.out


TAKEN = {
    "a/b": "'a/b' cannot be a name in a recipe",
    "3d": "'3d' cannot be a name in a recipe",
    "resnet50": "resnet_v1.yaml has it",
    "tiny_wide": "the name 'tiny_wide' is taken: tiny.yaml has it",
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_draft_has_a_name_of_its_own(name: str, saved: Path, cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, VALID)
    before = sorted(tmp_path.rglob("*"))
    refused(cli("recipe new", name, "--from-model", str(saved), "--out", "new.yaml"), "NAME: ", TAKEN[name])
    refused(
        cli("recipe new mine --from-model", str(saved), "--zoo", "my zoo"), "--zoo: 'my zoo' cannot be a name"
    )
    assert sorted(tmp_path.rglob("*")) == before


NETWORK = """\
from torch import nn


def unit(reads, filters):
    conv = nn.Conv2d(reads, filters, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(filters), nn.ReLU())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.units = nn.Sequential(unit(3, 8), unit(8, 8), unit(8, 16), unit(16, 16))
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(self.units(x).mean((2, 3)))
"""


def test_weights_alone_give_a_draft_that_the_authors_code_proves(cli: Cli, tmp_path: Path) -> None:
    """Nothing in the draft needs a change here: the network is a chain, as the draft is."""
    import torch

    (tmp_path / "network.py").write_text(NETWORK)
    torch.manual_seed(0)
    net = load_maker(tmp_path / "network.py", "Net")()
    net(torch.rand(8, 3, 32, 32))  # calibrates the norms
    torch.save(net.state_dict(), tmp_path / "mine.pth")
    ran = cli("recipe new mine --weights mine.pth --out own/mine.yaml --json")
    made = json.loads(ran.out)
    assert made["blocks"] == {"units": 4} and made["tensors"]["used"] == 26 and made["lines"] < 35
    checked = cli(*shlex.split(made["next"])[1:])
    assert checked.status == 0 and checked.out.count("to decide: ") == made["to_do"] == 5
    assert "own/mine.yaml:8:" in checked.out and "the size that the network was trained at" in checked.out
    given = (
        "--weights",
        "mine.pth",
        "--recipes",
        "own",
        "--reference",
        "network.py:Net",
        "--input-size",
        "32",
    )
    ported = cli("convert mine --from own --to torch", *given)
    assert "float64: same function as the given network.py:Net" in ported.out, ported.err


SCALED = """
import torch

class Unit(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.gamma = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Parameter(torch.rand(4))

    def forward(self, x):
        return x + self.conv(x) * self.gamma.reshape(1, -1, 1, 1)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.units, self.fc = torch.nn.Sequential(*(Unit() for _ in range(3))), torch.nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(self.units(x).mean((2, 3))).log_softmax(1)
"""


def test_trained_scales_that_no_layer_holds_have_names(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "network.py").write_text(SCALED)
    net = load_maker(tmp_path / "network.py", "Net")().eval()
    torch.save(net.state_dict(), tmp_path / "mine.pth")
    torch.export.save(torch.export.export(net, (torch.rand(1, 4, 8, 8),)), tmp_path / "mine.pt2")
    ran = cli("recipe new mine --from-model mine.pt2 --weights mine.pth --json")
    assert json.loads(ran.out)["tensors"]["used"] == 11, ran.err
    text = (tmp_path / "mine.yaml").read_text()
    assert '{name: "units.{u}", tensor: gamma}' in text and "activation: log_softmax" in text
    given = ("--weights", "mine.pth", "--recipes", ".", "--reference", "network.py:Net")
    ported = cli("convert mine --from own --to tf", *given)
    assert "float64: same function as the given network.py:Net" in ported.out, ported.err


def test_a_draft_needs_a_file_whose_names_say_something(cli: Cli, tmp_path: Path) -> None:
    np.savez(tmp_path / "numbers.npz", first=np.zeros((3, 3), np.float32))
    refused(cli("recipe new mine"), "drafted from a file", "--weights FILE")
    np.savez(
        tmp_path / "headless.npz",
        allow_pickle=False,
        **{"conv.weight": np.zeros((4, 3, 3, 3), np.float32), "conv.bias": np.zeros(4, np.float32)},
    )
    ran = cli("recipe new mine --weights headless.npz")
    assert (
        ran.status == 0 and "  problem  the graph ends in" in ran.out and (tmp_path / "mine.yaml").is_file()
    )
    refused(
        cli("recipe new mine --weights numbers.npz --overwrite"),
        "no tensor's name says what its layer is",
        "--tensors",
    )


@pytest.mark.usefixtures("one_recipe")
def test_a_port_without_a_recipe_has_blocks(saved: Path, tmp_path: Path) -> None:
    """model.py has a class for them, the paths show them, and port.json says what the file calls its
    layers.
    """
    made = porter.convert(saved, to="torch", out=tmp_path / "port", check=True)
    assert made.verdict is not None and made.verdict.ok
    text = (tmp_path / "port" / "model.py").read_text()
    assert text.count("class Block") == 1 and len(text.splitlines()) < 75
    record = made.port.record
    assert record.names["block3/expand"] == "block_3_expand" and record.names["Conv1"] == "Conv1"
    assert "block4.project.weight" in load_file(tmp_path / "port" / "model.safetensors")
    image = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    models = loaded_from(tmp_path / "port").load().double(), porter.load(tmp_path / "port").double()
    with torch.no_grad():
        torch.testing.assert_close(models[0](image), models[1](image), rtol=1e-12, atol=1e-12)
    assert porter.verify(tmp_path / "port", weights=saved).ok


def test_a_port_of_an_older_porter_has_the_names_of_its_file(saved: Path) -> None:
    """It records no names, and its paths are the file's."""
    checkpoint = read_checkpoint(saved)
    opened = open_graph(checkpoint, names={})
    assert "block_3_expand" in opened.graph.by_path and not opened.graph.scopes


@pytest.mark.usefixtures("one_recipe")
def test_a_keras_port_has_the_layers_of_its_file(saved: Path, tmp_path: Path) -> None:
    porter.convert(saved, to="tf", out=tmp_path / "port", check=False)
    model = keras.models.load_model(tmp_path / "port" / "model.keras")
    assert {"block_3_expand", "block_3_expand_BN", "logits"} <= {layer.name for layer in model.layers}


def test_a_draft_that_says_another_graph_is_refused(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*given: Any) -> Any:
        draft = draft_recipe(*given)
        text = re.sub(r"stride: 2", "stride: 1", draft.text, count=1)
        assert text != draft.text
        return replace(draft, text=text)

    monkeypatch.setattr("porter.authoring.new_recipe.draft_recipe", mistaken)
    with pytest.raises(porter.Contradiction, match="says another graph than the file"):
        new_recipe("mistaken", tmp_path / "mistaken.yaml", saved)
    assert not (tmp_path / "mistaken.yaml").exists()


def test_a_draft_names_a_recipe_that_has_a_part_of_the_file(tmp_path: Path) -> None:
    whole = read_with_digests(published_like(tmp_path, "squeezenet1_1", "torchvision")).tensors
    save_file(dict(list(whole.items())[: len(whole) * 2 // 5]), tmp_path / "part.safetensors")
    new_recipe("own", tmp_path / "own.yaml", weights=tmp_path / "part.safetensors")
    assert "38% of the tensors fit squeezenet1_1" in (tmp_path / "own.yaml").read_text()


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    "layers",
    [
        [LAYERS.AveragePooling2D(16), LAYERS.Flatten()],
        [LAYERS.MaxPooling2D(16), LAYERS.Flatten()],
        [LAYERS.AveragePooling2D(8), LAYERS.Flatten()],
        [LAYERS.Flatten()],
    ],
    ids=["a pool of the whole map", "a largest of the whole map", "a pool of parts", "the map itself"],
)
def test_the_line_after_a_draft_ports_a_file_of_one_size(
    layers: list[keras.Layer], cli: Cli, tmp_path: Path
) -> None:
    first = [
        keras.Input((32, 32, 3)),
        LAYERS.Conv2D(8, 3, strides=2, padding="same", name="stem"),
        LAYERS.ReLU(),
    ]
    keras.Sequential([*first, *layers, LAYERS.Dense(5, name="fc")]).save(tmp_path / "net.keras")
    recipe = tmp_path / "recipes" / "mine.yaml"
    ran = cli("recipe new mine --from-model", tmp_path / "net.keras", "--out", recipe, "--json")
    assert ran.status == 0, ran.err
    ported = json.loads(
        cli(*shlex.split(json.loads(ran.out)["next"])[1:], "--out", tmp_path / "port", "--json").out
    )
    assert ported["parity"]["ok"] and ported["variant"] == "mine" and ported["input"]["size"] == [32, 32]


def test_blocks_have_the_names_of_layers_with_tensors_where_sums_and_activations_have_others() -> None:
    """As of a Caffe net whose authors named its convolutions from 0 on, and whose converter named the
    rest.
    """
    nodes, names, before = list[Node](), dict[str, str](), "input"

    def add(name: str, op: Op, *inputs: str) -> str:
        nodes.append(Node(f"n{len(nodes)}", op, inputs))
        names[nodes[-1].path] = name
        return nodes[-1].path

    for stage in range(2):
        for block in range(3):
            own, others = f"stage{stage}_block{block}_branch2", f"stage{stage + 1}_unit{block + 1}"
            entry = (
                before
                if block
                else add(f"stage{stage}_block{block}_branch1", Conv(3, Window((1, 1)), Convention()), before)
            )
            value = add(f"{own}a", Conv(3, Window((1, 1)), Convention()), before)
            value = add(f"{others}_relu1", Relu(), add(f"{own}a_scale", BatchNorm(1e-5, 0.1), value))
            value = add(f"{own}b", Conv(3, Window((3, 3)), Convention("same")), value)
            joined = add(f"{others}_add", Add(), entry, add(f"{own}b_scale", BatchNorm(1e-5, 0.1), value))
            before = add(f"{others}_relu", Relu(), joined)
    found = find_blocks(Graph(tuple(nodes), 3, before), names)
    assert {scope.path for scope in found.graph.scopes} == {
        f"stage{stage}/block{block}" for stage in range(2) for block in range(3)
    }
    assert {scope.block for scope in found.graph.scopes} == {
        "block"
    } and "stage0/block1/branch2b" in found.paths
