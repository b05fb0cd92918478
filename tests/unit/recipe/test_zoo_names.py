from pathlib import Path

import numpy as np
import pytest

from porter.authoring.check.recipe_check import check_recipe
from porter.base.errors import RecipeError, UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import get_dialect
from porter.graph import BatchNorm, Conv, tensor_shapes
from porter.recipe import LayerName, Member, expand, layer_names, load_recipe, tap_names
from porter.recipe.zoo_names import tensor_names
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.candidate import Candidate
from porter.source.opened import read_tensors
from tests.support.recipe.recipes import VALID, changed, line_of, mistake, use, write


def test_names_go_forwards_and_the_first_match_wins(tmp_path: Path) -> None:
    text = changed(
        "      stem/norm: bn1\n",
        '      stem/norm: bn1\n      "stem/{part}": "stem_{part}_{width}_{variant}"\n',
    )
    recipe = load_recipe(write(tmp_path, text))
    member = recipe.member("tiny", "home")
    assert layer_names(member, expand(member)) == {
        "stem/conv": LayerName("conv1"),
        "stem/norm": LayerName("bn1"),
        "stem/relu": LayerName("stem_relu_8_tiny"),
        "stem/pool": LayerName("stem_pool_8_tiny"),
        "stage1/unit1/conv": LayerName("layer1.0.conv"),
        "stage1/unit2/conv": LayerName("layer1.1.conv"),
        "head/logits": LayerName("fc", ("conv1x1_to_dense",)),
    }


def test_a_name_may_count_what_its_line_has_named(tmp_path: Path) -> None:
    numbered = (
        '      stem/conv: conv2d\n      "**/conv": "conv2d_{count+1}"\n      "stage1/{unit}/add": '
        '"add_{count}"\n'
    )
    text = changed("      stem/conv: conv1\n", numbered)
    recipe = load_recipe(write(tmp_path, text))
    member = recipe.member("tiny", "home")
    names = layer_names(member, expand(member))
    assert {path: name.name for path, name in names.items() if path.startswith(("stem/conv", "stage1"))} == {
        "stem/conv": "conv2d",
        "stage1/unit1/conv": "conv2d_1",
        "stage1/unit2/conv": "conv2d_2",
        "stage1/unit1/add": "add_0",
        "stage1/unit2/add": "add_1",
    }


def test_a_name_may_follow_that_of_the_node_before(tmp_path: Path) -> None:
    recipe = load_recipe(
        write(tmp_path, changed("      stem/norm: bn1\n", '      stem/norm: "{input}/BatchNorm"\n'))
    )
    member = recipe.member("tiny", "home")
    assert layer_names(member, expand(member))["stem/norm"].name == "conv1/BatchNorm"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("      stem/pool: pool1", "does not name 'stem/relu', after which"),
        ("      stem/conv: conv1", "graph's input"),
    ],
)
def test_a_node_whose_input_has_no_name_cannot_be_called_after_it(
    tmp_path: Path, line: str, message: str
) -> None:
    path, _, name = line.partition(": ")
    text = VALID.replace(f"{line}\n", "").replace("    names:\n", f"    names:\n{path}: '{{input}}/{name}'\n")
    with pytest.raises(RecipeError, match=message):
        use(load_recipe(write(tmp_path, text)))


def test_a_pattern_may_be_there_for_another_variant(tmp_path: Path) -> None:
    text = changed("      stem/norm: bn1\n", "      stem/norm: bn1\n      stage1/unit2/add: sum\n")
    recipe = load_recipe(write(tmp_path, text))
    assert "stage1/unit2/add" not in use(recipe, "tiny_wide").by_path
    use(recipe, "tiny")


def test_a_line_that_cannot_compute_with_what_it_caught_is_passed(tmp_path: Path) -> None:
    old, new = (
        '"stage{s}/unit{u}/conv": ',
        '"stage{s}/u{u}/conv": "layer{u-1}"\n      "stage{s}/unit{u}/conv": ',
    )
    path = write(
        tmp_path, changed(old, new).replace("unit{u}/conv", "{u}/conv").replace("layer{s}.{u-1}.conv", "{u}")
    )
    recipe = load_recipe(path)
    member = recipe.member("tiny", "home")
    assert layer_names(member, expand(member))["stage1/unit2/conv"].name == "unit2"
    assert [warning.message for warning in check_recipe(path).warnings] == [
        (
            "'stage{s}/u{u}/conv' applies to no node: lines before it match all that it matches, or it "
            "computes with a word there"
        )
    ]


