"""The files of a Caffe port: `model.prototxt`, its net, and `model.caffemodel`, its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from porter.base.dtypes import Array, Dtype, storage_type
from porter.base.errors import FileError, UsageError
from porter.files import digest
from porter.formats.caffe.blobs import net_message, read_blobs
from porter.formats.caffe.text import Message, parse
from porter.frameworks import Tensors
from porter.frameworks.caffe.layout import MODEL_FILE, NET_FILE
from porter.frameworks.caffe.net import make_net, read_back
from porter.graph.plan import Plan
from porter.padding import ANY

MOST_BYTES = (1 << 31) - (1 << 24)
"""Of the blobs: a protobuf message has at most 2 GiB, and the layers take a part of it."""


def write(
    folder: Path, plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype, about: Mapping[str, str]
) -> dict[str, str]:
    """Writes both files into `folder`. Returns the sha256 of each by its name.

    Raises:
        UsageError: Caffe has no such number type, or the tensors are too large for its file.
        GraphError: it has no layers for an op. MappingError: the tensors do not fit the graph.
    """
    if dtype not in ("float32", "float64"):
        raise UsageError(f"Caffe computes in float32 and float64, not in {dtype}", where="--dtype", next="leave it out")
    net = make_net(plan)
    blobs = net.blobs(tensors, storage_type(dtype))
    if sum(array.nbytes for arrays in blobs for array in arrays) > MOST_BYTES:
        raise UsageError("a .caffemodel has at most 2 GiB, and these weights have more", next="port it to torch or onnx")
    size = plan.only_size or tuple(json.loads(about.get("porter.native_size", "[null, null]")))
    (folder / NET_FILE).write_text(net.text((size[0], size[1]), about), encoding="utf-8")
    with (folder / MODEL_FILE).open("wb") as file:
        file.writelines(net_message("port", [layer.words for layer in net.layers], blobs))
    return {name: digest(folder / name) for name in (MODEL_FILE, NET_FILE)}


def read_port(folder: Path, plan: Plan, layers: Mapping[str, str]) -> dict[str, dict[str, Array]]:
    """The canonical tensors of a port that `write` wrote.

    Raises:
        FileError: a file is missing or damaged, or the net is another than the plan's. MappingError: a blob is missing or another.
    """
    net = make_net(plan)
    try:
        stated, stored = (folder / NET_FILE).read_text(encoding="utf-8"), read_blobs((folder / MODEL_FILE).read_bytes())
        wrong = _first_wrong(parse(stated), parse(net.text(ANY)))
    except (OSError, ValueError, OverflowError) as error:
        raise FileError(f"the port's model cannot be read: {str(error)[:300]}", where=str(folder), next="convert again") from None
    if wrong is not None:
        raise FileError(f"the net is not the one of port.json: {wrong}", where=str(folder / NET_FILE), next="convert again")
    return read_back(net.layers, stored, plan.graph)


def _first_wrong(stated: Message, wanted: Message) -> str | None:
    """The first layer behind the input that is not as porter writes it."""
    found, own = stated.parts("layer")[1:], wanted.parts("layer")[1:]
    other = next((layer.word("name") for layer, other in zip(own, found, strict=False) if layer != other), None)
    return f"layer '{other}' is another" if other else None if len(found) == len(own) else f"it has {len(found) + 1} layers"
