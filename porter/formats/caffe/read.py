"""Reads Caffe's nets: their weights, and their layers as porter's ops. They are parsed, never run."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import FileError
from porter.filegraph.checkpoint import UNREAD, Checkpoint
from porter.filegraph.dataflow import Arrays, Dataflow, Operators
from porter.filegraph.file_graph import FileGraph, fill_free_size, read_for_sizes
from porter.filegraph.layers import read_graph
from porter.filegraph.names import expect_values
from porter.filegraph.reading import GraphInput, begin
from porter.filegraph.value_names import value_name
from porter.formats.caffe.blobs import read_blobs
from porter.formats.caffe.net import CONVOLUTIONS, IMAGE, WITH_KERNELS, CaffeLayer, Net, read_net
from porter.formats.caffe.operators import READERS
from porter.formats.damage import refusing_damage
from porter.formats.limits import most_bytes, read_bounded
from porter.formats.protobuf import MOST_BYTES
from porter.padding import Size

_NET, _WEIGHTS = ".prototxt", ".caffemodel"
_MOST_TEXT = 8 << 20
"""The most bytes of a net's text."""
_OPERATORS: Operators[CaffeLayer] = Operators(lambda layer: layer.op)


def read_caffe(
    path: Path, outputs: Sequence[str] = (), size: Size | None = None, weights: Path | None = None
) -> Checkpoint:
    """Return a net with its weights. The path names one of the two; the other has the same name, or is the
    only one of its kind in the folder, or the only one that is called `deploy`.

    Args:
        outputs: names of layers, at which the graph ends.
        size: rows and columns, where the net does not state them.
        weights: those of the net that the path names.

    Raises:
        FileError: one of the two is missing or damaged, or they do not belong together.
        UsageError: the net lacks one of `outputs`.
    """
    text, weights = (path, weights) if weights else _find_both_files(path)
    with refusing_damage(path, "fetch both files again"):
        net = read_net(read_bounded(text, _MOST_TEXT).decode()) if text else None
        stored = read_blobs(read_bounded(weights, MOST_BYTES))
    # Without a net of one image there are still tensors, with a note that says why there is no graph.
    problem = net.problem if net else f"its layers are in a {_NET}, and there is none beside it"
    if text is None or net is None or problem is not None:
        note = f"{UNREAD}: {problem}"
        return Checkpoint(
            path, "caffe", None, _tensors_without_net(stored), (note,), files=(text, weights) if text else ()
        )
    tensors = _tensors_of_net(net, stored, weights)
    budget = most_bytes(weights.stat().st_size)
    image_size = fill_free_size(net.size, size)
    with refusing_damage(text, "fetch both files again"):
        graph = replace(
            read_for_sizes(image_size, partial(_read_graph, net, tensors, budget, outputs)),
            traced=image_size != net.size,
            definition=text.read_bytes(),
            language="caffe",
        )
    stated = dict(_STATED_FACT.findall(graph.definition.decode()))
    return Checkpoint(
        path, "caffe", None, {**tensors, **graph.evaluated}, graph=graph, files=(text, weights), stated=stated
    )


def _find_both_files(path: Path) -> tuple[Path | None, Path]:
    """Return the file of the net, None if there is none beside the weights, and the file of the weights.
    Raise FileError where several could be meant, or the weights are not there.
    """
    files: list[Path] = []
    for suffix, content in ((_NET, "layers"), (_WEIGHTS, "weights")):
        in_folder = sorted(path.parent.glob(f"*{suffix}"))
        deployed = [file for file in in_folder if "deploy" in file.stem]
        same_name = path if path.suffix == suffix else path.with_suffix(suffix)
        choices = deployed if len(deployed) == 1 else in_folder
        if same_name.is_file():
            choices = [same_name]
        if suffix == _NET and not choices:
            return None, path
        if len(choices) != 1:
            found = f"are {len(choices)}" if choices else "is none"
            message = f"a Caffe model's {content} are in a {suffix} beside it: there {found}"
            raise FileError(message, where=path, next=f"name it {same_name.name}")
        files.append(choices[0])
    return files[0], files[1]


def _tensors_of_net(net: Net, stored: Mapping[str, Sequence[Array]], weights: Path) -> NamedArrays:
    """Return the blobs of the net's layers by name. Blobs that Caffe kept with four axes before blobs had
    shapes get the axes of their layer. Kernels keep their axes, those of InnerProduct only two; every other
    blob is one row of numbers.

    A layer with another number of blobs is refused, as Caffe refuses it (net.cpp, `CopyTrainedLayersFrom`): a
    fork's BatchNorm has a scale of its own.

    Args:
        stored: the blobs of each layer of the weights file, by the layer's name.
    """
    by_name: dict[str, Array] = {}
    for layer in net.layers:
        blobs = stored.get(layer.message.word("name"), [])
        if layer.blobs and len(blobs) != len(layer.blobs):
            message = (
                f"layer '{layer.name}' of the net has {len(layer.blobs)} blobs, and the weights have "
                f"{len(blobs)} of it"
            )
            raise FileError(message, where=weights, next="name the net that these weights were trained for")
        for name, array in zip(layer.blobs, blobs, strict=False):
            is_kernel = name.endswith("/0") and layer.op in WITH_KERNELS
            is_matrix = is_kernel and layer.op == "InnerProduct"
            if is_kernel and (array.ndim < 2 or (is_matrix and math.prod(array.shape[:-2]) != 1)):
                message = (
                    f"blob 0 of layer '{layer.name}' has shape {list(array.shape)}, which is no "
                    f"kernel of {layer.op}"
                )
                raise FileError(
                    message, where=weights, next="name the net that these weights were trained for"
                )
            if is_matrix:
                array = array.reshape(array.shape[-2:])
            elif not is_kernel:
                array = array.reshape(-1)
            by_name[name] = array
    return by_name


