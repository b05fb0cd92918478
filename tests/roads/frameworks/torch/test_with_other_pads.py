"""Modules that differ only in their pads and share their weights."""

from __future__ import annotations

import torch

from porter.frameworks import get_destination
from porter.graph import Affine, Graph, Node
from porter.graph.pads import with_conventions
from porter.graph.plan import make_plan
from porter.padding import LOWEST, Convention
from tests.support.frameworks.torch.graphs import resnet_v2
from tests.support.standin import calibrated_tensors, smooth_images

SIZE = (32, 32)
OTHER = {"stem/conv": Convention("same"), "stem/pool": Convention("same", fill=LOWEST)}


def scaled(graph: Graph) -> Graph:
    """The graph with constants of its own in front, which no state_dict holds."""
    first, *others = graph.nodes
    scale = Node("scale", Affine((0.5, 1.0, 2.0), (0.1,)), first.inputs)
    return Graph((scale, Node(first.path, first.op, ("scale",)), *others), graph.channels, graph.output)


def test_a_twin_computes_its_own_plan_with_the_weights_of_the_other() -> None:
    framework, graph = get_destination("torch"), scaled(resnet_v2())
    tensors = calibrated_tensors(graph, SIZE, 1)
    plans = [
        make_plan(padded, SIZE, framework.CAPABILITIES) for padded in (graph, with_conventions(graph, OTHER))
    ]
    model, alone = (framework.ENGINE.build(plan, tensors, {}, "float32", "cpu") for plan in plans)
    model = model.to(memory_format=torch.channels_last)
    twin = framework.ENGINE.with_other_pads(model, plans[1])
    assert twin is not None
    images = torch.from_numpy(smooth_images(3, SIZE, 5, 2))
    with torch.inference_mode():
        found, wanted, other = twin(images), alone(images), model(images)
    assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-6) and not torch.allclose(found, other, rtol=1e-2)
    assert not twin.training
    held = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    assert {name: parameter.data_ptr() for name, parameter in twin.named_parameters()} == held


def test_keras_models_share_nothing() -> None:
    framework, graph = get_destination("tf"), resnet_v2()
    assert framework.ENGINE.with_other_pads(None, make_plan(graph, SIZE, framework.CAPABILITIES)) is None
