"""What a graph takes grows with its nodes: calls of functions are counted, because times are noisy."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from porter.base.errors import FileError
from porter.filegraph.dataflow import Arrays, Dataflow, Operators
from porter.filegraph.value_names import NodeOutput
from porter.formats.reading import read_checkpoint
from porter.source.inspection import inspect

KERNEL = np.random.default_rng(0).normal(size=(3, 3, 4, 4)).astype(np.float32)
NAMES: dict[str, Callable[[int], str]] = {
    "plain": lambda place: f"relu{place}",
    "alike at the end": lambda place: f"block{place}/end",
    "without an ASCII letter": lambda place: (
        "é" + "".join(chr(0x4E00 + place // size % 128) for size in (1, 128))
    ),
}


def onnx_chain(path: Path, names: Callable[[int], str], count: int) -> None:
    """ReLUs and sums in turns, behind a convolution."""
    onnx = pytest.importorskip("onnx")
    make, nodes = onnx.helper.make_node, []
    nodes.append(make("Conv", ["x", "k"], ["v"], name="conv"))
    for place in range(count):
        before = [node.output[0] for node in nodes[-2:]]
        op, read = ("Relu", before[-1:]) if place % 2 == 0 else ("Add", before)
        nodes.append(make(op, read, [f"{names(place)}:0"], name=names(place)))
    image, end = (
        onnx.helper.make_tensor_value_info(name, 1, shape)
        for name, shape in (("x", [1, 4, 8, 8]), (nodes[-1].output[0], None))
    )
    kernel = onnx.numpy_helper.from_array(KERNEL.transpose(), "k")
    graph = onnx.helper.make_graph(nodes, "chain", [image], [end], [kernel])
    path.write_bytes(
        onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8
        ).SerializeToString()
    )


def keras_chain(path: Path, names: Callable[[int], str], count: int) -> None:
    """Tangents behind a convolution."""
    layers: list[dict[str, Any]] = [
        {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [None, 8, 8, 4]}},
        {
            "class_name": "Conv2D",
            "config": {"name": "conv", "filters": 4, "kernel_size": [3, 3], "use_bias": False},
        },
        *(
            {"class_name": "Activation", "config": {"name": names(place), "activation": "tanh"}}
            for place in range(count)
        ),
    ]
    weights = path.with_suffix(".h5")
    with h5py.File(weights, "w") as file:
        file["layers/conv2d/vars/0"] = KERNEL
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.5.0"}')
        archive.writestr(
            "config.json", json.dumps({"class_name": "Sequential", "config": {"name": "m", "layers": layers}})
        )
        archive.write(weights, "model.weights.h5")


CHAINS = {"onnx": onnx_chain, "keras": keras_chain}


def calls(function: Callable[[], object]) -> int:
    count = 0

    def counting(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(
    ("format", "names"),
    [("onnx", "alike at the end"), ("onnx", "without an ASCII letter"), ("keras", "plain")],
)
def test_twice_the_nodes_take_twice_the_calls(format: str, names: str, tmp_path: Path) -> None:
    """Of names that end alike each group was compared with all others, which took minutes for 16,000
    nodes.
    """
    found = {}
    for count in (20, 100, 200, 400):  # the first one imports
        path = tmp_path / f"{count}.{format}"
        CHAINS[format](path, NAMES[names], count)
        found[count] = calls(partial(inspect, path))
    assert found[400] - found[200] < 2.1 * (found[200] - found[100])


def test_a_graph_of_more_layers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for format, make in CHAINS.items():
        make(tmp_path / format, NAMES["plain"], 30)
    monkeypatch.setattr("porter.formats.reading.MOST_LAYERS", 30)
    for format in CHAINS:
        with pytest.raises(
            FileError, match="the file's graph has 31 layers, more than the 30 that porter takes"
        ):
            read_checkpoint(tmp_path / format)
    monkeypatch.setattr("porter.formats.keras.flow.MOST_NODES", 10)
    with pytest.raises(FileError, match="its layers are called more than 10 times"):
        read_checkpoint(tmp_path / "keras")


def test_what_numpy_cannot_compute_is_tried_once() -> None:
    """800 convolutions behind 4,000 error functions of a constant: each tried them all."""

    @dataclass(frozen=True)
    class Erf:
        name: str
        inputs: tuple[NodeOutput, ...]
        op: str = "Erf"

    nodes = {f"e{place}": Erf(f"e{place}", ((f"e{place - 1}" if place else "k", 0),)) for place in range(9)}
    flow: Dataflow[Any] = Dataflow(
        nodes, (), Arrays({"k": KERNEL}), Operators(lambda node: node.op), budget=1 << 20
    )
    assert flow.weights(("e8", 0)) is None and flow.steps == 10
    assert flow.weights(("e8", 0)) is None and flow.steps == 10
