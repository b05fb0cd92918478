"""Masks of attention that a program states: truths, as transformers makes them, and numbers; each is held to
the module itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import porter

pytestmark = pytest.mark.usefixtures("in_double")

MASKS: dict[str, Callable[[torch.Tensor, int, int], torch.Tensor]] = {
    "all, for each image": lambda place, images, count: (place[None, None, :, None] >= 0).expand(
        images, -1, count, count
    ),
    "those before, for each image": lambda place, images, count: (place[:, None] >= place)[None, None].expand(
        images, -1, count, count
    ),
    "those before": lambda place, images, count: place[:, None] > place - 1,
    "numbers, for each image and head": lambda place, images, count: (
        -(place[:, None] - place).abs().float()
    )[None, None].expand(images, 2, count, count),
}


class Attention(nn.Module):
    def __init__(self, mask: Callable[[torch.Tensor, int, int], torch.Tensor]) -> None:
        super().__init__()
        self.patches, self.query, self.mask = nn.Conv2d(3, 8, 8, stride=8), nn.Linear(8, 8), mask

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        count, heads = tokens.shape[1], self.query(tokens).view(len(tokens), -1, 2, 4).transpose(1, 2)
        mask = self.mask(torch.arange(count), len(tokens), count)
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
        return mixed.transpose(1, 2).reshape(len(tokens), count, 8).mean(1)


@pytest.mark.parametrize("kind", MASKS)
def test_a_mask_is_what_the_module_does_with_it(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = porter.convert(Attention(MASKS[kind]).eval(), input_size=24, out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok and made.verdict.user_proof is not None
    masked = [node.path for node in made.port.graph.nodes if node.op_name in ("add", "add_array", "bias")]
    assert bool(masked) == (not kind.startswith("all"))
