"""Modules of flax.nnx in memory are ported by what JAX traces of them. Each is its own reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen, nnx

import porter
from porter.base.errors import PorterError, UsageError
from porter.filegraph.file_graph import Foreign
from porter.frameworks.flax.destination import DESTINATION as flax
from porter.frameworks.flax.tracing import primitives
from porter.frameworks.flax.tracing.writer import elementwise
from porter.graph import Graph
from porter.graph.plan import make_plan
from porter.graph.walks import downstream
from porter.padding import ANY
from porter.source.in_memory import save_and_read
from tests.support.frameworks.every_op import OF_MAPS, SIZE, every_op, tensors_of
from tests.support.frameworks.torch.classic_graphs import convnext, mobilenet_v3
from tests.support.frameworks.torch.graphs import inception, small_mobilenet

SIDE = 24


class Net(nnx.Module):
    """What a person writes: SAME under strides, norms, both GELUs, pools, a dropout."""

    def __init__(
        self, rngs: nnx.Rngs, ending: Callable[[Any, Any], Any] = lambda logits, maps: logits
    ) -> None:
        self.stem = nnx.Conv(3, 8, (3, 3), strides=2, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.apart = nnx.Conv(8, 8, (3, 3), strides=2, feature_group_count=8, use_bias=False, rngs=rngs)
        self.groups = nnx.GroupNorm(8, 2, rngs=rngs)
        self.drop = nnx.Dropout(0.3, rngs=rngs)
        self.head = nnx.Linear(8, 5, rngs=rngs)
        self.ending = nnx.static(ending)

    def __call__(self, images: Any) -> Any:
        maps = nnx.relu(self.norm(self.stem(images)))
        maps = nnx.max_pool(maps, (3, 3), strides=(2, 2), padding="SAME")
        maps = nnx.gelu(self.groups(self.apart(maps)))
        maps = nnx.avg_pool(maps, (2, 2), strides=(1, 1), padding="SAME", count_include_pad=False)
        logits = self.head(self.drop(nnx.gelu(maps.mean(axis=(1, 2)), approximate=False)))
        return self.ending(logits, maps)


class Transformer(nnx.Module):
    """Patches, a class token, positions, attention and a perceptron."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.patches = nnx.Conv(3, 16, (8, 8), strides=8, padding="VALID", rngs=rngs)
        self.token = nnx.Param(jnp.full((1, 1, 16), 0.3))
        self.places = nnx.Param(jnp.linspace(-1, 1, 160).reshape(1, 10, 16))
        self.before, self.between = nnx.LayerNorm(16, rngs=rngs), nnx.LayerNorm(16, epsilon=1e-5, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, 16, decode=False, rngs=rngs)
        self.wide, self.narrow = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)
        self.head = nnx.Linear(16, 5, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        tokens = self.patches(images).reshape(len(images), -1, 16)
        tokens = (
            jnp.concatenate([jnp.broadcast_to(self.token[...], (len(images), 1, 16)), tokens], axis=1)
            + self.places[...]
        )
        tokens = tokens + self.attention(self.before(tokens))
        tokens = tokens + self.narrow(nnx.gelu(self.wide(self.between(tokens))))
        return self.head(tokens[:, 0])


def seeded(module: nnx.Module) -> Any:
    """The module in eval mode, whose norms have not the usual numbers."""
    draw = np.random.default_rng(0)
    for path, variable in nnx.to_flat_state(nnx.state(module)):
        if path[-1] in ("mean", "bias", "var", "scale"):
            low, high = (0.3, 0.8) if path[-1] in ("var", "scale") else (-0.2, 0.2)
            variable[...] = jnp.asarray(draw.uniform(low, high, variable.shape), jnp.float32)
    module.eval()
    return module


def _convert(model: object, folder: Path, **how: Any) -> Any:
    return porter.convert(model, **{"to": "torch", "out": folder / "port", "overwrite": True, **how})


@pytest.fixture
def convert(in_double: None, tmp_path: Path) -> Callable[..., Any]:
    return partial(_convert, folder=tmp_path)


def test_a_module_is_its_own_reference_and_stays_as_it_is(tmp_path: Path) -> None:
    module = seeded(Net(nnx.Rngs(0)))
    before = {
        path: np.asarray(value[...]).tobytes()
        for path, value in nnx.to_flat_state(nnx.state(module, nnx.Not(nnx.RngState)))
    }
    made = _convert(module, tmp_path, example=jnp.zeros((1, SIDE, SIDE, 3)), input_size="any")
    assert before == {
        path: np.asarray(value[...]).tobytes()
        for path, value in nnx.to_flat_state(nnx.state(module, nnx.Not(nnx.RngState)))
    }
    double = made.verdict.user_proof.parities[-1]
    assert double.dtype == "float64" and len(double.sizes) >= 2 and double.reference == "the model Net itself"
    ops = {node.path: node.op.name for node in made.port.plan.graph.nodes}
    assert {"stem", "norm", "apart", "head"} <= ops.keys(), ops
    assert [*ops.values()].count("gelu") == 2 and {"batch_norm", "group_norm", "avg_pool"} <= {*ops.values()}
    photos = np.random.default_rng(1).standard_normal((2, 31, 26, 3)).astype("float32")
    import torch

    with torch.no_grad():
        found = porter.load(made.port.folder)(torch.from_numpy(photos.transpose(0, 3, 1, 2)))
    assert np.allclose(found, module(photos), rtol=0, atol=1e-5)


@pytest.mark.full
class OfLinen(linen.Module):
    """A module of linen, with a norm and a dropout."""

    @linen.compact
    def __call__(self, images: Any, train: bool = False) -> Any:
        maps = linen.relu(linen.BatchNorm(not train)(linen.Conv(8, (3, 3), strides=2)(images)))
        return linen.Dense(5)(linen.Dropout(0.3, deterministic=not train)(maps).mean((1, 2)))


def test_a_module_of_linen_in_a_bridge(convert: Callable[..., Any]) -> None:
    """The bridge draws random numbers at each call, which no output depends on."""
    images = jnp.asarray(np.random.default_rng(0).random((2, SIDE, SIDE, 3), np.float32))
    variables = OfLinen().init(jax.random.key(1), images)
    module = nnx.bridge.ToNNX(OfLinen(), rngs=nnx.Rngs(0))
    with pytest.raises(UsageError, match=r"no variables yet \(call model\.lazy_init"):
        convert(module, input_size=SIDE)
    module.lazy_init(images)
    nnx.update(module, nnx.bridge.variables.linen_vars_to_nnx_attrs(variables))
    made = convert(module, input_size=SIDE)
    assert made.proof.ok and made.port.record.source.file == "OfLinen"
    with torch.no_grad():
        found = made.model()(torch.from_numpy(np.array(images)).permute(0, 3, 1, 2)).numpy()
    assert np.abs(found - OfLinen().apply(variables, images)).max() <= 1e-5


def test_a_transformer(convert: Callable[..., Any]) -> None:
    made = convert(
        seeded(Transformer(nnx.Rngs(0))), to="flax", example=np.zeros((1, SIDE, SIDE, 3), np.float32)
    )
    ops = [node.op.name for node in made.port.plan.graph.nodes]
    assert ops.count("layer_norm") == 2 and "softmax" in ops and "gelu" in ops, ops
    assert made.verdict.user_proof.parities[-1].dtype == "float64"


def test_a_wrong_reading_is_told_by_the_module(
    convert: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that porter reads is another than the module: only the module itself knows."""
    monkeypatch.setitem(primitives._WRITES, "tanh", elementwise("Erf"))
    with pytest.raises(PorterError, match="not the function of the model Net itself"):
        convert(seeded(Net(nnx.Rngs(0))), input_size=SIDE)


@pytest.mark.parametrize(
    ("ending", "outputs"),
    [
        pytest.param(lambda logits, maps: (maps, logits), 2, marks=pytest.mark.full),
        pytest.param(lambda logits, maps: {"logits": logits}, 1, marks=pytest.mark.full),
    ],
)
def test_what_a_module_returns_is_its_outputs_in_order(
    convert: Callable[..., Any], ending: Any, outputs: int
) -> None:
    made = convert(seeded(Net(nnx.Rngs(0), ending)), input_size=SIDE)
    assert len(made.port.plan.graph.outputs) == outputs


def first(maps: Any) -> Any:
    """Maps with torch's axes."""
    return maps.transpose(0, 3, 1, 2)


class Ended(nnx.Module):
    """Two convolutions, the first with weights that are computed at each call, with numbers that are no
    variables, and an ending.
    """

    def __init__(self, ending: Callable[[Ended, Any], Any], norm: Any = nnx.WeightNorm) -> None:
        rngs = nnx.Rngs(0)
        self.one = norm(nnx.Conv(3, 14, (3, 3), padding="VALID", rngs=rngs), rngs=rngs)
        self.two = nnx.Conv(14, 14, (3, 3), rngs=rngs)
        self.mean = jnp.linspace(-1, 1, 3)
        self.ending = nnx.static(ending)

    def __call__(self, images: Any) -> Any:
        return self.ending(self, self.one(images - self.mean))


def every_order(net: Ended, maps: Any) -> Any:
    """Values with the axes that torch gives them and with JAX's, whose sizes are alike."""
    bent, torchs = jnp.tanh(maps), first(jnp.tanh(maps))
    return {
        "a number of each image": maps.mean((1, 2))[:, 0],
        "maps": (bent, maps, net.two(bent)),
        "maps with torch's axes": jax.nn.relu(first(maps * 2)),
        "from inner maps with torch's axes": net.two(jnp.sin(torchs).transpose(0, 2, 3, 1)).mean((1, 2)),
        "in torch's order": jax.nn.relu(torchs).reshape(len(maps), -1),
        "in JAX's order": bent.reshape(len(maps), -1),
    }


def test_outputs_have_the_axes_that_a_module_gives(convert: Callable[..., Any]) -> None:
    """Maps are the destination's, and the order of everything else is the module's."""
    module = Ended(every_order)
    port = convert(module, to="torch", input_size=(16, 17))
    assert port.proof.ok
    images = np.random.default_rng(0).normal(size=(2, 16, 17, 3)).astype(np.float32)
    with torch.no_grad():
        found = [each.numpy() for each in port.model()(torch.from_numpy(first(images).copy()))]
    given = [np.asarray(each) for each in jax.tree.leaves(module(jnp.asarray(images)))]
    wanted = [first(each) if each.shape[1:] == (14, 15, 14) else each for each in given]
    assert [each.shape for each in found] == [each.shape for each in wanted]
    assert sum(each.ndim == 4 for each in wanted) == 4
    for one, other in zip(wanted, found, strict=True):
        assert np.allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.full
def test_weights_that_are_computed_by_products(convert: Callable[..., Any]) -> None:
    module = Ended(lambda net, maps: maps.mean((1, 2)), nnx.SpectralNorm)
    module.eval()
    assert convert(module, to="torch", input_size=16).proof.ok


class Leaving(nnx.Module):
    """A dropout of the user's own."""

    def __init__(self, rate: float) -> None:
        self.conv, self.deterministic, self.share = nnx.Conv(3, 4, (3, 3), rngs=nnx.Rngs(0)), False, rate

    def __call__(self, images: Any) -> Any:
        found = self.conv(images)
        return found.mean((1, 2)) if self.deterministic else (found * (1 - self.share)).mean((1, 2))


def test_only_what_computes_something_else_in_training_is_in_training(convert: Callable[..., Any]) -> None:
    attention = nnx.MultiHeadAttention(1, 3, deterministic=False, decode=False, rngs=nnx.Rngs(0))

    class Attending(nnx.Module):
        def __init__(self) -> None:
            self.attention = attention

        def __call__(self, images: Any) -> Any:
            return self.attention(images.reshape(len(images), -1, 3)).mean(1)

    assert convert(Leaving(0.0), input_size=8).proof.ok and convert(Attending(), input_size=8).proof.ok
    with pytest.raises(UsageError, match=r"gives something else in inference mode \(call model.eval"):
        convert(Leaving(0.5), input_size=8)


class Pair(nnx.Module):
    """One tower for two images, whose units a scan goes through, and numbers beside them, also by a scan."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=2)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def units(rngs: nnx.Rngs) -> nnx.Conv:
            return nnx.Conv(8, 8, (3, 3), rngs=rngs)

        self.stem, self.units = nnx.Conv(3, 8, (3, 3), strides=2, rngs=rngs), units(rngs)
        self.head, self.numbers = nnx.Linear(8, 4, rngs=rngs), nnx.Linear(6, 4, rngs=rngs)

    def tower(self, images: Any) -> Any:
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def through(maps: Any, unit: nnx.Conv) -> Any:
            return maps + nnx.relu(unit(maps))

        return through(self.stem(images), self.units).mean(axis=(1, 2))

    def __call__(self, left: Any, right: Any, numbers: Any) -> Any:
        def step(carry: Any, factor: Any) -> tuple[Any, Any]:
            return carry * factor, carry - factor

        last, rows = jax.lax.scan(step, self.numbers(numbers), jnp.arange(1.0, 4.0), reverse=True)
        first, _, third = jnp.unstack(rows)
        return (
            self.head(self.tower(left) - 2 * self.tower(right)) + last + first - 3 * jnp.tile(third, (1, 1))
        )


@pytest.mark.parametrize("size", [SIDE, pytest.param("any", marks=pytest.mark.full)])
def test_several_inputs_and_scans(convert: Callable[..., Any], size: int | str) -> None:
    """What a module calls its inputs is what the port calls them, but for a layer's name; steps are layers
    one after the other.
    """
    image = np.zeros((1, SIDE, SIDE, 3), np.float32)
    made = convert(
        seeded(Pair(nnx.Rngs(0))), example=(image, image, np.zeros((1, 6), np.float32)), input_size=size
    )
    assert [(each.name, each.axes) for each in made.port.graph.further_inputs] == [
        ("right", ()),
        ("numbers_given", (6,)),
    ]
    assert [node.op.name for node in made.port.graph.nodes].count("conv") == 6
    double = made.verdict.user_proof.parities[-1]
    assert double.dtype == "float64" and double.reference == "the model Pair itself"
    assert (len(double.sizes) > 1) == (size == "any")


RECIPE = """
architecture: own
variants: {own: {}}
options: {classes: 5}
input: {size: 32, channels: 3}
graph:
  - {conv: stem/conv, filters: 8, kernel: 3, stride: 2, bias: true}
  - {relu: stem/relu}
  - {global_avg_pool: head/pool}
  - {dense: head/logits, units: =classes}
zoos:
  own_jax:
    framework: jax
    padding: {stem/conv: same}
    names: {prefix: params/, stem/conv: conv_init, head/logits: Dense_0}
"""


class Unreadable(nnx.Module):
    """A network of that recipe whose pool porter cannot read."""

    def __init__(self, rngs: nnx.Rngs, padding: str) -> None:
        self.conv_init = nnx.Conv(3, 8, (3, 3), strides=2, padding=padding, rngs=rngs)
        self.Dense_0 = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, images: Any) -> Any:
        maps = nnx.relu(self.conv_init(images))
        rows = maps.reshape(len(maps), -1, 8)
        return self.Dense_0(jnp.cumsum(rows, axis=1)[:, -1] / rows.shape[1])


def test_an_unreadable_module_is_the_recipe_that_fits_its_variables(
    convert: Callable[..., Any], tmp_path: Path
) -> None:
    """Only the module says whether it is: with other pads it has the same variables."""
    (tmp_path / "own.yaml").write_text(RECIPE)
    how: dict[str, Any] = {"input_size": SIDE, "recipes": tmp_path}
    module = seeded(Unreadable(nnx.Rngs(0), "SAME"))
    made = convert(module, **how)
    record = made.port.record
    assert (record.variant, record.zoo, record.source.format) == ("own", "own_jax", "nnx")
    assert record.source.notes[-1].startswith("porter has no op for a part of the graph that JAX traces")
    assert made.verdict.user_proof.parities[-1].dtype == "float64" and record.proved
    assert porter.open(made.port.folder).verify(weights=module, recipes=tmp_path).ok
    with pytest.raises(PorterError, match="not the function of the model Unreadable itself"):
        convert(seeded(Unreadable(nnx.Rngs(0), "VALID")), **how)


@pytest.mark.parametrize(
    "make", [convnext, mobilenet_v3, pytest.param(small_mobilenet, marks=pytest.mark.full), inception]
)
def test_ports_for_flax_are_read_as_the_graphs_that_they_are_of(make: Callable[[], Graph]) -> None:
    graph = make()
    module = flax.ENGINE.build(make_plan(graph, ANY, flax.CAPABILITIES), tensors_of(graph), {}, "float32")
    checkpoint = save_and_read(module, size=(75, 64)).checkpoint
    assert checkpoint.graph is not None and checkpoint.graph.size == (None, None)
    nodes: Any = checkpoint.graph.nodes
    assert sorted(node.op.name for node in nodes) == sorted(node.op.name for node in graph.nodes)


LACKING = {"conv_transpose", "extend_map"}


@pytest.mark.full
def test_every_op() -> None:
    """All but a few cases of two ops are read from what JAX traces of them."""
    graph = every_op(OF_MAPS)
    tensors = tensors_of(graph)
    module = flax.ENGINE.build(make_plan(graph, SIZE, flax.CAPABILITIES), tensors, {}, "float32")
    found = save_and_read(module, size=SIZE).checkpoint.graph
    assert found is not None
    foreign = {node.name for node in found.nodes if isinstance(node.op, Foreign)}
    reached = downstream(found.by_name, lambda name: found.by_name[name].inputs, foreign)
    places = {
        end: int(name.rpartition("_")[2]) for end, name in zip(found.outputs, found.output_names, strict=True)
    }
    assert {
        graph.by_path[graph.outputs[place]].op.name for end, place in places.items() if end in reached
    } == LACKING


class Small(nnx.Module):
    """One function of images."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = nnx.static(function)

    def __call__(self, images: Any) -> Any:
        return self.function(images)


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "training": (
        lambda: Net(nnx.Rngs(0)),
        {"input_size": SIDE},
        r"'drop' of it is in training mode .*call model\.eval\(\) first",
    ),
    "no size": (
        lambda: seeded(Net(nnx.Rngs(0))),
        {},
        "nothing says what size its images have .*give example",
    ),
    "another example": (
        lambda: seeded(Net(nnx.Rngs(0))),
        {"example": np.zeros((1, SIDE, SIDE, 4), np.float32)},
        "it does not take the example of 1x24x24x4: .*give example, a batch N x H x W x C",
    ),
    "no images": (
        lambda: seeded(Net(nnx.Rngs(0))),
        {"example": np.zeros(3)},
        "the example is 3, expected images N x H x W x C",
    ),
    "a primitive": (lambda: Small(lambda x: jnp.cumsum(x, axis=1)), {"input_size": SIDE}, "jax.cumsum"),
    "a long scan": (
        lambda: Small(lambda x: jax.lax.scan(lambda c, _: (jnp.tanh(c), None), x, None, length=65)[0]),
        {"input_size": SIDE},
        r"jax\.scan of more than 64 steps; a loop in Python may have more",
    ),
    "a loop": (
        lambda: Small(lambda x: jax.lax.while_loop(lambda x: x.max() > 1, jnp.tanh, x)),
        {"input_size": SIDE},
        "jax.while, whose steps nobody counts before it runs",
    ),
    "a type of its own": (
        lambda: Small(lambda x: jax.lax.fori_loop(0, 2, lambda _, c: c * x, jnp.ones(x.shape, jnp.float32))),
        {"input_size": SIDE},
        "JAX cannot trace it in double precision: TypeError.*have the type of the images",
    ),
    "no numbers": (
        lambda: nnx.eval_shape(lambda: seeded(Net(nnx.Rngs(0)))),
        {"input_size": SIDE},
        "has a shape and no numbers .*nnx.update",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_next_step(convert: Callable[..., Any], case: str) -> None:
    make, how, message = REFUSED[case]
    with pytest.raises((UsageError, PorterError), match=message):
        convert(make(), **how)