def test_places_count_in_their_table(tmp_path: Path) -> None:
    old = VALID[VALID.index("      stem/conv: conv1\n") : VALID.index("    weights:\n")]
    tables = """\
      "*em/": {prefix: "s{place}.", norm: "n{place}", "*": "{place}"}
      "stage{s}/":
        prefix: "{place}."
        "unit{u}/": {prefix: "{place}.", "*": "{place}"}
      "**": "{place}"
  heir: {extends: home, names: {stem/relu: act, stage1/unit1/add: sum}}
"""
    recipe = load_recipe(
        write(
            tmp_path,
            changed(old, tables).replace(
                "    weights:\n      tiny: {top1: 50, top5: 80, size: 32, source: made up}\n", ""
            ),
        )
    )
    names = {}
    for zoo in ("home", "heir"):
        graph = expand(recipe.member("tiny", zoo))
        names[zoo] = {
            path: layer.name for path, layer in layer_names(recipe.member("tiny", zoo), graph).items()
        }
    assert names["home"] == {
        "stem/conv": "s0.0",
        "stem/norm": "s0.n1",
        "stem/relu": "s0.2",
        "stem/pool": "s0.3",
        "stage1/unit1/conv": "1.0.0",
        "stage1/unit1/add": "1.0.1",
        "stage1/unit2/conv": "1.1.0",
        "stage1/unit2/add": "1.1.1",
        "head/pool": "2",
        "head/logits": "3",
    }
    assert names["heir"] == names["home"] | {"stem/relu": "act", "stage1/unit1/add": "sum"}


BARE = VALID.replace("      - {add: add", "      - {channel_scale: scale}\n      - {add: add").replace(
    "[input, conv]", "[input, scale]"
)
GAMMA = '      "stage{s}/unit{u}/scale": {name: "layer{s}.{u-1}", tensor: gamma}\n      head/logits'


def test_a_bare_parameter_is_named_by_its_module_and_itself(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, BARE.replace("      head/logits", GAMMA)))
    member = recipe.member("tiny", "home")
    graph = expand(member)
    layers = layer_names(member, graph)
    assert layers["stage1/unit2/scale"] == LayerName("layer1.1.gamma", bare=True)
    assert "stage1/unit2/scale" not in tap_names(member, graph), "it is no layer"
    tensors = {
        f"model.{name}": np.zeros(shape, np.float32)
        for path, roles in tensor_shapes(graph).items()
        for (_, (name, *_)), shape in zip(
            tensor_names(get_dialect("torch"), graph, path, layers[path]).items(),
            roles.values(),
            strict=False,
        )
    }
    tensors["model.layer1.1.gamma"] = np.arange(8, dtype=np.float32)[:, None, None]  # as torchvision has it
    checkpoint = Checkpoint(Path("a file"), "memory", "torch", tensors)
    fit = fit_by_names(Candidate.of(member, checkpoint))
    assert fit.tensors["stage1/unit1/scale", "gamma"] == "model.layer1.0.gamma"
    read = read_tensors(fit, checkpoint, get_dialect("torch"))["stage1/unit2/scale"]["gamma"]
    assert read.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("stem/norm: {name: bn1, tensor: a}", "'stem/norm' has gamma and beta and mean and variance"),
        ("head/logits: {name: fc, tensor: a}", "'head/logits' is the head"),
    ],
)
def test_a_layer_is_no_bare_parameter(line: str, message: str, tmp_path: Path) -> None:
    path = line.partition(":")[0]
    (old,) = [row for row in VALID.splitlines() if row.strip().startswith(f"{path}: ")]
    found = mistake(tmp_path, old, f"      {line}")
    assert message in found.message and str(found.where).endswith(f":{line.index('tensor: a') + 15}")


def test_a_node_with_tensors_needs_a_name(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, changed("      stem/norm: bn1\n", "")))
    with pytest.raises(RecipeError, match="'home' does not name 'stem/norm'") as caught:
        use(recipe)
    assert line_of(caught.value) == f"{recipe.path}:{VALID[: VALID.index('    names:')].count(chr(10)) + 1}"


