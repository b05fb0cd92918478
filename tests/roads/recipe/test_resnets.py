"""The recipes of ResNet v1, ResNeXt and wide ResNets against the zoos' own models: names, shapes, strides,
pads and epsilons.
"""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import get_destination
from porter.frameworks.dialects import get_dialect
from porter.frameworks.tf.runtime import import_keras
from porter.graph import BatchNorm, Conv, Graph, MaxPool, shapes, tensor_shapes
from porter.padding import LOWEST, Convention, pad_amounts
from porter.recipe import LayerName, Member, Recipe, expand, find_recipe, layer_names
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.candidate import Candidate
from porter.zoos.slim.networks import construct
from porter.zoos.tables import TRANSFORMERS
from porter.zoos.timm import import_timm
from porter.zoos.torchvision import import_models
from porter.zoos.transformers import import_transformers

ARCHITECTURES = [find_recipe(name) for name in ("resnet18", "resnext50_32x4d", "wide_resnet50_2")]
IN_TORCH = [
    (variant, zoo.name)
    for recipe in ARCHITECTURES
    for variant in recipe.variants
    for zoo in recipe.zoos_of(variant).values()
    if zoo.framework == "torch"
]


def read(
    variant: str, zoo_name: str, generation: str | None = None
) -> tuple[Recipe, Graph, dict[str, LayerName]]:
    recipe = find_recipe(variant)
    member = recipe.member(variant, zoo_name)
    graph = expand(Member(recipe, variant, member.zoo.at(generation)))
    return recipe, graph, layer_names(member, graph, generation)


def tensors_by_name(framework: str, graph: Graph, layers: dict[str, LayerName]) -> dict[str, tuple[int, ...]]:
    """Canonical shapes by the likeliest name of each tensor."""
    found = {}
    for path, roles in tensor_shapes(graph).items():
        for role, names in (
            get_dialect(framework).tensor_names(graph, graph.by_path[path], layers[path].name).items()
        ):
            found[names[0]] = roles.get(role, ())
    return found


def strided(graph: Graph) -> list[str]:
    """Convolutions of the units that stride."""
    return [
        node.path
        for node in graph.nodes
        if "unit" in node.path and isinstance(node.op, Conv) and node.op.window.stride == (2, 2)
    ]


def _model(variant: str, zoo: str) -> Any:
    if zoo != "transformers":
        return getattr(import_timm() if zoo == "timm" else import_models(), variant)()
    library, (kind, settings) = import_transformers(), TRANSFORMERS[variant]
    return library.AutoModelForImageClassification.from_config(
        library.AutoConfig.for_model(kind, num_labels=1000, **settings)
    )


@pytest.mark.parametrize(("variant", "zoo"), IN_TORCH)
def test_every_tensor_and_layer_is_torchs(variant: str, zoo: str) -> None:
    import torch

    _, graph, layers = read(variant, zoo)
    with torch.device("meta"):
        model = _model(variant, zoo)
    assert tensors_by_name("torch", graph, layers) == {
        name: tuple(value.shape) for name, value in model.state_dict().items()
    }
    for path, layer in layers.items():
        op, module = graph.by_path[path].op, model.get_submodule(layer.name)
        if isinstance(op, BatchNorm):
            assert (module.eps, module.momentum) == (op.epsilon, op.momentum)
        elif isinstance(op, Conv):
            assert (module.stride, module.groups, module.kernel_size) == (
                op.window.stride,
                op.groups,
                op.window.kernel,
            )
            assert module.padding == (op.convention.pads[0], op.convention.pads[2])
        elif isinstance(op, MaxPool):
            assert (module.kernel_size, module.stride, module.padding) == (
                3,
                2,
                1,
            ) and op.convention.fill == LOWEST
    unnamed = {node.op_name for node in graph.nodes} - {graph.by_path[path].op_name for path in layers}
    assert unnamed == {"add"}, "of which torch keeps no module"


