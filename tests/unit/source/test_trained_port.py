"""The way home: a port's graph and facts with the tensors of what was trained in its model."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import layers
from safetensors.torch import load_file, save_file

import porter
from porter.base.errors import ChecksumError, MappingError
from porter.port import AGREES, read_port
from porter.reporting.command_lines import convert as convert_again
from tests.support.arrays import Array
from tests.support.fixtures import Cli, SlimMaker, WeightsMaker
from tests.support.refusals import refused
from tests.support.slim_files import SlimFile

pytestmark = pytest.mark.usefixtures("in_double")

NAMES = ("rose", "lily", "tulip", "daisy", "iris")
PROTOCOL = "resize=squash,size=32,interpolation=tf_bilinear"


def flowers() -> Any:
    """A norm without a scale, and pixels that are scaled in the model."""
    keras.utils.set_random_seed(0)
    image = keras.Input((32, 32, 3))
    value = layers.Rescaling(1 / 127.5, offset=-1)(image)
    value = layers.Conv2D(8, 3, strides=2, padding="same", name="stem", use_bias=False)(value)
    value = layers.BatchNormalization(name="norm", scale=False)(value)
    value = layers.GlobalAveragePooling2D(name="pool")(layers.ReLU(name="act")(value))
    model = keras.Model(image, layers.Dense(len(NAMES), name="kinds")(value))
    random = np.random.default_rng(0)
    model.get_layer("norm").set_weights(
        [random.normal(0, 0.3, 8), random.normal(0, 0.1, 8), random.uniform(0.3, 1, 8)]
    )
    return model


def pixels(seed: int, count: int = 8) -> Array:
    return np.random.default_rng(seed).uniform(0, 255, (count, 32, 32, 3)).astype(np.float32)


def trained_in_torch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> torch.nn.Module:
    """Three steps of training of the port's own model.py."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    from model import load  # type: ignore[import-not-found]

    torch.manual_seed(0)
    network: torch.nn.Module = load().train()
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
    for step in range(3):
        optimiser.zero_grad()
        logits = network(torch.from_numpy(pixels(step)).permute(0, 3, 1, 2))
        torch.nn.functional.cross_entropy(logits, torch.arange(8) % len(NAMES)).backward()
        optimiser.step()
    return network.eval()


