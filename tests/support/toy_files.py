"""Toy models (examples/porter-toy-format) with numbers that tell: a layer of every kind that there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

SIZE = (23, 18)
PADS: dict[str, Any] = {"stride": 2, "pads": [1, 0, 2, 1]}


def layers(layout: str) -> list[dict[str, Any]]:
    """The layers of a network of every kind; their tensors are named by their shapes."""

    def layer(name: str, kind: str, *sources: str, **stated: Any) -> dict[str, Any]:
        return {"name": name, "kind": kind, "from": list(sources), **stated}

    def conv(name: str, source: str, *shape: int, kind: str = "conv", **stated: Any) -> dict[str, Any]:
        bias = shape[1] * stated.get("groups", 1) if kind == "deconv" else shape[0]
        held = {f"{name}/kernel": shape, f"{name}/bias": (bias,)}
        return layer(name, kind, source, weights=held, **stated)

    norm = {f"norm/{role}": (12,) for role in ("mean", "variance", "gamma", "beta")}
    return [
        conv("stem", "image", 12, 3, 5, 3, **PADS),
        layer("norm", "norm", "stem", weights=norm, epsilon=1e-3),
        layer("relu", "relu", "norm"),
        layer("most", "max_pool", "relu", side=3, ceil=True, **PADS),
        layer("mean", "average_pool", "relu", side=3, divisor="real_cells", **PADS, ceil=True),
        layer("both", "add", "most", "mean"),
        conv("wide", "both", 12, 1, 3, 3, groups=12, pads=[2, 2, 2, 2], dilation=2),
        layer("six", "relu6", "wide"),
        conv("up", "six", 12, 4, 4, 2, kind="deconv", stride=2, pads=[1, 1, 0, 0], groups=3),
        layer("shrunk", "average_pool", "up", side=2, stride=2, divisor="full_window", pads=[0, 0, 0, 0]),
        layer("even", "lrn", "shrunk", size=3, alpha=0.3, beta=0.75, bias=1.0),
        layer("joined", "concat", "even", "six"),
        layer("slope", "leaky_relu", "joined", slope=0.1),
        layer("large", "upsample", "slope", factor=2),
        conv("last", "large", 8, 24, 3, 3, stride=2, pads=[1, 1, 1, 1]),
        layer("bent", "tanh", "last"),
        layer("flat", "flatten", "bent"),
        conv("hidden", "flat", 10, 8 * 6 * 5, kind="dense"),
        layer("gate", "sigmoid", "hidden"),
        layer("middle", "mean", "last"),
        layer("features", "concat", "gate", "middle"),
        conv("logits", "features", 7, 18, kind="dense"),
        layer("shares", "softmax", "logits"),
    ]


def write_toy(path: Path, layout: str = "NCHW", seed: int = 0) -> Path:
    """A model of all layers. Kernels keep the spread of what they read."""
    rng, tensors, stated = np.random.default_rng(seed), {}, layers(layout)
    for layer in stated:
        for name, shape in layer.get("weights", {}).items():
            spread = np.sqrt(2 / np.prod(shape[1:])) if name.endswith("kernel") else 0.3
            drawn = spread * rng.standard_normal(shape)
            tensors[name] = (np.exp(drawn) if name.endswith(("variance", "gamma")) else drawn).astype(
                np.float32
            )
        if "weights" in layer:
            layer["weights"] = list(layer["weights"])
    image = {"channels": 3, "size": SIZE}
    path.write_text(
        json.dumps({"toy": 1, "layout": layout, "image": image, "layers": stated, "outputs": ["shares"]})
    )
    np.savez(path.with_suffix(".npz"), **tensors)
    return path
