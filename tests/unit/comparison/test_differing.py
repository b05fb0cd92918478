"""What is found between two graphs, by their normal forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from porter.comparison.aligning import Pairing, align
from porter.comparison.closeness import EXACT, ROUNDED
from porter.comparison.differing import Differences
from porter.comparison.normal_form import normal_form
from porter.comparison.running import worse
from porter.graph import FurtherInput, Graph, Node, ops, tensor_shapes
from porter.graph.folding import fold_norms
from porter.padding import Convention, Window
from tests.support.arrays import Array

SIZE = 17, 17
Tensors = dict[str, dict[str, Array]]


def conv(
    filters: int, kernel: int = 3, stride: int = 1, pad: int | None = None, bias: bool = False
) -> ops.Conv:
    pad = kernel // 2 if pad is None else pad
    window = Window((kernel, kernel), (stride, stride))
    return ops.Conv(filters, window, Convention.stated((pad, pad, pad, pad)), 1, bias)


def norm(epsilon: float = 1e-3) -> ops.BatchNorm:
    return ops.BatchNorm(epsilon, 0.1)


def graph(**nodes: tuple[ops.Op, str]) -> Graph:
    """Nodes by path, each with its op and what it reads."""
    made = tuple(Node(path, op, tuple(read.split())) for path, (op, read) in nodes.items())
    return Graph(made, 3, made[-1].path)


NETWORK = graph(
    stem=(conv(8, stride=2), "input"),
    stem_norm=(norm(), "stem"),
    stem_relu=(ops.Relu(), "stem_norm"),
    pool=(ops.MaxPool(Window((3, 3), (2, 2)), Convention("explicit", (1, 1, 1, 1), -math.inf)), "stem_relu"),
    left=(conv(8), "pool"),
    left_norm=(norm(), "left"),
    left_relu=(ops.Relu(), "left_norm"),
    right=(conv(8, 1, bias=True), "pool"),
    sum=(ops.Add(), "left_relu right"),
    mean=(ops.GlobalAvgPool(), "sum"),
    head=(ops.Dense(5), "mean"),
)


def numbers(of: Graph, seed: int = 0) -> Tensors:
    rng = np.random.default_rng(seed)
    made = {
        path: {role: rng.normal(size=shape) for role, shape in roles.items()}
        for path, roles in tensor_shapes(of).items()
    }
    for roles in made.values():
        if "variance" in roles:
            roles["variance"] = np.abs(roles["variance"]) + 0.2
    return {
        path: {role: array.astype(np.float32) for role, array in roles.items()}
        for path, roles in made.items()
    }


TENSORS = numbers(NETWORK)


def aligned(one: Graph, other: Graph, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Pairing:
    return align(normal_form(one, mine, SIZE), normal_form(other, theirs, SIZE))


def found(
    other: Graph, theirs: Mapping[str, Any], one: Graph = NETWORK, mine: Mapping[str, Any] = TENSORS
) -> list[tuple[str, str]]:
    differences = Differences(aligned(one, other, mine, theirs), SIZE).find().differences
    return [(each.kind, each.text) for each in differences]


def changed(**ops_by_path: ops.Op) -> Graph:
    """The network with other ops at some paths."""
    return replace(
        NETWORK, nodes=tuple(replace(node, op=ops_by_path.get(node.path, node.op)) for node in NETWORK.nodes)
    )


def with_tensor(path: str, role: str, change: Callable[[Array], Array]) -> Tensors:
    return {**TENSORS, path: {**TENSORS[path], role: change(TENSORS[path][role])}}


def without(path: str, of: Graph = NETWORK) -> Graph:
    """The graph without a node; what read it reads what it read."""
    source = of.by_path[path].source
    nodes = (node for node in of.nodes if node.path != path)
    return replace(
        of,
        nodes=tuple(
            replace(node, inputs=tuple(source if read == path else read for read in node.inputs))
            for node in nodes
        ),
    )


def renamed(of: Graph, tensors: Tensors) -> tuple[Graph, Tensors]:
    """A graph under names that say nothing, with the branches of its sum the other way round."""
    names = {node.path: f"n{place}" for place, node in enumerate(of.nodes)}
    nodes = [
        replace(node, path=names[node.path], inputs=tuple(names.get(read, read) for read in node.inputs))
        for node in of.nodes
    ]
    nodes = [
        replace(node, inputs=node.inputs[::-1]) if isinstance(node.op, ops.Add) else node for node in nodes
    ]
    return replace(of, nodes=tuple(nodes), output=names[of.output]), {
        names[path]: roles for path, roles in tensors.items() if path in names
    }


def test_a_graph_is_its_own_function() -> None:
    pairing = aligned(NETWORK, NETWORK, TENSORS, TENSORS)
    assert Differences(pairing, SIZE).find().differences == []
    assert pairing.pairs == {path: path for path in pairing.form_a.units} and len(pairing.pairs) == 9


def test_names_and_the_order_of_writing_say_nothing() -> None:
    other, theirs = renamed(NETWORK, TENSORS)
    moved = (*other.nodes[:4], other.nodes[7], *other.nodes[4:7], *other.nodes[8:])
    assert found(replace(other, nodes=moved), theirs) == []


def test_a_depthwise_layer_of_one_cell_is_a_scale_of_each_channel() -> None:
    window = Window((1, 1), (1, 1))
    depthwise = ops.Conv(3, window, Convention.stated((0, 0, 0, 0)), 3, False)
    grouped = ops.Conv(6, Window((3, 3), (1, 1)), Convention("valid"), 3, False)
    one = graph(scale=(ops.MultiplyArray((3, 1, 1)), "input"), mean=(ops.GlobalAvgPool(), "scale"))
    other = graph(scale=(depthwise, "input"), mean=(ops.GlobalAvgPool(), "scale"))
    factors = np.array([0.5, 2, 3], np.float32)
    mine, theirs = (
        {"scale": {"value": factors.reshape(3, 1, 1)}},
        {"scale": {"kernel": factors.reshape(3, 1, 1, 1)}},
    )
    assert found(other, theirs, one, mine) == []
    behind = graph(scale=(depthwise, "input"), conv=(grouped, "scale"))
    kernel = {"conv": {"kernel": np.ones((6, 1, 3, 3), np.float32)}}
    joined = graph(conv=(grouped, "input"))
    scaled = {"conv": {"kernel": kernel["conv"]["kernel"] * np.repeat(factors, 2).reshape(6, 1, 1, 1)}}
    assert found(joined, scaled, behind, {**theirs, **kernel}) == []


def test_norms_that_were_folded_before_they_were_stored_are_the_same() -> None:
    folding = fold_norms(NETWORK, TENSORS)
    stored = {
        path: {role: array.astype(np.float32) for role, array in roles.items()}
        for path, roles in folding.tensors.items()
    }
    assert found(folding.graph, stored) == []
    strict = Differences(aligned(NETWORK, folding.graph, TENSORS, stored), SIZE, EXACT).find().differences
    assert [each.kind for each in strict] == ["weights", "weights"], (
        "rounding to float32 is further than float64's"
    )


def test_weights_that_no_norm_can_explain_may_not_differ_by_a_rounding() -> None:
    theirs = with_tensor("left", "kernel", lambda kernel: kernel * np.float32(1 + ROUNDED / 5))
    assert [kind for kind, _ in found(NETWORK, theirs)] == ["scale"]


def test_what_is_written_in_other_ops_is_the_same() -> None:
    """A pad layer, a norm as a scale and a convolution of single channels, a relu6 as a clip, and a 1x1
    convolution of one cell as a head.
    """
    one = graph(
        a=(conv(4), "input"),
        norm=(norm(), "a"),
        relu=(ops.Relu6(), "norm"),
        mean=(ops.GlobalAvgPool(), "relu"),
        head=(ops.Dense(5), "mean"),
    )
    other = graph(
        pad=(ops.PadMap((1, 1, 1, 1)), "input"),
        b=(conv(4, pad=0), "pad"),
        half=(ops.Conv(4, Window((1, 1)), Convention("same"), 4), "b"),
        scale=(ops.ChannelScale(bias=True), "half"),
        clip=(ops.Clip(0.0, 6.0), "scale"),
        mean=(ops.GlobalAvgPool(keep=True), "clip"),
        conv=(replace(conv(5, 1, bias=True), convention=Convention("same")), "mean"),
        once_more=(ops.AdaptiveMaxPool(1, 1), "conv"),
        flat=(ops.GlobalAvgPool(), "once_more"),
    )
    mine = numbers(one)
    own = {role: array.astype(np.float64) for role, array in mine["norm"].items()}
    gamma = own["gamma"] / np.sqrt(own["variance"] + 1e-3)
    theirs = {
        "b": mine["a"],
        "half": {"kernel": np.full((4, 1, 1, 1), 0.5)},
        "scale": {"gamma": 2 * gamma, "beta": own["beta"] - own["mean"] * gamma},
        "conv": {"kernel": mine["head"]["kernel"].reshape(5, 4, 1, 1), "bias": mine["head"]["bias"]},
    }
    assert found(other, theirs, one, mine) == []
    theirs["conv"]["bias"] = theirs["conv"]["bias"] + 0.5
    assert [kind for kind, _ in found(other, theirs, one, mine)] == ["bias"]


def test_joins_may_be_made_one_after_the_other() -> None:
    """As Keras's DenseNets have them; the inner join is read by another layer too."""
    layers = {"a": (conv(4), "input"), "b": (conv(5), "input"), "c": (conv(6), "input")}
    one = graph(**layers, all=(ops.ConcatChannels(), "a b c"), end=(conv(3), "all"))
    other = graph(
        **layers,
        first=(ops.ConcatChannels(), "a b"),
        all=(ops.ConcatChannels(), "first c"),
        end=(conv(3), "all"),
    )
    mine = numbers(one)
    assert found(one, mine, other, mine) == []
    turned = graph(
        **layers,
        first=(ops.ConcatChannels(), "b a"),
        all=(ops.ConcatChannels(), "first c"),
        end=(conv(3), "all"),
    )
    assert found(one, mine, turned, mine) != [], "in another order"


