"""The framework-neutral graph: its shapes, its record, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from porter.base.errors import GraphError
from porter.graph import (
    INPUT,
    MOST_CONSTANTS,
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    BlockScope,
    ConcatChannels,
    Conv,
    ConvTranspose,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    Graph,
    Identity,
    MaxPool,
    Node,
    Op,
    Relu,
    Relu6,
    Resize,
    is_depthwise,
    nonnegative_paths,
    shapes,
    site_of,
    tensor_shapes,
)
from porter.graph.record import from_record, to_record
from porter.padding import LOWEST, Average, Convention, Site, Window
from tests.support.padding.windows import evaluate_map, lay

ONE, THREE = Window((1, 1)), Window((3, 3), (2, 2))
VALID, SAME = Convention(), Convention("same")
POOL = MaxPool(THREE, Convention("explicit", (0, 1, 0, 1), LOWEST, "clipped_window", "ceil"))


FURTHER = {"path": "more", "name": "more", "channels": 1, "size": [4, 4], "axes": []}


def chain(*ops: Op, channels: int = 3) -> Graph:
    nodes = [Node(f"step{i}", op, (f"step{i - 1}" if i else INPUT,)) for i, op in enumerate(ops)]
    return Graph(tuple(nodes), channels, nodes[-1].path)


def every_op() -> Graph:
    nodes = (
        Node("pixels", Affine((0.5, 1e-300, -3e5), (-1.0,)), (INPUT,)),
        Node("stem/conv", Conv(8, THREE, SAME, bias=True), ("pixels",)),
        Node("stem/norm", BatchNorm(1e-3, 0.01, scale=False), ("stem/conv",)),
        Node("stem/relu", Relu(), ("stem/norm",)),
        Node("unit1/depthwise", Conv(8, Window((3, 3)), SAME, groups=8), ("stem/relu",)),
        Node("unit1/relu", Relu6(), ("unit1/depthwise",)),
        Node("unit1/add", Add(), ("unit1/relu", "stem/relu")),
        Node("pool/max", POOL, ("unit1/add",)),
        Node("pool/average", AvgPool(THREE, replace(POOL.convention, fill=0.0)), ("unit1/add",)),
        Node("pool/join", ConcatChannels(), ("pool/max", "pool/average")),
        Node("same", Identity(), ("pool/join",)),
        Node("mean", GlobalAvgPool(), ("same",)),
        Node("most", GlobalMaxPool(), ("same",)),
        Node("features", ConcatChannels(), ("mean", "most")),
        Node("hidden/norm", BatchNorm(1e-3, 0.01), ("features",)),
        Node("hidden/relu", Relu(), ("hidden/norm",)),
        Node("hidden/scaled", Affine((2.0,), tuple(map(float, range(32)))), ("hidden/relu",)),
        Node("logits", Dense(10, bias=False), ("hidden/scaled",)),
    )
    scopes = (
        BlockScope(
            "unit1",
            "unit",
            {"width": 8, "ratio": 0.5, "first": True, "name": "a", "shortcut": None, "kernel": (1, (7, 1))},
        ),
    )
    return Graph(nodes, 3, "logits", scopes)


def test_shapes_at_known_and_unknown_sizes() -> None:
    graph = every_op()
    found = shapes(graph, (33, 20))
    assert found[INPUT] == (3, 33, 20)
    assert found["stem/conv"] == (8, 17, 10)
    assert found["pool/max"] == (8, 9, 5)
    assert found["pool/join"] == (16, 9, 5)
    assert found["pixels"] == found[INPUT]
    assert found["mean"] == found["most"] == (16,)
    assert (
        found["features"] == found["hidden/norm"] == found["hidden/relu"] == found["hidden/scaled"] == (32,)
    )
    assert found["logits"] == (10,)
    assert shapes(graph, (None, 20))["pool/join"] == (16, None, 5)
    assert graph.channels_by_path["same"] == 16


def test_shapes_are_worked_out_once_for_the_sizes_that_are_asked_for_lately() -> None:
    graph = every_op()
    first = shapes(graph, (33, 20))
    assert shapes(graph, (33, 20)) is first
    for side in range(40, 80):
        shapes(graph, (side, side))
    assert len(graph.shape_cache) < 10 and shapes(graph, (33, 20)) == first


def test_tensor_shapes_are_canonical() -> None:
    assert tensor_shapes(every_op()) == {
        "stem/conv": {"kernel": (8, 3, 3, 3), "bias": (8,)},
        "stem/norm": {"beta": (8,), "mean": (8,), "variance": (8,)},
        "unit1/depthwise": {"kernel": (8, 1, 3, 3)},
        "hidden/norm": {"gamma": (32,), "beta": (32,), "mean": (32,), "variance": (32,)},
        "logits": {"kernel": (10, 32)},
    }


def test_sites_and_depthwise_convolutions() -> None:
    graph = every_op()
    assert site_of(POOL) == Site("max_pool", THREE, POOL.convention)
    assert site_of(Relu()) is None
    depthwise = [node.path for node in graph.nodes if is_depthwise(graph, node)]
    assert depthwise == ["unit1/depthwise"]
    single = chain(Conv(4, ONE, VALID), channels=1)
    assert not is_depthwise(single, single.nodes[0])


def test_what_a_relu_makes_non_negative_stays_so_until_something_may_subtract() -> None:
    assert nonnegative_paths(every_op()) == {
        "stem/relu",
        "unit1/relu",
        "unit1/add",
        "pool/max",
        "pool/average",
        "pool/join",
        "same",
        "mean",
        "most",
        "features",
        "hidden/relu",
        "hidden/scaled",
    }
    signed = (
        Node("relu", Relu(), (INPUT,)),
        Node("sum", Add(), ("relu", INPUT)),
        Node("pool", POOL, (INPUT,)),
    )
    norm = (Node("norm", BatchNorm(1e-3, 0.1), ("relu",)), Node("join", ConcatChannels(), ("relu", "norm")))
    moved = (Node("moved", Affine((1.0,), (-1.0,)), ("relu",)), Node("under", POOL, ("moved",)))
    assert nonnegative_paths(Graph((*signed, *norm, *moved), 3, "join")) == {"relu"}


# Windows of 2x2 over a map of 3x3: the last pads leave some windows without a cell of it.
PADS = ((0, 0, 0, 0), (1, 0, 1, 0), (2, 3, 0, 1))
FILLS = (LOWEST, -5.0, 0.0, 2.0)
AVERAGES: tuple[Average, ...] = ("full_window", "clipped_window")


def pool_cases() -> Iterator[tuple[str, MaxPool | AvgPool]]:
    for pads, fill in product(PADS, FILLS):
        yield "max_pool", MaxPool(Window((2, 2)), Convention("explicit", pads, fill))
        for average in AVERAGES:
            yield "avg_pool", AvgPool(Window((2, 2)), Convention("explicit", pads, fill, average))


def test_no_pool_called_non_negative_gives_less_than_zero() -> None:
    maps = np.random.default_rng(0).uniform(0, 1, (2, 3, 3))
    refused = set()
    for kind, op in pool_cases():
        convention, relu = op.convention, Node("relu", Relu(), (INPUT,))
        rows, columns = (lay("explicit", 2, 1, 1, 3, convention.pads[axis : axis + 2]) for axis in (0, 2))
        values = evaluate_map(kind, rows, columns, maps, convention.fill, convention.average)
        claimed = "pool" in nonnegative_paths(Graph((relu, Node("pool", op, ("relu",))), 2, "pool"))
        # A window over pads that take no part gives no number: porter.padding refuses it.
        assert not claimed or values[values > LOWEST].min() >= 0, op
        refused |= set() if claimed else {(kind, convention.fill)}
    assert refused == {("max_pool", -5.0)}


@pytest.mark.parametrize(
    ("graph", "where", "message"),
    [
        (chain(Dense(3)), "step0", "rank 1, got 3x8x8"),
        (chain(GlobalAvgPool(), Conv(4, ONE, VALID)), "step1", "rank 3, got 3"),
        (chain(GlobalAvgPool(), GlobalAvgPool()), "step1", "rank 3"),
        (chain(GlobalMaxPool(), GlobalMaxPool()), "step1", "rank 3"),
        (chain(Affine((1.0, 2.0), (0.0,))), "step0", "one scale or one for each of 3 channels .*got 2"),
        (
            chain(GlobalAvgPool(), Affine((1.0,), (0.0,) * 4)),
            "step1",
            "one offset or one for each of 3 channels .*got 4",
        ),
        (chain(Affine((), (0.0,))), "step0", "one scale .*got 0"),
        (chain(Affine((1.0,), (0.0,) * 4097), channels=4097), "step0", "at most 4096.*got 4097"),
        (chain(Affine((1.0, float("inf"), 1.0), (0.0,))), "step0", "finite numbers, got inf as scale"),
        (chain(Affine((1.0,), (float("nan"),))), "step0", "finite numbers, got nan as offset"),
        (chain(Conv(4, Window((9, 1)), VALID)), "step0", "no 9x1 window"),
        (chain(ConvTranspose(4, ONE, (8, -1, 0, 0))), "step0", "nothing is left of 3x8x8 after the cut"),
        (chain(Resize("linear")), "step0", "expected either a scale or a size"),
        (chain(Resize("linear", (0.1, 1.0))), "step0", "nothing is left of 3x8x8"),
        (
            chain(Resize("linear", size=(10, 10)), Resize("linear", (1.0, float(np.float32(0.7))))),
            "step1",
            "10 cells times 0.69.* rounding",
        ),
        (
            chain(Resize("nearest", size=(14, 8))),
            "step0",
            "the nearest of 8 cells for 14 depends on float32's rounding",
        ),
        (chain(Conv(4, ONE, VALID, groups=2)), "step0", "2 groups do not divide 3 channels"),
        (chain(Conv(4, ONE, VALID, groups=3)), "step0", "3 groups do not divide 4 filters"),
        (chain(Conv(3, ONE, VALID, groups=0)), "step0", "0 groups do not divide 3 channels and 3 filters"),
        (Graph((Node("add", Add(), (INPUT,)),), 3, "add"), "add", "two inputs or more, got 1"),
        (Graph((Node("relu", Relu(), (INPUT, INPUT)),), 3, "relu"), "relu", "one input, got 2"),
        (Graph((Node("relu", Relu(), ()),), 3, "relu"), "relu", "one input, got 0"),
        (
            Graph((Node("relu", Relu(), (INPUT,)), Node("relu", Relu(), (INPUT,))), 3, "relu"),
            "relu",
            "two nodes",
        ),
        (Graph((Node(INPUT, Relu(), (INPUT,)),), 3, INPUT), INPUT, "two nodes"),
        (Graph((Node("a", Relu(), ("b",)), Node("b", Relu(), ("a",))), 3, "b"), "a", "not an earlier node"),
        (Graph((Node("a", Relu(), (INPUT,)),), 3, "b"), "b", "output is not a node"),
        (Graph((), 3, INPUT), INPUT, "output is not a node"),
    ],
)
def test_graphs_that_do_not_fit(graph: Graph, where: str, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        shapes(graph, (8, 8))
    assert caught.value.where == where


@pytest.mark.parametrize("kind", [Add, ConcatChannels])
def test_joins_of_shapes_that_differ(kind: type[Add | ConcatChannels]) -> None:
    nodes = (Node("pool", MaxPool(THREE, VALID), (INPUT,)), Node("join", kind(), (INPUT, "pool")))
    with pytest.raises(GraphError, match=r"cannot (add|join) shapes 3x8x8, 3x3x3"):
        shapes(Graph(nodes, 3, "join"), (8, 8))


def test_a_record_comes_back_through_json_as_it_was() -> None:
    graph = every_op()
    text = json.dumps(to_record(graph), allow_nan=False)
    assert from_record(json.loads(text)) == graph


def test_whole_numbers_and_floats_of_every_size_are_constants() -> None:
    record = json.loads(json.dumps(to_record(chain(Affine((1.0,), (0.0,))))))
    record["nodes"][0] |= {"scale": [5e-324, -(10**300), 1.7976931348623157e308], "offset": [-1]}
    assert from_record(record).nodes[0].op == Affine((5e-324, -1e300, 1.7976931348623157e308), (-1.0,))


def junk() -> dict[str, Callable[[dict[str, Any]], object]]:
    """Ways in which a stranger's record may be wrong: each takes a good one and gives a bad one."""

    def at(*keys: str | int, value: object) -> Callable[[dict[str, Any]], object]:
        def change(record: dict[str, Any]) -> object:
            target: Any = record
            for key in keys[:-1]:
                target = target[key]
            target[keys[-1]] = value
            return record

        return change

    def without(*keys: str | int) -> Callable[[dict[str, Any]], object]:
        def change(record: dict[str, Any]) -> object:
            target: Any = record
            for key in keys[:-1]:
                target = target[key]
            del target[keys[-1]]
            return record

        return change

    nested: list[Any] = []
    for _ in range(900):
        nested = [nested]
    window, convention = ("nodes", 1, "window"), ("nodes", 1, "convention")
    return {
        "none": lambda _: None,
        "a list": lambda record: [record],
        "no nodes": without("nodes"),
        "one key more": at("extra", value=1),
        "nodes by name": at("nodes", value={"a": 1}),
        "a node that is a number": at("nodes", 0, value=7),
        "no path": without("nodes", 0, "path"),
        "a path that is a number": at("nodes", 0, "path", value=3),
        "a path that leaves": at("nodes", 0, "path", value="../../etc"),
        "a path of code": at("nodes", 0, "path", value="a\nimport os"),
        "an endless path": at("nodes", 0, "path", value="a" * 10_000),
        "an empty path": at("nodes", 0, "path", value=""),
        "an unknown op": at("nodes", 0, "op", value="eval"),
        "an op that is a list": at("nodes", 0, "op", value=["conv"]),
        "no op": without("nodes", 0, "op"),
        "an attribute less": without("nodes", 1, "filters"),
        "an attribute of another op": at("nodes", 3, "epsilon", value=0.1),
        "filters in words": at("nodes", 1, "filters", value="8"),
        "a fraction of a filter": at("nodes", 1, "filters", value=8.0),
        "no filters": at("nodes", 1, "filters", value=0),
        "negative filters": at("nodes", 1, "filters", value=-8),
        "filters beyond memory": at("nodes", 1, "filters", value=10**30),
        "channels that are true": at("channels", value=True),
        "channels beyond memory": at("channels", value=2**40),
        "a bias that is a number": at("nodes", 1, "bias", value=1),
        "an epsilon that is no number": at("nodes", 2, "epsilon", value=float("nan")),
        "an endless epsilon": at("nodes", 2, "epsilon", value=float("inf")),
        "an epsilon in words": at("nodes", 2, "epsilon", value="1e-3"),
        "a huge whole epsilon": at("nodes", 2, "epsilon", value=10**400),
        "a scale that is a number": at("nodes", 0, "scale", value=2.0),
        "no scale": at("nodes", 0, "scale", value=[]),
        "a scale for two of three channels": at("nodes", 0, "scale", value=[1.0, 1.0]),
        "scales without end": at("nodes", 0, "scale", value=[1.0] * (MOST_CONSTANTS + 1)),
        "a scale in words": at("nodes", 0, "scale", value=["1"]),
        "a scale that is true": at("nodes", 0, "scale", value=[True]),
        "a scale of lists": at("nodes", 0, "scale", value=[[1.0]]),
        "an endless scale": at("nodes", 0, "scale", value=[float("-inf")]),
        "an offset that is no number": at("nodes", 0, "offset", value=[float("nan")]),
        "a huge whole offset": at("nodes", 0, "offset", value=[10**400]),
        "an offset in words": at("nodes", 0, "offset", value="-inf"),
        "no window": at(*window, value=None),
        "a kernel that is a number": at(*window, "kernel", value=3),
        "a kernel of three": at(*window, "kernel", value=[3, 3, 3]),
        "a kernel of lists": at(*window, "kernel", value=[[3], [3]]),
        "a kernel of 0": at(*window, "kernel", value=[0, 3]),
        "a kernel beyond reason": at(*window, "kernel", value=[10**9, 3]),
        "a dilation beyond reason": at(*window, "dilation", value=[1, 10**9]),
        "a window with one key more": at(*window, "depth", value=[1, 1]),
        "an unknown rule": at(*convention, "rule", value="reflect"),
        "a rule that is a list": at(*convention, "rule", value=["same"]),
        "a rule that is an object": at(*convention, "rule", value={}),
        "pads with same": at(*convention, "pads", value=[1, 1, 1, 1]),
        "three pads": at("nodes", 7, "convention", "pads", value=[1, 1, 1]),
        "pads beyond reason": at("nodes", 7, "convention", "pads", value=[0, 0, 0, 10**9]),
        "a negative pad": at("nodes", 7, "convention", "pads", value=[0, 0, 0, -1]),
        "a fill of infinity": at(*convention, "fill", value=float("inf")),
        "a huge whole fill": at(*convention, "fill", value=10**400),
        "a fill that is true": at(*convention, "fill", value=True),
        "a fill in words": at(*convention, "fill", value="inf"),
        "inputs in a word": at("nodes", 0, "inputs", value="input"),
        "no inputs": at("nodes", 0, "inputs", value=[]),
        "inputs that are numbers": at("nodes", 0, "inputs", value=[0]),
        "an input from later": at("nodes", 0, "inputs", value=["logits"]),
        "itself as input": at("nodes", 0, "inputs", value=["stem/conv"]),
        "no such output": at("output", value="elsewhere"),
        "an output that is a number": at("output", value=1),
        "no outputs": at("output", value=[]),
        "an output that is no node": at("output", value=["features", "nowhere"]),
        "scopes in a word": at("scopes", value="unit1"),
        "a scope without block": without("scopes", 0, "block"),
        "arguments in a list": at("scopes", 0, "arguments", value=[1]),
        "an argument that is an object": at("scopes", 0, "arguments", value={"width": {}}),
        "arguments nested without end": at("scopes", 0, "arguments", value={"width": nested}),
        "arguments of code": at("scopes", 0, "arguments", value={"a b": 1}),
    }


