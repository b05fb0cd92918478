"""A format that porter only reads, as a stranger would add it: this folder, and its line in
porter/formats/recognition.py.

A model is `NAME.toy`, JSON that says the layers in order, and `NAME.npz` beside it, with their tensors. Maps
are laid out as the file says, NCHW or NHWC; kernels are O×I×H×W in both, dense kernels O×F.
"""

from __future__ import annotations

from porter.formats.format import Format, reader, starts_with

FORMATS = (
    Format(
        "toy",
        "a toy model (.toy)",
        starts_with(b'{"toy"'),
        reader("tests.support.toy_format.read", "read_toy"),
        engine="numpy",
        rows="tests.support.toy_format.rows",
    ),
)
