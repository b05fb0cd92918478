"""Fine-tuned PyTorch models saved as tutorials, trainers and libraries save them, with calibrated random
weights.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch.nn import utils
from torch.nn.utils import parametrizations, prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from porter.zoos.implementation import BuildRequest, get_implementation
from tests.support.arrays import Array
from tests.support.standin_files import CALIBRATION_SIZE, source_checkpoint

VARIANT = "mobilenet_v2_0.35"
"""Narrow, so that a session can make them all; its last maps have 1280 channels as those of every width up to
1.
"""
FEATURES = 1280


@dataclass(frozen=True)
class FineTuned:
    """A file, and the model whose weights it holds.

    Attributes:
        model: what was saved (of a training file, what was evaluated), in eval mode; its weights have the
            file's own rounding.
        state: the tensors that the file gives, under the names that reading gives them.
        head: the layer that gives the logits, as the file names it.
        maps: what `--map` has to say, where the file does not settle it.
    """

    path: Path
    zoo: str
    classes: int
    model: nn.Module
    state: Mapping[str, torch.Tensor]
    head: str
    maps: tuple[str, ...] = ()

    def logits(self, batch: Array) -> Array:
        """The model's own logits N×C for a batch N×3×H×W, computed in float64."""
        with torch.inference_mode():
            found: Array = deepcopy(self.model).double()(torch.from_numpy(batch).double()).numpy()
        return found


@cache
def _pretrained(zoo: str) -> nn.Module:
    checkpoint = source_checkpoint(VARIANT, zoo)
    model: nn.Module = get_implementation(zoo).build(
        BuildRequest(VARIANT, 1000, CALIBRATION_SIZE, checkpoint, "float32")
    )
    return model


def pretrained(zoo: str = "torchvision") -> Any:
    """A library's model with 1000 classes, for the caller to change."""
    torch.manual_seed(0)
    return deepcopy(_pretrained(zoo))


def five_classes() -> Any:
    """A network with the last layer of its classifier replaced, as in PyTorch's own transfer-learning
    tutorials.
    """
    model = pretrained()
    model.classifier[1] = nn.Linear(FEATURES, 5)
    return model.eval()


def last_layer(folder: Path) -> FineTuned:
    return _saved(folder, five_classes(), 5, "classifier.1")


def whole_classifier(folder: Path) -> FineTuned:
    model = pretrained()
    model.classifier = nn.Linear(FEATURES, 3)
    return _saved(folder, model, 3, "classifier")


def two_layers(folder: Path) -> FineTuned:
    """A head of two layers; its state_dict does not say that a ReLU stands between them."""
    model = pretrained()
    model.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 5))
    return _saved(folder, model, 5, "classifier.3", maps=("classifier.1,relu,classifier.3=head/logits",))


def sequential(folder: Path) -> FineTuned:
    backbone = pretrained()
    backbone.classifier = nn.Identity()
    return _saved(folder, nn.Sequential(backbone, nn.Linear(FEATURES, 4)), 4, "1")


def data_parallel(folder: Path) -> FineTuned:
    model = five_classes()
    return _saved(folder, model, 5, "classifier.1", nn.DataParallel(model).state_dict())


def compiled(folder: Path) -> FineTuned:
    model = five_classes()
    # The names are the same whatever compiles it, and the default compiler is slow to import.
    compiled = cast(nn.Module, torch.compile(model, backend="eager"))
    return _saved(folder, model, 5, "classifier.1", compiled.state_dict())


def lightning(folder: Path) -> FineTuned:
    """A module of Lightning's with the network as `model` and a weighted loss, as its Trainer saves it."""
    module = nn.Module()
    module.model = model = five_classes()
    module.criterion = nn.CrossEntropyLoss(weight=torch.rand(5))
    optimiser = _stepped(model)
    checkpoint = {
        "epoch": 9,
        "global_step": 640,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": module.state_dict(),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 10, "completed": 9}}}},
        "callbacks": {
            "ModelCheckpoint{'monitor': 'val_loss'}": {
                "best_model_score": torch.tensor(0.25),
                "dirpath": "runs",
            }
        },
        "optimizer_states": [optimiser.state_dict()],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 0.1, "classes": 5, "backbone": "mobilenet_v2"},
    }
    return _saved(folder, model, 5, "model.classifier.1", checkpoint, module.state_dict())


def training(folder: Path) -> FineTuned:
    """A checkpoint as torchvision's reference script for classification saves it: optimiser, arguments and
    moving averages.
    """
    model = five_classes()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    averaged.update_parameters(model)
    optimiser = _stepped(model)
    averaged.update_parameters(model)
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimiser.state_dict(),
        "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimiser, 30).state_dict(),
        "epoch": 3,
        "args": argparse.Namespace(model="mobilenet_v2", lr=0.1),
        "model_ema": averaged.state_dict(),
    }
    return _saved(folder, averaged.module, 5, "classifier.1", checkpoint)


