"""Flax's trees of arrays, as flax.serialization lays them out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import FileError, NotInstalled
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.msgpack import read as module
from porter.formats.reading import read_checkpoint

msgpack = pytest.importorskip("msgpack")
Reader = Callable[[Any], Checkpoint]


def extension(shape: Any, kind: str, content: bytes, code: int = 1) -> Any:
    return msgpack.ExtType(code, msgpack.packb((shape, kind, content)))


def array(value: Any, code: int = 1) -> Any:
    return extension(value.shape, value.dtype.name, value.tobytes(), code)


@pytest.fixture
def reading(tmp_path: Path) -> Reader:
    def read(tree: Any) -> Checkpoint:
        path = tmp_path / "model"
        path.write_bytes(tree if isinstance(tree, bytes) else msgpack.packb(tree, strict_types=True))
        return read_checkpoint(path)

    return read


def test_arrays_and_numbers_are_read(reading: Reader) -> None:
    import ml_dtypes

    kernel, mean, half = (
        np.arange(6.0).reshape(2, 3),
        np.ones(3, np.float32),
        np.full(2, 0.5, ml_dtypes.bfloat16),
    )
    tree: dict[str, Any] = {
        "params": {"conv": {"kernel": array(kernel), "half": array(half)}},
        "batch_stats": {"norm": {"mean": array(mean)}},
    }
    tree |= {
        "step": array(np.int32(7), 3),
        "rate": 0.1,
        "name": "net",
        "done": None,
        "opt_state": {"0": array(mean)},
    }
    found = reading(tree)
    assert found.format == "flax-msgpack" and found.dialect == "jax"
    assert {*found.tensors} == {
        "params/conv/kernel",
        "params/conv/half",
        "batch_stats/norm/mean",
        "step",
        "rate",
    }
    np.testing.assert_array_equal(found.tensors["params/conv/kernel"], kernel)
    assert found.tensors["params/conv/half"].dtype == ml_dtypes.bfloat16 and found.tensors["step"].item() == 7
    assert found.notes == ("ignored the optimiser's state", "ignored done, name, which are not numbers")


def test_chunks_are_joined(reading: Reader) -> None:
    whole = np.arange(12, dtype=np.float32)
    chunks = {str(number): array(chunk) for number, chunk in enumerate(np.split(whole, 3))}
    chunked = {"__msgpack_chunked_array__": True, "shape": {"0": 3, "1": 4}, "chunks": chunks}
    np.testing.assert_array_equal(reading({"table": chunked}).tensors["table"], whole.reshape(3, 4))
    for change in (
        {"shape": {"0": 5}},
        {"chunks": {"1": chunks["0"]}},
        {"chunks": {"0": 3}},
        {"shape": None},
    ):
        with pytest.raises(FileError, match="this tree of arrays is damaged"):
            reading({"table": {**chunked, **change}})


HOSTILE: dict[str, Any] = {
    "a map of 4 billion": b"\x81\xa1a\xdf\xff\xff\xff\xff\xa1a",
    "a list of 4 billion": b"\x81\xa1a\xdd\xff\xff\xff\xff\x01",
    "text of 4 gigabytes": b"\x81\xa1a\xdb\xff\xff\xff\xffa",
    "an extension of 4 gigabytes": b"\x81\xa1a\xc9\xff\xff\xff\xff\x01a",
    "lists of lists": b"\x81\xa1a" + b"\xdc\x01\x00" * 10**5,
    "maps of maps": b"\x81\xa1a" * 10**5,
    "many small maps": msgpack.packb({"a": [[{str(n): 1 for n in range(400)}] * 200]}),
    "a file that goes on": msgpack.packb({"a": 1}) + b"\x01",
    "keys that are no text": b"\x82\xa1a\x01\x90\x01",
    "text that is none": b"\x81\xa1\xff\x01",
    "another extension": {"a": msgpack.ExtType(42, b"code")},
    "no triple": {"a": msgpack.ExtType(1, msgpack.packb([1]))},
    "a shape of more": {"a": extension((10**9, 10**9), "float32", b"0000")},
    "a shape below zero": {"a": extension((-1, -1), "float32", b"0000")},
    "a shape of truths": {"a": extension((True,), "float32", b"0000")},
    "a cut array": {"a": extension((1,), "float32", b"000")},
    "objects": {"a": extension((1,), "object", b"00000000")},
    "an extension in one": {"a": extension((1,), "float32", msgpack.ExtType(1, b""))},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_trees_are_one_error(name: str, reading: Reader) -> None:
    with pytest.raises(FileError, match="this tree of arrays is damaged") as refused:
        reading(HOSTILE[name])
    assert refused.value.next and len(str(refused.value)) < 500


def test_without_msgpack_it_is_said(reading: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str, next: str) -> None:
        raise NotInstalled(f"{package} is not installed", next=next)

    monkeypatch.setattr(module, "expect_installed", missing)
    with pytest.raises(NotInstalled, match=r"msgpack is not installed.*pip install msgpack"):
        reading({"a": array(np.ones(3))})
