"""Ports as stock classes: loaded into the real class, and refused wherever that is another function."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import porter
from porter.base.errors import UsageError
from porter.conversion.stock import Stock, as_stock as as_stock_of, stock_arrays
from porter.data.preprocess import Preprocess
from porter.data.statements import read_preprocess
from porter.data.timm_config import differences_of_timm, from_timm, to_timm
from porter.frameworks import Destination, Tensors, get_destination
from porter.frameworks.tf.runtime import import_keras
from porter.frameworks.torch.graph_module import to_tensor
from porter.graph import Conv, Graph, tensor_shapes
from porter.padding import ANY, Convention, Size
from porter.port import Record, read_port
from porter.recipe import Member, expand, find_recipe
from porter.verification.check import Check
from porter.verification.references.own_build import OwnBuild
from porter.verification.references.source_references import own_build
from porter.verification.sizes import Sizes
from porter.verification.stored_numbers import Shifted
from porter.zoos.implementation import StockModel, stock_libraries
from porter.zoos.timm import import_timm
from porter.zoos.torchvision import import_models
from tests.support.fixtures import Cli, WeightsMaker
from tests.support.refusals import refused
from tests.support.standin import calibrated_tensors, smooth_images
from tests.support.standin_files import with_convention

pytestmark = pytest.mark.usefixtures("in_double")

NARROW = "mobilenet_v2_0.35"
WRONG = "The shapes would fit, strict loading would succeed and the answers would be wrong"


def as_stock(
    member: Member, framework: Destination, graph: Graph, tensors: Tensors, classes: int, size: Size
) -> Stock:
    """As the class of the destination's default zoo."""
    libraries, model = stock_libraries(framework.NAME, None), StockModel(member.variant, classes, (224, 224))
    return as_stock_of(member, libraries, model, graph, tensors, size)


def torchvision_class(record: Record) -> torch.nn.Module:
    assert record.stock_class is not None
    model: torch.nn.Module = getattr(import_models(), record.stock_class.removeprefix("torchvision.models."))(
        **record.stock_arguments
    )
    return model.double().eval()


AT = Sizes(((97, 65),), ())


def images(size: tuple[int, int] = (97, 65)) -> torch.Tensor:
    return torch.from_numpy(smooth_images(3, size, 1, 2)).double()


def logits(model: torch.nn.Module, batch: torch.Tensor) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        return model(batch).numpy()


