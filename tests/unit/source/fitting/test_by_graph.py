"""The file's own graph wins: what is taken from it, what is said about it, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, FileNode, Foreign, Stored
from porter.graph import (
    INPUT,
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    ChannelScale,
    ConcatChannels,
    Conv,
    Dense,
    GlobalAvgPool,
    GlobalMaxPool,
    Multiply,
    Relu,
    Relu6,
    Sigmoid,
    Softmax,
    tensor_shapes,
)
from porter.padding import Convention, Window
from porter.recipe import Member, expand, find_recipe
from porter.source.fitting.alignment import align
from porter.source.fitting.by_graph import fit_by_graph
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.fit import Fit
from porter.source.fitting.grafting import LAYERS_OUTSIDE, POOL_THE_MAP, SAVE_UP_TO
from tests.support.source.file_graphs import appended, as_file, changed, inserted, layer_of

RECIPE = find_recipe("mobilenet_v2")
ZOO = RECIPE.zoo("keras", "mobilenet_v2")
DRAFT = expand(Member(RECIPE, "mobilenet_v2", ZOO))
FILE = as_file(DRAFT)
SITE = "block1/depthwise/conv"
LOGITS = layer_of(DRAFT, "head/logits")


def fit(file: FileGraph, *settings: str, variant: str = "mobilenet_v2", zoo: str = "keras") -> Fit:
    names = [stored.name for node in file.nodes for stored in node.tensors.values()]
    checkpoint, recipe = (
        Checkpoint(Path("a"), "any", None, {name: np.zeros(1) for name in names}, graph=file),
        find_recipe(variant),
    )
    return fit_by_graph(Candidate.of(recipe.member(variant, zoo), checkpoint).with_map(settings))


def dense(name: str, units: int) -> FileNode:
    return FileNode(
        name, Dense(units), (), {"kernel": Stored(f"{name}/kernel"), "bias": Stored(f"{name}/bias")}, name
    )


def conv_of(path: str) -> Conv:
    op = DRAFT.by_path[path].op
    assert isinstance(op, Conv)
    return op


def test_a_file_with_the_recipes_graph_gives_the_recipes_graph_whatever_its_layers_are_called() -> None:
    found = fit(FILE)
    assert found.graph == DRAFT
    assert not found.warnings and not found.ignored
    assert found.tensors["stem/conv", "kernel"] == "layer_0/kernel"
    assert found.own_head and found.source_classes == 1000
    assert found.in_zoo.names["layer_0/kernel"] == "Conv1/kernel"
    assert (found.in_file.taps["stem/conv"], found.in_zoo.taps["stem/conv"]) == ("layer_0", "Conv1")


def test_pads_equal_at_the_files_size_are_taken_in_silence_and_others_are_reported() -> None:
    even = changed(
        FILE,
        layer_of(DRAFT, SITE),
        op=replace(conv_of(SITE), convention=Convention("explicit", (0, 1, 0, 1))),
    )
    taken = fit(even)
    assert taken.graph.by_path[SITE].op == replace(
        conv_of(SITE), convention=Convention("explicit", (0, 1, 0, 1))
    )
    assert not taken.warnings
    odd = fit(replace(even, size=(225, 201)))
    assert SITE in odd.warnings[0] and "((0,1),(0,1))" in odd.warnings[0]
    # The zoo's own implementation is another function.
    assert not odd.in_zoo.names and not odd.in_zoo.taps


def test_strides_epsilons_biases_and_clipping_are_the_files() -> None:
    file = changed(FILE, layer_of(DRAFT, "stem/relu"), op=Relu())
    file = changed(file, layer_of(DRAFT, "stem/norm"), op=BatchNorm(1e-5, 0.0))
    bias = {role: Stored(f"layer_0/{role}") for role in ("kernel", "bias")}
    file = changed(
        file, layer_of(DRAFT, "stem/conv"), op=replace(conv_of("stem/conv"), bias=True), tensors=bias
    )
    found = fit(file)
    assert found.graph.by_path["stem/relu"].op == Relu()
    # The momentum is the recipe's where the file has none.
    assert found.graph.by_path["stem/norm"].op == BatchNorm(1e-5, 0.001)
    assert found.tensors["stem/conv", "bias"] == "layer_0/bias"
    said = " ".join(found.warnings)
    assert (
        "epsilon 1e-05 where the recipe has 0.001" in said
        and "Relu where the recipe has Relu6" in said
        and "a bias" in said
    )


def test_the_order_of_a_sums_inputs_does_not_matter() -> None:
    name = layer_of(DRAFT, "block2/add")
    swapped = changed(FILE, name, inputs=FILE.by_name[name].inputs[::-1])
    assert fit(swapped).graph == DRAFT


def test_scaled_pixels_stay_in_the_graph() -> None:
    found = fit(
        inserted(
            FILE,
            layer_of(DRAFT, "stem/conv"),
            FileNode("rescaling", Affine((1 / 127.5,), (-1.0,)), (), {}, "rescaling"),
        )
    )
    assert [node.path for node in found.graph.nodes[:2]] == ["input/rescaling", "stem/conv"]
    assert found.graph.by_path["stem/conv"].inputs == ("input/rescaling",)
    assert found.graph.by_path["input/rescaling"].inputs == (INPUT,)
    assert found.in_file.scaling == (Affine((1 / 127.5,), (-1.0,)),)


def test_statistics_that_became_constants_are_listed_as_such() -> None:
    scaling = FileNode(
        "normalization", Affine((0.5,), (0.0,)), (), {"mean": Stored("normalization/mean")}, "normalization"
    )
    found = fit(inserted(FILE, layer_of(DRAFT, "stem/conv"), scaling))
    assert found.ignored == {"normalization/mean": "its numbers are the constants of input/normalization"}


def called(file: FileGraph, name: str, tensors: str) -> FileGraph:
    """The file's graph with the kernel and bias of one layer under other names."""
    return changed(file, name, tensors={role: Stored(f"{tensors}/{role}") for role in ("kernel", "bias")})


