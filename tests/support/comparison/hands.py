"""The same functions from other frameworks and hands: files of exporters, rewrites with other names, fused
norms and split layers, and other libraries' networks with the same weights.

`python -m tests.support.comparison.hands` compares all of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import porter
from porter.comparison.comparison_result import Comparison
from porter.zoos.torchvision import import_models
from tests.support.comparison.into_pairs import PAIRS, Pair
from tests.support.comparison.plants import SIZE, calibrated, networks

OF_KERAS_HUB = tuple(
    f"timm {name} into keras-hub"
    for name in ("resnet18", "mobilenetv3_small_050", "efficientnet_b0", "vgg11")
)


class SplitConv(nn.Module):
    """A convolution as two, each of half of its filters, with its pads before and its bias behind them."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.pads = [whole.padding[1], whole.padding[1], whole.padding[0], whole.padding[0]]
        self.parts = nn.ModuleList()
        for rows in torch.arange(whole.out_channels).chunk(2):
            part = nn.Conv2d(
                whole.in_channels, len(rows), whole.kernel_size, whole.stride, 0, whole.dilation, bias=False
            )
            part.weight.data = whole.weight.data[rows]
            self.parts.append(part)
        self.shift = None if whole.bias is None else nn.Parameter(whole.bias.data[:, None, None])

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = nn.functional.pad(value, self.pads)
        value = torch.cat([part(value) for part in self.parts], 1)
        return value if self.shift is None else value + self.shift


class Written(nn.Module):
    """A batch norm as a product and a sum."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        gamma = norm.weight.data.double() / (norm.running_var.double() + norm.eps).sqrt()
        self.gamma = nn.Parameter(gamma[:, None, None].float())
        shift = norm.bias.data.double() - norm.running_mean.double() * gamma
        self.beta = nn.Parameter(shift[:, None, None].float())

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * self.gamma + self.beta


class SumAndProduct(nn.Module):
    """A dense layer in two steps."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.matrix, self.shift = nn.Parameter(layer.weight.data.T.contiguous()), layer.bias

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = value @ self.matrix
        return value if self.shift is None else value + self.shift


class Between(nn.Module):
    """A ReLU6 as a clamp."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value.clamp(0, 6)


def _changed(model: Any, change: Callable[[nn.Module], nn.Module | None]) -> Any:
    """The model with other modules in place of some."""
    for name, child in list(model.named_children()):
        new = change(child)
        if new is not None:
            setattr(model, name, new.eval())
        else:
            _changed(child, change)
    return model


def split(model: Any) -> Any:
    """Convolutions and dense layers in parts."""

    def change(module: nn.Module) -> nn.Module | None:
        if type(module) is nn.Conv2d and module.groups == 1 and module.out_channels > 1:
            return SplitConv(module) if isinstance(module.padding, tuple) else None
        return SumAndProduct(module) if type(module) is nn.Linear else None

    return _changed(deepcopy(model), change)


def written(model: Any) -> Any:
    """Norms as products and sums, bounds as clamps."""

    def change(module: nn.Module) -> nn.Module | None:
        if type(module) is nn.BatchNorm2d:
            return Written(module)
        return Between() if type(module) is nn.ReLU6 else None

    return _changed(deepcopy(model), change)


def fused(model: Any) -> Any:
    """Each norm in the convolution before it, where both follow each other in their parent."""
    model = deepcopy(model)
    for parent in list(model.modules()):
        children = list(parent.named_children())
        for (name, layer), (after, norm) in pairwise(children):
            if type(layer) is nn.Conv2d and type(norm) is nn.BatchNorm2d:
                setattr(parent, name, fuse_conv_bn_eval(layer, norm))
                setattr(parent, after, nn.Identity())
    return model


def exported_by_torch(model: Any, folder: Path) -> Path:
    """An ONNX file of torch's own exporter."""
    path = folder / f"{id(model)}.onnx"
    torch.onnx.export(model, (torch.zeros(1, 3, SIZE, SIZE),), path, input_names=["image"], verbose=False)
    return path


def written_by_porter(model: Any, folder: Path, to: str, file: str, **options: Any) -> Path:
    """The model file of a port, without port.json beside it."""
    port = folder / f"{id(model)}-{to}-{len(options)}"
    porter.convert(model, to=to, input_size=SIZE, out=port, check=False, **options)
    return (port / file).rename(folder / f"{port.name}{Path(file).suffix}")


WAYS: dict[str, Callable[[Any, Path], Any]] = {
    "keras": partial(written_by_porter, to="tf", file="model.keras"),
    "onnx": partial(written_by_porter, to="onnx", file="model.onnx", fold_bn=True),
    "torch.onnx": exported_by_torch,
    "split": lambda model, folder: split(model),
    "fused and written": lambda model, folder: written(fused(model)),
}


