"""PyTorch's .pth and .pt: a state_dict, in the archive that torch writes since 1.6 or in the older stream."""

from __future__ import annotations

from porter.formats.format import Content, Format, reader, starts_with

_STREAM = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""torch.serialization.MAGIC_NUMBER, pickled: the first thing in a stream of torch < 1.6."""


def _is_archive(content: Content) -> bool:
    return "data.pkl" in content.inner_members and "constants.pkl" not in content.inner_members


FORMATS = (
    Format("torch", "a PyTorch .pth", _is_archive, reader("porter.formats.torch.read", "read_archive"), framework="torch"),
    Format(
        "torch-legacy",
        "a PyTorch .pth of before 1.6",
        starts_with(_STREAM),
        reader("porter.formats.torch.read", "read_stream"),
        framework="torch",
    ),
)
