"""Sources, and classes of other frameworks and hands that compute the same function, untrained: what
`convert --into` fills.

`python -m tests.support.comparison.into_pairs` fills all of them, and runs each converter without porter.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import porter
from porter.zoos.keras_hub import import_keras_hub
from porter.zoos.torchvision import import_models
from tests.support.comparison.plants import calibrated

SIZE = 64


class Pair(NamedTuple):
    """A source and an untrained class, and the rows and columns at which both are the same function."""

    source: Callable[[], Any]
    target: Callable[[], Any]
    size: int = SIZE


def import_timm() -> Any:
    import_models()  # without its operators, torchvision is imported here first
    import timm

    return timm


def of_timm(name: str, **options: Any) -> Any:
    timm = import_timm()

    return calibrated(partial(timm.create_model, name, **options), name)


def features(name: str) -> Any:
    """The maps that a network of timm gives before its head."""
    return of_timm(name, num_classes=0, global_pool="")


def backbone(kind: str, name: str, **changes: Any) -> Any:
    """An untrained backbone of KerasHub, of the size that timm's network of a name has."""
    models = import_keras_hub()
    converter = import_module(f"keras_hub.src.utils.timm.convert_{kind.lower()}")
    config = converter.convert_backbone_config({"architecture": name}) | changes
    return getattr(models, f"{kind}Backbone")(**config)


def hub(kind: str, name: str, source: Callable[[str], Any] = features, **changes: Any) -> Pair:
    return Pair(partial(source, name), partial(backbone, kind, name, **changes))


class Features(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.features = model.features

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.features(image))


def before_head(name: str) -> Any:
    return Features(of_timm(name)).eval()


class Trunk(nn.Module):
    """The maps of a network of timm whose pool comes before its last convolution."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.net.forward_features(image))


def trunk(name: str) -> Any:
    return Trunk(of_timm(name)).eval()


def of_torchvision(name: str, classes: int = 10) -> Any:
    return calibrated(partial(getattr(import_models(), name), num_classes=classes), name)


def of_keras(name: str, size: int = SIZE, **options: Any) -> Any:
    """A network of keras.applications, whose norms have numbers as after training."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    make = getattr(keras.applications, name)
    model = make(weights=None, classes=10, input_shape=(size, size, 3), classifier_activation=None, **options)
    random = np.random.default_rng(0)
    for variable in model.weights:
        if "moving_variance" in variable.path or "gamma" in variable.path:
            variable.assign(random.uniform(0.6, 1.4, variable.shape))
        elif variable.path.rpartition("/")[2] in ("moving_mean", "beta", "bias"):
            variable.assign(random.normal(0, 0.1, variable.shape))
    return model


def densenet_of_timm() -> Any:
    """timm's class with the epsilon of Keras's."""
    return (
        import_timm()
        .create_model("densenet121", num_classes=10, norm_layer=partial(nn.BatchNorm2d, eps=1.001e-5))
        .eval()
    )


def resnet_of_nnx() -> Any:
    from flax import nnx

    from tests.support.nnx_resnets import ResNet50

    return ResNet50(nnx.Rngs(0))


def resnet_of_linen(size: int) -> Any:
    import jax.numpy as jnp
    from flax import nnx

    from tests.support.flax_resnets import ResNet, ResNetBlock

    model = nnx.bridge.ToNNX(ResNet((2, 2, 2, 2), ResNetBlock, 10), rngs=nnx.Rngs(0))
    return model.lazy_init(jnp.zeros((1, size, size, 3)))


def vit_of_transformers() -> Any:
    import_models()
    import transformers

    config_of: Any = transformers.ViTConfig
    config = config_of(
        image_size=SIZE,
        patch_size=16,
        num_labels=10,
        layer_norm_eps=1e-6,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
    )
    return transformers.ViTForImageClassification(config).eval()


def vit_of_timm() -> Any:
    import_models()
    from timm.models.vision_transformer import VisionTransformer

    make = partial(
        VisionTransformer, img_size=SIZE, patch_size=16, embed_dim=48, depth=2, num_heads=4, num_classes=10
    )
    return calibrated(make, "vit")


def vgg_with_its_head() -> Any:
    """A network of torch that flattens a map before its dense layers."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 32),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, nn.Linear(32, 10)).eval()


def keras_with_its_head() -> Any:
    import keras
    from keras import layers

    steps = [layers.Conv2D(8, 3, padding="same", activation="relu"), layers.MaxPool2D(4), layers.Flatten()]
    steps += [layers.Dense(32, activation="relu"), layers.Dense(10)]
    return keras.Sequential([keras.Input((16, 16, 3)), *steps], name="small")


PAIRS: dict[str, Pair] = {
    "timm resnet18 into keras-hub": hub("ResNet", "resnet18"),
    "timm resnet26 into keras-hub": hub("ResNet", "resnet26"),
    "timm resnetv2_50 into keras-hub": hub("ResNet", "resnetv2_50"),
    "timm mobilenetv3_small_050 into keras-hub": hub("MobileNet", "mobilenetv3_small_050", trunk),
    "timm efficientnet_b0 into keras-hub": hub("EfficientNet", "efficientnet_b0"),
    "timm vgg11 into keras-hub": hub("VGG", "vgg11", before_head),
    "keras DenseNet121 into timm": Pair(partial(of_keras, "DenseNet121"), densenet_of_timm),
    "keras VGG16 into torchvision": Pair(
        partial(of_keras, "VGG16", include_top=False), lambda: Features(of_torchvision("vgg16")).eval()
    ),
    "torchvision resnet50 into nnx": Pair(partial(of_torchvision, "resnet50", 1000), resnet_of_nnx),
    "torchvision resnet18 into linen": Pair(
        partial(of_torchvision, "resnet18"), partial(resnet_of_linen, 33), 33
    ),
    "timm vit into transformers": Pair(vit_of_timm, vit_of_transformers),
    "transformers vit into timm": Pair(vit_of_transformers, vit_of_timm),
    "torch flatten into keras": Pair(vgg_with_its_head, keras_with_its_head, 16),
    "keras flatten into torch": Pair(keras_with_its_head, vgg_with_its_head, 16),
    "timm convnext into timm": Pair(
        partial(of_timm, "convnext_atto", num_classes=10, ls_init_value=0.5),
        partial(of_timm, "convnext_atto", num_classes=10),
    ),
}


def filled(pair: Pair, out: Path) -> Any:
    return porter.convert(pair.source(), into=pair.target(), input_size=pair.size, out=out)


def run_apart(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the test of a converter in a Python that finds neither porter nor a framework."""
    test = next(folder.glob("test_convert_*.py"))
    code = (
        "import sys, runpy\n"
        "class Refusing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in {'porter', 'torch', 'tensorflow', 'keras', 'jax', 'flax'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refusing())\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        f"runpy.run_path({str(test)!r}, run_name='__main__')\n"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )


if __name__ == "__main__":
    for name, pair in PAIRS.items():
        if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as place:
            began = time.time()
            try:
                port = filled(pair, Path(place) / "port")
            except porter.PorterError as error:
                print("BAD", name, f"{time.time() - began:.0f} s", str(error)[:1500], flush=True)
                continue
            took = time.time() - began
            ran = run_apart(port.folder)
            lines = port.converter().count("\n")
            print(
                "ok " if not ran.returncode else "BAD",
                name,
                f"{took:.0f} s, {lines} lines",
                ran.stderr[-600:],
                flush=True,
            )
            if "-v" in sys.argv:
                print(port.converter())
