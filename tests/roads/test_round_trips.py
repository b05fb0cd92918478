"""There and back again: every tensor that both sides represent comes back bit for bit."""

from pathlib import Path

import numpy as np
import pytest
import torch

import porter
from porter.formats.reading import read_checkpoint
from porter.frameworks.dialects import get_dialect
from porter.port import read_port
from porter.recipe import find_recipe, layer_names
from porter.source.open import open_source
from porter.source.place import find
from tests.support.fixtures import WeightsMaker

pytestmark = pytest.mark.usefixtures("in_double")

NARROW = "mobilenet_v2_0.35"


def test_torch_to_tf_to_torch(weights_file: WeightsMaker, tmp_path: Path) -> None:
    state = torch.load(weights_file(NARROW, "torchvision", ".pth"), weights_only=True)
    for number, name in enumerate(name for name in state if name.endswith("num_batches_tracked")):
        state[name] = torch.tensor(1000 + number)
    torch.save(state, tmp_path / "original.pth")

    porter.convert(
        NARROW, "torchvision", "tf", weights=tmp_path / "original.pth", out=tmp_path / "tf", check=False
    )
    porter.convert(
        NARROW, "torchvision", "torch", weights=tmp_path / "tf", out=tmp_path / "torch", check=False
    )

    port, recipe = read_port(tmp_path / "torch"), find_recipe(NARROW)
    names = layer_names(recipe.member(NARROW, "torchvision"), port.graph)
    tensors = port.tensors()
    back = {
        source: tensors[path][role]
        for path, layer in names.items()
        for role, (source,) in get_dialect("torch")
        .tensor_names(port.graph, port.graph.by_path[path], layer.name)
        .items()
    }
    assert back.keys() == state.keys()
    for name, tensor in state.items():
        assert back[name].dtype == tensor.numpy().dtype and np.array_equal(back[name], tensor.numpy()), name


@pytest.mark.parametrize(("variant", "suffix"), [("mobilenet_v1_0.25", ".h5"), (NARROW, ".weights.h5")])
def test_tf_to_torch_to_tf(variant: str, suffix: str, weights_file: WeightsMaker, tmp_path: Path) -> None:
    original = weights_file(variant, "keras", suffix)
    porter.convert(variant, "keras", "torch", weights=original, out=tmp_path / "torch", check=False)
    porter.convert(variant, "keras", "tf", weights=tmp_path / "torch", out=tmp_path / "tf", check=False)

    recipe = find_recipe(variant)
    wanted = open_source(find(original), member=recipe.member(variant, "keras")).tensors
    got = read_port(tmp_path / "tf").tensors()
    assert wanted.keys() == got.keys()
    for path, roles in wanted.items():
        assert roles.keys() == got[path].keys()
        for role, array in roles.items():
            assert got[path][role].dtype == array.dtype and np.array_equal(got[path][role], array), (
                path,
                role,
            )


def test_a_ports_model_file_stands_for_the_port(weights_file: WeightsMaker, tmp_path: Path) -> None:
    original = weights_file(NARROW, "keras", ".h5")
    porter.convert(NARROW, "keras", "torch", weights=original, out=tmp_path / "torch", check=False)
    made = porter.convert(
        NARROW, "keras", "torch", weights=tmp_path / "torch" / "model.safetensors", out=tmp_path / "again"
    )
    assert made.port.record.source.format == "port"
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "torch" / "model.safetensors"
    ).read_bytes()


def test_a_source_in_double_precision_is_compared_as_its_port_holds_it(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    state = torch.load(weights_file(NARROW, "torchvision", ".pth"), weights_only=True)
    finer = {
        name: tensor.double() * (1 + 1e-8) if tensor.is_floating_point() else tensor
        for name, tensor in state.items()
    }
    torch.save(finer, tmp_path / "double.pth")
    made = porter.convert(
        NARROW, "torchvision", "torch", weights=tmp_path / "double.pth", out=tmp_path / "port"
    )
    assert (
        made.verdict is not None
        and made.verdict.proof.dtype == "float64"
        and made.verdict.proof.logits.rel_l2 <= 1e-10
    )


def test_the_tf_port_opens_in_plain_keras_with_keras_applications_names(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    import keras

    original = weights_file(NARROW, "keras", ".h5")
    porter.convert(NARROW, "keras", "tf", weights=original, out=tmp_path / "tf", check=False)
    port = keras.models.load_model(tmp_path / "tf" / "model.keras")
    stock = keras.applications.MobileNetV2(alpha=0.35, weights=None)
    weighted = [layer.name for layer in stock.layers if layer.weights]
    assert [layer.name for layer in port.layers if layer.weights] == weighted
    stock.load_weights(original)
    for name in weighted:
        for ours, theirs in zip(
            port.get_layer(name).get_weights(), stock.get_layer(name).get_weights(), strict=True
        ):
            assert np.array_equal(ours, theirs)
    assert {
        tensor.split("/")[0] for tensor in read_checkpoint(tmp_path / "tf" / "model.keras").tensors
    } == set(weighted)


def test_what_no_source_tensor_gives_is_listed(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file(NARROW, "keras", ".h5")
    made = porter.convert(NARROW, "keras", "torch", weights=weights, out=tmp_path / "p", check=False)
    filled = made.port.record.tensors.filled
    norms = [node.path for node in made.port.graph.nodes if node.op_name == "batch_norm"]
    assert filled == {f"{path.replace('/', '.')}.num_batches_tracked": "0" for path in norms}
