"""ONNX models in memory. See porter.frameworks.in_memory.ModelsInMemory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from porter.base.errors import UsageError
from porter.frameworks.in_memory import Saved
from porter.padding import Size


def save(model: Any, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
    """Write the model as its file `model.onnx`; see porter.frameworks.in_memory.ModelsInMemory.save. Raise
    UsageError for a model whose tensors are in other files, and for one above 2 GB, the most that protobuf
    writes. `example` and `size` are unused: the model states its inputs.
    """
    path = folder / "model.onnx"
    outside = next((tensor.name for tensor in model.graph.initializer if tensor.external_data), None)
    if outside is not None:
        next_step = "onnx.load(FILE) loads them too; load_external_data=False leaves them out"
        raise UsageError(
            f"the numbers of '{outside}' are in another file", where=model.graph.name, next=next_step
        )
    try:
        path.write_bytes(model.SerializeToString())
    except ValueError as error:  # larger than protobuf's limit
        next_step = "onnx.save(model, FILE, save_as_external_data=True), and convert FILE"
        raise UsageError(
            f"the model cannot be written: {error}", where=model.graph.name, next=next_step
        ) from None
    return Saved(model.graph.name or "model", path, "the model itself")