def test_every_layer_is_kerass() -> None:
    _, graph, layers = read("resnet50", "keras")
    model, tensors, known = (
        import_keras().applications.ResNet50(weights=None),
        tensor_shapes(graph),
        shapes(graph, (224, 224)),
    )
    assert {layers[path].name for path in tensors} == {layer.name for layer in model.layers if layer.weights}
    assert {node.path for node in graph.nodes} == layers.keys()
    for path, named in layers.items():
        op, layer = graph.by_path[path].op, model.get_layer(named.name)
        channels, *size = (*known[path], 1, 1)[:3]
        assert tuple(layer.output.shape[1:]) in ((*size, channels), (channels,)), path
        if isinstance(op, BatchNorm):
            assert layer.epsilon == op.epsilon and layer.momentum == pytest.approx(1 - op.momentum)
        elif isinstance(op, Conv):
            assert (layer.strides, layer.use_bias) == (op.window.stride, op.bias)
            rows, columns, inputs, filters = layer.kernel.shape
            assert (filters, inputs, rows, columns) == tensors[path]["kernel"]
            before = layer.input._keras_history.operation
            pads = before.padding if before.__class__.__name__ == "ZeroPadding2D" else ((0, 0), (0, 0))
            if layer.padding == "same":
                pads = tuple(
                    pad_amounts(Convention("same"), op.window, axis, before.output.shape[1 + axis])
                    for axis in (0, 1)
                )
            assert pads == tuple(pad_amounts(op.convention, op.window, axis, 224) for axis in (0, 1)), path


@pytest.mark.parametrize(
    ("variant", "zoo", "parameters"),  # keras-applications' README, torchvision's weights
    [
        ("resnet50", "keras", 25_636_712),
        ("resnet101", "keras", 44_707_176),
        ("resnet152", "keras", 60_419_944),
    ],
)
def test_as_many_parameters_as_published(variant: str, zoo: str, parameters: int) -> None:
    _, graph, _ = read(variant, zoo)
    assert (
        sum(prod(shape) for roles in tensor_shapes(graph).values() for shape in roles.values()) == parameters
    )


def check_slim(variant: str) -> None:
    _, graph, layers = read(variant, "slim")
    tensorflow = import_tensorflow()
    with tensorflow.Graph().as_default():
        network = construct(
            variant, tensorflow.compat.v1.placeholder(tensorflow.float32, [None, 224, 224, 3]), 1000
        )
    framework, theirs = get_destination("tf"), dict(network.variables)
    for path, roles in tensor_shapes(graph).items():
        names = get_dialect(framework.NAME).tensor_names(graph, graph.by_path[path], layers[path].name)
        for role, shape in roles.items():
            found = theirs.pop(next(name for name in names[role] if name in theirs))
            if role == "kernel":
                found = (found[3], found[2], *found[:2])[: len(shape)]
            assert found == shape, (path, role)
    assert not theirs


def test_every_variable_is_slims() -> None:
    check_slim("resnet50")


@pytest.mark.full
@pytest.mark.parametrize("variant", ["resnet101", "resnet152"])
def test_every_variable_is_slims_of_the_deep_ones(variant: str) -> None:
    check_slim(variant)


def test_where_bottlenecks_stride() -> None:
    def units(*paths: str) -> list[str]:
        return [f"stage{path}" for path in paths]

    first = [
        "2/unit1/conv{k}",
        "2/unit1/shortcut/conv",
        "3/unit1/conv{k}",
        "3/unit1/shortcut/conv",
        "4/unit1/conv{k}",
    ]
    first = units(*first, "4/unit1/shortcut/conv")
    assert strided(read("resnet50", "keras")[1]) == [path.format(k=1) for path in first]
    assert strided(read("resnet50", "torchvision")[1]) == [path.format(k=2) for path in first]
    assert strided(read("resnet34", "torchvision")[1]) == [path.format(k=1) for path in first]
    assert strided(read("resnext50_32x4d", "keras")[1]) == strided(read("resnext50_32x4d", "torchvision")[1])
    _, slim, _ = read("resnet50", "slim")
    assert strided(slim) == units("1/unit3/conv2", "2/unit4/conv2", "3/unit6/conv2")
    pools = [node for node in slim.nodes if node.path.endswith("shortcut/pool")]
    assert [node.path for node in pools] == units(
        "1/unit3/shortcut/pool", "2/unit4/shortcut/pool", "3/unit6/shortcut/pool"
    )