@pytest.mark.parametrize("name", junk())
def test_records_that_are_junk(name: str) -> None:
    record = junk()[name](json.loads(json.dumps(to_record(every_op()))))
    with pytest.raises(GraphError) as caught:
        from_record(record)
    assert caught.value.where
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"axes": [1] * 11}, "at most 10 values, got 11"),
        ({"further_inputs": [FURTHER] * 17}, "at most 16 values, got 17"),
        ({"further_inputs": [{**FURTHER, "size": [4]}]}, "expected rows and columns"),
        ({"further_inputs": [{**FURTHER, "size": [4, 4, 4]}]}, "at most 2 values, got 3"),
        ({"further_inputs": [{**FURTHER, "axes": [1] * 11}]}, "at most 10 values, got 11"),
    ],
)
def test_nothing_of_a_longer_list_is_left_out(change: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        from_record({**to_record(every_op()), **change})


def test_channels_are_worked_out_once_for_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were for every layer that was read and for every layer that was written."""
    calls: list[Graph] = []
    monkeypatch.setattr(
        "porter.graph.graph.shapes", lambda graph, size: calls.append(graph) or shapes(graph, size)
    )
    graph = Graph((Node("conv", Conv(4, Window((1, 1)), Convention()), (INPUT,)),), 2, "conv")
    assert tensor_shapes(graph) == tensor_shapes(graph) == {"conv": {"kernel": (4, 2, 1, 1)}}
    assert not is_depthwise(graph, graph.by_path["conv"]) and graph.channels_by_path["conv"] == 4
    assert calls == [graph]
