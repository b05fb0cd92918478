"""What porter says of modules that it cannot port as they are, and that what it advises works."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import porter

pytestmark = pytest.mark.usefixtures("in_double")

SIDE = 24
UNEVEN = torch.randn(2, 3, 33, 31, generator=torch.Generator().manual_seed(0))
ONLY = r"^input_size: the model works at 33x31 only: layers, numbers or branches in it are for that size"

Code = Callable[["Net", torch.Tensor], Any]


class Net(nn.Module):
    """A convolution, tensors to compute with, and code of a case's own."""

    def __init__(self, code: Code) -> None:
        super().__init__()
        self.conv, self.style = nn.Conv2d(3, 3, 3), nn.Linear(3, 3)
        self.kernel = nn.Parameter(torch.randn(4, 3, 3, 3))
        self.code = code

    def forward(self, images: torch.Tensor) -> Any:
        return self.code(self, images)


class Gathering(Net):
    """It takes its images as `*images`."""

    def forward(self, *images: torch.Tensor) -> Any:
        return self.code(self, sum(images))  # type: ignore[arg-type]


class GatheringAll(Net):
    def forward(self, *images: torch.Tensor, **_: Any) -> Any:
        return self.code(self, images[0])


class GatheringMore(Net):
    def forward(self, images: torch.Tensor, *more: torch.Tensor) -> Any:
        return self.code(self, sum(more, images))


def modulated(net: Net, images: torch.Tensor) -> torch.Tensor:
    """As StyleGAN2: each image has its own kernel, and is a group of its own."""
    count, channels, rows, columns = images.shape
    kernels = net.kernel[None] * net.style(images.mean((2, 3)))[:, None, :, None, None]
    found = functional.conv2d(
        images.reshape(1, count * channels, rows, columns), kernels.flatten(0, 1), padding=1, groups=count
    )
    return found.reshape(count, 4, rows, columns)


def modulated_transposed(net: Net, images: torch.Tensor) -> torch.Tensor:
    count, channels, rows, columns = images.shape
    kernels = net.kernel.swapaxes(0, 1)[None] * net.style(images.mean((2, 3)))[:, :, None, None, None]
    found = functional.conv_transpose2d(
        images.reshape(1, count * channels, rows, columns), kernels.flatten(0, 1), padding=1, groups=count
    )
    return found.reshape(count, 4, rows, columns)


def branching(net: Net, images: torch.Tensor) -> torch.Tensor:
    return net.conv(images) if images.shape[2] % 2 else 2 * net.conv(images)


def sized(net: Net, images: torch.Tensor) -> torch.Tensor:
    return net.conv(images + torch.ones(33, 31))


CUT = r'outputs="([\w,]+)"'


@dataclass(frozen=True)
class Case:
    """A module, what is said of it, and what works then.

    Attributes:
        then: arguments, another code, or CUT for the outputs that the message names.
        how: the arguments of the first call.
    """

    code: Code
    said: str
    then: dict[str, Any] | Code | str
    how: dict[str, Any] = field(default_factory=lambda: {"input_size": SIDE})


def _plain(net: Net, images: torch.Tensor) -> torch.Tensor:
    return net.conv(images)


ANY = {"input_size": "any", "example": UNEVEN}
AT_ONE_SIZE = {"input_size": "33x31", "example": UNEVEN}
OTHER = {"input_size": 40, "example": torch.ones(1, 3, 40, 40)}
CASES = {
    "a cast to whole numbers and back": Case(
        lambda net, images: net.conv(images).to(torch.int32).float(),
        r"a cast to int32, which rounds.*outputs=\"value_conv2d\"",
        CUT,
    ),
    "a cast to bytes": Case(
        lambda net, images: net.conv((images * 255).to(torch.uint8) / 255),
        r"a cast to uint8, which rounds.*outputs=\"value_mul\"",
        CUT,
    ),
    "a mean of the whole batch": Case(
        lambda net, images: net.conv(images) * images.mean().item(),
        r"mean of all images together.*outputs=\"value_conv2d\"",
        CUT,
    ),
    "a branch on a value": Case(
        lambda net, images: net.conv(images) if images.mean().item() > 0 else net.conv(-images),
        r"data-dependent.*keep what is computed from images a tensor in forward",
        lambda net, images: net.conv(torch.where(images.mean((1, 2, 3), True) > 0, images, -images)),
    ),
    "groups of a norm, one for each image": Case(
        lambda net, images: functional.group_norm(functional.conv2d(images, net.kernel), len(images)),
        r"num_groups=\d+ \(porter runs it on several images: nothing in it may depend on their number\)$",
        lambda net, images: functional.group_norm(functional.conv2d(images, net.kernel), 4),
    ),
    "constants only": Case(
        lambda net, images: net.conv(torch.ones(1, 3, 8, 8)),
        "no output of the program depends on the cells of its image .port a model that computes its",
        _plain,
    ),
    "the size of the image only": Case(
        lambda net, images: net.kernel.sum() * images.shape[0],
        "no output of the program depends on the cells of its image",
        _plain,
    ),
    "a group for each image": Case(
        modulated,
        r"'conv2d' \(conv2d whose argument 'groups' is the number of images\).*outputs=\"value_mul\"",
        CUT,
    ),
    "a group for each image, transposed": Case(
        modulated_transposed,
        r"\(conv_transpose2d whose argument 'groups' is the number of images\).*outputs=\"value_mul\"",
        CUT,
    ),
    "a branch on the size": Case(
        branching, f"{ONLY} .write input_size=.33x31., or give an example of", AT_ONE_SIZE, ANY
    ),
    "a branch on the size, and another one": Case(branching, ONLY, OTHER, ANY),
    "a branch on the size, at another": Case(branching, ONLY, OTHER, {**ANY, "input_size": 40}),
    "a constant of one size": Case(sized, ONLY, AT_ONE_SIZE, ANY),
}


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("what", CASES)
def test_a_refusal_names_what_it_is_and_what_works(what: str, tmp_path: Path) -> None:
    case = CASES[what]

    def converted(code: Code, **how: Any) -> Any:
        torch.manual_seed(0)
        return porter.convert(Net(code).eval(), to="torch", out=tmp_path / "port", **how)

    with pytest.raises(porter.PorterError, match=case.said) as caught:
        converted(case.code, **case.how)
    if callable(case.then):
        made = converted(case.then, **case.how)
    elif isinstance(case.then, str):
        (named,) = re.findall(case.then, str(caught.value))
        made = converted(case.code, outputs=named, **case.how)
    else:
        made = converted(case.code, **{**case.how, **case.then})
    assert made.verdict.ok


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    ("kind", "count"),
    [(Gathering, 1), (Gathering, 2), (GatheringAll, 1), (GatheringMore, 1), (GatheringMore, 2)],
)
def test_images_that_are_gathered_have_any_size(kind: type[Net], count: int, tmp_path: Path) -> None:
    """A pool that rounds up is right at any size, and the sizes of a module are left open for each input."""
    torch.manual_seed(0)
    net = kind(lambda net, images: functional.max_pool2d(net.conv(images), 3, 2, ceil_mode=True)).eval()
    example = (UNEVEN, UNEVEN.flip(0))[:count]
    made = porter.convert(net, to="torch", out=tmp_path / "port", example=example, input_size="any")
    assert made.verdict is not None and made.verdict.ok
    images = [torch.randn(3, 3, 20, 27) for _ in range(count)]
    with torch.no_grad():
        assert torch.allclose(made.model()(*images), net(*images), rtol=0, atol=1e-5)
