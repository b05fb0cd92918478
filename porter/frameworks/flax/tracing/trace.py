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
from porter.frameworks.flax.compiler import QUICKLY
from porter.frameworks.last_uses import last_uses
from porter.graph.walks import upstream


@dataclass(frozen=True)
class PerTrace:
    """What differs between the traces of a module at several sizes, such as an open size: what it is in
    each.
    """

    at: tuple[Any, ...]


Shape: TypeAlias = "tuple[int | PerTrace, ...]"


def at_each(value: Any, count: int) -> tuple[Any, ...]:
    """Return what a value is in each of so many traces."""
    return value.at if isinstance(value, PerTrace) else (value,) * count


_CALLS = frozenset(
    {"checkpoint", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit", "remat2"}
)
"""Primitives that compute what another jaxpr does."""
_BODIES = ("jaxpr", "call_jaxpr")
MOST_STEPS = 64
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


_NOTHING = JaxEquation(None, {}, (), ())


@dataclass
class Traced:
    """What a module computes of images.

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

    def value(self, stem: str, shape: Shape) -> str:
        """Return a new name: each primitive counts its own, so that a trace of another size has the same."""
        name = stem
        while name == stem or name in self.shapes:
            name = f"{stem}_{self._counts.setdefault(stem, 0)}"
            self._counts[stem] += 1
        self.shapes[name] = shape
        return name

    _counts: dict[str, int] = field(default_factory=dict)


def input_names(module: nnx.Module, count: int) -> tuple[str, ...]:
    """Return what a module calls what it is called with, as no layer or variable of it is called."""
    variables = {str(part) for path, _ in nnx.to_flat_state(nnx.state(module)) for part in path}
    # A module of linen is called by a wrapper that takes anything.
    called = module.to_nnx__module if isinstance(module, nnx.bridge.ToNNX) else module
    parameters = inspect.signature(called).parameters.values()
    names = [
        each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    names = names[:count]
    names += [f"input_{index}" for index in range(len(names), count)]
    return tuple(f"{name}_given" if name in variables else name for name in names)


def number_of(leaf: Any) -> Any:
    """Return the array of a leaf of a module's state: of a variable, or one that is an attribute by
    itself.
    """
    return leaf.get_value() if isinstance(leaf, nnx.Variable) else leaf


def trace(module: nnx.Module, taken: Mapping[str, Shape]) -> Traced:
    """Return the operations of a module in double precision that its outputs are computed from; random
    numbers, as a dropout has them in training, are not. Casts between real types are left out.

    Args:
        taken: the shapes of what it is called with, by name and in its order: of images N×H×W×C.

    Raises:
        Exception: whatever the module's own code raises.
    """
    graph, state = nnx.split(module)
    flat = nnx.to_flat_state(state)
    traced = Traced()

    def call(values: Sequence[Any], *given: Any) -> Any:
        variables = [
            (path, leaf.replace(value) if isinstance(leaf, nnx.Variable) else value)
            for (path, leaf), value in zip(flat, values, strict=True)
        ]
        return jax.tree.leaves(nnx.merge(graph, nnx.from_flat_state(variables))(*given))

    with jax.enable_x64(True):
        values = [number_of(leaf) for _, leaf in flat]
        kinds = [_kind(each.shape, jnp.float64 if _is_real(each.dtype) else each.dtype) for each in values]
        closed = jax.make_jaxpr(call)(kinds, *(_kind(shape, jnp.float64) for shape in taken.values()))
        names = [".".join(map(str, path)) for path, _ in flat]
        traced.variables = dict(zip(names, values, strict=True))
        traced.inputs = tuple(taken)
        traced.shapes = {name: value.shape for name, value in traced.variables.items()} | dict(taken)
        traced.outputs = tuple(_flatten(traced, closed.jaxpr, closed.consts, (*names, *taken)))
    made = {name: each.inputs for each in traced.operations for name in each.outputs}
    needed = upstream(traced.outputs, lambda name: made.get(name, ()))
    traced.operations = [each for each in traced.operations if not needed.isdisjoint(each.outputs)]
    return traced


_kind: Any = jax.ShapeDtypeStruct


def _flatten(found: Traced, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[str]) -> list[str]:
    """Add the operations of a jaxpr, with those of the ones that it calls; the names of its outputs."""
    names = dict(zip(jaxpr.invars, inputs, strict=True))

    def held(value: Any) -> str:
        name = found.value("constant", np.shape(value))
        found.constants[name] = value
        return name

    def named(atom: Any) -> str:
        return held(atom.val) if isinstance(atom, jax.extend.core.Literal) else names[atom]

    names.update(zip(jaxpr.constvars, map(held, constants), strict=True))
    for equation in jaxpr.eqns:
        given = [named(atom) for atom in equation.invars]
        kind = equation.primitive.name
        body = (
            next((equation.params[key] for key in _BODIES if key in equation.params), None)
            if kind in _CALLS
            else None
        )
        if kind == "scan" and equation.params["length"] <= MOST_STEPS:
            body = _in_a_row(equation)
        if body is not None:
            made = _flatten(found, getattr(body, "jaxpr", body), getattr(body, "consts", ()), given)
        elif (
            kind == "convert_element_type"
            and _is_real(equation.params["new_dtype"])
            and _is_real(equation.invars[0].aval.dtype)
        ):
            made = given
            found.rounding |= equation.params["new_dtype"].itemsize < 4
        else:
            made = [found.value(kind, each.aval.shape) for each in equation.outvars]
            found.operations.append(
                JaxEquation(equation.primitive, equation.params, tuple(given), tuple(made))
            )
        names.update(zip(equation.outvars, made, strict=True))
    return [named(atom) for atom in jaxpr.outvars]


def _in_a_row(scan: Any) -> Any:
    """Return the jaxpr of a scan's steps one after the other."""
    step, count = jax.extend.core.jaxpr_as_fun(scan.params["jaxpr"]), scan.params["length"]
    constants, carried = scan.params["num_consts"], scan.params["num_carry"]

    def steps(*given: Any) -> list[Any]:
        carry, rows = [*given[constants : constants + carried]], given[constants + carried :]
        made = [list[Any]() for _ in scan.outvars[carried:]]
        for index in reversed(range(count)) if scan.params["reverse"] else range(count):
            cut = [jax.lax.index_in_dim(each, index, keepdims=False) for each in rows]
            carry[:], outputs = _halves(step(*given[:constants], *carry, *cut), carried)
            for each, value in zip(made, outputs, strict=True):
                each.insert(0 if scan.params["reverse"] else count, value)
        return [*carry, *map(jnp.stack, made)]

    return jax.make_jaxpr(steps)(*(_kind(each.aval.shape, each.aval.dtype) for each in scan.invars))


def _halves(values: Sequence[Any], place: int) -> tuple[Sequence[Any], Sequence[Any]]:
    return values[:place], values[place:]


def _is_real(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def merge(traces: Sequence[Traced]) -> Traced:
    """Traces of one module at several sizes as one, whose sizes are open where they differ.

    Raises:
        ValueError: the module computes something else at one of the sizes.
    """
    first, *others = traces
    for other in others:
        same = first.outputs == other.outputs and all(
            (one.primitive, one.inputs, one.outputs) == (its.primitive, its.inputs, its.outputs)
            for one, its in zip_longest(first.operations, other.operations, fillvalue=_NOTHING)
        )
        if not same or first.constants.keys() != other.constants.keys():
            raise ValueError("other operations at another size")
    merged = Traced(variables=first.variables, inputs=first.inputs, outputs=first.outputs)
    merged.shapes = {name: _joined([each.shapes[name] for each in traces]) for name in first.shapes}
    merged.constants = {name: _joined([each.constants[name] for each in traces]) for name in first.constants}
    for alike in zip(*(each.operations for each in traces), strict=True):
        params = {name: _joined([each.params[name] for each in alike]) for name in alike[0].params}
        merged.operations.append(replace(alike[0], params=params))
    return merged


def _joined(values: Sequence[Any]) -> Any:
    """Return what the traces at several sizes have in common; a PerTrace where they differ."""
    first = values[0]
    if isinstance(first, tuple) and all(
        isinstance(each, tuple) and len(each) == len(first) for each in values
    ):
        parts = [_joined(each) for each in zip(*values, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    same = all(np.shape(each) == np.shape(first) and np.array_equal(each, first) for each in values)
    return first if same else PerTrace(tuple(values))


def compiled(traced: Traced, wanted: Collection[str], dtype: Dtype) -> Callable[..., NamedArrays]:
    """Return what gives the values of these names, and the outputs, for inputs of the traced shapes, computed
    in a type. It is compiled when it is first called.
    """
    wanted_at_end = {*wanted, *traced.outputs}
    program = jax.jit(lambda held: _values(traced, held, wanted_at_end, dtype), compiler_options=QUICKLY)

    def run(given: Sequence[Array]) -> dict[str, Array]:
        taken = dict(zip(traced.inputs, given, strict=True))
        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            held = {name: _real(each, dtype) for name, each in {**traced.variables, **taken}.items()}
            return {name: np.asarray(value) for name, value in program(held).items()}

    return run


def untraced(module: nnx.Module) -> Callable[..., tuple[Array, ...]]:
    """Return what gives the outputs of the module itself in float32, which no trace has changed."""
    graph, state = nnx.split(module)
    program = jax.jit(
        lambda held, *given: jax.tree.leaves(nnx.merge(graph, held)(*given)), compiler_options=QUICKLY
    )

    def run(given: Sequence[Array]) -> tuple[Array, ...]:
        held = jax.tree.map(lambda value: _real(value, "float32"), state)
        with jax.default_matmul_precision("highest"):
            return tuple(map(np.asarray, program(held, *given)))

    return run


def _values(traced: Traced, given: Mapping[str, Any], kept: Collection[str], dtype: Dtype) -> dict[str, Any]:
    """Return the values that are kept, each operation computed in `dtype`."""
    values = {**given, **{name: _real(each, dtype) for name, each in traced.constants.items()}}
    ended = last_uses(((*each.inputs, *each.outputs) for each in traced.operations), kept)
    for operation, gone in zip(traced.operations, ended, strict=True):
        params = dict(_params(operation, dtype))
        made = operation.primitive.bind(*(values[name] for name in operation.inputs), **params)
        values.update(
            zip(operation.outputs, made if operation.primitive.multiple_results else [made], strict=True)
        )
        for name in gone:
            del values[name]
    return {name: values[name] for name in kept}


def _params(operation: JaxEquation, dtype: Dtype) -> Iterator[tuple[str, Any]]:
    for name, value in operation.params.items():
        is_type = name.endswith("dtype") or name == "preferred_element_type"
        yield name, np.dtype(dtype) if is_type and value is not None and _is_real(value) else value


def _real(value: Any, dtype: Dtype) -> Any:
    return jnp.asarray(np.asarray(value, dtype)) if _is_real(value.dtype) else value