@pytest.mark.parametrize("name", ["predictions", "Logits", "backbone/predictions"])
def test_the_files_output_is_the_head_and_the_recipes_own_head_inside_is_chosen_by_map(name: str) -> None:
    file = appended(called(FILE, LOGITS, name), dense("verdict", 2), FileNode("softmax", Softmax(), ()))
    found = fit(file)
    assert (
        found.source_classes == 2
        and not found.own_head
        and found.activation == "softmax"
        and not found.warnings
    )
    assert found.graph.by_path["head/logits"].op == Dense(2) and not found.ignored
    inner = fit(file, f"{LOGITS}=head/logits")
    assert inner.source_classes == 1000 and inner.own_head and inner.activation is None
    assert "verdict" in inner.warnings[0] and [*inner.ignored] == ["verdict/kernel", "verdict/bias"]


def test_an_output_that_cannot_be_ported_is_refused_with_a_line_for_each_layer_that_could_be_the_head() -> (
    None
):
    behind = (dense("my verdict", 2), FileNode("mine", Foreign("Lambda"), ()), dense("last", 2))
    file = appended(called(FILE, LOGITS, "predictions"), *behind)
    with pytest.raises(MappingError, match="Lambda") as caught:
        fit(file)
    assert str(caught.value.next).splitlines()[1:] == [
        "--map 'my verdict=head/logits'",
        f"--map {LOGITS}=head/logits",
    ]
    assert fit(file, f"{LOGITS}=head/logits").own_head
    assert fit(file, "my verdict=head/logits").source_classes == 2


def test_a_hidden_layer_with_as_many_units_as_the_zoo_has_classes_is_not_the_head() -> None:
    file = appended(FILE, FileNode("relu", Relu(), ()), dense("verdict", 2))
    found = fit(file)
    assert found.source_classes == 2 and not found.own_head and not found.ignored
    assert [type(node.op) for node in found.graph.nodes[-3:]] == [Dense, Relu, Dense]


def test_what_scales_logits_is_ported_or_said_to_be_left_out() -> None:
    scaled = appended(FILE, FileNode("heat", Affine((0.5,), (0.0,)), ()), FileNode("softmax", Softmax(), ()))
    found = fit(scaled)
    assert isinstance(found.graph.by_path[found.graph.output].op, Affine)
    assert (
        found.output == "logits"
        and found.source_classes == 1000 == found.classes
        and found.activation == "softmax"
    )
    named = fit(called(scaled, LOGITS, "predictions"), f"{LOGITS}=head/logits")
    assert named.own_head and named.graph.output == "head/logits" and "heat" in named.warnings[0]


