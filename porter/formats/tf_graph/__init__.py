"""TensorFlow's graphs with their weights: frozen graphs and SavedModels."""

from __future__ import annotations

from functools import partial

from porter.formats.format import Content, Format, reader
from porter.formats.protobuf import first_fields


def _is_saved_model(content: Content) -> bool:
    """Return whether a file is a SavedModel: its folder, or a message that has the schema version 1, then
    meta graphs.
    """
    if content.path.is_dir():
        return (content.path / "saved_model.pb").is_file()
    return content.fields[:1] == ((1, 1),) and [number for number, _ in content.fields] == [1, 2]


def _is_frozen(content: Content) -> bool:
    """Return whether a file begins as a GraphDef: with a NodeDef, whose first two fields are its name and its
    op.
    """
    number, value = content.fields[0] if content.fields else (0, 0)
    if number != 1 or not isinstance(value, bytes):
        return False
    node = list(first_fields(value, 2))
    has_name_and_op = [field for field, _ in node] == [1, 2]
    return has_name_and_op and all(isinstance(part, bytes) and part.isascii() for _, part in node)


_format = partial(Format, framework="tf", engine="tf")
_READ = "porter.formats.tf_graph.read"
FORMATS = (
    _format("saved-model", "a SavedModel", _is_saved_model, reader(_READ, "read_saved_model")),
    _format(
        "frozen-graph", "a frozen TensorFlow graph (.pb)", _is_frozen, reader(_READ, "read_frozen_graph")
    ),
)
