"""TF-slim's own MobileNets against porter's build of the recipes, on calibrated random weights."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import MappingError, NotInstalled, UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks import get_destination
from porter.frameworks.dialects import get_dialect
from porter.graph import BatchNorm, Conv, Graph, is_depthwise, tensor_shapes
from porter.graph.plan import make_plan
from porter.recipe import expand, find_recipe, layer_names, tap_names
from porter.zoos.implementation import BuildRequest, get_implementation
from porter.zoos.slim import tf_slim as slim_code
from porter.zoos.slim.networks import construct
from porter.zoos.tables import TF_SLIM
from tests.support.frameworks.tf.models import explicit
from tests.support.recipe.recipes import all_recipes
from tests.support.slim_files import SMALL, slim_checkpoint
from tests.support.standin import smooth_images
from tests.support.standin_files import standin_graph, standin_tensors, strided_sites, with_convention
from tests.support.tensornets_files import tensornets_installed, write_tensornets

VARIANTS = [*find_recipe("mobilenet_v1").variants, *find_recipe("mobilenet_v2").variants]
IN_CI = ("mobilenet_v1", "mobilenet_v2_1.4")
"""The widest of each network. Of the narrowest, tests/roads/test_parity.py compares every node."""
CLASSES = 1001
tf = get_destination("tf")


def taps(variant: str) -> dict[str, str]:
    recipe = find_recipe(variant)
    return dict(tap_names(recipe.member(variant, "slim"), standin_graph(variant, "slim", CLASSES)))


def own(
    variant: str, graph: Graph, size: tuple[int, int], batch: Any, dtype: Any = "float64"
) -> dict[str, Any]:
    tensors = standin_tensors(variant, "slim", CLASSES)
    model = tf.ENGINE.build(make_plan(graph, size, tf.CAPABILITIES), tensors, {}, dtype, "cpu")
    return tf.ENGINE.run(model, batch, [node.path for node in graph.nodes])


def distance(found: Any, wanted: Any) -> float:
    return float(np.linalg.norm(found.ravel() - wanted.ravel()) / np.linalg.norm(wanted))


@pytest.mark.parametrize(
    ("variant", "size"),
    [
        # Every map has odd rows and even columns. In torch, tests/roads/test_parity.py compares the same
        # nodes at this size in CI.
        *(pytest.param(variant, (65, 64), marks=pytest.mark.full) for variant in SMALL),
        (SMALL[0], (225, 201)),  # above 224, slim's MobileNet v1 pools by other code
    ],
)
def test_every_node_of_the_recipe_is_slims(variant: str, size: tuple[int, int]) -> None:
    batch = smooth_images(3, size, seed=1, count=2).astype(np.float64)
    graph = standin_graph(variant, "slim", CLASSES)
    reference = get_implementation("tf_slim").build(
        BuildRequest(variant, CLASSES, size, slim_checkpoint(variant), "float64")
    )
    wanted = tf.ENGINE.run_reference(reference, batch, taps(variant))
    found = own(variant, graph, size, batch)
    assert wanted.keys() == found.keys() == graph.by_path.keys()
    assert max(distance(found[path], wanted[path]) for path in wanted) <= 1e-10
    wrong = graph
    for path in strided_sites(graph):
        wrong = with_convention(wrong, path, explicit(1, 1, 1, 1))
    if size == (65, 64):  # on odd maps both pad one cell on each side
        assert distance(own(variant, wrong, size, batch)[graph.output], wanted[graph.output]) > 1e-3


def test_a_reference_in_single_precision() -> None:
    size, variant = (96, 96), SMALL[0]
    batch = smooth_images(3, size, seed=1, count=2)
    values = {
        dtype: tf.ENGINE.run_reference(
            get_implementation("tf_slim").build(
                BuildRequest(variant, CLASSES, size, slim_checkpoint(variant), dtype)
            ),
            batch,
            taps(variant),
        )["head/logits"]
        for dtype in ("float32", "float64")
    }
    assert [value.dtype for value in values.values()] == ["float32", "float64"]
    graph = standin_graph(variant, "slim", CLASSES)
    ours = [own(variant, graph, size, batch, dtype)["head/logits"] for dtype in ("float32", "float64")]
    assert 1e-9 < distance(values["float32"], values["float64"]) <= max(1e-5, 4 * distance(*ours))
    assert values["float64"].std(axis=0).mean() >= 0.01 * np.abs(values["float64"]).mean()


@cache
def slims_graph(variant: str) -> tuple[Any, dict[str, tuple[int, ...]]]:
    tensorflow = import_tensorflow()
    with tensorflow.Graph().as_default() as graph:
        images = tensorflow.compat.v1.placeholder(tensorflow.float32, [None, 224, 224, 3])
        variables = construct(variant, images, CLASSES).variables
        return {node.name: node for node in graph.as_graph_def().node}, dict(variables)


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=() if name in IN_CI else pytest.mark.full) for name in VARIANTS]
)
def test_every_width_has_slims_variables_strides_pads_and_epsilons(variant: str) -> None:
    recipe = find_recipe(variant)
    member = recipe.member(variant, "slim")
    graph = expand(member)
    nodes, variables = slims_graph(variant)
    layers = layer_names(member, graph)
    expected: dict[str, tuple[int, ...]] = {}
    for path, roles in tensor_shapes(graph).items():
        node = graph.by_path[path]
        names = get_dialect("tf").tensor_names(graph, node, layers[path].name)
        for role, shape in roles.items():
            (name,) = [name for name in names[role] if name in variables]
            expected[name] = shape
            assert get_dialect("tf").to_canonical(graph, node, role, np.empty(variables[name])).shape == shape
    assert variables.keys() == expected.keys()
    norms = [node.op for node in graph.nodes if isinstance(node.op, BatchNorm)]
    assert {norm.epsilon for norm in norms} == {0.001}
    fused = [node.attr["epsilon"].f for node in nodes.values() if node.op == "FusedBatchNormV3"]
    assert len(fused) == len(norms) and set(fused) == {float(np.float32(0.001))}
    for kind, ours in (("Conv2D", False), ("DepthwiseConv2dNative", True)):
        theirs = [node for node in nodes.values() if node.op == kind and "/Logits/" not in node.name]
        assert {node.attr["padding"].s for node in theirs} == {b"SAME"}
        strides = [
            node.op.window.stride
            for node in graph.nodes
            if isinstance(node.op, Conv) and is_depthwise(graph, node) == ours
        ]
        assert strides == [tuple(node.attr["strides"].list.i[1:3]) for node in theirs]


def test_momentums_are_slims() -> None:
    for variant, decay in (
        ("mobilenet_v1", 0.9997),
        ("mobilenet_v2", 0.997),
        ("inception_v3", 0.9997),
        ("resnet50v2", 0.997),
    ):
        recipe = find_recipe(variant)
        graph = expand(recipe.member(variant, "slim"))
        momentums = {node.op.momentum for node in graph.nodes if isinstance(node.op, BatchNorm)}
        assert list(momentums) == [pytest.approx(1 - decay, rel=1e-12)]
    slim = slim_code.import_slim()
    for scope, decay in (
        (slim_code.import_mobilenet_v1().mobilenet_v1_arg_scope(), 0.9997),
        (slim_code.import_mobilenet_v2().training_scope(), 0.997),
    ):
        assert scope[slim.arg_scope_func_key(slim.batch_norm)]["decay"] == decay
    for scope, decay in (
        (slim_code.import_net("inception_v3").inception_v3_arg_scope(), 0.9997),
        (slim_code.import_net("resnet_v2").resnet_arg_scope(), 0.997),
    ):
        assert scope[slim.arg_scope_func_key(slim.conv2d)]["normalizer_params"]["decay"] == decay


def test_the_table_has_every_variant_of_zoo_slim() -> None:
    assert set(TF_SLIM) == {
        variant
        for recipe in all_recipes()
        for variant in recipe.variants
        if "slim" in recipe.zoos_of(variant)
    }


def test_images_that_slims_inception_leaves_several_cells_of() -> None:
    variables = import_tensorflow().compat.v1
    for size, refused in ((330, False), (331, True)):
        with variables.Graph().as_default():
            images = variables.placeholder(variables.float32, [None, size, 75, 3])
            with (
                pytest.raises(UsageError, match="up to 330 rows and columns, got 331x75")
                if refused
                else nullcontext()
            ):
                construct("inception_v3", images, CLASSES)
    with pytest.raises(UsageError, match="reference 'tf_slim' has no variant 'resnet18'"):
        get_implementation("tf_slim").build(
            BuildRequest("resnet18", CLASSES, (32, 32), slim_checkpoint(SMALL[0]), "float64")
        )


def test_network_and_checkpoint_must_cover_each_other() -> None:
    def build(**changes: Any) -> None:
        whole = slim_checkpoint(SMALL[0])
        tensors = {name: array for name, array in {**whole.tensors, **changes}.items() if array is not None}
        checkpoint = Checkpoint(Path("model.ckpt"), "tf-checkpoint-v2", "tf", tensors)
        get_implementation("tf_slim").build(BuildRequest(SMALL[0], CLASSES, (32, 32), checkpoint, "float64"))

    beta = "MobilenetV1/Conv2d_0/BatchNorm/beta"
    with pytest.raises(MappingError, match=f"model.ckpt: .*missing {beta}; unexpected global_step"):
        build(**{beta: None, "global_step": np.array(1)})
    with pytest.raises(MappingError, match=rf"{beta}: expected shape \(8,\), got \(9,\)"):
        build(**{beta: np.zeros(9, np.float32)})


def test_packages_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tf_slim", None)
        with pytest.raises(NotInstalled, match="tf-slim cannot be imported") as caught:
            slim_code.import_slim.__wrapped__()
    assert caught.value.next is not None and caught.value.next.startswith(
        "pip install --no-deps tf-slim==1.1.0 'tf_keras==2."
    )
    monkeypatch.setattr(slim_code, "distribution", absent)
    for load in (slim_code.import_mobilenet_v1, slim_code.import_mobilenet_v2):
        with pytest.raises(NotInstalled, match="mmdnn, which has slim's MobileNets, is not installed"):
            load.__wrapped__()
    assert sys.modules["tensorflow"] is import_tensorflow()


def test_the_graph_is_of_its_own() -> None:
    """Two builds in one process do not see each other's variables."""
    checkpoint = replace(slim_checkpoint(SMALL[0]), path=Path("model.ckpt"))
    models = [
        get_implementation("tf_slim").build(BuildRequest(SMALL[0], CLASSES, (32, 32), checkpoint, "float32"))
        for _ in range(2)
    ]
    batch = smooth_images(3, (32, 32), seed=1, count=1)
    first, second = (
        tf.ENGINE.run_reference(model, batch, {"logits": "Logits"})["logits"] for model in models
    )
    assert np.array_equal(first, second)


_SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.reading import read_checkpoint
from porter.frameworks import get_destination
from porter.zoos.implementation import get_implementation
tf, runs = get_destination("tf"), []
for zoo, variant, file in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
    if zoo == "tensornets":
        runs.append((zoo, variant, 1000, "mobilenet25/logits", read_checkpoint(Path(file))))
    else:
        runs.append((zoo, variant, 1001, "Logits", Checkpoint(Path(file), "memory", "tf", np.load(file))))
assert "tensorflow" not in sys.modules
for zoo, variant, classes, tap, checkpoint in runs:
    model = get_implementation(zoo).build(variant, classes, (32, 32), checkpoint, "float64")
    tf.ENGINE.run_reference(model, np.zeros((1, 3, 32, 32)), {"logits": tap})
import tensorflow
assert tensorflow.__version__ and not hasattr(tensorflow, "contrib")
assert not {"tensornets", "tensorflow.python.keras.applications.imagenet_utils"} & sys.modules.keys()
assert "tf_keras.legacy_tf_layers.normalization" not in sys.modules
assert not any(name.split(".")[0] == "mmdnn" for name in sys.modules)
"""


@pytest.mark.full
def test_nothing_is_left_behind_and_nothing_said(tmp_path: Path) -> None:
    """By slim's code and by TensorNets', in one process."""
    arguments: list[str] = []
    for variant in SMALL:
        np.savez(tmp_path / f"{variant}.npz", allow_pickle=False, **slim_checkpoint(variant).tensors)
        arguments += ["tf_slim", variant, str(tmp_path / f"{variant}.npz")]
    if tensornets_installed():
        variant = "mobilenet_v1_0.25"
        arguments += ["tensornets", variant, str(write_tensornets(tmp_path / "tensornets.npz", variant))]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *arguments], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