def test_the_pads_that_caffes_weights_were_trained_with() -> None:
    recipe = find_recipe("resnet50")
    member = recipe.member("resnet50", "keras")
    shipped, trained = (expand(member, as_trained=choice) for choice in (False, True))
    changed = [
        node.path for node, other in zip(shipped.nodes, trained.nodes, strict=True) if node.op != other.op
    ]
    assert changed == ["stem/pool"]
    pool = trained.by_path["stem/pool"].op
    assert isinstance(pool, MaxPool) and pool.convention == Convention(fill=LOWEST, rounding="ceil")
    assert (
        shapes(trained, (224, 224))["stem/pool"] == shapes(shipped, (224, 224))["stem/pool"] == (64, 56, 56)
    )
    assert shapes(trained, (297, 297))["stem/pool"] == (64, 74, 74), "Caffe's windows on an odd map"


def older_checkpoint(generation: str, variant: str = "resnet50") -> Checkpoint:
    _, graph, layers = read(variant, "keras", generation)
    framework, tensors = get_destination("tf"), {}
    for path, roles in tensor_shapes(graph).items():
        names = get_dialect(framework.NAME).tensor_names(graph, graph.by_path[path], layers[path].name)
        for role, shape in roles.items():
            tensors[names[role][0]] = get_dialect(framework.NAME).from_canonical(
                graph, graph.by_path[path], role, np.zeros(shape, np.float32)
            )
    return Checkpoint(Path("weights.h5"), "keras-h5", "tf", tensors)


@pytest.mark.parametrize(
    ("generation", "names", "epsilon"),
    [
        (
            "keras-applications-1.0.8",
            ("conv1_conv", "conv4_block6_2_bn", "conv5_block1_0_conv", "probs"),
            1.001e-5,
        ),
        ("keras-2.2", ("conv1", "bn4f_branch2b", "res5a_branch1", "fc1000"), 1e-3),
    ],
)
def test_older_keras_names(generation: str, names: tuple[str, ...], epsilon: float) -> None:
    recipe = find_recipe("resnet50")
    fit = fit_by_names(Candidate.of(recipe.member("resnet50", "keras"), older_checkpoint(generation)))
    paths = ("stem/conv", "stage3/unit6/norm2", "stage4/unit1/shortcut/conv", "head/logits")
    roles = ("kernel", "gamma", "kernel", "kernel")
    assert [fit.tensors[node].rpartition("/")[0] for node in zip(paths, roles, strict=True)] == list(names)
    assert fit.own_head and any(generation in note for note in fit.notes)
    assert {node.op.epsilon for node in fit.graph.nodes if isinstance(node.op, BatchNorm)} == {epsilon}
    same = epsilon == 1.001e-5
    # Today's Keras is no reference for what older code computed otherwise.
    assert (
        bool(fit.reference_names) == same
        and any("bn_epsilon 0.001" in warning for warning in fit.warnings) != same
    )
    assert not same or fit.reference_names["probs/kernel"] == "predictions/kernel"


@pytest.mark.parametrize("variant", ["resnet101", "resnet152"])
def test_older_names_are_no_trouble_to_other_depths(variant: str) -> None:
    recipe = find_recipe(variant)
    fit = fit_by_names(
        Candidate.of(recipe.member(variant, "keras"), older_checkpoint("keras-applications-1.0.8", variant))
    )
    assert fit.own_head and fit.reference_names


def test_zoos_have_only_their_variants() -> None:
    with pytest.raises(UsageError, match="zoo 'keras' has no 'resnet18'"):
        find_recipe("resnet18").zoo("keras", "resnet18")
    with pytest.raises(UsageError, match="zoo 'torchvision_v2' has no 'resnext101_64x4d'"):
        find_recipe("resnext101_64x4d").zoo("torchvision_v2", "resnext101_64x4d")


def test_licences_and_protocols() -> None:
    resnext = find_recipe("resnext50_32x4d")
    assert {file.licence for file in resnext.zoos["keras"].files.values()} == {"CC BY-NC 4.0"}
    wide: Any = resnext.zoo("torchvision", "resnext101_64x4d").preprocess
    plain: Any = resnext.zoo("torchvision", "resnext50_32x4d").preprocess
    assert (wide.size, plain.size) == (232, 256)
    caffe: Any = find_recipe("resnet50").zoo("keras", "resnet50").preprocess
    assert (caffe.channels, caffe.mean, caffe.std) == ("bgr", (103.939, 116.779, 123.68), (1, 1, 1))
