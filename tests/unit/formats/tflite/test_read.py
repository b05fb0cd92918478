"""TensorFlow Lite's models, from TensorFlow's converter: held to its interpreter in float32, to porter's
engine in float64.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import FileError, PorterError, UsageError
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from porter.formats.tensorflow import import_tensorflow
from porter.formats.tflite import schema
from porter.formats.tflite.flatbuffer import Field, root
from porter.formats.tflite.model import read_model
from porter.frameworks.numpy.engine import build_file
from porter.graph import Softmax
from tests.support.filegraph.values import values_of
from tests.support.random_models import keras_model, keras_model_of_any_size

SIZE = (17, 22)
tf = import_tensorflow()
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning"),
    pytest.mark.usefixtures("in_double"),
]


def network(sides: tuple[int | None, int | None] = SIZE) -> Any:
    """Every operator, as a function of TensorFlow's; of any size without those that count cells."""
    random, known = np.random.default_rng(0), None not in sides

    def constant(*shape: int) -> Any:
        return tf.constant(random.normal(0, 0.4, shape), tf.float32)

    kernels = {name: constant(*shape) for name, shape in SHAPES.items()}

    def compute(image: Any) -> list[Any]:
        x = tf.nn.relu6(tf.nn.conv2d(image * 1.5 - 0.25, kernels["conv"], 2, "SAME") + kernels["bias"])
        x = tf.nn.depthwise_conv2d(
            x, kernels["by_channel"], [1, 1, 1, 1], "SAME", dilations=[2, 2] if known else None
        )
        x = x * tf.nn.relu6(x + 3) / 6
        twice = tf.nn.conv2d(
            tf.pad(x, [[0, 0], [1, 2], [2, 1], [0, 0]]), kernels["grouped"], [1, 2, 2, 1], "VALID"
        )
        x = tf.nn.leaky_relu(tf.nn.max_pool2d(x, 3, 2, "SAME"), 0.1)
        x = tf.concat([x, tf.nn.avg_pool2d(tf.nn.elu(x), 3, 1, "SAME")], -1)
        low, high = tf.split(x, 2, -1)
        x = tf.maximum(low, tf.tanh(high)) - tf.minimum(low, high * 0.5)
        x = tf.sigmoid(tf.pad(x, [[0, 0], [1, 1], [2, 2], [0, 0]], "REFLECT")) + tf.clip_by_value(
            tf.pad(x, [[0, 0], [1, 1], [2, 2], [0, 0]], constant_values=0.3), -1.0, 1.0
        )
        ends = [tf.nn.relu(tf.reduce_mean(twice, [1, 2]) @ kernels["dense"]), tf.reduce_max(x, [1, 2])]
        if known:
            x = tf.image.resize(x, (2 * x.shape[1], 2 * x.shape[2]))
            x = tf.nn.conv2d_transpose(
                x, kernels["up"], (1, 2 * x.shape[1] - 1, 2 * x.shape[2], 4), 2, "SAME"
            )
            x = x[:, 1:-2, ::2]
            x = tf.image.resize(x, (2 * x.shape[1], x.shape[2]), "nearest")
            cells = tf.transpose(tf.reshape(x, (1, -1, 4)), [0, 2, 1])
            ends += [cells @ tf.transpose(cells, [0, 2, 1]), tf.nn.softmax(tf.reshape(x, (1, -1, 2)) * 0.1)]
            ends.append(tf.squeeze(tf.stack([x[:, 3:4, 3:4], x[:, 4:5, 4:5]], 1), [2, 3]))
        return [tf.identity(end, f"end{place}") for place, end in enumerate(ends)]

    return tf.function(compute, [tf.TensorSpec((1 if known else None, *sides, 3), tf.float32)])


SHAPES = {
    "conv": (3, 3, 3, 8),
    "bias": (8,),
    "by_channel": (3, 3, 8, 2),
    "grouped": (5, 3, 4, 40),
    "dense": (40, 7),
    "up": (3, 3, 4, 16),
}


