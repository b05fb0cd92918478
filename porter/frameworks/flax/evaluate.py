"""Modules of flax.nnx as evaluations run them: many photos, logits only."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from porter.base.dtypes import Array
from porter.base.ways_to_run import Run
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier, expect_run
from porter.frameworks.batches import make_cpu_classifier
from porter.frameworks.flax.graph_module import GraphModule


def make_classifier(model: GraphModule, protocol: Preprocess, how: Run, tap: str | None) -> Classifier:
    """Return a classifier of photos whose logits are the value at the path `tap`, or else the output; see
    porter.frameworks.Engine.classifier. The module is compiled for each shape of a batch.

    Raises:
        UsageError: JAX has no such run.
    """
    expect_run(how, "Flax")
    path = tap or model.program.plan.lowered.output
    graph, state = nnx.split(model)

    @jax.jit
    def run(state: Any, images: jax.Array) -> Any:
        module = nnx.merge(graph, state)
        return module.program.values(module, [images], [path])[path]

    def logits(images: Array) -> Array:
        with jax.default_matmul_precision("highest"):
            return np.asarray(run(state, jnp.asarray(images.transpose(0, 2, 3, 1))))

    return make_cpu_classifier(logits, protocol)
