"""Folders of the Hub: opened by their config.json, as a recipe's variant or as the network that their library
builds.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import porter
from porter.base.errors import FileError, NotInstalled, PorterError, UsageError
from porter.zoos import transformers as zoo
from porter.zoos.timm import import_timm
from porter.zoos.transformers import import_transformers
from tests.support import orphans

pytestmark = pytest.mark.usefixtures("in_double")

SIDE = 64
NARROW = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": SIDE,
}
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 2, 1, 1], "embedding_size": 8}
MADE: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "mobilenet": ("mobilenet_v1", {"depth_multiplier": 0.25}, ""),
    "mobilenet of torch's pads": (
        "mobilenet_v1",
        {"depth_multiplier": 0.25, "tf_padding": False, "layer_norm_eps": 0.01},
        "",
    ),
    "resnet": ("resnet", STAGES, ""),
    "regnet": (
        "regnet",
        {"layer_type": "x", "depths": [1, 1, 4, 7], "hidden_sizes": [24, 56, 152, 368], "groups_width": 8},
        "",
    ),
    "efficientnet": (
        "efficientnet",
        {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280, "batch_norm_eps": 0.01},
        "",
    ),
    "vit": ("vit", {**NARROW, "hidden_act": "gelu_new"}, ""),
    "distilled": ("deit", NARROW, "WithTeacher"),
    "wrapper": ("timm_wrapper", {"architecture": "test_resnet"}, ""),
    "backbone": ("resnet", {**STAGES, "out_features": ["stage2", "stage4"]}, "Backbone"),
}
"""A model_type, settings, and the end of the class's name."""
IN_CI = ("mobilenet", "regnet", "vit", "distilled", "wrapper")
IN_RECIPES = {
    **dict.fromkeys(("mobilenet", "regnet", "efficientnet"), "transformers"),
    "mobilenet of torch's pads": "transformers_torch",
}


def calibrated(model: nn.Module) -> nn.Module:
    """Norms with statistics of images, whose scales and offsets are not ones and zeros, and weights that are
    not small.
    """
    torch.manual_seed(7)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=(1.5 / parameter[0].numel()) ** 0.5)
        else:
            nn.init.uniform_(parameter, *((0.6, 1.4) if name.endswith("weight") else (-0.2, 0.2)))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(4, 3, SIDE, SIDE))
    return model.eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, nn.Module]]:
    """Folders that transformers itself saves, each once, with their models."""
    folders: dict[str, tuple[Path, nn.Module]] = {}

    def make(name: str) -> tuple[Path, nn.Module]:
        if name not in folders:
            library, (kind, settings, end) = import_transformers(), MADE[name]
            config = library.AutoConfig.for_model(kind, num_labels=10, **settings)
            table = (
                library.MODEL_FOR_BACKBONE_MAPPING
                if end == "Backbone"
                else library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
            )
            found = table[type(config)]
            maker: Any = next(
                each
                for each in (found if isinstance(found, tuple) else (found,))
                if each.__name__.endswith(end or "tion")
            )
            model: Any = calibrated(maker(config))
            folders[name] = tmp_path_factory.mktemp("hub") / kind, model
            model.save_pretrained(folders[name][0])
        return folders[name]

    return make


