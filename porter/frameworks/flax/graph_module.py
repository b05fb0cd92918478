"""The graph of a plan as a module of flax.nnx, and its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, reduce
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from porter.base.dtypes import Array, Dtype, NamedArrays, storage_type
from porter.base.errors import UsageError, first_line
from porter.base.options import DEVICE
from porter.frameworks import UNCUT, Tensors
from porter.frameworks.code.language import Layer
from porter.frameworks.flax import layers
from porter.frameworks.flax.code import ModulePlace, places
from porter.frameworks.flax.compiler import QUICKLY
from porter.frameworks.flax.spellings import FUNCTIONS, SPELLINGS, WITH_TENSORS
from porter.frameworks.flax.state import arrays_of
from porter.frameworks.images import as_taken, expect_axes, expect_only_size
from porter.frameworks.last_uses import last_uses
from porter.graph import Dropout, Graph
from porter.graph.ops import is_map
from porter.graph.plan import Plan, taken_shapes

_JOINED: Mapping[str, Callable[..., Any]] = {
    "add": jnp.add,
    "multiply": jnp.multiply,
    "divide": jnp.divide,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
}


class Computation:
    """What a GraphModule computes from its layers. Two of them are never equal, so that jit compiles each for
    itself.
    """

    def __init__(self, plan: Plan, dtype: Dtype) -> None:
        self.plan, self.dtype = plan, dtype
        self.places = places(plan)
        self.steps = SPELLINGS.steps(plan)
        self.functions = {
            step.path: _key(step.layer) for step in self.steps if step.layer.kind not in WITH_TENSORS
        }
        self.taken = taken_shapes(plan)

    def values(
        self,
        model: nnx.Module,
        inputs: Sequence[Any],
        paths: Sequence[str],
        compiled: bool = False,
        cut: Mapping[str, Any] = UNCUT,
    ) -> dict[str, Any]:
        """Return the values at `paths`; each other one is held until its last use.

        Args:
            cut: by path, what is read in place of its value.
            compiled: each layer is compiled for itself, equal ones once: for one batch that takes the least
                time.

        Raises:
            UsageError: the inputs are others than those of the plan.
        """
        values = dict(zip(self.taken, self._checked(inputs), strict=True))
        shown = dict[str, Any]()
        ended = last_uses((*step.inputs, step.path) for step in self.steps)
        for step, gone in zip(self.steps, ended, strict=True):
            given = [values[path] for path in step.inputs]
            if step.path in self.functions:
                values[step.path] = (_compiled if compiled else _function)(*self.functions[step.path])(*given)
            else:
                layer = _at(model, self.places[step.path])
                values[step.path] = _compiled_module(*nnx.split(layer), *given) if compiled else layer(*given)
            if step.path in paths:
                shown[step.path] = values[step.path]
            if step.path in cut:
                values[step.path] = cut[step.path]
            for path in gone:
                del values[path]
        return {path: shown[path] for path in paths}

    def _checked(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs, if they are as many and have the shapes that the model takes."""
        if len(inputs) != len(self.taken):
            next = f"give it {', '.join(self.taken)}"
            raise UsageError(f"the model takes {len(self.taken)} inputs, got {len(inputs)}", next=next)
        for x, shape in zip(inputs, self.taken.values(), strict=True):
            if not is_map(shape):
                expect_axes(x.shape, shape)
                continue
            channels, rows, columns = shape
            if x.ndim != 4 or x.shape[3] != channels:
                got = " x ".join(map(str, x.shape))
                next = "give it with the channels last"
                raise UsageError(
                    f"the input is a batch of images, N x H x W x {channels}, got {got}", next=next
                )
            if rows is not None and columns is not None:
                size = x.shape[1], x.shape[2]
                expect_only_size(size, (rows, columns), fixed_by_pads=self.plan.fixed_by_pads)
        return inputs


class GraphModule(nnx.Module):
    """A plan's layers at the paths that they have in model.py too.

    Takes N×H×W×C and gives the value of the graph's output, or a tuple of several. An input that is no map
    has its own axes.
    """

    def __init__(self, plan: Plan, dtype: Dtype, rngs: nnx.Rngs) -> None:
        self.program = nnx.static(Computation(plan, dtype))
        for step in self.program.steps:
            if step.layer.kind in WITH_TENSORS and step.shares is None:
                _put(
                    self,
                    self.program.places[step.path],
                    _kind(step.layer.kind)(**step.layer.arguments, rngs=rngs),
                )

    def __call__(self, *inputs: Any) -> Any:
        outputs = self.program.plan.lowered.outputs
        values = self.program.values(self, inputs, outputs)
        return values[outputs[0]] if len(outputs) == 1 else tuple(values[path] for path in outputs)


