"""A module of flax.nnx as the operations that JAX traces of it, one after the other, and their values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.frameworks.flax import QUICKLY
from porter.frameworks.last_uses import last_uses
from porter.graph.walks import upstream


@dataclass(frozen=True)
class PerTrace:
    """What differs between the traces of a module at several sizes, such as the rows of an image: `at` has
    its value in each trace.
    """

    at: tuple[Any, ...]


Shape: TypeAlias = "tuple[int | PerTrace, ...]"


def in_each_trace(value: Any, count: int) -> tuple[Any, ...]:
    """Return the value in each of `count` traces: that of a PerTrace in each, and any other repeated."""
    return value.at if isinstance(value, PerTrace) else (value,) * count


_CALLS = frozenset(
    {"checkpoint", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit", "remat2"}
)
"""Primitives that compute what another jaxpr does."""
_BODIES = ("jaxpr", "call_jaxpr")
MAX_STEPS = 64
"""The most steps of a scan that is written step by step: more than the deepest of published networks has
units.
"""


@dataclass(frozen=True)
class JaxEquation:
    """One equation of a jaxpr, without those that call others.

    Attributes:
        name: of its primitive.
        inputs: names of values.
        outputs: likewise.
    """

    primitive: Any
    params: Mapping[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(self.primitive.name)

    @property
    def source(self) -> str:
        """The first of its inputs."""
        return self.inputs[0]


_NO_EQUATION = JaxEquation(None, {}, (), ())


@dataclass
class Traced:
    """What a module computes of images: its operations in order, and its values, which have names.

    Attributes:
        shapes: of every value, by name.
        variables: names of the module's variables, which are their paths joined by dots.
        constants: numbers of its code, which may differ between traces.
        inputs: what it takes, images first.
        outputs: what it gives.
        rounding: whether it casts to a type below float32, which a trace leaves out.
    """

    operations: list[JaxEquation] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    rounding: bool = False

    def new_value(self, stem: str, shape: Shape) -> str:
        """Add a value and return its name. Names are counted for each primitive, so that a trace of another
        size has the same ones.
        """
        name = stem
        # A number always follows, and names of variables are taken.
        while name == stem or name in self.shapes:
            name = f"{stem}_{self._counts.setdefault(stem, 0)}"
            self._counts[stem] += 1
        self.shapes[name] = shape
        return name

    _counts: dict[str, int] = field(default_factory=dict)


def input_names(module: nnx.Module, count: int) -> tuple[str, ...]:
    """Return the names of a module's first `count` inputs: those of the arguments of its `__call__`, or
    `x_given` where a layer or variable is called `x`, and `input_1` where it takes any arguments.
    """
    variables = {str(part) for path, _ in nnx.to_flat_state(nnx.state(module)) for part in path}
    # A module of linen is called by a wrapper that takes anything.
    callable_module = module.to_nnx__module if isinstance(module, nnx.bridge.ToNNX) else module
    parameters = inspect.signature(callable_module).parameters.values()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in by_place][:count]
    names += [f"input_{index}" for index in range(len(names), count)]
    return tuple(f"{name}_given" if name in variables else name for name in names)


def array_of(leaf: Any) -> Any:
    """Return the array of a leaf of a module's state: that of a variable, or the leaf itself."""
    return leaf.get_value() if isinstance(leaf, nnx.Variable) else leaf


def trace(module: nnx.Module, input_shapes: Mapping[str, Shape]) -> Traced:
    """Trace a module in double precision, and return the operations that its outputs are computed from;
    random numbers, as a dropout has them in training, are not among them. Casts between real types are left
    out.

    Args:
        input_shapes: the shapes of the module's inputs, by name and in its order: of images N×H×W×C.

    Raises:
        Exception: whatever the module's own code raises.
    """
    graph, state = nnx.split(module)
    flat = nnx.to_flat_state(state)
    traced = Traced()

    def call(values: Sequence[Any], *inputs: Any) -> Any:
        """Call the module with these numbers in its variables, and return its outputs as a list."""
        variables = [
            (path, leaf.replace(value) if isinstance(leaf, nnx.Variable) else value)
            for (path, leaf), value in zip(flat, values, strict=True)
        ]
        return jax.tree.leaves(nnx.merge(graph, nnx.from_flat_state(variables))(*inputs))

    with jax.enable_x64(True):
        # Traced with shapes only: nothing is computed.
        values = [array_of(leaf) for _, leaf in flat]
        abstract_values = [
            abstract_array(value.shape, jnp.float64 if _is_real(value.dtype) else value.dtype)
            for value in values
        ]
        closed = jax.make_jaxpr(call)(
            abstract_values, *(abstract_array(shape, jnp.float64) for shape in input_shapes.values())
        )
        names = [".".join(map(str, path)) for path, _ in flat]
        traced.variables = dict(zip(names, values, strict=True))
        traced.inputs = tuple(input_shapes)
        traced.shapes = {name: value.shape for name, value in traced.variables.items()} | dict(input_shapes)
        traced.outputs = tuple(_add_equations(traced, closed.jaxpr, closed.consts, (*names, *input_shapes)))
    # Only what the outputs are computed from stays.
    inputs_of = {name: operation.inputs for operation in traced.operations for name in operation.outputs}
    needed = upstream(traced.outputs, lambda name: inputs_of.get(name, ()))
    traced.operations = [
        operation for operation in traced.operations if not needed.isdisjoint(operation.outputs)
    ]
    return traced