@pytest.mark.parametrize(
    "name", [name if name in IN_CI else pytest.param(name, marks=pytest.mark.full) for name in MADE]
)
def test_a_folder_computes_what_transformers_does(
    name: str, made: Callable[[str], tuple[Path, nn.Module]], tmp_path: Path
) -> None:
    folder, model = made(name)
    port = porter.convert(folder, to="torch", out=tmp_path / "port").port
    assert port.record.zoo == IN_RECIPES.get(name) and port.record.check == "passed"
    assert port.record.origin is not None and port.record.origin.by == "config.json"
    image = torch.randn(2, 3, *port.record.input.native_size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        own, found = model(image), porter.load(tmp_path / "port")(image)
    wanted = own.feature_maps if name == "backbone" else (own.logits,)
    for one, other in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert float((one - other).norm() / other.norm()) < 1e-5
    if name == "vit":
        assert porter.verify(tmp_path / "port", weights=folder, float64=True).ok


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("test_resnet", {"act_layer": "silu"}),
        # Its first convolution reads 48 channels, which are 4x4 pixels.
        pytest.param("tresnet_m", {"layers": [1, 1, 1, 1], "width_factor": 0.125}, marks=pytest.mark.full),
    ],
)
def test_timms_own_code_builds_what_no_recipe_has(
    name: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    library = import_timm()
    model = calibrated(library.create_model(name, num_classes=10, **arguments))
    library.save_for_hf(model, tmp_path / "folder", model_args=arguments)
    port = porter.convert(tmp_path / "folder", to="torch", out=tmp_path / "port").port
    assert port.record.check == "passed" and str(port.record.source.built_by).startswith("timm ")
    image = torch.randn(2, 3, SIDE, SIDE)
    with torch.no_grad():
        own, found = model(image), porter.load(tmp_path / "port")(image)
    assert float((found - own).norm() / own.norm()) < 1e-5


def test_what_transformers_4_wrote_in_tensorflow_and_flax(
    made: Callable[[str], tuple[Path, nn.Module]], tmp_path: Path
) -> None:
    folder, model = made("vit")
    state = {name: value.numpy() for name, value in load_file(folder / "model.safetensors").items()}
    image = torch.randn(2, 3, SIDE, SIDE)
    with torch.no_grad():
        own = model(image).logits
    for file, write in {"tf_model.h5": orphans.write_tf, "flax_model.msgpack": orphans.write_flax}.items():
        place = tmp_path / file.partition(".")[0]
        place.mkdir()
        (place / "config.json").write_text((folder / "config.json").read_text())
        write(place / file, state)
        port = porter.convert(place, to="torch", out=place / "port").port
        assert port.record.check == "passed" and port.record.source.file == file
        with torch.no_grad():
            assert float((porter.load(place / "port")(image) - own).norm() / own.norm()) < 1e-5
    assert porter.verify(place / "port", weights=place, float64=True).ok


class Planted:
    """What would leave a file behind if it were unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


HOSTILE: Mapping[str, Mapping[str, Any]] = {
    "more layers than the file has": {"num_hidden_layers": 10**9},
    "wider layers": {"hidden_size": 10**6, "num_attention_heads": 10**3},
    "no such model": {"model_type": "../../etc/passwd"},
    "a model of text": {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
    "another family": {"model_type": "resnet", "architectures": ["ResNetForImageClassification"]},
    "values of other types": {"num_attention_heads": [], "layer_norm_eps": "small"},
    "heads that do not divide": {"num_attention_heads": 7},
    "timm's, with a file of its own": {
        "architecture": "test_resnet",
        "model_args": {"checkpoint_path": "/etc/passwd"},
    },
    "timm's, of other tensors": {"architecture": "test_resnet"},
    "timm's, with arguments that it lacks": {"architecture": "test_resnet", "model_args": {"spam": 3}},
}


@pytest.mark.parametrize("change", HOSTILE)
def test_a_config_that_lies_is_one_error(
    change: str, made: Callable[[str], tuple[Path, nn.Module]], tmp_path: Path
) -> None:
    folder, _ = made("vit")
    config = {**json.loads((folder / "config.json").read_text()), **HOSTILE[change]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").hardlink_to(folder / "model.safetensors")
    with pytest.raises(PorterError) as refused:
        porter.convert(tmp_path, to="torch", out=tmp_path / "port", check=False)
    assert refused.value.next and len(str(refused.value)) < 2000
    assert not (tmp_path / "port").exists()


def test_no_code_of_a_folder_is_run(made: Callable[[str], tuple[Path, nn.Module]], tmp_path: Path) -> None:
    folder, _ = made("vit")
    ran = tmp_path / "ran"
    stated = {
        "auto_map": {"AutoModelForImageClassification": "code.Model", "AutoConfig": "code.Config"},
        "_attn_implementation": "x/y",
    }
    config = {**json.loads((folder / "config.json").read_text()), **stated}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text(f"open({str(ran)!r}, 'w')")
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Planted(ran)))
    with pytest.raises(FileError):
        porter.convert(tmp_path, to="torch", out=tmp_path / "port", check=False)
    (tmp_path / "model.safetensors").hardlink_to(folder / "model.safetensors")
    assert porter.convert(tmp_path, to="torch", out=tmp_path / "port", check=False).port.record.classes == 10
    assert not ran.exists()


def test_no_other_repository_is_asked_for() -> None:
    config = {
        "backbone": "owner/net",
        "use_pretrained_backbone": True,
        "backbone_config": {"depths": [1], "_name_or_path": "owner/net"},
    }
    assert zoo._plain_settings(config) == {"backbone_config": {"depths": [1]}}
    assert zoo._plain_settings({"backbone": "resnet18"}) == {"backbone": "resnet18"}


def test_tensors_that_the_network_lacks_are_said(
    made: Callable[[str], tuple[Path, nn.Module]], tmp_path: Path
) -> None:
    folder, _ = made("vit")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    state = load_file(folder / "model.safetensors")
    save_file({**state, "spare.weight": torch.ones(3)}, tmp_path / "model.safetensors", {"format": "pt"})
    port = porter.convert(tmp_path, to="torch", out=tmp_path / "port", check=False).port
    assert any("spare.weight" in note for note in port.record.source.notes)
    del state["classifier.bias"]
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(PorterError, match=r"classifier\.bias"):
        porter.convert(tmp_path, to="torch", out=tmp_path / "other", check=False)


def test_without_the_library_it_is_said(
    made: Callable[[str], tuple[Path, nn.Module]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise NotInstalled("transformers is not installed", next="pip install transformers")

    monkeypatch.setattr(zoo, "import_transformers", missing)
    with pytest.raises(
        NotInstalled, match="pip install transformers, which builds the network of this folder"
    ):
        porter.convert(made("vit")[0], to="torch", out=tmp_path / "port")
    read = porter.convert(made("mobilenet")[0], to="torch", out=tmp_path / "port", check=False)
    assert read.port.record.variant == "mobilenet_v1_0.25"


def test_where_a_port_is_wanted_the_line_that_makes_one_is_said(
    made: Callable[[str], tuple[Path, nn.Module]],
) -> None:
    folder, _ = made("mobilenet")
    for use in (
        porter.open,
        lambda port: porter.evaluate(port, "photos"),
        lambda port: porter.predict(port, "photo.jpg"),
    ):
        with pytest.raises(
            UsageError, match=r"this is not a port.*porter\.convert|porter convert .* --to torch makes one"
        ):
            use(folder)


def test_a_recipe_that_is_asked_for_is_not_replaced(made: Callable[[str], tuple[Path, nn.Module]]) -> None:
    with pytest.raises(
        UsageError,
        match=r"config.json says that these weights are transformers' mobilenet_v1 \(depth_multiplier",
    ):
        porter.convert("mobilenet_v1_0.25", "transformers_torch", weights=made("mobilenet")[0])


def test_the_background_row_of_a_folder_that_a_recipe_has_is_kept_if_asked_for(tmp_path: Path) -> None:
    library = import_transformers()
    config = library.AutoConfig.for_model("mobilenet_v1", num_labels=1001, depth_multiplier=0.25)
    model: Any = library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING[type(config)](config)
    calibrated(model)
    model.save_pretrained(tmp_path / "published")
    for kept in (False, True):
        made_of_it = porter.convert(
            tmp_path / "published", keep_background=kept, out=tmp_path / str(kept), check=False
        )
        assert made_of_it.record()["classes"] == 1000 + kept
        assert not any("keep_background" in warning for warning in made_of_it.warnings)


def test_a_folder_is_trained_on_in_keras_and_comes_home(
    made: Callable[[str], tuple[Path, nn.Module]], tmp_path: Path
) -> None:
    import keras
    import numpy as np

    moved = porter.convert(made("vit")[0], to="tf", out=tmp_path / "moved", check=False)
    model, random = moved.model(), np.random.default_rng(2)
    images = random.normal(size=(6, SIDE, SIDE, 3)).astype("float32")
    before = np.asarray(model(images))
    model.compile(
        optimizer=keras.optimizers.SGD(0.05),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(images, random.integers(0, 10, 6), epochs=3, batch_size=6, verbose=0)
    model.save(tmp_path / "tuned.keras")
    home = porter.convert(moved, to="torch", weights=tmp_path / "tuned.keras", out=tmp_path / "home")
    trained = np.asarray(model(images))
    with torch.no_grad():
        found = home.model()(torch.from_numpy(images.transpose(0, 3, 1, 2))).numpy()
    assert home.verdict is not None and home.verdict.ok
    assert np.linalg.norm(trained - before) >= 1e-3 * np.linalg.norm(before), "training changed nothing"
    assert np.linalg.norm(found - trained) <= 1e-5 * np.linalg.norm(trained)
