"""A format that a package adds, and that porter only reads: it is ported and proved (examples/)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import porter_toy_format
import pytest
from porter_toy_format import read, rows

import porter
from porter.base.errors import CheckFailed, FileError, MappingError, UsageError
from porter.filegraph.file_graph import Stored
from porter.filegraph.readers import node_reader, op_reader
from porter.filegraph.walk import Reader
from porter.formats.reading import read_checkpoint
from porter.graph import Flatten, Relu
from porter.padding import Convention, Window
from tests.support.filegraph.values import values_as_run
from tests.support.standin import smooth_images
from tests.support.toy_files import SIZE, write_toy

pytestmark = pytest.mark.usefixtures("in_double")

LAYOUTS = ("NCHW", "NHWC")


pytestmark = pytest.mark.usefixtures("example_packages")


@pytest.mark.parametrize(
    ("layout", "destination"), [("NCHW", "torch"), ("NHWC", "torch"), ("NHWC", "tf"), ("NCHW", "onnx")]
)
def test_it_is_ported_and_proved_by_porters_own_engine(layout: str, destination: str, tmp_path: Path) -> None:
    made = porter.convert(write_toy(tmp_path / "model.toy", layout), to=destination, out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok and made.verdict.proof.proves
    assert made.verdict.proof.reference == "the file's own graph" and made.verdict.proof.dtype == "float64"
    assert not (made.verdict.proof.uncompared or made.verdict.proof.unexcited)
    assert porter.verify(made.port.folder, weights=tmp_path / "model.toy").ok


def test_it_is_inspected(tmp_path: Path) -> None:
    found = porter.inspect(write_toy(tmp_path / "model.toy")).record()
    assert (found["format"], found["framework"], found["classes"]) == ("toy", None, 7) and "--to tf" in found[
        "convert"
    ]


def test_nothing_is_written_in_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no framework 'numpy'"):
        porter.convert(write_toy(tmp_path / "model.toy"), to="numpy", out=tmp_path / "port")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_engine_gives_what_the_oracle_makes_of_the_graph(layout: str, tmp_path: Path) -> None:
    values = values_as_run(
        read_checkpoint(write_toy(tmp_path / "model.toy", layout)),
        smooth_images(3, SIZE, 2, 2).transpose(0, 2, 3, 1),
    )
    assert values["shares"].std(axis=0).max() > 0.01


def _turned(layer: read.Layer, sides: tuple[int, int]) -> tuple[Window, Convention]:
    window, convention = WINDOW(layer, sides)
    top, bottom, left, right = convention.pads
    return window, replace(convention, pads=(bottom, top, left, right))


def _transposed(layer: read.Layer, axes: str) -> dict[str, Stored]:
    return HELD(layer, "OIWH" if layer.name == "last" else axes)


def _stated(kind: str, **stated: Any) -> dict[str, Reader[read.Layer]]:
    """The readers, of which one takes these attributes for those of the file."""
    reader = read.READERS[kind]
    return {
        **read.READERS,
        kind: lambda walk, layer: reader(walk, replace(layer, stated={**layer.stated, **stated})),
    }


WINDOW, HELD = read._window, read._held
MISTAKES: Mapping[str, tuple[str, Any]] = {
    "a pad on the other side": ("_window", _turned),
    "a transposed kernel": ("_held", _transposed),
    "another divisor": ("READERS", _stated("average_pool", divisor="clipped_window")),
    "another epsilon": ("READERS", _stated("norm", epsilon=1e-5)),
    "another slope": ("READERS", _stated("leaky_relu", slope=0.11)),
    "a sum that is not divided": ("READERS", _stated("lrn", alpha=0.9)),
    "no bound": ("READERS", {**read.READERS, "relu6": op_reader(Relu())}),
    "the other order": (
        "READERS",
        {**read.READERS, "flatten": node_reader(lambda layer, x: x.apply_op(Flatten(5, 6, "HWC")))},
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_reader_is_refused_by_the_proof(
    mistake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(read, name, wrong)
    with pytest.raises(CheckFailed, match="is not the source's function"):
        porter.convert(write_toy(tmp_path / "model.toy"), to="torch", out=tmp_path / "port")


def test_an_operator_without_a_row_leaves_the_port_unproved_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lacking = {kind: row for kind, row in rows._rows(lambda kernel: kernel, 1).items() if kind != "lrn"}
    monkeypatch.setattr(rows, "_rows", lambda on_maps, channels: lacking)
    made = porter.convert(write_toy(tmp_path / "model.toy"), to="torch", out=tmp_path / "port")
    assert made.verdict is None and "even: porter's own engine has no operator 'lrn'" in made.warnings[-1]


def test_a_damaged_model_is_told(tmp_path: Path) -> None:
    file = write_toy(tmp_path / "model.toy")
    stated = json.loads(file.read_text())
    stated["layers"][3]["kind"] = "strange"
    file.write_text(json.dumps(stated))
    with pytest.raises(MappingError, match=r"porter has no op for 'most' \(strange\)"):
        porter.convert(file, to="torch", out=tmp_path / "port")
    file.with_suffix(".npz").unlink()
    with pytest.raises(FileError, match="its tensors are not beside it"):
        porter.convert(file, to="torch", out=tmp_path / "port")


def test_it_is_a_small_folder() -> None:
    lines = sum(
        len(path.read_text().splitlines()) for path in Path(porter_toy_format.__file__).parent.glob("*.py")
    )
    assert lines <= 400
