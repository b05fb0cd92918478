"""Small right inputs of every reader, by the makers of the tests. They are few bytes, so that damage meets
what matters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzzing.tiny import COMPUTED, STATE, VARIABLES

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@dataclass(frozen=True)
class Seed:
    """An input: the files of a folder by their paths in it.

    Attributes:
        named: what porter is given: the path of a file, a checkpoint's prefix, or "." for the folder.
    """

    files: Mapping[str, bytes]
    named: str

    def write(self, folder: Path) -> Path:
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder / self.named


def seeds_of(reader: str, folder: Path) -> list[Seed]:
    """The seeds of a reader, made in an empty folder."""
    found = []
    for number, make in enumerate(SEEDS[reader]):
        place = folder / str(number)
        place.mkdir(parents=True)
        found.append(seed_in(place, make(place)))
    return found


def seed_in(folder: Path, named: Path) -> Seed:
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return Seed(files, str(named.relative_to(folder)))


def _array(*shape: int) -> Any:
    return np.random.default_rng(shape).normal(0, 0.3, shape).astype(np.float32)


_CAFFE = """
input: "data" input_shape { dim: [1, 3, 8, 8] }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
    convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" batch_norm_param { eps: 0.001 } }
layer { name: "pool" type: "Pooling" bottom: "conv1" top: "pool"
    pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "sum" type: "Eltwise" bottom: "pool" bottom: "pool" top: "sum"
    eltwise_param { coeff: 1 coeff: -0.5 } }
layer { name: "fc" type: "InnerProduct" bottom: "sum" top: "fc" inner_product_param { num_output: 3 } }
"""
_CAFFE_MORE = """
layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 1 dim: 2 dim: 6 dim: 6 } } }
layer { name: "up" type: "Deconvolution" bottom: "in" top: "up"
    convolution_param { num_output: 2 kernel_size: 2 stride: 2 } }