def _tensors_without_net(stored: Mapping[str, Sequence[Array]]) -> NamedArrays:
    """Return all blobs by name. Three blobs of a layer, of which the last is one number, are a batch norm's:
    the last one divides the others.
    """
    by_name: dict[str, Array] = {}
    for name, blobs in stored.items():
        names = [f"{name}/{index}" for index in range(len(blobs))]
        arrays = dict(zip(names, blobs, strict=True))
        if len(blobs) == 3 and blobs[2].size == 1:
            # Nothing is computed where the divisor is 1: then the sums are the statistics.
            _, computed = _compute_statistics(names, arrays)
            arrays = dict(zip(names[:2], computed.values() or blobs[:2], strict=True))
        by_name |= arrays
    return by_name


_STATED_FACT = re.compile(r"^# (porter\.\w+): (.*)$", re.MULTILINE)
"""A fact that porter writes into a comment of a net."""


def _read_graph(net: Net, tensors: NamedArrays, budget: int, outputs: Sequence[str], size: Size) -> FileGraph:
    """Return the graph of a net, with the tensors that are computed from its stored ones.

    Args:
        budget: the most bytes of tensors that may be computed.
        outputs: names of layers at which the graph ends; the values that nothing reads, if there are none.
        size: rows and columns of the image.
    """
    layers = _join_norms(net.layers)
    computed = dict[str, Array]()
    for name, layer in layers.items():
        if layer.op == "BatchNorm":
            names, of_norm = _compute_statistics(layer.blobs[:3], tensors)
            blobs = tuple((blob, 0) for blob in (*names, *layer.blobs[3:]))
            layers[name] = replace(layer, inputs=layer.inputs[: layer.values] + blobs)
            computed |= of_norm
    expect_values(outputs, layers)
    arrays = Arrays({**tensors, **computed})
    # All layers are live: each depends on the image.
    live = {IMAGE, *layers}
    flow = Dataflow(layers, live, arrays, _OPERATORS, budget, net.passed)
    channels_of_kernels = (
        tensors[layer.blobs[0]].shape[1] for layer in net.layers if layer.op in CONVOLUTIONS
    )
    # A net that does not state its image's channels reads those of its first kernel.
    channels = net.channels or next(channels_of_kernels, 3)
    image = GraphInput((IMAGE, 0), channels, size, order="CHW")
    ends = [(name, 0) for name in outputs] or [(name, output) for name, output in net.ends if name in layers]
    graph = read_graph(begin(flow, image, tensors, tap=value_name), READERS, ends)
    return replace(graph, evaluated={**computed, **graph.evaluated})


def _join_norms(layers: Sequence[CaffeLayer]) -> dict[str, CaffeLayer]:
    """Return the layers by name. A BatchNorm whose only reader is a Scale of channels becomes one norm with
    it, under the Scale's name, because Caffe's own BatchNorm has no gamma and beta.
    """
    readers = Counter(source for layer in layers for source in layer.inputs[: layer.values])
    by_name: dict[str, CaffeLayer] = {}
    for layer in layers:
        before = by_name.get(layer.source[0])
        is_by_channel = layer.op == "Scale" and layer.values == 1 and layer.parameters.count("axis", 1) == 1
        norm = before if before is not None and before.op == "BatchNorm" else None
        if norm is not None and is_by_channel and readers[layer.source] == 1:
            del by_name[norm.name]
            layer = replace(norm, name=layer.name, inputs=(*norm.inputs, *layer.inputs[1:]))
        by_name[layer.name] = layer
    return by_name


def _compute_statistics(blobs: Sequence[str], tensors: NamedArrays) -> tuple[list[str], dict[str, Array]]:
    """Return the names of a norm's mean and variance, and the two arrays if they are computed. Caffe keeps
    sums, and their divisor as the third blob. With a divisor of 0 both are 0 (batch_norm_layer.cpp). With a
    divisor of 1 nothing is computed, and the stored sums are named.
    """
    *sums, factor = blobs
    divisor = float(tensors[factor].ravel()[0]) if tensors[factor].size else 0.0
    if divisor == 1:
        return sums, {}
    factor_of_sums = 1 / divisor if divisor else 0.0
    computed: dict[str, Array] = {
        f"{name} / {factor}": tensors[name].astype(np.float64) * factor_of_sums for name in sums
    }
    return [*computed], computed
