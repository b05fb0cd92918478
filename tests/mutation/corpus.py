"""Small files of each format, one operator or layer in each, with images and what the file's own framework
gives for them.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

import porter
from porter.api.port import Ported
from tests.support.arrays import Array

CLOSE = 1e-5
"""The relative L2 distance in float32 up to which outputs are the same."""


@dataclass(frozen=True)
class Given:
    """What a port gives for images.

    Attributes:
        activation: by its port.json, the file's own after its output, which the port lacks.
    """

    outputs: tuple[Array, ...]
    activation: str | None = None

    def of_file(self) -> Given:
        """What the file gives by it: with the activation, if the port lacks one."""
        if self.activation is None:
            return self
        return Given(tuple(_ACTIVATIONS[self.activation](each.astype(np.float64)) for each in self.outputs))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "sigmoid": lambda logits: np.exp(-np.logaddexp(0, -logits)),
    "softmax": lambda logits: np.exp(_log_shares(logits)),
    "log_softmax": lambda logits: _log_shares(logits),
}
"""Written down again here, because a mistake may be in porter's own."""


def _log_shares(logits: Array) -> Array:
    return logits - np.logaddexp.reduce(logits, min(1, logits.ndim - 1), keepdims=True)


@dataclass(frozen=True)
class Item:
    """A file with images N x C x H x W, and what its port for torch gives for them."""

    name: str
    file: Path
    images: Array
    given: Given


def make(folder: Path) -> None:
    """Writes the corpus. What is refused, crashes, or is not what the framework gives, is named and left out.
    OpenCV does not give each output of a net.
    """
    for name, file, images, wanted in _files(folder):
        place = folder / name
        try:
            given = given_by(port_of(file, images, place / "port").folder, images)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:120]}", flush=True)
            continue
        outputs = given.of_file().outputs
        if not all(any(_same_in_some_order(output, value) for output in outputs) for value in wanted):
            print(f"{name}: the port gives something else than {file.name}", flush=True)
            continue
        np.savez(place / "values.npz", images, *given.outputs)
        stated = {"file": str(file.relative_to(folder)), "activation": given.activation}
        (place / "item.json").write_text(json.dumps(stated))


def read(folder: Path) -> list[Item]:
    """The corpus of a folder."""
    found = []
    for stated in sorted(folder.glob("*/item.json")):
        with np.load(stated.with_name("values.npz")) as values:
            images, *outputs = (values[name] for name in values.files)
        facts = json.loads(stated.read_text())
        given = Given(tuple(outputs), facts["activation"])
        found.append(Item(stated.parent.name, folder / facts["file"], images, given))
    return found


def port_of(file: Path, images: Array, out: Path) -> Ported:
    """A file's port for torch. Torch7's files state no size of an image."""
    size = "x".join(map(str, images.shape[2:])) if file.suffix == ".t7" else None
    return porter.convert(file, to="torch", out=out, input_size=size)


def given_by(port: Path, images: Array) -> Given:
    """What a port for torch gives."""
    import torch

    with torch.no_grad():
        found = porter.load(port)(torch.from_numpy(images.astype(np.float32)))
    outputs = tuple(each.numpy() for each in (found if isinstance(found, list | tuple) else [found]))
    return Given(outputs, json.loads((port / "port.json").read_text(encoding="utf-8"))["activation"])


def same(found: Array, wanted: Array) -> bool:
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return False
    return bool(np.linalg.norm(found - wanted) <= CLOSE * max(float(np.linalg.norm(wanted)), 1e-12))


def _same_in_some_order(found: Array, wanted: Array) -> bool:
    """Whether they are the same but for the order of their axes: a map is channels first here, and last in
    Keras.
    """
    if found.ndim != wanted.ndim:
        return False
    orders = [order for order in permutations(range(wanted.ndim)) if order[0] == 0]
    return any(same(found, np.asarray(wanted.transpose(order), np.float32)) for order in orders)


def _files(folder: Path) -> Iterator[tuple[str, Path, Array, list[Array]]]:
    for made in (_torch, _onnx, _mxnet, _caffe, _torch7, _theano, _keras, _tensorflow):
        yield from made(folder)


def _mxnet(folder: Path) -> Iterator[tuple[str, Path, Array, list[Array]]]:
    from tests.support import mxnet_cases
    from tests.support.mxnet_files import write_mxnet

    recorded = np.load(mxnet_cases.RECORDED)
    for number, (name, case) in enumerate(mxnet_cases.CASES.items()):
        place = folder / f"mxnet-{number:03}"
        place.mkdir(parents=True)
        file = write_mxnet(place / "model", case.lines, case.arrays)
        file.write_text(json.dumps(case.symbol))
        yield place.name, file, mxnet_cases.images(), [recorded[name]]


def _caffe(folder: Path) -> Iterator[tuple[str, Path, Array, list[Array]]]:
    from tests.support.caffe_files import run_by_opencv
    from tests.unit.formats.caffe.test_read_layers import CASES, images, written

    for number, case in enumerate(CASES.values()):
        place = folder / f"caffe-{number:03}"
        place.mkdir(parents=True)
        file = written(case, place / "model")
        yield place.name, file, images(), [run_by_opencv(file, images(), ["end"])["end"]]


def _torch7(folder: Path) -> Iterator[tuple[str, Path, Array, list[Array]]]:
    from tests.unit.formats.torch7.test_read_layers import CASES, by_torch, images, written

    for number, case in enumerate(CASES.values()):
        place = folder / f"torch7-{number:03}"
        place.mkdir(parents=True)
        yield place.name, written(case, place / "model.t7"), images(), by_torch(case)