@pytest.mark.parametrize("variant", [NARROW, pytest.param("resnet18", marks=pytest.mark.full)])
def test_torchvisions_class_takes_the_file_strictly_and_gives_the_sources_answers(
    variant: str, weights_file: WeightsMaker, tmp_path: Path
) -> None:
    weights = weights_file(variant, "torchvision", ".pth")
    made = porter.convert(
        variant, "torchvision", "torch", weights=weights, out=tmp_path / "port", stock=True, check=False
    )
    (said,) = made.warnings
    assert (
        said.startswith("photos are prepared as torchvision's (") and "preprocess states another way" in said
    )
    record = read_port(tmp_path / "port").record
    assert made.record()["stock_class"] == record.stock_class and not record.computed
    stock, source = torchvision_class(record), torchvision_class(record)
    state, original = (
        load_file(tmp_path / "port" / "model.safetensors"),
        torch.load(weights, weights_only=True),
    )
    assert state.keys() == original.keys() and all(
        torch.equal(state[name], original[name]) for name in original
    )
    stock.load_state_dict(state, strict=True)
    source.load_state_dict(original, strict=True)
    found = logits(stock, images())
    assert np.array_equal(found, logits(source, images()))
    # What porter builds, and model.py, read the same file.
    assert np.allclose(
        logits(porter.load(tmp_path / "port").double(), images()), found, rtol=1e-10, atol=1e-10
    )
    spec = importlib.util.spec_from_file_location("model", tmp_path / "port" / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert np.allclose(logits(module.load().double(), images()), found, rtol=1e-10, atol=1e-10)
    if variant == NARROW:
        verdict = porter.verify(tmp_path / "port", weights=weights, float64=True)
        assert verdict.ok and verdict.notes == ()


# Slim pads as TensorFlow does, which timm's MobileNets can: at every size, by arguments that its own tf_
# models have.
@pytest.mark.parametrize(
    ("variant", "zoo", "suffix", "arguments"),
    [
        (NARROW, "keras", ".h5", {"pad_type": "same", "bn_eps": 0.001}),
        pytest.param(NARROW, "torchvision", ".pth", {}, marks=pytest.mark.full),
        ("mobilenet_v3_small", "torchvision", ".pth", {"bn_eps": 0.001}),
        pytest.param(
            "mobilenet_v1", "keras", ".h5", {"pad_type": "same", "bn_eps": 0.001}, marks=pytest.mark.full
        ),
        pytest.param("xception", "timm", ".pth", {}, marks=pytest.mark.full),
    ],
)
def test_timm_opens_the_folder(
    variant: str, zoo: str, suffix: str, arguments: dict[str, Any], weights_file: WeightsMaker, tmp_path: Path
) -> None:
    weights = weights_file(variant, zoo, suffix)
    import_timm()
    import timm
    from timm.data.config import resolve_data_config
    from timm.data.transforms_factory import create_transform

    made = porter.convert(
        variant, zoo, "torch", weights=weights, out=tmp_path / "port", stock="timm", check=False
    )
    record = made.port.record
    assert record.stock_class == "timm.create_model" and arguments.items() <= record.stock_arguments.items()
    model = timm.create_model(f"local-dir:{tmp_path / 'port'}", pretrained=True).double().eval()
    sizes = [record.input.size] if record.input.size else [(96, 96), (97, 65)]
    for size in sizes:
        found = logits(porter.load(tmp_path / "port").double(), images(size))
        assert np.allclose(logits(model, images(size)), found, rtol=1e-10, atol=1e-10)
    taken = record.preprocess
    assert taken is not None
    transform = create_transform(**resolve_data_config(model=model))
    normalise = transform.transforms[-1]
    assert np.allclose(np.array(taken.mean) * taken.divide / 255, normalise.mean)
    assert np.allclose(np.array(taken.std) * taken.divide / 255, normalise.std)
    assert list(transform.transforms[1].size) == [taken.crop or taken.size] * 2
    assert porter.verify(tmp_path / "port", weights=weights, float64=True).ok


@pytest.mark.parametrize(
    ("variant", "zoo", "message"),
    [
        (
            "xception",
            "keras",
            "timm.create_model is another function: pads 'same, -inf' in the source, '1, -inf'",
        ),
        ("resnet50", "slim", "timm.create_model is another function: pads 'same, -inf'"),
        (
            "resnet50v2",
            "keras",
            "timm has no model of resnet50v2: its resnetv2_50 has strides in the first unit of a stage",
        ),
    ],
)
def test_timms_model_of_another_function_is_refused(variant: str, zoo: str, message: str) -> None:
    member = find_recipe(variant).member(variant, zoo)
    with pytest.raises(UsageError, match=re.escape(message)):
        as_stock_of(
            member,
            stock_libraries("torch", "timm"),
            StockModel(variant, 10, (224, 224)),
            expand(member),
            {},
            (224, 224),
        )


def test_what_timms_transforms_do_otherwise_is_said() -> None:
    said = Preprocess("squash", 224, "opencv_cubic", channels="bgr", central_fraction=0.875)
    plain = Preprocess("shorter_side", 341, "pil_bicubic", crop=299, divide=255)
    assert differences_of_timm(Preprocess("none", 96, "none")) == ("they resize",)
    assert differences_of_timm(Preprocess("shorter_side", 256, "pil_bilinear")) == ("they feed squares",)
    assert (
        len(differences_of_timm(said)) == 3
        and not differences_of_timm(plain)
        and read_preprocess(from_timm(to_timm(plain))) == plain
    )


def test_a_stock_port_is_a_source_like_any_other(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file(NARROW, "torchvision", ".pth")
    stock = porter.convert(
        NARROW, "torchvision", "torch", weights=weights, out=tmp_path / "stock", stock=True, check=False
    )
    plain = porter.convert(
        NARROW, "torchvision", "torch", weights=tmp_path / "stock", out=tmp_path / "plain", check=False
    )
    assert plain.port.record.stock_class is None
    held = plain.port.tensors()
    for path, roles in stock.port.tensors().items():
        for role, array in roles.items():
            assert np.array_equal(held[path][role], array)


# v1's head is a 1x1 convolution there; v2's layers are compared in frameworks/tf/ports/test_build.py too.
@pytest.mark.parametrize("variant", ["mobilenet_v1_0.25", pytest.param(NARROW, marks=pytest.mark.full)])
def test_the_tf_port_is_the_class_of_keras_applications(
    variant: str, weights_file: WeightsMaker, tmp_path: Path
) -> None:
    keras, weights = import_keras(), weights_file(variant, "keras", ".h5")
    options: dict[str, Any] = {"weights": weights, "stock": True, "input_size": "97x65"}
    porter.convert(variant, "keras", "tf", out=tmp_path / "port", check=False, **options)
    record = read_port(tmp_path / "port").record
    assert record.stock_class is not None and record.input.size == (97, 65)
    name, arguments = record.stock_class.removeprefix("keras.applications."), record.stock_arguments
    loaded = keras.models.load_model(tmp_path / "port" / "model.keras")
    stock = getattr(keras.applications, name)(**arguments)
    assert [type(layer) for layer in loaded.layers] == [type(layer) for layer in stock.layers]
    assert [layer.name for layer in loaded.layers if layer.weights] == [
        layer.name for layer in stock.layers if layer.weights
    ]
    stock.load_weights(weights)
    batch, theirs = images().numpy().transpose(0, 2, 3, 1).astype(np.float32), stock.get_weights()
    wanted = stock(batch, training=False).numpy()
    stock.set_weights([np.zeros_like(array) for array in theirs])
    stock.load_weights(tmp_path / "port" / "model.keras")
    assert all(np.array_equal(one, other) for one, other in zip(stock.get_weights(), theirs, strict=True))
    models: tuple[Any, ...] = (stock, loaded, porter.load(tmp_path / "port"))
    for model in models:
        assert np.allclose(model(batch, training=False).numpy(), wanted, rtol=1e-5, atol=1e-5)
    again = porter.convert(variant, "keras", "tf", out=tmp_path / "again", check=False, **options)
    assert again.port.record.model == record.model  # the same bytes, whatever else this process has built


REFUSED = [
    (
        (NARROW, "keras", ".h5", "torch", "224"),
        "stem/conv",
        ("pads 'same' in the source, '1'", "epsilon 0.001", "1e-05", WRONG),
    ),
    (
        (NARROW, "torchvision", ".pth", "tf", "224"),
        "stem/conv",
        ("pads '1' in the source, 'same'", "epsilon 1e-05", WRONG),
    ),
    # Where every strided map is odd, SAME and a pad of 1 are one: only the epsilon is left.
    (
        (NARROW, "torchvision", ".pth", "tf", "225"),
        "stem/norm",
        ("epsilon 1e-05 in the source, 0.001", "52 differences", WRONG),
    ),
    ((NARROW, "keras", ".h5", "tf", "any"), "stock", ("keras.applications pads for the size",)),
    (
        ("mobilenet_v1_0.25", "keras", ".h5", "torch", "224"),
        "stock",
        ("torchvision has no class of mobilenet_v1_0.25",),
    ),
]


@pytest.mark.parametrize(
    ("case", "where", "words"), REFUSED, ids=lambda value: "-".join(value) if len(value) == 5 else ""
)
def test_another_function_is_refused_with_the_reason(
    case: tuple[str, str, str, str, str],
    where: str,
    words: tuple[str, ...],
    weights_file: WeightsMaker,
    tmp_path: Path,
) -> None:
    variant, zoo, suffix, framework, size = case
    weights = weights_file(variant, zoo, suffix)
    with pytest.raises(UsageError) as raised:
        porter.convert(
            variant,
            zoo,
            framework,
            weights=weights,
            out=tmp_path / "port",
            input_size=size,
            stock=True,
            check=False,
        )
    assert raised.value.where == where
    for word in words:
        assert word in raised.value.message
    assert not (tmp_path / "port").exists()


def refusal(variant: str, zoo: str, framework: str, **options: Any) -> UsageError:
    recipe = find_recipe(variant)
    graph = expand(recipe.member(variant, zoo), {"classes": 10, **options})
    with pytest.raises(UsageError) as raised:
        as_stock(recipe.member(variant, zoo), get_destination(framework), graph, {}, 10, (224, 224))
    return raised.value


def test_keras_resnet50_is_not_torchvisions_because_it_strides_elsewhere() -> None:
    """Keras's shapes fit torchvision's class, so that strict loading would succeed."""
    found = refusal("resnet50", "keras", "torch")
    assert found.where == "stage2/unit1/conv1"
    assert (
        "1x1 with stride 2 in the source, 1x1 with stride 1 in the stock class" in found.message
        and WRONG in found.message
    )


def test_a_transformer_has_numbers_that_no_layer_holds() -> None:
    found = refusal("vit_ti_16", "timm", "torch")
    assert (
        found.where == "--stock"
        and "its tokens and positions are numbers that no layer holds" in found.message
    )


def test_a_node_that_the_class_lacks_is_named() -> None:
    found = refusal("inception_v3", "torchvision", "tf")
    assert (
        found.where == "transform_input"
        and "affine in the source, no such step in the stock class" in found.message
    )
    missing = refusal("inception_v3", "timm", "torch")
    assert "no such step in the source, affine in the stock class" in missing.message


def test_an_average_over_other_cells_is_named() -> None:
    found = refusal("inception_v3", "slim", "torch", transform_input=True)
    assert "averaged over real_cells" in found.message and "averaged over full_window" in found.message


def test_a_file_without_a_head_and_a_folded_class_are_refused(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    recipe = find_recipe(NARROW)
    graph = expand(recipe.member(NARROW, "torchvision"))
    with pytest.raises(UsageError, match="the file has none"):
        as_stock(recipe.member(NARROW, "torchvision"), get_destination("torch"), graph, {}, 0, ANY)
    with pytest.raises(UsageError, match="none can be folded"):
        porter.convert(
            NARROW,
            "torchvision",
            "torch",
            weights=tmp_path / "absent",
            out=tmp_path / "port",
            stock=True,
            fold_bn=True,
        )


def test_a_bias_before_a_norm_goes_into_its_mean() -> None:
    """A ResNet with biases, as Keras has them, at torchvision's strides: its class has no place for them."""
    recipe, framework = find_recipe("resnet18"), get_destination("torch")
    graph = expand(recipe.member("resnet18", "torchvision"), {"classes": 10, "biases": True})
    tensors = calibrated_tensors(graph, (64, 64), 2, bias=0.5)
    stock = as_stock(recipe.member("resnet18", "torchvision"), framework, graph, tensors, 10, ANY)
    assert (
        len(stock.absorbed) == 20
        and stock.absorbed["stage2/unit1/shortcut/norm"] == "stage2/unit1/shortcut/conv"
    )
    arrays, filled = stock_arrays(framework, stock, stock.tensors, "float64")
    assert set(filled.values()) == {0} and all(name.endswith("num_batches_tracked") for name in filled)
    model = import_models().resnet18(num_classes=10).double().eval()
    model.load_state_dict({name: to_tensor(array) for name, array in arrays.items()}, strict=True)
    wanted = OwnBuild(framework, graph, tensors).run(images((64, 64)).numpy(), "float64")
    found = logits(model, images((64, 64)))
    assert np.linalg.norm(found - wanted["head/logits"]) <= 1e-10 * np.linalg.norm(wanted["head/logits"])


def test_a_bias_with_no_norm_after_it_is_refused() -> None:
    recipe = find_recipe("resnet18")
    graph = expand(recipe.member("resnet18", "torchvision"), {"classes": 10})
    conv = graph.by_path["stem/conv"]
    assert isinstance(conv.op, Conv)
    biased = replace(conv, op=replace(conv.op, bias=True))
    nodes = [biased if node is conv else node for node in graph.nodes]
    # The pool reads the convolution too, so that the norm does not stand for it.
    nodes = [replace(node, inputs=("stem/conv",)) if node.path == "stem/pool" else node for node in nodes]
    with pytest.raises(
        UsageError, match="reads stem/conv in the source, stem/relu in the stock class"
    ) as raised:
        as_stock(
            recipe.member("resnet18", "torchvision"),
            get_destination("torch"),
            replace(graph, nodes=tuple(nodes)),
            {},
            10,
            ANY,
        )
    assert "stem/conv a bias in the source, none in the stock class" in raised.value.message


def test_biases_that_the_class_has_and_the_source_lacks_are_zeros_and_recorded() -> None:
    recipe, framework = find_recipe("resnet50"), get_destination("tf")
    graph = expand(recipe.member("resnet50", "keras"), {"classes": 10, "biases": False})
    tensors = {
        path: {role: np.zeros(shape, np.float32) for role, shape in roles.items()}
        for path, roles in tensor_shapes(graph).items()
    }
    stock = as_stock(recipe.member("resnet50", "keras"), framework, graph, tensors, 10, (224, 224))
    arrays, filled = stock_arrays(framework, stock, tensors, "float32")
    assert filled == {name: 0 for name in arrays if name.endswith("conv/bias")} and len(filled) == 53
    assert arrays["conv2_block1_0_conv/bias"].shape == (256,) and not stock.absorbed


def test_an_absorbed_port_is_proved_and_its_norms_are_compared(
    tmp_path: Path, weights_file: WeightsMaker
) -> None:
    """From a zoo of its own, which is torchvision's with biases, so that the whole road is walked."""
    from porter.recipe import recipes_folder
    from porter.source.open import open_source
    from porter.source.place import find
    from porter.verification.stored_numbers import unrounded_tensors

    (tmp_path / "recipes").mkdir()
    text = (recipes_folder() / "resnet_v1.yaml").read_text()
    text += "\n  biased: {extends: torchvision, only: [resnet18], options: {biases: true}, weights: {}}\n"
    (tmp_path / "recipes" / "resnet_v1.yaml").write_text(text)
    state = torch.load(weights_file("resnet18", "torchvision", ".pth"), weights_only=True)
    random = torch.Generator().manual_seed(0)
    for name, tensor in list(state.items()):
        if tensor.ndim == 4:
            state[name.replace("weight", "bias")] = torch.randn(len(tensor), generator=random) / 4
    torch.save(state, tmp_path / "biased.pth")
    made = porter.convert(
        "resnet18",
        "biased",
        "torch",
        weights=tmp_path / "biased.pth",
        out=tmp_path / "port",
        stock=True,
        check=False,
        recipes=tmp_path / "recipes",
    )
    assert len(made.port.record.absorbed) == 20 and made.port.record.computed
    torchvision_class(made.port.record).load_state_dict(
        load_file(tmp_path / "port" / "model.safetensors"), strict=True
    )
    recipe = find_recipe("resnet18", tmp_path / "recipes")
    opened = open_source(find(tmp_path / "biased.pth"), member=recipe.member("resnet18", "biased"))
    tensors = unrounded_tensors(made.port, opened.graph, opened.tensors)
    source = Shifted(own_build(opened, "float64"), {}, frozenset(made.port.record.absorbed.values()))
    found = Check(made.port, ("float64",), tensors=tensors).prove(source, AT).proof
    assert found.ok and set(found.uncompared) == set(made.port.record.absorbed.values())
    bare = Check(made.port, ("float64",), tensors=tensors).prove(own_build(opened, "float64"), AT).proof
    assert bare.first_bad is not None and bare.first_bad.path == "stem/conv"


def test_a_right_size_is_said(tmp_path: Path) -> None:
    """A source that pads by SAME is torchvision's function only on odd maps, and the class takes every
    size.
    """
    recipe, framework = find_recipe("resnet18"), get_destination("torch")
    graph = expand(recipe.member("resnet18", "torchvision"), {"classes": 10})
    same = with_convention(graph, "stage2/unit1/conv1", Convention("same"))
    as_stock(recipe.member("resnet18", "torchvision"), framework, same, _zeros(same), 10, (225, 225))
    with pytest.raises(
        UsageError,
        match="pads 'same' in the source, '1' in the stock class, not the same for an input of 56x56",
    ):
        as_stock(recipe.member("resnet18", "torchvision"), framework, same, _zeros(same), 10, (224, 224))
    with pytest.raises(UsageError, match="not the same for an input of every size"):
        as_stock(recipe.member("resnet18", "torchvision"), framework, same, _zeros(same), 10, ANY)


def _zeros(graph: Any) -> dict[str, dict[str, Any]]:
    return {
        path: {role: np.zeros(shape) for role, shape in roles.items()}
        for path, roles in tensor_shapes(graph).items()
    }


def test_the_command_line_prints_what_the_port_is(
    weights_file: WeightsMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from porter.cli.app import main

    weights = weights_file(NARROW, "torchvision", ".pth")
    arguments = [
        "convert",
        NARROW,
        "--from",
        "torchvision",
        "--to",
        "torch",
        "--weights",
        str(weights),
        "--no-check",
    ]
    for options, words in (
        (["--stock"], "torchvision.models.mobilenet_v2(num_classes=1000, width_mult=0.35)"),
        (["--stock", "timm"], "timm.create_model(model_name='mobilenetv2_035', num_classes=1000)"),
        (["--fold-bn"], "52 folded into the layers before them"),
    ):
        out = str(tmp_path / "".join(options))
        monkeypatch.setattr("sys.argv", ["porter", *arguments, *options, "--out", out])
        with pytest.raises(SystemExit) as exited:
            main()
        assert not exited.value.code
        assert words in capsys.readouterr().out
        assert json.loads((Path(out) / "port.json").read_text())["format"] == 1


@pytest.mark.parametrize("given", [("--stock", "nonsense"), ("--stock=nonsense",)])
def test_a_library_that_is_none_is_said_to_be_none(
    given: tuple[str, ...], weights_file: WeightsMaker, tmp_path: Path, cli: Cli
) -> None:
    weights = weights_file(NARROW, "torchvision", ".pth")
    ran = cli(
        "convert",
        NARROW,
        "--from",
        "torch",
        "--to",
        "tf",
        "--weights",
        weights,
        *given,
        "--out",
        tmp_path / "port",
    )
    refused(ran, "--stock: tf has no stock classes of nonsense (it has those of keras)")
    assert cli("convert --stock --form torch --to tf", NARROW).status == 2
