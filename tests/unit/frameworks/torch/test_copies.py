"""A copy of a module gives what the module gives, or is refused."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from porter.base.errors import CheckFailed, PorterError, UsageError
from porter.frameworks.torch.copies import prove_copies
from porter.frameworks.torch.running import tensors_in

Pair = namedtuple("Pair", "logits maps")


class Net(nn.Module):
    def __init__(self, ending: Callable[[Any, Any], Any] = lambda logits, maps: logits) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 2)
        self.ending = ending

    def forward(self, images: torch.Tensor, times: float = 1.0) -> Any:
        maps = self.norm(self.conv(images)) * times
        return self.ending(self.head(maps.mean((2, 3))), maps)


class Collecting(Net):
    """It gives values that hooks of its own collect, which it adds when it is first called, as transformers'
    models do.
    """

    def forward(self, images: torch.Tensor, times: float = 1.0) -> Any:
        if not hasattr(self, "found"):
            self.found: list[Any] = []
            self.conv.register_forward_hook(partial(self._collect))
        self.found.clear()
        return (super().forward(images), *self.found)

    def _collect(self, _: nn.Module, __: Any, value: torch.Tensor) -> None:
        self.found.append(value)


class Reading(Collecting):
    """It computes with what its hooks collect, as transformers' segmentation heads do."""

    def forward(self, images: torch.Tensor, times: float = 1.0) -> Any:
        found = super().forward(images)
        return found[0] + self.found[0].mean()


class Counting(Net):
    """It counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images: torch.Tensor, times: float = 1.0) -> Any:
        self.calls += 1
        return super().forward(images)


class Auxiliary(Net):
    """It gives one more value in training, as GoogLeNet does."""

    def forward(self, images: torch.Tensor, times: float = 1.0) -> Any:
        found = super().forward(images)
        return (found, found + 1) if self.training else found


def called(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        model(torch.zeros(1, 3, 8, 8))
    return model


def hooked(add: Callable[[Any], object], model: Any = None) -> Any:
    model = Net() if model is None else model
    add(model)
    return model


def with_forward(change: Callable[[Any], Any]) -> Any:
    model: Any = Net()
    model.forward = change(model.forward)
    return model


def outer(_: nn.Module, __: Any, value: torch.Tensor) -> torch.Tensor:
    return value * 2


def in_place(_: nn.Module, __: Any, value: torch.Tensor) -> None:
    value.mul_(2)


def refusing(*_: Any) -> Any:
    """A backend of torch.compile: porter compiles nobody's model."""
    raise NotImplementedError


seen: list[torch.Tensor] = []
COPIED: dict[str, tuple[Callable[[], Any], int, set[str], set[str]]] = {
    # what makes it, how many tensors it gives, where hooks are kept, where they are left out
    "plain": (Net, 1, set(), set()),
    "a hook that looks": (
        lambda: hooked(lambda net: net.conv.register_forward_hook(lambda _, __, value: seen.append(value))),
        1,
        set(),
        {"conv"},
    ),
    "a hook that gives": (
        lambda: hooked(lambda net: net.conv.register_forward_hook(outer)),
        1,
        {"conv"},
        set(),
    ),
    "a hook that changes in place": (
        lambda: hooked(lambda net: net.conv.register_forward_hook(in_place)),
        1,
        {"conv"},
        set(),
    ),
    "a hook before": (
        lambda: hooked(lambda net: net.head.register_forward_pre_hook(lambda _, given: (given[0] + 1,))),
        1,
        {"head"},
        set(),
    ),
    "a hook with names, at the top": (
        lambda: hooked(
            lambda net: net.register_forward_pre_hook(
                lambda _, given, named: (given, {"times": 3.0}), with_kwargs=True
            )
        ),
        1,
        {""},
        set(),
    ),
    "a hook at the top that clips what no value reaches": (
        lambda: hooked(lambda net: net.register_forward_hook(lambda _, __, value: value.clip(max=1e6))),
        1,
        {""},
        set(),
    ),
    "hooks backward": (
        lambda: hooked(lambda net: net.conv.register_full_backward_hook(lambda *_: None)),
        1,
        set(),
        set(),
    ),
    "hooks that collect, added when it is first called": (Collecting, 2, {"conv"}, set()),
    "hooks that collect, called before": (lambda: called(Collecting().eval()), 2, {"conv"}, set()),
    "hooks that collect what it computes with": (Reading, 1, {"conv"}, set()),
    "counts its calls": (Counting, 1, set(), set()),
    "a norm of weights": (
        lambda: hooked(lambda net: parametrizations.weight_norm(net.conv)),
        1,
        set(),
        set(),
    ),
    "forward of an instance": (
        lambda: with_forward(lambda forward: lambda images: forward(images) * 2),
        1,
        set(),
        set(),
    ),
    "forward with arguments": (
        lambda: with_forward(lambda forward: partial(forward, times=2.0)),
        1,
        set(),
        set(),
    ),
    "compiled": (lambda: torch.compile(Net().eval(), backend=refusing), 1, set(), set()),
    "compiled in place": (lambda: hooked(lambda net: net.compile(backend=refusing)), 1, set(), set()),
    "compiled inside": (
        lambda: nn.Sequential(hooked(lambda _: None, torch.compile(Net(), backend=refusing)), nn.ReLU()),
        1,
        set(),
        set(),
    ),
    "parallel inside": (lambda: nn.Sequential(nn.DataParallel(Net())), 1, set(), set()),
    "half precision": (lambda: Net().half(), 1, set(), set()),
    "double precision": (lambda: Net().double(), 1, set(), set()),
    "a named tuple": (lambda: Net(Pair), 2, set(), set()),
    "a container in training mode": (Net, 1, set(), set()),
}


