"""The graph of a plan as a module of flax.nnx, and its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from porter.base.dtypes import Array, Dtype, NamedArrays, storage_type
from porter.base.errors import UsageError, first_line
from porter.base.options import DEVICE
from porter.frameworks import UNCUT, Tensors
from porter.frameworks.code.channels_last import FUNCTIONS
from porter.frameworks.code.graph_modules import Computation, find_by_name, function_of_several
from porter.frameworks.code.plan_layers import Layer, LayerStep
from porter.frameworks.flax import QUICKLY, layers
from porter.frameworks.flax.code import PORTS
from porter.frameworks.flax.spellings import WITH_TENSORS
from porter.graph import Dropout
from porter.graph.plan import Plan


class _FlaxSteps(Computation):
    """See Computation. Two of them are never equal, so that jit compiles each for itself.

    Attributes:
        functions: kind and arguments of the layers that hold no variables, by the step's path.
    """

    def __init__(self, plan: Plan, dtype: Dtype) -> None:
        super().__init__(plan, dtype, PORTS, WITH_TENSORS)
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
        """Compute the values at `paths` with the layers of `model`; see Computation.values_by.

        Args:
            compiled: each layer is compiled for itself, equal ones once: for one batch that takes the least
                time.
        """

        def compute(step: LayerStep, operands: Sequence[Any]) -> Any:
            """Return the value of a step: that of its function, or of the layer at its place."""
            if step.path in self.functions:
                make_function = _compiled_function if compiled else _function
                return make_function(*self.functions[step.path])(*operands)
            layer = self.layer_of(model, step)
            return _compiled_module(*nnx.split(layer), *operands) if compiled else layer(*operands)

        return self.values_by(compute, inputs, paths, cut)


class GraphModule(nnx.Module):
    """A plan's layers at the paths that they have in model.py too.

    Takes N×H×W×C and gives the value of the graph's output, or a tuple of several. An input that is no map
    has its own axes.
    """

    def __init__(self, plan: Plan, dtype: Dtype, rngs: nnx.Rngs) -> None:
        self.program = nnx.static(_FlaxSteps(plan, dtype))
        self.program.set_layers(
            self,
            lambda layer: _find_by_name(layer.kind)(**layer.arguments, rngs=rngs),
            lambda is_row: nnx.List() if is_row else nnx.Module(),
        )

    def __call__(self, *inputs: Any) -> Any:
        values = self.program.values(self, inputs, self.program.plan.lowered.outputs)
        return self.program.outputs_in(values)


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
    """Run the module on a batch N×C×H×W and return by path its values at `taps`; see Computation.run."""
    program = model.program

    def compute(inputs: Sequence[Array], replaced: NamedArrays) -> NamedArrays:
        given = [jnp.asarray(_cast(array, program.dtype)) for array in inputs]
        replacements = {path: jnp.asarray(_cast(array, program.dtype)) for path, array in replaced.items()}
        values = program.values(model, given, taps, compiled=True, cut=replacements)
        readable = {
            path: value.astype(jnp.float32) if value.dtype == jnp.bfloat16 else value
            for path, value in values.items()
        }
        return {path: np.asarray(value) for path, value in readable.items()}

    with jax.enable_x64(program.dtype == "float64"), jax.default_matmul_precision("highest"):
        return program.run(batch, taps, cut, compute)


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


def _hashable(layer: Layer) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Return a layer's kind and arguments as a key of caches."""
    return layer.kind, tuple(layer.arguments.items())


@cache
def _function(kind: str, arguments: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """Return the function that computes a layer without variables, such as `jnp.add`, with its arguments."""
    if kind == "concat":
        return lambda *values: jnp.concatenate(values, axis=-1)
    if kind in FUNCTIONS:
        return function_of_several(kind, jnp)
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
    """Return a class or a function of Flax, of JAX or of layers.py; see find_by_name."""
    return find_by_name(name, {"nnx": nnx, "jnp": jnp, "jax": jax}, layers)
