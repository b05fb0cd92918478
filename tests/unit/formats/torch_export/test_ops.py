"""What porter reads of a torch.export program is what torch computes, in every form that torch writes one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from porter.filegraph.file_graph import Foreign
from porter.formats.reading import read_checkpoint
from porter.formats.torch_export.moves import VIEWS
from porter.formats.torch_export.ops import INNER, READERS
from porter.formats.torch_export.read import tap_of
from porter.formats.torch_export.rewrites import ROWS
from porter.frameworks.torch.engine import build_file, run_reference
from porter.graph import AdaptiveAvgPool, ReduceMap
from porter.padding import ANY
from tests.support.filegraph.values import values_of
from tests.support.formats.torch_export.exports import export

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'", "ignore:.*treespec")
SIZE = (11, 14)
Case = Callable[[Any, torch.Tensor], torch.Tensor]


def responding(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """ConvNeXt v2's norm of responses."""
    length = x.norm(p=2, dim=(2, 3), keepdim=True)
    return x + torch.addcmul(offset, scale, x * (length / (length.mean(1, keepdim=True) + 1e-6)))


def standardised(kernel: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """As the convolutions of BiT and of NFNets compute their kernels."""
    rows = kernel.reshape(1, len(kernel), -1)
    return F.batch_norm(
        rows, None, None, weight=gain.view(-1), training=True, momentum=0.0, eps=0.01
    ).reshape_as(kernel)


def efficient(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The gate of timm's EcaModule."""
    rows = F.conv1d(x.mean((2, 3)).view(len(x), 1, -1), m.k5, padding=2)
    return rows.sigmoid().view(len(x), -1, 1, 1)


def selective(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The two paths of timm's SelectiveKernel."""
    paths = torch.stack([x, x.tanh()], 1)
    gate = F.conv2d(paths.sum(1).mean((2, 3), keepdim=True), m.k1)
    return (paths * torch.cat([gate, gate.neg()], 1).view(len(x), 2, -1, 1, 1).softmax(1)).sum(1)


def split_attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    """timm's SplitAttn of radix 2."""
    parts = x.reshape(len(x), 2, 3, *x.shape[2:])
    mean = parts.sum(1).mean((2, 3), keepdim=True)
    gate = F.conv2d(torch.cat([mean, mean.neg()], 1), m.k1).view(len(x), 1, 2, -1).transpose(1, 2).softmax(1)
    return (parts * gate.reshape(len(x), -1).view(len(x), -1, 1, 1).reshape(len(x), 2, 3, 1, 1)).sum(1)


def with_places(x: torch.Tensor) -> torch.Tensor:
    """Where each cell lies, as CoordConv's maps say it: before the channels and behind them."""
    images, _, rows, columns = x.shape
    across = torch.arange(columns).type_as(x).expand(images, 1, rows, columns)
    down = (torch.arange(rows).repeat(1, columns, 1) / 8 - 1).view(1, 1, columns, rows)
    down = down.repeat(images, 1, 1, 1).transpose(2, 3).type_as(x)
    return torch.cat([across, x, down, x.tanh()], 1)


def shifted(x: torch.Tensor) -> torch.Tensor:
    """As temporal shifts move some channels by a row or a column, over zeros."""
    found = torch.zeros_like(x)
    found[:, :2, :-1] = x[:, :2, 1:]
    found[:, 2:4, :, 1:] = x[:, 2:4, :, :-1]
    found[:, 4:] = x[:, 4:]
    return found


def marked(x: torch.Tensor) -> torch.Tensor:
    """Numbers and values in parts of a value."""
    found = x.clone()
    found[:, :2], found[:, :, 2], found[:, 1:3, :2] = 0.5, x.mean(2), torch.arange(2.0)[:, None]
    found[:, -1] = x[:, :3].amax(1)
    return found


def masked(x: torch.Tensor) -> torch.Tensor:
    found = x.new_ones(x.shape)
    found[:, :, 3:5, 2:], found[:, 1] = 0, 2
    return found


def woven(x: torch.Tensor) -> torch.Tensor:
    """Four maps as the cells of one, as an inverse Haar transform writes them."""
    found = x.new_zeros(len(x), 6, 2 * x.shape[2], 2 * x.shape[3])
    found[:, :, 0::2, 0::2], found[:, :, 1::2, 0::2] = x, x.tanh()
    found[:, :, 0::2, 1::2], found[:, :, 1::2, 1::2] = x * 2, x.sigmoid()
    return found


def rewritten(x: torch.Tensor) -> torch.Tensor:
    """What was written into as a whole and in parts, over what `empty` makes, which is written into again."""
    whole, found = x.sigmoid(), torch.empty_like(x)
    whole[:, :] *= -1
    whole[:, :, 3:] *= 2
    found[:] = whole
    found[:, 1:, 2:] = x[:, 1:, 2:]
    return found


def test_ops_that_torch_calls_views_are_views() -> None:
    """And those of the others that share memory sometimes: what torch declares is not all."""
    for op in READERS:
        packet = getattr(torch.ops.aten, op, None)
        schemas = (
            [] if packet is None else [getattr(packet, overload)._schema for overload in packet.overloads()]
        )
        shared = [
            value.alias_info for schema in schemas for value in schema.returns if value.alias_info is not None
        ]
        assert op in VIEWS or all(info.is_write for info in shared), op


CASES: dict[str, Case] = {
    "copies of a channel": lambda m, x: x[:, :1].expand(-1, 4, -1, -1) + x[:, 5:].repeat(1, 4, 1, 1),
    "copies of a channel behind": lambda m, x: x.mean(1, keepdim=True).permute(0, 2, 3, 1).repeat(1, 1, 1, 4),
    "conv": lambda m, x: F.conv2d(x, m.k3, m.b8, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
    "conv in groups, padded alike": lambda m, x: F.conv2d(x, m.k2, padding="same", groups=2),
    "conv by a standardised kernel": lambda m, x: F.conv2d(x, standardised(m.k3, m.b8 * 0.5), m.b8 * 2),
    "transposed": lambda m, x: F.conv_transpose2d(
        x, m.t3, m.b4, stride=(2, 3), padding=1, output_padding=(0, 1), groups=2
    ),
    "max pool, ceil": lambda m, x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "max pool, dilated": lambda m, x: F.max_pool2d(x, 2, 1, dilation=3),
    "average": lambda m, x: F.avg_pool2d(x, (3, 2), 2, (1, 0)),
    "average, ceil": lambda m, x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "average of real cells": lambda m, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True),
    "average by a number": lambda m, x: F.avg_pool2d(x, 3, padding=1, divisor_override=5),
    "pools of the map": lambda m, x: F.adaptive_avg_pool2d(x, 1) + F.adaptive_max_pool2d(x, (1, 1)),
    "norm": lambda m, x: F.batch_norm(x, m.mean, m.variance, m.gamma, m.beta, eps=0.01),
    "norm without scale": lambda m, x: F.batch_norm(x, m.mean, m.variance),
    "norm of the channels": lambda m, x: F.layer_norm(x.permute(0, 2, 3, 1), (6,), m.gamma, m.beta).permute(
        0, 3, 1, 2
    ),
    "norms by the root": lambda m, x: F.rms_norm(
        F.rms_norm(x.permute(0, 2, 3, 1) * 1e-3, (6,), eps=1e-6), (6,), m.gamma, 0.01
    ),
    "norms by the root, in parts": lambda m, x: (
        x * (x**2).mean(1, keepdim=True).add(0.1).rsqrt() * m.along
        + x / (x * x).mean([1], keepdim=True).add(1e-6).sqrt()
    ),
    "norms of groups": lambda m, x: (
        F.group_norm(F.group_norm(x.relu(), 3, m.gamma, m.beta, 0.01), 1) + F.group_norm(x, 2, m.gamma)
    ),
    "norm of responses": lambda m, x: responding(x, m.along, m.along * 2),
    "lengths": lambda m, x: x / x.norm(p=2, dim=1, keepdim=True) + x.norm(p=2, dim=3, keepdim=True),
    "quotient of whole numbers": lambda m, x: x * (m.seven / m.two),
    "response norm": lambda m, x: F.local_response_norm(x, 4, alpha=0.3, beta=0.6, k=2.0),
    "clips": lambda m, x: (
        F.relu6(x) + F.hardtanh(x, -0.5, 0.4) + x.clamp(min=0.1) + x.clamp(-1, 1) + F.relu(x).clamp_(max=0.7)
    ),
    "hard ones": lambda m, x: F.hardswish(F.hardsigmoid(x)) + x * F.relu6(x + 3) / 6,
    "smooth ones": lambda m, x: (
        F.mish(F.silu(F.gelu(F.gelu(x), approximate="tanh"))) + F.softplus(x) + F.softsign(x)
    ),
    "softplus, cut": lambda m, x: F.softplus(x * 0.001 + 20.0005),
    "softplus without a threshold": lambda m, x: F.softplus(x * 0.001 + 20.0005, threshold=50),
    "channels at places": lambda m, x: x.index_select(1, m.places) * x.index_select(-3, m.places[:1]),
    "in reverse": lambda m, x: x.flip(1) + x * x.flip(-3),
    "average of cells around": lambda m, x: (
        F.avg_pool2d(F.pad(x, (1, 0, 0, 2)), 3) / F.avg_pool2d(F.pad(torch.ones_like(x), (1, 0, 0, 2)), 3)
    ),
    "slopes": lambda m, x: F.selu(F.elu(F.leaky_relu(x, 0.2), 0.7)) + F.prelu(x, m.gamma) + F.prelu(x, m.one),
    "tanh and sigmoid": lambda m, x: torch.tanh(torch.sigmoid(x)),
    "softmax": lambda m, x: x.softmax(1),
    "constants": lambda m, x: (
        (2 - x) / 0.5 - (x * m.along + torch.tensor(0.25)) ** 2 + torch.add(x, 1.5) - x.neg() * 3
    ),
    "computed constants": lambda m, x: (
        x * (m.gamma * (m.variance + 0.1).rsqrt()).view(1, -1, 1, 1)
        - (m.beta / m.variance.sqrt() + m.variance.reciprocal())[:, None, None]
    ),
    "norm in parts": lambda m, x: (
        (x - m.mean.view(6, 1, 1)) / (m.variance.view(6, 1, 1) + 0.1).sqrt() * m.along + m.along
    ),
    "of values": lambda m, x: torch.maximum(x * x.sigmoid(), x - x.tanh()) + torch.minimum(x, x * x),
    "squeeze and excite": lambda m, x: x * F.conv2d(x.mean((2, 3), keepdim=True), m.k1).sigmoid(),
    "efficient channel attention": lambda m, x: efficient(m, x).expand_as(x) * x,
    "selective kernels": selective,
    "split attention": split_attention,
    "head": lambda m, x: F.linear(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1), m.dense, m.b8),
    "head of means": lambda m, x: x.mean([-1, -2]) @ m.dense.t() + m.b8,
    "head of a maximum": lambda m, x: torch.addmm(
        m.b8, F.dropout(x.amax((2, 3)), 0.5, False), m.dense.t(), alpha=0.5
    ),
    "cells": lambda m, x: F.linear(x.permute(0, 2, 3, 1), m.dense, m.b8).permute(0, 3, 1, 2),
    "channels shuffled": lambda m, x: (
        x.view(x.shape[0], 2, 3, *x.shape[2:]).transpose(1, 2).contiguous().view(x.shape)
    ),
    "shuffled by torch": lambda m, x: F.channel_shuffle(x, 3),
    "cells of channels": lambda m, x: F.pixel_shuffle(torch.cat([x, x], 1), 2),
    "the second part": lambda m, x: torch.relu(x).chunk(2, 1)[1],
    "parts": lambda m, x: torch.cat([*x.chunk(2, 1), *x.split([1, 5], 1), x[:, 1:5:2], x.narrow(1, 2, 2)], 1),
    "parts from the end": lambda m, x: torch.cat(
        [x.narrow(1, -3, 3), x.narrow(1, -3, 2), x.narrow(1, -1, 1)], 1
    ),
    "copies": lambda m, x: (
        x.flatten(2) * x.flatten(2).amax(2, keepdim=True).repeat(1, 1, x.shape[2] * x.shape[3])
    ),
    "a channel": lambda m, x: torch.cat([x[:, 4].unsqueeze(1) * 0.5 + 1, x[:, :2]], 1),
    "a corner": lambda m, x: x[:, :, 1:-2, ::2],
    "pads": lambda m, x: F.max_pool2d(F.pad(x, (1, 2, 0, 1), value=-3.0), 2),
    "pads of channels": lambda m, x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 3)),
    "repeated cells": lambda m, x: F.interpolate(x, scale_factor=2, mode="nearest"),
    "changed in place": lambda m, x: (x + 1).relu_().add_(x).mul_(2),
}
CASES |= {
    "logarithms and powers": lambda m, x: torch.log1p(x.abs()) + torch.log2(x.abs() + 1) + 2.0**x + x.exp2(),
    "of hyperbolas": lambda m, x: x.sinh() + x.cosh() + x.asinh() + (x.abs() + 2).acosh() + x.tanh().atanh(),
    "angles and errors": lambda m, x: (x * 0.1).tan() + x.expm1() + x.erfc(),
    "nearer to 0": lambda m, x: F.softshrink(x, 0.3) + F.hardshrink(x, 0.3) + F.threshold(x, 0.2, -0.7),
    "cut to whole numbers": lambda m, x: (
        x.trunc() + x.frac() + x.remainder(0.7) + x.fmod(0.7) + x.div(0.3, rounding_mode="floor")
    ),
    "of two values": lambda m, x: (
        torch.hypot(x, x + 1) + x.lerp(x * x, 0.3) + (x == x.clamp(min=0)) + (x != x.clamp(min=0)) * x
    ),
    "scaled sums": lambda m, x: torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(x, x, x.abs() + 1, value=2),
    "norms of orders": lambda m, x: (
        x / sum(torch.linalg.vector_norm(x, each, 1, True) for each in (1, 3, math.inf, -math.inf))
    ),
    "along the channels": lambda m, x: x.cumsum(1) + x.prod(1, keepdim=True) + x.amin(1, keepdim=True),
    "deviation and mean": lambda m, x: sum(torch.std_mean(x, 1, keepdim=True)) * x,
    "alike": lambda m, x: x * F.cosine_similarity(x, x * x, 1)[:, None],
    "copies of channels": lambda m, x: x.tile(1, 2, 1, 1)[:, 3:9],
    "axes by letters": lambda m, x: torch.einsum("nchw->ncwh", x.movedim(2, 3) * x.movedim(2, 3)),
    "gated by letters": lambda m, x: torch.einsum("nchw,nc->nchw", x, x.mean((2, 3))),
}
WHOLE_ONLY: dict[str, Case] = {
    "sums of powers": lambda m, x: x.logsumexp(1, keepdim=True) + torch.logaddexp(x, x * 2),
    "log of a quotient": lambda m, x: x.sigmoid().logit(1e-3),
    "channels twice": lambda m, x: x.repeat_interleave(2, 1)[:, 3:9],
    "smooth below 0": lambda m, x: F.celu(F.celu(x), alpha=0.7) + F.celu(x, alpha=2.5),
    "pads of own cells": lambda m, x: F.pad(
        F.pad(x, (1, 2, 3, 0), mode="reflect"), (2, 0, 1, 1), mode="replicate"
    ),
    "norms of instances": lambda m, x: F.instance_norm(
        F.instance_norm(x, weight=m.gamma, bias=m.beta)
        + F.instance_norm(x, m.mean, m.variance, use_input_stats=False)
    ),
    "between cells": lambda m, x: F.interpolate(
        F.interpolate(x, scale_factor=(1.5, 0.5), mode="bilinear"), scale_factor=2, mode="bicubic"
    ),
    "between corners": lambda m, x: F.interpolate(
        F.interpolate(x, scale_factor=3, mode="bilinear", align_corners=True),
        scale_factor=0.4,
        mode="bicubic",
        align_corners=True,
    ),
    "exact cells": lambda m, x: F.interpolate(x, scale_factor=(2, 0.5), mode="nearest-exact"),
    "like another map": lambda m, x: F.interpolate(F.max_pool2d(x, 2), size=x.shape[2:], mode="bilinear") + x,
    "antialiased": lambda m, x: F.interpolate(
        F.interpolate(x, scale_factor=2, mode="bilinear", antialias=True),
        scale_factor=1.5,
        mode="bicubic",
        antialias=True,
    ),
    "around": lambda m, x: F.threshold(F.pad(x, (1, 2, 0, 1), mode="circular"), 0.3, 0.0),
}
"""Decomposed, they are lookups by computed places, choices by bounds, or parts of a CELU, all refused."""
FIXED_ONLY: dict[str, Case] = {
    "places beside channels": lambda m, x: with_places(x),
    "written over zeros": lambda m, x: shifted(x),
    "written into parts": lambda m, x: marked(x),
    "written into every second cell": lambda m, x: woven(x),
    "written again": lambda m, x: rewritten(x),
    "by a mask that is written": lambda m, x: x * masked(x),
    "parts side by side": lambda m, x: x.unfold(2, 5, 5).unfold(3, 3, 3).tanh().mean((-1, -2)),
    "parts that overlap": lambda m, x: (
        F.pad(x, (1, 1, 0, 1)).unfold(2, 3, 2).unfold(3, 2, 3).permute(0, 1, 4, 5, 2, 3).flatten(1, 3)
    ),
    "diagonals": lambda m, x: (
        torch.cat([x.diagonal(2, 2, 3), x.diagonal(-3, 2, 3), x.diagonal(-1, -1, -2)], -1)
        * x.diagonal(0, 1, 2).sum((1, 2), keepdim=True)
    ),
    "turned round": lambda m, x: x.flip((2, 3)) + x.flip(3) + x.rot90(2, (2, 3)) + x.rot90(4, (2, 3)),
    "copies of rows": lambda m, x: x.repeat(1, 1, 2, 1)[:, :, 3:] + x.repeat_interleave(2, 2)[:, :, 3:],
    "copies of a channel and rows": lambda m, x: x[:, 2:3].repeat(1, 3, 3, 1)[:, :, 5:12],
    "sums of rows": lambda m, x: x.cumsum(2) + x.prod(3, keepdim=True),
    "triangles": lambda m, x: x.tril() + x.triu(1),
    "norm of the columns": lambda m, x: F.layer_norm(x, x.shape[-1:]),
    "a corner of a size": lambda m, x: x[:, :, :6, 3:99],
    "windows": lambda m, x: F.adaptive_avg_pool2d(x, (5, 7)),
    "windows that differ in size": lambda m, x: (
        F.adaptive_avg_pool2d(x, (3, 4)) * F.adaptive_max_pool2d(x, (3, 1))
    ),
    "more windows than cells": lambda m, x: F.adaptive_max_pool2d(x, (15, 3)),
    "no windows": lambda m, x: F.adaptive_avg_pool2d(x.relu(), SIZE),
    "flattened map": lambda m, x: F.linear(x.flatten(1), m.wide),
    "to a size": lambda m, x: F.interpolate(F.max_pool2d(x[:, :, :10], 2), size=(10, 14)),
}
WHOLE_AND_FIXED: dict[str, Case] = {
    "to other cells": lambda m, x: F.interpolate(
        F.interpolate(x, size=(5, 7), mode="bilinear"), size=(11, 3), mode="bicubic"
    ),
    "to the nearest": lambda m, x: F.interpolate(x, size=(5, 7)),
    "a map of patches": lambda m, x: F.fold(
        F.unfold(x[:, :, 1:], (2, 7), stride=(2, 7)).relu() * 0.5, (10, 14), (2, 7), stride=(2, 7)
    ),
    "patches that overlap": lambda m, x: F.unfold(x, 3, stride=2) * F.unfold(x, 3, stride=2).sigmoid(),
    "patches that are spread and padded": lambda m, x: F.unfold(x, (2, 3), (1, 2), (1, 2), (2, 1)),
    "a map of patches that overlap": lambda m, x: F.fold(
        F.unfold(x, (3, 2), padding=(1, 0), stride=(2, 1)).relu(), SIZE, (3, 2), padding=(1, 0), stride=(2, 1)
    ),
    "a map that patches do not fill": lambda m, x: F.fold(
        F.unfold(x, 3, (1, 2), 1, 3).tanh(), SIZE, 3, (1, 2), 1, 3
    ),
    "pairs of features": lambda m, x: (
        F.bilinear(x.mean((2, 3)), x.amax((2, 3)), m.pairs, m.b4)
        + F.bilinear(x.permute(0, 2, 3, 1), x.permute(0, 2, 3, 1), m.pairs).mean((1, 2))
    ),
    "learned queries": lambda m, x: m.dense.tile(len(x), 1, 1) @ x.flatten(2) + m.dense @ x.flatten(2),
}
SHAPES = {
    "k3": (8, 6, 3, 3),
    "k2": (6, 3, 2, 2),
    "t3": (6, 2, 3, 3),
    "k1": (6, 6, 1, 1),
    "k5": (1, 1, 5),
    "b8": (8,),
    "b4": (4,),
    "gamma": (6,),
    "beta": (6,),
    "along": (6, 1, 1),
    "one": (1,),
    "dense": (8, 6),
    "pairs": (4, 6, 6),
    "wide": (3, 6 * SIZE[0] * SIZE[1]),
}


