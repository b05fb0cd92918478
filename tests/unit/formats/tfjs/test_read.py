"""TensorFlow.js's models: a layers model that it wrote, graph models as its converter writes them; under
`full` what node gives.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import porter
from porter.base.errors import FileError
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from tests.support.arrays import Array
from tests.support.checkout import ROOT

HERE = Path(__file__).parent
MODULES = Path(os.environ.get("PORTER_TFJS_MODULES", ROOT / "build/tfjs/node_modules"))
SIZE = (33, 38)


def layers_model(folder: Path, kind: str = "float32") -> Path:
    """The topology that TensorFlow.js wrote (layers.js), with other weights."""
    stated = json.loads((HERE / "layers.json").read_text())
    random = np.random.default_rng(0)
    arrays = {}
    for weight in stated["weightsManifest"][0]["weights"]:
        array = random.normal(0, 0.3, weight["shape"]).astype(np.float32)
        arrays[weight["name"]] = np.abs(array) + 0.5 if "variance" in weight["name"] else array
    return write(folder, stated["modelTopology"], arrays, kind)


def write(
    folder: Path, topology: Any, arrays: dict[str, Any], kind: str = "float32", shards: int = 2
) -> Path:
    """`kind`: of the real numbers."""
    weights, data = [], b""
    for name, array in arrays.items():
        weight: dict[str, Any] = {"name": name, "shape": array.shape, "dtype": str(array.dtype)}
        if array.dtype == np.float32 and kind == "float16":
            weight["quantization"], array = (
                {"dtype": kind, "original_dtype": "float32"},
                array.astype(np.float16),
            )
        elif array.dtype == np.float32 and kind.startswith("uint"):
            least, most = float(array.min()), float(np.iinfo(kind).max)
            scale = (float(array.max()) - least) / most or 1.0
            weight["quantization"] = {
                "dtype": kind,
                "original_dtype": "float32",
                "min": least,
                "scale": scale,
            }
            array = np.round((array - least) / scale).astype(kind)
        weights.append(weight)
        data += array.tobytes()
    paths = [f"group1-shard{place + 1}of{shards}.bin" for place in range(shards)]
    folder.mkdir(exist_ok=True)
    for place, path in enumerate(paths):
        part = -(-len(data) // shards)
        (folder / path).write_bytes(data[place * part : (place + 1) * part])
    file = folder / "model.json"
    file.write_text(
        json.dumps({"modelTopology": topology, "weightsManifest": [{"paths": paths, "weights": weights}]})
    )
    return file


def text(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def node(name: str, op: str, *inputs: str, **attributes: Any) -> dict[str, Any]:
    """A node as the JSON of protobuf has it."""
    stated: dict[str, Any] = {"T": {"type": "DT_FLOAT"}} if op not in ("Placeholder", "Const") else {}
    return {
        "name": name,
        "op": op,
        "input": list(inputs),
        "attr": stated | {key: attribute(attributes[key]) for key in attributes},
    }


def attribute(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {
            "list": {"i": [str(each) for each in value]}
            if isinstance(value[0], int)
            else {"s": [text(each) for each in value]}
        }
    if isinstance(value, str):
        return {"type": value} if value.startswith("DT_") else {"s": text(value)}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"i": str(value)}
    return (
        {"b": value}
        if isinstance(value, bool)
        else {"f": value}
        if isinstance(value, float)
        else {"shape": value}
    )


def graph_model(folder: Path, kind: str = "float32", size: tuple[int, int] = SIZE) -> Path:
    """With the ops that the converter fuses."""
    random = np.random.default_rng(0)
    shapes = {
        "k1": (3, 3, 3, 8),
        "b1": (8,),
        "k2": (3, 3, 8, 1),
        "alpha": (8,),
        "k3": (1, 1, 8, 6),
        "b3": (6,),
        "w": (6, 5),
        "c": (5,),
    }
    arrays: dict[str, Any] = {
        name: random.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()
    }
    arrays["c"], arrays["axes"] = random.normal(0, 0.4, 5).astype(np.float32), np.array([1, 2], np.int32)
    sides = {"dim": [{"size": str(size)} for size in (-1, *size, 3)]}

    def fused(op: str, name: str, *inputs: str, then: str = "", **more: Any) -> dict[str, Any]:
        steps = ["BiasAdd", then] if then else ["BiasAdd"]
        return node(name, op, *inputs, fused_ops=steps, num_args=len(inputs) - 2, **more)

    def conv(name: str, op: str, *inputs: str, stride: int = 1, **more: Any) -> dict[str, Any]:
        window: dict[str, Any] = {"padding": "SAME", "data_format": "NHWC", "dilations": [1, 1, 1, 1]}
        return fused(op, name, *inputs, strides=[1, stride, stride, 1], **window, **more)

    nodes = [
        node("image", "Placeholder", dtype="DT_FLOAT", shape=sides),
        *(node(name, "Const", dtype="DT_INT32" if name == "axes" else "DT_FLOAT") for name in arrays),
        conv("first", "_FusedConv2D", "image", "k1", "b1", stride=2, then="Relu6"),
        conv("deep", "FusedDepthwiseConv2dNative", "first", "k2", "b1", "alpha", then="Prelu"),
        node("slopes", "Prelu", "deep", "alpha"),
        conv("point", "_FusedConv2D", "slopes", "k3", "b3", then="LeakyRelu", leakyrelu_alpha=0.2),
        node("mean", "Mean", "point", "axes", Tidx="DT_INT32", keep_dims=False),
        fused("_FusedMatMul", "head", "mean", "w", "c", transpose_a=False, transpose_b=False),
    ]
    return write(folder, {"node": nodes, "versions": {"producer": 1}}, arrays, kind)


@pytest.mark.parametrize(("make", "format"), [(layers_model, "tfjs-layers"), (graph_model, "tfjs-graph")])
def test_a_model_is_ported(make: Any, format: str, tmp_path: Path) -> None:
    file = make(tmp_path / "model", "uint8")
    assert recognise(file).name == format
    made = porter.convert(file, to="torch", out=tmp_path / "port")
    assert (
        made.verdict is not None
        and made.verdict.ok
        and made.verdict.proof.reference == "the file's own graph"
    )


@pytest.mark.parametrize("kind", ["float32", "float16", "uint8", "uint16"])
def test_weights_are_what_their_scales_say(kind: str, tmp_path: Path) -> None:
    def tensors(kind: str) -> Mapping[str, Array]:
        return read_checkpoint(layers_model(tmp_path / kind, kind)).tensors

    whole, found = tensors("float32"), tensors(kind)
    for name, array in found.items():
        step = {"float32": 0.0, "float16": 1e-3, "uint8": 1 / 255, "uint16": 1 / 65535}[kind] * float(
            np.ptp(whole[name]) + 1
        )
        assert array.dtype == np.float32 and np.abs(array - whole[name]).max() <= step, name


def test_modules_of_a_package_are_read_as_text(tmp_path: Path) -> None:
    """As a bundler writes them: keys without quotes, numbers without zeros, !0 for true."""
    file = layers_model(tmp_path, "uint16")
    wanted = read_checkpoint(file)
    text = (
        re.sub(r'"(\w+)":', r"\1:", file.read_text())
        .replace("true", "!0")
        .replace("null", "void 0")
        .replace("0.", ".")
    )
    module = tmp_path / "model.min.js"
    module.write_text("!function(e){}(function(){return{1:[function(e,a){a.exports=" + text + "},{}]}});")
    for shard in tmp_path.glob("*.bin"):
        shard.with_name(f"{shard.name}.min.js").write_text(
            f'e.exports="{base64.b64encode(shard.read_bytes()).decode()}";'
        )
        shard.unlink()
    found = read_checkpoint(module)
    assert recognise(module).name == "tfjs-layers" and found.carried.nodes == wanted.carried.nodes
    assert all(np.array_equal(found.tensors[name], array) for name, array in wanted.tensors.items())
    module.write_text("e.exports={modelTopology:load(1)}")
    with pytest.raises(FileError, match="its module has more than plain values"):
        read_checkpoint(module)


def test_shards_that_do_not_hold_what_is_stated_are_one_error(tmp_path: Path) -> None:
    for make in (layers_model, graph_model):
        file = make(tmp_path / "model")
        data = file.read_bytes()
        for said, changed in (
            ("is not in its folder", b"../shard1of2.bin"),
            ("is not beside it", b"group2-shard1of2.bin"),
        ):
            file.write_bytes(data.replace(b"group1-shard1of2.bin", changed))
            with pytest.raises(FileError, match=said):
                read_checkpoint(file)
        file.write_bytes(data.replace(b'"shape": [', b'"shape": [99, ', 1))
        with pytest.raises(FileError, match="ends behind its shards"):
            read_checkpoint(file)


def test_a_shard_may_be_a_link_within_the_folder_only(tmp_path: Path) -> None:
    file = layers_model(tmp_path / "model")
    shard = file.with_name("group1-shard1of2.bin")
    for place, is_read in ((file.with_name("stored.bin"), True), (tmp_path / "stored.bin", False)):
        shard.rename(place)
        shard.symlink_to(place)
        if is_read:
            assert read_checkpoint(file).tensors
        else:
            with pytest.raises(FileError, match=r"'group1-shard1of2\.bin' is a link to another folder"):
                read_checkpoint(file)
        shard.unlink()
        place.rename(shard)


def in_node(script: str, folder: Path, size: tuple[int, int], *more: str) -> Any:
    command = ["node", str(HERE / script), str(folder), *map(str, size), *more]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "NODE_PATH": str(MODULES)})
    return np.fromfile(folder / "given.bin", np.float32)


def port_gives(folder: Path, size: tuple[int, int]) -> Any:
    images = np.fromfile(folder / "images.bin", np.float32).reshape(-1, *size, 3)
    with torch.no_grad():
        return porter.load(folder / "torch")(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()


@pytest.mark.full
@pytest.mark.skipif(not MODULES.is_dir(), reason="no @tensorflow/tfjs: CONTRIBUTING.md says how to have it")
@pytest.mark.parametrize("size", [(32, 32), SIZE], ids=str)
@pytest.mark.parametrize("make", [None, graph_model], ids=["layers", "graph"])
@pytest.mark.parametrize("kind", ["float32", "uint16"])
def test_a_port_is_what_tensorflow_js_computes(
    make: Any, kind: str, size: tuple[int, int], tmp_path: Path
) -> None:
    if make is None:
        wanted = in_node("layers.js", tmp_path, size).reshape(2, -1)
    else:
        make(tmp_path, kind, size)
        np.random.default_rng(1).normal(0, 1, (2, *size, 3)).astype(np.float32).tofile(
            tmp_path / "images.bin"
        )
        wanted = in_node("graph.js", tmp_path, size, "head").reshape(2, -1)
    for to in ("torch", "onnx", "tf"):
        made = porter.convert(tmp_path / "model.json", to=to, out=tmp_path / to)
        assert made.verdict is not None and made.verdict.ok
    found = port_gives(tmp_path, size)
    if make is None:  # its softmax is taken off
        found = np.exp(found) / np.exp(found).sum(1, keepdims=True)
    assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)
