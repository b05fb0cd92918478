"""Recipes drafted from graphs expand to these graphs, and are short where the graphs have blocks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings

from porter.authoring.draft.draft import DraftFacts, draft_recipe
from porter.authoring.draft.yaml_text import flow
from porter.base.errors import UsageError
from porter.graph import INPUT, Add, BatchNorm, Conv, Dense, Flatten, GlobalAvgPool, Graph, Node, Op, Relu
from porter.padding import Convention, Window
from porter.recipe import Member, expand
from porter.recipe.writing.template import BlockTemplate, Use, UseStep
from tests.support.authoring.drafts import read_back
from tests.support.random_graphs import Sample, samples
from tests.support.recipe.recipes import all_recipes

SAME = Convention("same")
MOST_LINES = {
    "resnet_v2": 60,
    "resnet_v1": 55,
    "mobilenet_v1": 50,
    "mobilenet_v2": 55,
    "resnext": 55,
    "wide_resnet": 55,
}


def check_recipes(folder: Path, whole: bool) -> None:
    for recipe in all_recipes():
        for variant in list(recipe.variants) if whole else list(recipe.variants)[:1]:
            for zoo in list(recipe.zoos_of(variant).values())[: None if whole else 1]:
                member = Member(recipe, variant, zoo)
                graph = expand(member)
                draft, _ = read_back(
                    graph, {node.path: node.path for node in graph.nodes}, folder, member.native_size()
                )
                most = MOST_LINES.get(recipe.architecture, len(graph.nodes) + 100)
                assert len(draft.text.splitlines()) <= most, draft.text


def test_a_shipped_graph_is_drafted_and_read_back(tmp_path: Path) -> None:
    check_recipes(tmp_path, whole=False)


@pytest.mark.full
def test_every_shipped_graph_is_drafted_and_read_back(tmp_path: Path) -> None:
    check_recipes(tmp_path, whole=True)


@pytest.mark.full
# The oracle's sigmoid of a large negative number, which is 0.
@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
@settings(max_examples=500)
@given(samples())
def test_a_graph_without_blocks_is_drafted_and_read_back(
    tmp_path_factory: pytest.TempPathFactory, sample: Sample
) -> None:
    graph = sample.graph
    if not graph.further:
        read_back(
            graph,
            {node.path: node.path for node in graph.nodes},
            tmp_path_factory.mktemp("drafts"),
            sample.size,
        )


def residual_blocks() -> tuple[Graph, dict[str, str]]:
    """Two stages of three units, the first of each with a projection, under Keras's names; the sums are
    numbered by Keras.
    """
    nodes: list[Node] = []
    names: dict[str, str] = {}

    def node(name: str, op: Op, *inputs: str) -> str:
        nodes.append(Node(name, op, inputs))
        names[name] = name
        return name

    value = node("conv1_conv", Conv(8, Window((3, 3)), SAME, bias=True), INPUT)
    for stage, filters in ((2, 8), (3, 16)):
        for unit in (1, 2, 3):
            at, entry = f"conv{stage}_block{unit}", value
            stride = 2 if stage == 3 and unit == 1 else 1
            value = node(f"{at}_1_conv", Conv(filters, Window((3, 3), (stride, stride)), SAME), entry)
            value = node(f"{at}_1_bn", BatchNorm(1.001e-5, 0.01), value)
            value = node(f"{at}_1_relu", Relu(), value)
            value = node(f"{at}_2_conv", Conv(4 * filters, Window((1, 1)), Convention()), value)
            if unit == 1:
                entry = node(
                    f"{at}_0_conv", Conv(4 * filters, Window((1, 1), (stride, stride)), Convention()), entry
                )
            number = 3 * (stage - 2) + unit - 1
            value = node(f"add_{number}" if number else "add", Add(), entry, value)
    value = node("avg_pool", GlobalAvgPool(), value)
    node("predictions", Dense(10), value)
    return Graph(tuple(nodes), 3, "predictions"), names


DRAFTED = """\
# yaml-language-server: $schema=schema.json
architecture: drafted
variants: {drafted: {}}
options: {classes: 10, bn_epsilon: 1.001e-5, bn_momentum: 0.01}
input: {size: 32, channels: 3}

graph:
  - {conv: conv1_conv, filters: 8, kernel: 3, pad: same, bias: true}
  - {block: conv2/block, filters: 8, repeat: 3}
  - {block: conv3/block, filters: 16, repeat: 3, first: {stride: 2}}
  - {global_avg_pool: avg_pool}
  - {dense: predictions, units: =classes}

