import json
import time
from pathlib import Path
from typing import Any

import pytest

from porter.authoring.check.recipe_check import check_recipe
from porter.base.errors import RecipeError
from porter.graph import Affine, BatchNorm, BlockScope, Conv, GlobalMaxPool, Graph, Identity, MaxPool
from porter.graph.record import from_record, to_record
from porter.recipe import expand, layer_names, load_recipe
from porter.recipe.unrolling import Unrolling
from tests.support.ops import op_at
from tests.support.recipe.recipes import VALID, changed, line_of, write


def expanded(folder: Path, text: str, variant: str = "tiny", **options: object) -> Graph:
    recipe = load_recipe(write(folder, text))
    return expand(recipe.member(variant, "home"), options)  # type: ignore[arg-type]


def with_graph(steps: str, blocks: str = "") -> str:
    """A recipe of only these steps."""
    return f"""\
architecture: tiny
variants: {{tiny: {{width: 8}}}}
options: {{bn_epsilon: 1.0e-3, deep: true}}
input: {{size: [32, 48], channels: 4}}
graph:
{steps}
{"blocks:" if blocks else ""}
{blocks}
zoos:
  home: {{framework: torch}}
"""


def test_a_convolution_with_its_norm_is_two_steps(tmp_path: Path) -> None:
    steps = (
        "  - {CONV, norm: norm1, when: =deep}\n  - {conv: conv2, filters: 2, norm: norm2}\n  - {add: "
        "sum, from: [conv2, norm2]}"
    )
    short = with_graph(steps.replace("CONV", "depthwise_conv: conv1, kernel: 3"))
    norms = ("  - {batch_norm: norm1, when: =deep}", "  - {batch_norm: norm2}")
    long = short.replace(", norm: norm1, when: =deep}", ", when: =deep}\n" + norms[0]).replace(
        ", norm: norm2}", "}\n" + norms[1]
    )
    for deep, paths in ((True, ["conv1", "norm1"]), (False, [])):
        graph = expanded(tmp_path, short, deep=deep)
        assert graph == expanded(tmp_path, long, deep=deep)
        assert [node.path for node in graph.nodes] == [*paths, "conv2", "norm2", "sum"]


def test_a_block_reads_several_values(tmp_path: Path) -> None:
    gated = """\
  gated:
    inputs: [map, gate]
    steps:
      - {sigmoid: open, from: gate}
      - {multiply: out, from: [input, open]}"""
    steps = (
        "  - {conv: a, filters: 2}\n  - {conv: b, filters: 2, from: input}\n  - {gated: gated, from: [a, b]}"
    )
    graph = expanded(tmp_path, with_graph(steps, gated))
    assert [(node.path, node.inputs) for node in graph.nodes[2:]] == [
        ("gated/open", ("b",)),
        ("gated/out", ("a", "gated/open")),
    ]


def test_the_graph_of_a_recipe(tmp_path: Path) -> None:
    graph = expanded(tmp_path, VALID)
    assert [node.path for node in graph.nodes] == [
        "stem/conv",
        "stem/norm",
        "stem/relu",
        "stem/pool",
        "stage1/unit1/conv",
        "stage1/unit1/add",
        "stage1/unit2/conv",
        "stage1/unit2/add",
        "head/pool",
        "head/logits",
    ]
    assert graph.by_path["stage1/unit2/add"].inputs == ("stage1/unit1/add", "stage1/unit2/conv")
    assert graph.output == "head/logits" and graph.channels == 3
    assert graph.scopes == tuple(
        BlockScope(f"stage1/unit{i}", "unit", {"filters": 8, "kernel": 3}) for i in (1, 2)
    )
    assert graph.by_path["stem/norm"].op == BatchNorm(1e-3, 0.1, True, True)


def test_a_variant_and_the_one_that_its_rules_are_held_to_are_expanded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(write(tmp_path, changed("{stem/conv: 1}", "{stem/conv: 1, stage1/unit2/conv: 1}")))
    made, whole = list[Unrolling](), Unrolling.graph
    monkeypatch.setattr(Unrolling, "graph", lambda unrolling: made.append(unrolling) or whole(unrolling))
    graphs = [expand(recipe.member("tiny_wide", "home")) for _ in range(3)]
    assert len(made) == 2 and graphs[0] is graphs[2] and "stage1/unit2/conv" not in graphs[0].by_path