def of_libraries() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Networks of two libraries with the same weights."""
    models = import_models()
    import timm
    import transformers

    def pair(
        one: Callable[[], Any], other: Callable[[], Any], names: Callable[[str], str]
    ) -> tuple[Any, Any]:
        first, second = calibrated(one, "pair"), other().eval()
        state = first.state_dict()
        renamed = {names(name): tensor for name, tensor in state.items()}
        own = second.state_dict()
        missing = {name for name in own if name not in renamed and not name.endswith("num_batches_tracked")}
        assert not missing, sorted(missing)[:5]
        second.load_state_dict(
            {name: renamed[name].reshape(own[name].shape) for name in own if name in renamed}
        )
        return first, second

    vit: dict[str, Any] = {
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 192,
    }

    def hub_vit() -> tuple[Any, Any]:
        config_of: Any = transformers.ViTConfig
        config = config_of(image_size=SIZE, patch_size=16, num_labels=10, layer_norm_eps=1e-6, **vit)
        first = networks()["vit"]()
        second = transformers.ViTForImageClassification(config).eval()
        state, own = first.state_dict(), second.state_dict()
        return first, _filled(second, own, state)

    return {
        **{
            f"timm and torchvision {name}": partial(
                pair,
                partial(getattr(models, name), num_classes=10),
                partial(timm.create_model, name, num_classes=10),
                lambda name: name,
            )
            for name in ("resnet18", "resnet34", "resnext50_32x4d", "wide_resnet50_2")
        },
        "timm and torchvision densenet121": partial(
            pair,
            partial(timm.create_model, "densenet121", num_classes=10),
            partial(models.densenet121, num_classes=10),
            lambda name: name,
        ),
        "timm and torchvision vgg11_bn": partial(_vggs, models, timm),
        "timm and transformers vit": hub_vit,
        **{name.replace(" into", " and"): partial(_filled_of_hub, PAIRS[name]) for name in OF_KERAS_HUB},
    }


def _filled_of_hub(pair: Pair) -> tuple[Any, Any]:
    """Return a network of timm, and a backbone of KerasHub with its weights."""
    first = pair.source()
    return first, porter.convert(first, into=pair.target(), input_size=pair.size).model()


def _vggs(models: Any, timm: Any) -> tuple[Any, Any]:
    """timm's head is made of convolutions."""
    first = calibrated(partial(models.vgg11_bn, num_classes=10), "pair")
    second = timm.create_model("vgg11_bn", num_classes=10).eval()
    names = {"classifier.0": "pre_logits.fc1", "classifier.3": "pre_logits.fc2", "classifier.6": "head.fc"}
    state = {}
    for name, tensor in first.state_dict().items():
        layer, _, role = name.rpartition(".")
        state[f"{names.get(layer, layer)}.{role}"] = tensor
    own = second.state_dict()
    second.load_state_dict({name: state[name].reshape(own[name].shape) for name in own})
    return first, second


def _filled(second: Any, own: dict[str, Any], state: dict[str, Any]) -> Any:
    """transformers' ViT with the tensors of timm's, whose queries, keys and values are one layer."""
    words = {
        "norm1": "layernorm_before",
        "norm2": "layernorm_after",
        "attn.proj": "attention.o_proj",
        "mlp.fc1": "mlp.fc1",
        "mlp.fc2": "mlp.fc2",
    }
    found = {
        "vit.embeddings.cls_token": state["cls_token"],
        "vit.embeddings.position_embeddings": state["pos_embed"],
        "vit.embeddings.patch_embeddings.projection.weight": state["patch_embed.proj.weight"],
        "vit.embeddings.patch_embeddings.projection.bias": state["patch_embed.proj.bias"],
    }
    for role in ("weight", "bias"):
        found |= {f"vit.layernorm.{role}": state[f"norm.{role}"], f"classifier.{role}": state[f"head.{role}"]}
        for block in range(2):
            parts = state[f"blocks.{block}.attn.qkv.{role}"].chunk(3)
            found |= {
                f"vit.layers.{block}.attention.{letter}_proj.{role}": part
                for letter, part in zip("qkv", parts, strict=True)
            }
            found |= {
                f"vit.layers.{block}.{its}.{role}": state[f"blocks.{block}.{mine}.{role}"]
                for mine, its in words.items()
            }
    second.load_state_dict({name: found[name] for name in own})
    return second


@cache
def _whole(name: str) -> Any:
    return networks()[name]()


def pairs(folder: Path) -> Iterator[tuple[str, Callable[[], tuple[Any, Any]]]]:
    """Every pair, made when it is asked for."""
    for name in networks():
        for way, make in WAYS.items():
            yield f"{name}, {way}", partial(_with, name, make, folder)
    for name in ("resnet", "mobilenet_v2"):
        yield (
            f"{name}, tflite",
            partial(_with, name, partial(written_by_porter, to="tflite", file="model.tflite"), folder),
        )
    yield "densenet, its port's own code", partial(_with, "densenet", _own_code, folder)
    yield from of_libraries().items()


def _with(name: str, make: Callable[[Any, Path], Any], folder: Path) -> tuple[Any, Any]:
    return _whole(name), make(_whole(name), folder)


def _own_code(model: Any, folder: Path) -> str:
    """The code that porter writes, as the user's."""
    porter.convert(model, to="torch", input_size=SIZE, out=folder / "own", check=False)
    return f"{folder / 'own' / 'model.py'}:load"


def compared(make: Callable[[], tuple[Any, Any]]) -> Comparison:
    return porter.compare(*make(), input_size=SIZE)


if __name__ == "__main__":
    same = total = 0
    with tempfile.TemporaryDirectory() as place:
        for name, make in pairs(Path(place)):
            if len(sys.argv) > 1 and not any(word in name for word in sys.argv[1:]):
                continue
            began = time.time()
            try:
                found = compared(make)
            except Exception as error:
                print("ERROR", name, type(error).__name__, str(error)[:300], flush=True)
                total += 1
                continue
            total += 1
            same += found.ok
            apart = max((each.apart or 0 for each in found.layers), default=0)
            print(
                "ok " if found.ok else "BAD",
                name,
                f"{apart:.0e}",
                f"{time.time() - began:.0f} s",
                str(found)[:600],
                flush=True,
            )
    print(same, "of", total)