layer { name: "crop" type: "Crop" bottom: "up" bottom: "in" top: "crop" crop_param { axis: 2 offset: 1 } }
layer { name: "cat" type: "Concat" bottom: "crop" bottom: "in" top: "cat" }
layer { name: "lrn" type: "LRN" bottom: "cat" top: "lrn" lrn_param { local_size: 3 alpha: 0.5 } }
layer { name: "slice" type: "Slice" bottom: "lrn" top: "a" top: "b" slice_param { axis: 1 slice_point: 1 } }
layer { name: "pow" type: "Power" bottom: "b" top: "pow" power_param { scale: 2 shift: -0.25 } }
layer { name: "shape" type: "Reshape" bottom: "pow" top: "shape" reshape_param { shape { dim: 0 dim: -1 } } }
"""


def _caffe(net: str, legacy: bool = False, of_weights: bool = False) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.support.caffe_files import write_caffe

        shapes = {
            "conv1": ((4, 3, 3, 3), (4,)),
            "bn1": ((4,), (4,), (1,)),
            "fc": ((3, 64), (3,)),
            "up": ((2, 2, 2, 2), (2,)),
        }
        blobs = {
            name: [abs(_array(*shape)) for shape in each]
            for name, each in shapes.items()
            if f'"{name}"' in net
        }
        file = write_caffe(folder / "model", net, blobs, legacy)
        return file.with_suffix(".caffemodel") if of_weights else file

    return make


_NORM = ("gamma", "beta", "moving_mean", "moving_var")


def _mxnet(version: int, attrs: str, of_arrays: bool = False) -> Callable[[Path], Path]:
    lines: list[Any] = [
        (
            "conv",
            "Convolution",
            {"kernel": (3, 3), "num_filter": 4, "pad": (1, 1)},
            ["data", "conv_weight", "conv_bias"],
        ),
        (
            "norm",
            "BatchNorm",
            {"eps": 2e-5},
            ["conv", *(f"norm_{role}" for role in _NORM[: 4 if version else 2])],
        ),
        (
            "most",
            "Pooling",
            {"kernel": (3, 3), "stride": (2, 2), "pool_type": "max", "pooling_convention": "full"},
            ["norm"],
        ),
        ("parts", "SliceChannel", {"num_outputs": 2}, ["most"]),
        ("both", "Concat", {"dim": 1, "num_args": 2}, ["parts:1", "parts"]),
        ("mean", "Pooling", {"kernel": (1, 1), "global_pool": True, "pool_type": "avg"}, ["both"]),
        ("fc", "FullyConnected", {"num_hidden": 3}, ["mean", "fc_weight", "fc_bias"]),
        ("softmax", "SoftmaxOutput", {}, ["fc", "softmax_label"]),
    ]
    shapes = {"conv_weight": (4, 3, 3, 3), "conv_bias": (4,), "fc_weight": (3, 4), "fc_bias": (3,)}

    def make(folder: Path) -> Path:
        from tests.support.mxnet_files import write_mxnet

        arrays = {
            name: abs(_array(*shape))
            for name, shape in {**shapes, **{f"norm_{role}": (4,) for role in _NORM}}.items()
        }
        file = write_mxnet(folder / "model", lines, arrays, version, attrs)
        return folder / "model-0000.params" if of_arrays else file

    return make


def _torch7(width: int, more: bool = False) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.support.torch7_files import Module, Sizes, write_torch7

        window = {"kW": 3, "kH": 3, "dW": 1, "dH": 1, "padW": 1, "padH": 1}
        halved = {**window, "dW": 2, "dH": 2}
        conv = Module(
            "SpatialConvolution",
            nInputPlane=3,
            nOutputPlane=4,
            **halved,
            weight=_array(4, 3, 3, 3),
            bias=_array(4),
        )
        norm = Module(
            "SpatialBatchNormalization",
            eps=1e-3,
            running_mean=_array(4),
            running_var=np.abs(_array(4)),
            nDim=4,
        )
        table = Module(
            "ConcatTable", Module("Identity"), Module("SpatialMaxPooling", **window, ceil_mode=True)
        )
        view = Module("View", size=Sizes([-1]), numElements=1, numInputDims=3)
        head = [view, Module("Linear", weight=_array(3, 4 * 16), bias=_array(3)), Module("LogSoftMax")]
        turned = Module(
            "Concat",
            Module("ReLU"),
            Module("Padding", dim=1, pad=2, nInputDim=3, value=0, index=1),
            dimension=2,
        )
        ends = [turned, Module("Mean", dimension=2)] if more else head
        return write_torch7(
            folder / "model.t7", Module("Sequential", conv, norm, table, Module("CAddTable"), *ends), width
        )

    return make


def _tflite(kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from porter.formats.tensorflow import import_tensorflow

        tf = import_tensorflow()
        kernel, matrix = tf.constant(_array(3, 3, 3, 4)), tf.constant(_array(8, 3))

        def compute(image: Any) -> Any:
            x = tf.nn.relu6(tf.nn.conv2d(image, kernel, 2, "SAME"))
            x = tf.concat(
                [x, tf.nn.max_pool2d(tf.pad(x, [[0, 0], [1, 1], [0, 2], [0, 0]]), 3, 1, "VALID")[:, :4, :4]],
                -1,
            )
            return tf.nn.softmax(tf.reduce_mean(x, [1, 2]) @ matrix)

        source = tf.function(compute, [tf.TensorSpec((1, 8, 8, 3), tf.float32)])
        made = tf.lite.TFLiteConverter.from_concrete_functions([source.get_concrete_function()], tf.Module())
        made.optimizations = [] if kind == "float32" else [tf.lite.Optimize.DEFAULT]
        if kind == "float16":
            made.target_spec.supported_types = [tf.float16]
        (folder / "model.tflite").write_bytes(made.convert())
        return folder / "model.tflite"

    return make


def _tfjs_graph(folder: Path) -> Path:
    from tests.unit.formats.tfjs.test_read import node, write

    arrays: dict[str, Any] = {
        "k": _array(3, 3, 3, 4),
        "b": _array(4),
        "w": _array(4, 3),
        "axes": np.array([1, 2], np.int32),
    }
    sides = {"dim": [{"size": str(size)} for size in (-1, 8, 8, 3)]}
    window: dict[str, Any] = {
        "padding": "SAME",
        "data_format": "NHWC",
        "dilations": [1, 1, 1, 1],
        "strides": [1, 2, 2, 1],
    }
    nodes = [
        node("image", "Placeholder", dtype="DT_FLOAT", shape=sides),
        *(node(name, "Const", dtype="DT_INT32" if name == "axes" else "DT_FLOAT") for name in arrays),
        node(
            "first", "_FusedConv2D", "image", "k", "b", fused_ops=["BiasAdd", "Relu6"], num_args=1, **window
        ),
        node("mean", "Mean", "first", "axes", Tidx="DT_INT32", keep_dims=False),
        node("head", "MatMul", "mean", "w", transpose_a=False, transpose_b=False),
    ]
    return write(folder, {"node": nodes, "versions": {"producer": 1}}, arrays, "uint8")


def _tfjs_layers(folder: Path) -> Path:
    from tests.unit.formats.tfjs.test_read import write

    model = _keras_model()
    stated = {"model_config": json.loads(model.to_json()), "keras_version": "3.0", "backend": "tensorflow"}
    return write(folder, stated, {weight.path: np.asarray(weight) for weight in model.weights}, "float16")


def _keras_model() -> Any:
    from porter.frameworks.tf.runtime import import_keras

    keras = import_keras()
    layers = keras.layers
    image = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu", name="conv1")(image)
    x = layers.add([layers.BatchNormalization(name="bn1")(x), x])
    x = layers.GlobalAveragePooling2D()(layers.DepthwiseConv2D(3, name="deep")(x))
    return keras.Model(image, layers.Dense(3, name="fc")(x))


def _keras_layers(folder: Path) -> Path:
    """Layers of rows, of other axes, with channels first, of other layers, and one that is called twice."""
    from porter.frameworks.tf.runtime import import_keras

    keras = import_keras()
    layers, image = keras.layers, keras.Input((6, 6, 3))
    conv = layers.Conv2D(3, 1)
    x = layers.PReLU()(layers.LayerNormalization(axis=1)(layers.Subtract()([conv(image), conv(conv(image))])))
    x = layers.MaxPooling2D(2, data_format="channels_first")(
        layers.SpectralNormalization(layers.Conv2D(4, 2))(x)
    )
    x = layers.AdaptiveAveragePooling2D((2, 1))(layers.Resizing(4, 3, crop_to_aspect_ratio=True)(x))
    x = layers.Conv1D(3, 2, padding="causal")(layers.Reshape((-1, 2))(x))
    keras.Model(image, layers.UnitNormalization(axis=[1, 2])(x)).save(folder / "model.keras")
    return folder / "model.keras"


def _keras(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        model = _keras_model()
        model.save_weights(path) if name.endswith(".weights.h5") else model.save(path)
        return path

    return make


def _keras_legacy(folder: Path) -> Path:
    import h5py

    with h5py.File(folder / "model.h5", "w") as file:
        layers = [b"conv1", b"bn1", b"fc"]
        file.attrs["layer_names"] = np.array(layers)
        for layer in layers:
            own = [name for name in VARIABLES if name.startswith(f"{layer.decode()}/")]
            file.create_group(layer).attrs["weight_names"] = np.array([f"{name}:0".encode() for name in own])
            for name in own:
                shape = VARIABLES[name]
                packing = (
                    {"chunks": shape, "compression": "gzip", "fletcher32": True} if layer == b"conv1" else {}
                )
                file[layer].create_dataset(f"{name}:0", data=abs(_array(*shape)), **packing)
    return folder / "model.h5"


def _safetensors(folder: Path) -> Path:
    from safetensors.numpy import save_file

    arrays = {name: abs(_array(*shape)) for name, shape in STATE.items()}
    arrays["fc.bias"] = arrays["fc.bias"].astype(np.float16)
    save_file(arrays, folder / "model.safetensors", {"format": "pt"})
    return folder / "model.safetensors"


def _sharded(folder: Path) -> Path:
    from safetensors.numpy import save_file

    held = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(STATE)}
    for shard in set(held.values()):
        save_file(
            {name: _array(*STATE[name]) for name in held if held[name] == shard},
            folder / shard,
            {"format": "pt"},
        )
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": held}))
    return index


def _torch(zipped: bool, whole: bool = False) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import torch

        shapes = COMPUTED if whole else STATE
        state: Any = {name: torch.from_numpy(abs(_array(*shape))) for name, shape in shapes.items()}
        dense = "fc.weight_orig" if whole else "fc.weight"
        state[dense] = state[dense].t().contiguous().t()
        wrapped = {
            "epoch": 3,
            "state_dict": state,
            "args": {"lr": 0.1},
            "optimizer": [torch.ones(2), None, (1, "a")],
        }
        torch.save(wrapped if whole else state, folder / "model.pth", _use_new_zipfile_serialization=zipped)
        return folder / "model.pth"

    return make


def _msgpack(folder: Path) -> Path:
    """As flax.serialization writes a training state."""
    import msgpack

    def array(value: Any, code: int = 1) -> Any:
        return msgpack.ExtType(code, msgpack.packb((value.shape, value.dtype.name, value.tobytes())))

    tree: dict[str, Any] = {name.split("/")[0]: {} for name in VARIABLES}
    for name, shape in VARIABLES.items():
        tree[name.split("/")[0]][name.split("/")[1]] = array(abs(_array(*shape)))
    halves = {str(number): array(half) for number, half in enumerate(np.split(_array(8), 2))}
    chunked = {"__msgpack_chunked_array__": True, "shape": {"0": 2, "1": 4}, "chunks": halves}
    state = {
        "step": array(np.int32(3), 3),
        "params": {**tree, "chunked": chunked, "rest": [1.5, None]},
        "opt_state": {"0": {}},
    }
    (folder / "model.msgpack").write_bytes(msgpack.packb(state, strict_types=True))
    return folder / "model.msgpack"


def _orbax(driver: str, ocdbt: bool, older: bool = False) -> Callable[[Path], Path]:
    """As orbax writes the state of a module of nnx, by the library that writes for it; `older` as it wrote
    the tree before it had _METADATA.
    """

    def make(folder: Path) -> Path:
        import tensorstore

        store = (
            {"driver": "ocdbt", "base": f"file://{folder}/"}
            if ocdbt
            else {"driver": "file", "path": f"{folder}/"}
        )
        tree = {}
        for name, shape in VARIABLES.items():
            array, keys = abs(_array(*shape)), (*name.split("/"), "value")
            place = {**store, "path": f"{store.get('path', '')}{'.'.join(keys)}/"}
            spec = {"driver": driver, "kvstore": place}
            tensorstore.open(spec, create=True, dtype=array.dtype, shape=shape).result().write(array).result()
            value = {"value_type": "jax.Array", "skip_deserialize": False, "write_shape": shape}
            tree[str(keys)] = {
                "key_metadata": [{"key": key, "key_type": 2} for key in keys],
                "value_metadata": value,
            }
        if older:
            import msgpack

            named = {name: {"value": f"PLACEHOLDER://{name.replace('/', '.')}.value"} for name in VARIABLES}
            (folder / "checkpoint").write_bytes(msgpack.packb(named))
            return folder
        stated = {"tree_metadata": tree, "use_ocdbt": ocdbt, "use_zarr3": driver == "zarr3"}
        (folder / "_METADATA").write_text(json.dumps(stated))
        return folder

    return make


def _npz(folder: Path) -> Path:
    np.savez(folder / "model.npz", **{name: abs(_array(*shape)) for name, shape in VARIABLES.items()})
    return folder / "model.npz"


def _npz_of_objects(folder: Path) -> Path:
    values = np.empty(len(VARIABLES), object)
    values[:] = [abs(_array(*shape)) for shape in VARIABLES.values()]
    np.savez_compressed(
        folder / "model.npz", names=np.array([f"{name}:0" for name in VARIABLES]), values=values
    )
    return folder / "model.npz"


def _pt2(free: bool, decomposed: bool = False) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import torch
        from torch import nn

        from tests.support.formats.torch_export.exports import export

        torch.manual_seed(0)
        stack = [
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(1),
        ]
        return export(
            nn.Sequential(*stack, nn.Flatten(), nn.Linear(4, 3)).eval(),
            torch.randn(2, 3, 8, 8),
            folder,
            free,
            decomposed,
        )[0]

    return make


def _onnx(case: str, opset: int = 20) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.unit.formats.onnx.test_read import CASES, model, written

        return written(model(CASES[case], opset), folder)

    return make


def _onnx_beside(folder: Path) -> Path:
    import onnx

    from tests.unit.formats.onnx.test_read import model

    onnx.save(
        model("y = Conv (x, k1, b4)"),
        folder / "m.onnx",
        save_as_external_data=True,
        location="m.data",
        size_threshold=0,
    )
    return folder / "m.onnx"


def _frozen(folder: Path) -> Path:
    from tests.support.formats.tf_graph.file_graphs import frozen, tensorflow, variable

    tf = tensorflow()

    def compute(x: Any) -> Any:
        x = tf.nn.relu6(
            tf.nn.bias_add(tf.nn.conv2d(x, variable("k", 3, 3, 3, 4), 2, "SAME"), variable("b", 4))
        )
        return tf.nn.softmax(
            tf.matmul(tf.reduce_mean(tf.nn.max_pool2d(x, 3, 2, "VALID"), [1, 2]), variable("w", 4, 3))
        )

    frozen(folder / "model.pb", compute)
    return folder / "model.pb"


def _atrous(folder: Path) -> Path:
    from tests.support.formats.tf_graph.file_graphs import frozen, tensorflow, variable

    def compute(x: Any) -> Any:
        convolved = tensorflow().compat.v1.nn.with_space_to_batch(
            x,
            [2, 2],
            "SAME",
            lambda each, *_: tensorflow().nn.conv2d(each, variable("k", 3, 3, 3, 4), 1, "VALID"),
            filter_shape=[3, 3],
        )
        return tensorflow().nn.relu(convolved)

    frozen(folder / "atrous.pb", compute, (None, None))
    return folder / "atrous.pb"


def _saved_model(folder: Path) -> Path:
    _keras_model().export(folder / "saved", verbose=False)
    return folder / "saved"


def _checkpoint_of_a_network(folder: Path) -> Path:
    from tests.support.slim_files import write_checkpoint

    return write_checkpoint(
        folder / "model.ckpt", {name: abs(_array(*shape)) for name, shape in VARIABLES.items()}
    )


def _checkpoint(version: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.unit.formats.tf_checkpoint.test_read import save

        save(folder / "model.ckpt", version)
        (folder / "checkpoint").unlink()
        return folder / "model.ckpt"

    return make


def _settings(of_timm: bool) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        timm = {
            "input_size": [3, 96, 96],
            "interpolation": "bicubic",
            "crop_pct": 0.9,
            "mean": [0.5, 0.4, 0.3],
            "std": [0.2, 0.2, 0.3],
        }
        processor = {
            "do_resize": True,
            "size": {"shortest_edge": 8},
            "resample": 2,
            "do_center_crop": True,
            "crop_size": {"height": 8, "width": 8},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [0.5, 0.4, 0.3],
            "image_std": [0.2] * 3,
        }
        config = (
            {"pretrained_cfg": timm, "label_names": ["a", "b"]}
            if of_timm
            else {"id2label": {"0": "a", "1": "b"}}
        )
        (folder / "config.json").write_text(json.dumps(config))
        if not of_timm:
            (folder / "preprocessor_config.json").write_text(json.dumps(processor))
        (folder / "stated").write_text(
            "resize=squash,size=96,interpolation=tf_bilinear,divide=127.5,mean=1" if of_timm else "0 a\n1 b\n"
        )
        return folder / "stated"

    return make


def _recipe(folder: Path) -> Path:
    from tests.support.recipe.recipes import VALID

    (folder / "tiny.yaml").write_text(VALID)
    return folder / "tiny.yaml"


def _port(destination: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import porter

        (folder / "source").mkdir()
        source = _caffe(_CAFFE)(folder / "source")
        porter.convert(source, to=destination, out=folder / "port", check=False)
        for file in (folder / "source").iterdir():
            file.unlink()
        return folder / "port"

    return make


def _parquet(folder: Path) -> Path:
    from tests.support.data.layouts.making import table

    return table(
        folder / "data" / "validation.parquet", [("a.jpg", 1), ("b.jpg", 2)], ["tench", "goldfish", "shark"]
    ).parent


def _tar(folder: Path) -> Path:
    from tests.support.data.layouts.making import shard

    return shard(
        folder / "photos.tar",
        {name: {"jpg": _jpeg(), "cls": b"5", "json": b'{"a": 1}'} for name in ("a", "b")},
    )


def _tfrecord(folder: Path) -> Path:
    """A record as build_imagenet_data.py writes them, in protobuf's bytes."""
    import struct

    from porter.files.crc32c import masked_crc32c
    from tests.support.caffe_files import _field

    def feature(key: str, content: bytes) -> bytes:
        return _field(1, _field(1, key.encode()) + _field(2, content))

    photo, label = _field(1, _field(1, _jpeg())), _field(3, _field(1, b"\x05"))
    record = _field(1, feature("image/encoded", photo) + feature("image/class/label", label))
    length = struct.pack("<Q", len(record))
    framed = (
        length + struct.pack("<I", masked_crc32c(length)) + record + struct.pack("<I", masked_crc32c(record))
    )
    (folder / "validation-00000-of-00001").write_bytes(framed)
    return folder / "validation-00000-of-00001"