def test_generations_and_taps(tmp_path: Path) -> None:
    tables = """\
    generations:
      before 2.0:
        names: {stem/conv: c, "**/unit{u}/conv": "u{u}"}
        options: {bn_epsilon: 0.01, bn_momentum: 0.5}
        padding: {stem/conv: 2}
      before 1.0: {names: {head/logits: top}}
    taps: {"stage{s}/unit{u}/add": "layer{s}.{u-1}", stem/conv: "graph/conv1:0"}
"""
    recipe = load_recipe(write(tmp_path, VALID + tables))
    zoo = recipe.zoo("home", "tiny")
    graph = expand(Member(recipe, "tiny", zoo))
    older = layer_names(Member(recipe, "tiny", zoo), graph, generation="before 2.0")
    assert older["stage1/unit2/conv"].name == "u2" and older["stem/conv"].name == "c"
    assert older["stem/norm"].name == "bn1", "what it does not say is as the zoo has it"
    taps = tap_names(Member(recipe, "tiny", zoo), graph)
    assert (taps["stage1/unit2/add"], taps["stem/conv"], taps["stem/norm"]) == (
        "layer1.1",
        "graph/conv1:0",
        "bn1",
    )
    assert layer_names(Member(recipe, "tiny", zoo), graph)["stem/conv"].name == "conv1"
    assert zoo.at(None) is zoo and zoo.at("before 1.0") is zoo
    norm, conv = (
        expand(Member(recipe, "tiny", zoo.at("before 2.0"))).by_path[path].op
        for path in ("stem/norm", "stem/conv")
    )
    assert isinstance(norm, BatchNorm) and (norm.epsilon, norm.momentum) == (0.01, 0.5)
    assert isinstance(conv, Conv) and conv.convention.pads == (2, 2, 2, 2)
    with pytest.raises(UsageError, match="no generation 'before 20'"):
        layer_names(Member(recipe, "tiny", zoo), graph, generation="before 20")


def test_a_count_starts_anew_in_every_table(tmp_path: Path) -> None:
    tables = '    generations: {old: {names: {"**": "layer{count}"}}}\n    taps: {"**": "op{count}"}\n'
    recipe = load_recipe(write(tmp_path, VALID + tables))
    member = recipe.member("tiny", "home")
    graph = expand(member)
    paths = [node.path for node in graph.nodes]
    for _ in range(2):
        older = layer_names(member, graph, generation="old")
        assert [older[path].name for path in paths] == [f"layer{i}" for i in range(len(paths))]
        assert [tap_names(member, graph)[path] for path in paths] == [f"op{i}" for i in range(len(paths))]


def test_ignored_tensors_have_a_reason_and_may_have_to_equal_something(tmp_path: Path) -> None:
    tables = '    ignore: {"AuxLogits.*": used in training, "*_gconv": {reason: a fixed sum, equals: 1}}\n'
    zoo = load_recipe(write(tmp_path, VALID + tables)).zoo("home", "tiny")
    assert [(rule.pattern, rule.reason, rule.equals) for rule in zoo.ignore] == [
        ("AuxLogits.*", "used in training", None),
        ("*_gconv", "a fixed sum", 1.0),
    ]


def test_a_fixed_array_has_a_name_that_exists(tmp_path: Path) -> None:
    tables = '    ignore: {"*_gconv": {reason: a fixed sum, equals: group_sum}}\n'
    with pytest.raises(RecipeError, match="no fixed array 'group_sum'") as caught:
        load_recipe(write(tmp_path, VALID + tables))
    assert caught.value.next == "did you mean 'group_sums'?"


def test_scopes_and_prefixes(tmp_path: Path) -> None:
    old = VALID[VALID.index("      stem/conv: conv1\n") : VALID.index("    weights:\n")]
    tables = """\
      prefix: "{variant}/"
      stem/conv: conv
      "stage{s}/":
        prefix: "layer{s}."
        "unit{u}/": {prefix: "{u-1}.", conv: {name: c, transforms: []}, add: sum}
      "**/norm": "{input}/BatchNorm"
      head/logits: fc
    taps:
      stem/relu: "{input}/Relu"
      "stage{s}/": {prefix: "op{s}/", "unit{u}/conv": "{own}/Conv2D", "unit{u}/add": "add{u}"}
"""
    recipe = load_recipe(write(tmp_path, changed(old, tables)))
    member = recipe.member("tiny_wide", "home")
    graph = expand(member)
    names = {path: layer.name for path, layer in layer_names(member, graph).items()}
    assert names == {
        "stem/conv": "tiny_wide/conv",
        "stem/norm": "tiny_wide/conv/BatchNorm",
        "stage1/unit1/conv": "tiny_wide/layer1.0.c",
        "stage1/unit1/add": "tiny_wide/layer1.0.sum",
        "head/logits": "tiny_wide/fc",
    }
    assert tap_names(member, graph) == names | {
        "stem/relu": "tiny_wide/conv/BatchNorm/Relu",
        "stage1/unit1/conv": "tiny_wide/layer1.0.c/Conv2D",
        "stage1/unit1/add": "op1/add1",
    }