def test_two_heads_with_the_zoos_classes_ask_for_a_choice() -> None:
    other = replace(dense("colour", 1000), inputs=FILE.by_name[LOGITS].inputs)
    two = replace(FILE, nodes=(*FILE.nodes, other), outputs=(LOGITS, "colour"))
    with pytest.raises(MappingError) as caught:
        fit(two)
    assert "--map colour=head/logits" in str(caught.value.next)
    named = fit(called(two, "colour", "predictions"), "colour=head/logits")
    assert (
        named.own_head
        and named.tensors["head/logits", "kernel"] == "predictions/kernel"
        and LOGITS in named.warnings[0]
    )


def own_head(*layers: FileNode) -> FileGraph:
    """The network with layers of one's own behind its pool."""
    cut = replace(FILE, nodes=FILE.nodes[:-1], outputs=(layer_of(DRAFT, "head/pool"),))
    return appended(cut, *layers)


def test_a_head_of_ones_own_becomes_nodes() -> None:
    file = own_head(
        dense("fc1", 32),
        FileNode("fc1:relu", Relu(), ()),
        dense("fc2", 1),
        FileNode("sigmoid", Sigmoid(), ()),
    )
    found = fit(file)
    assert [node.path for node in found.graph.nodes[-3:]] == ["head/fc1", "head/fc1_relu", "head/logits"]
    assert found.activation == "sigmoid" and found.source_classes == 1 and not found.own_head
    assert tensor_shapes(found.graph)["head/logits"]["kernel"] == (1, 32)
    assert not found.in_zoo.names


def test_one_dense_layer_of_ones_own_is_the_recipes_head() -> None:
    found = fit(own_head(dense("flowers", 5)))
    assert found.graph.by_path["head/logits"].op == Dense(5)
    assert found.source_classes == 5 and not found.own_head
    assert found.in_zoo.names["flowers/kernel"] == "predictions/kernel"


def test_another_pool_than_the_recipes_is_ported() -> None:
    name = layer_of(DRAFT, "head/pool")
    found = fit(changed(own_head(dense("flowers", 5)), name, op=GlobalMaxPool()))
    assert isinstance(found.graph.by_path[f"head/{name}"].op, GlobalMaxPool)
    assert "head/pool" not in found.graph.by_path


def test_an_average_that_another_stride_leaves_short_of_the_whole_map_is_refused() -> None:
    average = AvgPool(Window((7, 7), (7, 7)), Convention())
    file = changed(FILE, layer_of(DRAFT, "head/pool"), op=average)
    assert fit(file).graph.by_path["head/pool"].op == GlobalAvgPool()
    wider = replace(conv_of("stem/conv"), window=Window((3, 3), (1, 1)))
    with pytest.raises(
        MappingError, match=r"average over the whole map \(14x14\), as in the recipe, got 7x7 in"
    ) as caught:
        fit(changed(file, layer_of(DRAFT, "stem/conv"), op=wider))
    assert caught.value.where == "head/pool"


@pytest.mark.parametrize("end", ["head/pool", "head/relu"])
def test_a_file_without_a_head_gives_features(end: str) -> None:
    count = [node.path for node in DRAFT.nodes].index(end) + 1
    found = fit(replace(FILE, nodes=FILE.nodes[:count], outputs=(layer_of(DRAFT, end),)))
    assert found.output == "features" and found.source_classes == 0 == found.classes
    assert found.graph.output == "head/pool"
    assert "features" in found.warnings[0]


def test_an_own_head_is_not_taken_for_a_hidden_layer_of_the_recipes() -> None:
    """MobileNet v3 has a dense layer between its pool and its head."""
    variant = "mobilenet_v3_small"
    draft = expand(find_recipe(variant).member(variant, "keras"))
    whole, count = as_file(draft), [node.path for node in draft.nodes].index("head/pool") + 1
    cut = replace(whole, nodes=whole.nodes[:count], outputs=(layer_of(draft, "head/pool"),))
    found = fit(appended(cut, dense("top", 5)), variant=variant)
    assert (found.output, found.classes, found.graph.output) == ("logits", 5, "head/logits")
    assert found.graph.by_path["head/logits"].inputs == ("head/pool",) and found.head == "top"


