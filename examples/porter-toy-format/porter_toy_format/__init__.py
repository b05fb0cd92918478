"""A format that porter only reads: what a package brings that adds one.

A model is `NAME.toy`, JSON that says the layers in order, and `NAME.npz` beside it, with their tensors. Maps
are laid out as the file says, NCHW or NHWC; kernels are O×I×H×W in both, dense kernels O×F.
"""

from __future__ import annotations

from porter.formats.format import Format, reader, starts_with

FORMAT = Format(
    "toy",
    "a toy model (.toy)",
    starts_with(b'{"toy"'),
    reader("porter_toy_format.read", "read_toy"),
    engine="numpy",
    rows="porter_toy_format.rows",
)
