"""The graph of a plan as a module of mlx.nn, and its values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from types import MappingProxyType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.base.errors import UsageError
from porter.base.options import DEVICE
from porter.frameworks import UNCUT, Tensors
from porter.frameworks.code.code_ports import ModulePlace
from porter.frameworks.code.language import Layer, LayerStep
from porter.frameworks.code.step_values import inputs_last, step_values
from porter.frameworks.images import arrays_for_inputs
from porter.frameworks.mlx import layers
from porter.frameworks.mlx.exact_operations import exact_operations
from porter.frameworks.mlx.spellings import FUNCTIONS, MODULES, SPELLINGS
from porter.frameworks.mlx.state import PORTS
from porter.graph.ops import is_map
from porter.graph.plan import Plan

_BINARY_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": mx.add,
    "multiply": mx.multiply,
    "divide": mx.divide,
    "maximum": mx.maximum,
    "minimum": mx.minimum,
}


class Program:
    """The steps of a plan, by which a GraphModule computes values with its layers.

    Attributes:
        places: where the layer of each node stands in the module, by the node's path.
        functions: those of the steps whose layers are no modules, by the step's path.
    """

    def __init__(self, plan: Plan, dtype: Dtype, device: Any) -> None:
        self.plan, self.dtype, self.device = plan, dtype, device
        self.places = PORTS.places(plan)
        self.steps = SPELLINGS.steps(plan)
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
        """Compute the values at `paths` with the layers of `model`, and return them by path. See
        porter.frameworks.code.step_values.

        Args:
            inputs: a batch for each input of the plan; maps are N×H×W×C.
            cut: by path, the array that the layers behind it read in place of its value.
            at_once: each value is computed at once, so that none is held longer than others read it.

        Raises:
            UsageError: the inputs are others than those of the plan.
        """

        def compute(step: LayerStep, operands: Sequence[mx.array]) -> mx.array:
            """Return the value of a step: that of its function, or of the layer at its place."""
            function = self.functions.get(step.path)
            if function is None:
                function = _layer_at(model, self.places[step.path])
            value: mx.array = function(*operands)
            if at_once:
                mx.eval(value)
            return value

        return step_values(self.steps, inputs_last(self.plan, inputs), paths, cut, compute)


class GraphModule(nn.Module):
    """A plan's layers at the paths that they have in model.py too.

    Takes N×H×W×C and gives the value of the graph's output, or a tuple of several. An input that is no map
    has its own axes.
    """

    def __init__(self, plan: Plan, dtype: Dtype, device: Any) -> None:
        super().__init__()
        self.program = Program(plan, dtype, device)
        for step in self.program.steps:
            if step.layer.kind in MODULES and step.shares is None:
                place = self.program.places[step.path]
                _set_layer(self, place, _find_by_name(step.layer.kind)(**step.layer.arguments))

    def __call__(self, *inputs: Any) -> Any:
        """Compute the outputs of the graph from a batch for each input: arrays of MLX, or what it makes
        arrays of.
        """
        outputs = self.program.plan.lowered.outputs
        with mx.stream(self.program.device):
            arrays = [batch if isinstance(batch, mx.array) else mx.array(batch) for batch in inputs]
            values = self.program.values(self, arrays, outputs)
        return values[outputs[0]] if len(outputs) == 1 else tuple(values[path] for path in outputs)


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
    """Run the module on a batch N×C×H×W and return by path its values at `taps`, the paths of nodes; maps are
    N×C×H×W.

    Args:
        cut: by path, what is read in place of the value; see porter.frameworks.PortEngine.run.

    Raises:
        UsageError: a tap is not a node of the model, or the batch does not fit its input.
    """
    program = model.program
    graph, dtype = program.plan.lowered, program.dtype
    missing = [path for path in taps if path not in graph.by_path]
    if missing:
        raise UsageError("the model has no such node", where=missing[0])
    maps = {path for path, shape in graph.open_shapes.items() if is_map(shape)}
    with (
        mx.stream(program.device),
        _uncompiled(),
        exact_operations() if dtype == "float64" else nullcontext(),
    ):
        inputs = [_to_mlx(array, dtype) for array in arrays_for_inputs(batch, graph, channels_last=True)]
        replacements = {
            path: _to_mlx(array.transpose(0, 2, 3, 1) if path in maps else array, dtype)
            for path, array in cut.items()
        }
        values = program.values(model, inputs, taps, replacements, at_once=True)
        arrays = {path: _to_numpy(value) for path, value in values.items()}
    return {path: array.transpose(0, 3, 1, 2) if path in maps else array for path, array in arrays.items()}


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


def _layer_at(model: Any, place: ModulePlace) -> Any:
    """Return the layer at a place in a module, which is a path of attributes and of indices in rows:
    `("layer1", "layers", 0, "conv1")` is `model.layer1.layers[0].conv1`.
    """
    layer = model
    for name in place:
        layer = layer[name]
    return layer


def _set_layer(root: nn.Module, place: ModulePlace, layer: nn.Module) -> None:
    """Set a layer at its place in `root`. The modules and rows on the way to it are made where they are
    missing: a name is an attribute of a module, a number an index of a row, which is a list.
    """
    parent: Any = root
    # `next_name` is a number if a row stands here, and None for the layer itself.
    for name, next_name in zip(place, (*place[1:], None), strict=True):
        child: Any = layer
        if next_name is not None:
            child = [] if isinstance(next_name, int) else nn.Module()
        if isinstance(name, int):
            # Layers come in their order, so what a row lacks is its next item.
            if name == len(parent):
                parent.append(child)
        elif name not in parent:
            setattr(parent, name, child)
        parent = parent[name]


def _function(layer: Layer) -> Callable[..., Any]:
    """Return the function that computes a layer which is no module, such as `mx.add`, with its arguments."""
    if layer.kind == "concat":
        return lambda *values: mx.concatenate([*values], axis=-1)
    if layer.kind in FUNCTIONS:
        return lambda *values: reduce(_BINARY_FUNCTIONS[layer.kind], values)
    # By its name at each call: in float64 another one stands in its place.
    return lambda *values: _find_by_name(layer.kind)(*values, **layer.arguments)


def _find_by_name(name: str) -> Any:
    """Return a class or a function of MLX or of layers.py by its dotted name in model.py, such as
    `nn.Conv2d`.
    """
    root, *names = name.split(".")
    owner = {"nn": nn, "mx": mx}.get(root) or getattr(layers, root)
    return reduce(getattr, names, owner)
