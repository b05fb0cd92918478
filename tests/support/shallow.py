"""The zoos' ResNets, ConvNeXts, DenseNets and vision transformers with few units, and their VGGs and
transformers with few filters: every block, pad, name and option of theirs, at a price that a test can pay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from porter.zoos.slim.network import _frozen_network
from porter.zoos.slim.tensornets import _import_networks as import_tensornets
from porter.zoos.slim.tf_slim import import_net
from porter.zoos.timm import import_timm
from porter.zoos.torchvision import import_models
from porter.zoos.transformers import import_transformers
from tests.support.recipe.recipes import all_recipes
from tests.support.tensornets_files import tensornets_installed

DEPTHS = (3, 2, 1, 1)
"""Units of each stage: a first and a last one, one between them, and one that is both. Later stages are the
widest ones, and repeat the units of the first ones.
"""
DEPTHS_OF_V2 = (3, 2, 2, 2)
"""Units of each stage of a ResNet v2: Keras's code stacks at least two."""
NARROWER = 8
"""How many times fewer filters a VGG has, and fewer units in its dense layers."""
FEWER_HEADS = 4
"""How many times fewer heads a vision transformer has, each of its own width."""

Build = Callable[..., Any]


def shallow_recipes(folder: Path, depths: Sequence[int] | None = None) -> Path:
    """A folder of porter's recipes, in which every ResNet, ConvNeXt, DenseNet and transformer has `depths`,
    or as many units as in `shallow_zoos`, and VGGs and transformers are narrow.
    """
    folder.mkdir()
    for recipe in all_recipes():
        units = depths or (DEPTHS_OF_V2 if recipe.architecture in ("resnet_v2", "resnet200v2") else DEPTHS)
        text = re.sub(r"depths: \[.*?\]", f"depths: {list(units)}", recipe.path.read_text(encoding="utf-8"))
        if recipe.architecture == "vgg":
            text = re.sub(
                r"(filters|units): (\d+)", lambda found: f"{found[1]}: {int(found[2]) // NARROWER}", text
            )
        if recipe.architecture == "vit":
            text = re.sub(
                r"(width): (\d+)", lambda found: f"{found[1]}: {int(found[2]) // FEWER_HEADS}", text
            )
        (folder / recipe.path.name).write_text(text, encoding="utf-8")
    return folder


@contextmanager
def shallow_zoos() -> Iterator[None]:
    """Until the end, the zoos' own code builds every ResNet, ConvNeXt, DenseNet and transformer with
    `DEPTHS` or `DEPTHS_OF_V2`, and VGGs and transformers narrow.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module, name, shallow in (*_stages(), *_layers()):
            patch.setattr(module, name, shallow(getattr(module, name)))
        _frozen_network.cache_clear()
        yield
    _frozen_network.cache_clear()


def _stages() -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """What each zoo's code makes its stages with: module, function, and what makes it shallow."""
    yield import_models().resnet, "_resnet", _torchvisions
    yield import_models().densenet, "_densenet", _torchvisions
    yield import_models().convnext, "_convnext", _torchvisions_convnext
    yield (
        import_models().vision_transformer,
        "_vision_transformer",
        lambda build: _narrow_vit(build, "num_layers"),
    )
    yield (
        import_timm().vision_transformer,
        "_create_vision_transformer",
        lambda build: _narrow_vit(build, "depth"),
    )
    yield import_timm().mlp_mixer, "_create_mixer", _timms_mixer
    yield import_timm().resnet, "_create_resnet", lambda build: _timms(build, "layers")
    yield import_timm().resnetv2, "_create_resnetv2_bit", lambda build: _timms(build, "layers")
    yield import_timm().convnext, "_create_convnext", lambda build: _timms(build, "depths")
    yield import_timm().densenet, "_create_densenet", lambda build: _timms(build, "block_config")
    yield import_transformers().AutoConfig, "for_model", _transformers
    yield (
        import_module("keras.src.applications.convnext"),
        "MODEL_CONFIGS",
        lambda table: {size: {**row, "depths": list(DEPTHS)} for size, row in table.items()},
    )
    yield (
        import_module("keras.src.applications.densenet"),
        "dense_block",
        lambda build: _by_label(build, 1, "name"),
    )
    keras = import_module("keras.src.applications.resnet")
    yield keras, "stack_residual_blocks_v1", lambda build: _by_label(build, 2, "name")
    yield (
        keras,
        "stack_residual_blocks_v2",
        lambda build: _by_label(build, 2, "name", lambda *_: DEPTHS_OF_V2),
    )
    yield (
        import_module("keras_applications.resnet_common"),
        "stack3",
        lambda build: _by_label(build, 2, "name"),
    )
    yield import_net("resnet_v1"), "resnet_v1_block", lambda build: _slims(build, DEPTHS)
    yield import_net("resnet_v2"), "resnet_v2_block", lambda build: _slims(build, DEPTHS_OF_V2)
    if tensornets_installed():
        resnets = import_tensornets("resnets")
        of_v2 = resnets._block2

        def depths(_: Any, unit: Any, *__: Any) -> Sequence[int]:
            return DEPTHS_OF_V2 if unit is of_v2 else DEPTHS

        yield resnets, "_stack", lambda build: _by_label(build, 3, "scope", depths)
        yield resnets, "_stacks", lambda build: _by_label(build, 2, "scope", lambda *_: DEPTHS_OF_V2)
        # Of nodes to look at, by their places in a network of full depth.
        yield import_tensornets("middles"), "direct", lambda _: lambda _: ([], [])


