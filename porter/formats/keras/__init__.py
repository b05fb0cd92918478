"""Keras's files: .h5 by layer name, .weights.h5 by class and counter, and the .keras archive."""

from __future__ import annotations

from porter.formats.format import Content, Format, reader

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_WHOLE = "a whole model (.keras)"


def _layout(content: Content) -> str | None:
    """The layout of an HDF5 file; None for any other file."""
    if not content.head.startswith(HDF5_MAGIC):
        return None
    from porter.formats.keras.hdf5 import hdf5_format, open_hdf5

    with open_hdf5(content.path) as file:
        return hdf5_format(file)


def _is_archive(content: Content) -> bool:
    members = content.members or frozenset()
    return "model.weights.h5" in members or {"config.json", "metadata.json"} <= members


FORMATS = (
    Format(
        "keras-h5",
        "a Keras .h5",
        lambda content: _layout(content) == "keras-h5",
        reader("porter.formats.keras.read_h5", "read_h5"),
        framework="tf",
        engine="tf",
        whole=_WHOLE,
    ),
    Format(
        "keras-weights-h5",
        "a Keras .weights.h5",
        lambda content: _layout(content) == "keras-weights-h5",
        reader("porter.formats.keras.read_keras", "read_weights_h5"),
        framework="tf",
        whole=_WHOLE,
    ),
    Format(
        "keras",
        "a .keras",
        _is_archive,
        reader("porter.formats.keras.read_keras", "read_keras"),
        framework="tf",
        engine="tf",
        whole=_WHOLE,
    ),
)
