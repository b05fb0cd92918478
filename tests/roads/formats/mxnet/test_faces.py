"""Networks in the style of insightface's files, which MXNet builds and saves: fresnet.py's r50 and
fmobilefacenet.py, smaller.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import porter
from tests.support.mxnet_runs import PYTHON, needs_mxnet

WRITE = """
import sys
import mxnet as mx, numpy as np
kind, folder = sys.argv[1:]
data = mx.sym.identity(mx.sym.Variable("data"), name="id")
data = (data - 127.5) * 0.0078125

def norm(x, name, fix=False):
    return mx.sym.BatchNorm(x, fix_gamma=fix, eps=2e-5, momentum=0.9, name=name)

def act(x, name):
    return mx.sym.LeakyReLU(x, act_type="prelu", name=name)

def conv(x, filters, kernel, stride, pad, name, groups=1):
    own = dict(kernel=(kernel, kernel), stride=(stride, stride), pad=(pad, pad), no_bias=True)
    own.update(num_group=groups)
    return mx.sym.Convolution(x, num_filter=filters, name=name, workspace=256, **own)

def unit(x, filters, stride, same, name):  # residual_unit_v3
    y = norm(x, name + "_bn1")
    y = act(norm(conv(y, filters, 3, 1, 1, name + "_conv1"), name + "_bn2"), name + "_relu1")
    y = norm(conv(y, filters, 3, stride, 1, name + "_conv2"), name + "_bn3")
    if not same:
        x = norm(conv(x, filters, 1, stride, 0, name + "_conv1sc"), name + "_sc")
    return y + x

def layer(x, filters, kernel, stride, pad, name, groups=1, linear=False):
    y = norm(conv(x, filters, kernel, stride, pad, name + "_conv2d", groups), name + "_batchnorm")
    return y if linear else act(y, name + "_relu")

if kind == "r50":
    x = act(norm(conv(data, 16, 3, 1, 1, "conv0"), "bn0"), "relu0")
    for stage, filters in enumerate((16, 32, 48, 64), 1):
        for place in (1, 2):
            x = unit(x, filters, 2 if place == 1 else 1, place > 1, "stage%d_unit%d" % (stage, place))
    x = mx.sym.Dropout(norm(x, "bn1"), p=0.4)  # E: norm, dropout, dense, norm
else:
    x = layer(data, 16, 3, 2, 1, "conv_1")
    x = layer(x, 16, 3, 1, 1, "conv_2_dw", 16)
    for stage, filters in enumerate((16, 32, 48), 1):
        name = "dconv_%d" % stage
        y = layer(x, 2 * filters, 1, 1, 0, name + "_sep")
        y = layer(y, 2 * filters, 3, 2, 1, name + "_dw", 2 * filters)
        x = layer(y, filters, 1, 1, 0, name + "_proj", linear=True)
        y = layer(x, 2 * filters, 1, 1, 0, name + "_r_sep")
        y = layer(y, 2 * filters, 3, 1, 1, name + "_r_dw", 2 * filters)
        x = layer(y, filters, 1, 1, 0, name + "_r_proj", linear=True) + x
    x = layer(layer(x, 64, 1, 1, 0, "conv_6sep"), 64, 7, 1, 0, "conv_6dw7_7", 64, linear=True)  # GDC
x = mx.sym.FullyConnected(x, num_hidden=32, name="pre_fc1")
symbol = norm(x, "fc1", True)

mx.random.seed(0)
model = mx.mod.Module(symbol, data_names=["data"], label_names=None)
model.bind([("data", (4, 3, 112, 112))], for_training=True)
model.init_params()
args, states = model.get_params()
random = np.random.RandomState(0)
for name, held in sorted(args.items()):
    if name.endswith("gamma"):
        held[:] = random.uniform(0.2 if "relu" in name else 0.6, 0.3 if "relu" in name else 1.4, held.shape)
    elif name.endswith(("beta", "bias")):
        held[:] = random.normal(0, 0.3, held.shape)
    elif name.endswith("weight"):
        held[:] = random.normal(0, (2 / np.prod(held.shape[1:])) ** 0.5, held.shape)
model.set_params(args, states)
images = mx.nd.array(random.uniform(0, 255, (4, 3, 14, 14)).repeat(8, 2).repeat(8, 3))
for _ in range(40):  # so that the norms have about the statistics of what arrives
    model.forward(mx.io.DataBatch([images]), is_train=True)
    model.backward([mx.nd.ones((4, 32))])
model.save_checkpoint(folder + "/model", 0)
network = mx.gluon.SymbolBlock.imports(folder + "/model-symbol.json", ["data"], folder + "/model-0000.params")
network.cast("float64")
np.savez(folder + "/seen.npz", images=images.asnumpy(), given=network(images.astype("float64")).asnumpy())
"""


@needs_mxnet
@pytest.mark.parametrize("kind", ["r50", "mobileface"])
def test_a_network_of_faces_is_what_mxnet_computes(kind: str, tmp_path: Path) -> None:
    done = subprocess.run([PYTHON, "-c", WRITE, kind, str(tmp_path)], capture_output=True, text=True)
    assert not done.returncode, done.stderr[-3000:]
    text, seen = (tmp_path / "model-symbol.json").read_text(), np.load(tmp_path / "seen.npz")
    assert {'"_minus_scalar"', '"_mul_scalar"', '"LeakyReLU"', '"FullyConnected"'} <= {
        f'"{word}"' for word in text.split('"')[1::2]
    }
    for to in ("torch", "tf", "onnx", "mxnet"):
        made = porter.convert(tmp_path / "model-0000.params", to=to, input_size="112", out=tmp_path / to)
        assert (
            made.verdict is not None
            and made.verdict.ok
            and made.verdict.proof.reference == "the file's own graph"
        )
    with torch.no_grad():
        found = porter.load(tmp_path / "torch").double()(torch.from_numpy(seen["images"]).double()).numpy()
    # In float64 too, MXNet multiplies a PReLU's values below zero in float32 (src/operator/mshadow_op.h,
    # xelu).
    assert np.linalg.norm(found - seen["given"]) <= 1e-7 * np.linalg.norm(seen["given"])
    assert seen["given"].std(0).mean() > 0.01 * np.abs(seen["given"]).mean()