def build_model(plan: Plan, tensors: Tensors, dtype: Dtype, device: str) -> GraphModule:
    """Return the module of a plan with canonical `tensors`, in `dtype` on `device`, in eval mode.

    Raises:
        UsageError: there is no such device. MappingError: the tensors do not fit.
    """
    arrays = arrays_of(plan, tensors)
    on = _device(device)
    with jax.enable_x64(dtype == "float64"):

        def made() -> GraphModule:
            return GraphModule(plan, dtype, nnx.Rngs(0))

        def drawn() -> Any:
            return nnx.state(made(), nnx.RngState)

        split: Any = nnx.split(nnx.eval_shape(made), nnx.Not(nnx.RngState), ...)
        graph, state, random = split
        if any(isinstance(node.op, Dropout) for node in plan.lowered.nodes):
            # The file does not hold their random numbers. Compiled, they are all that is made: the first
            # numbers of an EfficientNet-B0's layers took 18 s.
            random = jax.jit(drawn, compiler_options=QUICKLY)()
        filled = [
            (path, variable.replace(jax.device_put(_cast(arrays[".".join(map(str, path))], dtype), on)))
            for path, variable in nnx.to_flat_state(state)
        ]
        model: GraphModule = nnx.merge(graph, nnx.from_flat_state(filled), random)
    model.eval()  # type: ignore[no-untyped-call]
    return model


def run_model(
    model: GraphModule, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Return values at the nodes `taps` for a batch N×C×H×W; maps come back as N×C×H×W.

    Args:
        cut: see porter.frameworks.PortEngine.run.

    Raises:
        UsageError: a tap is not a node of the model, or the batch does not fit its input.
    """
    program = model.program
    graph = program.plan.lowered
    missing = [path for path in taps if path not in graph.by_path]
    if missing:
        raise UsageError("the model has no such node", where=missing[0])
    with jax.enable_x64(program.dtype == "float64"), jax.default_matmul_precision("highest"):
        inputs = [
            jnp.asarray(_cast(each, program.dtype)) for each in as_taken(batch, graph, channels_last=True)
        ]
        instead = {
            path: jnp.asarray(
                _cast(array.transpose(0, 2, 3, 1) if _is_map(graph, path) else array, program.dtype)
            )
            for path, array in cut.items()
        }
        values = program.values(model, inputs, taps, compiled=True, cut=instead)
        wide = {
            path: value.astype(jnp.float32) if value.dtype == jnp.bfloat16 else value
            for path, value in values.items()
        }
        shown = {path: np.asarray(value) for path, value in wide.items()}
    return {
        path: array.transpose(0, 3, 1, 2) if _is_map(graph, path) else array for path, array in shown.items()
    }


def _is_map(graph: Graph, path: str) -> bool:
    return is_map(graph.open_shapes[path])


def _cast(array: Array, dtype: Dtype) -> Array:
    with np.errstate(over="ignore"):  # porter.base.dtypes.cast decides on overflow, before this
        return array.astype(storage_type(dtype))


def _device(device: str) -> Any:
    """Return JAX's device of this name."""
    kind, _, number = device.partition(":")
    try:
        return jax.devices(kind)[int(number or 0)]
    except (RuntimeError, IndexError, ValueError) as error:
        next = f"use {DEVICE('cpu')}, or on a machine with an NVIDIA GPU install jax[cuda13]"
        raise UsageError(
            f"JAX cannot use the device '{device}': {first_line(error)}", where=DEVICE, next=next
        ) from None


def _at(model: Any, place: ModulePlace) -> Any:
    return reduce(
        lambda found, name: found[name] if isinstance(name, int) else getattr(found, name), place, model
    )


def _put(root: nnx.Module, place: ModulePlace, layer: nnx.Module) -> None:
    """Set a layer at its place, in rows and modules that are made on the way."""
    around: Any = root
    for name, below in zip(place, (*place[1:], None), strict=True):
        new = layer
        if below is not None:
            new = nnx.List() if isinstance(below, int) else nnx.Module()
        if isinstance(name, int):
            if name == len(around):
                around.append(new)
            around = around[name]
        else:
            if not hasattr(around, name):
                setattr(around, name, new)
            around = getattr(around, name)


def _key(layer: Layer) -> tuple[str, tuple[tuple[str, Any], ...]]:
    return layer.kind, tuple(layer.arguments.items())


@cache
def _function(kind: str, arguments: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """Return the function of a layer that has no variables."""
    if kind == "concat":
        return lambda *values: jnp.concatenate(values, axis=-1)
    if kind in FUNCTIONS:
        return lambda *values: reduce(_JOINED[kind], values)
    return partial(_kind(kind), **dict(arguments)) if arguments else cast(Callable[..., Any], _kind(kind))


@cache
def _compiled(kind: str, arguments: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    return jax.jit(_function(kind, arguments), compiler_options=QUICKLY)


_compiled_module = jax.jit(
    lambda graph, state, *inputs: nnx.merge(graph, state)(*inputs),
    static_argnums=0,
    compiler_options=QUICKLY,
)


def _kind(name: str) -> Any:
    """Return a class or a function of Flax, of JAX or of layers.py."""
    root, *names = name.split(".")
    owner = {"nnx": nnx, "jnp": jnp, "jax": jax}.get(root) or getattr(layers, root)
    return reduce(getattr, names, owner)