@pytest.mark.parametrize("path", ["stem/relu", "block4/expand/relu", "block1/depthwise/conv"])
def test_what_porter_has_no_op_for_is_refused_by_name(path: str) -> None:
    with pytest.raises(MappingError) as caught:
        fit(changed(FILE, layer_of(DRAFT, path), op=Foreign("LeakyReLU")))
    assert "LeakyReLU" in caught.value.message and layer_of(DRAFT, path) in caught.value.message
    assert caught.value.where == path


def test_a_foreign_layer_before_the_network_or_in_the_head_is_refused_by_name_with_the_next_step() -> None:
    pool, last = layer_of(DRAFT, "head/pool"), layer_of(DRAFT, "head/relu")
    scaled = inserted(FILE, layer_of(DRAFT, "stem/conv"), FileNode("mean", Affine((1.0,), (-103.0,)), ()))
    foreign = own_head(FileNode("mine", Foreign("Lambda"), ()), dense("fc", 5))
    flat = own_head(FileNode("flat", Foreign("Flatten of a 7x7 map"), ()), dense("fc", 5))
    for file, where, next in (
        (inserted(scaled, "mean", FileNode("flip", Foreign("GetItem"), ())), "flip", LAYERS_OUTSIDE),
        (foreign, "mine", SAVE_UP_TO.format(pool)),
        (changed(flat, "flat", inputs=(last,)), "flat", POOL_THE_MAP),
    ):
        assert align(DRAFT, file, (224, 224)).share >= 0.98  # so the file is known for what it is
        with pytest.raises(MappingError, match="which porter has no op for") as caught:
            fit(file)
        assert (caught.value.where, caught.value.next) == (where, next)


def without(file: FileGraph, name: str) -> FileGraph:
    """The file's graph without a layer; its readers read what it reads."""
    (source,) = file.by_name[name].inputs
    nodes = tuple(
        replace(node, inputs=tuple(source if at == name else at for at in node.inputs)) for node in file.nodes
    )
    return replace(file, nodes=tuple(node for node in nodes if node.name != name))


@pytest.mark.parametrize(
    "paths", [["block3/project/norm"], [node.path for node in DRAFT.nodes if isinstance(node.op, BatchNorm)]]
)
def test_a_norm_that_the_file_has_folded_is_the_layer_before_it(paths: list[str]) -> None:
    file = FILE
    for path in paths:
        layer = path.replace("norm", "conv")
        bias = {role: Stored(f"{layer}/{role}") for role in ("kernel", "bias")}
        file = changed(file, layer_of(DRAFT, layer), op=replace(conv_of(layer), bias=True), tensors=bias)
        file = without(file, layer_of(DRAFT, path))
    found = fit(file)
    assert len(found.graph.nodes) == len(DRAFT.nodes) - len(paths) and set(found.graph.by_path).isdisjoint(
        paths
    )
    assert found.graph.by_path["block4/expand/conv"].inputs[0] in ("block3/project/conv", "block3/add")
    assert found.tensors["block3/project/conv", "bias"] == "block3/project/conv/bias" and found.own_head
    assert (
        not found.warnings
        and f"{len(paths)} folded" in found.notes[1]
        and set(found.in_file.folded) == set(paths)
    )
    assert not found.in_zoo.names  # the zoo's own implementation has norms


def test_a_norm_whose_numbers_became_constants_is_a_scale() -> None:
    name = layer_of(DRAFT, "block3/project/norm")
    tensors = {role: Stored(f"scale/{role}") for role in ("gamma", "beta")}
    found = fit(changed(FILE, name, op=ChannelScale(True), tensors=tensors))
    assert found.graph.by_path["block3/project/norm"].op == ChannelScale(True)
    assert found.notes[1] == "its batch norms: 1 scales and offsets" and not found.warnings


def test_a_norm_that_cannot_be_folded_is_missed() -> None:
    recipe = find_recipe("resnet50v2")
    graph = expand(recipe.member("resnet50v2", "keras"))
    path = "stage1/unit2/preact/norm"
    aligned = align(graph, without(as_file(graph), layer_of(graph, path)), (224, 224))
    with pytest.raises(MappingError, match=r"Relu.* where the recipe has BatchNorm") as caught:
        aligned.expect(graph.output)
    assert caught.value.where == path


def test_several_outputs_ask_for_a_choice() -> None:
    two = own_head(dense("breed", 5))
    two = replace(
        two,
        nodes=(*two.nodes, replace(dense("age", 3), inputs=(layer_of(DRAFT, "head/pool"),))),
        outputs=("breed", "age"),
    )
    with pytest.raises(MappingError) as caught:
        fit(two)
    assert "--map breed=head/logits" in str(caught.value.next)
    assert fit(two, "age=head/logits").source_classes == 3