@pytest.mark.parametrize("kind", COPIED)
def test_a_copy_gives_what_the_module_gives(kind: str) -> None:
    make, count, kept, left_out = COPIED[kind]
    model = make().eval()
    model.training = kind == "a container in training mode"
    images = torch.rand(1, 3, 8, 8)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    like = next(model.parameters()).dtype
    copies = prove_copies(model, "Net", [[images.to(like)]])
    assert {hook.path for hook in copies.kept} == kept
    assert all(f"'{path}'" in copies.notes[0] for path in left_out) and bool(copies.notes) == bool(left_out)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    copy = copies.make()
    assert not any(each.training for each in copy.modules())
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        wanted, got = (
            [*tensors_in(each(images.to(next(each.parameters()).dtype)))] for each in (model, copy)
        )
    assert len(got) == len(wanted) == count
    rounding = 2e-3 if like == torch.float16 else 1e-6
    for one, other in zip(wanted, got, strict=True):
        assert torch.allclose(one.double(), other.double(), rtol=0, atol=rounding)


def by_its_id(net: Net) -> Callable[..., Any]:
    own = {id(net.conv)}
    return lambda module, _, value: value + (id(module) in own)


REFUSED: dict[str, tuple[Callable[[], nn.Module], type[PorterError], str]] = {
    "a hook for this very module": (
        lambda: hooked(lambda net: net.conv.register_forward_hook(by_its_id(net))),
        CheckFailed,
        r"gives something else than it does: output 0 .*hooks of your own at 'conv'",
    ),
    "a hook of what wraps it": (
        lambda: hooked(lambda net: net.register_forward_hook(outer), nn.DataParallel(Net())),
        CheckFailed,
        r"output 0 is 5.0e-01 away",
    ),
    "more in training": (
        Auxiliary,
        UsageError,
        r"training mode.*2 tensors, and the copy 1 \(call model.eval",
    ),
    "an object of an unknown class": (
        lambda: Net(lambda logits, maps: SimpleNamespace(logits=logits)),
        UsageError,
        "returns a SimpleNamespace, in which porter finds no tensors",
    ),
    "an object among tensors": (
        lambda: Net(lambda logits, maps: {"logits": logits, "more": SimpleNamespace(maps=maps)}),
        UsageError,
        "returns a SimpleNamespace, in which",
    ),
    "no tensors": (lambda: Net(lambda logits, maps: ()), UsageError, "returns a tuple without tensors"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_no_copy_gives_what_the_module_gives(reason: str) -> None:
    make, kind, said = REFUSED[reason]
    model = make().eval()
    model.training = reason == "more in training"
    with pytest.raises(kind, match=said):
        prove_copies(model, "Net", [[torch.rand(1, 3, 8, 8)]])


def test_the_first_images_that_a_module_takes_are_taken() -> None:
    tried = [[torch.rand(1, channels, 8, 8)] for channels in (5, 3, 1)]
    assert prove_copies(Net().eval(), "Net", tried).images is tried[1]
    with pytest.raises(UsageError, match="does not take the example of 1x5x8x8 or 1x1x8x8: RuntimeError"):
        prove_copies(Net().eval(), "Net", tried[::2])
