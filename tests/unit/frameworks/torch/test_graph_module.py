from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch.jit._trace import TracerWarning

from porter.base.errors import GraphError, MappingError, UsageError
from porter.frameworks.torch.destination import DESTINATION as framework
from porter.frameworks.torch.running import run_model
from porter.graph import INPUT, BatchNorm, Conv, Graph, Node, Relu, tensor_shapes
from porter.graph.plan import make_plan
from porter.padding import ANY, Convention, Window
from tests.support.frameworks.torch.graphs import (
    fine_tuned,
    inception,
    mobilenet_v2,
    resnet_v2,
    small_mobilenet,
)
from tests.support.standin import calibrated_tensors, smooth_images

SIZES = [(32, 32), (33, 31), (47, 34)]


@cache
def calibrated(make):
    return calibrated_tensors(make(), (32, 32), 1)


def built(make, size, dtype="float64"):
    """`make` gives the graph, which has stand-in weights."""
    return framework.ENGINE.build(
        make_plan(make(), size, framework.CAPABILITIES), calibrated(make), {}, dtype, "cpu"
    )


def build(graph, tensors):
    return framework.ENGINE.build(
        make_plan(graph, ANY, framework.CAPABILITIES), tensors, {}, "float64", "cpu"
    )


def images(size, dtype=torch.float64):
    return torch.from_numpy(smooth_images(3, size, 5, 2)).to(dtype)


def test_keys_are_paths_with_torch_own_names():
    keys = set(built(small_mobilenet, ANY).state_dict())
    assert {
        "stem.conv.weight",
        "block3.expand.conv.weight",
        "block3.expand.norm.running_mean",
        "head.logits.bias",
    } <= keys
    assert "block3.expand.norm.num_batches_tracked" in keys
    assert "block0.expand.conv.weight" not in keys
    assert not any(part in key for key in keys for part in ("pad", "relu", "out", "pool"))


def test_a_norm_without_scale_has_ones():
    assert "gamma" not in calibrated(inception)["conv1/bn"]
    assert torch.equal(
        built(inception, ANY).state_dict()["conv1.bn.weight"], torch.ones(8, dtype=torch.float64)
    )


def three_blocks():
    return mobilenet_v2(settings=[(1, 8, 1, 1), (6, 16, 2, 2)], stem=8)


@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(make, marks=pytest.mark.full) for make in (three_blocks, fine_tuned)),
        resnet_v2,
        inception,
    ],
)
def test_traced_exported_and_compiled_at_every_size(make):
    model = built(make, ANY)
    with pytest.warns(DeprecationWarning, match=r"torch\.jit") as caught:
        traced = torch.jit.trace(model, images(SIZES[0]), check_trace=False)
    assert not [warning for warning in caught if issubclass(warning.category, TracerWarning)]
    dynamic = {2: torch.export.Dim("rows", min=24, max=512), 3: torch.export.Dim("columns", min=24, max=512)}
    exported = torch.export.export(model, (images(SIZES[1]),), dynamic_shapes=({**dynamic},)).module()
    compiled = (
        torch.compile(model, backend="eager", dynamic=True) if make in (three_blocks, fine_tuned) else model
    )
    with torch.no_grad():
        for size in SIZES:
            x = images(size)
            wanted = model(x)
            for other in (traced, exported, compiled):
                assert torch.equal(other(x), wanted)


def test_a_fixed_size_is_refused_elsewhere_and_in_a_trace():
    model = built(small_mobilenet, (32, 32))
    with pytest.raises(UsageError, match="32x32 only, got 33x31"):
        model(images((33, 31)))
    with pytest.warns(DeprecationWarning, match=r"torch\.jit") as caught:
        traced = torch.jit.trace(model, images((32, 32)), check_trace=False)
    assert not [warning for warning in caught if issubclass(warning.category, TracerWarning)]
    assert torch.equal(traced(images((32, 32))), model(images((32, 32))))
    for size in [(33, 31), (1, 1), (32, 1), (16, 64), (64, 64)]:
        with pytest.raises(RuntimeError, match="unflatten"):
            traced(images(size))


