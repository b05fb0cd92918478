"""A model in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import CannotRun, NotInstalled, first_line
from porter.base.package import install

Session = Callable[..., list[Array]]
"""Gives a model's outputs for a batch of each input, in the model's order."""


def make_session(model: Any, tensors: NamedArrays, *, optimised: bool) -> Session:
    """Make a session of onnxruntime that runs a ModelProto on the CPU.

    Args:
        tensors: the content of initialisers that the model says are in another file.
        optimised: with onnxruntime's default optimisations, otherwise with none.

    Raises:
        CannotRun: onnxruntime is not installed, or does not run this model.
    """
    try:
        runtime = import_module("onnxruntime")
    except ImportError as error:
        raise NotInstalled(f"onnxruntime cannot be imported: {error}", next=install("onnx")) from None
    options = runtime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    # Each refers to the array's memory, so the session must not outlive `values`.
    values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in tensors.values()]
    if values:
        options.add_external_initializers(list(tensors), values)
    try:  # its fallback prints
        session = runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:  # onnxruntime's errors have no common base
        raise CannotRun(f"onnxruntime cannot run this model: {first_line(error)}") from None
    names = [value.name for value in model.graph.input]

    def run(*batches: Array) -> list[Array]:
        """Return the outputs for a batch of each input. Raise CannotRun where onnxruntime refuses them."""
        assert len(values) == len(tensors), "the session reads their memory"
        try:
            outputs: list[Array] = session.run(None, dict(zip(names, batches, strict=True)))
        except Exception as error:  # as above
            raise CannotRun(f"onnxruntime cannot run this model: {first_line(error)}") from None
        return outputs

    return run
