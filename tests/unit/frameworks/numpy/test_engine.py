"""Porter's own engine: the order of values, layouts, and what it refuses. Its operators have tests of their
own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from porter.base.errors import CannotRun, Contradiction, UsageError
from porter.base.ways_to_run import FP32, Run
from porter.filegraph.program import KernelProgram, OperatorCall
from porter.formats.recognition import FORMATS
from porter.frameworks.numpy import engine
from porter.frameworks.numpy.engine import NumpyModel
from tests.support.evaluation.protocols import PROTOCOLS, pixels_of
from tests.unit.test_rooms import reached

ROWS: dict[str, Any] = {
    "add": lambda stated, x, other: x + (stated["more"] if other is None else other),
    "halves": lambda stated, x: (x[:, :1], x[:, 1:]),
    "by place": lambda stated, x: x * np.arange(x.shape[3]),
    "mean": lambda stated, x: x.mean((1, 2)),
    "fails": lambda stated, x: x @ x[:, :0],
}
STEPS = (
    OperatorCall("add", ("image", ""), ("sum",), {"more": 1}),
    OperatorCall("add", ("sum", "offset"), ("sum",), {}),  # in place: the name is given again
    OperatorCall("halves", ("sum",), ("first", "rest"), {}),
    OperatorCall("fails", ("rest",), ("failed",), {}),
    OperatorCall("strange", ("first",), ("unknown",), {}),
)
BATCH = np.random.default_rng(0).standard_normal((2, 3, 4, 5))


def model(dtype: Any = "float64") -> NumpyModel:
    return NumpyModel(KernelProgram("image", STEPS, ROWS), {"offset": np.full(1, 0.1, np.float32)}, dtype)


def test_values_by_name_of_what_they_need_only() -> None:
    found = engine.run_reference(model(), BATCH, {"a": "sum", "b": "rest", "c": "rest", "d": "nothing"})
    wanted = BATCH + 1 + np.float64(np.float32(0.1))
    assert found.keys() == {"a", "b", "c"}
    assert (
        np.array_equal(found["a"], wanted)
        and np.array_equal(found["b"], wanted[:, 1:])
        and np.array_equal(found["b"], found["c"])
    )
    assert model("float32")(BATCH, ("sum",))["sum"].dtype == np.float32


def test_each_step_by_itself_from_the_values_that_are_given() -> None:
    steps = (
        OperatorCall("halves", ("image",), ("low", "high"), {}),
        OperatorCall("add", ("low", "high"), ("sum",), {}),
    )
    replay = NumpyModel(KernelProgram("image", steps, ROWS), {}, "float32").replay(
        {"image": BATCH[:, :2], "low": np.full((2, 1, 4, 5), 7.0)}
    )
    (_, halves), (last, (found,)) = replay
    assert last.outputs == ("sum",) and found.dtype == np.float32
    assert np.array_equal(halves[0], BATCH[:, :1].astype(np.float32))
    assert np.array_equal(found, 7 + BATCH[:, 1:2].astype(np.float32))


def test_maps_of_a_file_that_has_channels_last() -> None:
    steps = (
        OperatorCall("by place", ("image",), ("scaled",), {}),
        OperatorCall("mean", ("scaled",), ("means",), {}),
    )
    found = NumpyModel(KernelProgram("image", steps, ROWS, channels_last=True), {}, "float64")(
        BATCH, ("scaled", "means")
    )
    wanted = BATCH * np.arange(3).reshape(3, 1, 1)
    assert np.array_equal(found["scaled"], wanted) and np.allclose(
        found["means"], wanted.mean((2, 3)), rtol=1e-15
    )


def test_what_it_cannot_run_is_told_with_its_place() -> None:
    with pytest.raises(CannotRun, match="unknown: porter's own engine has no operator 'strange'"):
        model()(BATCH, ("unknown",))
    with pytest.raises(Contradiction, match="failed: porter reads this 'fails', and its own engine"):
        model()(BATCH, ("failed",))
    for device, precision, tap in (("cuda", "fp32", "sum"), ("cpu", "bf16", "sum"), ("cpu", "fp32", None)):
        with pytest.raises(UsageError, match="fp32 on the CPU"):
            engine.classifier(model(), PROTOCOLS[0], device, Run(precision), tap)  # type: ignore[arg-type]


def test_photos() -> None:
    pixels = pixels_of(PROTOCOLS[0])
    found = engine.classifier(model("float32"), PROTOCOLS[0], "cpu", FP32, "first")(pixels)()
    assert found.shape[0] == pixels.shape[0] * pixels.shape[1] and found.dtype == np.float32


def test_its_rows_are_independent_of_how_porter_reads_a_file() -> None:
    """Neither porter's ops, nor its pads, nor a reader: otherwise a mistake of the reader would be in the
    proof too.
    """
    rows = [format.rows for format in FORMATS.values() if format.rows] + ["porter_toy_format.rows"]
    assert all((format.engine == "numpy") == (format.rows is not None) for format in FORMATS.values())
    for module in (
        *rows,
        "porter.filegraph.kernels.windows",
        "porter.filegraph.kernels.values",
        "porter.filegraph.program",
        "porter.filegraph.value_names",
    ):
        decoding = ("porter.graph", "porter.padding", "porter.filegraph.")
        # `places` says only that a file counts further than it has.
        neutral = {"porter.filegraph.places", "porter.filegraph.program", "porter.filegraph.value_names"}
        used = {name for name in reached(module) - neutral if not name.startswith("porter.filegraph.kernels")}
        assert not [name for name in used if name.startswith(decoding)], module
    assert "porter.graph.plan" in reached("porter.verification.check")