def test_queries_keys_and_values_may_be_one_layer() -> None:
    tokens = (ops.Rearrange("c h w -> (h w) c"), "input")
    apart = graph(
        tokens=tokens,
        q=(ops.Dense(4), "tokens"),
        k=(ops.Dense(4), "tokens"),
        v=(ops.Dense(4), "tokens"),
        out=(ops.Attention(2, 0.7), "q k v"),
    )
    together = graph(tokens=tokens, qkv=(ops.Dense(12), "tokens"), out=(ops.Attention(2, 0.7), "qkv"))
    mine = numbers(apart)
    joined = {role: np.concatenate([mine[name][role] for name in "qkv"]) for role in ("kernel", "bias")}
    assert found(together, {"qkv": joined}, apart, mine) == []
    swapped = {role: np.concatenate([mine[name][role] for name in "kqv"]) for role in ("kernel", "bias")}
    assert found(together, {"qkv": swapped}, apart, mine) != []


CASES: Mapping[str, tuple[Graph, Tensors, list[tuple[str, str]]]] = {
    "pads at the end": (
        changed(stem=replace(conv(8, stride=2), convention=Convention("same"))),
        TENSORS,
        [],
    ),
    "padding": (
        changed(left=replace(conv(8), convention=Convention.stated((0, 2, 0, 2)))),
        TENSORS,
        [("padding", "left: A pads 1, B pads ((0, 2), (0, 2))")],
    ),
    "epsilon": (changed(left_norm=norm(1e-5)), TENSORS, [("epsilon", "left_norm: epsilon 0.001, 1e-05")]),
    "activation": (
        changed(left_relu=ops.Gelu()),
        TENSORS,
        [("activation", "left_relu: A has a relu, B a gelu")],
    ),
    "bounds": (changed(left_relu=ops.Relu6()), TENSORS, [("activation", "left_relu: high inf, 6")]),
    "weights": (
        NETWORK,
        with_tensor("right", "kernel", lambda kernel: kernel + np.eye(8, dtype=np.float32)[:, :, None, None]),
        [("weights", "right: another kernel (1.5e+00 apart)")],
    ),
    "bias": (
        NETWORK,
        with_tensor("left_norm", "beta", lambda beta: 0 * beta),
        [("bias", "left_norm: B lacks the beta")],
    ),
    "order": (
        NETWORK,
        with_tensor("stem", "kernel", lambda kernel: kernel[:, ::-1]),
        [("order", "stem: B takes the inputs in another order: reversed, as RGB is beside BGR")],
    ),
    "scale": (
        NETWORK,
        with_tensor("right", "kernel", lambda kernel: 2 * kernel),
        [("scale", "right: B's kernel is A's times 2")],
    ),
    "operator": (
        changed(pool=ops.AvgPool(Window((3, 3), (2, 2)), Convention.stated((1, 1, 1, 1)))),
        TENSORS,
        [("operator", "pool: A has a 3x3 max pool, B a 3x3 average pool")],
    ),
    "window": (
        changed(
            left=replace(
                conv(8), window=Window((3, 3), (1, 1), (2, 2)), convention=Convention.stated((2, 2, 2, 2))
            )
        ),
        TENSORS,
        [("operator", "left: dilation 1x1, 2x2")],
    ),
    "missing": (without("left_relu"), TENSORS, [("missing", "B lacks left_relu (a relu)")]),
    "missing norm": (without("left_norm"), TENSORS, [("missing", "left: B lacks left_norm (a batch norm)")]),
    "labels": (
        NETWORK,
        {**TENSORS, "head": {role: np.roll(array, 1, axis=0) for role, array in TENSORS["head"].items()}},
        [("labels", "head: B's rows are A's in another order (B's label 0 is A's 4)")],
    ),
    "half": (
        NETWORK,
        with_tensor("head", "kernel", lambda kernel: kernel.astype(np.float16).astype(np.float32)),
        [("weights", "head: B's kernel is A's, rounded to float16")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_planted_difference_is_named(case: str) -> None:
    other, theirs, expected = CASES[case]
    assert found(other, theirs) == expected
    assert [kind for kind, _ in found(*renamed(other, theirs))] == [kind for kind, _ in expected], (
        "without names"
    )


def test_what_only_the_second_has_is_extra_and_a_scaled_input_is_preprocessing() -> None:
    assert found(NETWORK, TENSORS, without("left_relu"), TENSORS) == [("extra", "A lacks left_relu (a relu)")]
    scaled = replace(
        NETWORK,
        nodes=(
            Node("scale", ops.Affine((1 / 255,), (0.0,)), ("input",)),
            replace(NETWORK.nodes[0], inputs=("scale",)),
            *NETWORK.nodes[1:],
        ),
    )
    assert found(NETWORK, TENSORS, scaled, TENSORS) == [
        ("preprocessing", "stem: A's input is divided by 255, B's is not")
    ]
    shifted = replace(
        scaled, nodes=(replace(scaled.nodes[0], op=ops.Affine((1 / 127.5,), (-1.0,))), *scaled.nodes[1:])
    )
    assert found(NETWORK, TENSORS, shifted, TENSORS) == [
        ("preprocessing", "A's input is divided by 127.5, plus -1, B's is not")
    ]


def test_channels_in_another_order_are_the_order_of_the_first_kernel() -> None:
    turned = replace(
        NETWORK,
        nodes=(
            Node("turn", ops.SliceChannels(2, -1, -1), ("input",)),
            replace(NETWORK.nodes[0], inputs=("turn",)),
            *NETWORK.nodes[1:],
        ),
    )
    assert found(turned, with_tensor("stem", "kernel", lambda kernel: kernel[:, ::-1])) == []
    assert found(turned, TENSORS) == [
        ("preprocessing", "stem: B's input is in another order of channels, A's is not")
    ]


def test_an_epsilon_is_found_in_weights_that_were_folded_with_it() -> None:
    folding = fold_norms(changed(stem_norm=norm(1e-5)), TENSORS)
    stored = {
        path: {role: array.astype(np.float32) for role, array in roles.items()}
        for path, roles in folding.tensors.items()
    }
    assert found(folding.graph, stored) == [
        ("epsilon", "stem_norm: epsilon 0.001 in A, B was folded with 1e-05")
    ]


def test_three_differences_are_all_named_because_alignment_goes_on_behind_each() -> None:
    other = changed(stem_norm=norm(1e-5), left=replace(conv(8), convention=Convention.stated((0, 2, 0, 2))))
    theirs = {**TENSORS, "head": {role: np.roll(array, 1, axis=0) for role, array in TENSORS["head"].items()}}
    assert [kind for kind, _ in found(other, theirs)] == ["epsilon", "padding", "labels"]
    without_relu = without("stem_relu", other)
    assert [kind for kind, _ in found(without_relu, theirs)] == ["epsilon", "missing", "padding", "labels"]


def test_other_weights_everywhere_are_paired_by_structure() -> None:
    kinds = {kind for kind, _ in found(*renamed(NETWORK, numbers(NETWORK, 1)))}
    assert kinds == {"weights", "bias"}


def test_pads_that_are_equal_at_one_size_only() -> None:
    other = changed(stem=replace(conv(8, stride=2), convention=Convention("same")))
    pairing = aligned(NETWORK, other, TENSORS, TENSORS)
    assert Differences(pairing, SIZE).find().differences == []
    assert [each.kind for each in Differences(pairing, (None, None)).find().differences] == ["padding"]


def test_inputs_and_outputs_are_paired_by_their_places() -> None:
    two = Graph(
        (
            Node("a", conv(4), ("input",)),
            Node("b", conv(4), ("right",)),
            Node("joined", ops.ConcatChannels(), ("a", "b")),
            Node("small", ops.GlobalAvgPool(), ("joined",)),
        ),
        3,
        "small",
        further=("joined",),
        further_inputs=(FurtherInput("right", "right", 3),),
    )
    mine = numbers(two)
    nodes = tuple(
        replace(node, inputs=tuple(path.replace("right", "second") for path in node.inputs))
        for node in two.nodes
    )
    other = replace(two, nodes=nodes, further_inputs=(FurtherInput("second", "second", 3),))
    assert found(other, mine, two, mine) == []
    crossed = replace(two.nodes[2], inputs=("b", "a"))
    assert [
        kind
        for kind, _ in found(replace(two, nodes=(*two.nodes[:2], crossed, two.nodes[3])), mine, two, mine)
    ] == ["order"]
    swapped = replace(two, output="joined", further=("small",))
    assert found(swapped, mine, two, mine) == [("order", "A gives small, joined, B joined, small")]
    wrong = (
        replace(two.nodes[0], inputs=("right",)),
        replace(two.nodes[1], inputs=("input",)),
        *two.nodes[2:],
    )
    assert [kind for kind, _ in found(replace(two, nodes=wrong), mine, two, mine)] == ["operator", "operator"]


def test_a_distance_that_is_no_number_stays_the_worst() -> None:
    """The norms of numbers near float64's largest are infinite, and their ratio is NaN: equal outputs after
    them hid it.
    """
    largest, small = np.full((1, 8), 1e308), np.ones((1, 8))
    with np.errstate(over="ignore"):
        undefined = worse(worse(None, small, 2 * small), largest, -largest)
    assert math.isnan(undefined.rel_l2) and worse(undefined, small, small) is undefined
    apart = worse(None, small, 2 * small)
    assert worse(apart, small, small) is apart and worse(apart, small, 3 * small).rel_l2 == 2
