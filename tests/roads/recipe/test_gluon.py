"""The zoo of MXNet's Gluon: the names and shapes of MXNet 1.9.1's own parameters, and under `full` what MXNet
computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import porter
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import get_dialect
from porter.graph import BatchNorm, tensor_shapes
from porter.recipe import expand, find_recipe, layer_names
from porter.recipe.transforms import undo_transforms
from porter.source.fitting.candidate import Candidate
from porter.verification.verdict import Verdict
from tests.support.mxnet_runs import expect_given, gluon_name, needs_mxnet, write_gluon

NETWORKS = {
    "resnet18": ("ab5a24c21cea6850", "b7fb74b4b129889a"),
    "resnet34": ("a4436f4dcf04bf17", "bcacd867c663e260"),
    "resnet50": ("f047044ef3bb3717", "3ba708f1c09b7cee"),
    "resnet101": ("3fa0feb20dbdfa6d", "64f620ccbddfcbe6"),
    "resnet152": ("ddfcba8169021061", "ad9dcf5bd6c93cdb"),
    "resnet18v2": ("1f907775e8daac0d", "fe1e6ad31e741d37"),
    "resnet34v2": ("bcd956a006855ad5", "420e8ea781b3f4b2"),
    "resnet50v2": ("ac84b459b76aeb6b", "ca8a2f7274b3f828"),
    "resnet101v2": ("bac244978f695a4d", "9f066da94f2a516f"),
    "resnet152v2": ("a742df38cb7f7d13", "b77add9bd3fcceaf"),
    "mobilenet_v1_0.25": ("6da320af777f8168", "6c3837d287c85e8f"),
    "mobilenet_v1_0.5": ("d0d7d89ac73ad272", "7f3436d1840e8571"),
    "mobilenet_v1_0.75": ("705ffa306c4eb712", "af546fcd63d478ee"),
    "mobilenet_v1": ("66ee69ba1fa190ab", "57b6531f45da4315"),
    "mobilenet_v2_0.25": ("efbddfc7c741e197", "99040a622b5ac86c"),
    "mobilenet_v2_0.5": ("2a7cf699ce045d4f", "211cce142757b4df"),
    "mobilenet_v2_0.75": ("6325077a21b91bc4", "b56f0a30295c1707"),
    "mobilenet_v2": ("884fc94ed7aa9ef2", "81d2d2c9f1df9222"),
    "inception_v3": ("dd0bc1464e2571b3", "d7030b21087a67fa"),
}
"""By variant: digests of the names and shapes of its parameters, by attributes
(`_collect_params_with_prefix()`) and by prefixes (`collect_params()`, without the network's own prefix).
"""


def parameters(variant: str, generation: str | None) -> Iterator[tuple[str, tuple[int, ...]]]:
    """All parameters of a network, as MXNet calls them. A norm has a factor there in any case."""
    member = find_recipe(variant).member(variant, "gluon")
    graph, dialect = expand(member), get_dialect("mxnet")
    layers = layer_names(member, graph, generation)
    for path, roles in tensor_shapes(graph).items():
        node, layer = graph.by_path[path], layers[path]
        between = "_" if generation else "."
        for role, names in dialect.tensor_names(graph, node, layer.name).items():
            name = next(name for name in names if name.startswith(f"{layer.name}{between}"))
            yield (
                name,
                undo_transforms(layer.transforms, role, np.broadcast_to(np.float32(0), roles[role])).shape,
            )
        if isinstance(node.op, BatchNorm) and not node.op.scale:
            (ignored,) = (
                name
                for name in (f"{layer.name}{between}gamma",)
                if any(fnmatchcase(name, rule.pattern) for rule in member.zoo.ignore)
            )
            yield ignored, roles["mean"]


@pytest.mark.parametrize("variant", NETWORKS)
def test_every_parameter_is_mxnets(variant: str) -> None:
    for generation, digest in zip((None, "save_params"), NETWORKS[variant], strict=True):
        lines = sorted(f"{name} {shape}" for name, shape in parameters(variant, generation))
        assert sha256("\n".join(lines).encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("prefix", ["", "mobilenet0_", "mobilenet12_"])
def test_a_network_may_be_the_second_of_its_process(prefix: str, tmp_path: Path) -> None:
    arrays = {
        f"{prefix}{name}": np.zeros(shape, np.float32)
        for name, shape in parameters("mobilenet_v1_0.25", "save_params")
    }
    member = find_recipe("mobilenet_v1").member("mobilenet_v1_0.25", "gluon")
    naming = Candidate.of(member, Checkpoint(tmp_path, "mxnet", "mxnet", arrays)).naming
    assert (naming.generation, naming.layers["block1/pointwise/conv"].name) == (
        "save_params",
        f"{prefix}conv4",
    )


def ported(variant: str, file: Path, to: str) -> Verdict | None:
    return porter.convert(
        variant, source="gluon", weights=file, to=to, out=file.with_name(to), overwrite=True
    ).verdict


@needs_mxnet
@pytest.mark.parametrize("variant", NETWORKS)
def test_a_port_of_each_form_of_its_file_is_what_mxnet_computes(variant: str, tmp_path: Path) -> None:
    sides = (299,) if variant == "inception_v3" else (64, 65)  # its last pool has 8x8 cells
    seen = write_gluon(gluon_name(variant), tmp_path, *sides)
    for to in ("torch", "tf", "onnx", "mxnet"):
        verdict = ported(variant, tmp_path / "net-0000.params", to)
        assert verdict is not None and verdict.ok and verdict.proof.reference == "the file's own graph"
    for file in (
        tmp_path / name for name in ("net-0000.params", "structured/net.params", "stripped/net.params")
    ):
        assert porter.inspect(file).matches[0].member.is_a == (variant, "gluon")
        ported(variant, file, "torch")
        for each in seen:
            expect_given(file.with_name("torch"), each)
