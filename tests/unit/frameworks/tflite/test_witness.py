"""TensorFlow Lite's interpreter as a witness: what porter would read wrongly on both sides of the proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import CannotRun, Contradiction, FileError
from porter.base.package import install
from porter.cli.port_text import conversion
from porter.formats.reading import read_checkpoint
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tflite import model, rows, schema, tensors as stored_tensors
from porter.formats.tflite.flatbuffer import Field
from porter.formats.tflite.model import read_model
from porter.frameworks.numpy.engine import build_file, run_reference
from porter.frameworks.tflite.witness import NAME, disagreement
from porter.reporting.write_page import report

tf = import_tensorflow()
theirs = import_module("tensorflow.lite.python.schema_py_generated")
flatbuffers = import_module("flatbuffers")
SIZE = (9, 8)
pytestmark = pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")


def network() -> Any:
    random = np.random.default_rng(0)
    kernel, dense = (
        tf.constant(random.normal(0, 0.4, shape), tf.float32) for shape in ((3, 3, 3, 8), (8, 5))
    )

    @tf.function(input_signature=[tf.TensorSpec((1, *SIZE, 3), tf.float32)])
    def compute(image: Any) -> list[Any]:
        x = tf.nn.gelu(tf.nn.relu6(tf.nn.conv2d(image, kernel, 1, "SAME")) - 0.5)
        x = tf.maximum(x, 0.2) + tf.nn.leaky_relu(x, 0.1) * tf.nn.elu(x)
        return [tf.reduce_mean(x, [1, 2]) @ dense, tf.nn.softmax(tf.concat([x, -x], 3))]

    return compute


def written(path: Path, weights: str = "float32") -> Path:
    source = network()
    made = tf.lite.TFLiteConverter.from_concrete_functions([source.get_concrete_function()], tf.Module())
    made.optimizations = [] if weights == "float32" else [tf.lite.Optimize.DEFAULT]
    made.target_spec.supported_types = [tf.float16] if weights == "float16" else []
    path.write_bytes(made.convert())
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("lite") / "model.tflite")


def said(file: Path, whole: bool = True) -> str | None:
    return disagreement(read_checkpoint(file), SIZE, whole)


@pytest.mark.parametrize("weights", ["float16", "dynamic"])
def test_right_files_of_smaller_weights(weights: str, tmp_path: Path) -> None:
    assert said(written(tmp_path / "model.tflite", weights)) is None


def swapped(names: Any, one: str, other: str) -> Any:
    if isinstance(names, Mapping):
        return dict(zip(names, swapped(tuple(names.values()), one, other), strict=True))
    return tuple({one: other, other: one}.get(name, name) for name in names)


TABLES = {
    "an operator's number": (
        "OPERATOR_CODES",
        lambda: swapped(schema.OPERATOR_CODES, "GELU", "RELU_0_TO_1"),
        "GELU|RELU_0",
    ),
    "two operators": (
        "OPERATOR_CODES",
        lambda: swapped(schema.OPERATOR_CODES, "MAXIMUM", "MINIMUM"),
        "MINIMUM",
    ),
    "an activation": ("ACTIVATIONS", lambda: swapped(schema.ACTIVATIONS, "RELU", "RELU6"), "RELU"),
    "its place": (
        "ACTIVATION_FIELDS",
        lambda: {**schema.ACTIVATION_FIELDS, "CONV_2D": Field(4, "b")},
        "CONV_2D",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_mistake_in_a_table_is_refused(name: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, wrong, op = TABLES[name]
    assert said(file) is None
    monkeypatch.setattr(schema, table, wrong())
    found = said(file)
    assert found is not None and found.startswith("porter and TensorFlow Lite's interpreter disagree on '")
    assert any(f"({each}" in found for each in op.split("|"))


@pytest.mark.parametrize(("kind", "field"), [("i", 0), ("f", 0), ("?", 0)], ids=["axis", "slope", "kept"])
def test_an_option_that_is_read_wrongly_is_refused(
    kind: str, field: int, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An axis by one, a slope by 1 %, and a flag: both sides read them by `Operator.option`."""
    right = model.Operator.option

    def wrong(self: Any, given: Field) -> Any:
        value = right(self, given)
        if (given.place, given.kind) != (field, kind):
            return value
        return {"i": lambda: value - 1, "f": lambda: value * 1.01, "?": lambda: not value}[kind]()

    checkpoint = read_checkpoint(file)
    monkeypatch.setattr(model.Operator, "option", wrong)
    found = disagreement(checkpoint, SIZE, True)
    assert found is not None and "disagree on" in found


