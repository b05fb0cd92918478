"""PyTorch's .pth and .pt: a state_dict, by itself or in a training checkpoint. From a file's pickle only tensors and plain values
are made; no class or function that it names is ever looked up.
"""

from __future__ import annotations

import re
import zipfile
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from porter.base.dtypes import Array, storage_type
from porter.base.errors import FileError, MissingFramework
from porter.filegraph.checkpoint import Checkpoint
from porter.files.zips import open_zip
from porter.formats.pickled import read_opcodes
from porter.formats.torch.wrapping import unwrap

if TYPE_CHECKING:
    import torch

_MOST_REASON = 200
_PICKLES = 5
"""In a stream of torch < 1.6: a magic number, a version, the machine's types, what was saved, the names of its storages."""
_SAVE = "where it was made, save only model.state_dict()"
_IGNORED = (
    "argparse.Namespace",
    "types.SimpleNamespace",
    "numpy.dtype",
    "numpy.ndarray",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    *(f"pathlib.{name}" for name in ("PosixPath", "WindowsPath", "_local.PosixPath", "_local.WindowsPath")),
)
"""What training scripts keep beside the weights: arguments (torchvision's references, timm), an accuracy that numpy computed, the
folder of the run. Empty objects replace them.
"""


def read_archive(path: Path) -> Checkpoint:
    """Reads a state_dict in the archive that torch ≥ 1.6 writes. It is mapped, not copied: the arrays are pages of the file.

    Raises:
        MissingFramework: torch is not installed.
        FileError: the file is damaged, a whole module or a pickle of other things than tensors, or a tensor is not a plain array.
    """
    return _checkpoint(path, zipped=True)


def read_stream(path: Path) -> Checkpoint:
    """As `read_archive`, for the older stream, which is copied."""
    return _checkpoint(path, zipped=False)


def read_mapping(path: Path) -> dict[str, Array]:
    """As `read_archive`, for a file that holds a mapping of names to tensors and nothing else, with these names.

    Raises:
        FileError: it holds something else.
    """
    found = _load(path, zipped=True)
    if not isinstance(found, Mapping) or not all(isinstance(name, str) and _is_tensor(held) for name, held in found.items()):
        raise FileError("expected a mapping of names to tensors", where=str(path), next=_SAVE)
    return {name: _array(name, tensor, path) for name, tensor in found.items()}


def _checkpoint(path: Path, zipped: bool) -> Checkpoint:
    state = unwrap(_load(path, zipped), _is_tensor, path)
    tensors = {name: _array(name, value, path) for name, value in state.tensors.items()}
    return Checkpoint(path, "torch", "torch", tensors, state.notes)


def _load(path: Path, zipped: bool) -> Any:
    try:
        import torch
    except ImportError:
        raise MissingFramework(
            "this PyTorch file needs torch, which is not installed", where=str(path), next="install torch"
        ) from None
    if zipped:
        _expect_stored(path)
    # torch 2.13 passes every path with this suffix to safetensors; a stream cannot be mapped.
    mapped = zipped and path.suffix != ".safetensors"
    try:
        _expect_bounded(path, zipped)
        with path.open("rb") as stream, _stand_ins():
            return torch.load(path if mapped else stream, map_location="cpu", weights_only=True, mmap=mapped)
    except FileError:
        raise
    # A stranger's pickle may fail in every way that Python knows; none is a bug of porter's.
    except Exception as error:
        raise _refusal(path, error) from None


def _expect_bounded(path: Path, zipped: bool) -> None:
    """Reads the opcodes before torch runs them: an archive's `data.pkl`, or the older stream's pickles, one after the other.

    torch does not tell capitals from small letters in a member's name, and uses the name as it is stored.
    """
    with ExitStack() as opened:
        if zipped:
            archive = opened.enter_context(open_zip(path, "PyTorch archive"))
            members = [member for member in archive.infolist() if member.orig_filename.lower().endswith("data.pkl")]
            if len(members) != 1:
                raise FileError(f"this archive has {len(members)} 'data.pkl', expected one", where=str(path), next=_SAVE)
            streams = [opened.enter_context(archive.open(members[0]))]
        else:
            streams = [opened.enter_context(path.open("rb"))] * _PICKLES
        for stream in streams:
            deque(read_opcodes(stream, str(path), _SAVE), maxlen=0)


def _stand_ins() -> AbstractContextManager[object]:
    """Inside it, torch uses porter's own classes, which hold and do nothing, instead of those of `_IGNORED`."""
    import torch

    allowing: Any = getattr(torch.serialization, "safe_globals", None)  # torch 2.5
    return nullcontext() if allowing is None else allowing([_stand_in(name) for name in _IGNORED])


@cache
def _stand_in(name: str) -> type:
    """A class with the module and the name that `name` says, by which torch looks classes up."""
    module, _, word = name.rpartition(".")
    methods = {"__new__": lambda cls, *_: object.__new__(cls), "__init__": _nothing, "__setstate__": _nothing}
    return type(word, (), {"__module__": module, **methods})


def _nothing(*_: object) -> None:
    """A stand-in ignores its arguments."""


def _expect_stored(path: Path) -> None:
    """Mapping needs uncompressed records; torch never compresses them."""
    with open_zip(path, "PyTorch archive") as archive:
        packed = [member.filename for member in archive.infolist() if member.compress_type != zipfile.ZIP_STORED]
    if packed:
        raise FileError(f"'{packed[0]}' in this archive is compressed, which torch never writes", where=str(path), next=_SAVE)


def _refusal(path: Path, error: Exception) -> FileError:
    """The error that names a class or function outside torch's list of safe ones, which torch refuses before it looks it up.

    Only the reason of torch's own message is kept, because the rest advises to load the file unsafely.
    """
    foreign = re.search(r"GLOBAL (\S+) (?:was not an allowed global|whose module)", str(error))
    if foreign:
        return FileError(
            f"the file pickles '{foreign[1]}', not only tensors; porter runs no code from files", where=str(path), next=_SAVE
        )
    reason = re.sub(r"(?s)^Weights only load failed\..*?(?:WeightsUnpickler error:|$)", "", str(error)).strip()
    reason = reason.splitlines()[0][:_MOST_REASON] if reason else type(error).__name__
    return FileError(
        f"torch cannot read this file; it is cut short, damaged or not a state_dict: {reason}",
        where=str(path),
        next="fetch it again",
    )


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _array(name: str, tensor: torch.Tensor, path: Path) -> Array:
    """The tensor's own memory as an array, bit for bit."""
    import torch

    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested and not tensor.is_meta
    if not plain:
        kind = "quantised" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise FileError(f"tensor '{name}' is {kind}; porter reads dense tensors", where=str(path), next="save it dense, as float")
    # With strides of zero, a few bytes can declare any size.
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise FileError(
            f"tensor '{name}' declares {tuple(tensor.shape)} over fewer bytes", where=str(path), next="save it contiguous"
        )
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(storage_type("bfloat16"))
    if tensor.dtype.is_complex or (tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point):
        raise FileError(f"tensor '{name}' is {tensor.dtype}; porter reads real numbers of 16 bits and more", where=str(path))
    return tensor.numpy()
