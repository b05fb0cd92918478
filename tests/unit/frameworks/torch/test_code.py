"""model.py says the same as the built module, with torch, safetensors and the standard library only."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from functools import cache

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from torch.jit._trace import TracerWarning

from porter.base.errors import GraphError
from porter.frameworks.dialects import get_dialect
from porter.frameworks.torch.code import model_source
from porter.frameworks.torch.code.signatures import OWN_LAYERS
from porter.frameworks.torch.destination import DESTINATION as framework
from porter.graph import (
    INPUT,
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    BlockScope,
    ConcatChannels,
    Conv,
    Graph,
    MaxPool,
    Node,
    Relu,
    site_of,
    tensor_shapes,
)
from porter.graph.plan import make_plan
from porter.graph.record import from_record, to_record
from porter.padding import ANY, LOWEST, Convention, Window
from porter.recipe import Member, expand, find_recipe
from porter.zoos.implementation import StockModel, stock_libraries
from tests.support.frameworks.torch.generated import expect_formatted, expect_the_same_as_built, model_of
from tests.support.frameworks.torch.graphs import (
    Writer,
    fine_tuned,
    inception,
    mobilenet_v2,
    resnet_v2,
    small_mobilenet,
)
from tests.support.recipe.recipes import all_recipes
from tests.support.standin import calibrated_tensors, smooth_images

SIZE = (33, 31)


def slim_mobilenet():
    return small_mobilenet(alpha=0.35)


def lower_mobilenet():
    return small_mobilenet(Convention("same_lower"))


def deep_resnet():
    """Stages long enough to become loops."""
    return resnet_v2((3, 6, 5), Convention("same", fill=LOWEST))


def bare_resnet():
    """Units that add their input, among others that add a shortcut of one or another value."""
    return resnet_v2((3, 6, 5), identity=False)


def odd_pools():
    """Averages that torch lacks, a container with two outputs, a sum of three, a join at the root."""
    w = Writer()
    w.conv("stem/conv", 4, 3, 2, bias=True)
    left = w.add("stem/left", AvgPool(Window((3, 3), (2, 2)), Convention("same")))
    right = w.add("stem/right", AvgPool(Window((2, 2), (2, 2)), Convention(rounding="ceil")), "stem/conv")
    valid = w.add("middle", MaxPool(Window((3, 3), (2, 2)), Convention("same", fill=LOWEST)), "stem/conv")
    w.add("sum", Add(), left, right, valid)
    caffe = Convention("explicit", (0, 2, 0, 2), average="clipped_window", rounding="ceil")
    w.add("counted", AvgPool(Window((3, 3), (2, 2)), caffe))
    other = w.add("rounded", AvgPool(Window((3, 3), (2, 2)), Convention("explicit", (0, 2, 0, 2))), "sum")
    w.add("join", ConcatChannels(), "counted", other)
    return w.graph()


def unlike_uses():
    """Uses of one block that no condition on its arguments tells apart: one adds, one joins."""
    w = Writer()
    for path, op in (("a", Add()), ("b", ConcatChannels()), ("c", Add())):
        w.scope(path, "mix")
        source = w.last
        w.conv(f"{path}/conv", w.width[source], 3)
        w.add(f"{path}/out", op, source, f"{path}/conv")
    return w.graph()


def read_twice():
    """A row of blocks long enough to become a loop, one in its middle read again behind the last."""
    w = Writer()
    for index in range(12):
        w.scope(f"block{index}", "unit", filters=4)
        w.conv(f"block{index}/conv", 4, 3)
        w.add(f"block{index}/relu", Relu())
    w.add("join", ConcatChannels(), "block5/relu", "block11/relu")
    return w.graph()


MAKERS = [
    small_mobilenet,
    slim_mobilenet,
    lower_mobilenet,
    resnet_v2,
    deep_resnet,
    bare_resnet,
    inception,
    odd_pools,
    unlike_uses,
    fine_tuned,
    read_twice,
]


@cache
def tensors_of(make):
    if make in (odd_pools, unlike_uses):
        random = np.random.default_rng(0)
        return {
            p: {r: random.standard_normal(s) for r, s in roles.items()}
            for p, roles in tensor_shapes(make()).items()
        }
    return calibrated_tensors(make(), (32, 32), 1)


def written(folder, make, size=ANY, dtype="float32"):
    plan = make_plan(make(), size, framework.CAPABILITIES)
    framework.write(folder, plan, tensors_of(make), {}, dtype, {})
    return loaded_from(folder), plan


def loaded_from(folder):
    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("size", [ANY, SIZE], ids=["any", "fixed"])
def test_the_same_keys_and_the_same_bits_as_the_built_module(tmp_path, make, size):
    module, plan = written(tmp_path, make, size)
    loaded, built = module.load(), framework.ENGINE.build(plan, tensors_of(make), {}, "float32")
    assert set(loaded.state_dict()) == set(built.state_dict())
    assert not loaded.training
    for rows, columns in [SIZE] if plan.only_size else [SIZE, (32, 32), (47, 34)]:
        x = torch.from_numpy(smooth_images(3, (rows, columns), 3, 2))
        with torch.inference_mode():
            found = loaded(x)
            assert torch.equal(found, built(x))
        assert found.std() > 0


@pytest.mark.parametrize("make", [*MAKERS, mobilenet_v2])
@pytest.mark.parametrize("size", [ANY, SIZE], ids=["any", "fixed"])
def test_formatted_as_ruff_would(tmp_path, make, size):
    path = tmp_path / "model.py"
    path.write_text(model_source(make_plan(make(), size, framework.CAPABILITIES)))
    expect_formatted(path)


def test_a_file_that_calls_the_modules_otherwise(tmp_path):
    graph, tensors = small_mobilenet(), tensors_of(small_mobilenet)
    plan = make_plan(graph, ANY, framework.CAPABILITIES)
    layers = {path: f"features.{i}" for i, path in enumerate(tensor_shapes(graph))}
    arrays = {
        names[0]: tensors[path].get(role, np.zeros((), np.int64))
        for path, layer in layers.items()
        for role, names in get_dialect("torch").tensor_names(graph, graph.by_path[path], layer).items()
    }
    stock_libraries("torch", None)["torchvision"].write(
        tmp_path, plan, StockModel("mobilenet_v2", 10, SIZE), arrays, layers, "float32"
    )
    found, built = (
        loaded_from(tmp_path).load().state_dict(),
        framework.ENGINE.build(plan, tensors, {}, "float32").state_dict(),
    )
    assert found.keys() == built.keys() and all(torch.equal(found[name], built[name]) for name in built)
    read = framework.read_port(tmp_path, plan, layers)
    assert all(
        np.array_equal(read[path][role], array)
        for path, roles in tensors.items()
        for role, array in roles.items()
    )
    expect_formatted(tmp_path / "model.py")


@pytest.mark.parametrize("make", MAKERS)
def test_imports_torch_safetensors_and_the_standard_library_only(make):
    tree = ast.parse(model_source(make_plan(make(), ANY, framework.CAPABILITIES)))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} - sys.stdlib_module_names == {"torch", "safetensors"}


def test_mobilenet_v2_reads_like_the_paper():
    source = model_source(make_plan(mobilenet_v2(), (224, 224), framework.CAPABILITIES))
    assert (
        "class InvertedResidual(nn.Module):\n    def __init__(self, channels, filters, stride, expansion):"
        in source
    )
    assert "self.residual = channels == filters" in source
    assert "(24, 2, 6, 2),\n" in source, "a row of the paper's table: filters, stride, expansion, repeats"
    assert "conv_pad=nn.ZeroPad2d((0, 1, 0, 1)) if stride > 1 else nn.Identity()," in source
    assert source.count("\n") < 125


def test_a_fine_tuned_model_reads_as_a_person_would_write_it():
    source = model_source(make_plan(fine_tuned(), ANY, framework.CAPABILITIES))
    assert "self.pixels = Affine(scale=0.3333333333333333, offset=-0.14285714285714285)\n" in source
    assert "scale=[4.366812227074235, 4.464285714285714, 4.444444444444445],\n" in source
    assert "shifted=Affine(offset=-0.7),\n" in source
    head = source[source.index("self.head = chain(") :]
    lines = [
        "pool=nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten()),",
        "norm=BatchNorm1d(8),",
        "dense1=nn.Linear(8, 16),",
        "relu1=nn.ReLU(inplace=True),",
        "norm1=BatchNorm1d(16, affine=False),",
        "dense2=nn.Linear(16, 12, bias=False),",
        "logits=nn.Linear(12, 5),",
    ]
    assert [line for line in lines if f"            {line}\n" not in head] == []
    assert "\n\nBatchNorm1d = partial(nn.BatchNorm1d, eps=0.001, momentum=0.001)\n" in source
    assert "norm=nn.BatchNorm2d(8, eps=0.001, momentum=0.001),\n" in source, "the only one of its kind"
    assert "float32" not in source


def test_constants_of_blocks_are_their_arguments():
    w = Writer()
    for index, constants in enumerate(
        [(0.1, 0.2, 0.3), (0.5, 0.6, 0.7), (0.1, 0.2, 0.3), (2.5,), (0.1,), (0.2,)]
    ):
        path = f"block{index}"
        w.scope(path, "scaled", number=index)
        w.conv(f"{path}/conv", 3, 3)
        w.add(f"{path}/affine", Affine(constants, (0.1,)))
    expect_the_same(w.graph())
    assert model_source(make_plan(w.graph(), ANY, framework.CAPABILITIES)).count("class Scaled(") == 1


def expect_the_same(graph):
    random = np.random.default_rng(0)
    tensors = {
        p: {r: random.uniform(0.1, 1, s) for r, s in roles.items()}
        for p, roles in tensor_shapes(graph).items()
    }
    plan = make_plan(graph, ANY, framework.CAPABILITIES)
    expect_the_same_as_built(plan, tensors, smooth_images(3, SIZE, 3, 2).astype(np.float64))


def test_a_model_loaded_in_float32_and_made_double_is_as_exact_as_one_built_in_float64(tmp_path):
    module, plan = written(tmp_path, fine_tuned)
    exact = framework.ENGINE.build(plan, framework.read_port(tmp_path, plan, {}), {}, "float64")
    model = module.load().double()
    x = torch.from_numpy(smooth_images(3, SIZE, 3, 2)).double()
    with torch.inference_mode():
        assert torch.equal(model(x), exact(x))


def test_a_long_resnet_is_no_longer_than_a_short_one():
    short, long = (
        model_source(make_plan(resnet_v2(d), ANY, framework.CAPABILITIES)) for d in ((6, 6), (8, 36))
    )
    assert short.count("\n") == long.count("\n")


def test_a_shortcut_that_some_units_lack_stands_for_their_input():
    source = model_source(make_plan(bare_resnet(), ANY, framework.CAPABILITIES))
    assert "    def __init__(self, channels, width, stride):\n" in source
    assert "        shortcut = self.shortcut(x if self.shortcut_from_input else out)\n" in source
    assert "        return shortcut + self.conv3(out)\n" in source


@pytest.mark.parametrize("recipe", all_recipes(None), ids=lambda recipe: recipe.architecture)
def test_every_variant_reads_as_a_person_would_write_it(recipe):
    for variant in recipe.variants:
        zoo = next(iter(recipe.zoos_of(variant).values()))
        plan = make_plan(
            expand(Member(recipe, variant, zoo)),
            recipe.native_size(recipe.variants[variant]),
            framework.CAPABILITIES,
        )
        source = model_source(plan)
        assert source.count("\n") < 200, variant
        # At one size, SAME can pad some strides' odd maps alike on both sides and others' even maps not: no
        # stride says which.
        strided = [
            node.path
            for node in plan.graph.nodes
            if (site := site_of(node.op)) and max(site.window.stride) > 1
        ]
        fronts = {plan.realisations[path].front is None for path in strided}
        assert set(re.findall(r"with_\w+", source)) <= ({"with_conv_pad"} if len(fronts) > 1 else set()), (
            variant
        )
        assert source.count("add_module") <= 1, f"{variant}: all stages are made alike"
        # Three of a transformer's or a ConvNeXt's are not in the way.
        norms = re.sub(r"LayerNorm(2d)?\(.*", "", source)
        stated = re.findall(r"eps=[^,)]+", norms)
        assert len(stated) == len(set(stated)), variant
        wrappers = [
            name for name, layers in made_by_class(source).items() if len(layers) == 1 and name != "Model"
        ]
        assert not wrappers, f"{variant}: a class around one layer"


def made_by_class(source):
    """The names that each class sets on itself as it is made."""
    return {
        found.name: {
            node.attr
            for node in ast.walk(found.body[0])
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        for found in ast.parse(source).body
        if isinstance(found, ast.ClassDef) and found.name not in OWN_LAYERS
    }


def test_resnet50v2_reads_as_a_person_would_write_it():
    recipe = find_recipe("resnet50v2")
    graph = expand(recipe.member("resnet50v2", "keras"))
    source = model_source(make_plan(graph, (224, 224), framework.CAPABILITIES))
    lines = [
        "BatchNorm2d = partial(nn.BatchNorm2d, eps=1.001e-05, momentum=0.01)",
        "def stage(channels, width, units, stride):",
        "    for index in range(1, units + 1):",
        "        block = Unit(channels if index == 1 else 4 * width, width, stride if index == units else 1)",
        "            # the source's pool pads with zeros; onnxruntime drops a pad of 0.0, not one of -0.0",
        "            pool_pad=nn.ConstantPad2d((1, 1, 1, 1), -0.0),",
        "        self.stage1 = stage(64, 64, units=3, stride=2)",
        "        self.stage4 = stage(1024, 512, units=3, stride=1)",
        '    model.load_state_dict(load_file(folder / "model.safetensors"), assign=True)',
    ]
    assert [line for line in lines if f"{line}\n" not in source] == []
    assert source.count("\n") <= 85
    # A plan made from port.json gives the text that was written: otherwise verify would call every model.py
    # another one.
    read = make_plan(from_record(to_record(graph)), ANY, framework.CAPABILITIES)
    assert model_source(read) == source


def test_a_chain_that_one_block_has_is_no_class_and_a_pool_in_it_no_chain():
    recipe = find_recipe("resnet50")
    graph = expand(recipe.member("resnet50", "slim"))
    source = model_source(make_plan(graph, (224, 224), framework.CAPABILITIES))
    assert "class Shortcut" not in source
    assert "            self.shortcut = nn.MaxPool2d(1, stride=2)\n" in source


def test_rows_whose_middle_differs_are_no_stages():
    """A function of a row's first and last part cannot tell its middle; rows of all lengths from one to five
    are compared.
    """
    w = Writer()
    for stage, widths in enumerate([(4, 4, 4), (4,), (8, 8), (8, 8, 8, 8, 8), (4, 8, 8, 4)], 1):
        for unit, width in enumerate(widths):
            w.scope(f"stage{stage}/unit{unit}", "unit", width=width)
            w.conv(
                f"stage{stage}/unit{unit}/conv", width, 3, 2 if unit == len(widths) - 1 and stage > 3 else 1
            )
            w.norm(f"stage{stage}/unit{unit}/norm")
    graph = w.graph()
    expect_the_same(graph)
    assert "def stage" not in model_source(make_plan(graph, ANY, framework.CAPABILITIES))
    shorter = Graph(
        tuple(node for node in graph.nodes if "stage5" not in node.path), 3, "stage4/unit4/norm", graph.scopes
    )
    expect_the_same(shorter)
    assert "def stage" in model_source(make_plan(shorter, ANY, framework.CAPABILITIES))


@pytest.mark.parametrize("zoo", ["keras", "torchvision"])
@pytest.mark.parametrize("size", [ANY, (224, 224), (225, 201)], ids=["any", "224", "odd"])
def test_the_recipes_give_few_lines(zoo, size):
    recipe = find_recipe("mobilenet_v2")
    for variant in (
        (v for v in recipe.variants if zoo in recipe.zoos_of(v)) if zoo == "keras" else ["mobilenet_v2"]
    ):
        graph = expand(recipe.member(variant, zoo))
        source = model_source(make_plan(graph, size, framework.CAPABILITIES))
        assert source.count("\n") < (165 if "SamePad2d" in source else 125)
        assert source.count("class InvertedResidual(") == 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_stored_types_survive(tmp_path, dtype):
    module, plan = written(tmp_path, small_mobilenet, dtype=dtype)
    state = module.load().state_dict()
    built = framework.ENGINE.build(plan, tensors_of(small_mobilenet), {}, dtype).state_dict()
    back = framework.read_port(tmp_path, plan, {})
    for name, value in state.items():
        assert value.dtype == built[name].dtype
        assert torch.equal(value, built[name])
    assert state["stem.conv.weight"].dtype == getattr(torch, dtype)
    assert back["stem/conv"]["kernel"].dtype.name == dtype
    assert np.array_equal(
        back["stem/conv"]["kernel"].astype(np.float64), state["stem.conv.weight"].double().numpy()
    )
    assert set(back["stem/norm"]) == {"gamma", "beta", "mean", "variance", "batches"}


def test_a_transposed_view_is_written_as_it_reads(tmp_path):
    plan = make_plan(small_mobilenet(), ANY, framework.CAPABILITIES)
    kernel = tensors_of(small_mobilenet)["stem/conv"]["kernel"]
    view = np.ascontiguousarray(kernel.transpose(2, 3, 1, 0)).transpose(3, 2, 0, 1)
    tensors = {**tensors_of(small_mobilenet), "stem/conv": {"kernel": view}}
    framework.write(tmp_path, plan, tensors, {}, "float32", {})
    assert np.array_equal(framework.read_port(tmp_path, plan, {})["stem/conv"]["kernel"], kernel)


def test_both_files_are_for_the_same_readers(tmp_path):
    written(tmp_path, small_mobilenet)
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "model.py").stat().st_mode


def test_the_counter_of_batches_may_be_absent(tmp_path):
    from safetensors.numpy import load_file, save_file

    module, _ = written(tmp_path, small_mobilenet)
    path = tmp_path / "model.safetensors"
    save_file(
        {key: value for key, value in load_file(path).items() if not key.endswith("num_batches_tracked")},
        path,
    )
    state = module.load(tmp_path).state_dict()
    assert state["stem.norm.num_batches_tracked"] == 0
    assert not any(value.is_meta for value in state.values())


def test_a_damaged_file_is_refused(tmp_path):
    module, _ = written(tmp_path, small_mobilenet)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(SafetensorError):
        module.load()


def test_a_fixed_size_is_refused_elsewhere_and_in_a_trace(tmp_path):
    module, plan = written(tmp_path, small_mobilenet, (32, 32))
    assert plan.only_size == (32, 32)
    model, x = module.load(), torch.ones(1, 3, 32, 32)
    with pytest.raises(ValueError, match="32x32 only, got"):
        model(torch.ones(1, 3, 33, 31))
    with pytest.warns(DeprecationWarning, match=r"torch\.jit") as caught:
        traced = torch.jit.trace(model, x, check_trace=False)
    assert not [warning for warning in caught if issubclass(warning.category, TracerWarning)]
    assert torch.equal(traced(x), model(x))
    with pytest.raises(RuntimeError, match="unflatten"):
        traced(torch.ones(1, 3, 33, 31))


@pytest.mark.parametrize("make", [pytest.param(small_mobilenet, marks=pytest.mark.full), fine_tuned])
def test_any_size_traced_and_exported(tmp_path, make):
    model = written(tmp_path, make)[0].load()
    x = torch.from_numpy(smooth_images(3, (32, 32), 3, 2))
    with pytest.warns(DeprecationWarning, match=r"torch\.jit") as caught:
        traced = torch.jit.trace(model, x, check_trace=False)
    assert not [warning for warning in caught if issubclass(warning.category, TracerWarning)]
    dynamic = (
        {2: torch.export.Dim("rows", min=24, max=512), 3: torch.export.Dim("columns", min=24, max=512)},
    )
    exported = torch.export.export(model, (x,), dynamic_shapes=dynamic).module()
    for size in [(32, 32), (33, 31), (47, 34)]:
        x = torch.from_numpy(smooth_images(3, size, 3, 2))
        with torch.inference_mode():
            assert torch.equal(traced(x), model(x))
            assert torch.equal(exported(x), model(x))


def test_a_node_above_others(tmp_path):
    conv = Conv(3, Window((1, 1)), Convention())
    graph = Graph((Node("a/norm", BatchNorm(1e-3, 0.1), (INPUT,)), Node("a", conv, ("a/norm",))), 3, "a")
    model = model_of(model_source(make_plan(graph, ANY, framework.CAPABILITIES)))
    assert {"a.weight", "a.norm.weight"} <= set(model.state_dict())


TAKEN = [f"a/{name}" for name in dir(torch.nn.Module()) if not name.startswith("_")]


@pytest.mark.parametrize("path", ["layers/0", "a/class", "a/b-c", *TAKEN])
def test_a_path_that_is_no_free_python_name_is_refused(path):
    graph = Graph((Node(path, Relu(), (INPUT,)),), 3, path, (BlockScope("a", "block", {}),))
    with pytest.raises(GraphError, match="Python names"):
        model_source(make_plan(graph, ANY, framework.CAPABILITIES))