def trained_in_keras(folder: Path) -> Any:
    model = keras.models.load_model(folder / "model.keras")
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(pixels(3, 24), np.arange(24) % len(NAMES), batch_size=8, verbose=0)
    return model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the Keras model, its port to torch, and tuned.pth of that."""
    folder = tmp_path_factory.mktemp("flowers")
    flowers().save(folder / "flowers.keras")
    (folder / "names.txt").write_text("\n".join(NAMES))
    given: dict[str, Any] = {"preprocess": PROTOCOL, "class_names": folder / "names.txt", "check": False}
    porter.convert(folder / "flowers.keras", to="torch", out=folder / "flowers-torch", **given)
    with pytest.MonkeyPatch.context() as patch:
        torch.save(trained_in_torch(folder / "flowers-torch", patch).state_dict(), folder / "tuned.pth")
        patch.delitem(sys.modules, "model")
    yield folder


def expect_facts_kept(conversion: porter.Ported, check: str = "passed") -> None:
    record = conversion.port.record
    assert record.check == check and record.class_names == NAMES
    assert record.origin is not None and record.origin.by == "graph" and not record.twins
    assert record.preprocess is not None and (record.preprocess.resize, record.preprocess.size) == (
        "squash",
        32,
    )


def rel_l2(got: Array, wanted: Array) -> float:
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def test_tensors_in_a_folder_of_the_hub_are_found_again_with_their_port(made: Path, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    shutil.copytree(made / "flowers-torch", hub / "port")
    (hub / "config.json").write_text("{}")
    save_file(torch.load(made / "tuned.pth"), hub / "model.safetensors")
    porter.convert(hub / "port", to="tf", weights=hub, out=tmp_path / "home", check=False)
    assert porter.verify(tmp_path / "home", weights=hub).ok


def test_keras_to_torch_to_keras_to_torch_with_training_between(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = pixels(9)
    network = trained_in_torch(made / "flowers-torch", monkeypatch)
    home = porter.convert(made / "flowers-torch", to="tf", weights=made / "tuned.pth", out=tmp_path / "tf")
    expect_facts_kept(home)
    assert any(node.op_name == "batch_norm" and node.op.scale for node in home.port.graph.nodes)  # type: ignore[union-attr]
    with torch.inference_mode():
        wanted = network(torch.from_numpy(batch).permute(0, 3, 1, 2)).numpy()
    got = np.asarray(porter.load(tmp_path / "tf")(batch))
    assert rel_l2(got, wanted) <= 1e-5
    assert [
        layer.name
        for layer in keras.models.load_model(tmp_path / "tf" / "model.keras").layers
        if layer.weights
    ] == [
        "stem",
        "norm",
        "kinds",
    ]

    model = trained_in_keras(tmp_path / "tf")
    wanted = np.asarray(model(batch, training=False))
    assert rel_l2(wanted, got) > 1e-3  # training has moved it
    for name, save in {"k.keras": model.save, "k.weights.h5": model.save_weights, "k.h5": model.save}.items():
        save(tmp_path / name)
        again = porter.convert(
            tmp_path / "tf", to="torch", weights=tmp_path / name, out=tmp_path / f"{name}-torch"
        )
        expect_facts_kept(again)
        with torch.inference_mode():
            found = porter.load(tmp_path / f"{name}-torch")(
                torch.from_numpy(batch).permute(0, 3, 1, 2)
            ).numpy()
        assert rel_l2(found, wanted) <= 1e-5


def test_the_record_names_both_files_and_verify_finds_the_port_again(
    made: Path, tmp_path: Path, cli: Cli
) -> None:
    porter.convert(made / "flowers-torch", to="onnx", weights=made / "tuned.pth", out=tmp_path / "home")
    source = json.loads((tmp_path / "home" / "port.json").read_text())["source"]
    first = read_port(made / "flowers-torch").record
    assert source["file"] == "tuned.pth" and source["format"] == "torch"
    assert source["graph"] == {
        "file": "flowers-torch",
        "format": "port",
        "sha256": first.model["model.safetensors"],
    }
    assert cli("verify", tmp_path / "home", "--weights", made / "tuned.pth").status == 0
    line = convert_again(read_port(tmp_path / "home").record, "home")
    assert line.startswith("porter convert flowers-torch --to onnx --weights tuned.pth --out home")
    shutil.copy(made / "tuned.pth", tmp_path / "tuned.pth")
    refused(
        cli("verify", tmp_path / "home", "--weights", tmp_path / "tuned.pth"),
        "put flowers-torch beside tuned.pth",
    )


def test_a_port_to_onnx_gives_the_graph_as_well(made: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"preprocess": PROTOCOL, "class_names": made / "names.txt", "check": False}
    porter.convert(made / "flowers.keras", to="onnx", out=tmp_path / "onnx", **given)
    # Nothing says which code the tensors were trained in: the port's own model is an ONNX one.
    expect_facts_kept(
        porter.convert(tmp_path / "onnx", to="tf", weights=made / "tuned.pth", out=tmp_path / "tf"), AGREES
    )
    home = porter.convert(
        tmp_path / "onnx", to="torch", weights=made / "flowers.keras", out=tmp_path / "torch"
    )
    expect_facts_kept(home)


def changed(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[dict[str, torch.Tensor], str]]:
    """Files that are not the port's model, each with a word of the refusal."""
    less = {name: held for name, held in state.items() if name != "norm.bias"}
    return {
        "less": (less, "the file lacks norm.bias"),
        "more": ({**state, "extra.weight": torch.ones(3)}, "the port's model has no extra.weight"),
        "misshapen": (
            {**state, "stem.weight": torch.ones(8, 3, 5, 5)},
            "stem.weight is 8x3x5x5 where stem needs 8x3x3x3",
        ),
        "diverged": (
            {**state, "kinds.bias": torch.full((5,), torch.nan)},
            "5 of 5 values in tensor 'kinds.bias' are NaN",
        ),
        "half a head": ({**state, "kinds.weight": torch.ones(7, 8)}, "kinds.bias is 5 where kinds needs 7"),
    }


@pytest.mark.parametrize("kind", ["less", "more", "misshapen", "diverged", "half a head"])
def test_all_tensors_are_taken_or_none(kind: str, made: Path, tmp_path: Path, cli: Cli) -> None:
    tensors, said = changed(torch.load(made / "tuned.pth"))[kind]
    torch.save(tensors, tmp_path / "other.pth")
    refused(
        cli(
            "convert",
            made / "flowers-torch",
            "--weights",
            tmp_path / "other.pth",
            "--to",
            "tf",
            "--out",
            tmp_path / "no",
        ),
        said,
    )
    assert not (tmp_path / "no").exists()


