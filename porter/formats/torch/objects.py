"""What torch pickles: tensors over storages, which the file keeps outside of the pickle. Nothing here has
values yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from porter.formats.limits import MOST_TENSOR_AXES
from porter.formats.pickled import Maker, PickledGlobal, PickledObject, Vocabulary, read_mapping_items
from porter.formats.torch_export import SAVE as EXPORT

SAVE = f"where it was made, save only model.state_dict(), or the graph too: {EXPORT}"
_MOST_TEXT = 1 << 16
"""No name of a tensor is longer. The arrays of numpy that scripts keep beside the weights are."""
_CLASSES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    "QUInt8": "quint8",
    "QInt8": "qint8",
    "QInt32": "qint32",
    "QUInt4x2": "quint4x2",
    "QUInt2x4": "quint2x4",
}
_STORAGES = {
    "torch.storage.UntypedStorage": "uint8",
    **{f"torch.{device}{word}Storage": dtype for word, dtype in _CLASSES.items() for device in ("", "cuda.")},
}
"""The type of the numbers in a storage, by its class."""
_DTYPES = (
    *_CLASSES.values(),
    "uint16",
    "uint32",
    "uint64",
    "complex32",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "bits8",
    "bits16",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
)
_SCHEMES = ("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric")
_REPLACED_BY_NOTHING = (
    "argparse.Namespace",
    "types.SimpleNamespace",
    "numpy.dtype",
    "numpy.ndarray",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    *(f"pathlib.{name}" for name in ("PosixPath", "WindowsPath", "_local.PosixPath", "_local.WindowsPath")),
    "_codecs.encode",
    *(f"builtins.{name}" for name in ("bytearray", "set", "complex")),
    "torch.device",
)
"""Objects that training scripts keep beside the weights: arguments (torchvision's references, timm), an
accuracy that numpy computed, the folder of the run. Empty objects replace them.
"""


class Storage(PickledObject):
    """`count` numbers of `dtype`, from number `start` of the storage that the file calls `key`, which has
    `total`.
    """

    def __init__(self, key: str, dtype: str, start: int, count: int, total: int) -> None:
        self.key, self.dtype, self.start, self.count, self.total = key, dtype, start, count, total

    @property
    def item_bytes(self) -> int:
        """Return the bytes of a number of the storage."""
        return item_bytes(self.dtype)


@dataclass(eq=False)
class TorchTensor(PickledObject):
    """A view of a storage, in numbers, not bytes; `kind` says of another tensor, which has no storage, what
    it is.
    """

    storage: Storage | None
    offset: int = 0
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: str = ""
    kind: str = ""


def item_bytes(dtype: str) -> int:
    """Return the bytes of a number, of the types that storages have."""
    bits = re.fullmatch(r"[a-z]+(\d+)", dtype)  # others are bool, and those with several numbers in a byte
    return 1 if bits is None else int(bits[1]) // 8


def torch_vocabulary(stored: Callable[[Any], object]) -> Vocabulary:
    """Return the vocabulary of a file's pickles; `stored` returns the storage with an id."""
    return Vocabulary(_NAMES, SAVE, text=True, most=_MOST_TEXT, stored=stored)


def storage_in_archive(identity: Any) -> Storage:
    """Return a storage by its id in the archive: a word, its type, its key, a device and a count."""
    word, named, key, _, count = identity
    _expect(word == "storage")
    return Storage(_expect_key(key), _storage_dtype(named), 0, _expect_count(count), count)


def storage_in_stream(identity: Any) -> Storage:
    """Return a storage by its id in the older stream, which has a view where it is a part of another
    storage.
    """
    word, named, key, _, total, view = identity
    _expect(word == "storage")
    start, count = (0, total) if view is None else view[1:]
    _expect(_expect_count(start) + _expect_count(count) <= _expect_count(total))
    return Storage(_expect_key(key), _storage_dtype(named), start, count, total)


def _storage_dtype(named: object) -> str:
    """Return the type of a storage by the class that a pickle names for it, such as torch.FloatStorage."""
    return _STORAGES[_name_of_global(named)]


def _dtype_of_name(named: object) -> str:
    """Return the type that a pickle names, such as torch.float32, without the package. Raise ValueError for
    another name.
    """
    name = _name_of_global(named).removeprefix("torch.")
    _expect(name in _DTYPES)
    return name


def _name_of_global(named: object) -> str:
    """Return the name of a class or function in a pickle. Raise TypeError for anything else."""
    if not isinstance(named, PickledGlobal):
        raise TypeError(f"expected a type, got {type(named).__name__}")
    return named.name


def _expect_key(key: object) -> str:
    _expect(isinstance(key, str | int))
    return str(key)


def _expect_count(value: object) -> int:
    """Return a whole number from 0 on. Raise ValueError for anything else."""
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError("a size or a stride is not a whole number from 0")
    return value


def _expect(holds: bool) -> None:
    """Raise ValueError where a part of a pickle is not as torch writes it."""
    if not holds:
        raise ValueError("a tensor or a storage is not as torch pickles it")


def _rebuild_tensor(
    storage: object, offset: object, shape: Any, strides: Any, dtype: str = ""
) -> TorchTensor:
    """Return a tensor as a pickle makes it, as a view of its storage. Raise ValueError for anything else than
    torch pickles.
    """
    are_tuples = type(shape) is tuple and type(strides) is tuple
    if not isinstance(storage, Storage) or not are_tuples or len(shape) != len(strides):
        raise ValueError("a tensor is not as torch pickles it")
    _expect(len(shape) <= MOST_TENSOR_AXES)
    return TorchTensor(
        storage,
        _expect_count(offset),
        tuple(map(_expect_count, shape)),
        tuple(map(_expect_count, strides)),
        dtype or storage.dtype,
    )


def _rebuild_tensor_v2(storage: object, offset: object, shape: Any, strides: Any, *rest: Any) -> TorchTensor:
    """Return a tensor as pickles of today make it. One whose signs are turned when it is read (`neg`) has no
    storage here, and is refused later.
    """
    _gradient, _hooks, *signs = rest
    if signs and signs[0] and signs[0].get("neg"):
        return TorchTensor(None, kind="stored with its signs turned")
    return _rebuild_tensor(storage, offset, shape, strides)


def _rebuild_tensor_v3(storage: object, offset: object, shape: Any, strides: Any, *rest: Any) -> TorchTensor:
    """Return a tensor whose pickle states its type, beside that of its storage."""
    return _rebuild_tensor(storage, offset, shape, strides, _dtype_of_name(rest[2]))


def _expect_tensor(data: object, *_: object) -> TorchTensor:
    """Return a tensor, which for a parameter is that of its data. Raise TypeError for anything else."""
    if not isinstance(data, TorchTensor):
        raise TypeError(f"expected a tensor, got {type(data).__name__}")
    return data


def _rebuild_on_device(data: object, dtype: object, *_: object) -> TorchTensor:
    """Return a tensor that was moved to a device such as an XLA one, which keeps its type."""
    tensor = _expect_tensor(data)
    _expect(tensor.dtype == _dtype_of_name(dtype))
    return tensor


def _rebuild_subclass(rebuild: object, _type: object, arguments: Any, *_: object) -> TorchTensor:
    """Return the plain tensor that an object of a subclass of torch's tensors is made of."""
    if not isinstance(rebuild, PickledGlobal) or type(arguments) is not tuple:
        raise TypeError("a tensor of a class is not as torch pickles it")
    return _expect_tensor(rebuild.make(*arguments))


def _rebuild_sparse(layout: object, *_: object) -> TorchTensor:
    """Return a tensor of another layout, which has no storage here and is refused when it is read."""
    return TorchTensor(None, kind=layout.removeprefix("torch.") if isinstance(layout, str) else "sparse")


def _maker_of_unread(kind: str) -> Maker:
    """Return a function that makes a tensor of a kind that porter does not read."""
    return lambda *_: TorchTensor(None, kind=kind)


_NAMES: dict[str, Maker] = {
    **dict.fromkeys(
        (*_REPLACED_BY_NOTHING, *_STORAGES, *(f"torch.{name}" for name in (*_DTYPES, *_SCHEMES))),
        PickledObject,
    ),
    "collections.OrderedDict": read_mapping_items,
    "collections.Counter": read_mapping_items,
    "torch.Size": tuple,
    "torch.Tensor": _expect_tensor,
    "torch.nn.parameter.Parameter": _expect_tensor,
    "torch.serialization._get_layout": lambda name: name,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": _expect_tensor,
    "torch._utils._rebuild_parameter_with_state": _expect_tensor,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _rebuild_on_device,
    "torch._utils._rebuild_sparse_tensor": _rebuild_sparse,
    "torch._utils._rebuild_qtensor": _maker_of_unread("quantised"),
    "torch._utils._rebuild_nested_tensor": _maker_of_unread("nested"),
    "torch._utils._rebuild_meta_tensor_no_storage": _maker_of_unread("without values, on the device 'meta'"),
    "torch._utils._rebuild_wrapper_subclass": _maker_of_unread("of a class without values of its own"),
    "torch._tensor._rebuild_from_type_v2": _rebuild_subclass,
}
"""The function for each name that torch.load(weights_only=True) knows. The names of other objects than
tensors are in `_REPLACED_BY_NOTHING`.
"""