blocks:
  block:
    parameters: {filters: null, stride: 1}
    steps:
      - {conv: conv0, filters: =4*filters, kernel: 1, stride: =stride, when: =channels != 4*filters}
      - {conv: conv1, from: input, filters: =filters, kernel: 3, stride: =stride, pad: same, norm: bn1}
      - {relu: relu1}
      - {conv: conv2, filters: =4*filters, kernel: 1}
      - {add: add, from: [='conv0' if channels != 4*filters else 'input', conv2]}

zoos:
  own:
    framework: tf
    names:
      conv1_conv: conv1_conv
      "conv{c}/block{b}/conv{i}": "conv{c}_block{b}_{i}_conv"
      "conv{c}/block{b}/bn1": "conv{c}_block{b}_1_bn"
      predictions: predictions
"""


def test_a_draft_reads_as_a_person_would_write_it(tmp_path: Path) -> None:
    """Blocks with parameters and conditions, stages that repeat, and names as patterns."""
    graph, names = residual_blocks()
    draft, _ = read_back(graph, names, tmp_path, (32, 32))
    assert draft.text == DRAFTED and draft.blocks == {"block": 6}


def staged() -> tuple[Graph, dict[str, str]]:
    """Stages of a convolution and 1, 2 and 4 residual blocks, under the names of torch's modules; a norm
    holds its activation.
    """
    nodes: list[Node] = []
    names: dict[str, str] = {}

    def node(name: str, op: Op, *inputs: str) -> str:
        path = name.replace(".", "_") if name not in names.values() else f"{name.replace('.', '_')}_2"
        nodes.append(Node(path, op, inputs))
        names[path] = name
        return path

    def unit(name: str, filters: int, kernel: int, stride: int, source: str) -> str:
        pads = Convention("explicit", (kernel // 2,) * 4) if kernel > 1 else Convention()
        value = node(f"{name}.conv", Conv(filters, Window((kernel, kernel), (stride, stride)), pads), source)
        return node(f"{name}.bn.act", Relu(), node(f"{name}.bn", BatchNorm(1e-5, 0.1), value))

    value = INPUT
    for stage, depth in enumerate((1, 2, 4)):
        value = unit(f"stages.{stage}.conv_down", 8 << stage, 3, 2, value)
        for block in range(depth):
            name = f"stages.{stage}.blocks.{block}"
            inner = unit(f"{name}.conv2", 8 << stage, 3, 1, unit(f"{name}.conv1", 4 << stage, 1, 1, value))
            value = node(f"{name}.add", Add(), inner, value)
    node("head.fc", Dense(10), node("head.pool", GlobalAvgPool(), value))
    return Graph(tuple(nodes), 3, "head_fc"), names


STAGED = """\
graph:
  - {conv_block: stages0/conv_down, filters: 8, kernel: 3, stride: 2}
  - {blocks: stages0/blocks0}
  - {conv_block: stages1/conv_down, filters: 16, kernel: 3, stride: 2}
  - {blocks: "stages1/blocks{count}", repeat: 2}
  - {conv_block: stages2/conv_down, filters: 32, kernel: 3, stride: 2}
  - {blocks: "stages2/blocks{count}", repeat: 4}
  - {global_avg_pool: head/pool}
  - {dense: head/fc, units: =classes}

