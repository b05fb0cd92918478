"""What references build, and when."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from porter.base.dtypes import Dtype
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import Engine
from porter.verification.zoo_reference import ZooReference
from porter.zoos.implementation import BuildRequest, Implementation
from tests.support.arrays import Array


@dataclass
class Built:
    size: tuple[int, int]
    dtype: str


class Stub:
    """An engine whose models have no values to show."""

    RUNNER = "nothing"

    def run_reference(self, model: Any, batch: Array, taps: Any) -> dict[str, Array]:
        assert model == Built((batch.shape[2], batch.shape[3]), batch.dtype.name)
        return {}


def test_a_model_of_one_size_is_built_once_in_each_type_and_not_held_at_the_next_size() -> None:
    built: list[Built] = []

    def build(request: BuildRequest) -> Any:
        built.append(Built(request.size, request.dtype))
        return built[-1]

    checkpoint = Checkpoint(Path("weights"), "memory", "tf", {})
    code = Implementation(cast(Any, build), runs_at_any_size=lambda variant: False)
    source = ZooReference(cast(Engine, Stub()), code, "keras", "tiny", 3, checkpoint, {}, None)
    dtypes: tuple[Dtype, Dtype] = ("float64", "float32")
    for rows in (8, 9, 8):
        for _ in range(2):  # as a comparison in float32 asks, image by image
            for dtype in dtypes:
                source.run(np.zeros((1, 3, rows, 8)), dtype)
    assert built == [Built((rows, 8), dtype) for rows in (8, 9, 8) for dtype in dtypes]
