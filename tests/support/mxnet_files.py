"""MXNet models as MXNet writes them: a symbol as JSON, and its arrays in each version of their layout."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

_MAGIC = {1: 0xF993FAC8, 2: 0xF993FAC9}
Line = tuple[str, str, Mapping[str, Any], Sequence[str]]
"""An operator's name, its type, what it states, and what it reads."""


def write_mxnet(
    path: Path,
    lines: Sequence[Line],
    arrays: Mapping[str, NDArray[Any]],
    version: int = 2,
    attrs: str = "attrs",
) -> Path:
    """PATH-symbol.json with PATH-0000.params; `attrs` is what JSON calls an operator's attributes. Gives the
    symbol's path.
    """
    symbol = path.with_name(f"{path.name}-symbol.json")
    symbol.write_text(json.dumps(symbol_of(lines, attrs)))
    path.with_name(f"{path.name}-0000.params").write_bytes(params(arrays, version))
    return symbol


def symbol_of(lines: Sequence[Line], attrs: str = "attrs") -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    places: dict[str, int] = {}
    for name, op, stated, reads in lines:
        for variable in reads:
            source = variable.partition(":")[0]
            if source not in places:
                places[source] = len(nodes)
                nodes.append({"op": "null", "name": source, "inputs": []})
        sources = [(source, int(index or 0)) for source, _, index in (each.partition(":") for each in reads)]
        inputs = [[places[source], index, 0] for source, index in sources]
        places[name] = len(nodes)
        nodes.append(
            {
                "op": op,
                "name": name,
                attrs: {key: str(value) for key, value in stated.items()},
                "inputs": inputs,
            }
        )
    return {"nodes": nodes, "arg_nodes": [], "heads": [[len(nodes) - 1, 0, 0]]}


def params(arrays: Mapping[str, NDArray[Any]], version: int = 2) -> bytes:
    parts = [struct.pack("<QQQ", 0x112, 0, len(arrays))]
    for array in arrays.values():
        sizes = struct.pack(f"<I{array.ndim}{'q' if version else 'I'}", array.ndim, *array.shape)
        head = struct.pack("<I", _MAGIC[version]) if version else b""
        storage = struct.pack("<i", 0) if version == 2 else b""
        parts += [head, storage, sizes, struct.pack("<iii", 1, 0, 0), array.astype("<f4").tobytes()]
    names = [f"{'aux' if 'moving' in name else 'arg'}:{name}".encode() for name in arrays]
    return b"".join(
        [*parts, struct.pack("<Q", len(names)), *(struct.pack("<Q", len(name)) + name for name in names)]
    )
