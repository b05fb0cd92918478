"""The graph of a plan as a torch module, in inference mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import nn

from porter.base.dtypes import Array, Dtype, is_floating, storage_type
from porter.base.errors import GraphError, UsageError, first_line
from porter.base.options import DEVICE
from porter.frameworks import Tensors
from porter.frameworks.batches import expect_axes, expect_count, expect_only_size
from porter.frameworks.code.plan_layers import Layer
from porter.frameworks.last_uses import last_uses
from porter.frameworks.torch import layers, resizing
from porter.frameworks.torch.layer_steps import make_steps
from porter.frameworks.torch.layout import module_name
from porter.frameworks.torch.spellings import GLOBAL_POOLS, OF_NUMBERS, REDUCTIONS
from porter.frameworks.torch.state import state_arrays
from porter.graph import Shape
from porter.graph.ops import is_map
from porter.graph.plan import Plan, taken_shapes


class Function(nn.Module):
    """A function of one value or more as a module, so that its value can be read where it is."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


class RepeatedCall(nn.Module):
    """Another call of a module, so that the value of each call can be read where it is. It has no tensors of
    its own.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._called = (module,)  # within a tuple it is no submodule

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._called[0].forward(*inputs)  # whose hooks see the first call only


def _from_left_to_right(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[..., torch.Tensor]:
    """Return a function that applies a function of two values to many, from left to right."""
    return lambda *inputs: reduce(function, inputs)


_FUNCTIONS: Mapping[str, Callable[..., torch.Tensor]] = {
    "add": _from_left_to_right(torch.add),
    "multiply": _from_left_to_right(torch.mul),
    "divide": torch.div,
    "maximum": _from_left_to_right(torch.maximum),
    "minimum": _from_left_to_right(torch.minimum),
    "concat": lambda *inputs: torch.cat(inputs, 1),
    **{kind: getattr(torch, kind) for kind in OF_NUMBERS},
    **{
        kind: partial(getattr(torch, method), dim=dim, keepdim=True)
        for kind, (method, dim) in REDUCTIONS.items()
    },
}


class GraphModule(nn.Module):
    """A plan's layers, as submodules at the paths of their nodes (`block3/expand/conv` is
    `block3.expand.conv`).

    Takes N×C×H×W and gives the value of the graph's output, or a tuple of several. An input that is no map
    has its own axes, and several come in the graph's order. If the plan is right at one size only, others
    raise UsageError; a trace of it raises too.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        # Names that no layer of a file has: "outputs", "steps" and "graph" are layers in many.
        self._plan, self._input_shapes = plan, taken_shapes(plan)
        steps = make_steps(plan)
        modules = {step.path: _make_module(step.layer) for step in steps if step.shares is None}
        modules |= {
            step.path: RepeatedCall(modules[step.shares]) for step in steps if step.shares is not None
        }
        for path in sorted(modules):  # each node before those below its path
            _add_module(self, path, modules[path])
        # The values that each step is the last to read; outputs are read in the end.
        last_read = last_uses((step.inputs for step in steps), plan.lowered.outputs)
        # Module name, path, inputs, and the values that nothing reads afterwards.
        self._steps = tuple(
            (module_name(step.path), step.path, step.inputs, tuple(unread))
            for step, unread in zip(steps, last_read, strict=True)
        )

    def forward(self, x: torch.Tensor, *further: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Run the layers one after the other and return the output, or a tuple of several. A value is dropped
        after its last use.
        """
        expect_count(len(further) + 1, self._input_shapes)
        inputs = zip(self._input_shapes.items(), (x, *further), strict=True)
        values = {path: self._expect_input(value, shape) for (path, shape), value in inputs}
        for name, path, sources, unread in self._steps:
            values[path] = self.get_submodule(name)(*(values[source] for source in sources))
            for source in unread:
                del values[source]
        outputs = tuple(values[path] for path in self._plan.lowered.outputs)
        return outputs if len(outputs) > 1 else outputs[0]

    def _expect_input(self, x: torch.Tensor, shape: Shape) -> torch.Tensor:
        """Return the input if it has the shape that the model takes; refuse any other by UsageError. In a
        trace, the result has operations that fail at another size.
        """
        if not isinstance(x, torch.Tensor):
            message = f"the input is a torch.Tensor, got an object of {type(x).__name__}"
            raise UsageError(message, next="give it as torch.from_numpy(x)")
        if not is_map(shape):
            if not torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
                expect_axes(x.shape, shape)
            return x
        _, rows, columns = shape
        if rows is None or columns is None:
            return x
        if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            # A trace would drop the `if` below. It keeps these no-ops, which fail at any other size.
            constrained: torch.Tensor = x.unflatten(2, (rows,)).unflatten(3, (columns,))  # type: ignore[no-untyped-call]
            return constrained
        if x.dim() != 4:
            message = (
                f"the input is a batch of images, N x C x {rows} x {columns}, got "
                f"{' x '.join(map(str, x.shape))}"
            )
            raise UsageError(message, next=f"give it as x.reshape(len(x), -1, {rows}, {columns})")
        size = x.shape[2], x.shape[3]
        expect_only_size(size, (rows, columns), fixed_by_pads=self._plan.fixed_by_pads)
        return x


def plan_of(model: GraphModule) -> Plan:
    return model._plan


def build_model(plan: Plan, tensors: Tensors, dtype: Dtype, device: str) -> GraphModule:
    """Build the module of a plan with `tensors` in porter's axis order, in `dtype` on `device`, in eval mode.

    Raises:
        UsageError: there is no such device. GraphError: a submodule cannot have a path. MappingError: the
            tensors do not fit.
    """
    arrays = state_arrays(plan.lowered, tensors)
    with torch.device("meta"):
        model = GraphModule(plan)
    state = {key: to_tensor(array, dtype if is_floating(array) else None) for key, array in arrays.items()}
    model.load_state_dict(state, assign=True)
    try:
        return model.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise no_device_error(device, error) from None


def no_device_error(device: str, error: Exception) -> UsageError:
    """Return the error for a device that torch cannot use."""
    next = (
        f"use {DEVICE('cpu')}, or on a machine with an NVIDIA GPU install a torch for its CUDA: "
        "https://pytorch.org/get-started"
    )
    return UsageError(f"torch cannot use the device '{device}': {first_line(error)}", where=DEVICE, next=next)


def module_with_other_pads(model: GraphModule, plan: Plan) -> GraphModule:
    """Return the module of a plan that differs from the plan of `model` only in its pads, in eval mode. It
    shares the parameters of `model`.
    """
    with torch.device("meta"):
        module = GraphModule(plan)
    module.load_state_dict(model.state_dict(keep_vars=True), assign=True)
    parameter = next(model.parameters(), None)
    return (module if parameter is None else module.to(parameter.device)).eval()


def to_tensor(array: Array, dtype: Dtype | None = None) -> torch.Tensor:
    """Copy `array`, which may be ml_dtypes' bfloat16, into a torch tensor, in its own type or in `dtype`."""
    kind = array.dtype.newbyteorder("=") if dtype is None else storage_type(dtype)
    with np.errstate(over="ignore"):  # porter.base.dtypes.cast decides on overflow, before this
        return as_tensor(array.astype(kind, order="C", copy=True))


def as_tensor(array: Array) -> torch.Tensor:
    """Return a torch tensor over the memory of `array`, in native byte order. Nothing may write into the
    tensor if nothing may into the array.
    """
    # torch takes no bfloat16 from numpy, so its bits go over as integers.
    if array.dtype == ml_dtypes.bfloat16:
        return as_tensor(array.view(np.int16)).view(torch.bfloat16)
    with warnings.catch_warnings(action="ignore"):  # it says that the array is only for reading
        return torch.from_numpy(array)


def _add_module(root: nn.Module, path: str, module: nn.Module) -> None:
    """Add a module to `root` at a path such as `layer1/0/conv1`, and make the modules on the way that are
    missing. Raise GraphError where torch takes a part of the path for no name.
    """
    *parents, name = path.split("/")
    parent = root
    try:
        for part in parents:
            if part not in parent._modules:
                parent.add_module(part, nn.Module())
            parent = parent.get_submodule(part)
        parent.add_module(name, module)
    except KeyError as error:
        raise GraphError(f"no torch submodule can have this path: {error.args[0]}", where=path) from None


def _make_module(layer: Layer) -> nn.Module:
    """Make the module of a layer: a Function, a global pool and a Flatten, or a class of porter's own or else
    of torch.nn.
    """
    if layer.kind in _FUNCTIONS:
        return Function(_FUNCTIONS[layer.kind])
    if layer.kind in GLOBAL_POOLS:
        return nn.Sequential(getattr(nn, GLOBAL_POOLS[layer.kind])(1), nn.Flatten())
    classes = (getattr(python_module, layer.kind, None) for python_module in (layers, resizing, nn))
    module_class = next(filter(None, classes))
    module: nn.Module = module_class(**layer.arguments)
    return module
