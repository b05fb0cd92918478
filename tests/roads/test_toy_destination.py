"""A destination that a package adds, and that is not run: it is written, and proved by porter's own engine
(examples/).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import porter_toy_destination
import pytest
from porter_toy_destination.destination import DESTINATION as TOY
from porter_toy_destination.spellings import SPELLINGS

import porter
from porter.base.errors import CheckFailed, FileError, MappingError, UsageError
from porter.frameworks import computes_in_float32, get_destination, is_converted
from porter.graph import OPS, Add, Elu, Op, Rearrange
from porter.graph.ops import Concat, row_of
from porter.graph.plan import make_plan
from porter.padding import ANY, Size
from tests.support.frameworks.every_op import SIZE, every_op, tensors_of
from tests.support.frameworks.sayable import (
    AT_SIZES,
    expect_equal_tensors,
    expect_near,
    expect_refused,
    plant_in_the_writer,
    sayable,
)
from tests.support.oracle import evaluate
from tests.support.standin_files import sign
from tests.support.toy_files import write_toy

pytestmark = pytest.mark.usefixtures("example_packages")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "source.toy")


def test_a_port_is_written_and_proved_by_porters_own_engine(file: Path, tmp_path: Path) -> None:
    made = porter.convert(file, to="toy", out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok and made.verdict.proof.proves
    assert made.verdict.proof.reference == "the file's own graph" and made.verdict.proof.dtype == "float64"
    assert porter.verify(tmp_path / "port", weights=file).ok
    images = np.random.default_rng(0).standard_normal((2, 3, 23, 18)).astype(np.float32)
    assert np.array_equal(porter.load(tmp_path / "port")(images), made.port.build()(images))


@pytest.mark.parametrize("fact", ["IN_FLOAT32", "CONVERTED"])
def test_it_may_state_what_few_destinations_are(fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"IN_FLOAT32": computes_in_float32, "CONVERTED": is_converted}[fact]
    assert asked(get_destination("tflite")) and not asked(get_destination("toy"))
    monkeypatch.setattr(TOY, fact, True, raising=False)
    assert asked(get_destination("toy"))


@AT_SIZES
def test_every_op_of_its_table(size: Size, of_maps: Any, tmp_path: Path) -> None:
    known = [op for op in OPS.values() if row_of(SPELLINGS, op)]
    graph, said = sayable(every_op(of_maps), size, TOY.CAPABILITIES, TOY.make_net, known)
    lacking = [op for op in SPELLINGS if not any(isinstance(node.op, op) for node in graph.nodes)]
    if size != ANY:  # sums and concats read slices, which the format lacks; the first test has others
        assert lacking == [Add, Concat] and "a toy lrn has an odd size" in said
    plan, tensors = make_plan(graph, size, TOY.CAPABILITIES), tensors_of(graph)
    batch = np.random.default_rng(1).standard_normal((2, 3, *SIZE))
    found = TOY.run(TOY.build(plan, tensors, {}, "float64"), batch, [*graph.by_path])
    expect_near(found, evaluate(graph, tensors, batch), 1e-12)
    TOY.write(tmp_path, plan, tensors, {}, "float64", {})
    expect_equal_tensors(TOY.read_port(tmp_path, plan, {}), tensors)


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (Elu(1.0), "porter writes no layer of Toy for an elu"),
        (Rearrange("c h w -> (h w) c"), "porter writes maps and features for Toy, not arrays of other axes"),
    ],
)
def test_what_it_lacks_is_refused_with_its_node(op: Op, said: str) -> None:
    expect_refused(TOY, op, said)


@pytest.mark.parametrize(
    ("wrote", "instead"),
    [('"slope": 0.1', '"slope": 0.11'), ('"pads": [1, 0, 2, 1]', '"pads": [0, 1, 2, 1]')],
)
def test_a_mistake_of_its_writer_is_refused(
    wrote: str, instead: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_in_the_writer(monkeypatch, TOY, wrote, instead)
    with pytest.raises(CheckFailed, match="is not the source's function"):
        porter.convert(file, to="toy", out=tmp_path / "port")


def test_files_that_were_changed(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "port"
    porter.convert(file, to="toy", out=folder, check=False)
    written = (folder / "model.toy").read_text()
    for changed, said in (
        (written.replace('"slope": 0.1', '"slope": 0.2'), "'slope' differs"),
        ("{}", "cannot be read: 'layers'"),
    ):
        (folder / "model.toy").write_text(changed)
        sign(folder)
        with pytest.raises(FileError, match=said):
            porter.verify(folder, weights=file)
    (folder / "model.toy").write_text(written)
    with np.load(folder / "model.npz") as stored:
        np.savez(folder / "model.npz", **{name: array for name, array in stored.items() if name != "stem/1"})
    sign(folder)
    with pytest.raises(MappingError, match=r"stem/1: expected a tensor of shape \(12,\), got none"):
        porter.verify(folder, weights=file)


def test_another_number_type(file: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="porter writes Toy's tensors in float32 and float64, not in float16"
    ):
        porter.convert(file, to="toy", out=tmp_path / "port", dtype="float16")


def test_it_is_a_small_folder() -> None:
    lines = sum(
        len(path.read_text().splitlines())
        for path in Path(porter_toy_destination.__file__).parent.glob("*.py")
    )
    assert lines <= 300
