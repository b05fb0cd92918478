"""Caffe models as Caffe writes them: a net as text, and its blobs as the messages of caffe.proto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from porter.graph import INPUT, Add, AvgPool, BatchNorm, Conv, Dense, GlobalAvgPool, MaxPool, Node, Relu
from porter.recipe import find_recipe, layer_names
from tests.support.arrays import Array
from tests.support.standin_files import standin_graph, standin_tensors

Blobs = Mapping[str, Sequence[NDArray[np.float32]]]


def write_caffe(path: Path, net: str, blobs: Blobs, legacy: bool = False) -> Path:
    """The net beside its weights; `legacy` as before Caffe's second format, with blobs of four axes. Gives
    the net's path.
    """
    path.with_suffix(".prototxt").write_text(net)
    layers = b"".join(_layer(name, arrays, legacy) for name, arrays in blobs.items())
    path.with_suffix(".caffemodel").write_bytes(_field(1, b"net") + layers)
    return path.with_suffix(".prototxt")


def run_by_opencv(net: Path, images: Array, names: Sequence[str]) -> dict[str, Array]:
    """These values of a net, in float32. Layers are asked for one after the other without fusion, which gives
    wrong values of them (OpenCV 4.14).
    """
    import cv2

    model = cv2.dnn.readNetFromCaffe(str(net), str(net.with_suffix(".caffemodel")))
    model.enableFusion(False)
    model.setInput(images.astype(np.float32))
    return dict(zip(names, model.forward(names), strict=True))


def zoo_files(folder: Path, variant: str, factor: float = 999.25, recipes: Path | None = None) -> Path:
    """Calibrated weights of the zoo `caffe` with a net as its authors write it: norms and ReLUs in place.
    Gives the net's path.

    Args:
        factor: what divides the statistics of each norm.
    """
    graph, tensors = (
        standin_graph(variant, "caffe", recipes=recipes),
        standin_tensors(variant, "caffe", recipes=recipes),
    )
    names = layer_names(find_recipe(variant, recipes).member(variant, "caffe"), graph)
    tops, layers, found = {INPUT: "data"}, list[str](), dict[str, list[NDArray[np.float32]]]()

    def add(name: str, kind: str, node: Node, top: str, parameters: str = "") -> None:
        bottoms = " ".join(f'bottom: "{tops[path]}"' for path in node.inputs)
        layers.append(f'layer {{ {bottoms} top: "{top}" name: "{name}" type: "{kind}" {parameters} }}')
        tops[node.path] = top

    for node in graph.nodes:
        op, name = node.op, names[node.path].name if node.path in names else node.path
        arrays = dict(tensors.get(node.path, {}))
        whole = "conv1x1_to_dense" in names[node.path].transforms if node.path in names else False
        if isinstance(op, Conv) or (isinstance(op, Dense) and whole):
            filters, sides = (op.filters, op.window) if isinstance(op, Conv) else (op.units, None)
            pads, groups = (op.convention.pads[0], op.groups) if isinstance(op, Conv) else (0, 1)
            kernel, stride = (sides.kernel[0], sides.stride[0]) if sides else (1, 1)
            bias = "" if op.bias else " bias_term: false"
            stated = (
                f"num_output: {filters} kernel_size: {kernel} pad: {pads} stride: {stride} group: "
                f"{groups}{bias}"
            )
            add(name, "Convolution", node, name, f"convolution_param {{ {stated} }}")
            arrays["kernel"] = arrays["kernel"].reshape(filters, -1, kernel, kernel)
        elif isinstance(op, Dense):
            add(name, "InnerProduct", node, name, f"inner_product_param {{ num_output: {op.units} }}")
        elif isinstance(op, BatchNorm):
            (top,), scale = (tops[path] for path in node.inputs), name.replace("bn", "scale", 1)
            add(
                name,
                "BatchNorm",
                node,
                top,
                f"batch_norm_param {{ use_global_stats: true eps: {op.epsilon} }}",
            )
            add(scale, "Scale", node, top, "scale_param { bias_term: true }")
            found[name] = [np.float32(factor) * arrays.pop(role) for role in ("mean", "variance")]
            found[name].append(np.array([factor], np.float32))
            name = scale
        elif isinstance(op, Relu):
            add(name, "ReLU", node, tops[node.inputs[0]])
        elif isinstance(op, Add):
            add(name, "Eltwise", node, name)
        else:
            assert isinstance(op, MaxPool | AvgPool | GlobalAvgPool)
            sizes = (
                f"kernel_size: {op.window.kernel[0]} stride: {op.window.stride[0]}"
                if not isinstance(op, GlobalAvgPool)
                else ""
            )
            kind = "pool: MAX" if isinstance(op, MaxPool) else "pool: AVE"
            add(name, "Pooling", node, name, f"pooling_param {{ {kind} {sizes or 'global_pooling: true'} }}")
        if arrays:
            found[name] = list(arrays.values())
    (ending,) = (path for path in graph.outputs)
    layers.append(f'layer {{ bottom: "{tops[ending]}" top: "prob" name: "prob" type: "Softmax" }}')
    net = 'input: "data" input_dim: 1 input_dim: 3 input_dim: 224 input_dim: 224\n' + "\n".join(layers)
    return write_caffe(folder / variant, net, found)


def _layer(name: str, arrays: Sequence[NDArray[np.float32]], legacy: bool) -> bytes:
    parts = [
        _field(4 if legacy else 1, name.encode()),
        *(_field(6 if legacy else 7, _blob(array, legacy)) for array in arrays),
    ]
    return _field(2 if legacy else 100, b"".join(parts))


def _blob(array: NDArray[np.float32], legacy: bool) -> bytes:
    data = _field(5, array.astype("<f4").tobytes())
    if not legacy:
        return _field(7, _field(1, b"".join(map(_varint, array.shape)))) + data
    sizes = (*[1] * (4 - array.ndim), *array.shape)
    return b"".join(_varint(number << 3) + _varint(size) for number, size in enumerate(sizes, 1)) + data


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
