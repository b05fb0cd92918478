"""`porter convert --into`: tensors into classes of other frameworks and hands, and the converters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import porter
from porter.comparison.transfer import fill as fill_module
from tests.support.comparison.into_pairs import PAIRS, Pair, filled, run_apart
from tests.support.fixtures import Cli
from tests.support.refusals import refused

SIZE = 24
CODE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, epsilon=1e-5, pad=1):
        super().__init__()
        self.layer = nn.Conv2d(8, 8, 3, padding=pad, bias=False)
        self.norm = nn.BatchNorm2d(8, eps=epsilon)

    def forward(self, value):
        return torch.relu(self.norm(self.layer(value))) + value[..., : value.shape[-1]]


class Mine(nn.Module):
    \"\"\"Its first norm is in its convolution, its head is a convolution; it has zeros and ones only.\"\"\"

    def __init__(self, pool=1, last=torch.relu, **block):
        super().__init__()
        self.entry = nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = nn.ModuleList([Block(), Block(**block)])
        self.out = nn.Conv2d(8, 5, 1)
        self.pool, self.last = pool, last
        for tensor in self.parameters():
            nn.init.ones_(tensor)

    def forward(self, image):
        value = nn.functional.max_pool2d(torch.relu(self.entry(image)), 3, 2, self.pool)
        for block in self.blocks:
            value = block(value)
        return self.out(self.last(value).mean((2, 3), keepdim=True)).flatten(1)


def build():
    return Mine()


def other_epsilon():
    return Mine(epsilon=1e-3)


def other_pool():
    return Mine(pool=0)


def other_activation():
    return Mine(last=nn.functional.gelu)


def longer():
    made = Mine()
    made.blocks.append(Block())
    return made


def number():
    return 3
"""


class Theirs(nn.Module):
    """A norm behind each convolution, and a dense head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.conv3, self.bn3 = nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        value = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(image))), 3, 2, 1)
        value = value + torch.relu(self.bn2(self.conv2(value)))
        value = value + torch.relu(self.bn3(self.conv3(value)))
        return torch.as_tensor(self.fc(torch.relu(value).mean((2, 3))))


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    torch.manual_seed(0)
    model = Theirs()
    for norm in (model.bn1, model.bn2, model.bn3):
        norm.weight.data.uniform_(0.5, 1.5)
        norm.bias.data.normal_(0, 0.3)
        norm.load_state_dict(
            {**norm.state_dict(), "running_mean": torch.randn(8) / 4, "running_var": torch.rand(8) + 0.4}
        )
    return model.eval()


@pytest.fixture(scope="module")
def program(theirs: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network as a file that carries its graph."""
    path = tmp_path_factory.mktemp("program") / "net.pt2"
    torch.export.save(torch.export.export(theirs, (torch.zeros(2, 3, SIZE, SIZE),)), path)
    return path


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("code") / "mine.py"
    path.write_text(CODE)
    return path


def test_a_class_is_filled_and_proved_and_its_converter_gives_the_same(
    cli: Cli, theirs: nn.Module, program: Path, code: Path, tmp_path: Path
) -> None:
    ran = cli("convert", str(program), "--into", f"{code}:build", "--out", str(tmp_path / "out"), "--json")
    assert ran.status == 0, ran.out + ran.err
    record = json.loads(ran.out)
    assert record["comparison"]["verdict"] == "same" and record["converter"] == "convert_mine.py"
    assert record["tensors"]["filled"] == 2 and record["kept"] == [], "two counters of batches"
    assert {each.name for each in (tmp_path / "out").iterdir()} == {
        "model.safetensors",
        "source.safetensors",
        "into.json",
        "convert_mine.py",
        "test_convert_mine.py",
    }
    table = {row["name"]: row for row in json.loads((tmp_path / "out" / "into.json").read_text())["tensors"]}
    assert (
        table["entry.weight"]["how"].startswith("folded_kernel(") and len(table["entry.weight"]["from"]) == 3
    )
    assert table["out.weight"]["how"] == "source['fc.weight'][:, :, None, None]"
    apart = run_apart(tmp_path / "out")
    assert apart.returncode == 0, apart.stderr
    text = (tmp_path / "out" / "convert_mine.py").read_text()
    assert "for block in range(2):" in text or "for conv in range(2, 4):" in text
    spoiled = text.replace(".running_mean", ".running_var", 1)
    (tmp_path / "out" / "convert_mine.py").write_text(spoiled)
    assert run_apart(tmp_path / "out").returncode != 0, "the test of a converter fails where it is wrong"