def half(folder: Path) -> FineTuned:
    return _saved(folder, five_classes().half(), 5, "classifier.1")


def bfloat16(folder: Path) -> FineTuned:
    return _saved(folder, five_classes().bfloat16(), 5, "classifier.1")


@torch.no_grad()
def parametrised(folder: Path) -> FineTuned:
    """Trained with weight norms, spectral norms and a pruned layer, none of which was made a plain weight
    before.
    """
    model = five_classes()
    convs = {name: module for name, module in model.named_modules() if isinstance(module, nn.Conv2d)}
    pruned = partial(prune.l1_unstructured, name="weight", amount=0.2)
    ways: tuple[Callable[[nn.Module], object], ...] = (
        utils.weight_norm,
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        utils.spectral_norm,
        pruned,
    )
    with warnings.catch_warnings(action="ignore"):
        for way, conv in zip(ways, convs.values(), strict=False):
            way(conv)
    wide = deepcopy(model).double().eval()
    wide(torch.zeros(1, 3, 32, 32).double())  # the older ways compute a weight when its module is called
    state = dict[str, torch.Tensor]()
    for name, tensor in model.state_dict().items():
        owner = next((conv for conv in [*convs][: len(ways)] if name.startswith(f"{conv}.")), None)
        state[name if owner is None else f"{owner}.weight"] = (
            tensor if owner is None else wide.get_submodule(owner).weight
        )
    return _saved(folder, model, 5, "classifier.1", state=state)


def timm(folder: Path) -> FineTuned:
    model = pretrained("timm")
    model.reset_classifier(7)
    return _saved(folder, model, 7, "classifier", zoo="timm")


def old_serialisation(folder: Path) -> FineTuned:
    return _saved(folder, five_classes(), 5, "classifier.1", zipped=False)


def student_and_teacher(folder: Path) -> FineTuned:
    """Two networks in one module; the student is the one that is wanted."""
    module = nn.Module()
    module.student = student = five_classes()
    module.teacher = _stepped_model()
    maps = ("student.features.0.0=stem/conv",)
    return _saved(
        folder, student, 5, "student.classifier.1", module.state_dict(), module.state_dict(), maps=maps
    )


def student_beside_teacher(folder: Path) -> FineTuned:
    """Two state_dicts under keys of their own."""
    student, teacher = five_classes(), _stepped_model()
    states = {"student": student.state_dict(), "teacher": teacher.state_dict()}
    state = {f"{key}.{name}": tensor for key, state in states.items() for name, tensor in state.items()}
    maps = ("student.features.0.0=stem/conv",)
    return _saved(folder, student, 5, "student.classifier.1", {**states, "epoch": 3}, state, maps=maps)


MAKERS: Mapping[str, Callable[[Path], FineTuned]] = {
    maker.__name__: maker
    for maker in (
        last_layer,
        whole_classifier,
        two_layers,
        sequential,
        data_parallel,
        compiled,
        lightning,
        training,
        half,
        bfloat16,
        parametrised,
        timm,
        old_serialisation,
        student_and_teacher,
        student_beside_teacher,
    )
}


def _saved(
    folder: Path,
    model: nn.Module,
    classes: int,
    head: str,
    content: Any = None,
    state: Mapping[str, torch.Tensor] | None = None,
    *,
    zoo: str = "torchvision",
    maps: tuple[str, ...] = (),
    zipped: bool = True,
) -> FineTuned:
    """Saves `content`, by default the model's state_dict, which is also by default what reading should
    give.
    """
    path = folder / "finetuned.pth"
    torch.save(
        model.state_dict() if content is None else content, path, _use_new_zipfile_serialization=zipped
    )
    return FineTuned(
        path, zoo, classes, model.eval(), model.state_dict() if state is None else state, head, maps
    )


def _stepped(model: nn.Module) -> torch.optim.Optimizer:
    """Moves every weight a little, as a step of training does, and gives the optimiser that did, with its
    momenta.
    """
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * parameter.detach().abs().mean()
    optimiser.step()
    optimiser.zero_grad()
    return optimiser


def _stepped_model() -> Any:
    model = five_classes()
    _stepped(model)
    return model


def assert_tells_images_apart(logits: Array) -> None:
    """Fails where the logits hardly depend on the image, so that every wrong pad would pass."""
    assert logits.std(axis=0).mean() >= 0.01 * np.abs(logits).mean()
