"""The safetensors format, which every framework shares: a JSON header and the bytes."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401  gives numpy the name bfloat16, which safetensors needs
from safetensors import SafetensorError, safe_open

from porter.errors import FileError
from porter.frameworks.checkpoint import Checkpoint

_DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")


def read_safetensors(path: Path) -> Checkpoint:
    """Reads every tensor, in the header's dtypes. The package checks that the tensors cover the file and do not overlap.

    Raises:
        FileError: the file is cut short or damaged, or has a dtype of less than a byte or one that numpy lacks.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118  the file is no mapping
                dtype = file.get_slice(name).get_dtype()
                if dtype not in _DTYPES:
                    raise FileError(f"tensor '{name}' is {dtype}, expected one of {', '.join(_DTYPES)}", where=str(path))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        message = f"this safetensors file is cut short or damaged: {error}"
        raise FileError(message, where=str(path), next="fetch or copy it again") from None
    return Checkpoint(path, "safetensors", None, tensors)
