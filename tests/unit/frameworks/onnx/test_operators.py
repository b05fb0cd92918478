"""Every operator that porter reads from ONNX, opset by opset: onnxruntime, ONNX's reference implementation
with porter's operators, and porter's graph of the file compute the same.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import CannotRun, PorterError
from porter.filegraph.file_graph import Foreign
from porter.filegraph.readers import call_with_inputs
from porter.formats.onnx import nodes
from porter.formats.onnx.nodes import OnnxNode
from porter.formats.onnx.ops import READERS
from porter.formats.onnx.plain import PLAIN
from porter.formats.reading import read_checkpoint
from porter.frameworks.onnx import double
from porter.frameworks.onnx.disagreement import distances, first_disagreement
from porter.frameworks.onnx.engine import build_file, run_reference
from porter.frameworks.onnx.file_reference import OnnxRunner
from porter.frameworks.onnx.operators import own_operators
from tests.support.arrays import Array
from tests.support.filegraph.values import values_of

onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")

from tests.support.frameworks.onnx.operators import NEWEST, Case, cases, model, random_windows  # noqa: E402

ROUNDED, EXACT = 1e-6, 1e-13


def distance(found: Array, wanted: Array) -> float:
    """The relative L2 distance; infinite where shapes differ."""
    if found.shape != wanted.shape:
        return np.inf
    return float(
        np.linalg.norm(found.astype(np.float64) - wanted) / (np.linalg.norm(wanted.astype(np.float64)) or 1.0)
    )


def value_as_read(model: Any, path: Path, batch: Array) -> Array | None:
    """The output of porter's graph in float64; None where porter refuses the operator by name."""
    path.write_bytes(model.SerializeToString())
    try:
        checkpoint = read_checkpoint(path)
        graph = checkpoint.graph
        assert graph is not None
        if any(isinstance(node.op, Foreign) for node in graph.nodes):
            return None
        # One, where the file's batch is none.
        images = batch.reshape(-1, graph.channels, *(graph.built_size or batch.shape[2:]))
        return values_of(graph, checkpoint.tensors, images)[graph.outputs[0]]
    except PorterError as error:
        assert "fit together" not in error.message
        return None


def reference(model: Any, batch: Array) -> Array:
    return OnnxRunner(model, {}, "float64")(batch, ("y",))["y"]


def compare(tried: Iterable[tuple[Case, int]], path: Path) -> tuple[dict[str, str], Counter[str]]:
    """What disagrees, and how many models of each operator porter reads."""
    wrong, read = {}, Counter[str]()
    for case, opset in tried:
        made, batch, name = model(case, opset), case.batch(), f"opset {opset}, {case.text}, {case.image}"
        try:
            exact = reference(made, batch)
        except CannotRun as error:
            if case.runtime and not error.message.endswith("a window is larger than the map and its pads"):
                wrong[name] = error.message
            continue
        if case.runtime:
            found = OnnxRunner(made, {}, "float32")(batch.astype(np.float32), ("y",))["y"]
            if (apart := distance(found, exact)) > ROUNDED:
                wrong[name] = f"{apart:.1e} from onnxruntime, {found.shape} against {exact.shape}"
        value = value_as_read(made, path, batch)
        if value is not None:
            read[case.op] += 1
            if (
                apart := distance(value.reshape(exact.shape) if value.size == exact.size else value, exact)
            ) > EXACT:
                wrong[f"{name}, read"] = f"{apart:.1e} from the reference"
    return wrong, read


def all_versions() -> Iterator[tuple[Case, int]]:
    return ((case, opset) for case in cases() for opset in case.opsets())


def test_operators_are_what_onnxruntime_computes(tmp_path: Path) -> None:
    """Those of porter's own, and some of the others, each in the oldest opset that has them."""
    own = {kind.__name__ for kind in (*own_operators(7), *own_operators(NEWEST))}
    some = [case for place, case in enumerate(cases()) if case.op in own or place % 5 == 0]
    assert not compare(((case, case.opsets()[0]) for case in some), tmp_path / "model.onnx")[0]


