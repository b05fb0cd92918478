"""Folding batch norms: the same function, for every graph and every kind of layer, and nothing folded that
others read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import porter
from porter.base.errors import CheckFailed, MappingError
from porter.cli import port_text, verdict_text
from porter.frameworks import get_destination
from porter.graph import (
    INPUT,
    Add,
    BatchNorm,
    Conv,
    ConvTranspose,
    Dense,
    GlobalAvgPool,
    Graph,
    Node,
    Relu,
    folding,
    tensor_shapes,
)
from porter.graph.folding import absorb_biases, fold_norms, only_readers
from porter.graph.plan import make_plan
from porter.padding import Convention, Window
from tests.support.arrays import Array
from tests.support.fixtures import WeightsMaker
from tests.support.frameworks.torch.graphs import inception, resnet_v2, small_mobilenet
from tests.support.ops import op_at
from tests.support.standin import calibrated_tensors, smooth_images
from tests.support.standin_files import sign

NARROW, SIZE = "mobilenet_v2_0.35", (33, 31)
THREE, STRIDED, SAME = Window((3, 3)), Window((3, 3), (2, 2)), Convention("same")


def every_kind() -> Graph:
    """Norms after plain, biased, grouped, depthwise and transposed convolutions and a dense layer, without
    scale or centre, and at the end; and four that stay: on pixels, after a sum, after a layer that is read
    twice, after another norm.
    """
    nodes = (
        Node("pixels", BatchNorm(1e-3, 0.1), (INPUT,)),
        Node("plain", Conv(8, THREE, SAME), ("pixels",)),
        Node("plain_norm", BatchNorm(1e-3, 0.1), ("plain",)),
        Node("biased", Conv(8, THREE, SAME, bias=True), ("plain_norm",)),
        Node("biased_norm", BatchNorm(1.001e-5, 0.1, scale=False), ("biased",)),
        Node("grouped", Conv(8, THREE, SAME, groups=4), ("biased_norm",)),
        Node("grouped_norm", BatchNorm(1e-5, 0.1, center=False), ("grouped",)),
        Node("again", BatchNorm(1e-5, 0.1), ("grouped_norm",)),
        Node("depthwise", Conv(16, THREE, SAME, groups=8), ("again",)),
        Node("depthwise_norm", BatchNorm(1e-5, 0.1, scale=False, center=False), ("depthwise",)),
        Node("twice", Conv(16, THREE, SAME), ("depthwise_norm",)),
        Node("twice_norm", BatchNorm(1e-5, 0.1), ("twice",)),
        Node("sum", Add(), ("twice", "twice_norm")),
        Node("sum_norm", BatchNorm(1e-5, 0.1), ("sum",)),
        Node("relu", Relu(), ("sum_norm",)),
        Node("wide", ConvTranspose(8, STRIDED, (0, -1, 1, 0), groups=2), ("relu",)),
        Node("wide_norm", BatchNorm(1e-5, 0.1), ("wide",)),
        Node("pool", GlobalAvgPool(), ("wide_norm",)),
        Node("dense", Dense(5, bias=False), ("pool",)),
        Node("dense_norm", BatchNorm(1e-5, 0.1), ("dense",)),
    )
    return Graph(nodes, 3, "dense_norm")


def random_tensors(graph: Graph) -> dict[str, dict[str, Array]]:
    random = np.random.default_rng(0)
    return {
        path: {
            role: (
                np.exp(0.3 * random.standard_normal(shape))
                if role == "variance"
                else random.standard_normal(shape) / 3
            ).astype(np.float32)
            for role, shape in roles.items()
        }
        for path, roles in tensor_shapes(graph).items()
    }


def values(graph: Graph, tensors: Mapping[str, Mapping[str, Array]]) -> Mapping[str, Array]:
    torch = get_destination("torch")
    model = torch.ENGINE.build(make_plan(graph, SIZE, torch.CAPABILITIES), tensors, {}, "float64", "cpu")
    return torch.ENGINE.run(
        model,
        smooth_images(graph.channels, SIZE, 1, 2).astype(np.float64),
        [node.path for node in graph.nodes],
    )


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (small_mobilenet, 0),
        (inception, 0),
        (resnet_v2, 6),  # one ahead of each unit and the last
        (every_kind, 4),
    ],
)
def test_a_folded_graph_is_the_same_function(make: Callable[[], Graph], kept: int) -> None:
    graph = make()
    tensors = random_tensors(graph) if make is every_kind else calibrated_tensors(graph, (32, 32), 1)
    norms = [node.path for node in graph.nodes if isinstance(node.op, BatchNorm)]
    found = fold_norms(graph, tensors)
    assert (
        sum(isinstance(node.op, BatchNorm) for node in found.graph.nodes)
        == kept
        == len(norms) - len(found.folded)
    )
    assert {
        path: {role: array.shape for role, array in roles.items()} for path, roles in found.tensors.items()
    } == tensor_shapes(found.graph)
    wanted, got = values(graph, tensors), values(found.graph, found.tensors)
    assert got.keys() == wanted.keys() - found.folded.values()
    for path, array in got.items():
        source = wanted[found.folded.get(path, path)]
        assert np.linalg.norm(array - source) <= 1e-10 * np.linalg.norm(source), path


def test_every_kind_is_folded_or_stays_as_it_should() -> None:
    graph = every_kind()
    assert only_readers(graph) == {
        path: f"{path}_norm" for path in ("plain", "biased", "grouped", "depthwise", "wide", "dense")
    }
    found = fold_norms(graph, random_tensors(graph))
    assert found.graph.output == "dense" and found.graph.by_path["again"].inputs == ("grouped",)
    assert found.graph.by_path["sum"].inputs == ("twice", "twice_norm")


def test_a_layer_whose_own_value_is_the_output_keeps_its_norm() -> None:
    nodes = (Node("conv", Conv(8, THREE, SAME), (INPUT,)), Node("norm", BatchNorm(1e-3, 0.1), ("conv",)))
    assert only_readers(Graph(nodes, 3, "conv")) == {}


def test_nothing_given_is_changed_and_what_is_computed_is_in_double_precision() -> None:
    graph = every_kind()
    tensors = random_tensors(graph)
    before = {path: {role: array.copy() for role, array in roles.items()} for path, roles in tensors.items()}
    found = fold_norms(graph, tensors)
    for path, roles in before.items():
        assert all(np.array_equal(array, tensors[path][role]) for role, array in roles.items())
    assert {array.dtype for path in found.folded for array in found.tensors[path].values()} == {
        np.dtype(np.float64)
    }
    assert found.tensors["twice"] is tensors["twice"]


def test_a_norm_without_a_scale_is_refused() -> None:
    graph = every_kind()
    tensors = random_tensors(graph)
    tensors["plain_norm"]["variance"][3] = -1e-3
    with pytest.raises(
        MappingError, match=r"plain_norm:variance: expected a variance above -0\.001, got -0\.001"
    ):
        fold_norms(graph, tensors)


def test_an_absorbed_bias_is_the_same_function() -> None:
    graph = every_kind()
    tensors = random_tensors(graph)
    without = replace(op_at(graph, "biased"), bias=False)
    bare = replace(
        graph,
        nodes=tuple(replace(node, op=without) if node.path == "biased" else node for node in graph.nodes),
    )
    wanted, got = values(graph, tensors), values(bare, absorb_biases(tensors, {"biased_norm": "biased"}))
    assert "bias" in tensors["biased"]
    for path in wanted.keys() - {"biased"}:
        assert np.linalg.norm(got[path] - wanted[path]) <= 1e-10 * np.linalg.norm(wanted[path]), path


def fold(weights_file: WeightsMaker, out: Path, framework: str = "torch", **options: Any) -> porter.Ported:
    weights = weights_file(NARROW, "torchvision", ".pth")
    return porter.convert(NARROW, "torchvision", framework, weights=weights, out=out, fold_bn=True, **options)


@pytest.mark.parametrize(
    ("framework", "dtype"),
    [
        ("torch", "float64"),
        pytest.param("torch", "bfloat16", marks=pytest.mark.full),
        ("tf", "float32"),
    ],
)
def test_a_folded_port_is_proved_against_its_source(
    framework: str, dtype: str, weights_file: WeightsMaker, tmp_path: Path
) -> None:
    made = fold(weights_file, tmp_path / "port", framework, dtype=dtype, check=framework == "torch")
    assert made.record()["folded"] == {"norms": 52, "kept": []}
    weights = weights_file(NARROW, "torchvision", ".pth")
    found = made.verdict or porter.verify(tmp_path / "port", weights=weights, float64=True)
    double = found.proof
    assert found.ok and (double.dtype, double.reference, double.limit) == ("float64", "torchvision", 1e-10)
    assert all(node.rel_l2 <= 1e-10 for node in double.nodes) and double.logits.argmax_equal
    layers = {node.path for node in made.port.graph.nodes if isinstance(node.op, Conv | Dense)}
    assert layers <= {node.path for node in double.nodes}
    said = "\n".join(verdict_text.verdict(found, layers=False))
    assert ("compared before the port's weights were rounded to bfloat16" in said) == (dtype == "bfloat16")


def test_what_is_stored_in_double_precision_is_what_was_computed(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    single, double = (
        fold(weights_file, tmp_path / dtype, dtype=dtype, check=False).port.tensors()
        for dtype in ("float32", "float64")
    )
    for path, roles in double.items():
        for role, array in roles.items():
            assert array.dtype == np.float64 and np.array_equal(
                array.astype(np.float32), single[path][role]
            ), (path, role)


def test_a_folded_tensor_that_is_one_bit_off_is_found(weights_file: WeightsMaker, tmp_path: Path) -> None:
    fold(weights_file, tmp_path / "port", check=False)
    path = tmp_path / "port" / "model.safetensors"
    state = load_file(path)
    state["block3.expand.conv.bias"][5] = np.nextafter(
        state["block3.expand.conv.bias"][5], np.float32(np.inf)
    )
    save_file(state, path)
    sign(tmp_path / "port")
    with pytest.raises(CheckFailed, match=r"block3/expand/conv:bias: .* rounded once to float32"):
        porter.verify(tmp_path / "port", weights=weights_file(NARROW, "torchvision", ".pth"))


def test_folding_by_another_epsilon_fails_the_check(
    weights_file: WeightsMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred-millionths off: far below what storing in float32 changes."""
    right = folding._fold_norm

    def wrong(
        op: Conv, layer: Mapping[str, Array], norm: Node, statistics: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        assert isinstance(norm.op, BatchNorm)
        return right(
            op, layer, replace(norm, op=replace(norm.op, epsilon=norm.op.epsilon + 1e-8)), statistics
        )

    monkeypatch.setattr(folding, "_fold_norm", wrong)
    with pytest.raises(CheckFailed, match="stem/conv is the first node that differs"):
        fold(weights_file, tmp_path / "port", check=True)
    assert not (tmp_path / "port").exists()


def test_a_port_says_which_norms_stay(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file(NARROW, "torchvision", ".pth")
    made = porter.convert(NARROW, "torchvision", "torch", weights=weights, out=tmp_path / "port", check=False)
    assert made.port.record.folded is None and made.record()["folded"] is None
    assert "  norms  " not in "\n".join(port_text.conversion(made))
    folded = fold(weights_file, tmp_path / "folded", check=False)
    assert "52 folded into the layers before them; none stay" in "\n".join(port_text.conversion(folded))
    again = porter.convert(
        NARROW,
        "torchvision",
        "torch",
        weights=tmp_path / "folded",
        out=tmp_path / "again",
        fold_bn=True,
        check=False,
    )
    assert again.record()["folded"] == {"norms": 0, "kept": []}
    assert "none to fold: the source has no batch norms" in "\n".join(port_text.conversion(again))