class Ops(nn.Module):
    def __init__(self, cases: dict[str, Case]) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(0)
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, generator=random) * 0.5))
        self.register_buffer("seven", torch.tensor([7]))
        self.register_buffer("places", torch.tensor([0, 2, 4, 1, 3, 5]))
        self.register_buffer("two", torch.tensor([2]))
        self.register_buffer("mean", torch.randn(6, generator=random))
        self.register_buffer("variance", torch.rand(6, generator=random) + 0.5)
        self.cases = cases

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(case(self, x) for case in self.cases.values())


FORMS = {
    "fixed": (False, False),
    "fixed, decomposed": (False, True),
    "any size": (True, False),
    "any size, decomposed": (True, True),
}


def test_every_op_that_is_read_or_run_is_one_of_torch() -> None:
    # Rows are porter's own.
    ops = {op for op in {*READERS, *INNER} - {ROWS} if not op.startswith("operator.")}
    # `__and__` is read without its last lines, as an op in place is.
    names = {op: (op, f"{op}__") for op in ops}
    assert [op for op, each in names.items() if not any(hasattr(torch.ops.aten, name) for name in each)] == []


@pytest.mark.parametrize(
    ("free", "decomposed", "only"),
    [
        *(
            pytest.param(*form, None, id=name, marks=[pytest.mark.full] if all(form) else [])
            for name, form in FORMS.items()
        ),
        # Its weights are repeated for each row of the image, which is open.
        pytest.param(True, True, "cells", id="any size, decomposed, one of them"),
    ],
)
def test_a_program_computes_what_torch_computes(
    free: bool, decomposed: bool, only: str | None, tmp_path: Path
) -> None:
    cases = {**CASES, **({} if free else FIXED_ONLY), **({} if decomposed else WHOLE_ONLY)}
    if not (free or decomposed):  # the other cases are in both of the forms above it
        cases = {**FIXED_ONLY, **WHOLE_AND_FIXED}
    if only is not None:
        cases = {only: cases[only]}
    model, image = Ops(cases).eval(), torch.randn(2, 6, *SIZE, generator=torch.Generator().manual_seed(1))
    checkpoint = read_checkpoint(export(model, image, tmp_path, free, decomposed)[0])
    graph = checkpoint.graph
    assert graph is not None and graph.size == (ANY if free else SIZE)
    assert not [(node.name, node.op) for node in graph.nodes if isinstance(node.op, Foreign)]
    image = torch.randn(3, 6, *((9, 12) if free else SIZE), generator=torch.Generator().manual_seed(2))
    expected = [value.detach().numpy() for value in model.double()(image.double())]
    values = values_of(graph, checkpoint.tensors, image.double().numpy())
    assert len(graph.outputs) == len(cases)
    for name, end, value in zip(cases, graph.outputs, expected, strict=True):
        assert (
            values[end].shape == value.shape
            and np.abs(values[end] - value).max() <= 1e-12 * np.abs(value).max()
        ), name
    taps = {node.name: node.tap for node in graph.nodes if node.tap}
    assert set(graph.outputs) <= set(taps)
    for dtype, limit in (("float32", 5e-6), ("float64", 1e-13)):
        theirs = run_reference(build_file(checkpoint, dtype, ANY), image.numpy(), taps)  # type: ignore[arg-type]
        for node, value in theirs.items():
            assert (
                values[node].shape == value.shape
                and np.abs(values[node] - value).max() <= limit * np.abs(value).max()
            ), node