def test_options_of_the_caller_go_first(tmp_path: Path) -> None:
    graph = expanded(tmp_path, VALID, classes=7, stem_pool=False, bn_scale=False, bn_momentum=0.25)
    assert op_at(graph, "head/logits").units == 7
    assert "stem/pool" not in graph.by_path
    assert graph.by_path["stem/norm"].op == BatchNorm(1e-3, 0.25, False, True)


def test_kernels_strides_dilations_and_groups(tmp_path: Path) -> None:
    steps = """\
  - {conv: a, filters: 16, kernel: [1, 7], stride: [2, 1], dilation: [1, 2], groups: 4,
     bias: true, pad: [0, 0, 3, 3]}
  - {depthwise_conv: b, kernel: 3, multiplier: 2}
  - {max_pool: c, kernel: [3, 2], stride: 2}
"""
    graph = expanded(tmp_path, with_graph(steps))
    a, b, c = (node.op for node in graph.nodes)
    assert isinstance(a, Conv) and (a.window.kernel, a.window.stride, a.window.dilation) == (
        (1, 7),
        (2, 1),
        (1, 2),
    )
    assert (a.groups, a.bias, a.convention.pads) == (4, True, (0, 0, 3, 3))
    assert isinstance(b, Conv) and (b.filters, b.groups, b.bias) == (32, 16, False)
    assert isinstance(c, MaxPool) and c.window.kernel == (3, 2) and c.convention.rule == "valid"


def test_constants_are_numbers_or_lists_and_absent_ones_change_nothing(tmp_path: Path) -> None:
    steps = """\
  - {affine: a, scale: =1/127.5, offset: -1}
  - {affine: b, scale: [0.5, =width/3, 1.0e-30, -2]}
  - {affine: c}
  - {global_max_pool: d}
  - {affine: e, offset: [1, 2, 3, 4.5]}
  - {batch_norm: f}
  - {relu: g}
"""
    graph = expanded(tmp_path, with_graph(steps))
    assert [node.op for node in graph.nodes[:5]] == [
        Affine((1 / 127.5,), (-1.0,)),
        Affine((0.5, 8 / 3, 1e-30, -2.0), (0.0,)),
        Affine((1.0,), (0.0,)),
        GlobalMaxPool(),
        Affine((1.0,), (1.0, 2.0, 3.0, 4.5)),
    ]
    first: list[Any] = [node.op for node in graph.nodes[:3]]
    assert all(type(number) is float for op in first for number in op.scale + op.offset)
    assert from_record(json.loads(json.dumps(to_record(graph)))) == graph


@pytest.mark.parametrize(
    "value", ["true", "half", "[]", "[1, half, 1, 1]", "[1, true, 1, 1]", ".inf", "[[1], 1, 1, 1]", "null"]
)
def test_constants_that_are_no_finite_numbers(tmp_path: Path, value: str) -> None:
    with pytest.raises(RecipeError, match="'offset' of 'a' must be a finite number, or a list") as caught:
        expanded(tmp_path, with_graph(f"  - {{affine: a,\n     offset: {value}}}\n"))
    assert line_of(caught.value) == f"{tmp_path / 'tiny.yaml'}:7"
    with pytest.raises(RecipeError) as caught:
        expanded(tmp_path, with_graph(f"  - {{affine: a, scale: [{'1, ' * 5000}half]}}\n"))
    assert len(str(caught.value)) < 300


def test_steps_share_a_path_when_their_conditions_exclude_each_other(tmp_path: Path) -> None:
    steps = """\
  - {conv: stem, filters: 8}
  - {conv: shortcut, filters: 8, when: =deep}
  - {identity: shortcut, from: stem, when: =not deep}
  - {conv: body, from: stem, filters: 8}
  - {add: out, from: [shortcut, body]}
"""
    text = with_graph(steps)
    assert isinstance(expanded(tmp_path, text, deep=True).by_path["shortcut"].op, Conv)
    assert isinstance(expanded(tmp_path, text, deep=False).by_path["shortcut"].op, Identity)
    with pytest.raises(RecipeError, match="two steps have the path 'shortcut'") as caught:
        expanded(tmp_path, text.replace(", when: =not deep", ""))
    assert line_of(caught.value).endswith(":8")


