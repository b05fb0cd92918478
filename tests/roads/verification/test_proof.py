"""What the proof says of right and of wrong ports: it refuses a wrong one, and no right one for how it rounds
or is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import porter
from porter.base.dtypes import Dtype
from porter.base.errors import CannotRun, CheckFailed, Contradiction
from porter.frameworks.onnx.model import ModelParts, make_model_session
from porter.frameworks.onnx.session import Session
from porter.frameworks.torch import engine
from porter.graph.ops.windows import GlobalPool
from porter.port import read_port
from porter.source.reopening import reopen_source
from porter.verification import parity
from porter.verification.check import Check
from porter.verification.inputs import SIGNED, make_images
from porter.verification.references.reference import Reference
from porter.verification.references.source_references import references_of
from porter.verification.sizes import Sizes
from porter.verification.verdict import Verdict
from tests.support.arrays import Array
from tests.support.fixtures import Cli
from tests.support.mxnet_files import write_mxnet
from tests.support.refusals import refused
from tests.support.standin_files import source_checkpoint

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

KERAS = """\
import keras


def build(epsilon=1e-3, end="softmax"):
    image = keras.Input((32, 32, 3))
    value = keras.layers.Rescaling(1 / 255, name="rescaling")(image)
    for name in ("one", "two"):
        value = keras.layers.Conv2D(8, 3, strides=2, padding="same", name=f"{name}_conv")(value)
        value = keras.layers.BatchNormalization(epsilon=epsilon, name=f"{name}_norm")(value)
        value = keras.layers.ReLU(name=f"{name}_relu")(value)
    value = keras.layers.GlobalAveragePooling2D(name="pool")(value)
    return keras.Model(image, keras.layers.Dense(6, activation=end, name="out")(value))


def greys():
    image = keras.Input((32, 32, 3))
    value = keras.layers.Rescaling(1 / 127.5, -1, name="rescaling")(image)
    for name in ("one", "two"):
        value = keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name=name)(value)
    value = keras.layers.GlobalAveragePooling2D(name="pool")(value)
    return keras.Model(image, keras.layers.Dense(6, name="out")(value))
"""

RECIPE = """\
architecture: scaled
variants: {scaled: {}}
options: {classes: 6, bn_epsilon: 1.0e-3}
input: {size: 32}
graph:
  - {affine: rescaling, scale: 0.00392156862745098}
  - {conv: one_conv, filters: 8, kernel: 3, stride: 2, pad: same, bias: true}
  - {batch_norm: one_norm}
  - {relu: one_relu}
  - {conv: two_conv, filters: 8, kernel: 3, stride: 2, pad: same, bias: true}
  - {batch_norm: two_norm%s}
  - {relu: two_relu}
  - {global_avg_pool: pool}
  - {dense: out, units: =classes}
zoos:
  own:
    framework: tf
    names: {"{name}": "{name}"}
    activation: softmax
"""
PROTOCOL = "    protocol: {resize: squash, size: 32, interpolation: pil_bilinear, divide: 1}\n"


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Code and weights of networks that take pixels from 0 to 255."""
    import keras

    from porter.verification.inputs import PIXELS, make_images
    from porter.verification.references.user_code import load_maker

    folder = tmp_path_factory.mktemp("networks")
    (folder / "model.py").write_text(KERAS)
    keras.utils.set_random_seed(3)
    net = load_maker(folder / "model.py", "build")()
    for layer in net.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    net(make_images((32, 32), 8, 3, PIXELS).transpose(0, 2, 3, 1).astype(np.float32), training=True)
    # As for a network of real weights: on noise around 0 it would see black, and its probabilities would be
    # the same for all.
    net.get_layer("two_norm").moving_variance.assign(net.get_layer("two_norm").moving_variance * 0.01)
    net.save_weights(folder / "scaled.weights.h5")
    greys = load_maker(folder / "model.py", "greys")()
    rng = np.random.default_rng(0)
    for layer in (greys.get_layer("one"), greys.get_layer("two")):
        layer.bias.assign(rng.normal(0, 0.3, 8))
    greys.save(folder / "greys.keras")
    for at in range(2):
        kernel = greys.get_layer("two").kernel.numpy()
        kernel[1, 1, 3 * at, at] *= 1.01
        other = keras.models.clone_model(greys)
        other.set_weights(greys.get_weights())
        other.get_layer("two").kernel.assign(kernel)
        other.save(folder / f"greys{at}.keras")
    return folder


