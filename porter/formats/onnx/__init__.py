"""ONNX models."""

from __future__ import annotations

from porter.formats.format import Content, Format, reader, renewing_reader


def _is_onnx(content: Content) -> bool:
    """Return whether a file is ONNX's: an IR version of 3 or more, then the producer or the graph. A producer
    is a name; what CoreML has there begins a message.
    """
    if len(content.fields) < 2:
        return False
    # The fields of a ModelProto: 1 is ir_version, 2 producer_name, 7 graph.
    (number, value), (following, content_of_following) = content.fields
    if following == 2 and isinstance(content_of_following, bytes) and content_of_following.startswith(b"\n"):
        return False
    return number == 1 and isinstance(value, int) and 3 <= value <= 64 and following in (2, 3, 4, 5, 7, 8)


FORMATS = (
    Format(
        "onnx",
        "an ONNX model",
        _is_onnx,
        reader("porter.formats.onnx.read", "read_onnx"),
        engine="onnx",
        renew=renewing_reader("porter.formats.onnx.read", "read_onnx"),
    ),
)