def test_counters_repeats_and_the_first_and_last(tmp_path: Path) -> None:
    steps = """\
  - {unit: "block{count}"}
  - {unit: "block{count}", repeat: 3, first: {stride: 2}, last: {kernel: 3, stride: 1}}
  - {unit: "other{count}", repeat: 1, first: {stride: 2}, last: {kernel: 3}}
  - {unit: "stage{index+1}x", repeat: 2}
  - {unit: plain, repeat: 2, kernel: =index}
  - {relu: end, repeat: 0}
"""
    blocks = """\
  unit:
    parameters: {stride: 1, kernel: 1, filters: =channels*stride}
    steps:
      - {conv: conv, filters: =filters, kernel: =kernel, stride: =stride, pad: same}
      - {relu: "at{index}", when: =first}
      - {relu6: "at{index}", when: =last and not first}
"""
    graph = expanded(tmp_path, with_graph(steps, blocks))
    convs = [
        (n.path, n.op.window.stride[0], n.op.window.kernel[0]) for n in graph.nodes if isinstance(n.op, Conv)
    ]
    assert convs == [
        ("block0/conv", 1, 1),
        ("block1/conv", 2, 1),
        ("block2/conv", 1, 1),
        ("block3/conv", 1, 3),
        ("other0/conv", 2, 3),
        ("stage2x/conv", 1, 1),
        ("stage3x/conv", 1, 1),
        ("plain1/conv", 1, 1),
        ("plain2/conv", 1, 2),
    ]
    assert [node.path for node in graph.nodes if "at" in node.path and node.path.startswith("block")] == [
        "block0/at1",
        "block1/at1",
        "block3/at3",
    ]
    assert op_at(graph, "block1/conv").filters == 8


def test_branches_blocks_within_blocks_and_references(tmp_path: Path) -> None:
    steps = """\
  - {mixed: one, width: 8}
  - {mixed: two, width: 16, from: one}
  - {conv: late, from: "='one' if deep else 'two'", filters: 4}
"""
    blocks = """\
  cbr:
    parameters: {filters: null, kernel: 1}
    steps:
      - {conv: conv, filters: =filters, kernel: =kernel, pad: same}
      - {relu: relu}
  mixed:
    parameters: {width: 8}
    steps:
      - concat: out
        branches:
          - [{cbr: a, filters: =channels}]
          - - {cbr: b1, filters: 4}
            - concat: b2
              branches: [[{cbr: b2a, filters: 4, kernel: [1, 3]}], [{cbr: b2b, filters: 4, kernel: [3, 1]}]]
          - [{max_pool: pool, kernel: 3, pad: same}]
"""
    graph = expanded(
        tmp_path,
        with_graph(steps, blocks.replace("{width: 8}", "{width: null}")).replace("width: 8}", "size: 8}", 1),
    )
    assert graph.by_path["one/b2"].inputs == ("one/b2a/relu", "one/b2b/relu")
    assert graph.by_path["one/b2a/conv"].inputs == graph.by_path["one/b2b/conv"].inputs == ("one/b1/relu",)
    assert graph.by_path["one/out"].inputs == ("one/a/relu", "one/b2", "one/pool")
    assert graph.by_path["two/pool"].inputs == ("one/out",)
    assert op_at(graph, "two/a/conv").filters == 4 + 8 + 4
    assert graph.by_path["late"].inputs == ("one/out",)
    assert [scope.path for scope in graph.scopes][:5] == ["one", "one/a", "one/b1", "one/b2a", "one/b2b"]
    assert graph.scopes[3].arguments == {"filters": 4, "kernel": (1, 3)}
    assert from_record(json.loads(json.dumps(to_record(graph)))) == graph


def test_a_list_of_inputs_joins(tmp_path: Path) -> None:
    steps = (
        "  - {conv: a, filters: 3}\n  - {conv: b, from: input, filters: 5}\n  - {concat: c, from: "
        "[a, b, input]}\n"
    )
    graph = expanded(tmp_path, with_graph(steps))
    assert graph.by_path["c"].inputs == ("a", "b", "input")


