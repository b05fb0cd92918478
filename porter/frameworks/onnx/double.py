"""ONNX's reference implementation in double precision, with operators of porter's own where its are wrong.
Every value is compared with onnxruntime's float32 too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays, is_floating
from porter.base.errors import CannotRun, first_line
from porter.base.options import CHECK
from porter.frameworks import UNCUT
from porter.frameworks.last_uses import last_uses
from porter.frameworks.onnx.operators import own_operators
from porter.frameworks.onnx.session import Session


def make_float64_session(
    model: Any,
    tensors: NamedArrays = MappingProxyType({}),
    exact: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> Session:
    """Make a session that runs a ModelProto in double precision by ONNX's reference implementation.

    Args:
        tensors: the content of its last inputs, as stored. Each node takes them in double precision for
            itself, so that they are not all held twice.
        exact: attributes whose numbers the model rounds to float32, by the name of the node's first value and
            of the attribute.

    Raises:
        CannotRun: the reference implementation lacks an op of the model, or, when called, refuses what
            an op takes.
    """
    evaluator = _make_evaluator(model, exact)
    names = [value.name for value in model.graph.input]
    return _make_session(evaluator, names, tensors)


def make_rounding_session(model: Any) -> Session:
    """Make a session that runs a ModelProto in the number types that it states: the values of an operator are
    rounded to the narrowest type of the real numbers that it takes. onnxruntime computes halves in single
    precision.

    Raises:
        CannotRun: as `make_float64_session`.
    """
    evaluator = _make_evaluator(model, {}, _run_rounding)
    return _make_session(evaluator, [value.name for value in model.graph.input])


def _make_session(
    evaluator: Any, names: Sequence[str], tensors: NamedArrays = MappingProxyType({})
) -> Session:
    """Return a session that runs an evaluator on batches of the inputs `names`, and on `tensors`. A value is
    dropped after its last use, unless the model has branches, which may read any; only without them can
    values be cut.
    """
    has_branches = any(node.need_context() for node in evaluator.rt_nodes_)  # those may read any value

    def run(*batches: Array, cut: NamedArrays = UNCUT) -> list[Array]:
        """Run the model on batches of its inputs; values named in `cut` are read in place of computed
        ones.
        """
        inputs = {**dict(zip(names, batches, strict=False)), **tensors}
        try:
            with np.errstate(all="ignore"):  # a logarithm of what is below 0 is compared as it is
                values: list[Array] = (
                    evaluator.run(None, inputs)
                    if has_branches
                    else _run_freeing_values(evaluator, inputs, cut)
                )
        except Exception as error:  # whatever its ops raise for inputs that do not fit
            raise _cannot_run(error) from None
        return values

    return run


def _run_freeing_values(evaluator: Any, inputs: NamedArrays, cut: NamedArrays) -> list[Array]:
    """Run a model and return its outputs, as the evaluator's own `run` does, but hold each value only until
    its last use: its own holds all until the end.

    Args:
        cut: by name, what is read in place of a value.
    """
    # The name "" stands for an input that is left out.
    known = {"": None, **evaluator.rt_inits_, **inputs}
    nodes = evaluator.rt_nodes_
    outputs = evaluator.output_names
    output_values = {name: known[name] for name in outputs if name in known}
    # The names that each node is the last to use.
    read_last = last_uses(((*node.input, *node.output) for node in nodes), {""})
    for node, unread in zip(nodes, read_last, strict=True):
        values = node.run(*(known[name] for name in node.input))
        for name, value in zip(node.output, values, strict=False):
            # A cut value is read by the nodes behind; as an output, the computed one is given.
            known[name] = cut[name].reshape(value.shape).astype(value.dtype) if name in cut else value
            if name in outputs:
                output_values[name] = value
        for name in unread:
            known.pop(name, None)
    return [output_values[name] for name in outputs]


def replay(model: Any, tensors: NamedArrays, values: NamedArrays) -> Iterator[tuple[Any, Sequence[Array]]]:
    """Run each node of a model by ONNX's reference implementation on values that another runtime gave. Yield
    the node (NodeProto) and its outputs.

    Args:
        tensors: the content of the model's last inputs, as stored.
        values: the other runtime's values, and the model's inputs, by name.

    Raises:
        CannotRun: as `make_float64_session`.
    """
    evaluator = _make_evaluator(model, {})
    known = {"": None, **evaluator.rt_inits_, **tensors, **values}
    for node in evaluator.rt_nodes_:
        try:
            with np.errstate(all="ignore"):
                outputs = node.run(*(known[name] for name in node.input))
        except Exception as error:  # whatever its ops raise for inputs that do not fit
            raise _cannot_run(error) from None
        yield node.onnx_node, outputs


def _make_evaluator(
    model: Any, exact: Mapping[str, Mapping[str, float]], run_node: Callable[..., Any] | None = None
) -> Any:
    """Make ONNX's evaluator of a model, with porter's own operators.

    Args:
        exact: attributes that get the numbers that float32 has rounded; see `make_float64_session`.
        run_node: runs each node, but for a Cast, which is left as it is; without it, every node is run in
            float64.

    Raises:
        CannotRun: an operator is missing.
    """
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    try:
        evaluator = import_module("onnx.reference").ReferenceEvaluator(model, new_ops=own_operators(opset))
    except Exception as error:  # whatever the reading of its attributes raises
        raise _cannot_run(error) from None
    for node in evaluator.rt_nodes_:
        for attribute, number in exact.get(node.output[0], {}).items():
            setattr(node, attribute, number)
        if run_node is None or node.onnx_node.op_type != "Cast":
            node.run = partial(run_node or _run_in_float64, node.run)
    return evaluator


def _cannot_run(error: Exception) -> CannotRun:
    """Return the error that says that the reference implementation cannot run the model."""
    text = first_line(error)
    if isinstance(error, LookupError):  # whose text is only a key
        text = f"{type(error).__name__}: {text}"
    return CannotRun(
        f"ONNX's reference implementation cannot run this model: {text}",
        next=f"export the model again with a current exporter, or convert it with {CHECK(False)}",
    )


def _run_in_float64(run: Callable[..., Any], *inputs: Any, **context: Any) -> Any:
    """Run an operator on its inputs, whose real numbers are made float64 first."""
    in_float64 = (value.astype("d", copy=False) if _has_floats(value) else value for value in inputs)
    return run(*in_float64, **context)


def _run_rounding(run: Callable[..., Any], *inputs: Any, **context: Any) -> Any:
    """Run an operator in float64, and round its outputs to the narrowest type of its inputs."""
    dtypes = [value.dtype for value in inputs if _has_floats(value)]
    outputs = _run_in_float64(run, *inputs, **context)
    if not dtypes:
        return outputs
    narrowest = min(dtypes, key=lambda dtype: dtype.itemsize)
    return tuple(value.astype(narrowest, copy=False) if _has_floats(value) else value for value in outputs)


def _has_floats(value: Any) -> bool:
    """Say whether a value is an array of real numbers."""
    return isinstance(value, np.ndarray) and is_floating(value)