def _torchvisions(build: Build) -> Build:
    return lambda block, layers, *rest, **named: build(block, list(DEPTHS), *rest, **named)


def _torchvisions_convnext(build: Build) -> Build:
    def shallow(settings: list[Any], *rest: Any, **named: Any) -> Any:
        for setting, depth in zip(settings, DEPTHS, strict=True):
            setting.num_layers = depth
        return build(settings, *rest, **named)

    return shallow


def _timms(build: Build, depths: str) -> Build:
    return lambda *arguments, **named: build(*arguments, **named | {depths: DEPTHS})


def _timms_mixer(build: Build) -> Build:
    return lambda *arguments, **named: build(*arguments, **named | {"num_blocks": DEPTHS[0]})


def _narrow_vit(build: Build, depth: str) -> Build:
    """A builder of a narrow transformer, whose head is as wide as in all of them."""

    def narrow(*arguments: Any, **named: Any) -> Any:
        sizes = {
            key: named[key] // FEWER_HEADS
            for key in ("num_heads", "hidden_dim", "embed_dim", "mlp_dim")
            if key in named
        }
        return build(*arguments, **named | sizes | {depth: DEPTHS[0]})

    return narrow


def _transformers(build: Build) -> Build:
    def shallow(kind: str, **settings: Any) -> Any:
        sizes = ("hidden_size", "num_attention_heads", "intermediate_size")
        less = {name: settings[name] // FEWER_HEADS for name in sizes if name in settings}
        less |= (
            {"num_hidden_layers": DEPTHS[0]}
            if less
            else {"depths": list(DEPTHS)}
            if kind in ("bit", "convnext", "resnet")
            else {}
        )
        return build(kind, **settings | less)

    return shallow


def _slims(build: Build, depths: Sequence[int]) -> Build:
    return lambda scope, base_depth, num_units, stride: build(
        scope, base_depth, depths[int(scope[-1]) - 1], stride
    )


def _by_label(
    build: Build, place: int, label: str, depths: Callable[..., Sequence[int]] = lambda *_: DEPTHS
) -> Build:
    """A builder of a shallow network, for a function that takes the number of units at `place`, and the
    stage's name, `conv2` to `conv5`, as `label`.
    """

    def shallow(*arguments: Any, **named: Any) -> Any:
        units = depths(*arguments)[int(named[label][-1]) - 2]
        return build(*arguments[:place], units, *arguments[place + 1 :], **named)

    return shallow


def _layers() -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """What each zoo's code makes its VGGs of: module, name, and what makes it narrow."""
    torchvision, timm, keras = (
        import_models().vgg,
        import_timm().vgg,
        import_module("keras.src.applications.vgg16"),
    )
    for module in (torchvision, timm):
        yield (
            module,
            "cfgs",
            lambda table: {
                name: [width if width == "M" else width // NARROWER for width in row]
                for name, row in table.items()
            },
        )
    yield torchvision, "nn", lambda nn: _with(nn, Linear=_narrow_class(nn.Linear))
    for name in ("ConvMlp", "ClassifierHead"):
        yield timm, name, _narrow_class
    yield (
        keras,
        "layers",
        lambda layers: _with(
            layers,
            Conv2D=lambda filters, *rest, **named: layers.Conv2D(filters // NARROWER, *rest, **named),
            Dense=lambda units, **named: layers.Dense(_narrow(units), **named),
        ),
    )


def _narrow_class(module: type[Any]) -> type[Any]:
    class Narrow(module):
        def __init__(self, *sizes: int, **named: Any) -> None:
            super().__init__(*map(_narrow, sizes), **named)

    return Narrow


def _narrow(size: int) -> int:
    """A number of a dense layer's features or units; kernels, classes and filters, which are narrow already,
    stay.
    """
    return size // NARROWER if size >= 4096 else size


def _with(module: Any, **changed: Any) -> Any:
    return SimpleNamespace(**vars(module) | changed)
