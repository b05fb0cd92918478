"""Readers return what a node gives, and the driver of porter.filegraph.walk keeps it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import porter
from porter.cli.terminal import EX_SOFTWARE
from porter.formats.caffe.operators import READERS as CAFFE
from porter.formats.mxnet.operators import READERS as MXNET
from porter.formats.torch7.operators import READERS as TORCH7
from tests.fuzzing.seeds import SEEDS
from tests.support.fixtures import Cli

FOLDER = Path(porter.__file__).parent


def test_no_reader_writes_what_the_driver_keeps() -> None:
    writes = re.compile(
        r"\b(walk|flow)\.\w+(\[[^]]*\])?(, [\w.]+)* ?[-|+]?= "
        r"|\.(found|blank|repeated|computed|evaluated|exact)\.(update|pop)\("
    )
    drivers = {FOLDER / "filegraph" / name for name in ("walk.py", "reading.py", "dataflow.py")}
    for file in {*(FOLDER / "filegraph").rglob("*.py"), *(FOLDER / "formats").rglob("*.py")} - drivers:
        assert not writes.search(file.read_text()), file


@pytest.mark.parametrize(
    "mistake", [TypeError("planted"), IndexError("planted"), KeyError("planted")], ids=repr
)
@pytest.mark.parametrize(
    ("reader", "readers", "op"),
    [("caffe", CAFFE, "Pooling"), ("mxnet", MXNET, "Pooling"), ("torch7", TORCH7, "SpatialMaxPooling")],
)
def test_a_mistake_in_a_reader_is_a_fault_of_porters_and_no_damage(
    reader: str,
    readers: Mapping[str, Any],
    op: str,
    mistake: Exception,
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(walk: Any, node: Any) -> None:
        raise mistake

    file = SEEDS[reader][0](tmp_path)
    assert cli("inspect", str(file)).status != EX_SOFTWARE
    monkeypatch.setitem(readers, op, fail)
    ran = cli("inspect", str(file))
    assert (
        ran.status == EX_SOFTWARE
        and f"{op}: {type(mistake).__name__}: " in ran.err
        and "a fault of porter's" in ran.err
    )
