"""Random weights that behave like trained ones, for tests of whole models.

Uncalibrated random weights give logits that do not depend on the input, so that every wrong pad passes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from porter.frameworks.torch.graph_module import build_model
from porter.frameworks.torch.layout import CAPABILITIES, module_name
from porter.graph import INPUT, Affine, BatchNorm, Conv, Graph, HardSigmoid, Sigmoid, tensor_shapes
from porter.graph.plan import make_plan
from tests.support.arrays import Array

IMAGES = 4
GATE = 0.5
"""The deviation of what a gate of made weights is given."""


def smooth_images(channels: int, size: tuple[int, int], seed: int, count: int = IMAGES) -> Array:
    """Random images N×C×H×W about 1 in size, smooth over an eighth of their extent, each with a mean of its
    own.
    """
    random = np.random.default_rng(seed)
    coarse = random.standard_normal((count, channels, 8, 8)) + random.standard_normal((count, channels, 1, 1))
    fine = F.interpolate(torch.from_numpy(coarse), size=size, mode="bicubic", align_corners=False)
    return fine.numpy().astype(np.float32)


def calibrated_tensors(
    graph: Graph, size: tuple[int, int], seed: int, bias: float = 0.05, lowered: Collection[str] = ()
) -> dict[str, dict[str, Array]]:
    """Canonical float32 tensors: He-like kernels, norms whose statistics are those of what arrives, then
    jittered, and gates that are not saturated.

    Args:
        size: rows and columns of the images that calibrate.
        bias: the size of convolution and dense biases.
        lowered: paths of convolutions whose biases put the mean of each channel a deviation below zero.

    Raises:
        AssertionError: the logits vary across images by less than 1 % of their size.
    """
    random = np.random.default_rng(seed)
    tensors = {
        path: {role: _initial(random, role, shape, bias) for role, shape in roles.items()}
        for path, roles in tensor_shapes(graph).items()
    }
    model = build_model(make_plan(graph, size, CAPABILITIES), tensors, "float32", "cpu")
    norms: dict[str, Any] = {
        node.path: model.get_submodule(module_name(node.path))
        for node in graph.nodes
        if isinstance(node.op, BatchNorm)
    }
    for norm in norms.values():
        norm.register_forward_pre_hook(_calibrate(random))
    gates = {node.inputs[0] for node in graph.nodes if isinstance(node.op, (Sigmoid, HardSigmoid))}
    gated = [node.path for node in graph.nodes if node.path in gates and isinstance(node.op, Conv)]
    convolutions: dict[str, Any] = {
        path: model.get_submodule(module_name(path)) for path in (*lowered, *gated)
    }
    for path in lowered:
        convolutions[path].register_forward_hook(_lower)
    for path in gated:
        convolutions[path].register_forward_hook(_narrow)
    images = torch.from_numpy(
        _before_scaling(graph, smooth_images(graph.channels, size, seed)).astype(np.float32)
    )
    with torch.no_grad():
        logits = model(images).numpy()
    for path, norm in norms.items():
        tensors[path]["mean"] = norm.running_mean.numpy().astype(np.float32)
        tensors[path]["variance"] = norm.running_var.numpy().astype(np.float32)
    for path, convolution in convolutions.items():
        tensors[path]["kernel"] = convolution.weight.detach().numpy().astype(np.float32)
        if convolution.bias is not None:
            tensors[path]["bias"] = convolution.bias.detach().numpy().astype(np.float32)
    assert logits.std(axis=0).mean() >= 0.01 * np.abs(logits).mean(), "the logits hardly depend on the image"
    return tensors


def _before_scaling(graph: Graph, images: Array) -> Array:
    """What a graph that scales pixels itself makes `images` of, so that its norms do not see them 127 times
    as weak.
    """
    for node in graph.nodes:
        if node.inputs == (INPUT,) and isinstance(node.op, Affine):
            scale, offset = (
                np.array(values).reshape(1, -1, 1, 1) for values in (node.op.scale, node.op.offset)
            )
            return (images - offset) / scale
    return images


def _initial(random: np.random.Generator, role: str, shape: tuple[int, ...], bias: float) -> Array:
    noise = random.standard_normal(shape, np.float32)
    if role == "kernel":
        values = noise * np.sqrt(2.0 / np.prod(shape[1:]))
    elif role in ("gamma", "variance"):
        values = 1.0 + 0.1 * np.clip(noise, -3, 3)
    else:
        values = (bias if role == "bias" else 0.1) * noise
    return values.astype(np.float32)


def _calibrate(random: np.random.Generator):
    def set_statistics(norm: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        (x,) = inputs
        axes = [axis for axis in range(x.ndim) if axis != 1]
        deviation = x.std(axes)
        jitter = torch.from_numpy(random.uniform(-0.1, 0.1, (2, x.shape[1])))
        norm.running_mean.copy_(x.mean(axes) + jitter[0] * deviation)
        norm.running_var.copy_((deviation**2 * (1 + jitter[1])).clamp_min(1e-6))

    return set_statistics


def _lower(convolution: Any, _: tuple[torch.Tensor, ...], value: torch.Tensor) -> torch.Tensor:
    shift = -value.mean((0, 2, 3)) - value.std((0, 2, 3))
    convolution.bias += shift
    return value + shift.reshape(1, -1, 1, 1)


def _narrow(convolution: Any, _: tuple[torch.Tensor, ...], value: torch.Tensor) -> torch.Tensor:
    """Scales a gate's convolution, so that its values are as wide as a trained network's. A saturated one
    multiplies rounding: by 16 blocks of an EfficientNet-B0 one rounding of the image became 6e-9.
    """
    factor = GATE / value.std()
    convolution.weight *= factor
    if convolution.bias is not None:
        convolution.bias *= factor
    return value * factor