abstract_array: Any = jax.ShapeDtypeStruct


def _add_equations(traced: Traced, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[str]) -> list[str]:
    """Add the equations of a jaxpr (a program as JAX traces it) to `traced`, and return the names of its
    outputs. The equations of jaxprs that it calls stand in place of the calls. Short scans are unrolled;
    casts between real types are left out, and noted if they round.

    Args:
        constants: the values of the jaxpr's constants.
        inputs: the names of its inputs.
    """
    # by JAX's own variables
    names = dict(zip(jaxpr.invars, inputs, strict=True))

    def add_constant(value: Any) -> str:
        name = traced.new_value("constant", np.shape(value))
        traced.constants[name] = value
        return name

    def name_of(atom: Any) -> str:
        return add_constant(atom.val) if isinstance(atom, jax.extend.core.Literal) else names[atom]

    names.update(zip(jaxpr.constvars, map(add_constant, constants), strict=True))
    for equation in jaxpr.eqns:
        operands = [name_of(atom) for atom in equation.invars]
        kind = equation.primitive.name
        # The jaxpr that the equation calls.
        body = None
        if kind in _CALLS:
            body = next((equation.params[key] for key in _BODIES if key in equation.params), None)
        # Longer scans, and other loops, stay single operations.
        elif kind == "scan" and equation.params["length"] <= MAX_STEPS:
            body = _unroll_scan(equation)
        is_real_cast = (
            kind == "convert_element_type"
            and _is_real(equation.params["new_dtype"])
            and _is_real(equation.invars[0].aval.dtype)
        )
        if body is not None:
            results = _add_equations(
                traced, getattr(body, "jaxpr", body), getattr(body, "consts", ()), operands
            )
        elif is_real_cast:
            # Its value is the operand.
            results = operands
            traced.rounding |= equation.params["new_dtype"].itemsize < 4
        else:
            results = [traced.new_value(kind, output.aval.shape) for output in equation.outvars]
            traced.operations.append(
                JaxEquation(equation.primitive, equation.params, tuple(operands), tuple(results))
            )
        names.update(zip(equation.outvars, results, strict=True))
    return [name_of(atom) for atom in jaxpr.outvars]


def _unroll_scan(scan: Any) -> Any:
    """Return the jaxpr of a scan's steps one after the other. A scan has constants, values that each step
    hands to the next (`carry`), and arrays of which each step takes a row and gives one.
    """
    step, count = jax.extend.core.jaxpr_as_fun(scan.params["jaxpr"]), scan.params["length"]
    constant_count, carry_count = scan.params["num_consts"], scan.params["num_carry"]
    is_reversed = scan.params["reverse"]

    def steps(*values: Any) -> list[Any]:
        """Run all steps of the scan; its constants come first, then the carried values and the arrays."""
        constants, others = _split_at(values, constant_count)
        carry, arrays = _split_at(others, carry_count)
        rows_of_outputs = [list[Any]() for _ in scan.outvars[carry_count:]]
        for index in reversed(range(count)) if is_reversed else range(count):
            row = [jax.lax.index_in_dim(array, index, keepdims=False) for array in arrays]
            carry, outputs = _split_at(step(*constants, *carry, *row), carry_count)
            for rows, value in zip(rows_of_outputs, outputs, strict=True):
                # The rows of a scan that runs backwards have the order of its inputs.
                rows.insert(0 if is_reversed else count, value)
        return [*carry, *map(jnp.stack, rows_of_outputs)]

    inputs = (abstract_array(source.aval.shape, source.aval.dtype) for source in scan.invars)
    return jax.make_jaxpr(steps)(*inputs)


