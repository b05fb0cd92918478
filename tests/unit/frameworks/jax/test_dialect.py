from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from porter.base.errors import MappingError
from porter.frameworks.dialects import get_dialect
from porter.graph import INPUT, AddArray, Attention, Conv, Dense, Graph, LayerNorm, Node, Rearrange
from porter.padding import Convention, Window
from tests.support.arrays import Array

HEADS, CHANNELS, FEATURES = 3, 4, 5
NODES = (
    Node("patches", Conv(FEATURES, Window((2, 2), (2, 2)), Convention(), bias=True), (INPUT,)),
    Node("cells", Rearrange("c h w -> (h w) c"), ("patches",)),
    Node("positions", AddArray((9, FEATURES)), ("cells",)),
    Node("norm", LayerNorm(1e-6), ("positions",)),
    *(Node(name, Dense(HEADS * CHANNELS), ("norm",)) for name in ("query", "key", "value")),
    Node("attention", Attention(HEADS, 0.5), ("query", "key", "value")),
    Node("out", Dense(6), ("attention",)),
    Node("mlp", Dense(7), ("out",)),
)
GRAPH = Graph(NODES, 3, "mlp")
STORED = {
    ("patches", "kernel"): (2, 2, 3, FEATURES),
    ("positions", "value"): (1, 9, FEATURES),
    ("norm", "gamma"): (FEATURES,),
    ("query", "kernel"): (FEATURES, HEADS, CHANNELS),
    ("query", "bias"): (HEADS, CHANNELS),
    ("out", "kernel"): (HEADS, CHANNELS, 6),
    ("out", "bias"): (6,),
    ("mlp", "kernel"): (6, 7),
}


def test_each_layer_computes_with_the_canonical_tensors_what_flax_does_with_its_own() -> None:
    jax, random = get_dialect("jax"), np.random.default_rng(0)
    for (path, role), shape in STORED.items():
        stored, node = random.standard_normal(shape), GRAPH.by_path[path]
        found: Array = jax.to_canonical(GRAPH, node, role, stored)
        assert np.array_equal(
            jax.from_canonical(GRAPH, node, role, found), stored.squeeze(0) if role == "value" else stored
        )
        if (path, role) == ("patches", "kernel"):
            assert np.array_equal(found, np.einsum("hwio->oihw", stored))
        elif (path, role) == ("query", "kernel"):
            # Flax.linen.MultiHeadDotProductAttention: bsf,fhc->bshc, and bshc,hcu->bsu.
            x = random.standard_normal((2, FEATURES))
            assert np.allclose(x @ found.T, np.einsum("sf,fhc->shc", x, stored).reshape(2, -1))
        elif (path, role) == ("out", "kernel"):
            x = random.standard_normal((2, HEADS, CHANNELS))
            assert np.allclose(x.reshape(2, -1) @ found.T, np.einsum("shc,hcu->su", x, stored))


@pytest.mark.parametrize(
    "shape", [(HEADS, CHANNELS, FEATURES), (FEATURES, CHANNELS, HEADS), (FEATURES, HEADS * CHANNELS)]
)
def test_other_heads_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(MappingError, match=r"expected a kernel of heads of shape \(5, 3, 4\)"):
        get_dialect("jax").to_canonical(GRAPH, GRAPH.by_path["query"], "kernel", np.zeros(shape))


def test_names_are_flaxs_and_nothing_is_imported() -> None:
    names = {
        path: get_dialect("jax").tensor_names(GRAPH, GRAPH.by_path[path], "a/b") for path in ("norm", "out")
    }
    assert names == {
        "norm": {"gamma": ("a/b/scale",), "beta": ("a/b/bias",)},
        "out": {"kernel": ("a/b/kernel",), "bias": ("a/b/bias",)},
    }
    code = (
        "import sys, porter.frameworks.jax.dialect; sys.exit(bool({'torch', 'tensorflow', 'keras', "
        "'jax'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
