"""model.py of graphs that nobody would draw: blocks whose uses differ in members, in what feeds them, and in
what they nest.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from porter.frameworks.torch.destination import DESTINATION as framework
from porter.graph import (
    Add,
    Affine,
    AvgPool,
    BatchNorm,
    ChannelScale,
    Clip,
    ConcatChannels,
    ConvTranspose,
    Elu,
    Gelu,
    GlobalMaxPool,
    Graph,
    HardSigmoid,
    Identity,
    LayerNorm,
    LeakyRelu,
    Maximum,
    MaxPool,
    Multiply,
    Op,
    PRelu,
    ReduceMap,
    Relu,
    Sigmoid,
    SliceChannels,
    Swish,
    tensor_shapes,
)
from porter.graph.plan import make_plan
from porter.padding import ANY, LOWEST, Convention, Window
from tests.support.frameworks.torch.generated import expect_the_same_as_built
from tests.support.frameworks.torch.graphs import SAME, Writer
from tests.support.random_graphs import UNSHRUNK, samples

STEPS = ["conv", "conv", "norm", "relu", "max_pool", "avg_pool", "container", "join", "optional", "affine"]
STEPS += ["activation", "gate", "slice", "scale", "transposed", "largest"]


def random_graph(seed: int) -> Graph:
    choose, w = random.Random(seed), Writer()
    w.conv("stem/conv", 4, 3)
    kinds = [choose.randint(0, 60), choose.randint(0, 60)]
    for number in range(choose.randint(2, 8)):
        kind = kinds[choose.random() < 0.2]
        arguments: dict[str, Any] = {
            "filters": choose.choice([4, 8]),
            "flag": choose.random() < 0.5,
            "residual": choose.random() < 0.5,
            "kind": kind,
        }
        path = choose.choice(["block", "stage/block"]) + str(number)
        w.scope(path, "block", **arguments)
        random_block(w, path, nested=True, **arguments)
    return w.graph()


def random_block(  # noqa: C901 - a case for each step
    w: Writer, path: str, nested: bool, filters: int, flag: bool, residual: bool, kind: int
) -> None:
    """Uses of one `kind` have the same steps except for those that `flag` and `residual` decide on."""
    choose, values = random.Random(kind), [w.last]
    for number in range(choose.randint(1, 5)):
        name = f"{path}/part{number}"
        match choose.choice(STEPS):
            case "conv":
                width, kernel = filters * choose.choice([1, 2]), choose.choice([1, 3])
                w.conv(name, width, kernel, source=choose.choice(values), bias=choose.random() < 0.5)
            case "norm":
                w.add(name, BatchNorm(1e-3, 0.1), choose.choice(values))
            case "affine":
                own = choose.random() < 0.5
                source = choose.choice(values)
                scale = tuple(choose.uniform(0.5, 2.0) for _ in range(w.width[source] if own else 1))
                w.add(name, Affine(scale, (choose.choice([0.0, 0.1]),)), source)
            case "relu":
                w.add(name, Relu(), choose.choice(values))
            case "max_pool":
                w.add(name, MaxPool(Window((3, 3)), Convention("same", fill=LOWEST)), choose.choice(values))
            case "avg_pool":
                w.add(name, AvgPool(Window((2, 2)), SAME), choose.choice(values))
            case "activation":
                slope = choose.choice([0.1, 0.1 * filters])
                kinds: list[Op] = [
                    LeakyRelu(slope),
                    Clip(-slope, slope),
                    Elu(slope),
                    HardSigmoid(slope),
                    PRelu(),
                    Swish(),
                    Gelu(),
                ]
                w.add(name, choose.choice(kinds), choose.choice(values))
            case "gate":
                value = choose.choice(values)
                w.add(f"{name}/pool", GlobalMaxPool(keep=True), value)
                w.conv(f"{name}/conv", w.width[value], bias=flag)
                w.add(f"{name}/gate", Sigmoid() if flag else Swish())
                w.add(f"{name}/scale", Multiply(), *choose.sample([value, w.last], 2))
            case "slice":
                value = choose.choice(values)
                width = w.width[value]
                w.add(
                    name,
                    choose.choice([SliceChannels(0, (3 * width + 3) // 4), SliceChannels(width - 1, -1, -1)]),
                    value,
                )
            case "scale":
                w.add(name, choose.choice([LayerNorm(1e-3), ChannelScale()]), choose.choice(values))
            case "transposed":
                cut = choose.choice([(1, 1, 1, 1), (0, 2, 1, 1), (1, 1, 2, 0)])
                w.add(
                    name,
                    ConvTranspose(filters, Window((3, 3)), cut, bias=choose.random() < 0.5),
                    choose.choice(values),
                )
            case "largest":
                value = choose.choice(values)
                w.add(name, Maximum(), value, w.add(f"{name}_mean", ReduceMap("mean", "channels"), value))
            case "container":
                w.conv(f"{name}/conv", filters, 3, source=choose.choice(values))
                w.add(f"{name}/relu", Relu())
            case "join":
                w.add(name, ConcatChannels(), choose.choice(values), choose.choice(values))
            case "optional":
                if flag:
                    w.conv(name, w.width[values[-1]], source=values[-1])
                elif choose.random() < 0.5:
                    w.add(name, Identity(), values[0])
                else:
                    continue
        values.append(w.last)
    if nested and choose.random() < 0.5:
        arguments: dict[str, Any] = {"filters": filters, "flag": flag, "residual": residual, "kind": kind + 7}
        w.scope(f"{path}/inner", "inner", **arguments)
        random_block(w, f"{path}/inner", nested=False, **arguments)
        values.append(w.last)
    alike = [value for value in values if w.width[value] == w.width[values[-1]]]
    if residual and len(alike) > 1:
        w.add(f"{path}/out", Add(), *alike[:3])


def random_rows(seed: int) -> Graph:
    """Stages of which the first unit, the last one, another one or none differs from the others."""
    choose, w = random.Random(seed), Writer()
    special, start, prefix = (
        choose.choice([0, -1, 1, None]),
        choose.choice([0, 1, 2]),
        choose.choice(["unit", "unit", "unit0"]),
    )
    for stage in range(1, choose.randint(3, 5)):
        depth, width, other = choose.choice([1, 2, 2, 3, 6]), choose.choice([4, 8]), choose.choice([4, 8])
        widths = [width] * depth
        if special is not None and special < depth:
            widths[special] = other
        for unit, width in enumerate(widths, start):
            path = f"stage{stage}/{prefix}{unit}" if depth > 1 or start else f"stage{stage}/whole"
            w.scope(path, "unit", width=width)
            w.conv(f"{path}/conv", width, choose.choice([1, 3]) if special is None else 3)
            w.add(f"{path}/norm", BatchNorm(1e-3, 0.1))
    return w.graph()


@pytest.mark.parametrize("seed", range(80))
def test_the_same_keys_and_the_same_bits(seed):
    graph, draw = random_graph(seed) if seed < 60 else random_rows(seed), np.random.default_rng(seed)
    tensors = {
        path: {
            role: draw.standard_normal(shape) / np.prod(shape[1:])
            if role == "kernel"
            else draw.uniform(0.5, 1.5, shape)
            for role, shape in roles.items()
        }
        for path, roles in tensor_shapes(graph).items()
    }
    plan = make_plan(graph, ANY, framework.CAPABILITIES)
    (found,) = expect_the_same_as_built(plan, tensors, draw.standard_normal((1, 3, 9, 8)))
    assert found.isfinite().all()
    assert found.abs().sum() > 0


@settings(max_examples=25, deadline=None, derandomize=True, phases=UNSHRUNK)
@given(samples(framework.CAPABILITIES, most=25))
def test_graphs_of_all_ops_with_several_outputs(sample):
    expect_the_same_as_built(
        make_plan(sample.graph, sample.size, framework.CAPABILITIES), sample.tensors, sample.batch
    )
