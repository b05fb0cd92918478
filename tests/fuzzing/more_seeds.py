"""Right files of every op that the tests of a reader know. They take minutes to make, so that only
scripts/fuzz uses them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np


def _numbered(folder: Path) -> Iterator[Path]:
    number = 0
    while True:
        (place := folder / str(number)).mkdir(parents=True)
        yield place
        number += 1


def _onnx(folder: Path) -> Iterator[Path]:
    from tests.unit.formats.onnx.test_read import CASES, FOREIGN, model, written

    for (name, text), place in zip(CASES.items(), places := _numbered(folder), strict=False):
        stated = name.partition("opset ")[2]
        yield written(model(text, int(stated) if stated else 17 if "axes=" in text else 20), place)
    for (text, _), place in zip(FOREIGN.values(), places, strict=False):
        yield written(model(text), place)


def _keras(suffix: str) -> Callable[[Path], Iterator[Path]]:
    def make(folder: Path) -> Iterator[Path]:
        for model, place in zip(_keras_models(), _numbered(folder), strict=False):
            model.save(place / f"model{suffix}")
            yield place / f"model{suffix}"

    return make


def _keras_models() -> Iterator[Any]:
    from porter.frameworks.tf.runtime import import_keras
    from tests.support.filegraph.keras_cases import KERAS_3_CASES, KERAS_CASES, keras_model

    keras = import_keras()
    cases = {**KERAS_CASES, **KERAS_3_CASES}
    for name in cases:
        yield keras_model(keras, {name: cases[name]})[0]


def _tfjs(folder: Path) -> Iterator[Path]:
    from tests.unit.formats.tfjs.test_read import graph_model, layers_model, write

    places = _numbered(folder)
    yield graph_model(next(places), size=(8, 8))
    yield layers_model(next(places))
    for model, place in zip(_keras_models(), places, strict=False):
        stated = {
            "model_config": json.loads(model.to_json()),
            "keras_version": "3.0",
            "backend": "tensorflow",
        }
        yield write(place, stated, {weight.path: np.asarray(weight) for weight in model.weights})


def _tf_graph(folder: Path) -> Iterator[Path]:
    from tests.support.formats.tf_graph.file_graphs import frozen
    from tests.unit.formats.tf_graph.test_graph import ARRAYS, FOREIGN, OPS, WINDOWS

    made = [make for table in (OPS, ARRAYS) for make, _ in table.values()]
    for make, place in zip([*WINDOWS.values(), *made, *FOREIGN.values()], _numbered(folder), strict=False):
        frozen(place / "model.pb", make)
        yield place / "model.pb"


def _torch_export(folder: Path) -> Iterator[Path]:
    import torch

    from tests.support.formats.torch_export.exports import export
    from tests.unit.formats.torch_export.test_ops import CASES, FIXED_ONLY, SIZE, WHOLE_ONLY, Ops

    image, cases = torch.randn(2, 6, *SIZE), iter({**CASES, **WHOLE_ONLY}.items())
    places = _numbered(folder)
    for number, place in enumerate(places):
        some = dict(islice(cases, 3))
        if not some:
            break
        yield export(Ops(some).eval(), image, place, free=bool(number % 2))[0]
    yield export(Ops(FIXED_ONLY).eval(), image, next(places))[0]


def _caffe(folder: Path) -> Iterator[Path]:
    from tests.support.caffe_files import write_caffe
    from tests.unit.formats.caffe.test_read import NET, OLDER, TRAINED, blobs

    for net, place in zip((NET, OLDER, TRAINED), _numbered(folder), strict=False):
        yield write_caffe(place / "model", net, blobs(net), legacy=net is OLDER)


def _mxnet(folder: Path) -> Iterator[Path]:
    from tests.support.mxnet_files import write_mxnet
    from tests.unit.formats.mxnet.test_read import LINES, arrays

    for version, place in zip((1, 2), _numbered(folder), strict=False):
        yield write_mxnet(place / "model", LINES, arrays(), version)


def _torch7(folder: Path) -> Iterator[Path]:
    from tests.support.torch7_files import write_torch7
    from tests.unit.formats.torch7.test_read import network

    yield write_torch7(next(_numbered(folder)) / "model.t7", network())


def _tflite(folder: Path) -> Iterator[Path]:
    from tests.unit.formats.tflite.test_read import converted, network

    for kind, place in zip(("float32", "dynamic"), _numbered(folder), strict=False):
        (place / "model.tflite").write_bytes(converted(network(), kind))
        yield place / "model.tflite"


MORE: Mapping[str, Callable[[Path], Iterator[Path]]] = {
    "caffe": _caffe,
    "mxnet": _mxnet,
    "torch7": _torch7,
    "tflite": _tflite,
    "tfjs": _tfjs,
    "onnx": _onnx,
    "torch_export": _torch_export,
    "keras-h5": _keras(".h5"),
    "keras": _keras(".keras"),
    "tf_graph": _tf_graph,
}
"""By the reader: each file in a folder of its own."""
