"""What a .pt2 archive holds: one program, and the tensors that it names. Nothing of it is run, and torch is
not needed.

Since torch 2.9 each tensor's storage is a member of its own, as bare bytes, and a JSON says its type, sizes
and strides. Torch 2.8 and older pickled a mapping of tensors, which is read as a .pth is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Array, NamedArrays, storage_type
from porter.base.errors import FileError, first_line
from porter.base.name_tables import JsonObject
from porter.files.zips import ZipMembers, open_zip
from porter.formats.limits import most_bytes, read_json
from porter.formats.torch.read import read_mapping
from porter.formats.torch_export import SAVE

_SCHEMA = 8
"""torch/_export/serde/schema.py, SCHEMA_VERSION's first number; torch refuses others too."""
_MOST_JSON = 64 << 20
"""The most bytes of JSON that are read: Python takes some twenty times as much for it."""
_STRIDED_LAYOUT = 7
"""torch/_export/serde/schema.py, Layout.Strided."""
TYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
    13: "bfloat16",
}
"""The names that numpy and torch have for ScalarType (torch/_export/serde/schema.py)."""
FLOATS = frozenset(number for number, name in TYPES.items() if "float" in name)
_OLD_PROGRAM = "serialized_exported_program.json"
"""The member with the program, in archives of torch before 2.8."""


@dataclass(frozen=True)
class Archive:
    """An archive's content.

    Attributes:
        program: ExportedProgram of torch/_export/serde/schema.py.
        text: the same as JSON.
        tensors: those of the state_dict and other constants of the program, by name.
    """

    program: JsonObject
    text: bytes
    tensors: NamedArrays


def read_archive(path: Path) -> Archive:
    """Read the content of an archive of any torch since 2.5.

    Raises:
        FileError: it is damaged, holds no program or several, is of another schema, or a tensor does not hold
            what it declares.
    """
    with open_zip(path, "torch.export archive") as archive:
        # torch 2.8 and older have no folder around all members.
        has_top_folder = _OLD_PROGRAM not in archive.namelist()
        budget = most_bytes(path.stat().st_size)
        members = _Members(
            archive, path, budget, lambda name: name.partition("/")[2] if has_top_folder else name
        )
        names = [name for name in members.by_name if name.startswith("models/") and name.endswith(".json")]
        names = names or [name for name in members.by_name if name == _OLD_PROGRAM]
        if len(names) != 1:
            content = f"{len(names)} programs" if names else "no exported program, perhaps compiled code"
            raise FileError(f"this archive holds {content}, expected one", where=path, next=SAVE)
        text = members.read(names[0], _MOST_JSON)
        program = _parse_program(text, path)
        if names[0] == _OLD_PROGRAM:
            weights, constants = (
                members.read_pickled(f"serialized_{kind}.pt") for kind in ("state_dict", "constants")
            )
        else:
            model = names[0].removeprefix("models/").removesuffix(".json")
            weights, constants = (members.read_tensors(kind, model) for kind in ("weights", "constants"))
    return Archive(program, text, {**constants, **weights})


def parse_json(text: bytes, where: str) -> Any:
    """Return the content of a stranger's JSON.

    Raises:
        FileError: it is no JSON, or nested too deeply.
    """
    try:
        return read_json(text)
    except (ValueError, RecursionError) as error:
        raise FileError(
            f"its JSON is damaged: {first_line(error)}", where=where, next="fetch or export it again"
        ) from None


def _parse_program(text: bytes, path: Path) -> JsonObject:
    """Parse a program, and raise FileError for one in another schema than porter reads."""
    fields = parse_json(text, str(path))
    version = fields.get("schema_version") if isinstance(fields, dict) else None
    major = version.get("major") if isinstance(version, dict) else None
    if major != _SCHEMA:
        message = f"the program is written in schema {str(major)[:20]}, and porter reads schema {_SCHEMA}"
        raise FileError(message, where=path, next=f"export the model with torch 2.6 or later: {SAVE}")
    program: JsonObject = fields
    return program


class _Members(ZipMembers):
    """An archive's members, by their names without its top folder."""

    def read_tensors(self, kind: str, model: str) -> NamedArrays:
        """Return the tensors of data/weights or data/constants, by name. Other members than tensors are
        pickled, and not read.

        Args:
            kind: `weights` or `constants`.
            model: the name of the program in the archive.
        """
        folder = f"data/{kind}/"
        if f"{folder}{model}.pt" in self.by_name:  # torch 2.8
            return self.read_pickled(f"{folder}{model}.pt")
        config = parse_json(self.read(f"{folder}{model}_{kind}_config.json", _MOST_JSON), str(self.path))
        storages: dict[str, bytes] = {}
        tensors = {}
        try:
            for name, entry in config["config"].items():
                path_name = str(entry["path_name"])
                if path_name.startswith(("weight_", "tensor_")):
                    if entry["use_pickle"]:
                        raise FileError(
                            f"tensor '{name}' is pickled, as an object", where=self.path, next=SAVE
                        )
                    # Several tensors may be over one storage.
                    if path_name not in storages:
                        storages[path_name] = self.read(folder + path_name)
                    tensors[str(name)] = self._view_tensor(
                        str(name), storages[path_name], entry["tensor_meta"]
                    )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise self.damaged(f"the list of {kind} is damaged") from None
        return tensors

    def _view_tensor(self, name: str, data: bytes, entry: JsonObject) -> Array:
        """Return a tensor over its storage, without a copy. Raise FileError if it is not dense, or reaches
        beyond the storage.
        """
        if entry["layout"] != _STRIDED_LAYOUT or entry["dtype"] not in TYPES:
            raise FileError(
                f"tensor '{name}' is not a dense tensor of real numbers", where=self.path, next=SAVE
            )
        dtype = storage_type(TYPES[entry["dtype"]])  # type: ignore[arg-type]
        sizes, strides = ([int(number["as_int"]) for number in entry[key]] for key in ("sizes", "strides"))
        offset = int(entry["storage_offset"]["as_int"])
        last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        fits = min((*sizes, *strides, offset), default=0) >= 0 and (last + 1) * dtype.itemsize <= len(data)
        # With strides of zero, a few bytes can declare any size.
        if not fits or math.prod(sizes) * dtype.itemsize > len(data):
            declared = "x".join(map(str, sizes))[:100]
            raise self.damaged(
                f"tensor '{name}' declares {declared} of {dtype.name}, and its data has {len(data)} bytes"
            )
        if 0 in sizes:
            return np.zeros(sizes, dtype)
        flat = np.frombuffer(data, dtype, len(data) // dtype.itemsize)
        return np.lib.stride_tricks.as_strided(
            flat[offset:], sizes, [stride * dtype.itemsize for stride in strides]
        )

    def read_pickled(self, name: str) -> NamedArrays:
        """Read a mapping of tensors that torch pickled, which is an archive in the archive."""
        return read_mapping(Path(f"{self.path}: {name}"), self.read(name))
