"""Small networks of several families, and mistakes of each kind that `porter compare` names, planted in
copies of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn

from porter.comparison.found_difference import Kind
from porter.zoos.torchvision import import_models

SIZE = 64
_NORMS = nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm
_ACTIVATIONS = nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.LeakyReLU


def networks() -> dict[str, Callable[[], Any]]:
    """Makers of networks, with calibrated random weights, in eval mode."""
    models = import_models()
    from timm.models import resnet
    from timm.models.convnext import ConvNeXt
    from timm.models.vision_transformer import VisionTransformer

    settings = models.mobilenetv3.InvertedResidualConfig
    rows = (
        (8, 3, 8, 8, True, "RE", 2, 1),
        (8, 3, 24, 12, False, "RE", 2, 1),
        (12, 5, 32, 12, True, "HS", 1, 1),
    )
    small = {"num_classes": 10, "channels": (16, 24, 32, 48)}
    made: dict[str, Callable[[], Any]] = {
        "resnet": lambda: resnet.ResNet(resnet.BasicBlock, (1, 1, 1, 1), **small),
        "resnext": lambda: resnet.ResNet(
            resnet.Bottleneck, (1, 1, 1, 1), cardinality=4, base_width=16, **small
        ),
        "mobilenet_v2": lambda: models.MobileNetV2(
            10, inverted_residual_setting=[[1, 8, 1, 1], [4, 12, 2, 2], [4, 16, 2, 2]]
        ),
        "densenet": lambda: models.DenseNet(8, (2, 2, 2), 16, num_classes=10),
        "vgg": lambda: _vgg(models),
        "squeezenet": lambda: models.SqueezeNet("1_1", num_classes=10),
        "mobilenet_v3": lambda: models.MobileNetV3([settings(*row, 1.0) for row in rows], 64, num_classes=10),
        "convnext": lambda: ConvNeXt(
            depths=(1, 1, 1, 1), dims=(16, 24, 32, 48), num_classes=10, ls_init_value=0.5
        ),
        "vit": lambda: VisionTransformer(
            img_size=SIZE, patch_size=16, embed_dim=48, depth=2, num_heads=4, num_classes=10
        ),
        "resnet_d": lambda: resnet.ResNet(
            resnet.BasicBlock, (1, 1, 1, 1), stem_width=8, stem_type="deep", avg_down=True, **small
        ),
    }
    return {name: partial(calibrated, make, name) for name, make in made.items()}


def _vgg(models: Any) -> Any:
    """A network with a flatten before its first dense layer."""
    layers = list[nn.Module]()
    for before, after in ((3, 8), (8, 12), (12, 16), (16, 16)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10))


def calibrated(make: Callable[[], Any], name: str) -> Any:
    """A network whose norms have the statistics of a batch, and then jittered numbers."""
    torch.manual_seed(len(name))
    model: Any = make()
    norms = [each for each in model.modules() if isinstance(each, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
    model.train()
    with torch.no_grad():
        model(torch.randn(8, 3, SIZE, SIZE))
    module: Any
    for module in model.modules():
        if isinstance(module, _NORMS) and module.weight is not None:
            module.weight.data.uniform_(0.6, 1.4)
            module.bias.data.normal_(0, 0.3)
        if module in norms:
            module.running_mean.add_(0.1 * torch.randn_like(module.running_mean))
            module.running_var.mul_(0.8 + 0.4 * torch.rand_like(module.running_var))
            module.momentum = 0.1
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            module.bias.data.normal_(0, 0.2)
    return model.eval()


class Before(nn.Module):
    """A network after something that is done to its input."""

    def __init__(self, model: nn.Module, does: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.model, self.does = model, does

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.model(self.does(image)))


class After(nn.Module):
    """A module followed by another."""

    def __init__(self, module: nn.Module, then: nn.Module) -> None:
        super().__init__()
        self.module, self.then = module, then

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.then(self.module(value)))


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * self.factor


def _all(
    model: Any, *kinds: type[nn.Module], where: Callable[[Any], bool] = lambda module: True
) -> list[str]:
    return [name for name, each in model.named_modules() if isinstance(each, kinds) and where(each)]


def _swap(model: Any, name: str, new: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, new.eval())


def _pick(rng: random.Random, names: list[str]) -> str:
    if not names:
        raise LookupError
    return rng.choice(names)


def _wide(module: Any) -> bool:
    kernel = module.kernel_size
    return (kernel if isinstance(kernel, int) else kernel[0]) > 1 and not isinstance(module.padding, str)


def _padding(model: Any, rng: random.Random) -> Any:
    def padded(module: Any) -> bool:
        pad = module.padding
        return _wide(module) and (pad if isinstance(pad, int) else pad[0]) > 0

    name = _pick(rng, _all(model, nn.Conv2d, nn.MaxPool2d, where=padded))
    module = model.get_submodule(name)
    pad = module.padding if isinstance(module.padding, int) else module.padding[0]
    module.padding = 0 if isinstance(module, nn.MaxPool2d) else (0, 0)
    if isinstance(module, nn.Conv2d):
        module._reversed_padding_repeated_twice = [0, 0, 0, 0]
    fill = 0.0 if isinstance(module, nn.Conv2d) else -math.inf
    shift = rng.choice((-1, 1))
    pads = (pad + shift, pad - shift) * 2
    _swap(model, name, nn.Sequential(nn.ConstantPad2d(pads, fill), module))
    return model


def _epsilon(model: Any, rng: random.Random) -> Any:
    norm = model.get_submodule(_pick(rng, [n for n, m in model.named_modules() if isinstance(m, _NORMS)]))
    norm.eps = norm.eps * rng.choice((100, 1000))
    return model


def _activation(model: Any, rng: random.Random) -> Any:
    name = _pick(rng, [n for n, m in model.named_modules() if isinstance(m, _ACTIVATIONS)])
    own = type(model.get_submodule(name))
    others = [each for each in (nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU) if each is not own]
    _swap(model, name, rng.choice(others)())
    return model


def _layers(model: Any, bias: bool = False) -> list[str]:
    return _all(model, nn.Conv2d, nn.Linear, where=lambda module: not bias or module.bias is not None)


def _weights(model: Any, rng: random.Random) -> Any:
    weight = model.get_submodule(_pick(rng, _layers(model))).weight.data
    if rng.random() < 0.5:
        weight.view(-1)[rng.randrange(weight.numel())] += 0.1 * float(weight.abs().max())
    else:
        weight.add_(0.01 * weight.std() * torch.randn_like(weight))
    return model


def _bias(model: Any, rng: random.Random) -> Any:
    names = _layers(model, bias=True) + [n for n, m in model.named_modules() if isinstance(m, _NORMS)]
    bias = model.get_submodule(_pick(rng, names)).bias.data
    if rng.random() < 0.3:
        bias.zero_()
    else:
        bias[rng.randrange(len(bias))] += 0.1
    return model


def _order(model: Any, rng: random.Random) -> Any:
    name = _pick(rng, _layers(model)[:-1])
    module = model.get_submodule(name)
    weight = module.weight.data
    if rng.random() < 0.5 and weight.shape[1] > 1:
        weight.copy_(weight[:, torch.randperm(weight.shape[1])] if weight.shape[1] > 3 else weight.flip(1))
    else:
        places = torch.randperm(len(weight))
        weight.copy_(weight[places])
        if module.bias is not None:
            module.bias.data.copy_(module.bias.data[places])
    return model


def _scale(model: Any, rng: random.Random) -> Any:
    gammas = [name for name, _ in model.named_parameters() if name.endswith("gamma")]
    if gammas and rng.random() < 0.5:
        model.get_parameter(rng.choice(gammas)).data.mul_(1.5)
    elif attentions := [each for each in model.modules() if hasattr(each, "fused_attn")]:
        attention = rng.choice(attentions)
        attention.fused_attn, attention.scale = False, attention.scale * 2
    else:
        model.get_submodule(_pick(rng, _layers(model))).weight.data.mul_(rng.choice((0.5, 1.25, 2.0)))
    return model


def _operator(model: Any, rng: random.Random) -> Any:
    pools = _all(model, nn.MaxPool2d)
    depthwise = _all(
        model, nn.Conv2d, where=lambda module: module.kernel_size[0] == 3 and module.stride == (1, 1)
    )
    if pools and (rng.random() < 0.5 or not depthwise):
        name = rng.choice(pools)
        own = model.get_submodule(name)
        _swap(
            model,
            name,
            nn.AvgPool2d(own.kernel_size, own.stride, own.padding, own.ceil_mode, count_include_pad=False),
        )
    elif depthwise:
        module = model.get_submodule(rng.choice(depthwise))
        module.dilation, module.padding = (2, 2), (module.padding[0] + 1, module.padding[1] + 1)
    else:
        name = _pick(rng, _all(model, nn.LayerNorm))
        _swap(model, name, nn.Softmax(-1))
    return model


def _missing(model: Any, rng: random.Random) -> Any:
    names = [
        n
        for n, m in model.named_modules()
        if isinstance(m, (*_NORMS, nn.ReLU, nn.ReLU6, nn.GELU, nn.Hardswish))
    ]
    _swap(model, _pick(rng, names), nn.Identity())
    return model


def _extra(model: Any, rng: random.Random) -> Any:
    name = _pick(rng, _layers(model))
    channels = len(model.get_submodule(name).weight)
    is_conv = isinstance(model.get_submodule(name), nn.Conv2d)
    more: list[nn.Module] = [nn.Tanh(), nn.Sigmoid(), nn.ReLU()]
    if is_conv:
        more += [nn.AvgPool2d(3, 1, 1), nn.Conv2d(channels, channels, 1)]
    _swap(model, name, After(model.get_submodule(name), rng.choice(more)))
    return model


def _preprocessing(model: Any, rng: random.Random) -> Any:
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    does: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda image: image / 255,
        lambda image: image / 127.5 - 1,
        lambda image: (image - mean) / std,
        lambda image: image.flip(1),
    ]
    return Before(model, rng.choice(does)).eval()


def _labels(model: Any, rng: random.Random) -> Any:
    head = model.get_submodule(_layers(model)[-1])
    places = rng.choice((torch.arange(len(head.weight)).roll(1), torch.randperm(len(head.weight))))
    for each in (head.weight, head.bias):
        if each is not None:
            each.data.copy_(each.data[places])
    return model


PLANTS: dict[Kind, Callable[[Any, random.Random], Any]] = {
    "padding": _padding,
    "epsilon": _epsilon,
    "activation": _activation,
    "weights": _weights,
    "bias": _bias,
    "order": _order,
    "scale": _scale,
    "operator": _operator,
    "missing": _missing,
    "extra": _extra,
    "preprocessing": _preprocessing,
    "labels": _labels,
}


def planted(kind: Kind, model: Any, seed: int) -> Any:
    """A copy of a network with one mistake of a kind. Raises LookupError where it has no place for one."""
    torch.manual_seed(seed)
    return PLANTS[kind](deepcopy(model), random.Random(seed)).eval()
