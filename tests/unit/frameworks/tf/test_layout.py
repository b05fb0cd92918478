from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

from porter.base.errors import MappingError
from porter.frameworks.dialects import get_dialect
from porter.frameworks.tf.layout import layer_names, pad_name
from porter.graph import (
    INPUT,
    Add,
    AddArray,
    BatchNorm,
    ConcatChannels,
    Conv,
    Dense,
    GlobalAvgPool,
    Graph,
    Node,
    tensor_shapes,
)
from porter.padding import Convention, Window
from tests.support.arrays import Array
from tests.support.frameworks.every_op import every_op, tensors_of
from tests.support.frameworks.tf.models import ONE, SAME, explicit, mobilenet_v2, network

THREE = Window((3, 3))


def test_importing_the_folder_imports_no_framework() -> None:
    code = (
        "import sys, porter.frameworks.tf; print([m for m in ('tensorflow', 'keras', 'torch') if m in "
        "sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def _node(op: Conv | BatchNorm | Dense, channels: int = 4) -> tuple[Graph, Node]:
    before = [Node("pool", GlobalAvgPool(), (INPUT,))] if isinstance(op, Dense) else []
    node = Node("node", op, ("pool" if before else INPUT,))
    return Graph((*before, node), channels, "node"), node


def test_tensor_names_say_the_likeliest_spelling_first() -> None:
    assert get_dialect("tf").tensor_names(*_node(Conv(8, THREE, SAME, bias=True)), "c") == {
        "kernel": ("c/kernel", "c/weights"),
        "bias": ("c/bias", "c/biases"),
    }
    depthwise = ("d/depthwise_kernel", "d/kernel", "d/depthwise_weights", "d/weights")
    assert get_dialect("tf").tensor_names(*_node(Conv(4, THREE, SAME, groups=4)), "d") == {
        "kernel": depthwise
    }
    grouped = ("g/kernel", "g/depthwise_kernel", "g/weights", "g/depthwise_weights")
    assert get_dialect("tf").tensor_names(*_node(Conv(4, THREE, SAME, groups=2)), "g") == {"kernel": grouped}
    assert get_dialect("tf").tensor_names(*_node(BatchNorm(1e-3, 0.01, scale=False)), "n") == {
        "beta": ("n/beta",),
        "mean": ("n/moving_mean",),
        "variance": ("n/moving_variance",),
    }
    assert set(get_dialect("tf").tensor_names(*_node(Dense(2, bias=False)), "d")) == {"kernel"}


def test_tensor_names_have_the_roles_of_the_graph() -> None:
    graph = every_op()
    for path, roles in tensor_shapes(graph).items():
        assert set(get_dialect("tf").tensor_names(graph, graph.by_path[path], "layer")) == set(roles)


def test_canonical_axis_order() -> None:
    graph, node = _node(Conv(6, Window((1, 3)), SAME))
    array: Array = np.arange(1 * 3 * 4 * 6).reshape(1, 3, 4, 6)
    assert get_dialect("tf").to_canonical(graph, node, "kernel", array)[5, 2, 0, 1] == array[0, 1, 2, 5]

    graph, node = _node(Conv(8, Window((1, 3)), SAME, groups=4))
    array = np.arange(1 * 3 * 4 * 2).reshape(1, 3, 4, 2)
    canonical = get_dialect("tf").to_canonical(graph, node, "kernel", array)
    assert canonical.shape == (8, 1, 1, 3)
    assert canonical[2 * 1 + 0, 0, 0, 2] == array[0, 2, 1, 0]  # filters count the multiplier fastest
    grouped = canonical.transpose(2, 3, 1, 0)  # as a grouped Conv2D keeps it
    assert np.array_equal(get_dialect("tf").to_canonical(graph, node, "kernel", grouped), canonical)

    graph, node = _node(Dense(3))
    array = np.arange(12).reshape(4, 3)
    assert get_dialect("tf").to_canonical(graph, node, "kernel", array)[2, 1] == array[1, 2]
    assert np.array_equal(
        get_dialect("tf").to_canonical(graph, node, "kernel", array.reshape(1, 1, 4, 3)), array.T
    )


def test_canonical_and_back() -> None:
    graph = every_op()
    for path, roles in tensors_of(graph).items():
        for role, array in roles.items():
            node = graph.by_path[path]
            assert np.array_equal(
                get_dialect("tf").to_canonical(
                    graph, node, role, get_dialect("tf").from_canonical(graph, node, role, array)
                ),
                array,
            )


@pytest.mark.parametrize(
    ("op", "role", "shape"),
    [
        (Conv(6, THREE, SAME), "kernel", (4, 6)),
        (Conv(4, THREE, SAME, groups=4), "kernel", (3, 3, 4)),
        (BatchNorm(1e-3, 0.01), "gamma", (4, 1)),
        (Dense(3), "kernel", (4,)),
        (Dense(3), "kernel", (2, 2, 4, 3)),
    ],
)
def test_another_rank_is_refused_with_its_node(
    op: Conv | BatchNorm | Dense, role: str, shape: tuple[int, ...]
) -> None:
    graph, node = _node(op)
    with pytest.raises(MappingError, match="expected a") as caught:
        get_dialect("tf").to_canonical(graph, node, role, np.zeros(shape))
    assert caught.value.where == "node"


def test_an_array_of_another_number_of_values_is_refused() -> None:
    node = Node("node", AddArray((4, 2, 3)), (INPUT,))
    with pytest.raises(MappingError, match="expected 24 values") as caught:
        get_dialect("tf").to_canonical(Graph((node,), 4, "node"), node, "value", np.zeros((2, 3, 5)))
    assert caught.value.where == "node"


def test_layer_names() -> None:
    graph = network()
    names = layer_names(graph, {"stem/conv": "conv1", "b/norm": "a_norm"})
    assert names["stem/conv"] == "conv1"
    assert names["a/depthwise/conv"] == "a_depthwise_conv"
    assert (names["b/norm"], names["a/norm"]) == ("a_norm", "a_norm_2")
    assert len(set(names.values())) == len(graph.nodes)
    with pytest.raises(MappingError, match="two nodes have the layer name 'x'"):
        layer_names(graph, {"stem/conv": "x", "b/norm": "x"})


def test_pad_names_are_those_of_keras_applications() -> None:
    found = [
        pad_name(name)
        for name in ("conv1_conv", "pool1_pool", "block_1_depthwise", "conv_dw_2", "Conv1", "stage1_conv2")
    ]
    assert found == ["conv1_pad", "pool1_pad", "block_1_pad", "conv_pad_2", "Conv1_pad", "stage1_conv2_pad"]


def _keras_counters(model: object) -> dict[str, str]:
    from keras.src.utils.naming import to_snake_case

    counts: dict[str, int] = {}
    found: dict[str, str] = {}
    for layer in model.layers:  # type: ignore[attr-defined]
        kind = to_snake_case(type(layer).__name__)
        count = counts.get(kind, 0)
        counts[kind] = count + 1
        if layer.weights:
            found[layer.name] = kind + (f"_{count}" if count else "")
    return found


def test_counted_layers_of_mobilenet_v2() -> None:
    from porter.frameworks.tf.runtime import import_keras

    model = import_keras().applications.MobileNetV2(
        alpha=0.35, weights=None, input_shape=(32, 32, 3), classes=7
    )
    assert get_dialect("tf").counted_layers(mobilenet_v2(), (), {}) == _keras_counters(model)


def _branches() -> Graph:
    """Branches of one, three and three convolutions; of the last two, a pad layer makes one the longer."""
    convs = {
        "short": (INPUT, SAME),
        "long1": (INPUT, SAME),
        "long2": ("long1", explicit(1, 1, 1, 1)),
        "long3": ("long2", SAME),
        "middle1": (INPUT, SAME),
        "middle2": ("middle1", SAME),
        "middle3": ("middle2", SAME),
    }
    nodes = [
        Node(name, Conv(4, THREE, convention), (source,)) for name, (source, convention) in convs.items()
    ]
    nodes += [
        Node("join", ConcatChannels(), ("short", "middle3", "long3")),
        Node("sum", Add(), ("join", "join")),
    ]
    nodes += [Node("norm", BatchNorm(1e-3, 0.01), ("sum",)), Node("pool", GlobalAvgPool(), ("norm",))]
    return Graph((*nodes, Node("logits", Dense(3), ("pool",))), 3, "logits")


def test_counted_layers_go_by_depth_then_by_first_visit_as_in_keras() -> None:
    from porter.frameworks.tf.runtime import import_keras

    keras = import_keras()
    graph = _branches()
    values = {INPUT: keras.Input((None, None, 3))}
    for node in graph.nodes:
        inputs = [values[path] for path in node.inputs]
        if isinstance(node.op, Conv):
            padded = (
                keras.layers.ZeroPadding2D(1)(inputs[0])
                if node.op.convention.rule == "explicit"
                else inputs[0]
            )
            padding = "valid" if node.op.convention.rule == "explicit" else "same"
            values[node.path] = keras.layers.Conv2D(4, 3, padding=padding, use_bias=False, name=node.path)(
                padded
            )
        else:
            kinds = {
                "join": "Concatenate",
                "sum": "Add",
                "norm": "BatchNormalization",
                "pool": "GlobalAveragePooling2D",
            }
            layer = keras.layers.Dense(3, name="logits") if node.path == "logits" else None
            layer = layer or getattr(keras.layers, kinds[node.path])(name=node.path)
            values[node.path] = layer(inputs if len(inputs) > 1 else inputs[0])
    expected = _keras_counters(keras.Model(values[INPUT], values["logits"]))
    assert get_dialect("tf").counted_layers(graph, (), {}) == expected
    # Neither the order of creation nor of names.
    assert expected["long1"] == "conv2d" and expected["short"] != "conv2d_1"


def test_counted_layers_do_not_depend_on_the_order_of_branches_in_the_graph() -> None:
    graph = _branches()
    expected, rng = get_dialect("tf").counted_layers(graph, (), {}), random.Random(0)
    for _ in range(5):
        waiting = list(graph.nodes)
        placed: list[Node] = []
        while waiting:
            known = {INPUT, *(node.path for node in placed)}
            placed.append(
                waiting.pop(waiting.index(rng.choice([n for n in waiting if known.issuperset(n.inputs)])))
            )
        assert get_dialect("tf").counted_layers(Graph(tuple(placed), 3, "logits"), (), {}) == expected


def test_a_dense_node_that_the_source_has_as_a_convolution_counts_as_one() -> None:
    graph = Graph(
        (
            *_node(Conv(4, ONE, Convention()))[0].nodes,
            Node("pool", GlobalAvgPool(), ("node",)),
            Node("head", Dense(3), ("pool",)),
        ),
        3,
        "head",
    )
    assert get_dialect("tf").counted_layers(graph, (), {}) == {"node": "conv2d", "head": "dense"}
    assert get_dialect("tf").counted_layers(graph, ["head"], {}) == {
        "node": "conv2d",
        "head": "conv2d_1",
    }


def test_a_separable_convolution_is_one_layer_of_two_kernels() -> None:
    """As two layers it would make the convolution before it the deepest."""
    from porter.frameworks.tf.runtime import import_keras

    halves = (
        Node("sep/depthwise", Conv(3, THREE, SAME, groups=3), ("before",)),
        Node("sep", Conv(3, Window((1, 1)), Convention(), bias=True), ("sep/depthwise",)),
    )
    before, beside, last = (
        Node(name, Conv(3, THREE, SAME), (source,))
        for name, source in (("before", INPUT), ("beside", INPUT), ("last", "beside"))
    )
    graph = Graph((before, *halves, beside, last, Node("sum", Add(), ("last", "sep"))), 3, "sum")
    layers = {"sep/depthwise": "sep/depthwise_kernel", "sep": "sep/pointwise_kernel"}
    counted = get_dialect("tf").counted_layers(graph, (), layers)

    keras = import_keras()
    image = keras.Input((8, 8, 3))
    conv = {
        name: keras.layers.Conv2D(3, 3, padding="same", name=name) for name in ("before", "beside", "last")
    }
    separable = keras.layers.SeparableConv2D(3, 3, padding="same", name="sep")
    joined = keras.layers.Add()([conv["last"](conv["beside"](image)), separable(conv["before"](image))])
    own = _keras_counters(keras.Model(image, joined))
    assert counted == {path: own[path] for path in conv} | {
        "sep/depthwise": "separable_conv2d/depthwise_kernel",
        "sep": "separable_conv2d/pointwise_kernel",
    }
    names = [get_dialect("tf").tensor_names(graph, node, counted[node.path]) for node in halves]
    assert names == [
        {"kernel": ("separable_conv2d/depthwise_kernel",)},
        {
            "kernel": ("separable_conv2d/pointwise_kernel",),
            "bias": ("separable_conv2d/bias", "separable_conv2d/biases"),
        },
    ]
    assert [layer_names(graph, layers)[node.path] for node in halves] == ["sep_depthwise", "sep_pointwise"]