def test_a_wrong_pad_shows():
    """The stand-in weights would be no proof of pads if the logits did not move with them."""
    x = images((32, 32))
    right = built(small_mobilenet, ANY)(x)
    wrong = build(small_mobilenet(Convention("explicit", (1, 1, 1, 1))), calibrated(small_mobilenet))(x)
    assert (right - wrong).norm() > 1e-3 * right.norm()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_run_gives_maps_at_taps_in_numpy(dtype):
    model = built(small_mobilenet, ANY, dtype)
    found = framework.ENGINE.run(
        model, smooth_images(3, (33, 31), 2, 2), ["stem/conv", "block2/depthwise/norm", "head/logits"]
    )
    assert found["stem/conv"].shape == (2, 8, 17, 16)
    assert found["stem/conv"].min() < -0.01, "taken before the ReLU that follows"
    assert found["head/logits"].dtype == (np.float32 if dtype == "bfloat16" else np.dtype(dtype))
    with pytest.raises(UsageError, match="no such node"):
        framework.ENGINE.run(model, smooth_images(3, (33, 31), 2, 2), ["stem/nothing"])


def test_constants_are_no_weights_and_norms_on_features_have_the_usual_keys():
    keys = set(built(fine_tuned, ANY).state_dict())
    assert not any(
        part in key for key in keys for part in ("pixels", "channels", "shifted", "scaled", "pool")
    )
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert {f"head.norm.{name}" for name in norm} <= keys
    assert {f"head.norm1.{name}" for name in norm[2:]} <= keys
    assert "head.norm1.weight" not in keys


def test_constants_are_cast_from_float64_whatever_the_model_was_before():
    x = images((33, 31))
    exact = built(fine_tuned, ANY)
    model = built(fine_tuned, ANY, "float32").half().to("cpu").float().double()
    assert model.load_state_dict(exact.state_dict()).missing_keys == []
    with torch.inference_mode():
        assert torch.equal(model(x), exact(x))
        for dtype in (torch.float32, torch.bfloat16):
            assert model.to(dtype)(x.to(dtype)).dtype == dtype


def test_tensors_that_do_not_fit_are_refused():
    graph = small_mobilenet()
    tensors = calibrated(small_mobilenet)
    with pytest.raises(MappingError, match=r"stem/conv.*got none"):
        build(graph, {**tensors, "stem/conv": {}})
    with pytest.raises(MappingError, match=r"expected a kernel of shape \(8, 3, 3, 3\), got \(8, 3, 3, 1\)"):
        build(graph, {**tensors, "stem/conv": {"kernel": tensors["stem/conv"]["kernel"][..., :1]}})
    with pytest.raises(UsageError, match="nowhere"):
        framework.ENGINE.build(
            make_plan(graph, ANY, framework.CAPABILITIES), tensors, {}, "float32", "nowhere"
        )


def test_a_node_above_others_and_a_name_that_torch_has_taken():
    conv = Conv(4, Window((1, 1)), Convention())
    nodes = (Node("a/norm", BatchNorm(1e-3, 0.1), (INPUT,)), Node("a", conv, ("a/norm",)))
    graph = Graph(nodes, 3, "a")
    tensors = {
        p: {r: np.ones(s, np.float32) for r, s in roles.items()} for p, roles in tensor_shapes(graph).items()
    }
    model = build(graph, tensors)
    assert {"a.weight", "a.norm.weight"} <= set(model.state_dict())
    taken = replace(graph, nodes=(Node("forward", Relu(), (INPUT,)),), output="forward")
    with pytest.raises(GraphError, match="already exists"):
        build(taken, {})


@pytest.mark.parametrize("name", ["outputs", "steps", "graph", "taken", "only_size", "fixed_by_pads"])
def test_a_layer_may_have_any_name_that_torch_has_not_taken(name):
    graph = Graph((Node(name, Relu(), (INPUT,)), Node("end", Relu(), (name,))), 3, "end")
    assert set(run_model(build(graph, {}), images((4, 4)).numpy(), [name, "end"])) == {name, "end"}


@pytest.mark.parametrize("make", [three_blocks, resnet_v2, inception])
def test_activations_in_place_leave_values_and_gradients_as_they_are(make):
    models = [built(make, ANY).train() for _ in range(2)]
    in_place = [module for module in models[1].modules() if getattr(module, "inplace", False)]
    assert in_place and all(module.training for module in in_place)
    for module in in_place:
        module.inplace = False
    image = images((32, 32))
    values = [model(image) for model in models]
    for value in values:
        value.square().sum().backward()
    assert torch.equal(*values)
    for ours, plain in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(ours.grad, plain.grad)
