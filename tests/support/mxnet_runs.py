"""What MXNet itself writes and computes, in an environment of its own: CONTRIBUTING.md says how to have
one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import porter
from tests.support.checkout import ROOT
from tests.support.filegraph.values import distance

PYTHON = Path(os.environ.get("PORTER_MXNET_PYTHON", ROOT / "build/mxnet/bin/python"))

_WRITE = """
import os, sys, zlib
import mxnet as mx, numpy as np
from mxnet.gluon.model_zoo import vision
name, folder, sides = sys.argv[1], sys.argv[2], [int(side) for side in sys.argv[3:]]
mx.random.seed(0)
network = vision.get_model(name)
network.initialize(mx.init.Xavier("gaussian", "in", 2))
network.hybridize()
images = mx.nd.random.normal(shape=(4, 3, sides[0], sides[0]))
network(images)
for key, held in network.collect_params().items():
    random = np.random.RandomState(zlib.crc32(key.encode()))
    if key.endswith("gamma"):
        held.set_data(mx.nd.array(random.uniform(0.6, 1.4, held.shape)))
    elif key.endswith(("beta", "bias")):
        held.set_data(mx.nd.array(random.normal(0, 0.3, held.shape)))
# So that the norms have about the statistics of what arrives, which MXNet updates on its way back.
for _ in range(40):
    with mx.autograd.record():
        given = network(images)
    given.backward()
network.export(folder + "/net", epoch=0)
for form in ("structured", "stripped"):
    os.makedirs(folder + "/" + form)
network.save_parameters(folder + "/structured/net.params")
network.collect_params().save(folder + "/stripped/net.params", strip_prefix=network.prefix)
seen = [(side, mx.nd.random.normal(shape=(4, 3, side, side))) for side in sides]
rounded = [network(images).asnumpy() for _, images in seen]
network.cast("float64")
for (side, images), single in zip(seen, rounded):
    given = network(images.astype("float64")).asnumpy()
    np.savez(f"{folder}/seen{side}.npz", images=images.asnumpy(), given=given, single=single)
"""


class Seen(NamedTuple):
    """Images N×C×H×W, and what MXNet gives for them in float64 and in float32."""

    images: NDArray[Any]
    given: NDArray[Any]
    single: NDArray[Any]


NEEDS_MXNET = [
    pytest.mark.full,
    pytest.mark.skipif(
        not PYTHON.exists(), reason="no Python with MXNet 1.9.1: CONTRIBUTING.md says how to have one"
    ),
]
"""Marks of what runs MXNet 1.9.1."""


def needs_mxnet(test: Callable[..., None]) -> Callable[..., None]:
    for mark in NEEDS_MXNET:
        test = mark(test)
    return test


def gluon_name(variant: str) -> str:
    """What MXNet calls a variant of the zoo gluon."""
    family, _, width = (
        variant.rpartition("_") if variant[-1].isdigit() and "." in variant else (variant, "", "1.0")
    )
    if family.startswith("resnet"):
        return f"{family.removesuffix('v2')}_{'v2' if family.endswith('v2') else 'v1'}"
    return {
        "inception_v3": "inceptionv3",
        "mobilenet_v1": f"mobilenet{width}",
        "mobilenet_v2": f"mobilenetv2_{width}",
    }[family]


def expect_given(port: Path, seen: Seen) -> None:
    """A port of torch's computes what MXNet does, in float64 and, as far as MXNet itself rounds less, in
    float32.
    """
    rounded = distance(seen.single, seen.given)
    with torch.no_grad():
        images, model = torch.from_numpy(seen.images), porter.load(port)
        single, double = model(images).numpy(), model.double()(images.double()).numpy()
    assert distance(single, seen.single) <= max(1e-5, 4 * rounded)
    assert distance(double, seen.given) <= 1e-10


def write_gluon(name: str, folder: Path, *sides: int) -> list[Seen]:
    """A network of Gluon's zoo with calibrated random weights: net-symbol.json with net-0000.params, and its
    parameters only, as save_parameters names them (structured/net.params) and as save_params did
    (stripped/net.params). Gives what MXNet computes for images of each side.
    """
    subprocess.run(
        [PYTHON, "-c", _WRITE, name, str(folder), *map(str, sides)], check=True, capture_output=True
    )
    return [Seen(**np.load(folder / f"seen{side}.npz")) for side in sides]


_RUN = """
import sys
import mxnet as mx, numpy as np
folder, dtype = sys.argv[1], sys.argv[2]
images = mx.nd.array(np.load(folder + "/images.npy"), dtype=dtype)
network = mx.gluon.SymbolBlock.imports(folder + "/model-symbol.json", ["data"], folder + "/model-0000.params")
network.cast(dtype)
given = network(images)
given = given if isinstance(given, list) else [given]
np.savez(folder + "/given.npz", **{str(place): value.asnumpy() for place, value in enumerate(given)})
"""


def run_symbol(folder: Path, images: NDArray[Any], dtype: str = "float32") -> list[NDArray[Any]]:
    """The outputs of a port's files, as MXNet runs them."""
    np.save(folder / "images.npy", images)
    found = subprocess.run([PYTHON, "-c", _RUN, str(folder), dtype], capture_output=True, text=True)
    assert not found.returncode, found.stderr[-3000:]
    given = np.load(folder / "given.npz")
    return [given[str(place)] for place in range(len(given.files))]