def converted(source: Any, kind: str = "float32") -> bytes:
    lite = tf.lite.TFLiteConverter
    if hasattr(source, "layers"):
        made = lite.from_keras_model(source)
    else:
        made = lite.from_concrete_functions([source.get_concrete_function()], tf.Module())
    made.optimizations = [] if kind == "float32" else [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        made.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        made.representative_dataset = lambda: [
            [np.zeros((1, *SIZE, 3), np.float32)],
            [np.ones((1, *SIZE, 3), np.float32)],
        ]
        made.inference_input_type = made.inference_output_type = tf.int8
        made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    return bytes(made.convert())


def interpreted(data: bytes, image: Any) -> dict[str, Any]:
    """The values of all tensors by name, of one image N×H×W×C, without its delegates."""
    plain = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    model = tf.lite.Interpreter(
        model_content=data, experimental_preserve_all_tensors=True, experimental_op_resolver_type=plain
    )
    model.resize_tensor_input(model.get_input_details()[0]["index"], image.shape)
    model.allocate_tensors()
    model.set_tensor(model.get_input_details()[0]["index"], image)
    model.invoke()
    names = {each["index"]: each["name"] for each in model.get_tensor_details()}
    given = {place for each in model._get_ops_details() for place in each["outputs"]}
    return {names[place]: model.get_tensor(place) for place in given}


def compared(file: Path, size: tuple[int, int] = SIZE, of_logits: bool = False) -> int:
    """How many values of operators are what TensorFlow's interpreter computes, and what porter reads them
    as; `of_logits`, without the softmax, which turns their absolute errors into relative ones.
    """
    images = np.random.default_rng(1).uniform(-1, 1, (2, *size, 3)).astype(np.float32)
    checkpoint = read_checkpoint(file)
    graph = checkpoint.carried
    inner = {operator.inner for operator in read_model(graph.definition).operators}
    shown = [node for node in graph.nodes if node.tap and node.tap not in inner]
    taps = tuple(str(node.tap) for node in shown if not (of_logits and isinstance(node.op, Softmax)))
    batch = images.transpose(0, 3, 1, 2).astype(float)
    own, read = (
        build_file(checkpoint, "float64", size)(batch, taps),
        values_of(graph, checkpoint.tensors, batch),
    )
    for node in shown:
        if node.tap in own:
            apart = np.abs(own[node.tap] - read[node.name]).max()
            assert apart <= 1e-10 * np.abs(read[node.name]).max(), node.tap
    assert of_logits or {*graph.output_names} <= {*taps}
    for place, image in enumerate(images):
        wanted = interpreted(file.read_bytes(), image[None])
        for name in taps:
            found = own[name][place]
            found = found if found.ndim != 3 or name in graph.arrays else found.transpose(1, 2, 0)
            assert found.shape == wanted[name].shape[1:], name
            assert np.linalg.norm(found - wanted[name]) <= 1e-5 * np.linalg.norm(wanted[name]), name
    return len(taps)


def test_every_operator_is_what_tensorflow_computes(tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(converted(network(), "float16"))
    assert recognise(file).name == "tflite" and compared(file) > 30
    made = porter.convert(file, to="torch", out=tmp_path / "port")
    assert (
        made.verdict is not None
        and made.verdict.ok
        and made.verdict.proof.reference == "the file's own graph"
    )
    end = read_checkpoint(file).carried.output_names[1]
    assert read_checkpoint(file, [end]).carried.output_names == (end,)
    with pytest.raises(UsageError, match="has no value 'end'"):
        read_checkpoint(file, ["end"])


def test_numbers_and_places_are_those_of_tensorflows_schema() -> None:
    """Reader and engine both read a file by these tables, so the proof sees a mistake in them only where
    TensorFlow Lite's interpreter is installed.
    """
    theirs = importlib.import_module("tensorflow.lite.python.schema_py_generated")
    own = schema.OPERATOR_CODES
    assert own == {getattr(theirs.BuiltinOperator, name): name for name in own.values()}
    activations = schema.ACTIVATIONS | {0: "NONE"}
    assert activations == {
        getattr(theirs.ActivationFunctionType, name): name for name in activations.values()
    }
    assert {getattr(theirs.Padding, name): name for name in schema.PADDINGS.values()} == schema.PADDINGS
    short = {
        "AVERAGE_POOL_2D": "Pool2DOptions",
        "MAX_POOL_2D": "Pool2DOptions",
        "L2_NORMALIZATION": "L2NormOptions",
    }
    for name, field in schema.ACTIVATION_FIELDS.items():
        words = name.replace("CONV_2D", "CONV2_D").replace("_", " ").title().replace(" ", "")
        options = getattr(theirs, short.get(name, f"{words}Options"))
        stated = inspect.getsource(options.FusedActivationFunction)
        assert f"_tab.Offset({4 + 2 * field.place})" in stated, name


def test_boxes_of_four_axes_are_no_map(tmp_path: Path) -> None:
    """As a detector's heads give them. The proof took the second of its outputs for a map, and refused it."""
    kernel = tf.constant(np.random.default_rng(0).normal(0, 0.4, (3, 3, 3, 8)), tf.float32)

    @tf.function(input_signature=[tf.TensorSpec((1, 6, 5, 3), tf.float32)])
    def heads(image: Any) -> list[Any]:
        maps = tf.nn.conv2d(image, kernel, 1, "SAME")
        return [tf.nn.softmax(tf.reshape(maps, (1, 80, 3))), tf.reshape(maps, (1, 60, 1, 4))]

    file = tmp_path / "model.tflite"
    file.write_bytes(converted(heads))
    assert compared(file, (6, 5)) >= 3
    made = porter.convert(file, to="torch", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok


def test_a_model_of_any_size(tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(converted(network((None, None))))
    assert read_checkpoint(file).carried.size == (None, None) and compared(file, (19, 26)) > 15


def test_rarer_operators(tmp_path: Path) -> None:
    """Those that porter says by others, and those that it folds."""
    random, file = np.random.default_rng(0), tmp_path / "model.tflite"
    kernel, dilated = (tf.constant(random.normal(0, 0.4, (3, 3, taken, 8)), tf.float32) for taken in (3, 8))

    def compute(image: Any) -> list[Any]:
        x = tf.abs(tf.nn.conv2d(image, kernel, 1, "SAME"))
        apart = tf.space_to_batch(x, [2, 2], [[2, 3], [2, 2]])
        x = tf.batch_to_space(tf.nn.conv2d(apart, dilated, 1, "VALID"), [2, 2], [[0, 1], [0, 0]])
        x = tf.nn.space_to_depth(x[:, :16], 2)
        x = tf.math.l2_normalize(
            tf.gather(x, [*range(0, 32, 4), *range(1, 32, 4), *range(2, 32, 4), *range(3, 32, 4)], axis=-1),
            -1,
        )
        ends = [
            tf.reduce_min(x, [1, 2]),
            tf.gather(x, [5, 1, 2], axis=-1),
            tf.gather(x, 3, axis=2),
            tf.norm(x, axis=-1),
        ]
        ends += [tf.math.l2_normalize(tf.reverse(x, [-1]), [1, 2]), tf.where(x > 0, x, 0.5 * (tf.exp(x) - 1))]
        ends += [
            tf.where((x >= 0.1) & ~(tf.sin(x) < 0.5) | (tf.cos(x) <= 0.7), tf.round(x * 3), 0.25),
            tf.sign(x - 0.1) * x,
        ]
        ends += [x // 0.25, tf.math.floormod(x, -0.375), tf.reduce_prod(x[..., :3] + 0.5, [1, 3])]
        ends += [
            tf.cumsum(x, axis, exclusive, backwards)
            for axis, exclusive, backwards in ((1, False, False), (-1, True, False), (2, True, True))
        ]
        peak = tf.reduce_max(x, -1, keepdims=True)
        ends += [tf.cast(tf.equal(x, peak), tf.float32) * x, tf.where(tf.not_equal(x, peak), x, 0.5)]
        return [tf.identity(end, f"end{place}") for place, end in enumerate(ends)]

    file.write_bytes(converted(tf.function(compute, [tf.TensorSpec((None, *SIZE, 3), tf.float32)])))
    written = {operator.op for operator in read_model(file.read_bytes()).operators}
    assert {
        "ABS",
        "CUMSUM",
        "EQUAL",
        "FLOOR_DIV",
        "FLOOR_MOD",
        "NOT_EQUAL",
        "REDUCE_PROD",
        "GATHER",
        "L2_NORMALIZATION",
        "REDUCE_MIN",
        "REVERSE_V2",
        "RSQRT",
        "SIGN",
        "SPACE_TO_DEPTH",
        "SQRT",
    } <= written
    assert "BATCH_TO_SPACE_ND" in written and compared(file) > 10


def test_what_onnx2tf_writes_around_an_open_batch(tmp_path: Path) -> None:
    """Sizes that are compared with zero, zeros behind a batch and on a map, ones that a token is repeated by,
    and pads of float32's lowest number.
    """
    random, file = np.random.default_rng(0), tmp_path / "model.tflite"
    kernel, token = (
        tf.constant(random.normal(0, 0.4, shape), tf.float32) for shape in ((3, 3, 3, 8), (1, 1, 8))
    )
    gamma, beta = (tf.constant(random.uniform(0.5, 1, 8), tf.float32) for _ in range(2))

    def compute(image: Any) -> list[Any]:
        sizes, least = tf.shape(image), tf.constant([1, 0, 0, 0])
        behind = tf.concat([image, tf.fill(sizes * [0, 1, 1, 1] + least, 0.0)], 0)
        ahead = tf.reshape(tf.slice(behind, [0, 0, 0, 0], tf.maximum(sizes, least)), (-1, *SIZE, 3))
        wide = tf.pad(ahead, [[0, 0], [1, 1], [2, 1], [0, 0]])
        x = tf.nn.conv2d(wide + tf.fill(sizes + tf.constant([0, 2, 3, 0]), 0.0), kernel, 1, "VALID")
        lowest = float(np.finfo(np.float32).min)
        pooled = tf.nn.max_pool2d(
            tf.pad(x, [[0, 0], [1, 1], [1, 0], [0, 0]], constant_values=lowest), 3, 2, "VALID"
        )
        images = sizes[:1]
        rows = tf.where(tf.equal(images, 0), tf.constant([3]), images)
        tokens = tf.reshape(pooled, tf.concat([rows, tf.constant([-1, 8])], 0))
        apart = tokens - tf.reduce_mean(tokens, -1, keepdims=True)
        normal = apart * tf.math.rsqrt(tf.reduce_mean(apart * apart, -1, keepdims=True) + 1e-5) * gamma + beta
        tokens = tf.concat([token * tf.fill(tf.concat([images, [1, 1]], 0), 1.0), normal], 1)
        return [tf.identity(end, f"end{place}") for place, end in enumerate((pooled, tf.nn.softmax(tokens)))]

    file.write_bytes(converted(tf.function(compute, [tf.TensorSpec((None, *SIZE, 3), tf.float32)])))
    written = {operator.op for operator in read_model(file.read_bytes()).operators}
    assert {"FILL", "EQUAL", "MAXIMUM", "PADV2"} <= written and written & {"SELECT", "SELECT_V2"}
    assert compared(file) >= 5
    made = porter.convert(file, to="torch", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok


def test_a_scalar_of_the_size_is_stored_with_a_shape_of_no_numbers(tmp_path: Path) -> None:
    def compute(image: Any) -> Any:
        rows = tf.reshape(tf.shape(image)[1:2], tf.constant([], tf.int32))
        return tf.nn.relu(image) * tf.cast(rows, tf.float32)

    file = tmp_path / "model.tflite"
    file.write_bytes(converted(tf.function(compute, [tf.TensorSpec((None, None, None, 3), tf.float32)])))
    made = porter.convert(file, to="torch", input_size="17x22", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok
    assert made.port.record.input.size == (17, 22), "its rows are in the port"


def test_8_bit_weights_are_real_numbers_and_a_graph_of_whole_numbers_is_refused(tmp_path: Path) -> None:
    """The numbers are those that the file's scales say, of which TensorFlow's interpreter has the same."""
    file, graph = tmp_path / "model.tflite", network()
    file.write_bytes(data := converted(graph, "dynamic"))
    checkpoint, model = read_checkpoint(file), tf.lite.Interpreter(model_content=data)
    details = {each["name"]: each for each in model.get_tensor_details() if each["dtype"] == np.int8}
    assert details and "8-bit weights" in checkpoint.notes[0]
    for name, stated in details.items():
        of, whole = stated["quantization_parameters"], model.get_tensor(stated["index"]).astype(float)
        along = (
            [-1 if place == of["quantized_dimension"] else 1 for place in range(whole.ndim)]
            if len(of["scales"]) > 1
            else -1
        )
        wanted = (whole - of["zero_points"].reshape(along)) * of["scales"].astype(float).reshape(along)
        np.testing.assert_array_equal(checkpoint.tensors[name], wanted.astype(np.float32))
    file.write_bytes(converted(graph, "int8"))
    with pytest.raises(FileError, match=re.escape("a fully quantised graph computes in whole numbers: ")):
        read_checkpoint(file)


@pytest.mark.parametrize(
    ("option", "field", "number"),
    [
        ("activation", schema.ACTIVATION_FIELDS["CONV_2D"], -1),
        ("activation", schema.ACTIVATION_FIELDS["CONV_2D"], 6),
        ("padding", schema.PADDING, -1),
        ("padding", schema.PADDING, 2),
    ],
)
def test_a_number_that_the_schema_lacks_is_refused(
    option: str, field: Field, number: int, tmp_path: Path
) -> None:
    kernel = tf.ones((3, 3, 3, 4))

    def compute(image: Any) -> Any:
        return tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "VALID"))

    source = tf.function(compute, [tf.TensorSpec((1, *SIZE, 3), tf.float32)])
    file, data = tmp_path / "model.tflite", bytearray(converted(source))
    graph = root(bytes(data)).tables(schema.MODEL_GRAPHS, 1)[0]
    options = graph.tables(schema.GRAPH_OPERATORS, 1)[0].table(schema.OPERATOR_OPTIONS)
    assert options is not None
    place = options._locate(field.place)
    assert place is not None and data[place] == 1, "RELU, or VALID"
    data[place : place + 1] = number.to_bytes(1, signed=True)
    file.write_bytes(data)
    with pytest.raises(PorterError, match=f"CONV_2D states {option} {number}, which"):
        porter.convert(file, to="torch", out=tmp_path / "port")


def test_sparse_weights_are_filled_with_zeros(tmp_path: Path) -> None:
    """The converter stores blocks of 1x4 of a product's kernel, and single numbers of others, where most are
    zeros.
    """
    random, file = np.random.default_rng(0), tmp_path / "model.tflite"
    kept = np.repeat(random.random((16, 16)) < 0.15, 4, 0)
    blocks = tf.constant(random.normal(0, 1, (64, 16)) * kept, tf.float32)
    single = tf.constant(
        random.normal(0, 1, (1, 1, 3, 64)) * (random.random((1, 1, 3, 64)) < 0.3), tf.float32
    )

    def compute(image: Any) -> Any:
        return tf.reduce_mean(tf.nn.conv2d(image, single, 1, "SAME"), [1, 2]) @ blocks

    source = tf.function(compute, [tf.TensorSpec((1, *SIZE, 3), tf.float32)])
    made = tf.lite.TFLiteConverter.from_concrete_functions([source.get_concrete_function()], tf.Module())
    made.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY]
    file.write_bytes(data := made.convert())
    details = tf.lite.Interpreter(model_content=data).get_tensor_details()
    assert sum(bool(each["sparsity_parameters"]) for each in details) == 2
    found = {array.shape: array for array in read_checkpoint(file).tensors.values()}
    np.testing.assert_array_equal(found[16, 64], blocks.numpy().T)
    np.testing.assert_array_equal(found[64, 1, 1, 3], single.numpy().transpose(3, 0, 1, 2))
    assert compared(file) == 3


@pytest.mark.full
@pytest.mark.parametrize("kind", ["float32", "float16", "dynamic"])
@pytest.mark.parametrize(
    "name", ["MobileNet", "MobileNetV2", "MobileNetV3Small", "ResNet50V2", "EfficientNetB0", "DenseNet121"]
)
def test_a_network_of_keras(name: str, kind: str, tmp_path: Path) -> None:
    model = keras_model(name, 65 if name != "MobileNet" else 64)
    for place, each in enumerate((model, keras_model_of_any_size(model))):
        file = tmp_path / f"model{place}.tflite"
        file.write_bytes(converted(each, kind))
        size = (67, 75) if place else model.input_shape[1:3]
        if kind != "dynamic":  # there the interpreter rounds what meets the weights
            compared(file, size, of_logits=True)
        for to in ("torch", "onnx", "tf"):
            out = tmp_path / f"{to}{place}"
            made = porter.convert(file, to=to, input_size=f"{size[0]}x{size[1]}", out=out)
            assert made.verdict is not None and made.verdict.ok, (to, made.verdict)