def test_a_wrapped_state_dict_and_safetensors_are_read(made: Path, tmp_path: Path) -> None:
    state = torch.load(made / "tuned.pth")
    torch.save(
        {"epoch": 1, "state_dict": {f"module.{name}": held for name, held in state.items()}},
        tmp_path / "wrapped.pth",
    )
    save_file(state, tmp_path / "tuned.safetensors")
    ports = [
        porter.convert(
            made / "flowers-torch", to="torch", weights=tmp_path / name, out=tmp_path / name.split(".")[0]
        )
        for name in ("wrapped.pth", "tuned.safetensors")
    ]
    for conversion in ports:
        expect_facts_kept(conversion)
    assert ports[0].port.record.model == ports[1].port.record.model


def test_a_folder_of_the_hub_is_named_as_its_file(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file(torch.load(made / "tuned.pth"), folder / "model.safetensors")
    home = porter.convert(made / "flowers-torch", to="tf", weights=folder, out=tmp_path / "tf", check=False)
    assert home.port.record.source.file == "model.safetensors"


def test_weights_of_another_graph_in_the_port_are_not_its_own(made: Path, tmp_path: Path) -> None:
    """Weights do not say which graph they are of, so that of the port's file has to be porter's."""
    port = tmp_path / "tf"
    porter.convert(made / "flowers.keras", to="tf", out=port, check=False)
    model = keras.models.load_model(port / "model.keras")
    model.save_weights(tmp_path / "own.weights.h5")
    given: dict[str, Any] = {"to": "torch", "weights": tmp_path / "own.weights.h5"}
    assert porter.convert(port, out=tmp_path / "own", **given).port.record.check == "passed"
    config = model.get_config()
    next(layer for layer in config["layers"] if layer["name"] == "stem")["config"]["padding"] = "valid"
    changed = keras.Model.from_config(config)
    changed.set_weights(model.get_weights())
    changed.save(port / "model.keras")
    with pytest.raises(ChecksumError, match="not the file that porter wrote") as unlike:
        porter.convert(port, out=tmp_path / "no", **given)
    assert "model.save('FILE.keras')" in str(unlike.value.next)


def test_another_head_loses_the_names_of_the_classes(made: Path, tmp_path: Path) -> None:
    state = torch.load(made / "tuned.pth")
    torch.save(
        {**state, "kinds.weight": torch.randn(7, 8), "kinds.bias": torch.randn(7)}, tmp_path / "seven.pth"
    )
    home = porter.convert(
        made / "flowers-torch", to="tf", weights=tmp_path / "seven.pth", out=tmp_path / "tf"
    )
    record = home.port.record
    assert (record.classes, record.labels, record.class_names, record.check) == (7, None, (), "passed")
    assert any("the head has 7 classes, and that of flowers-torch 5" in warning for warning in home.warnings)
    assert record.preprocess is not None


def test_trained_tensors_in_the_port_itself_have_a_line_that_works(
    made: Path, tmp_path: Path, cli: Cli
) -> None:
    folder = tmp_path / "flowers-torch"
    shutil.copytree(made / "flowers-torch", folder)
    save_file(torch.load(made / "tuned.pth"), folder / "model.safetensors")
    line = f"porter convert {folder} --weights {folder / 'model.safetensors'} --to tf"
    refused(cli("verify", folder, "--weights", made / "flowers.keras"), line, status=1)
    assert cli(*line.split()[1:], "--out", tmp_path / "tf").status == 0
    assert cli("verify", tmp_path / "tf", "--weights", folder / "model.safetensors").status == 0
    with (folder / "model.py").open("a") as code:
        code.write("\n")
    refused(cli(*line.split()[1:], "--out", tmp_path / "no"), "model.py", "torch.export", status=1)


def test_inspect_names_the_line_where_the_port_is_beside(made: Path, tmp_path: Path, cli: Cli) -> None:
    line = f"porter convert {made / 'flowers-torch'} --weights {made / 'tuned.pth'} --to tf"
    assert line in cli("inspect", made / "tuned.pth").out
    refused(cli("convert", made / "tuned.pth", "--to", "tf"), line)
    shutil.copy(made / "tuned.pth", tmp_path / "tuned.pth")
    assert (
        f"porter convert PORT --weights {tmp_path}/tuned.pth --to FRAMEWORK"
        in cli("inspect", tmp_path / "tuned.pth").out
    )
    assert "--weights" not in cli("inspect", made / "flowers.keras").out  # the port was made from it


def test_ports_of_other_shapes_are_left_out_and_of_twins_each_is_named(
    made: Path, tmp_path: Path, cli: Cli
) -> None:
    shutil.copy(made / "tuned.pth", tmp_path)
    for name, change in {"again": {}, "twin": {"padding": "valid"}, "wide": {"kernel_size": (5, 5)}}.items():
        config = flowers().get_config()
        next(layer for layer in config["layers"] if layer["name"] == "stem")["config"].update(change)
        keras.Model.from_config(config).save(tmp_path / f"{name}.keras")
        porter.convert(tmp_path / f"{name}.keras", to="torch", out=tmp_path / name, check=False)
    porter.convert(tmp_path / "again.keras", to="tf", out=tmp_path / "above", check=False)  # is first by name
    found = porter.inspect(tmp_path / "tuned.pth")
    assert [Path(line.split()[2]).name for line in found.commands] == ["again", "twin"]
    assert found.tuned is None and "their graphs differ" in str(found.problem)
    assert "is         the model of a port, with tensors" in cli("inspect", tmp_path / "tuned.pth").out
    refused(cli("convert", tmp_path / "tuned.pth", "--to", "tf"), *found.commands)
    shutil.rmtree(tmp_path / "twin")
    found = porter.inspect(tmp_path / "tuned.pth")
    assert (found.tuned, found.problem) == (tmp_path / "again", None)


def test_a_keras_file_with_layers_of_its_own_is_not_the_ports_model(made: Path, tmp_path: Path) -> None:
    porter.convert(made / "flowers.keras", to="tf", out=tmp_path / "tf", check=False)
    model = keras.models.load_model(tmp_path / "tf" / "model.keras")
    # The tensors are the port's, and the function is another.
    inner = keras.Model(
        model.input, model.get_layer("kinds")(keras.ops.square(model.get_layer("pool").output))
    )
    inner.save(tmp_path / "squared.keras")
    with pytest.raises(porter.base.errors.PorterError) as caught:
        porter.convert(tmp_path / "tf", to="torch", weights=tmp_path / "squared.keras", out=tmp_path / "no")
    assert caught.value.code == "contradiction"
    other = keras.Model(model.input, layers.Dense(3, name="more")(model.output))
    other.save(tmp_path / "more.keras")
    with pytest.raises(MappingError, match="the port's model has no more/kernel, more/bias") as unfit:
        porter.convert(tmp_path / "tf", to="torch", weights=tmp_path / "more.keras", out=tmp_path / "no")
    assert f'porter.convert("{tmp_path / "more.keras"}", to="torch"' in str(unfit.value.next)


def test_a_variants_background_row_comes_home(slim_file: SlimMaker, tmp_path: Path) -> None:
    weights = slim_file(SlimFile("mobilenet_v1_0.25"))
    given: dict[str, Any] = {"weights": weights, "keep_background": True, "check": False}
    first = porter.convert("mobilenet_v1_0.25", "slim", "torch", out=tmp_path / "torch", **given).port
    state = load_file(tmp_path / "torch" / "model.safetensors")
    save_file(
        {name: held * 1.01 if held.is_floating_point() else held for name, held in state.items()},
        tmp_path / "t.safetensors",
    )
    home = porter.convert(
        tmp_path / "torch", to="tf", weights=tmp_path / "t.safetensors", out=tmp_path / "tf", check=False
    )
    assert home.port.record.background and home.port.record.classes == 1001
    for fact in ("variant", "zoo", "labels", "preprocess", "background", "classes"):
        assert getattr(home.port.record, fact) == getattr(first.record, fact)
    assert first.record.label_of(0) == home.port.record.label_of(0)


def test_a_variant_comes_home_from_a_stock_class(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file("mobilenet_v2_0.35", "torchvision", ".pth", 10)
    given: dict[str, Any] = {"check": False}
    stock = porter.convert(
        "mobilenet_v2_0.35",
        "torchvision",
        "torch",
        weights=weights,
        out=tmp_path / "stock",
        stock=True,
        **given,
    ).port
    model = tmp_path / "stock" / "model.safetensors"
    porter.convert(tmp_path / "stock", to="tf", weights=model, out=tmp_path / "tf", **given)
    # The names are those of a port to Keras, in a port to torch.
    keras_file = tmp_path / "tf" / "model.keras"
    again = porter.convert(
        tmp_path / "stock", to="torch", weights=keras_file, out=tmp_path / "torch", stock=True, **given
    )
    wanted, found = stock.tensors(), again.port.tensors()
    for path, roles in wanted.items():
        for role in roles.keys() - {"batches"}:  # which Keras does not count
            assert np.array_equal(found[path][role], roles[role]), (path, role)
