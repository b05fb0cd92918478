"""Keras's files: .h5 by layer name, .weights.h5 by class and counter, the .keras archive, and KerasHub's
folders.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from porter.formats.format import Content, Format, look_at, reader

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
"""The members of a .keras archive. A preset folder has the first and the last too."""
PRESET = "keras-hub"
BACKBONE_WEIGHTS, TASK_WEIGHTS, TASK_FILE = WEIGHTS, "task.weights.h5", "task.json"
BACKBONE_INDEX = "model.weights.json"
"""The files of a preset folder. A large backbone has an index and several files instead of its one."""
_ARCHIVES = "porter.formats.keras.read_keras"


_layouts: WeakKeyDictionary[Content, str | None] = WeakKeyDictionary()
"""The layouts of files that are being looked at: each format asks."""


def _layout(content: Content) -> str | None:
    """Return the layout of an HDF5 file (`keras-h5`, `keras-weights-h5` or `hdf5`, as `recognise_layout`
    names it); None for any other file. Each file is looked at once.
    """
    if not content.head.startswith(HDF5_MAGIC):
        return None
    if content not in _layouts:
        from porter.formats.keras.hdf5 import read_hdf5, recognise_layout

        _layouts[content] = read_hdf5(content.path, recognise_layout)
    return _layouts[content]


def _is_archive(content: Content) -> bool:
    """Return whether a file is a .keras archive, or a zip of a preset, by the names of its members."""
    members = content.members or frozenset()
    return WEIGHTS in members or {CONFIG, METADATA} <= members


def is_preset(folder: Path) -> bool:
    """Return whether KerasHub's save_to_preset wrote a folder: config.json names its module then."""
    return '"module": "keras_hub.' in (look_at(folder / CONFIG).text or "")


def _has_layout(layout: str) -> Callable[[Content], bool]:
    """Return a test of whether a file is HDF5 of this layout."""
    return lambda content: _layout(content) == layout


_format = partial(Format, framework="tf", whole="a whole model (.keras)", sizes_itself=True)
FORMATS = (
    _format(
        "keras-h5",
        "a Keras .h5",
        _has_layout("keras-h5"),
        reader("porter.formats.keras.read_h5", "read_h5"),
        engine="tf",
        keeps_order=True,
    ),
    _format(
        "keras-weights-h5",
        "a Keras .weights.h5",
        _has_layout("keras-weights-h5"),
        reader(_ARCHIVES, "read_weights_h5"),
    ),
    _format("keras", "a .keras", _is_archive, reader(_ARCHIVES, "read_keras"), engine="tf", keeps_order=True),
    _format(
        PRESET,
        "a preset folder of KerasHub",
        lambda content: is_preset(content.path),
        reader("porter.formats.keras.preset", "read_preset"),
    ),
)