@pytest.mark.parametrize("protocol", ["", PROTOCOL])
def test_a_recipe_of_pixels_is_proved_on_pixels_and_a_wrong_epsilon_is_found(
    protocol: str, networks: Path, cli: Cli
) -> None:
    given = (
        "--weights",
        networks / "scaled.weights.h5",
        "--reference",
        networks / "model.py:build",
        "--recipes",
        networks / "recipes",
    )
    (networks / "recipes").mkdir(exist_ok=True)
    recipe = networks / "recipes" / "scaled.yaml"
    recipe.write_text(RECIPE % "" + protocol)
    ran = cli("convert scaled --from own --to torch", *given, "--out", "right", "--overwrite")
    assert (
        ran.status == 0
        and "float64: same function as the given model.py:build" in ran.out
        and "9 nodes" in ran.out
    ), ran.err
    recipe.write_text(RECIPE % ", epsilon: 0.02" + protocol)
    wrong = cli("convert scaled --from own --to torch", *given, "--out", "wrong")
    refused(wrong, "two_norm is the first node that differs", "in float64", status=1)


def test_a_file_that_scales_pixels_is_proved_on_pixels(networks: Path, tmp_path: Path) -> None:
    def verdict(name: str) -> Verdict | None:
        return porter.convert(
            networks / name, to="torch", reference=networks / "greys.keras", out=tmp_path / name
        ).verdict

    found = verdict("greys.keras")
    assert found is not None and found.ok and found.fed.words == "0 to 255"
    for name in ("greys0.keras", "greys1.keras"):
        with pytest.raises(CheckFailed, match=r"two is the first node that differs.* the weights of two are"):
            verdict(name)


HEAD = """<ir_version: 8, opset_import: ["" : 13]>
net (float[N,3,16,16] x) => (float[N,%s] y) {%s}"""
NETWORKS = {
    "sigmoid far below": ("4,16,16", "c = Conv <pads=[1,1,1,1]> (x, k, low) y = Sigmoid (c)"),
    "sigmoid that saturates": ("4,16,16", "c = Conv <pads=[1,1,1,1]> (x, steep, low) y = Sigmoid (c)"),
    "softmax that saturates": (
        "4,16,16",
        "c = Conv <pads=[1,1,1,1]> (x, steep, low) y = Softmax <axis=1> (c)",
    ),
    "maps with equal cells": (
        "4,8,8",
        "c = Conv <pads=[1,1,1,1]> (x, k, low) y = MaxPool <kernel_shape=[2,2],strides=[2,2]> (c)",
    ),
    "zero everywhere": ("4,16,16", "c = Conv <pads=[1,1,1,1]> (x, k, low) y = Relu (c)"),
}
NUMBERS: Mapping[str, Array] = {
    "k": np.random.default_rng(1).normal(0, 1, (4, 3, 3, 3)),
    "steep": np.random.default_rng(1).normal(0, 4000, (4, 3, 3, 3)),
    "low": np.full(4, -30.0),
    "point": np.random.default_rng(2).normal(0, 1, (4, 3, 1, 1)),
    "none": np.zeros((4, 3)),
    "b": np.arange(4.0),
    "faint": np.random.default_rng(3).normal(0, 0.002, (4, 3, 3, 3)),
    "deep": np.array([-17.0, -17.1, -16.9, -16.5]),
    "shallow": np.array([-5.0, -5.5, -6.0, -6.5]),
    "ones": np.ones(4),
    "zeros": np.zeros(4),
    "cross": np.random.default_rng(4).normal(0, 1, (4, 4, 1, 1)),
}


