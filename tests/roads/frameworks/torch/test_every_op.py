"""Every op of porter.graph in torch: the names of its tensors, its types, and twins."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from porter.frameworks.torch.destination import DESTINATION as framework
from porter.frameworks.torch.layer_steps import make_steps
from porter.frameworks.torch.spellings import FUNCTIONS, WITH_TENSORS
from porter.frameworks.torch.state import canonical_tensors, state_arrays
from porter.graph import INPUT, Graph, LocalResponseNorm, Node, Resize
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.frameworks.every_op import (
    FLATTENED,
    OF_MAPS,
    RULES,
    SIZE,
    every_op,
    images,
    tensors_of,
)
from tests.support.frameworks.sayable import expect_equal_tensors
from tests.support.oracle import evaluate

GRAPH = every_op((*OF_MAPS, *FLATTENED))


@cache
def built(graph, size=SIZE):
    return framework.ENGINE.build(
        make_plan(graph, size, framework.CAPABILITIES), tensors_of(graph), {}, "float64"
    )


def test_tensors_have_the_names_of_torchs_own_modules():
    model, tensors = built(GRAPH), tensors_of(GRAPH)
    state = state_arrays(GRAPH, tensors)
    assert state.keys() == model.state_dict().keys()
    layers = {
        step.path: step.layer.kind for step in make_steps(make_plan(GRAPH, SIZE, framework.CAPABILITIES))
    }
    held = {
        kind
        for path, kind in layers.items()
        if kind not in FUNCTIONS and model.get_submodule(path).state_dict()
    }
    assert held == WITH_TENSORS
    read = canonical_tensors(GRAPH, {key: array for key, array in state.items() if "num_batches" not in key})
    expect_equal_tensors(read, tensors)


def test_several_outputs_are_a_tuple_in_the_graphs_order():
    model = built(GRAPH)
    found, taps = model(torch.from_numpy(images())), framework.ENGINE.run(model, images(), GRAPH.outputs)
    assert len(found) == len(GRAPH.outputs) > 100
    assert all(
        np.array_equal(value.numpy(force=True), taps[path])
        for value, path in zip(found, GRAPH.outputs, strict=True)
    )
    assert built(replace(GRAPH, further=()))(torch.from_numpy(images())).dim() == 4


def test_a_twin_shares_every_parameter():
    model = built(GRAPH)
    twin = framework.ENGINE.with_other_pads(model, make_plan(GRAPH, SIZE, framework.CAPABILITIES))
    assert twin is not None
    assert {id(value) for value in twin.parameters()} == {id(value) for value in model.parameters()}
    x = torch.from_numpy(images())
    assert all(torch.equal(value, other) for value, other in zip(twin(x), model(x), strict=True))


@pytest.mark.full
def test_exported_at_every_size_and_run_with_channels_last():
    graph = every_op()
    model = built(graph, ANY)
    dynamic = ({2: torch.export.Dim("rows", min=6, max=64), 3: torch.export.Dim("columns", min=6, max=64)},)
    exported = torch.export.export(model, (torch.from_numpy(images()),), dynamic_shapes=dynamic).module()
    with torch.inference_mode():
        for size in (SIZE, (8, 11)):
            x = torch.from_numpy(images(size))
            for found, wanted in zip(exported(x), model(x), strict=True):
                assert torch.equal(found, wanted)
            for found, wanted in zip(model(x.to(memory_format=torch.channels_last)), model(x), strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-13)


def test_a_scale_that_lacks_a_little_to_a_fraction():
    """0.6 times five is three, also where porter's own layer counts; a float32's 0.6 is another number."""
    ops = [
        Resize("linear", (scale, 1.0), coordinates=rule)
        for scale in (0.6, float(np.float32(0.6)))
        for rule in RULES
    ]
    nodes = [Node(f"resize_{place}", op, (INPUT,)) for place, op in enumerate(ops)]
    graph, x = Graph(tuple(nodes), 3, nodes[-1].path), np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    found, wanted = (
        framework.ENGINE.run(built(graph), x, [node.path for node in nodes]),
        evaluate(graph, {}, x),
    )
    assert all(np.abs(found[node.path] - wanted[node.path]).max() <= 1e-15 for node in nodes)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_op_keeps_the_type_of_the_model(dtype):
    # On a CPU, torch's LocalResponseNorm takes no bfloat16.
    graph = every_op([op for op in OF_MAPS if dtype == "float32" or not isinstance(op, LocalResponseNorm)])
    model = framework.ENGINE.build(
        make_plan(graph, SIZE, framework.CAPABILITIES), tensors_of(graph), {}, dtype
    )
    found = model(torch.from_numpy(images()).to(getattr(torch, dtype)))
    assert {value.dtype for value in found} == {getattr(torch, dtype)}
