"""The options of TensorFlow Lite's operators, as tables of a FlatBuffer."""

from __future__ import annotations

import flatbuffers  # type: ignore[import-untyped]

from porter.formats.tflite.flatbuffer import Field, Table, root
from porter.formats.tflite.model import Operator
from porter.formats.tflite.operators import _unread_options


def options(*fields: int) -> Table:
    """A table that has these fields."""
    builder = flatbuffers.Builder(0)
    builder.StartObject(8)
    for field in fields:
        builder.PrependInt8Slot(field, 1, 0)
    builder.Finish(builder.EndObject())
    return root(bytes(builder.Output()))


def test_a_field_that_nothing_asks_for_is_named() -> None:
    """It would make another function of the same operator."""
    softmax = Operator("it", "SOFTMAX", (), (), options(0, 5))
    softmax.option(Field(0, "b"))
    softmax.option(Field(3, "b"))
    assert _unread_options(softmax) == ["field 5 of its options"]
    depthwise = Operator("it", "DEPTHWISE_CONV_2D", (), (), options(3))
    assert _unread_options(depthwise) == [], "its kernel has the multiplier, too"