def _theano(folder: Path) -> Iterator[tuple[str, Path, Array, list[Array]]]:
    """What Keras ran on Theano, of which its values are kept."""
    from tests.unit.formats.keras.test_theano import NAMES, recorded

    for name in NAMES:
        place = folder / f"theano-{name}"
        place.mkdir(parents=True)
        file = recorded(name, place)
        known = np.load(file.with_suffix(".npz"))
        yield place.name, file, known["images"], [known["float32"]]


def _keras(folder: Path) -> Iterator[tuple[str, Path, Array, list[Array]]]:
    from tests.support.filegraph.keras_cases import images

    batch = images()
    for name, model in _keras_models():
        place = folder / f"keras-{name}"
        place.mkdir(parents=True)
        model.save(place / "model.keras")
        # Keras's sums of maps mix up the images of a batch of as many images as channels.
        each = [_given(model(image[None])) for image in batch.astype(np.float32)]
        wanted = [np.concatenate(values) for values in zip(*each, strict=True)]
        yield place.name, place / "model.keras", batch.transpose(0, 3, 1, 2), wanted


def _tensorflow(folder: Path) -> Iterator[tuple[str, Path, Array, list[Array]]]:
    """The same models as graphs of TensorFlow, and as files of TensorFlow Lite, judged by its interpreter."""
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    from tests.support.filegraph.keras_cases import images

    batch = images().astype(np.float32)
    # TensorFlow's remapper makes another function of the larger of x and 2x.
    tf.config.optimizer.set_experimental_options({"remapping": False})
    for name, model in _keras_models():
        image = tf.TensorSpec((None, *batch.shape[1:]), tf.float32, name="image")
        traced = convert_variables_to_constants_v2(tf.function(model).get_concrete_function(image))
        frozen = folder / f"frozen-{name}" / "model.pb"
        frozen.parent.mkdir(parents=True)
        frozen.write_bytes(traced.graph.as_graph_def().SerializeToString())
        yield frozen.parent.name, frozen, batch.transpose(0, 3, 1, 2), _given(traced(tf.constant(batch)))
        lite = folder / f"tflite-{name}" / "model.tflite"
        lite.parent.mkdir(parents=True)
        try:
            lite.write_bytes(tf.lite.TFLiteConverter.from_concrete_functions([traced], model).convert())
            yield lite.parent.name, lite, batch.transpose(0, 3, 1, 2), _interpreted(lite, batch)
        except Exception as error:  # the converter lacks operators
            print(f"{lite.parent.name}: {error!s:.80}", flush=True)


def _keras_models() -> Iterator[tuple[str, Any]]:
    """By number, a model of each layer of Keras that it can make."""
    from porter.frameworks.tf.runtime import import_keras
    from tests.support.filegraph.keras_cases import KERAS_3_CASES, KERAS_CASES, images, keras_model

    keras, one = import_keras(), images()[:1].astype(np.float32)
    for number, (name, case) in enumerate({**KERAS_CASES, **KERAS_3_CASES}.items()):
        try:
            model, _ = keras_model(keras, {name: case})
            model(one)
        except Exception as error:
            print(f"keras, {name}: {error!s:.80}", flush=True)
            continue
        yield f"{number:03}", model


def _given(outputs: Any) -> list[Array]:
    return [np.asarray(each) for each in (outputs if isinstance(outputs, list | tuple) else [outputs])]


def _interpreted(file: Path, batch: Array) -> list[Array]:
    """What TensorFlow Lite's own kernels give, one image after the other."""
    import tensorflow as tf

    own = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    model = tf.lite.Interpreter(str(file), experimental_op_resolver_type=own)
    (taken,) = model.get_input_details()
    found: list[list[Array]] = []
    for image in batch:
        model.resize_tensor_input(taken["index"], (1, *image.shape))
        model.allocate_tensors()
        model.set_tensor(taken["index"], image[None])
        model.invoke()
        found.append([model.get_tensor(each["index"]) for each in model.get_output_details()])
    return [np.concatenate(values) for values in zip(*found, strict=True)]


def _torch(folder: Path) -> Iterator[tuple[str, Path, Array, list[Array]]]:
    import torch

    from tests.support.formats.torch_export.exports import export
    from tests.unit.formats.torch_export.test_ops import CASES, SIZE, Ops

    image = torch.randn(2, 6, *SIZE, generator=torch.Generator().manual_seed(1))
    for number, (name, case) in enumerate(CASES.items()):
        place = folder / f"torch-{number:03}"
        place.mkdir(parents=True)
        model = Ops({name: case}).eval()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            file, _ = export(model, image, place)
            yield place.name, file, image.numpy(), [each.numpy() for each in model(image)]


def _onnx(folder: Path) -> Iterator[tuple[str, Path, Array, list[Array]]]:
    import onnx
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    from tests.support.frameworks.onnx.operators import cases, model

    onnxruntime.set_default_logger_severity(3)  # it warns of outputs of unstated shapes
    for number, case in enumerate(cases()):
        place = folder / f"onnx-{number:03}"
        place.mkdir(parents=True)
        made: Any = model(case, case.opsets()[-1])
        onnx.save(made, place / "model.onnx")
        batch = case.batch().astype(np.float32)
        # ONNX's own code has some operators wrong (porter.frameworks.onnx.operators).
        runner: Any = onnxruntime.InferenceSession if case.runtime else ReferenceEvaluator
        try:
            given = runner(made.SerializeToString()).run(None, {"x": batch})
        except (TypeError, ValueError):  # transposed convolutions in groups, which neither computes
            continue
        yield place.name, place / "model.onnx", batch, [np.asarray(each) for each in given]
