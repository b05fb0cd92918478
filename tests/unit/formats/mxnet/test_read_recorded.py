"""What porter reads of MXNet's operators, and what its own engine computes of them, held to what MXNet 1.9.1
gave: the two could share a mistake.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from porter.base.dtypes import Array
from porter.filegraph.file_graph import Foreign
from porter.formats.reading import read_checkpoint
from porter.frameworks import engine_name, get_engine
from tests.support.filegraph.values import distance, values_of
from tests.support.mxnet_cases import CASES, RECORDED, images
from tests.support.mxnet_files import write_mxnet

REFUSED = frozenset(
    {
        "norm of rows",
        "norm of the last axis",
        "leaky rrelu",
        "arctan",
        "rint",
        "round",
        "logical_not",
        "cbrt",
        "rcbrt",
        "reversed power",
        "broadcast_power",
        "broadcast_greater",
        "broadcast_hypot",
        "_mod_scalar",
        "_equal_scalar",
        "smooth_l1",
        "_greater_scalar of numbers",
        "_greater_equal_scalar of numbers",
        "_lesser_scalar of numbers",
        "_lesser_equal_scalar of numbers",
        "softmax output of a map",
        "svm output",
        "reshape in reverse",
        "lp pool of order 3",
        "bilinear resize to odd sizes",
    }
)
ROUNDED = 1e-6
"""The records are in float32, and MXNet has some operators only in float32."""


@pytest.fixture(scope="module")
def recorded() -> dict[str, Array]:
    return dict(np.load(RECORDED))


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_what_mxnet_computes(name: str, recorded: dict[str, Array], tmp_path: Path) -> None:
    case = CASES[name]
    file = write_mxnet(tmp_path / "model", case.lines, case.arrays)
    file.write_text(json.dumps(case.symbol))
    checkpoint = read_checkpoint(file)
    graph = checkpoint.graph
    assert graph is not None
    assert any(isinstance(node.op, Foreign) for node in graph.nodes) == (name in REFUSED)
    if name in REFUSED:
        return
    end, engine, wanted = graph.outputs[0], get_engine(engine_name(checkpoint)), recorded[name]
    read = values_of(graph, checkpoint.tensors, images())[end]
    model = engine.build_file(checkpoint, "float64", graph.size)
    run = engine.run_reference(model, images().astype(np.float64), {end: str(graph.by_name[end].tap)})[end]
    for found in (read, run):
        assert found.shape == wanted.shape and distance(found, wanted.astype(np.float64)) <= ROUNDED


def test_an_attribute_that_a_reader_passes_over_is_refused_by_its_name(tmp_path: Path) -> None:
    """It would make another function of the same operator, as `layout` does of a pool."""
    for name, case in CASES.items():
        if name in REFUSED:
            continue
        *before, (last, op, stated, inputs) = case.lines
        planted = case._replace(lines=[*before, (last, op, {**stated, "planted": "NHWC"}, inputs)])
        file = write_mxnet(tmp_path / "model", planted.lines, case.arrays)
        file.write_text(json.dumps(planted.symbol))
        graph = read_checkpoint(file).graph
        assert graph is not None
        kinds = [node.op.kind for node in graph.nodes if isinstance(node.op, Foreign)]
        assert len(kinds) == 1 and kinds[0].endswith("with planted"), name


@pytest.mark.parametrize("name", ["l2 of cells", "pad by the edge"])
def test_a_mode_that_mxnet_does_not_have_is_refused(name: str, tmp_path: Path) -> None:
    """It would be another function than that of any mode."""
    case = CASES[name]
    *before, (last, op, stated, inputs) = case.lines
    lines = [*before, (last, op, {**stated, "mode": "planted"}, inputs)]
    graph = read_checkpoint(write_mxnet(tmp_path / "model", lines, case.arrays)).graph
    assert graph is not None
    kinds = [node.op.kind for node in graph.nodes if isinstance(node.op, Foreign)]
    assert kinds == [f"{op} by the mode planted"]


def test_every_case_is_recorded(recorded: dict[str, Array]) -> None:
    assert recorded.keys() == CASES.keys()
