"""MXNet's ports: of files and of variants, of a mistaken writer, and of files that someone changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import CheckFailed, FileError, MappingError, UsageError
from porter.frameworks import get_destination
from porter.frameworks.mxnet.maker import SymbolMaker
from tests.support.mxnet_files import write_mxnet
from tests.support.random_graphs import difference
from tests.support.standin_files import sign
from tests.unit.formats.mxnet.test_read import LINES, SIZE, arrays


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mxnet(tmp_path_factory.mktemp("file") / "model", LINES, arrays())


def test_a_port_of_a_symbol(file: Path, tmp_path: Path) -> None:
    made = porter.convert(file, to="mxnet", input_size="21x28", out=tmp_path / "port")
    assert (
        made.verdict is not None
        and made.verdict.ok
        and made.verdict.proof.reference == "the file's own graph"
    )
    assert porter.verify(tmp_path / "port", weights=file).ok
    shutil.copytree(tmp_path / "port", tmp_path / "others", ignore=shutil.ignore_patterns("port.json"))
    again = porter.convert(
        tmp_path / "others" / "model-symbol.json", to="torch", out=tmp_path / "torch", check=False
    )
    images = np.random.default_rng(0).standard_normal((2, 3, *SIZE)).astype(np.float32)
    torch = get_destination("torch").ENGINE.run(again.port.build(), images, [again.port.graph.output])[
        again.port.graph.output
    ]
    assert difference(porter.load(tmp_path / "port")(images), torch) < 1e-5
    for path, roles in made.port.tensors().items():
        assert all(np.array_equal(again.port.tensors()[path][role], array) for role, array in roles.items())
    with pytest.raises(
        UsageError, match="porter writes MXNet's tensors in float32 and float64, not in float16"
    ):
        porter.convert(file, to="mxnet", input_size="21x28", out=tmp_path / "half", dtype="float16")


@pytest.mark.parametrize(
    ("wrote", "instead"),
    [
        ('"stride": "(2, 2)", "pad": "(1, 1)"', '"stride": "(2, 2)", "pad": "(0, 1)"'),
        ('"pooling_convention": "full"', '"pooling_convention": "valid"'),
        ('"count_include_pad": "True"', '"count_include_pad": "False"'),
        ('"eps": "2e-05"', '"eps": "0.001"'),
        ('"fix_gamma": "False"', '"fix_gamma": "True"'),
        ('"scalar": "-0.5"', '"scalar": "0.5"'),
    ],
)
def test_a_mistake_of_the_writer_is_seen(
    wrote: str, instead: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SymbolMaker.text

    def mistaken(self: SymbolMaker, *args: Any) -> str:
        assert wrote in text(self, *args)
        return text(self, *args).replace(wrote, instead, 1)

    monkeypatch.setattr(SymbolMaker, "text", mistaken)
    with pytest.raises(CheckFailed):
        porter.convert(file, to="mxnet", input_size="21x28", out=tmp_path / "port")


def test_files_that_were_changed(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "port"
    porter.convert(file, to="mxnet", input_size="21x28", out=folder, check=False)
    written, weights = (folder / "model-symbol.json").read_text(), (folder / "model-0000.params").read_bytes()
    for wrote, instead in (
        ('"pad": "(1, 1)"', '"pad": "(1, 0)"'),
        ('"pooling_convention": "full"', '"pooling_convention": "valid"'),
    ):
        assert wrote in written
        (folder / "model-symbol.json").write_text(written.replace(wrote, instead, 1))
        sign(folder)
        with pytest.raises(
            FileError, match=r"the net is not the one that port.json records: '(conv|most)' differs"
        ):
            porter.verify(folder, weights=file)
    (folder / "model-symbol.json").write_text(written)
    (folder / "model-0000.params").write_bytes(weights.replace(b"arg:fc_bias", b"arg:fc_bia_"))
    sign(folder)
    with pytest.raises(MappingError, match=r"fc_bias: expected a tensor of shape \(6,\), got none"):
        porter.verify(folder, weights=file)