def test_a_program_of_one_image_widens_its_weights_once_for_many(tmp_path: Path) -> None:
    widened = list[torch.Size]()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if op is torch.ops.aten._to_copy.default:
                widened.append(args[0].shape)
            return op(*args, **(kwargs or {}))

    layer, images = nn.Conv2d(3, 2, 3), torch.randn(4, 3, 8, 9)
    checkpoint = read_checkpoint(export(layer, images[:1], tmp_path)[0])
    module = build_file(checkpoint, "float64", ANY)
    with Watch():
        found = module(images.double())
    wanted = layer.double()(images.double())
    assert widened.count(layer.weight.shape) == 1 and torch.allclose(found, wanted, rtol=1e-14, atol=1e-15)


def test_an_epsilon_that_is_not_stated_is_that_of_the_type_in_which_the_program_was_made(
    tmp_path: Path,
) -> None:
    cases: dict[str, Case] = {"norm": lambda m, x: F.rms_norm(x.permute(0, 2, 3, 1) * 1e-3, (6,))}
    image = torch.randn(2, 6, *SIZE, generator=torch.Generator().manual_seed(1))
    checkpoint = read_checkpoint(export(model := Ops(cases).eval(), image, tmp_path)[0])
    assert checkpoint.graph is not None
    (end,) = checkpoint.graph.outputs
    value = values_of(checkpoint.graph, checkpoint.tensors, image.double().numpy())[end]
    assert np.abs(value - model(image)[0].numpy()).max() <= 1e-6
    theirs = run_reference(build_file(checkpoint, "float64", ANY), image.numpy(), {end: tap_of("rms_norm")})
    assert np.abs(value - theirs[end]).max() <= 1e-12


