"""numpy's .npz: TensorNets' pair of names and values, and arrays by their names, as Google writes those of JAX."""

from __future__ import annotations

from porter.formats.format import Content, Format, reader


def _is_npz(content: Content) -> bool:
    return bool(content.members) and all(name.endswith(".npy") for name in content.members or ())


FORMATS = (
    Format(
        "npz",
        "an .npz of arrays",
        _is_npz,
        reader("porter.formats.npz.read", "read_npz"),
        whole="a frozen graph (.pb)",
    ),
)