def _split_at(values: Sequence[Any], count: int) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the first `count` values, and the others."""
    return values[:count], values[count:]


def _is_real(dtype: Any) -> bool:
    """Say whether a type is of floating-point numbers."""
    return bool(jnp.issubdtype(dtype, jnp.floating))


def merge(traces: Sequence[Traced]) -> Traced:
    """Merge traces of one module at several sizes into one, in which a size, a parameter of an operation or a
    constant that differs between them is a PerTrace: the shapes (2, 224, 64) and (3, 225, 64) become
    (PerTrace((2, 3)), PerTrace((224, 225)), 64).

    Raises:
        ValueError: the module computes something else at one of the sizes.
    """
    first, *others = traces
    for other in others:
        if not _have_same_operations(first, other) or first.constants.keys() != other.constants.keys():
            raise ValueError("other operations at another size")
    merged = Traced(variables=first.variables, inputs=first.inputs, outputs=first.outputs)
    merged.shapes = {name: _merge_values([traced.shapes[name] for traced in traces]) for name in first.shapes}
    merged.constants = {
        name: _merge_values([traced.constants[name] for traced in traces]) for name in first.constants
    }
    for same_operation in zip(*(traced.operations for traced in traces), strict=True):
        operation = same_operation[0]
        params = {
            name: _merge_values([in_trace.params[name] for in_trace in same_operation])
            for name in operation.params
        }
        merged.operations.append(replace(operation, params=params))
    return merged


def _have_same_operations(first: Traced, second: Traced) -> bool:
    """Say whether two traces have the same operations in one order, with the same outputs. Names of values
    are counted for each primitive, so the same operations have the same names.
    """
    pairs = zip_longest(first.operations, second.operations, fillvalue=_NO_EQUATION)
    return first.outputs == second.outputs and all(
        (left.primitive, left.inputs, left.outputs) == (right.primitive, right.inputs, right.outputs)
        for left, right in pairs
    )


def _merge_values(values: Sequence[Any]) -> Any:
    """Return the value that the traces at several sizes have in common; a PerTrace where they differ, in a
    tuple for each part.
    """
    first = values[0]
    are_tuples = all(isinstance(value, tuple) for value in values)
    if are_tuples and all(len(value) == len(first) for value in values):
        parts = [_merge_values(parts_in_traces) for parts_in_traces in zip(*values, strict=True)]
        # a named tuple, or a plain one
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    are_equal = all(np.shape(value) == np.shape(first) and np.array_equal(value, first) for value in values)
    return first if are_equal else PerTrace(tuple(values))


def compile_traced(traced: Traced, names: Collection[str], dtype: Dtype) -> Callable[..., NamedArrays]:
    """Return a function that computes the values of these names, and the outputs, from inputs of the traced
    shapes, in a number type. It is compiled when it is first called.
    """
    names_and_outputs = {*names, *traced.outputs}
    program = jax.jit(
        lambda arrays: _compute_values(traced, arrays, names_and_outputs, dtype), compiler_options=QUICKLY
    )

    def run(images_and_further: Sequence[Array]) -> dict[str, Array]:
        """Return the values by name for a batch of each input, of maps N×H×W×C."""
        inputs = dict(zip(traced.inputs, images_and_further, strict=True))
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            arrays = {
                name: _cast_floats(value, dtype) for name, value in {**traced.variables, **inputs}.items()
            }
            return {name: np.asarray(value) for name, value in program(arrays).items()}

    return run


def compile_module(module: nnx.Module) -> Callable[..., tuple[Array, ...]]:
    """Return a function that computes the outputs of the module itself in float32, without the changes of
    `trace`. It is compiled when it is first called.
    """
    graph, state = nnx.split(module)
    program = jax.jit(
        lambda arrays, *inputs: jax.tree.leaves(nnx.merge(graph, arrays)(*inputs)), compiler_options=QUICKLY
    )

    def run(inputs: Sequence[Array]) -> tuple[Array, ...]:
        arrays = jax.tree.map(lambda value: _cast_floats(value, "float32"), state)
        with jax.default_matmul_precision("highest"):
            return tuple(map(np.asarray, program(arrays, *inputs)))

    return run


def _compute_values(
    traced: Traced, inputs: Mapping[str, Any], names: Collection[str], dtype: Dtype
) -> dict[str, Any]:
    """Compute each traced operation in `dtype`, one after the other, and return the values of these names;
    any other is dropped after its last use.

    Args:
        inputs: the values of the inputs and variables, by name.
    """
    constants = {name: _cast_floats(value, dtype) for name, value in traced.constants.items()}
    values = {**inputs, **constants}
    used = ((*operation.inputs, *operation.outputs) for operation in traced.operations)
    for operation, unread_names in zip(traced.operations, last_uses(used, names), strict=True):
        params = dict(_params_in_dtype(operation, dtype))
        # JAX's own primitive, on these numbers.
        returned = operation.primitive.bind(*(values[name] for name in operation.inputs), **params)
        results = returned if operation.primitive.multiple_results else [returned]
        values.update(zip(operation.outputs, results, strict=True))
        for name in unread_names:
            del values[name]
    return {name: values[name] for name in names}


def _params_in_dtype(operation: JaxEquation, dtype: Dtype) -> Iterator[tuple[str, Any]]:
    """Yield an operation's parameters with their values, of which those that state a floating-point type are
    replaced by `dtype`.
    """
    for name, value in operation.params.items():
        is_type = name.endswith("dtype") or name == "preferred_element_type"
        is_real_type = is_type and value is not None and _is_real(value)
        yield name, np.dtype(dtype) if is_real_type else value


def _cast_floats(value: Any, dtype: Dtype) -> Any:
    """Return real numbers as an array in `dtype`, and any other value as it is."""
    return jnp.asarray(np.asarray(value, dtype)) if _is_real(value.dtype) else value