blocks:
  conv_block:
    parameters: {filters: null, kernel: null, stride: 1}
    steps:
      - {conv: conv, filters: =filters, kernel: =kernel, stride: =stride, pad: ='valid' if kernel == 1 else 1, norm: bn/norm}
      - {relu: bn/act}
  blocks:
    steps:
      - {conv_block: conv1, filters: =channels//2, kernel: 1}
      - {conv_block: conv2, filters: =channels, kernel: 3}
      - {add: add, from: [conv2, input]}
"""  # noqa: E501


def test_modules_give_the_blocks_and_stages_repeat_them(tmp_path: Path) -> None:
    graph, names = staged()
    draft, _ = read_back(graph, names, tmp_path, (32, 32))
    assert STAGED in draft.text and draft.blocks == {"conv_block": 17, "blocks": 7}
    assert '"stages{s}/blocks{b}/conv{c}/bn/norm": "stages.{s}.blocks.{b}.conv{c}.bn"' in draft.text


@pytest.mark.parametrize("norm", ["batch_normalization", "layer_normalization"])
def test_layers_that_a_framework_numbers_are_in_blocks_too(norm: str, tmp_path: Path) -> None:
    """Without a name that says more than the layer's kind, the graph's form gives the blocks, and the names
    count.
    """
    graph, _ = residual_blocks()
    kinds = {
        Conv: "conv2d",
        BatchNorm: norm,
        Relu: "activation",
        Add: "add",
        GlobalAvgPool: "pool",
        Dense: "dense",
    }
    names: dict[str, str] = {}
    for node in graph.nodes:
        number = sum(type(graph.by_path[path].op) is type(node.op) for path in names)
        names[node.path] = f"{kinds[type(node.op)]}_{number}" if number else kinds[type(node.op)]
    draft, _ = read_back(graph, names, tmp_path, (32, 32))
    assert len(draft.text.splitlines()) < 70 and {*draft.blocks} == {"conv_norm_relu", "block"}, draft.text


def test_a_convolution_as_head_becomes_the_dense_layer_that_a_recipe_ends_in() -> None:
    nodes = (
        Node("pool", GlobalAvgPool(keep=True), (INPUT,)),
        Node("logits", Conv(5, Window((1, 1)), Convention(), bias=True), ("pool",)),
        Node("flatten", Flatten(), ("logits",)),
    )
    draft = draft_recipe(
        Graph(nodes, 3, "flatten"),
        {node.path: node.path for node in nodes},
        DraftFacts("x", "own", "tf", (8, 8), 5),
    )
    assert "  - {dense: logits, units: =classes}" in draft.text
    assert "logits: {name: logits, transforms: [conv1x1_to_dense]}" in draft.text


def test_several_outputs_are_refused(tmp_path: Path) -> None:
    nodes = (Node("one", Relu(), (INPUT,)), Node("two", Relu(), ("one",)))
    with pytest.raises(UsageError, match="has 2 outputs, and a recipe's graph has one"):
        read_back(Graph(nodes, 3, "one", further=("two",)), {"one": "one", "two": "two"}, tmp_path)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-5, "1.0e-5"),
        (float("-inf"), "-.inf"),
        (True, "true"),
        ("true", '"true"'),
        ("conv{i}", '"conv{i}"'),
        ("=4*width", "=4*width"),
        ("a: b", '"a: b"'),
        ("fc1:relu", "fc1:relu"),
        ({"pad": [0, 1, 0, 1], "fill": 0.0}, "{pad: [0, 1, 0, 1], fill: 0.0}"),
    ],
)
def test_values_are_written_as_yaml_reads_them(value: object, text: str, tmp_path: Path) -> None:
    assert flow(value) == text
    read = yaml.safe_load(f"key: {text}")["key"]
    assert float(read) == value if re.fullmatch(r"[\d.]+e-\d+", text) else read == value


def test_the_names_of_a_tensorflow_graph_give_the_same_blocks(tmp_path: Path) -> None:
    """They begin with the model's scope, end with an op, and count calls."""
    graph, names = residual_blocks()
    ends = {Conv: "convolution", Relu: "Relu", Add: "AddV2"}
    spoken = {
        node.path: "/".join(("net_1", f"{names[node.path]}_1", *filter(None, [ends.get(type(node.op))])))
        for node in graph.nodes
    }
    draft, _ = read_back(graph, spoken, tmp_path, (32, 32))
    assert draft.blocks == {"block": 6}
    assert '"conv{c}/block{b}/conv{i}": "net_1/conv{c}_block{b}_{i}_conv_1/convolution"' in draft.text


def test_what_some_uses_of_a_block_do_not_read_has_a_default() -> None:
    """Their rows in a draft would state a stride that they do not have."""

    def use(filters: int, stride: int | None) -> Use:
        first = UseStep(
            "conv", "conv", {"filters": filters, "kernel": 1}, {"filters": None, "kernel": 1}, (INPUT,)
        )
        second = UseStep(
            "dw",
            "depthwise_conv",
            {"kernel": 3, "stride": stride or 1},
            {"kernel": None, "stride": 1},
            ("conv",),
        )
        return Use((first, second) if stride else (first,), 8)

    template = BlockTemplate([use(8, 2), use(12, None), use(16, 3), use(20, None), use(28, 2)])
    assert template.defaults == {"stride": 2, "has_dw": True} and template.parameters["stride"] == (
        2,
        2,
        3,
        2,
        2,
    )
    assert template.parameters["filters"] == (8, 12, 16, 20, 28)
