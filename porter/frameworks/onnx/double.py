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
    """Return what runs a ModelProto in double precision.

    Args:
        tensors: the content of its last inputs, as stored. Each node takes them in double precision for
            itself, so that they are not all held twice.
        exact: attributes whose numbers the model rounds to float32, by the name of the node's first value and
            of the attribute.

    Raises:
        CannotRun: the reference implementation lacks an op of the model, or, when called, refuses what
            an op takes.
    """
    evaluator = _evaluator(model, exact)
    names = [value.name for value in model.graph.input]
    return _session(evaluator, names, tensors)


def make_rounding(model: Any) -> Session:
    """Return what runs a ModelProto in the number types that it states: what an operator gives is rounded to
    the narrowest type of the real numbers that it takes. onnxruntime computes halves in single precision.

    Raises:
        CannotRun: as `make_float64_session`.
    """
    evaluator = _evaluator(model, {}, _rounded)
    return _session(evaluator, [value.name for value in model.graph.input])


def _session(evaluator: Any, names: Sequence[str], tensors: NamedArrays = MappingProxyType({})) -> Session:
    """Return what runs the model; values are dropped after their last use unless branches may read them."""
    nested = any(node.need_context() for node in evaluator.rt_nodes_)  # those may read any value

    def run(*batches: Array, cut: NamedArrays = UNCUT) -> list[Array]:
        given = {**dict(zip(names, batches, strict=False)), **tensors}
        try:
            with np.errstate(all="ignore"):  # a logarithm of what is below 0 is compared as it is
                values: list[Array] = evaluator.run(None, given) if nested else _run(evaluator, given, cut)
        except Exception as error:  # whatever its ops raise for inputs that do not fit
            raise _refusal(error) from None
        return values

    return run


def _run(evaluator: Any, given: NamedArrays, cut: NamedArrays) -> list[Array]:
    """Run as the evaluator's own `run` does, which holds all values until the end: here a value is held until
    its last use.

    Args:
        cut: by name, what is read in place of a value.
    """
    known = {"": None, **evaluator.rt_inits_, **given}
    nodes = evaluator.rt_nodes_
    outputs = evaluator.output_names
    shown = {name: known[name] for name in outputs if name in known}
    for node, ended in zip(
        nodes, last_uses(((*node.input, *node.output) for node in nodes), {""}), strict=True
    ):
        for name, value in zip(node.output, node.run(*(known[name] for name in node.input)), strict=False):
            known[name] = cut[name].reshape(value.shape).astype(value.dtype) if name in cut else value
            if name in outputs:
                shown[name] = value
        for name in ended:
            known.pop(name, None)
    return [shown[name] for name in outputs]


def replay(model: Any, tensors: NamedArrays, values: NamedArrays) -> Iterator[tuple[Any, Sequence[Array]]]:
    """Yield each node (NodeProto) of a model with what the reference makes of `values`, which another runtime
    gave by name.

    Raises:
        CannotRun: as `make_float64_session`.
    """
    evaluator = _evaluator(model, {})
    known = {"": None, **evaluator.rt_inits_, **tensors, **values}
    for node in evaluator.rt_nodes_:
        try:
            with np.errstate(all="ignore"):
                outputs = node.run(*(known[name] for name in node.input))
        except Exception as error:  # as above
            raise _refusal(error) from None
        yield node.onnx_node, outputs


def _evaluator(
    model: Any, exact: Mapping[str, Mapping[str, float]], way: Callable[..., Any] | None = None
) -> Any:
    """Return ONNX's evaluator of a model, which runs each node in a `way`."""
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    try:
        evaluator = import_module("onnx.reference").ReferenceEvaluator(model, new_ops=own_operators(opset))
    except Exception as error:  # whatever the reading of its attributes raises
        raise _refusal(error) from None
    for node in evaluator.rt_nodes_:
        for attribute, number in exact.get(node.output[0], {}).items():
            setattr(node, attribute, number)
        if way is None or node.onnx_node.op_type != "Cast":
            node.run = partial(way or _widened, node.run)
    return evaluator


def _refusal(error: Exception) -> CannotRun:
    """Return the error that the reference implementation cannot run the model."""
    text = (
        f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, LookupError)
        else first_line(error)
    )
    return CannotRun(
        f"ONNX's reference implementation cannot run this model: {text}",
        next=f"export the model again with a current exporter, or convert it with {CHECK(False)}",
    )


def _widened(run: Callable[..., Any], *inputs: Any, **context: Any) -> Any:
    """Return what an operator gives for inputs that are made float64 first."""
    real = (isinstance(each, np.ndarray) and is_floating(each) for each in inputs)
    return run(
        *(each.astype("d", copy=False) if wide else each for each, wide in zip(inputs, real, strict=True)),
        **context,
    )


def _rounded(run: Callable[..., Any], *inputs: Any, **context: Any) -> Any:
    """Return what `_widened` gives, rounded to the narrowest type of the inputs."""
    kinds = [each.dtype for each in inputs if isinstance(each, np.ndarray) and is_floating(each)]
    outputs = _widened(run, *inputs, **context)
    if not kinds:
        return outputs
    kind = min(kinds, key=lambda each: each.itemsize)
    return tuple(
        each.astype(kind, copy=False) if isinstance(each, np.ndarray) and is_floating(each) else each
        for each in outputs
    )
