"""DeepLab v3 as TensorFlow 1's slim wrote it, frozen at open sizes: atrous blocks, image pooling and bilinear
resizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import porter
from tests.support.arrays import Array

pytestmark = pytest.mark.usefixtures("in_double")

tf = pytest.importorskip("tensorflow")
Run = Callable[[Array], Array]


class Slim:
    """slim's layers, with random weights that keep the range of what they take."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def kernel(self, *shape: int, taken: int) -> Any:
        return tf.constant(self.random.normal(0, (2 / taken) ** 0.5, shape), tf.float32)

    def normed(self, x: Any) -> Any:
        gamma, variance, beta, mean = self.random.uniform(
            [[0.8]] * 2 + [[-0.1]] * 2, [[1.2]] * 2 + [[0.1]] * 2, (4, x.shape[-1])
        )
        numbers = {
            "mean": mean.astype("f"),
            "variance": variance.astype("f"),
            "epsilon": 1e-3,
            "is_training": False,
        }
        return tf.compat.v1.nn.fused_batch_norm(x, gamma.astype("f"), beta.astype("f"), **numbers)[0]

    def conv(self, x: Any, filters: int, side: int = 3, rate: int = 1, stride: int = 1) -> Any:
        kernel = self.kernel(side, side, x.shape[-1], filters, taken=side * side * x.shape[-1])
        if rate > 1:
            found = tf.compat.v1.nn.with_space_to_batch(
                x,
                [rate] * 2,
                "SAME",
                lambda each, *_: tf.nn.conv2d(each, kernel, 1, "VALID"),
                filter_shape=[side] * 2,
            )
        else:
            found = tf.nn.conv2d(x, kernel, stride, "SAME")
        return tf.nn.relu6(self.normed(found))

    def inverted(self, x: Any, rate: int) -> Any:
        """MobileNet v2's block, without a stride."""
        wide, kernel = self.conv(x, 16, 1), self.kernel(3, 3, 16, 1, taken=9)
        deep = tf.compat.v1.nn.depthwise_conv2d(wide, kernel, [1] * 4, "SAME", rate=[rate] * 2)
        return x + self.conv(tf.nn.relu6(self.normed(deep)), x.shape[-1], 1)

    def deeplab(self, x: Any, ends: bool) -> Any:
        resize = tf.compat.v1.image.resize_bilinear
        y = self.inverted(self.inverted(self.conv(x, 8, stride=4), 2), 4)
        pooled = resize(self.conv(tf.reduce_mean(y, [1, 2], keepdims=True), 4, 1), tf.shape(y)[1:3], ends)
        y = self.conv(
            tf.concat([pooled, self.conv(y, 4, 1), self.conv(y, 4, rate=2), self.conv(y, 4, rate=3)], 3), 8, 1
        )
        return resize(
            tf.nn.bias_add(tf.nn.conv2d(y, self.kernel(1, 1, 8, 5, taken=8), 1, "SAME"), [0.1] * 5),
            tf.shape(x)[1:3],
            ends,
        )


@pytest.fixture(scope="module", params=[True, False], ids=["ends", "asymmetric"])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    file = tmp_path_factory.mktemp("deeplab") / "deeplab.pb"
    with tf.Graph().as_default() as graph:
        image = tf.compat.v1.placeholder(tf.float32, (None, None, None, 3), name="image")
        end = tf.identity(Slim().deeplab(image, request.param), "end")
    file.write_bytes(graph.as_graph_def().SerializeToString())

    def run(images: Array) -> Array:
        with tf.compat.v1.Session(graph=graph) as session:
            return np.asarray(session.run(end, {image: images.transpose(0, 2, 3, 1)})).transpose(0, 3, 1, 2)

    return file, run


@pytest.mark.parametrize("to", ["torch", pytest.param("onnx", marks=pytest.mark.full)])
def test_frozen_at_open_sizes(network: tuple[Path, Run], to: str, tmp_path: Path) -> None:
    file, run = network
    made = porter.convert(file, to=to, out=tmp_path / "port", input_size="any")
    assert made.port.record.proved and made.port.record.input.size is None
    model = porter.load(tmp_path / "port")
    for size in ((33, 33), (24, 41)):
        images = np.random.default_rng(1).standard_normal((2, 3, *size)).astype("f")
        found = model(images) if to == "onnx" else model(torch.from_numpy(images)).detach().numpy()
        np.testing.assert_allclose(found, run(images), rtol=1e-4, atol=1e-5)


def test_pads_that_are_moved_by_one_cell_are_refused(network: tuple[Path, Run], tmp_path: Path) -> None:
    folder = tmp_path / "port"
    porter.convert(network[0], to="onnx", out=folder, input_size=33, check=False)
    record = json.loads((folder / "port.json").read_text())
    dilated = [
        node for node in record["graph"]["nodes"] if node.get("window", {}).get("dilation", [1, 1]) != [1, 1]
    ]
    assert [node["window"]["dilation"][0] for node in dilated] == [2, 4, 2, 3]
    dilated[0]["convention"]["pads"] = [1, 3, 2, 2]
    (folder / "port.json").write_text(json.dumps(record))
    assert not porter.verify(folder, weights=network[0]).ok