MISTAKES = {
    "other_epsilon": "epsilon 1e-05, 0.001",
    "other_pool": "padding: ",
    "other_activation": "activation: ",
    "longer": "extra: A lacks blocks",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_class_that_computes_something_else_is_refused_with_the_reason(
    cli: Cli, program: Path, code: Path, tmp_path: Path, name: str
) -> None:
    ran = cli("convert", str(program), "--into", f"{code}:{name}", "--out", str(tmp_path / "out"))
    assert ran.status == 1 and not (tmp_path / "out").exists()
    said = ran.err.replace("  ", " ")
    assert MISTAKES[name].replace(": ", " ") in said.replace(": ", " "), ran.err
    assert "Mine: A and B differ" in ran.err and "no file was written" in ran.err


def test_a_model_in_memory_is_filled_in_place_or_stays_as_it_is(theirs: nn.Module) -> None:
    names: dict[str, Any] = {}
    exec(CODE, names)
    right, wrong = names["build"]().eval(), names["other_epsilon"]().eval()
    before = {name: tensor.clone() for name, tensor in wrong.state_dict().items()}
    filled: Any = porter.convert(theirs, into=right, input_size=SIZE)
    assert filled.model() is right and "def convert(source):" in filled.converter() and filled.warnings == ()
    assert filled.comparison.ok and str(filled).endswith("A and B are the same function at 24x24")
    assert not isinstance(filled, porter.Port) and not {"verify", "save", "verdict"} & {*dir(filled)}
    image = torch.rand(2, 3, SIZE, SIZE)
    with torch.no_grad():
        assert torch.allclose(right(image), theirs(image), atol=1e-5)
    with pytest.raises(porter.CheckFailed, match="A and B differ"):
        porter.convert(theirs, into=wrong, input_size=SIZE)
    assert all(torch.equal(tensor, before[name]) for name, tensor in wrong.state_dict().items())


def test_a_model_in_memory_stays_as_it_is_where_its_folder_cannot_be_put_in_place(
    theirs: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    exec(CODE, names)
    model = names["build"]().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    # another program makes a folder there meanwhile
    monkeypatch.setattr(fill_module, "_write", lambda *_: (tmp_path / "out").mkdir())
    with pytest.raises(porter.UsageError):
        porter.convert(theirs, into=model, input_size=SIZE, out=tmp_path / "out")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


SMALL = (
    "timm vit into transformers",
    "transformers vit into timm",
    "torch flatten into keras",
    "keras flatten into torch",
)


@pytest.mark.parametrize("name", SMALL)
def test_layers_are_split_joined_and_turned(name: str, tmp_path: Path) -> None:
    port = filled(PAIRS[name], tmp_path / "out")
    apart = run_apart(port.folder)
    assert apart.returncode == 0, apart.stderr


def test_keras_loads_the_state_of_its_class(tmp_path: Path) -> None:
    pair = PAIRS["torch flatten into keras"]
    port, fresh = filled(pair, tmp_path / "out"), pair.target()
    fresh.load_weights(port.folder / "model.weights.h5")
    image = np.random.default_rng(0).normal(size=(1, 16, 16, 3)).astype("float32")
    assert np.array_equal(np.asarray(fresh(image)), np.asarray(port.model()(image)))


def small_of_nnx() -> Any:
    from flax import nnx

    class Small(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            convs = [nnx.Conv(before, 8, (3, 3), padding=1, rngs=rngs) for before in (3, 8)]
            self.convs, self.head = nnx.List(convs), nnx.Linear(8, 5, rngs=rngs)
            self.norm = nnx.BatchNorm(8, use_running_average=True, epsilon=1e-5, rngs=rngs)

        def __call__(self, value: Any) -> Any:
            for conv in self.convs:
                value = nnx.relu(conv(value))
            return self.head(self.norm(value).mean((1, 2)))

    return Small(nnx.Rngs(0))


def small_of_torch() -> Any:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()]
    norm = nn.BatchNorm2d(8)
    norm.load_state_dict(
        {**norm.state_dict(), "running_mean": torch.randn(8) / 4, "running_var": torch.rand(8) + 0.4}
    )
    return nn.Sequential(*layers, norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()


def test_a_module_of_flax_is_filled_and_loads_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flax")
    import safetensors.numpy
    from flax import nnx

    from porter.frameworks.flax.own_state import LOADING

    port = filled(Pair(small_of_torch, small_of_nnx, 16), tmp_path / "out")
    apart = run_apart(port.folder)
    assert apart.returncode == 0, apart.stderr
    fresh = small_of_nnx()
    monkeypatch.chdir(port.folder)
    exec(LOADING, {"model": fresh, "nnx": nnx, "safetensors": safetensors})
    image = np.random.default_rng(0).normal(size=(1, 16, 16, 3)).astype("float32")
    assert np.array_equal(np.asarray(fresh(image)), np.asarray(port.model()(image)))


def test_what_an_h5_file_holds_is_read_by_the_converter_itself(tmp_path: Path) -> None:
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    steps = [
        layers.Conv2D(4, 3, padding="same", activation="relu", name="stem"),
        layers.GlobalAveragePooling2D(),
    ]
    keras.Sequential([keras.Input((16, 16, 3)), *steps, layers.Dense(5, name="head")]).save(
        tmp_path / "net.h5"
    )
    target = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    )
    port: Any = porter.convert(tmp_path / "net.h5", into=target.eval(), out=tmp_path / "out")
    assert "import h5py" in port.converter() and not (port.folder / "source.safetensors").exists()
    apart = run_apart(port.folder)
    assert apart.returncode == 0, apart.stderr


REFUSED: dict[str, tuple[str, str]] = {
    "mine.py:number": ("number() gives a int", "let it return the model"),
    "mine.py:biuld": ("the code has no 'biuld'", "did you mean 'build'?"),
    "nowhere.Net": ("'nowhere' cannot be imported", "FILE.py:CALLABLE"),
    "torch.nn.Linaer": ("torch.nn has no 'Linaer'", "did you mean 'Linear'?"),
    "torch.nn.Linear": ("Linear() raises TypeError", "without arguments"),
    "word": ("'word' names no class", "FILE.py:CALLABLE"),
}


@pytest.mark.parametrize("into", REFUSED)
def test_wrong_classes_say_what_to_type(cli: Cli, program: Path, code: Path, into: str) -> None:
    given = f"{code.parent}/{into}" if ".py" in into else into
    refused(cli("convert", str(program), "--into", given), *REFUSED[into])


def test_a_class_that_is_imported_is_run_as_that_of_a_file(
    cli: Cli, program: Path, code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = code.read_text().replace("return Mine()", "print('made'); return Mine()")
    (tmp_path / "talking_code.py").write_text(f"print('imported')\n{text}")
    (tmp_path / "leaving_code.py").write_text("raise SystemExit(0)")
    (tmp_path / "leaving_later.py").write_text("def build():\n    raise SystemExit(0)\n")
    words = ("convert", str(program), "--out", str(tmp_path / "out"), "--json", "--into")
    ran = cli(*words, "talking_code.build")
    assert ran.status == 0 and json.loads(ran.out)["comparison"]["verdict"] == "same"
    refused(cli(*words[:-2], "--into", "leaving_code.build"), "cannot be imported: SystemExit", "FILE.py")
    refused(cli(*words[:-2], "--into", "leaving_later.build"), "build() raises SystemExit", "FILE.py")


def test_options_of_ports_do_not_stand_beside_it(cli: Cli, program: Path, code: Path) -> None:
    refused(
        cli("convert", str(program), "--into", f"{code}:build", "--to", "tf"),
        "takes the class as it is",
        "leave out --to",
    )
    refused(
        cli("convert", str(program), "--into", f"{code}:build", "--card"),
        "writes no port",
        "leave out --card",
    )
    refused(cli("convert", str(program)), "--to is missing", "add --to FRAMEWORK, or --into FILE.py:CALLABLE")


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PAIRS)
def test_every_pair_is_proved_and_its_converter_gives_the_same(name: str, tmp_path: Path) -> None:
    port: Any = filled(PAIRS[name], tmp_path / "out")
    assert port.comparison.verdict == "same"
    apart = run_apart(port.folder)
    assert apart.returncode == 0, apart.stderr
