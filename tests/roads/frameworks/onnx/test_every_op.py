"""Every op of porter.graph in ONNX: the file that porter writes is valid, and onnxruntime computes the op
with its default optimisations; in float64, ONNX's reference implementation computes it of the same nodes.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from porter.frameworks.onnx.destination import DESTINATION as framework
from porter.graph import INPUT, Graph, Node, Rearrange, Resize, ResizeLike, shapes
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY, Size
from tests.support.arrays import Array
from tests.support.frameworks.every_op import every_op, images, tensors_of
from tests.support.frameworks.sayable import AT_SIZES, expect_equal_tensors, expect_near, sizes_of
from tests.support.oracle import apply, evaluate
from tests.support.random_graphs import UNSHRUNK, Sample, samples

onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")

EXACT, ROUNDED = 1e-12, 1e-5


def written(folder: Path, plan: Plan, tensors: Any, dtype: Any = "float32") -> Any:
    """The message of the file that porter writes, which the checker takes."""
    framework.write(folder, plan, tensors, {}, dtype, {"porter.zoo": "keras"})
    onnx.checker.check_model(str(folder / "model.onnx"), full_check=True)
    return onnx.load(folder / "model.onnx")


def run_file(folder: Path, plan: Plan, batch: Array) -> dict[str, Array]:
    """The outputs of a file as people run it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == [INPUT]
    assert [value.name for value in session.get_outputs()] == [*plan.graph.outputs]
    return dict(zip(plan.graph.outputs, session.run(None, {INPUT: batch.astype(np.float32)}), strict=True))


@AT_SIZES
def test_every_op_in_onnxruntime(tmp_path: Path, size: Size, of_maps: Any) -> None:
    graph = every_op(of_maps)
    plan, tensors = make_plan(graph, size, framework.CAPABILITIES), tensors_of(graph)
    model = written(tmp_path, plan, tensors)
    for at in sizes_of(plan):
        expect_near(run_file(tmp_path, plan, images(at)), evaluate(graph, tensors, images(at)), ROUNDED)
    known = shapes(graph, plan.only_size or ANY)
    for value in (*model.graph.value_info, *model.graph.output):
        stated = [dim.dim_value or None for dim in value.type.tensor_type.shape.dim][1:]
        assert value.name not in known or stated == [*known[value.name]], value.name
    assert {value.name for value in (*model.graph.value_info, *model.graph.output)} >= known.keys() - {INPUT}


def test_the_file_is_read_back(tmp_path: Path) -> None:
    graph = every_op()
    plan, tensors = make_plan(graph, ANY, framework.CAPABILITIES), tensors_of(graph)
    model = written(tmp_path, plan, tensors)
    found = framework.read_port(tmp_path, plan, {})
    expect_equal_tensors(found, tensors, np.float32)
    names = {tensor.name for tensor in model.graph.initializer}
    assert {"stem.weight", *framework.fillings(graph, tensors)} <= names
    assert [node.output[0] for node in model.graph.node] == [node.name for node in model.graph.node]
    assert {entry.key: entry.value for entry in model.metadata_props} == {"porter.zoo": "keras"}


def check(sample: Sample) -> None:
    """A graph's outputs by onnxruntime, which merges what stands between them, and all values in double
    precision.
    """
    plan = make_plan(sample.graph, sample.size, framework.CAPABILITIES)
    values = dict(sample.values)
    exact = framework.ENGINE.run(
        framework.ENGINE.build(plan, sample.tensors, {}, "float64"), sample.batch, [*values][1:]
    )
    expect_near(exact, values, EXACT)
    with TemporaryDirectory() as name:
        written(Path(name), plan, sample.tensors)
        found = run_file(Path(name), plan, sample.batch)
    expect_near(found, values, 1e-4)


@settings(max_examples=3, derandomize=True, phases=UNSHRUNK)
@given(samples(framework.CAPABILITIES, least=60, most=60))
def test_long_graphs(sample: Sample) -> None:
    check(sample)


@pytest.mark.full
@settings(max_examples=2000, phases=UNSHRUNK)
@given(samples(framework.CAPABILITIES))
def test_many_graphs(sample: Sample) -> None:
    check(sample)


@pytest.mark.parametrize(
    "op", [Resize("linear", (2.0, 1.5)), Resize("cubic", size=(5, 9)), ResizeLike("linear")]
)
def test_a_resize_beside_a_transpose_states_all_axes(op: Resize | ResizeLike, tmp_path: Path) -> None:
    """onnxruntime 1.31 may move the Transpose through the Resize as if it did (CoaT's maps)."""
    turned = Node("turned", Rearrange("c h w -> c w h", True), (INPUT,))
    sources = ("turned", INPUT) if isinstance(op, ResizeLike) else ("turned",)
    graph = Graph(
        (turned, Node("wide", op, sources), Node("back", Rearrange("c h w -> c w h", True), ("wide",))),
        3,
        "back",
    )
    plan, batch = (
        make_plan(graph, (6, 7), framework.CAPABILITIES),
        np.random.default_rng(0).normal(size=(2, 3, 6, 7)),
    )
    written(tmp_path, plan, {})
    (made,) = [node for node in onnx.load(tmp_path / "model.onnx").graph.node if node.op_type == "Resize"]
    assert "axes" not in {attribute.name for attribute in made.attribute}
    wide = apply(op, {}, *(batch.transpose(0, 1, 3, 2), batch)[: len(sources)])
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: batch.astype(np.float32)})
    assert np.linalg.norm(found - wide.transpose(0, 1, 3, 2)) <= 1e-6 * np.linalg.norm(wide)
