"""What is known to go wrong in ports, put into finished ones on purpose: `porter verify` fails and names the
first wrong node.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import porter
from porter.formats.reading import read_checkpoint
from porter.frameworks.dialects import get_dialect
from porter.frameworks.torch.port_files import write_port
from porter.graph import BatchNorm, Graph
from porter.graph.record import to_record
from porter.padding import LOWEST, Convention
from porter.port import read_port, write_record
from porter.recipe import expand, find_recipe
from porter.source.fitting.by_names import fit_by_names
from porter.source.fitting.candidate import Candidate
from porter.source.opened import read_tensors
from tests.support.arrays import Array
from tests.support.fixtures import SlimMaker, WeightsMaker
from tests.support.slim_files import SlimFile
from tests.support.standin_files import sign, with_convention

Tensors = dict[str, dict[str, Array]]
SYMMETRIC = Convention("explicit", (1, 1, 1, 1))
SLIM = SlimFile("mobilenet_v1_0.25", ema=True)


@dataclass(frozen=True)
class Trap:
    """A mistake in a port: in its graph, or in the tensors that were read from the weights file; and where it
    first shows.
    """

    variant: str
    zoo: str
    first: str
    graph: Callable[[Graph], Graph] = lambda graph: graph
    tensors: Callable[[Path, Tensors], Tensors] = lambda _, tensors: tensors
    size: str = "96"


def padded(path: str, convention: Convention) -> Callable[[Graph], Graph]:
    return lambda graph: with_convention(graph, path, convention)


def strided_on_the_3x3(_: Graph) -> Graph:
    """As torchvision's ResNet strides: every tensor of Keras's fits."""
    recipe = find_recipe("resnet50")
    return expand(recipe.member("resnet50", "keras"), {"stride_on": "first_3x3"})


def epsilon_of_torch(graph: Graph) -> Graph:
    nodes = (
        replace(node, op=replace(node.op, epsilon=1e-5)) if isinstance(node.op, BatchNorm) else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def averages_ignored(weights: Path, _: Tensors) -> Tensors:
    recipe, checkpoint = find_recipe(SLIM.variant), read_checkpoint(weights)
    raw = {
        name: array
        for name, array in checkpoint.tensors.items()
        if not name.endswith("ExponentialMovingAverage")
    }
    checkpoint = replace(checkpoint, tensors=raw)
    fit = fit_by_names(Candidate.of(recipe.member(SLIM.variant, "slim"), checkpoint))
    return read_tensors(fit, checkpoint, get_dialect("tf"))


def unshifted(weights: Path, tensors: Tensors) -> Tensors:
    """Rows 0 to 999 of 1001: the background's among them, the last class's not."""
    layer, average = "MobilenetV1/Logits/Conv2d_1c_1x1", "ExponentialMovingAverage"
    found = read_checkpoint(weights).tensors
    kernel, bias = (found[f"{layer}/{role}/{average}"] for role in ("weights", "biases"))
    return {
        **tensors,
        "head/logits": {"kernel": np.ascontiguousarray(kernel[0, 0].T[:1000]), "bias": bias[:1000]},
    }


def blue_first(_: Path, tensors: Tensors) -> Tensors:
    kernel = np.ascontiguousarray(tensors["stem/conv"]["kernel"][:, ::-1])
    return {**tensors, "stem/conv": {**tensors["stem/conv"], "kernel": kernel}}


TRAPS = {
    "symmetric for same": Trap(SLIM.variant, "slim", "stem/conv", padded("stem/conv", SYMMETRIC)),
    "symmetric for Keras's (0,1)": Trap(
        "mobilenet_v1_0.25", "keras", "block3/depthwise/conv", padded("block3/depthwise/conv", SYMMETRIC)
    ),
    "same for Keras's (0,1), which even maps do not tell": Trap(
        "mobilenet_v1_0.25",
        "keras",
        "block3/depthwise/conv",
        padded("block3/depthwise/conv", Convention("same")),
        size="any",
    ),
    "same for torchvision's 1": Trap(
        "mobilenet_v2_0.35", "torchvision", "stem/conv", padded("stem/conv", Convention("same"))
    ),
    "lowest for zero in ResNet50V2's pool": Trap(
        "resnet50v2", "keras", "stem/pool", padded("stem/pool", Convention("explicit", (1, 1, 1, 1), LOWEST))
    ),
    "stride on the 3x3": Trap("resnet50", "keras", "stage2/unit1/conv1", strided_on_the_3x3),
    "averages that leave out the pad": Trap(
        "inception_v3",
        "torchvision",
        "mixed5b/pool",
        padded("mixed5b/pool", Convention("same", average="real_cells")),
    ),
    "averages that count the pad": Trap(
        "inception_v3",
        "keras",
        "mixed5b/pool",
        padded("mixed5b/pool", Convention("explicit", (1, 1, 1, 1), average="full_window")),
    ),
    "epsilon 1e-5 for 1e-3": Trap(SLIM.variant, "slim", "stem/norm", epsilon_of_torch),
    "averages of training ignored": Trap(SLIM.variant, "slim", "stem/conv", tensors=averages_ignored),
    "1001 classes unshifted": Trap(SLIM.variant, "slim", "head/logits", tensors=unshifted),
    "BGR for RGB": Trap(SLIM.variant, "slim", "stem/conv", tensors=blue_first),
}


def put_in(folder: Path, weights: Path, trap: Trap) -> None:
    """Writes the port in `folder` again, with the mistake in it and every digest right."""
    port = read_port(folder)
    graph, tensors = trap.graph(port.graph), trap.tensors(weights, port.tensors())
    write_port(folder, replace(port.plan, graph=graph), tensors, "float32")
    write_record(folder, port.record.model_copy(update={"graph": to_record(graph)}))
    sign(folder)


LATER = {name for name, trap in TRAPS.items() if trap.variant in ("resnet50", "resnet50v2", "inception_v3")}
LATER |= {"symmetric for Keras's (0,1)", "same for torchvision's 1"}
"""In CI without a file: the large networks' traps in test_wrong_functions.py, wrong pads in
test_wrong_pads.py.
"""
NAMES = [pytest.param(name, marks=pytest.mark.full if name in LATER else ()) for name in TRAPS]


RightPort = Callable[[str, str, str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def right_port(
    weights_file: WeightsMaker, slim_file: SlimMaker, tmp_path_factory: pytest.TempPathFactory
) -> RightPort:
    """Weights of a variant and zoo, and a port of them to an input size that `verify` finds right; each is
    made once.
    """

    @cache
    def make(variant: str, zoo: str, size: str) -> tuple[Path, Path]:
        suffix = ".h5" if zoo == "keras" else ".pth"
        weights = slim_file(SLIM) if zoo == "slim" else weights_file(variant, zoo, suffix)
        port = tmp_path_factory.mktemp("right") / "port"
        porter.convert(variant, zoo, "torch", weights=weights, input_size=size, out=port, check=False)
        assert porter.verify(port, weights=weights, float64=True).ok
        return weights, port

    return make


@pytest.mark.parametrize("name", NAMES)
def test_verify_names_the_first_wrong_node(name: str, right_port: RightPort, tmp_path: Path) -> None:
    trap = TRAPS[name]
    weights, right = right_port(trap.variant, trap.zoo, trap.size)
    shutil.copytree(right, tmp_path / "port")
    put_in(tmp_path / "port", weights, trap)
    verdict = porter.verify(tmp_path / "port", weights=weights, float64=True)
    assert not verdict.ok and verdict.proof.logits.rel_l2 >= 1e-3
    found = verdict.proof.first_bad
    # torchvision computes its averages in no module: the convolution behind is the first that shows, and
    # names its site.
    assert found is not None and trap.first in (found.path, found.site)
    assert trap.first in verdict.failure()