@pytest.mark.parametrize(
    ("steps", "line", "message"),
    [
        (
            "  - {conv: a, filters: 8}\n  - {add: b, from: [input, a]}\n",
            7,
            "cannot add shapes 4x32x48, 8x32x48",
        ),
        (
            "  - {conv: a, filters: 4, stride: 2}\n  - {add: b, from: [input, a]}\n",
            7,
            "cannot add shapes 4x32x48, 4x16x24",
        ),
        (
            "  - {conv: a, filters: 4, kernel: 2}\n  - {concat: b, from: [input, a]}\n",
            7,
            "cannot join shapes",
        ),
        ("  - {dense: a, units: 8}\n", 6, "rank 1"),
        (
            "  - {relu: a}\n  - {affine: b, scale: [1, 2, 3]}\n",
            7,
            "one scale or one for each of 4 channels .*got 3",
        ),
        ("  - {global_max_pool: a}\n  - {global_max_pool: b}\n", 7, "rank 3"),
        ("  - {flatten: a}\n", 6, r"a: expected a map of 1x1, got 4x32x48: .* \(state its rows and columns"),
        ("  - {relu: a}\n  - {relu6: b, from: [input, a]}\n", 7, "b: takes one input, got 2"),
        ("  - {relu: a}\n  - {add: b, from: [a]}\n", 7, "b: takes two inputs or more, got 1"),
    ],
)
def test_shapes_that_do_not_fit(tmp_path: Path, steps: str, line: int, message: str) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        expanded(tmp_path, with_graph(steps))
    assert line_of(caught.value) == f"{tmp_path / 'tiny.yaml'}:{line}"


@pytest.mark.parametrize(
    "blocks",
    [
        "  a:\n    steps: [{a: again}]\n",
        "  a:\n    steps: [{b: once}]\n  b:\n    steps: [{a: again}]\n",
        "".join(
            f"  {name}:\n    steps: [{{{below}: x, repeat: 1000}}]\n"
            for name, below in zip("abcdefg", "bcdefgh", strict=True)
        )
        + "  h:\n    steps: [{relu: x, when: =not deep}]\n",
    ],
)
def test_recipes_that_do_not_end(tmp_path: Path, blocks: str) -> None:
    started = time.perf_counter()
    with pytest.raises(RecipeError, match="does not end"):
        expanded(tmp_path, with_graph("  - {a: start}\n", blocks))
    assert time.perf_counter() - started < 5


def test_a_block_may_not_hide_an_operation_or_a_key_of_steps(tmp_path: Path) -> None:
    for blocks in (
        "  relu:\n    steps: [{relu6: x}]\n",
        "  a:\n    parameters: {when: 1}\n    steps: [{relu6: x}]\n",
    ):
        with pytest.raises(RecipeError):
            expanded(tmp_path, with_graph("  - {relu: start}\n", blocks))


def test_constants_are_variables_that_nobody_sets(tmp_path: Path) -> None:
    text = changed(
        "options: {classes: 10, ", "constants: {kernels: [5, 3], norm: bn}\noptions: {classes: 10, "
    )
    text = text.replace("kernel: 3, stride: 2", 'kernel: "=kernels[0]", stride: 2').replace(
        "bn1", '"{norm}{kernels[1]}"'
    )
    recipe = load_recipe(write(tmp_path, text))
    member = recipe.member("tiny", "home")
    graph = expand(member)
    stem = graph.by_path["stem/conv"].op
    assert isinstance(stem, Conv) and stem.window.kernel == (5, 5) and "kernels" not in recipe.options
    assert layer_names(member, graph)["stem/norm"].name == "bn3"
    more = write(tmp_path, "extends: tiny\nconstants: {norm: a}\n", "more.yaml")
    (error,) = check_recipe(more).errors
    assert error.where == f"{more}:2:13" and "'norm' is in tiny.yaml too" in error.message


def test_a_forgotten_epsilon_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="from the option 'bn_epsilon', and this recipe has none"):
        expanded(tmp_path, changed("bn_epsilon: 1.0e-3, ", ""))