def _jpeg() -> bytes:
    from tests.support.photo_files import encoded, picture

    return encoded(picture(0).resize((9, 8)))


def _photo(kind: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.support.photo_files import encoded, picture

        (folder / f"a.{kind.lower()}").write_bytes(encoded(picture(0).resize((9, 8)), kind))
        return folder / f"a.{kind.lower()}"

    return make


SEEDS: Mapping[str, Sequence[Callable[[Path], Path]]] = {
    "caffe": (_caffe(_CAFFE), _caffe(_CAFFE_MORE, legacy=True), _caffe(_CAFFE, of_weights=True)),
    "mxnet": (_mxnet(2, "attrs"), _mxnet(0, "param"), _mxnet(1, "attr", of_arrays=True)),
    "torch7": (_torch7(8), _torch7(4, more=True)),
    "tflite": (_tflite("float32"), _tflite("float16"), _tflite("dynamic")),
    "tfjs": (_tfjs_graph, _tfjs_layers),
    "onnx": (
        _onnx("head"),
        _onnx("conv"),
        _onnx("resized"),
        _onnx("squeeze and excite"),
        _onnx("sizes at run time"),
        _onnx("a branch by sizes"),
        _onnx_beside,
    ),
    "torch_export": (_pt2(False), _pt2(True), _pt2(True, True)),
    "msgpack": (_msgpack,),
    "npz": (_npz, _npz_of_objects),
    "orbax": (
        _orbax("zarr", True),
        _orbax("zarr3", True),
        _orbax("zarr", False),
        _orbax("zarr", False, older=True),
    ),
    "safetensors": (_safetensors,),
    "sharded": (_sharded,),
    "torch": (_torch(True), _torch(True, True), _torch(False), _torch(False, True)),
    "keras-h5": (_keras("model.h5"), _keras_legacy, _keras("model.weights.h5")),
    "keras": (_keras("model.keras"), _keras_layers),
    "tf_graph": (_frozen, _atrous),
    "saved-model": (_saved_model,),
    "tf_checkpoint": (_checkpoint_of_a_network, _checkpoint(2), _checkpoint(1)),
    "recipe": (_recipe,),
    "settings": (_settings(True), _settings(False)),
    "port": (_port("torch"), _port("onnx")),
    "parquet": (_parquet,),
    "tar": (_tar,),
    "tfrecord": (_tfrecord,),
    "photo": tuple(map(_photo, ("JPEG", "PNG", "GIF", "WEBP", "BMP"))),
}
"""By the reader: a folder of porter/formats, or what it reads besides."""
