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
from porter.frameworks.code.code_ports import ModulePlace
from porter.frameworks.code.language import Layer, LayerStep
from porter.frameworks.code.step_values import inputs_last, step_values
from porter.frameworks.flax import layers
from porter.frameworks.flax.compiler import QUICKLY
from porter.frameworks.flax.spellings import FUNCTIONS, SPELLINGS, WITH_TENSORS
from porter.frameworks.flax.state import PORTS
from porter.frameworks.images import arrays_for_inputs
from porter.graph import Dropout, Graph
from porter.graph.ops import is_map
from porter.graph.plan import Plan

_BINARY_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": jnp.add,
    "multiply": jnp.multiply,
    "divide": jnp.divide,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
}


class Computation:
    """The steps of a plan, by which a GraphModule computes values with its layers. Two of them are never
    equal, so that jit compiles each for itself.

    Attributes:
        places: where the layer of each node stands in the module, by the node's path.
        functions: kind and arguments of the layers that hold no variables, by the step's path.
    """

    def __init__(self, plan: Plan, dtype: Dtype) -> None:
        self.plan, self.dtype = plan, dtype
        self.places = PORTS.places(plan)
        self.steps = SPELLINGS.steps(plan)
        self.functions = {
            step.path: _hashable(step.layer) for step in self.steps if step.layer.kind not in WITH_TENSORS
        }

    def values(
        self,
        model: nnx.Module,
        inputs: Sequence[Any],
        paths: Sequence[str],
        compiled: bool = False,
        cut: Mapping[str, Any] = UNCUT,
    ) -> dict[str, Any]:
        """Compute the values at `paths` with the layers of `model`, and return them by path. See
        porter.frameworks.code.step_values.

        Args:
            inputs: a batch for each input of the plan; maps are N×H×W×C.
            compiled: each layer is compiled for itself, equal ones once: for one batch that takes the least
                time.
            cut: by path, the array that the layers behind it read in place of its value.

        Raises:
            UsageError: the inputs are others than those of the plan.
        """

        def compute(step: LayerStep, operands: Sequence[Any]) -> Any:
            """Return the value of a step: that of its function, or of the layer at its place."""
            if step.path in self.functions:
                make_function = _compiled_function if compiled else _function
                return make_function(*self.functions[step.path])(*operands)
            layer = _layer_at(model, self.places[step.path])
            return _compiled_module(*nnx.split(layer), *operands) if compiled else layer(*operands)

        return step_values(self.steps, inputs_last(self.plan, inputs), paths, cut, compute)


class GraphModule(nnx.Module):
    """A plan's layers at the paths that they have in model.py too.

    Takes N×H×W×C and gives the value of the graph's output, or a tuple of several. An input that is no map
    has its own axes.
    """

    def __init__(self, plan: Plan, dtype: Dtype, rngs: nnx.Rngs) -> None:
        self.program = nnx.static(Computation(plan, dtype))
        for step in self.program.steps:
            is_further_call = step.shares is not None
            if step.layer.kind in WITH_TENSORS and not is_further_call:
                layer = _find_by_name(step.layer.kind)(**step.layer.arguments, rngs=rngs)
                _set_layer(self, self.program.places[step.path], layer)

    def __call__(self, *inputs: Any) -> Any:
        outputs = self.program.plan.lowered.outputs
        values = self.program.values(self, inputs, outputs)
        return values[outputs[0]] if len(outputs) == 1 else tuple(values[path] for path in outputs)


