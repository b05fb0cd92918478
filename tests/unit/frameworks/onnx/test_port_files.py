"""What a port's model.onnx holds, and what it is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import FileError, MappingError, NotInstalled, UsageError
from porter.frameworks import get_destination
from porter.frameworks.onnx import port_files
from porter.frameworks.onnx.destination import DESTINATION as framework
from porter.graph import INPUT, Conv, Dense, GlobalAvgPool, Graph, MaxPool, Node, PadMap
from porter.graph.plan import make_plan
from porter.padding import ANY, Convention, Window
from tests.roads.frameworks.onnx.test_every_op import run_file, written
from tests.support.frameworks.every_op import tensors_of
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference

onnx = pytest.importorskip("onnx")

NETWORK = Graph(
    (
        Node("stem", Conv(4, Window((3, 3), (2, 2)), Convention("same"), bias=True), (INPUT,)),
        Node("mean", GlobalAvgPool(), ("stem",)),
        Node("logits", Dense(5), ("mean",)),
    ),
    3,
    "logits",
)
PLAN, TENSORS = make_plan(NETWORK, ANY, framework.CAPABILITIES), tensors_of(NETWORK)
BATCH = np.random.default_rng(3).normal(size=(2, 3, 9, 8))
ZEROS = Convention("explicit", (1, 1, 1, 1), 0.0)
THREE = Window((3, 3), (2, 2))


@pytest.mark.parametrize(
    "nodes",
    [
        (Node("pool", MaxPool(THREE, ZEROS), (INPUT,)),),
        (Node("pool", MaxPool(THREE, Convention("same", fill=0.0)), (INPUT,)),),
        (
            Node("zeros", PadMap((1, 1, 1, 1)), (INPUT,)),
            Node("pool", MaxPool(THREE, Convention()), ("zeros",)),
        ),
    ],
)
def test_onnxruntime_takes_no_zeros_before_a_max_pool_for_its_own_pads(
    tmp_path: Path, nodes: tuple[Node, ...]
) -> None:
    """Its own are -inf, so that over negative numbers a pool with the zeros merged into it is another
    function.
    """
    graph = Graph(nodes, 3, "pool")
    plan, batch = make_plan(graph, ANY, framework.CAPABILITIES), -1 - np.abs(BATCH)
    written(tmp_path, plan, {})
    wanted = evaluate(graph, {}, batch)["pool"]
    assert np.any(wanted == 0) and np.array_equal(
        run_file(tmp_path, plan, batch)["pool"], wanted.astype(np.float32)
    )


def test_a_pad_without_axes_is_merged(tmp_path: Path) -> None:
    """The reason for the axes. If this fails, onnxruntime no longer merges such a Pad, and the comment in
    maker.py is old.
    """
    graph = Graph((Node("pool", MaxPool(THREE, ZEROS), (INPUT,)),), 3, "pool")
    plan, batch = make_plan(graph, ANY, framework.CAPABILITIES), -1 - np.abs(BATCH)
    model = written(tmp_path, plan, {})
    pad = model.graph.node[0]
    del pad.input[2:]
    (amounts,) = (tensor for tensor in model.graph.initializer if tensor.name == pad.input[1])
    amounts.CopyFrom(onnx.numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), amounts.name))
    onnx.save(model, tmp_path / "model.onnx")
    assert difference(run_file(tmp_path, plan, batch)["pool"], evaluate(graph, {}, batch)["pool"]) > 0.1


def test_large_tensors_are_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_files, "MAX_BYTES", 100)
    digests = framework.write(tmp_path, PLAN, TENSORS, {}, "float32", {})
    assert [*digests] == ["model.onnx", "model.onnx.data"] == sorted(path.name for path in tmp_path.iterdir())
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    assert (tmp_path / "model.onnx").stat().st_size < 2000
    wanted = evaluate(NETWORK, TENSORS, BATCH)["logits"]
    assert difference(run_file(tmp_path, PLAN, BATCH)["logits"], wanted) < 1e-6
    found = framework.read_port(tmp_path, PLAN, {})
    assert np.array_equal(found["logits"]["kernel"], TENSORS["logits"]["kernel"].astype(np.float32))


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        framework.write(_made(tmp_path / name), PLAN, TENSORS, {}, "float32", {}) for name in "ab"
    )
    assert first == second


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_half_precision(tmp_path: Path) -> None:
    model = written(tmp_path, PLAN, TENSORS, "float16")
    assert {tensor.data_type for tensor in model.graph.initializer} == {onnx.TensorProto.FLOAT16}
    loaded = framework.ENGINE.build(PLAN, framework.read_port(tmp_path, PLAN, {}), {}, "float16")
    found, wanted = loaded(BATCH), evaluate(NETWORK, TENSORS, BATCH)["logits"]
    assert found.dtype == np.float16 and difference(found.astype(np.float64), wanted) < 1e-2


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_types_that_nothing_runs_are_refused(tmp_path: Path, dtype: Any) -> None:
    with pytest.raises(UsageError, match=f"onnxruntime has no convolutions in {dtype}"):
        framework.write(tmp_path, PLAN, TENSORS, {}, dtype, {})


def test_a_model_is_called_with_arrays() -> None:
    loaded = framework.ENGINE.build(PLAN, TENSORS, {}, "float32")
    assert loaded(BATCH).shape == (2, 5) and loaded(BATCH[:1]).dtype == np.float32
    two = make_plan(Graph(NETWORK.nodes, 3, "stem", (), ("logits",)), (9, 8), framework.CAPABILITIES)
    assert [value.shape for value in framework.ENGINE.build(two, TENSORS, {}, "float32")(BATCH)] == [
        (2, 4, 5, 4),
        (2, 5),
    ]


def test_other_sizes_than_a_models_only_one_are_refused() -> None:
    plan = replace(PLAN, only_size=(9, 8))
    loaded = framework.ENGINE.build(plan, TENSORS, {}, "float32")
    for batch in (BATCH[..., :7], BATCH[:, :2], BATCH[0]):
        with pytest.raises(UsageError, match="the model takes a batch of 3x9x8, got"):
            loaded(batch)
    with pytest.raises(UsageError, match="no such node"):
        framework.ENGINE.run(loaded, BATCH, ["head"])
    with pytest.raises(UsageError, match="on the CPU"):
        framework.ENGINE.build(plan, TENSORS, {}, "float32", "cuda")


def test_files_that_are_not_the_ports_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no model"):
        framework.read_port(tmp_path, PLAN, {})
    framework.write(tmp_path, PLAN, TENSORS, {}, "float32", {})
    other = Graph((*NETWORK.nodes[:2], Node("logits", Dense(6), ("mean",))), 3, "logits")
    with pytest.raises(
        MappingError, match=r"logits.weight: expected a tensor of shape \(6, 4\), got \(5, 4\)"
    ):
        framework.read_port(tmp_path, make_plan(other, ANY, framework.CAPABILITIES), {})
    with pytest.raises(MappingError, match="stem: expected a bias of shape"):
        framework.write(
            tmp_path, PLAN, {**TENSORS, "stem": {"kernel": TENSORS["stem"]["kernel"]}}, {}, "float32", {}
        )
    file = tmp_path / "model.onnx"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(FileError) as damaged:
        framework.read_port(tmp_path, PLAN, {})
    assert damaged.value.next == "convert again"


def test_a_plan_of_another_framework_is_refused() -> None:
    strided = Graph(
        (Node("conv", Conv(4, Window((3, 3), (2, 2), (2, 2)), Convention()), (INPUT,)),), 3, "conv"
    )
    plan = make_plan(strided, (9, 9), get_destination("tf").CAPABILITIES)
    with pytest.raises(Exception, match="ONNX has no nodes for"):
        framework.ENGINE.build(plan, tensors_of(strided), {}, "float32")


def test_writing_needs_onnx_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    framework.write(tmp_path, PLAN, TENSORS, {}, "float32", {})
    with pytest.raises(NotInstalled, match="onnxruntime is not installed"):
        framework.ENGINE.build(PLAN, TENSORS, {}, "float32")(BATCH)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(NotInstalled, match="onnx cannot be imported"):
        framework.write(tmp_path, PLAN, TENSORS, {}, "float32", {})


@pytest.mark.parametrize("dynamo", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.filterwarnings("ignore")
def test_a_torch_port_is_exported_without_that_fault(tmp_path: Path, dynamo: bool) -> None:
    """By torch's exporters, whose Pads state no axes: torch's module pads with negative zeros, which
    onnxruntime does not merge.
    """
    torch, theirs = pytest.importorskip("torch"), get_destination("torch")
    zeros = (
        Node("pool", MaxPool(THREE, ZEROS), (INPUT,)),
        Node("same", MaxPool(THREE, Convention("same", fill=0.0)), ("pool",)),
    )
    graph = Graph(zeros, 3, "same", (), ("pool",))
    plan = make_plan(graph, ANY, theirs.CAPABILITIES)
    batch = (-1 - np.abs(np.tile(BATCH, 3))).astype(np.float32)
    model, file = theirs.ENGINE.build(plan, {}, {}, "float32", "cpu"), tmp_path / "model.onnx"
    torch.onnx.export(
        model,
        (torch.from_numpy(batch),),
        file,
        input_names=[INPUT],
        output_names=[*graph.outputs],
        dynamo=dynamo,
    )
    assert [node.op_type for node in onnx.load(file).graph.node].count("Pad") == 2
    for found, wanted in zip(
        run_file(tmp_path, plan, batch).values(), model(torch.from_numpy(batch)), strict=True
    ):
        assert np.array_equal(found, wanted.numpy())
