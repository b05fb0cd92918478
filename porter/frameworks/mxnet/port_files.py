"""The files of an MXNet port: `model-symbol.json`, its symbol, and `model-0000.params`, its arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from porter.base.dtypes import Array, Dtype, storage_type
from porter.base.errors import FileError, UsageError
from porter.files import digest
from porter.formats.mxnet.arrays import arrays_parts, read_arrays
from porter.frameworks import Tensors
from porter.frameworks.mxnet.layout import MODEL_FILE, SYMBOL_FILE
from porter.frameworks.mxnet.symbol import make_symbol
from porter.graph.plan import Plan


def write(
    folder: Path, plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype, about: Mapping[str, str]
) -> dict[str, str]:
    """Writes both files into `folder`. Returns the sha256 of each by its name.

    Raises:
        UsageError: porter's engine does not run this number type.
        GraphError: MXNet has no operators for an op. MappingError: the tensors do not fit the graph.
    """
    if dtype not in ("float32", "float64"):
        raise UsageError(
            f"porter writes MXNet's arrays in float32 and float64, not in {dtype}", where="--dtype", next="leave it out"
        )
    symbol = make_symbol(plan)
    arrays = symbol.arrays(tensors, storage_type(dtype))
    (folder / SYMBOL_FILE).write_text(symbol.text(about), encoding="utf-8")
    with (folder / MODEL_FILE).open("wb") as file:
        file.writelines(
            arrays_parts({f"{'aux' if name in symbol.states else 'arg'}:{name}": array for name, array in arrays.items()})
        )
    return {name: digest(folder / name) for name in (MODEL_FILE, SYMBOL_FILE)}


def read_port(folder: Path, plan: Plan, layers: Mapping[str, str]) -> dict[str, dict[str, Array]]:
    """The canonical tensors of a port that `write` wrote.

    Raises:
        FileError: a file is missing or damaged, or the symbol is another than the plan's.
        MappingError: an array is missing or another.
    """
    symbol = make_symbol(plan)
    try:
        stated, wanted = json.loads((folder / SYMBOL_FILE).read_text(encoding="utf-8")), json.loads(symbol.text())
        nodes, own = stated["nodes"], wanted["nodes"]
        stored = read_arrays((folder / MODEL_FILE).read_bytes())
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise FileError(f"the port's model cannot be read: {str(error)[:300]}", where=str(folder), next="convert again") from None
    if nodes != own or stated.get("heads") != wanted["heads"]:
        other = next((node["name"] for node, found in zip(own, nodes, strict=False) if node != found), None)
        wrong = f"'{other}' is another" if other else f"it has {len(nodes)} nodes, or other outputs"
        message = f"the symbol is not the one of port.json: {wrong}"
        raise FileError(message, where=str(folder / SYMBOL_FILE), next="convert again")
    return symbol.read_back(stored, plan.graph)
