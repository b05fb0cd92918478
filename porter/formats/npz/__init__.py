"""numpy's .npz: TensorNets' pair of names and values, and arrays by their names, as Google writes those of
JAX.
"""

from __future__ import annotations

from porter.formats.format import Format, reader

FORMATS = (
    Format(
        "npz",
        "an .npz of arrays",
        lambda content: (
            bool(content.members) and all(name.endswith(".npy") for name in content.members or ())
        ),
        reader("porter.formats.npz.read", "read_npz"),
        whole="a frozen graph (.pb)",
        keeps_order=True,
    ),
)