@pytest.mark.full
def test_every_operator_is_what_onnxruntime_computes_in_every_opset(tmp_path: Path) -> None:
    wrong, read = compare(all_versions(), tmp_path / "model.onnx")
    assert not wrong
    assert {*READERS} <= {case.op for case in cases()} and {*READERS} <= {*read}


NOT_READ = {
    "Attention": {"qk_matmul_output_mode", "softmax_precision"},  # of a further output; its own precision
    "Cast": {"round_mode", "saturate"},  # of numbers of 8 bits
    "ConstantOfShape": {"value"},  # its cases are constants, which numpy computes
    "Conv": {"kernel_shape"},  # its kernel has it
    "ConvTranspose": {"kernel_shape"},
    "GroupNormalization": {"stash_type"},  # the precision of the statistics
    "LayerNormalization": {"stash_type"},
    "MaxPool": {"storage_order"},  # of the places, a further output
    "RMSNormalization": {"stash_type"},
    "ReduceLogSum": {"noop_with_empty_axes"},  # there is no case without axes
    "ReduceLogSumExp": {"noop_with_empty_axes"},
    "Resize": {"extrapolation_value"},  # of coordinates that are refused
    "Split": {"num_outputs"},  # its outputs are as many
}
"""Attributes that readers do not look at, each with the reason."""


@pytest.mark.full
def test_every_other_attribute_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that a reader passes over would make another function of the same operator."""
    asked = {op: {stated for stated, _ in row.attributes.values()} for op, row in PLAIN.items()}

    class Asked(dict[str, Any]):
        def __init__(self, op: str, attributes: Any) -> None:
            super().__init__(attributes)
            self.names = asked.setdefault(op, set())

        def __contains__(self, name: object) -> bool:
            self.names.add(str(name))
            return super().__contains__(name)

        def __getitem__(self, name: str) -> Any:
            self.names.add(name)
            return super().__getitem__(name)

        def get(self, name: str, default: Any = None) -> Any:
            self.names.add(name)
            return super().get(name, default)

    def call(function: Any, node: OnnxNode, *tensors: Any) -> Any:
        return call_with_inputs(function, replace(node, attributes=Asked(node.op, node.attributes)), *tensors)

    monkeypatch.setattr(nodes, "call_with_inputs", call)
    for case, opset in all_versions():
        value_as_read(model(case, opset), tmp_path / "model.onnx", case.batch())
    passed: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.name in READERS and _is_in_use(schema):
            passed.setdefault(schema.name, set()).update({*schema.attributes} - asked.get(schema.name, set()))
    assert {op: names for op, names in passed.items() if names} == NOT_READ


def _is_in_use(schema: Any) -> bool:
    """Whether it is the operator's of an opset that porter reads."""
    return bool(
        onnx.defs.get_schema(schema.name, max(7, schema.since_version)).since_version == schema.since_version
    )


@pytest.mark.full
def test_windows_of_every_size_are_what_onnxruntime_computes(tmp_path: Path) -> None:
    wrong, read = compare(((case, case.until) for case in random_windows(3000)), tmp_path / "model.onnx")
    assert not wrong and read.total() > 2900


