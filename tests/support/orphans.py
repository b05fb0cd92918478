"""Weights as transformers 4 wrote them from TensorFlow and Flax, of tensors as its classes in torch have
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_TF = {"running_mean": "moving_mean", "running_var": "moving_variance"}
_FLAX = {"running_mean": "mean", "running_var": "var"}


def _written(
    state: Mapping[str, Any], others: Mapping[str, str], norm: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    """Names with `/` between, and arrays. A weight of one axis is a norm's."""
    for name, value in state.items():
        module, _, last = name.rpartition(".")
        if last == "num_batches_tracked":
            continue
        weight = state.get(f"{module}.weight")
        if last in ("weight", "bias") and weight is not None and weight.ndim == 1:
            last = norm[last]
        elif last == "weight":
            last = "kernel"
            value = value.transpose((2, 3, 1, 0)) if value.ndim == 4 else value.T
        yield f"{module.replace('.', '/')}/{others.get(last, last)}", np.ascontiguousarray(value)


def write_tf(path: Path, state: Mapping[str, Any], above: str = "tf_net/") -> None:
    """Writes as TFPreTrainedModel.save_weights does: a group for each layer of the model, and in it the whole
    names. Until 4.36 they began with the model's, and the parts of lists were numbered otherwise.
    """
    import h5py

    layers: dict[str, dict[str, Any]] = {}
    for name, value in _written(state, _TF, {"weight": "gamma", "bias": "beta"}):
        name = re.sub(r"(\w+)/(\d+)/", r"\1_._\2/" if above else r"\1.\2/", name)
        layers.setdefault(name.partition("/")[0], {})[f"{above}{name}:0"] = value
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"], file.attrs["backend"] = [*layers], "tensorflow"
        for layer, variables in layers.items():
            file.create_group(layer).attrs["weight_names"] = [*variables]
            for name, value in variables.items():
                file[layer][name] = value


def write_flax(path: Path, state: Mapping[str, Any]) -> None:
    """Writes as FlaxPreTrainedModel.save_pretrained does: one tree, or two for a model with statistics. The
    layers of a Sequential are `layer_0`.
    """
    import msgpack

    trees: dict[str, Any] = {"params": {}, "batch_stats": {}}
    for name, value in _written(state, _FLAX, {"weight": "scale", "bias": "bias"}):
        *modules, last = re.sub(
            r"/layer/(\d+)/(convolution|normalization)/", r"/layer/layer_\1/\2/", name
        ).split("/")
        tree = trees["batch_stats" if last in ("mean", "var") else "params"]
        for module in modules:
            tree = tree.setdefault(module, {})
        tree[last] = msgpack.ExtType(1, msgpack.packb((value.shape, value.dtype.name, value.tobytes())))
    path.write_bytes(msgpack.packb(trees if trees["batch_stats"] else trees["params"], strict_types=True))
