"""PyTorch's .pth and .pt: a state_dict, in the archive that torch writes since 1.6 or in the older stream."""

from __future__ import annotations

from porter.formats.format import Content, Format, reader, starts_with

ARCH = "arch"
"""The key that training scripts have for the name of the model, beside its state_dict: timm's train.py,
PyTorch's ImageNet example.
"""
LIBRARY = "library"
"""The key for the library whose training script wrote the file, among the facts that porter takes from it."""

MAGIC = 0x1950A86A20F9469CFC6C
"""torch.serialization.MAGIC_NUMBER, the first thing in a stream of torch < 1.6."""
_PICKLED = b"\x8a\n" + MAGIC.to_bytes(10, "little") + b"."
_FRAME = len(_PICKLED).to_bytes(8, "little")
_STREAMS = (
    b"\x80\x02" + _PICKLED,
    b"\x80\x03" + _PICKLED,
    *(b"\x80" + version + b"\x95" + _FRAME + _PICKLED for version in (b"\x04", b"\x05")),
)
"""How such a stream begins, in protocol 2 unless a script asks."""


def _is_archive(content: Content) -> bool:
    """Return whether a file is torch's archive, and not TorchScript's, which has constants too."""
    return "data.pkl" in content.inner_members and "constants.pkl" not in content.inner_members


FORMATS = (
    Format(
        "torch",
        "a PyTorch .pth",
        _is_archive,
        reader("porter.formats.torch.read", "read_archive"),
        framework="torch",
        parametrised=True,
        keeps_order=True,
    ),
    Format(
        "torch-legacy",
        "a PyTorch .pth of before 1.6",
        starts_with(*_STREAMS),
        reader("porter.formats.torch.read", "read_stream"),
        framework="torch",
    ),
)
