"""TF-slim's MobileNets as people have them: checkpoints with and without moving averages, frozen graphs and
SavedModels.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import MappingError
from porter.port import read_port
from tests.support.slim_files import SMALL, SlimFile, slim_checkpoint, write_slim

pytestmark = pytest.mark.usefixtures("in_double")

V1, V2 = SMALL
FILES: dict[str, dict[str, Any]] = {
    "v1": {"format": "v1"},
    "v2": {"format": "v2"},
    "v1-averages": {"format": "v1", "ema": True, "slots": True},
    "v2-averages": {"format": "v2", "ema": True, "slots": True},
    "v2-tower": {"format": "v2", "ema": True, "scope": "tower_0"},
    "frozen": {"format": "frozen"},
    "frozen-one-image": {"format": "frozen", "batch": 1, "softmax": False},
    "saved_model": {"format": "saved_model"},
    "saved_model-160": {"format": "saved_model", "size": 160},
}
CASES = [(variant, kind, framework) for variant in SMALL for kind in FILES for framework in ("torch", "tf")]
ALIKE = ("v1", "v2-tower")
# In CI every kind of file once, of checkpoints those with averages, and of MobileNet v1, which has a third of
# the variables: what a kind does to one it does to all.
QUICK = [
    (V1, kind, "torch") for kind in FILES if kind not in (*ALIKE, "v2", "v1-averages", "saved_model-160")
]

SlimMaker = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def slim_file(tmp_path_factory: pytest.TempPathFactory) -> SlimMaker:
    """Writes one of FILES for a variant, each once."""
    made: dict[tuple[str, str], Path] = {}
    folder = tmp_path_factory.mktemp("slim")

    def make(variant: str, kind: str) -> Path:
        if (variant, kind) not in made:
            made[variant, kind] = write_slim(folder / f"{variant}-{kind}", SlimFile(variant, **FILES[kind]))
        return made[variant, kind]

    return make


def check_file(variant: str, kind: str, framework: str, slim_file: SlimMaker, tmp_path: Path) -> None:
    weights = slim_file(variant, kind)
    made = porter.convert(variant, "slim", framework, weights=weights, out=tmp_path / "port", check=True)
    record = made.port.record
    assert (record.classes, record.source_classes, record.background) == (1000, 1001, False)
    carries_graph = kind.startswith(("frozen", "saved_model"))
    assert made.verdict is not None
    assert made.verdict.proof.reference == ("the file's own graph" if carries_graph else "tf_slim")
    assert made.verdict.proof.dtype == "float64" and all(
        node.rel_l2 <= 1e-10 for node in made.verdict.proof.nodes
    )
    assert record.activation == ("softmax" if kind in ("frozen", "saved_model", "saved_model-160") else None)
    windowed = {node.path for node in made.port.graph.nodes if node.op_name in ("conv", "dense")}
    assert windowed <= {node.path for node in made.verdict.proof.nodes}
    averaged = any("using moving averages" in note for note in record.source.notes)
    assert averaged == bool(FILES[kind].get("ema"))
    # The calibrated weights are in the file, in the averages where it has any, and no others are in the port.
    name = "MobilenetV1/Conv2d_0/weights" if variant == V1 else "MobilenetV2/Conv/weights"
    kernel = slim_checkpoint(variant).tensors[name].transpose(3, 2, 0, 1)
    assert np.array_equal(read_port(tmp_path / "port").tensors()["stem/conv"]["kernel"], kernel)


@pytest.mark.parametrize(("variant", "kind", "framework"), QUICK)
def test_a_slim_file_is_read_and_ported(
    variant: str, kind: str, framework: str, slim_file: SlimMaker, tmp_path: Path
) -> None:
    check_file(variant, kind, framework, slim_file, tmp_path)


@pytest.mark.parametrize("kind", ALIKE)
def test_a_checkpoint_of_another_kind_gives_the_port_that_is_proved(
    kind: str, slim_file: SlimMaker, tmp_path: Path
) -> None:
    proved, other = (
        porter.convert(
            V1, "slim", "torch", weights=slim_file(V1, each), out=tmp_path / each, check=False
        ).port
        for each in ("v2-averages", kind)
    )
    averaged = ["using moving averages" in " ".join(port.record.source.notes) for port in (proved, other)]
    assert other.graph == proved.graph and averaged == [True, bool(FILES[kind].get("ema"))]
    np.testing.assert_equal(other.tensors(), proved.tensors())


@pytest.mark.full
@pytest.mark.parametrize(("variant", "kind", "framework"), [case for case in CASES if case not in QUICK])
def test_every_slim_file_is_read_and_ported(
    variant: str, kind: str, framework: str, slim_file: SlimMaker, tmp_path: Path
) -> None:
    check_file(variant, kind, framework, slim_file, tmp_path)


def test_moving_averages_of_a_part_are_refused_with_a_list(tmp_path: Path) -> None:
    weights = write_slim(tmp_path / "partial", SlimFile(V1, ema=True, partial=3))
    with pytest.raises(MappingError, match="have none") as caught:
        porter.convert(V1, "slim", "torch", weights=weights, out=tmp_path / "port", check=False)
    assert "MobilenetV1/Conv2d_0/weights" in caught.value.message


def test_a_retrained_graph_is_ported_with_its_own_head_and_its_inner_one_on_request(tmp_path: Path) -> None:
    weights = write_slim(tmp_path / "retrained", SlimFile(V1, "frozen", size=96, retrained=2))
    made = porter.convert(V1, "slim", "torch", weights=weights, out=tmp_path / "own", check=True)
    record = made.port.record
    assert (record.classes, record.source_classes, record.labels, record.activation) == (
        2,
        2,
        None,
        "softmax",
    )
    assert made.verdict is not None and made.verdict.proof.reference == "the file's own graph"
    assert not any("left out" in warning for warning in made.warnings) and not record.tensors.ignored
    compared = {node.path for node in made.verdict.proof.nodes}
    assert compared >= {node.path for node in made.port.graph.nodes if node.op_name == "dense"}
    chosen = ("MobilenetV1/Logits/Conv2d_1c_1x1=head/logits",)
    inner = porter.convert(
        V1, "slim", "torch", weights=weights, out=tmp_path / "inner", mapped=chosen, check=True
    )
    record = inner.port.record
    assert (record.classes, record.source_classes, record.labels, record.activation) == (
        1000,
        1001,
        "imagenet-1000",
        None,
    )
    assert any("final_training_ops" in warning for warning in inner.warnings)
    assert set(record.tensors.ignored) == {"final_training_ops/weights", "final_training_ops/biases"}
    assert inner.verdict is not None and inner.verdict.proof.reference == "the file's own graph"
    with pytest.raises(MappingError, match="nowhere") as caught:
        porter.convert(
            V1,
            "slim",
            "torch",
            weights=weights,
            out=tmp_path / "no",
            mapped=("nowhere=head/logits",),
            check=False,
        )
    lines = ["add one of these:", 'mapped="final_training_ops=head/logits"', f'mapped="{chosen[0]}"']
    assert str(caught.value.next).splitlines() == lines and str(caught.value).splitlines()[1:] == [
        f"  {line}" for line in lines
    ]


@pytest.mark.parametrize(
    ("variant", "kind"), [(V1, "v1"), (V1, "v2-averages"), (V1, "frozen"), (V1, "saved_model")]
)
def test_inspect_knows_a_slim_file(variant: str, kind: str, slim_file: SlimMaker) -> None:
    best = porter.inspect(slim_file(variant, kind)).matches[0]
    assert best.member.is_a == (variant, "slim")


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_a_checkpoint_may_be_named_by_its_files(suffix: str, slim_file: SlimMaker, tmp_path: Path) -> None:
    prefix = slim_file(V1, "v2")
    named = prefix.with_name(prefix.name + suffix)
    by_file = porter.convert(V1, "slim", "torch", weights=named, out=tmp_path / "a", check=False)
    by_prefix = porter.convert(V1, "slim", "torch", weights=prefix, out=tmp_path / "b", check=False)
    assert by_file.port.record.source.sha256 == by_prefix.port.record.source.sha256


def test_ported_logits_are_those_of_the_frozen_graph_with_the_background_kept(
    slim_file: SlimMaker, tmp_path: Path
) -> None:
    made = porter.convert(
        V1,
        "slim",
        "torch",
        weights=slim_file(V1, "frozen"),
        out=tmp_path / "port",
        keep_background=True,
        check=True,
    )
    assert made.port.record.classes == 1001 and made.port.record.background
