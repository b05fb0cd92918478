"""Messages of strangers are counted before they are parsed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import FileError
from porter.formats.protobuf import has_more_parts
from porter.formats.reading import read_checkpoint

onnx = pytest.importorskip("onnx")


def graph(*nodes: Any) -> Any:
    image = onnx.helper.make_tensor_value_info("x", 1, [1, 3, 8, 8])
    weights = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "weights")
    return onnx.helper.make_graph(
        nodes, "g", [image], [onnx.helper.make_tensor_value_info("y", 1, None)], [weights]
    )


def count(message: Any) -> int:
    """The messages and texts in a parsed message."""
    found = 0
    for field, value in message.ListFields():
        values = value if isinstance(value, list) or hasattr(value, "append") else [value]
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            found += len(values) + sum(map(count, values))
        elif field.cpp_type == field.CPPTYPE_STRING:
            found += len(values)
    return found


def test_the_parts_of_a_message_are_counted() -> None:
    nodes = [
        onnx.helper.make_node("Pad", ["x"], [f"y{place}"], pads=[0, 1, 2], name="n" * 5000)
        for place in range(7)
    ]
    model = onnx.helper.make_model(graph(*nodes))
    data, parts = model.SerializeToString(), count(model)
    assert parts > 50
    assert not has_more_parts(data, model.DESCRIPTOR, parts) and has_more_parts(
        data, model.DESCRIPTOR, parts - 1
    )
    for end in range(0, len(data), 501):  # cut short, and so damaged
        assert not has_more_parts(data[:end], model.DESCRIPTOR, parts)


def test_a_file_of_small_messages_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    """Ten megabytes of empty nodes took 840 MB."""
    content = graph().SerializeToString() + b"\x0a\x00" * ((1 << 20) + 1)
    wrapped = onnx.ModelProto().DESCRIPTOR.fields_by_name["graph"].number << 3 | 2
    size = len(content)
    length = bytes(
        ((size >> shift) & 127) | (128 if size >> (shift + 7) else 0)
        for shift in range(0, size.bit_length(), 7)
    )
    model = onnx.helper.make_model(graph())
    model.ClearField("graph")
    (tmp_path / "nodes.onnx").write_bytes(model.SerializeToString() + bytes([wrapped]) + length + content)
    with pytest.raises(FileError, match="more than 1048576 messages and texts"):
        read_checkpoint(tmp_path / "nodes.onnx")
