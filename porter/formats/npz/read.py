"""numpy's .npz, a zip of arrays: TensorNets' names and values, and archives of arrays by their names."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import FileError, first_line, some
from porter.filegraph.checkpoint import Checkpoint
from porter.files.zips import ZipMembers, open_zip
from porter.formats.limits import most_bytes
from porter.formats.npz.unpickling import make_array, unpickle_arrays

_NAMES, _VALUES = "names.npy", "values.npy"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Path) -> Checkpoint:
    """Return the arrays of an archive, in its order.

    TensorNets writes two members (tensornets/utils.py, `save`): `names` of the variables, in the order in
    which its code makes them, and `values`, an object array of their arrays, which numpy pickles. The tensor
    of the variable `NAME:0` is `NAME`. In any other archive, each member of numbers is a tensor.

    Raises:
        FileError: it is damaged or larger than its file can hold, names and values do not pair, or it pickles
            more than arrays.
    """
    with open_zip(path, ".npz archive") as archive:
        members = ZipMembers(archive, path, most_bytes(path.stat().st_size))
        if _NAMES in members.by_name and _VALUES in members.by_name:
            return _read_pair(path, members)
        return _read_arrays(path, members)


def _read_pair(path: Path, members: ZipMembers) -> Checkpoint:
    """Return the tensors of an archive of two arrays, one of names and one of values. Raise FileError where
    they are not as many, or a name stands twice.
    """
    names = _read_names(members.read(_NAMES), f"{path}: names")
    values = _read_values(members.read(_VALUES), most_bytes(path.stat().st_size), f"{path}: values")
    if len(names) != len(values) or len(set(names)) != len(names):
        message = (
            f"expected one array for each name, got {len(set(names))} different names and "
            f"{len(values)} arrays"
        )
        raise FileError(message, where=path, next="fetch or copy it again")
    return Checkpoint(path, "npz", "tf", dict(zip(names, values, strict=True)))


def _read_arrays(path: Path, members: ZipMembers) -> Checkpoint:
    """Return the members of numbers as tensors. One member is in memory beside the arrays: those of a large
    transformer take a gigabyte. Members that are no numbers are left out, with a note.
    """
    tensors: dict[str, Array] = {}
    ignored: list[str] = []
    for member in members.by_name:
        name = member.removesuffix(".npy")
        dtype, shape, fortran, content = _read_header(members.read(member), f"{path}: {name}")
        if dtype.kind in "fiub":
            tensors[name] = make_array(content, dtype, shape, fortran, f"{path}: {name}")
        else:
            ignored.append(name)
    notes = (f"ignored {some(ignored)}, which are not numbers",) if ignored else ()
    return Checkpoint(path, "npz", None, tensors, notes)


def _read_header(data: bytes, where: str) -> tuple[np.dtype[Any], tuple[int, ...], bool, bytes]:
    """Return the type, the shape and the order that a .npy declares, and the bytes after its header. Raise
    FileError if it is damaged or of another version.
    """
    stream = io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns if Python 2 wrote a shape as (3L,)
            version = np.lib.format.read_magic(stream)
            if version not in _HEADERS:
                message = f"a .npy of version {version[0]}.{version[1]}, expected 1.0 or 2.0"
                raise FileError(message, where=where, next="save it again with numpy.savez")
            shape, fortran, dtype = _HEADERS[version](stream)
    except FileError:
        raise
    # The header is a Python literal, which numpy reads with ast and repairs with tokenize; both raise errors
    # of their own.
    except Exception as error:
        raise FileError(
            f"this array is cut short or damaged: {first_line(error)}", where=where, next="fetch it again"
        ) from None
    return dtype, shape, fortran, data[stream.tell() :]


def _read_names(data: bytes, where: str) -> list[str]:
    """Return the texts of an array of names, without TensorFlow's `:0`."""
    dtype, shape, _, content = _read_header(data, where)
    if dtype.kind not in "US" or len(shape) != 1:
        message = f"expected a list of names, got an array of {dtype} and {len(shape)} axes"
        raise FileError(message, where=where, next="fetch it again")
    listed = make_array(content, dtype, shape, False, where)
    try:
        # Bytes are from Python 2. numpy's text may hold characters that UTF-8 lacks and no terminal prints.
        names = [(name if isinstance(name, bytes) else str(name).encode()).decode() for name in listed]
    except ValueError as error:
        raise FileError(f"a name is not text: {error}", where=where, next="fetch it again") from None
    return [name.removesuffix(":0") for name in names]


def _read_values(data: bytes, limit: int, where: str) -> list[Array]:
    """Return the arrays of an array of values: a pickled list of arrays, or one array whose first axis counts
    them.
    """
    dtype, shape, fortran, content = _read_header(data, where)
    if dtype.kind == "O":
        return unpickle_arrays(content, limit, where)
    if dtype.kind not in "fiub" or not shape:
        raise FileError(f"expected arrays of numbers, got {dtype}", where=where, next="fetch it again")
    # Numpy makes one array of variables that have the same shape.
    return list(make_array(content, dtype, shape, fortran, where))
