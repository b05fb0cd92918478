"""The graph of a plan as a module of mlx.nn, and its values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from operator import contains
from types import MappingProxyType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import UsageError
from porter.base.options import DEVICE
from porter.frameworks import UNCUT, Tensors
from porter.frameworks.code.channels_last import FUNCTIONS
from porter.frameworks.code.graph_modules import Computation, find_by_name, function_of_several
from porter.frameworks.code.plan_layers import Layer, LayerStep
from porter.frameworks.mlx import layers
from porter.frameworks.mlx.code import PORTS
from porter.frameworks.mlx.exact_operations import exact_operations
from porter.frameworks.mlx.spellings import MODULES
from porter.graph.plan import Plan


class _MlxSteps(Computation):
    """See Computation.

    Attributes:
        functions: those of the steps whose layers are no modules, by the step's path.
    """

    def __init__(self, plan: Plan, dtype: Dtype, device: Any) -> None:
        super().__init__(plan, dtype, PORTS, MODULES)
        self.device = device
        self.functions = {
            step.path: _function(step.layer) for step in self.steps if step.layer.kind not in MODULES
        }

    def values(
        self,
        model: nn.Module,
        inputs: Sequence[mx.array],
        paths: Sequence[str],
        cut: Mapping[str, mx.array] = MappingProxyType({}),
        at_once: bool = False,
    ) -> dict[str, mx.array]:
        """Compute the values at `paths` with the layers of `model`; see Computation.values_by.

        Args:
            at_once: each value is computed at once, so that none is held longer than others read it.
        """

        def compute(step: LayerStep, operands: Sequence[mx.array]) -> mx.array:
            """Return the value of a step: that of its function, or of the layer at its place."""
            function = self.functions.get(step.path) or self.layer_of(model, step)
            value: mx.array = function(*operands)
            if at_once:
                mx.eval(value)
            return value

        return self.values_by(compute, inputs, paths, cut)


class GraphModule(nn.Module):
    """A plan's layers at the paths that they have in model.py too.

    Takes N×H×W×C and gives the value of the graph's output, or a tuple of several. An input that is no map
    has its own axes.
    """

    def __init__(self, plan: Plan, dtype: Dtype, device: Any) -> None:
        super().__init__()
        self.program = _MlxSteps(plan, dtype, device)
        self.program.set_layers(
            self,
            lambda layer: _find_by_name(layer.kind)(**layer.arguments),
            lambda is_row: [] if is_row else nn.Module(),
            contains,
        )

    def __call__(self, *inputs: Any) -> Any:
        """Compute the outputs of the graph from a batch for each input: arrays of MLX, or what it makes
        arrays of.
        """
        with mx.stream(self.program.device):
            arrays = [batch if isinstance(batch, mx.array) else mx.array(batch) for batch in inputs]
            values = self.program.values(self, arrays, self.program.plan.lowered.outputs)
        return self.program.outputs_in(values)


def build_model(plan: Plan, tensors: Tensors, dtype: Dtype, device: str) -> GraphModule:
    """Build the module of a plan with canonical `tensors`, in `dtype`, in inference mode.

    Args:
        device: `cpu`, or another name for MLX's GPU. In float64 it is the CPU.

    Raises:
        UsageError: there is no such device. MappingError: the tensors do not fit.
    """
    mlx_device = _find_device("cpu" if dtype == "float64" else device)
    with mx.stream(mlx_device):
        model = GraphModule(plan, dtype, mlx_device)
        model.load_weights(
            [(key, _to_mlx(array, dtype)) for key, array in PORTS.arrays(plan, tensors).items()]
        )
        mx.eval(model.parameters())
    model.eval()
    return model


def run_model(
    model: GraphModule, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Run the module on a batch N×C×H×W and return by path its values at `taps`; see Computation.run."""
    program = model.program

    def compute(inputs: Sequence[Array], replaced: NamedArrays) -> NamedArrays:
        given = [_to_mlx(array, program.dtype) for array in inputs]
        replacements = {path: _to_mlx(array, program.dtype) for path, array in replaced.items()}
        values = program.values(model, given, taps, replacements, at_once=True)
        return {path: _to_numpy(value) for path, value in values.items()}

    with (
        mx.stream(program.device),
        _uncompiled(),
        exact_operations() if program.dtype == "float64" else nullcontext(),
    ):
        return program.run(batch, taps, cut, compute)


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Turn off, within the context, that MLX compiles activations: it would call a C++ compiler for each, and
    run what it finds in a folder that every user may write to.
    """
    mx.disable_compile()
    try:
        yield
    finally:
        # Where the user has it off, it stays off.
        if "MLX_DISABLE_COMPILE" not in os.environ:
            mx.enable_compile()


def _to_mlx(array: Array, dtype: Dtype) -> mx.array:
    """Return an array of numpy as one of MLX, in the type `dtype`."""
    if dtype == "bfloat16":  # numpy has no such type
        return mx.array(np.ascontiguousarray(array.astype(np.float32))).astype(mx.bfloat16)
    with np.errstate(over="ignore"):  # porter.base.dtypes.cast decides on overflow, before this
        return mx.array(np.ascontiguousarray(array.astype(dtype)), getattr(mx, dtype))


def _to_numpy(value: mx.array) -> Array:
    return np.asarray(value.astype(mx.float32) if value.dtype == mx.bfloat16 else value)


def _find_device(device: str) -> Any:
    """Return MLX's device of this name. Raise UsageError where MLX has none."""
    if device == "cpu":
        return mx.cpu
    if mx.is_available(mx.gpu):
        return mx.gpu
    next = f"use {DEVICE('cpu')}, or on a machine with an NVIDIA GPU install mlx[cuda]"
    raise UsageError(f"MLX cannot use the device '{device}'", where=DEVICE, next=next)


def _function(layer: Layer) -> Callable[..., Any]:
    """Return the function that computes a layer which is no module, such as `mx.add`, with its arguments."""
    if layer.kind == "concat":
        return lambda *values: mx.concatenate([*values], axis=-1)
    if layer.kind in FUNCTIONS:
        return function_of_several(layer.kind, mx)
    # By its name at each call: in float64 another one stands in its place.
    return lambda *values: _find_by_name(layer.kind)(*values, **layer.arguments)


def _find_by_name(name: str) -> Any:
    """Return a class or a function of MLX or of layers.py; see find_by_name."""
    return find_by_name(name, {"nn": nn, "mx": mx}, layers)