def build_model(plan: Plan, tensors: Tensors, dtype: Dtype, device: str) -> GraphModule:
    """Build the module of a plan with `tensors` in porter's axis order, in `dtype` on `device`, in eval mode.

    Raises:
        UsageError: there is no such device. MappingError: the tensors do not fit.
    """
    arrays = PORTS.arrays(plan, tensors)
    jax_device = _find_device(device)
    with jax.enable_x64(dtype == "float64"):

        def make_module() -> GraphModule:
            return GraphModule(plan, dtype, nnx.Rngs(0))

        def draw_random_state() -> Any:
            return nnx.state(make_module(), nnx.RngState)

        # Shapes only: no memory is taken for variables that are replaced.
        split: Any = nnx.split(nnx.eval_shape(make_module), nnx.Not(nnx.RngState), ...)
        graph, state, random_state = split
        if any(isinstance(node.op, Dropout) for node in plan.lowered.nodes):
            # The file does not hold their random numbers. Compiled, they are all that is made: the first
            # numbers of an EfficientNet-B0's layers took 18 s.
            random_state = jax.jit(draw_random_state, compiler_options=QUICKLY)()
        variables = []
        for path, variable in nnx.to_flat_state(state):
            array = _cast(arrays[".".join(map(str, path))], dtype)
            variables.append((path, variable.replace(jax.device_put(array, jax_device))))
        model: GraphModule = nnx.merge(graph, nnx.from_flat_state(variables), random_state)
    model.eval()  # type: ignore[no-untyped-call]
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
    graph = program.plan.lowered
    missing = [path for path in taps if path not in graph.by_path]
    if missing:
        raise UsageError("the model has no such node", where=missing[0])
    channels_last = {
        path: array.transpose(0, 2, 3, 1) if _is_map(graph, path) else array for path, array in cut.items()
    }
    with jax.enable_x64(program.dtype == "float64"), jax.default_matmul_precision("highest"):
        inputs = [
            jnp.asarray(_cast(array, program.dtype))
            for array in arrays_for_inputs(batch, graph, channels_last=True)
        ]
        replacements = {
            path: jnp.asarray(_cast(array, program.dtype)) for path, array in channels_last.items()
        }
        values = program.values(model, inputs, taps, compiled=True, cut=replacements)
        readable = {
            path: value.astype(jnp.float32) if value.dtype == jnp.bfloat16 else value
            for path, value in values.items()
        }
        arrays = {path: np.asarray(value) for path, value in readable.items()}
    return {
        path: array.transpose(0, 3, 1, 2) if _is_map(graph, path) else array for path, array in arrays.items()
    }


def _is_map(graph: Graph, path: str) -> bool:
    return is_map(graph.open_shapes[path])


def _cast(array: Array, dtype: Dtype) -> Array:
    with np.errstate(over="ignore"):  # porter.base.dtypes.cast decides on overflow, before this
        return array.astype(storage_type(dtype))


def _find_device(device: str) -> Any:
    """Return JAX's device of this name, such as `cpu` or `cuda:1`; one that JAX cannot use is refused."""
    kind, _, number = device.partition(":")
    try:
        return jax.devices(kind)[int(number or 0)]
    except (RuntimeError, IndexError, ValueError) as error:
        next = f"use {DEVICE('cpu')}, or on a machine with an NVIDIA GPU install jax[cuda13]"
        raise UsageError(
            f"JAX cannot use the device '{device}': {first_line(error)}", where=DEVICE, next=next
        ) from None


def _layer_at(model: Any, place: ModulePlace) -> Any:
    """Return the layer of a model at a place, which is a path of attributes and of indices in rows:
    `("layer1", "layers", 0, "conv1")` is `model.layer1.layers[0].conv1`.
    """
    layer = model
    for name in place:
        layer = layer[name] if isinstance(name, int) else getattr(layer, name)
    return layer


def _set_layer(root: nnx.Module, place: ModulePlace, layer: nnx.Module) -> None:
    """Set a layer at its place in `root`. The modules and rows on the way to it are made where they are
    missing: a name is an attribute of a module, a number an index of a row.
    """
    parent: Any = root
    # `next_name` is a number if a row stands here, and None for the layer itself.
    for name, next_name in zip(place, (*place[1:], None), strict=True):
        child = layer
        if next_name is not None:
            child = nnx.List() if isinstance(next_name, int) else nnx.Module()
        if isinstance(name, int):
            # Layers come in their order, so what a row lacks is its next item.
            if name == len(parent):
                parent.append(child)
            parent = parent[name]
        else:
            if not hasattr(parent, name):
                setattr(parent, name, child)
            parent = getattr(parent, name)


def _hashable(layer: Layer) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return a layer's kind and arguments as a key of caches."""
    return layer.kind, tuple(layer.arguments.items())


@cache
def _function(kind: str, arguments: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """Return the function that computes a layer without variables, such as `jnp.add`, with its arguments."""
    if kind == "concat":
        return lambda *values: jnp.concatenate(values, axis=-1)
    if kind in FUNCTIONS:
        return lambda *values: reduce(_BINARY_FUNCTIONS[kind], values)
    function = cast(Callable[..., Any], _find_by_name(kind))
    return partial(function, **dict(arguments)) if arguments else function


@cache
def _compiled_function(kind: str, arguments: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """Return the function of a layer that has no variables, compiled for itself."""
    return jax.jit(_function(kind, arguments), compiler_options=QUICKLY)


_compiled_module = jax.jit(
    lambda graph, state, *inputs: nnx.merge(graph, state)(*inputs),
    static_argnums=0,
    compiler_options=QUICKLY,
)


def _find_by_name(name: str) -> Any:
    """Return a class or a function of Flax, of JAX or of layers.py by its dotted name in model.py, such as
    `nnx.Conv`.
    """
    root, *names = name.split(".")
    owner = {"nnx": nnx, "jnp": jnp, "jax": jax}.get(root) or getattr(layers, root)
    return reduce(getattr, names, owner)