def test_a_map_that_speaks_of_another_layer_than_the_graph_is_refused() -> None:
    assert fit(FILE, f"{layer_of(DRAFT, 'stem/conv')}=stem/conv").graph == DRAFT
    with pytest.raises(MappingError):
        fit(FILE, f"{layer_of(DRAFT, 'head/conv')}=stem/conv")
    with pytest.raises(MappingError, match="no layer 'nowhere'"):
        fit(FILE, "nowhere=head/logits")


def test_a_branch_beside_the_network_is_refused() -> None:
    file = own_head(FileNode("sum", Add(), ()), dense("fc", 5))
    extra = FileNode("metadata", Relu6(), (INPUT,), {}, "metadata")
    both = changed(file, "sum", inputs=(layer_of(DRAFT, "head/pool"), "metadata"))
    with pytest.raises(MappingError, match="beside the network"):
        fit(replace(both, nodes=(extra, *both.nodes)))


@pytest.mark.parametrize(
    ("variant", "zoo"),
    [("densenet121", "torchvision"), ("mobilenet_v3_small", "torchvision"), ("inception_v3", "timm")],
)
def test_a_file_joins_in_one_step_and_multiplies_in_any_order(variant: str, zoo: str) -> None:
    """As torchvision's own code does, and torch's older exporter, and the recipe does not."""
    recipe = find_recipe(variant)
    draft = expand(recipe.member(variant, zoo))
    file, joined = as_file(draft), dict[str, tuple[str, ...]]()
    for node in file.nodes:
        if isinstance(node.op, ConcatChannels):
            joined[node.name] = tuple(part for name in node.inputs for part in joined.get(name, (name,)))
            file = changed(file, node.name, inputs=joined[node.name])
        elif isinstance(node.op, Multiply):
            file = changed(file, node.name, inputs=node.inputs[::-1])
    leading = file.leading_to(file.outputs)
    file = replace(file, nodes=tuple(node for node in file.nodes if node.name in leading))
    assert [node.inputs for node in file.nodes] != [node.inputs for node in as_file(draft).nodes]
    found = fit(file, variant=variant, zoo=zoo)
    assert found.graph == draft and found.own_head and not found.in_file.differences


def test_a_file_of_many_equal_layers_is_another_network() -> None:
    """Each layer of a branch could be one of all its copies: 40 of four branches would be tried in millions
    of ways.
    """
    recipe = find_recipe("inception_v3")
    draft = expand(recipe.member("inception_v3", "torchvision"))
    file, first = as_file(draft), next(node for node in draft.nodes if isinstance(node.op, ConcatChannels))
    copied = {layer_of(draft, path) for path in first.inputs}
    copies = [
        replace(node, name=f"{node.name} {n}")
        for node in file.nodes
        if node.name in copied
        for n in range(40)
    ]
    with pytest.raises(MappingError, match="too many layers of the file could be the inputs of this node"):
        align(draft, replace(file, nodes=(*file.nodes, *copies)), (299, 299))


def test_a_head_before_its_pool_has_as_many_classes_as_the_file() -> None:
    """SqueezeNet ends in the pool of its last convolution."""
    recipe = find_recipe("squeezenet1_1")
    zoo = recipe.zoo("torchvision", "squeezenet1_1")
    draft = expand(Member(recipe, "squeezenet1_1", zoo))
    file, head, pool = as_file(draft), layer_of(draft, "head/logits"), layer_of(draft, "head/pool")
    op: Any = file.by_name[head].op
    seven = changed(file, head, op=replace(op, filters=7))
    for each, classes in ((file, 1000), (seven, 7)):
        found = fit(each, variant="squeezenet1_1", zoo="torchvision")
        assert (found.classes, found.own_head, found.head, found.output) == (
            classes,
            classes == 1000,
            pool,
            "logits",
        )
        assert set(found.graph.by_path) == set(draft.by_path) and not found.warnings
    with pytest.raises(
        MappingError,
        match="in this network the head comes before the pool, and the file ends in another layer",
    ):
        fit(appended(file, dense("fc", 5)), variant="squeezenet1_1", zoo="torchvision")