def test_a_largest_number_of_padded_maps_among_the_images_is_refused(tmp_path: Path) -> None:
    """Zeros between two maps would be cells of theirs."""

    def pooled(pad: int) -> Case:
        return lambda m, x: F.max_pool2d(x.reshape(-1, 3, *SIZE), 3, 2, pad).reshape(len(x), 2, 3, -1)

    archive = export(Ops({"0": pooled(0), "1": pooled(1)}), torch.randn(2, 6, *SIZE), tmp_path)[0]
    graph = read_checkpoint(archive).graph
    assert graph is not None
    kinds = [op.kind for node in graph.nodes if isinstance(op := node.op, Foreign)]
    assert kinds[0] == "a reshape of 6x11x14 to 3x11x14"


def test_very_many_windows_are_one_op(tmp_path: Path) -> None:
    """Their number is a program's own, and may be any."""
    cases: dict[str, Case] = {"": lambda m, x: F.adaptive_avg_pool2d(x, (600, 7))}
    graph = read_checkpoint(export(Ops(cases), torch.randn(1, 6, *SIZE), tmp_path)[0]).graph
    assert graph is not None and graph.by_name[graph.outputs[0]].op == AdaptiveAvgPool(600, 7)


def test_a_pool_that_keeps_the_rows_is_one_over_the_columns_at_every_size(tmp_path: Path) -> None:
    cases: dict[str, Case] = {
        "1": lambda m, x: F.adaptive_avg_pool2d(x, (None, 1)),
        # Its types know no None.
        "2": lambda m, x: F.adaptive_max_pool2d(x, (1, None)),  # type: ignore[arg-type]
        "3": lambda m, x: F.adaptive_avg_pool2d(x, (None, 2)),
    }
    graph = read_checkpoint(export(Ops(cases), torch.randn(2, 6, *SIZE), tmp_path, True)[0]).graph
    assert graph is not None
    kind = "adaptive_avg_pool2d to ?x2 of a map of any size: export the model for one size"
    found = [graph.by_name[name].op for name in graph.outputs]
    assert found == [ReduceMap("mean", "columns"), ReduceMap("max", "rows"), Foreign(kind)]


def test_cells_that_torch_does_not_repeat_equally_often_are_refused_by_name(tmp_path: Path) -> None:
    """Torch itself says which: at 41, 47 and 61 its rounding moves the first cell of a copy."""
    factors, image = (2, 3, 13, 40, 41, 42, 47, 61, 63, 64), torch.randn(1, 6, *SIZE)

    def repeated(factor: int) -> Case:
        return lambda m, x: F.interpolate(x[:, :2], scale_factor=factor, mode="nearest")

    cases = {str(factor): repeated(factor) for factor in factors}
    graph = read_checkpoint(export(Ops(cases).eval(), image, tmp_path)[0]).graph
    assert graph is not None
    cells = torch.arange(9.0)[None, None, None]
    for factor, end in zip(factors, graph.outputs, strict=True):
        found = F.interpolate(cells, scale_factor=(1, factor), mode="nearest")
        equally = torch.equal(found, cells.repeat_interleave(factor, 3))
        assert isinstance(graph.by_name[end].op, Foreign) != equally, factor
