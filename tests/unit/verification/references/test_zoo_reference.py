"""What references build, and when."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from porter.base.dtypes import Dtype
from porter.base.errors import CannotRun
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import Engine
from porter.graph import Dense, LeakyRelu, Node, Relu, Relu6, Softmax
from porter.graph.ops import Dropout
from porter.verification.references.zoo_reference import ZooReference, _add_layers_behind as add_layers_behind
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


def test_the_users_own_head_is_computed_behind_the_zoos_features() -> None:
    nodes = Node("a", Dense(2), ("pool",)), Node("b", Relu(), ("a",)), Node("c", Relu6(), ("a",))
    kernel, features = np.array([[1.0, 0.0], [0.0, 7.0]]), np.array([[-3.0, 1.0]])
    values = add_layers_behind({"pool": features}, [(node, {"kernel": kernel}) for node in nodes])
    assert [values[path].tolist() for path in "abc"] == [[[-3, 7]], [[0, 7]], [[0, 6]]]
    for op in (LeakyRelu(0.1), Softmax(), Dropout(0.5)):
        with pytest.raises(CannotRun, match=f"nothing computes a {op.words} behind a zoo's code"):
            add_layers_behind({"pool": features}, [(Node("d", op, ("pool",)), {})])
