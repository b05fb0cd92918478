"""numpy's .npz, as TensorNets writes it."""

from __future__ import annotations

from porter.formats.format import Content, Format, reader


def _is_npz(content: Content) -> bool:
    return bool(content.members) and all(name.endswith(".npy") for name in content.members or ())


FORMATS = (
    Format(
        "npz",
        "TensorNets' .npz",
        _is_npz,
        reader("porter.formats.npz.read", "read_npz"),
        framework="tf",
        whole="a frozen graph (.pb)",
    ),
)
