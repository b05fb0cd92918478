"""Ports in porter's own engine: what a destination's engine takes from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from porter.base.errors import CheckFailed, UsageError
from porter.base.ways_to_run import FP32, Run
from porter.filegraph.program import KernelProgram, OperatorCall
from porter.frameworks.numpy.ports import PortModel, classifier, make_port_model, run, with_other_pads
from porter.graph import INPUT, Graph, Node, Relu, Sigmoid
from porter.graph.plan import Plan
from tests.support.evaluation.protocols import PROTOCOLS, pixels_of

GRAPH = Graph(
    (Node("most", Relu(), (INPUT,)), Node("share", Sigmoid(), ("most",))), 3, "share", further=("most",)
)
ROWS: dict[str, Any] = {
    "most": lambda stated, x, least: np.maximum(x, least),
    "means": lambda stated, x: x.mean((2, 3)),
}
PROGRAM = KernelProgram(
    "data",
    (OperatorCall("most", ("data", "least"), ("a",), {}), OperatorCall("means", ("a",), ("b",), {})),
    ROWS,
)
BATCH = np.random.default_rng(0).standard_normal((2, 3, 4, 5))


def made(dtype: Any = "float64", device: str = "cpu") -> PortModel:
    values = {"most": "a", "share": "b"}
    return make_port_model(
        Plan(GRAPH, {}, (4, 5)), PROGRAM, {"least": np.zeros(1, np.float32)}, values, dtype, device
    )


def test_values_by_the_paths_of_the_graph() -> None:
    most = np.maximum(BATCH, 0)
    assert np.array_equal(run(made(), BATCH, ["most"])["most"], most)
    first, second = made()(BATCH)
    assert np.array_equal(first, most.mean((2, 3))) and np.array_equal(second, most)
    assert run(made("float32"), BATCH, ["share"])["share"].dtype == np.float32
    assert with_other_pads(made(), made().plan) is None


def test_photos() -> None:
    pixels = pixels_of(PROTOCOLS[0])
    model = make_port_model(
        Plan(GRAPH, {}, None), PROGRAM, {"least": np.zeros(1)}, {"most": "a", "share": "b"}, "float32", "cpu"
    )
    assert classifier(model, PROTOCOLS[0], "cpu", FP32, framework="Net")(pixels)().shape == (
        pixels.shape[0] * pixels.shape[1],
        3,
    )


def test_a_net_that_does_not_run_is_a_mistake_of_its_writer() -> None:
    model = make_port_model(
        Plan(GRAPH, {}, None), PROGRAM, {"least": np.zeros(7)}, {"most": "a", "share": "b"}, "float64", "cpu"
    )
    with pytest.raises(CheckFailed, match=r"a: the port's own net does not run: .*'most'"):
        run(model, BATCH, ["share"])


def test_what_it_does_not_take() -> None:
    for refused, said in (
        (lambda: made(device="cuda"), "runs models on the CPU"),
        (lambda: made("float16"), "in float32 and float64, not in float16"),
        (lambda: made()(BATCH[:, :, :3]), "takes a batch of 3x4x5"),
        (lambda: run(made(), BATCH, ["least"]), "has no such node"),
        (
            lambda: classifier(made(), PROTOCOLS[0], "cpu", Run("tf32"), framework="Net"),
            "runs Net models in fp32",
        ),
    ):
        with pytest.raises(UsageError, match=said):
            refused()