def written(text: str, path: Path) -> Path:
    model: Any = onnx.parser.parse_model(text)
    for name, array in NUMBERS.items():
        if name in text.replace(",", " ").replace(")", " ").split():
            model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, path)
    return path


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_right_port_is_not_refused_for_what_its_outputs_are(name: str, tmp_path: Path) -> None:
    file = written(HEAD % NETWORKS[name], tmp_path / "net.onnx")
    for framework in ("torch", "onnx"):
        made = porter.convert(file, to=framework, out=tmp_path / framework)
        assert made.verdict is not None and made.verdict.ok and made.verdict.proof.dtype == "float64"
        assert all(found.limit <= 1e-4 for found in made.verdict.parities)


DEEP = "c = Conv <pads=[1,1,1,1]> (x, faint, deep) "
SMALL = {
    "a sigmoid": DEEP + "y = Sigmoid (c)",
    "a closed gate": DEEP
    + "s = Sigmoid (c) a = Conv <pads=[1,1,1,1]> (x, k) m = Mul (s, a) y = Conv (m, cross)",
    "a swish": DEEP + "s = Sigmoid (c) m = Mul (c, s) y = Conv (m, cross)",
    "a gelu": "c = Conv <pads=[1,1,1,1]> (x, faint, shallow) y = Gelu (c)",
    "a norm": DEEP + "s = Sigmoid (c) y = InstanceNormalization <epsilon = 1e-30> (s, ones, zeros)",
    "a softplus": DEEP + "s = Softplus (c) y = Conv (s, cross)",
}
"""Values far smaller than the numbers that they come from: float32 computes them as well as it can near 1."""


def _small(name: str, path: Path) -> Path:
    return written(HEAD.replace("13", "20") % ("4,16,16", SMALL[name]), path)


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("name", SMALL)
def test_values_that_float32_gets_right_in_absolute_terms_only_refuse_no_port(
    name: str, tmp_path: Path
) -> None:
    file = _small(name, tmp_path / "net.onnx")
    others = {"a closed gate": ("mxnet",), "a softplus": ("tflite",)}.get(name, ())
    for framework in ("torch", "onnx", *others):
        made = porter.convert(file, to=framework, keep_activation=True, out=tmp_path / framework)
        assert made.verdict is not None and made.verdict.ok and made.verdict.proof.dtype == "float64"


