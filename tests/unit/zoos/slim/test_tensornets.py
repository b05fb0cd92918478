"""TensorNets' code as a reference: what it needs, what it leaves behind, and how it is read."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import NotInstalled, UsageError
from porter.formats.tensorflow import import_tensorflow
from porter.zoos.slim import tensornets
from porter.zoos.slim.network import _frozen_network, variables_of
from tests.support.tensornets_files import needs_tensornets, write_tensornets

VARIANT = "mobilenet_v1_0.25"


def test_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    with pytest.raises(UsageError, match="reference 'tensornets' has no variant 'resnet18'"):
        variables_of(tensornets.construct, "resnet18", 1000, (64, 64))
    monkeypatch.setattr(tensornets, "distribution", absent)
    with pytest.raises(NotInstalled, match="tensornets, TensorNets' own code, is not installed") as caught:
        tensornets._import_networks.__wrapped__("resnets")
    assert caught.value.next is not None and caught.value.next.endswith("tensornets==0.4.6")
    assert sys.modules["tensorflow"] is import_tensorflow()


def test_a_constant_is_made_once_and_one_of_another_number_type_is_another() -> None:
    tensorflow = import_tensorflow().compat.v1
    shared = tensornets._SharedConstants(tensorflow)
    with tensorflow.Graph().as_default():
        zeros = shared.constant(np.zeros(3, np.float32))
        assert shared.constant(np.zeros(3, np.float32)) is zeros
        assert shared.constant(np.zeros(3, np.int32)).dtype == "int32"


@needs_tensornets
def test_a_release_that_has_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        version = "9"

        def locate_file(self, _: str) -> Path:
            return tmp_path

    monkeypatch.setattr(tensornets, "distribution", lambda _: Found())
    monkeypatch.setattr(tensornets, "_PACKAGE", "porter_tensornets_9")
    with pytest.raises(
        NotInstalled, match="tensornets 9 cannot be imported: No module named 'porter_tensornets_9"
    ):
        tensornets._import_networks.__wrapped__("resnets")
    monkeypatch.delitem(sys.modules, "porter_tensornets_9")


@needs_tensornets
def test_inspect_knows_its_files(tmp_path: Path) -> None:
    found = porter.inspect(write_tensornets(tmp_path / "weights.npz", VARIANT))
    assert (found.checkpoint.format, found.checkpoint.dialect) == ("npz", "tf")
    best = found.matches[0]
    assert (*best.member.is_a, best.score, best.missing, best.unexpected) == (
        VARIANT,
        "tensornets",
        1.0,
        (),
        (),
    )


@needs_tensornets
def test_norms_have_the_epsilon_of_tensorflow_1() -> None:
    frozen, _ = _frozen_network(tensornets.construct, "resnet50v2", 10, (64, 64))
    assert {node.attr["epsilon"].f for node in frozen.node if node.op == "FusedBatchNormV3"} == {
        float(np.float32(1.001e-5))
    }


@pytest.mark.full
@needs_tensornets
def test_a_resnext_has_each_sum_once() -> None:
    """Sixteen blocks, and four kernels that sum groups, one for each width: two units of a stage share
    theirs.
    """
    frozen, _ = _frozen_network(tensornets.construct, "resnext50_32x4d", 10, (64, 64))
    summed = [node.input[1] for node in frozen.node if node.name.endswith("/gconv")]
    assert len(summed) == 16 and len(set(summed)) == 4
