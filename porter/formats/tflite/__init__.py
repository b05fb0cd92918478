"""TensorFlow Lite's models."""

from __future__ import annotations

from porter.formats.format import Format, reader

FORMATS = (
    Format(
        "tflite",
        "a TensorFlow Lite model (.tflite)",
        lambda content: content.head[4:8] == b"TFL3",
        reader("porter.formats.tflite.read", "read_tflite"),
        framework="tf",
        engine="numpy",
        rows="porter.formats.tflite.rows",
    ),
)