def test_a_model_in_memory_is_compared_by_the_same(tmp_path: Path) -> None:
    layer = torch.nn.Conv2d(3, 4, 3)
    layer.load_state_dict({"weight": torch.tensor(NUMBERS["faint"]), "bias": torch.tensor(NUMBERS["deep"])})
    model = torch.nn.Sequential(layer, torch.nn.Sigmoid()).eval()
    made = porter.convert(model, to="onnx", example=torch.zeros(1, 3, 16, 16), out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("name", ["a sigmoid", "a closed gate"])
@pytest.mark.parametrize(
    ("dtype", "wrong"),
    [
        (torch.float64, lambda x: torch.sigmoid(1.0001 * x)),
        (torch.float64, torch.tanh),
        (torch.float32, torch.tanh),
        (torch.float32, lambda x: torch.sigmoid(x) + 1e-5),
    ],
    ids=["another slope", "another function", "another function in float32", "an offset in float32"],
)
def test_a_mistake_in_small_values_is_refused(
    dtype: torch.dtype, wrong: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch.nn.Sigmoid, "forward", lambda self, x: wrong(x) if x.dtype == dtype else torch.sigmoid(x)
    )
    with pytest.raises(CheckFailed, match=f"s|y is the first node that differs.*{str(dtype)[6:]}"):
        porter.convert(_small(name, tmp_path / "net.onnx"), keep_activation=True, out=tmp_path / "port")


@pytest.mark.usefixtures("one_recipe")
def test_another_function_in_one_of_two_programs_is_told_where_values_are_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(model: ModelParts, dtype: Dtype, outputs: Sequence[Any], *, optimised: bool) -> Session:
        for node in model.proto.graph.node if dtype == "float32" else ():
            node.op_type = "Tanh" if node.op_type == "Sigmoid" else node.op_type
        return make_model_session(model, dtype, outputs, optimised=optimised)

    monkeypatch.setattr("porter.frameworks.onnx.file_reference.make_model_session", other)
    with pytest.raises(Contradiction, match=r"disagree on 'y' \(Sigmoid"):
        porter.convert(_small("a sigmoid", tmp_path / "net.onnx"), keep_activation=True, out=tmp_path / "p")


@pytest.mark.usefixtures("one_recipe")
def test_an_output_of_other_axes_than_the_graph_says_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a mistake planted in the shapes of a pool: the reader took N x C x 1 x 1 for features, left
    out the Flatten and took the softmax off; the file's values were the port's but for two axes of one cell.
    """
    lines = [
        ("mean", "Pooling", {"global_pool": True, "pool_type": "avg", "kernel": (1, 1)}, ["data"]),
        ("flat", "Flatten", {}, ["mean"]),
        ("shares", "softmax", {}, ["flat"]),
    ]
    file = write_mxnet(tmp_path / "net", lines, {})
    assert porter.convert(file, input_size="5x6", out=tmp_path / "right").port.record.check == "passed"
    monkeypatch.setattr(GlobalPool, "shape", lambda op, *inputs: (inputs[0][0], 1, 1)[: 1 if op.keep else 3])
    with pytest.raises(
        Contradiction, match="mean: the port gives 3x1x1 for each image, and its graph says 3"
    ):
        porter.convert(file, input_size="5x6", out=tmp_path / "port")


ALONE = HEAD % (
    "4,8,8",
    "c = Conv <pads=[1,1,1,1]> (x, k) "
    'y = MaxPool <kernel_shape=[1,1],strides=[2,2],auto_pad="SAME_UPPER"> (c)',
)
"""onnxruntime takes the pads of such a pool for -1 and refuses it; ONNX's own implementation runs it."""


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("framework", ["onnx", "torch"])
def test_a_file_that_runs_in_float64_only_is_compared_there(framework: str, tmp_path: Path, cli: Cli) -> None:
    file = written(ALONE, tmp_path / "net.onnx")
    ran = cli("convert", file, "--to", framework, "--out", "port")
    assert (
        ran.status == 0 and "float64: agrees; not held to what runs the source in float32, which" in ran.out
    )
    assert "compared in float64 only: onnxruntime cannot run this model" in ran.out
    assert "same function" not in ran.out and not read_port(tmp_path / "port").record.proved
    image = make_images((16, 16), 1, 3, SIGNED).astype(np.float32)
    model = porter.load(tmp_path / "port")
    given = torch.from_numpy(image) if framework == "torch" else image
    assert tuple(model(given).shape) == (1, 4, 8, 8), "the port runs"


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("source", ["c = Conv <pads=[1,1,1,1]> (x, k) y = Relu (c)", ALONE])
@pytest.mark.parametrize("skipped", [True, False])
def test_a_port_that_its_own_framework_does_not_run_is_not_written(
    source: str, skipped: bool, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing can be compared with it, and the check would be skipped."""

    def refuse(*given: Any) -> NoReturn:
        raise CannotRun("TensorFlow has no kernel for 'y'")

    file = written(source if source == ALONE else HEAD % ("4,16,16", source), tmp_path / "net.onnx")
    monkeypatch.setattr("porter.frameworks.torch.engine.run", refuse)
    if skipped:
        monkeypatch.setattr("porter.verification.proving.with_fallback", refuse)
    ran = cli("convert", file, "--to", "torch", "--out", "port")
    refused(ran, "the port does not run in its own framework: TensorFlow has no kernel for 'y'", status=1)
    assert not (tmp_path / "port").exists()


@pytest.mark.usefixtures("one_recipe")
def test_programs_that_give_values_of_other_shapes_disagree(tmp_path: Path, cli: Cli) -> None:
    """onnxruntime leaves the dilation out when it counts the windows of SAME."""
    pool = 'y = MaxPool <kernel_shape=[3,3],dilations=[2,2],auto_pad="SAME_UPPER"> (c)'
    file = written(HEAD % ("4,16,16", f"c = Conv <pads=[1,1,1,1]> (x, k) {pool}"), tmp_path / "net.onnx")
    ran = cli("convert", file, "--to", "torch", "--out", "port")
    refused(ran, "disagree on 'y' (MaxPool; another shape)", status=1)


@pytest.mark.usefixtures("one_recipe")
def test_where_no_input_tells_nothing_is_proved_and_nothing_written(tmp_path: Path, cli: Cli) -> None:
    file = written(
        HEAD % ("4", "p = GlobalAveragePool (x) f = Flatten (p) y = Gemm <transB=1> (f, none, b)"),
        tmp_path / "net.onnx",
    )
    ran = cli("convert", file, "--to", "torch", "--out", "port")
    refused(
        ran,
        "not proved: the network gives the same output for all images: the reference's y is the same",
        "--no-check",
        status=1,
    )
    assert "train the network further" in ran.err and "--reference" not in ran.err
    assert not (tmp_path / "port").exists()
    assert cli("convert", file, "--to", "torch", "--out", "port", "--no-check").status == 0
    assert cli("verify port --weights", file).status == 1


@pytest.mark.usefixtures("one_recipe")
def test_a_port_that_rounds_more_than_it_should_is_written_and_that_is_said(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(
        HEAD % ("4,16,16", "c = Conv <pads=[1,1,1,1]> (x, k, low) y = Tanh (c)"), tmp_path / "net.onnx"
    )
    for name, number in {"FLOAT32_LIMIT": 1e-12, "OWN_ROUNDING": 0.0, "_NO_ROUNDING": 1e9}.items():
        monkeypatch.setattr(parity, name, number)
    ran = cli("convert", file, "--to", "torch", "--out", "port")
    assert ran.status == 0 and "the float32 error is above its limit from " in ran.out, ran.err
    record = read_port(tmp_path / "port").record
    assert (
        record.proved
        and record.parity is not None
        and record.parity["dtypes"]["float32"]["rounds_from"] in ("c", "y")
    )
    assert "The float32 error is above its limit from " in Path(cli("report port").out.strip()).read_text()
    ran = cli("verify port --weights", file)
    assert ran.status == 0 and "note: the float32 error is above its limit" in ran.out


def not_to_be_run(source: object, batch: Array) -> NoReturn:
    raise CannotRun("onnxruntime does not run this model")


@pytest.mark.usefixtures("one_recipe")
def test_a_disagreement_of_two_references_is_named_as_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """SqueezeNet of the ONNX zoo: ONNX's reference gives ones for the softmax before opset 13 over N x C x 1
    x 1.
    """
    text = HEAD.replace("13", "11") % (
        "4,1,1",
        "p = GlobalAveragePool (x) c = Conv (p, point, low) y = Softmax (c)",
    )
    file = written(text, tmp_path / "net.onnx")
    assert cli("convert", file, "--to", "torch", "--out", "right").status == 0
    monkeypatch.setattr("porter.frameworks.onnx.double.own_operators", lambda opset: [])
    with monkeypatch.context() as lacking:  # a failure stays one where the two cannot be compared
        lacking.setattr(
            "porter.verification.references.file_graph_reference.FileGraphReference.disagreement",
            not_to_be_run,
        )
        wrong = cli("convert", file, "--to", "torch", "--keep-activation", "--out", "port")
        refused(wrong, "the port is not the source's function: y is the first node that differs", status=1)
    ran = cli("convert", file, "--to", "torch", "--keep-activation", "--out", "port")
    refused(
        ran, "not proved: onnxruntime and ONNX's reference implementation disagree on 'y' (Softmax", status=1
    )


@pytest.mark.usefixtures("one_recipe")
def test_a_mistake_that_is_as_small_as_rounding_is_told_by_the_other_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Reader and reference in float64 take a slope for 2 % less than onnxruntime: 9e-4 of the value."""
    text = HEAD % ("4,16,16", "c = Conv <pads=[1,1,1,1]> (x, k, low) y = LeakyRelu <alpha = 0.02> (c)")
    file = written(text, tmp_path / "net.onnx")

    def steeper(model: ModelParts, dtype: Dtype, outputs: Sequence[Any], *, optimised: bool) -> Session:
        if dtype == "float32":
            (slope,) = (node.attribute[0] for node in model.proto.graph.node if node.op_type == "LeakyRelu")
            slope.f = 0.0204
        return make_model_session(model, dtype, outputs, optimised=optimised)

    monkeypatch.setattr("porter.frameworks.onnx.file_reference.make_model_session", steeper)
    with monkeypatch.context() as lacking:
        lacking.setattr(
            "porter.verification.references.file_graph_reference.FileGraphReference.disagreement",
            not_to_be_run,
        )
        assert cli("convert", file, "--to", "torch", "--out", "proved").status == 0
    ran = cli("convert", file, "--to", "torch", "--out", "port")
    refused(ran, "not proved: onnxruntime and ONNX's reference implementation disagree on 'y' (", status=1)
    ran = cli("verify proved --weights", file)
    assert ran.status == 1 and "not proved: onnxruntime and ONNX's reference" in ran.out


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("images", [1 << 24, 1 << 40])
def test_a_batch_without_end_is_not_filled(images: int, tmp_path: Path, cli: Cli) -> None:
    text = (HEAD % ("4,16,16", "y = Conv <pads=[1,1,1,1]> (x, k, low)")).replace("[N,", f"[{images},")
    ran = cli("convert", written(text, tmp_path / "net.onnx"), "--to", "torch", "--out", "port")
    assert ran.status == 0 and f"the file takes {images} images at once" in ran.out


@pytest.mark.usefixtures("one_recipe")
def test_images_whose_maps_are_large_are_few_and_run_one_by_one(tmp_path: Path) -> None:
    """An image of 16x16 that is stretched 250 times: 64 of them, half at once, took 21 GB and were killed."""
    scale = "s = Constant <value = float[4] {1.0, 1.0, 250.0, 250.0}> ()"
    large = (
        'r = Resize <mode="nearest", coordinate_transformation_mode="asymmetric", '
        'nearest_mode="floor"> (c, , s)'
    )
    text = HEAD % (
        "4,1,1",
        f"c = Conv <pads=[1,1,1,1]> (x, k, low) {scale} {large} y = GlobalAveragePool (r)",
    )
    port = porter.convert(
        written(text, tmp_path / "net.onnx"), to="torch", out=tmp_path / "port", check=False
    ).port
    for batches in Check(port).batches(Sizes(((16, 16),), ((16, 16),))).values():
        assert {len(batch) for batch in batches} == {1} and 2 <= len(batches) < 20


class Chaotic:
    """A source that rounds as much as its port would have to be away to be refused, but on photos or inputs
    up to `calm`.
    """

    name, run_by = "the file's own graph", "chance"

    def __init__(self, source: Reference, off: float, calm: float = 0.0) -> None:
        self.source, self.off, self.calm = source, off, calm

    def takes(self, size: tuple[int, int]) -> bool:
        return self.source.takes(size)

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> Mapping[str, Array]:
        values = self.source.run(batch, dtype)
        photos = make_images((batch.shape[2], batch.shape[3]), 2, 3, SIGNED)
        photo = not self.calm and any(np.allclose(image, batch[0], atol=1e-6) for image in photos)
        if photo or np.abs(batch).max() <= self.calm:
            return values
        noise = np.random.default_rng(abs(hash(batch.tobytes()))).standard_normal(values["y"].shape)
        return {**values, "y": np.multiply(values["y"], 1 + self.off * noise)}


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(("off", "ok"), [(1e-9, True), (1e-6, False)])
def test_inputs_that_make_the_source_chaotic_are_no_evidence_against_a_port(
    off: float, ok: bool, tmp_path: Path
) -> None:
    file = written(
        (HEAD % ("4,H,W", "y = Conv <pads=[1,1,1,1]> (x, k, low)")).replace("16,16", "H,W", 1),
        tmp_path / "net.onnx",
    )
    port = porter.convert(file, to="torch", input_size="224x224", out=tmp_path / "port", check=False).port
    source = next(references_of(reopen_source(port, file, None), "float32"))
    found = Check(port, ("float64",)).against(Chaotic(source, off), Sizes(((224, 224),), ()))
    assert found[0].ok is ok


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(("calm", "ok"), [(1.001, True), (1e-9, False)])
def test_a_range_that_makes_the_source_chaotic_on_all_images_gives_way_to_another(
    calm: float, ok: bool, tmp_path: Path
) -> None:
    text = HEAD % ("4,16,16", "c = Conv <pads=[1,1,1,1]> (x, k, low) y = Tanh (c)")
    port = porter.convert(
        written(text, tmp_path / "net.onnx"), to="torch", out=tmp_path / "port", check=False
    ).port
    source = Chaotic(
        next(references_of(reopen_source(port, tmp_path / "net.onnx", None), "float32")), 1e-9, calm
    )
    found = Check(port, ("float64",)).prove(source, Sizes(((16, 16),), ()))
    assert found.ok is ok and (ok or "multiplies its own rounding" in (found.proof.silent or ""))


@pytest.mark.parametrize("cap", [pytest.param(6.0, marks=pytest.mark.full), 6.5])
def test_bounds_that_no_image_reaches_are_those_of_the_zoo_s_own_layers(
    cap: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No image takes the head of these weights to 6, so a source with another cap gives the same numbers."""
    held, arguments = tmp_path / "held.safetensors", ("mobilenet_v2_0.35", "timm", "onnx")
    tensors = source_checkpoint("mobilenet_v2_0.35", "timm").tensors
    save_file(
        {
            name: np.divide(value, 4) if "bn" in name and value.dtype.kind == "f" else value
            for name, value in tensors.items()
        },
        held,
    )
    of_head = 1280
    monkeypatch.setattr(
        torch.nn.ReLU6, "forward", lambda self, x: x.clamp(0, cap if x.shape[1] == of_head else 6)
    )
    if cap == 6:
        made = porter.convert(*arguments, weights=held, out=tmp_path / "port")
        assert made.verdict is not None and made.verdict.proof.unreached == ()
    else:
        with pytest.raises(CheckFailed, match="head/relu is the first node that differs"):
            porter.convert(*arguments, weights=held, out=tmp_path / "port")
        monkeypatch.setattr(Check, "_compare_at_cut_points", lambda *_: {})
        made = porter.convert(*arguments, weights=held, out=tmp_path / "port")
        assert made.verdict is not None and made.verdict.ok
        assert "head/relu" in made.verdict.proof.unreached


@pytest.mark.usefixtures("one_recipe")
def test_bounds_that_no_value_reaches_are_named(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convolution of 27 numbers below 3 gives no 1000; a port without that bound would be proved too, where
    the source's layers cannot be run by themselves.
    """
    monkeypatch.setattr(Check, "_compare_at_cut_points", lambda *_: {})
    nodes = "c = Conv (x, k) one = Clip (c, zero, far) two = Clip (c, zero, near) y = Add (one, two)"
    model: Any = onnx.parser.parse_model(HEAD.replace("16,16", "64,64", 1) % ("4,62,62", nodes))
    for name, array in {
        **NUMBERS,
        "zero": np.array(0.0),
        "near": np.array(0.5),
        "far": np.array(1000.0),
    }.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, tmp_path / "net.onnx")
    ran = cli("convert", tmp_path / "net.onnx", "--to", "torch", "--out", "port")
    assert ran.status == 0, ran.err
    record = read_port(tmp_path / "port").record
    assert record.parity is not None and record.parity["unreached"] == ["one"]
    listed = cli("verify", tmp_path / "port", "--weights", tmp_path / "net.onnx", "--layers").out
    for said in (ran.out, listed):
        assert "1 bound, pad or epsilon was never reached in the test, so not checked" in said
    assert "\nnever reached: one\n" in listed


@pytest.mark.usefixtures("one_recipe")
def test_images_in_which_bounds_were_sought_are_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, run = Counter[str](), engine.run

    def counted(model: Any, batch: Array, taps: Any, cut: Any) -> Mapping[str, Array]:
        ran[str(batch.dtype)] += len(batch) if batch.shape[1:] == (3, 16, 16) else 0
        return run(model, batch, taps, cut)

    monkeypatch.setattr(engine, "run", counted)
    monkeypatch.setattr(Check, "_compare_at_cut_points", lambda *_: {})
    nodes = "c = Conv (x, k) y = Relu (c)"
    porter.convert(
        written(HEAD % ("4,14,14", nodes), tmp_path / "net.onnx"), to="torch", out=tmp_path / "port"
    )
    assert ran["float64"] == ran["float32"] == 64
