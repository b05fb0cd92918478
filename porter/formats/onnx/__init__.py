"""ONNX models."""

from __future__ import annotations

from porter.formats.format import Content, Format, reader


def _is_onnx(content: Content) -> bool:
    """An IR version of 3 or more, then producer or graph. A producer is a name; what CoreML has there begins
    a message.
    """
    if len(content.fields) < 2:
        return False
    (number, value), (following, begun) = content.fields
    if following == 2 and isinstance(begun, bytes) and begun.startswith(b"\n"):
        return False
    return number == 1 and isinstance(value, int) and 3 <= value <= 64 and following in (2, 3, 4, 5, 7, 8)


FORMATS = (
    Format(
        "onnx",
        "an ONNX model",
        _is_onnx,
        reader("porter.formats.onnx.read", "read_onnx"),
        engine="onnx",
        renewed=True,
    ),
)