@pytest.mark.usefixtures("one_recipe")
def test_the_proof_refuses_it_and_says_what_is_held(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = porter.convert(file, to="torch", out=tmp_path / "right")
    assert made.verdict is not None
    assert made.verdict.held == ("the file's operators and tensors: held to TensorFlow Lite's interpreter",)
    with monkeypatch.context() as wrong:
        wrong.setattr(schema, "OPERATOR_CODES", swapped(schema.OPERATOR_CODES, "GELU", "SIGN"))
        with pytest.raises(Contradiction, match="porter and TensorFlow Lite's interpreter disagree"):
            porter.convert(file, to="torch", out=tmp_path / "wrong")
    monkeypatch.setattr("porter.frameworks.tflite.witness.find_spec", lambda name: None)
    made = porter.convert(file, to="torch", out=tmp_path / "without")
    said = (
        "the file's operators and tensors: by porter's reading only, because neither tensorflow nor "
        f"ai-edge-litert is installed ({install('tf')})"
    )
    assert made.verdict is not None and made.verdict.ok and made.verdict.held == (said,)
    assert said in made.warnings
    unheld = "agrees; not held to TensorFlow Lite's interpreter, which is not installed"
    assert made.port.record.check == unheld and not made.port.record.proved
    printed = [line for line in conversion(made) if line.startswith("  check ")]
    *types, layers = printed
    assert len(types) == 2 and all(f": {unheld}; " in line for line in types), printed
    assert "14 of 14 nodes" in layers
    assert "interpreter, which is not installed" in report(tmp_path / "without").path.read_text()


def test_outputs_that_porter_leaves_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = read_checkpoint(file).carried.output_names
    assert said(file) is None and len(names) == 2

    def shorter(data: bytes) -> Any:
        found = read_model(data)
        return replace(found, ends=found.ends[:1])

    monkeypatch.setattr("porter.formats.tflite.read.read_model", shorter)
    assert said(file) == f"{NAME} gives 2 outputs of the model, and porter reads 1"
    assert said(file, whole=False) is None


def test_what_porter_cannot_compute_from_the_interpreters_values(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("porter.frameworks.tflite.witness.IMAGE", "another input")
    found = said(file)
    assert found is not None and found.startswith("porter's engine cannot run the model from the values of ")


def test_what_a_cut_leaves_out_is_not_asked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An SSD ends in an operator that porter's engine lacks, before which porter advises to cut it."""
    (joined,) = (each for each in read_model(file.read_bytes()).operators if each.op == "CONCATENATION")
    monkeypatch.setattr(rows, "_ROWS", {op: row for op, row in rows._ROWS.items() if op != "SOFTMAX"})
    cut = read_checkpoint(file, joined.gives)
    assert disagreement(cut, SIZE, False) is None
    assert "no operator 'SOFTMAX'" in str(said(file))
    monkeypatch.setattr(schema, "OPERATOR_CODES", swapped(schema.OPERATOR_CODES, "MAXIMUM", "MINIMUM"))
    assert "MINIMUM" in str(disagreement(cut, SIZE, False)), "what is left is asked all the same"


def test_what_the_interpreter_does_not_run(file: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(file)
    broken = tmp_path / "model.tflite"
    broken.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(CannotRun, match="TensorFlow Lite's interpreter cannot read it"):
        disagreement(replace(checkpoint, path=broken), SIZE, True)


KERNELS: Mapping[str, tuple[Any, tuple[int, ...]]] = {
    "CONV_2D": (lambda x, kernel: tf.nn.conv2d(x, kernel, 1, "SAME"), (3, 3, 4, 6)),
    "DEPTHWISE_CONV_2D": (
        lambda x, kernel: tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME"),
        (3, 3, 4, 2),
    ),
    "FULLY_CONNECTED": (lambda x, kernel: tf.matmul(tf.reduce_mean(x, [1, 2]), kernel), (4, 6)),
    "TRANSPOSE_CONV": (
        lambda x, kernel: tf.nn.conv2d_transpose(x, kernel, (1, 18, 16, 6), 2, "SAME"),
        (3, 3, 6, 4),
    ),
}


@cache
def converted(op: str) -> bytes:
    """What TensorFlow's converter writes of one operator."""
    function, shape = KERNELS[op]
    kernel = tf.constant(np.random.default_rng(0).normal(0, 0.4, shape), tf.float32)
    source = tf.function(lambda x: function(x, kernel), [tf.TensorSpec((1, *SIZE, 4), tf.float32)])
    made = tf.lite.TFLiteConverter.from_concrete_functions([source.get_concrete_function()], tf.Module())
    return bytes(made.convert())


def with_whole_kernel(op: str, kind: str, zero: int, several: bool, path: Path) -> Path:
    """A model of one operator whose kernel's bytes are int8 around 0 plus `zero`, of the type that is stated,
    with one scale or one for each filter, as TensorFlow's converter has them.
    """
    file = theirs.ModelT.InitFromObj(theirs.Model.GetRootAs(converted(op)))
    (graph,), (operator,) = file.subgraphs, file.subgraphs[0].operators[-1:]
    tensor = graph.tensors[operator.inputs[1]]
    axis = 3 if op == "DEPTHWISE_CONV_2D" else 0
    held = np.frombuffer(bytes(file.buffers[tensor.buffer].data), np.float32).reshape(tensor.shape)
    others = tuple(place for place in range(held.ndim) if place != axis)
    scale = abs(held).max(others, keepdims=True) if several else abs(held).max(keepdims=True)
    stored = (np.round(held / (scale / 100)) + zero).astype(np.int64).astype(np.int8)
    tensor.type, tensor.quantization = getattr(theirs.TensorType, kind), theirs.QuantizationParametersT()
    tensor.quantization.scale = [float(each) / 100 for each in scale.ravel()]
    tensor.quantization.zeroPoint = [zero] * scale.size
    tensor.quantization.quantizedDimension = axis if several else 0
    file.buffers[tensor.buffer].data = np.frombuffer(stored.tobytes(), np.uint8)
    builder = flatbuffers.Builder(1024)
    builder.Finish(file.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


@pytest.mark.parametrize("zero", [0, 5])
@pytest.mark.parametrize(("kind", "several"), [("UINT8", False), ("UINT8", True), ("INT8", True)])
@pytest.mark.parametrize("op", KERNELS)
def test_kernels_of_whole_numbers_are_what_the_interpreter_takes_them_for(
    op: str, kind: str, several: bool, zero: int, tmp_path: Path
) -> None:
    """TensorFlow 1.11 to 1.13 stored int8 as UINT8 with a zero of 0, which the interpreter takes for int8. It
    looks at no zero, and takes of CONV_2D's UINT8 one scale only. The others have no such kernel.
    """
    file = with_whole_kernel(op, kind, zero, several, tmp_path / "model.tflite")
    if kind == "UINT8" and (op not in ("CONV_2D", "FULLY_CONNECTED") or (op == "CONV_2D" and several)):
        with pytest.raises(FileError, match=f"is of whole numbers, .*TensorFlow Lite's {op}"):
            read_checkpoint(file)
        return
    assert said(file) is None
    image = np.random.default_rng(1).normal(0, 1, (1, *SIZE, 4)).astype(np.float32)
    kernels = (
        tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )  # XNNPACK wants a zero of 0
    model = tf.lite.Interpreter(str(file), experimental_op_resolver_type=kernels)
    model.allocate_tensors()
    model.set_tensor(model.get_input_details()[0]["index"], image)
    model.invoke()
    wanted = np.moveaxis(model.get_tensor(model.get_output_details()[0]["index"]), -1, 1)
    checkpoint = read_checkpoint(file)
    tap = next(iter(checkpoint.carried.given))
    got = run_reference(build_file(checkpoint, "float64", SIZE), image.transpose(0, 3, 1, 2), {"y": tap})["y"]
    assert np.linalg.norm(got - wanted) < 0.02 * np.linalg.norm(wanted)


@pytest.mark.parametrize("op", ["CONV_2D", "FULLY_CONNECTED"])
def test_a_zero_that_the_interpreter_does_not_look_at_is_told(
    op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zero of 5 is a twentieth of the largest number: more than 8 bits make of the inputs."""
    file = with_whole_kernel(op, "INT8", 5, True, tmp_path / "model.tflite")
    assert said(file) is None
    monkeypatch.setattr(stored_tensors, "_HYBRID", {})
    assert f"({op}; relative L2 " in str(said(file))