@pytest.mark.full
def test_the_list_of_wrong_operators_is_that_of_the_reference_implementation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever has a newer onnx sees which of porter's operators it needs no more. Sigmoid is one for its
    speed, Conv for its memory.
    """
    kinds: dict[str, set[str]] = {}
    operators: Callable[[int], list[Any]]
    for case, opset in all_versions():
        batch, values = case.batch(), []
        for operators in (own_operators, lambda opset: []):
            monkeypatch.setattr(double, "own_operators", operators)
            try:
                values.append(reference(model(case, opset), batch))
            except CannotRun:
                values.append(np.zeros(0))
        if distance(values[1], values[0]) > EXACT:
            kinds.setdefault(case.op, set()).add(case.text)
    assert {*kinds} == {kind.__name__ for opset in (7, 10, NEWEST) for kind in own_operators(opset)} - {
        "Conv",
        "Sigmoid",
    }


def test_what_the_reference_implementation_does_not_take_is_told(tmp_path: Path) -> None:
    made = model(Case("LeakyRelu", "y = LeakyRelu <alpha=0.3> (x)"), 16)
    made.graph.node[0].attribute[0].type = 0
    with pytest.raises(
        CannotRun, match=r"reference implementation cannot run this model: KeyError: 0.*--no-check"
    ):
        reference(made, np.zeros((2, 6, 9, 11)))


def test_operators_of_the_domain_ai_onnx_are_those_of_none(tmp_path: Path) -> None:
    made, path = model(Case("Relu", "y = Relu (x)"), 16), tmp_path / "model.onnx"
    made.opset_import[0].domain = made.graph.node[0].domain = "ai.onnx"
    path.write_bytes(made.SerializeToString())
    batch = np.random.default_rng(1).standard_normal((2, 6, 9, 11))
    for dtype in ("float32", "float64"):
        found = run_reference(build_file(read_checkpoint(path), dtype, (9, 11)), batch, {"y": "y"})["y"]
        assert np.allclose(found, np.maximum(batch, 0))


def test_a_batch_of_minus_one_is_free(tmp_path: Path) -> None:
    made = model(Case("Relu", "y = Relu (x)"), 16)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert reference(made, np.ones((3, 6, 9, 11))).shape == (3, 6, 9, 11)


def test_a_disagreement_of_the_two_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX's own Softmax before opset 13, and onnxruntime's transposed SAME without reach."""
    path, batch = tmp_path / "model.onnx", np.random.default_rng(1).standard_normal((2, 6, 9, 11))
    made = model(
        Case("Softmax", "s = Shape (x) p = GlobalAveragePool (x) c = Conv (p, k1, b4) y = Softmax (c)"), 11
    )
    made.graph.node[3].name = "head/prob"
    path.write_bytes(made.SerializeToString())
    checkpoint = read_checkpoint(path)
    assert first_disagreement(checkpoint, batch) is None
    assert [found.op for found in distances(checkpoint, batch)] == ["GlobalAveragePool", "Conv", "Softmax"]
    monkeypatch.setattr(double, "own_operators", lambda opset: [])
    found = first_disagreement(checkpoint, batch)
    assert found is not None and (found.node, found.op) == ("head/prob", "Softmax") and found.distance > 0.5
    assert found.description.startswith(
        "onnxruntime and ONNX's reference implementation disagree on 'head/prob' (Softmax; relative L2"
    )
    monkeypatch.undo()
    made = model(
        Case("ConvTranspose", 'y = ConvTranspose <auto_pad="SAME_LOWER", strides=[3, 3]> (x, t2)'), 11
    )
    path.write_bytes(made.SerializeToString())
    found = first_disagreement(read_checkpoint(path), batch)
    assert found is not None and found.description.endswith("disagree on 'y' (ConvTranspose; another shape)")


def test_values_are_held_until_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference implementation itself holds all values of a model until the end."""
    steps = "".join(f"s{n + 1} = Tanh(s{n})\n" for n in range(9))
    opset = onnx.helper.make_opsetid("", 20)
    graph = onnx.parser.parse_graph(
        f"g (float[N, 3, 8, 8] s0) => (float[N, 3, 8, 8] s9, float[N, 3, 8, 8] s4) {{ {steps} }}"
    )
    made, held = list[weakref.ref[Any]](), list[int]()
    widened = double._run_in_float64

    def counted(*given: Any) -> Any:
        held.append(sum(each() is not None for each in made))
        (result,) = widened(*given)
        made.append(weakref.ref(result))
        return (result,)

    monkeypatch.setattr(double, "_run_in_float64", counted)
    batch = np.random.default_rng(0).normal(size=(1, 3, 8, 8))
    last, fourth = double.make_float64_session(onnx.helper.make_model(graph, opset_imports=[opset]))(batch)
    assert len(held) == 9 and max(held) <= 3
    for value, times in ((last, 9), (fourth, 4)):
        wanted = batch
        for _ in range(times):
            wanted = np.tanh(wanted)
        assert np.array_equal(value, wanted)
