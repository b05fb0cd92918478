"""The weights that a port is compared with again."""

import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from safetensors.numpy import save_file

import porter
from porter.base.errors import CheckFailed, GraphError, UsageError
from porter.files import digest, download
from porter.verification.references.zoo_reference import ZooReference
from tests.support.standin_files import source_checkpoint

VARIANT = "mobilenet_v2_0.35"


def unreachable(location: str, partial: Path) -> NoReturn:
    raise AssertionError(f"asked the network for {location}")


@pytest.fixture
def own_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A port of weights that no zoo publishes, where no network may be asked."""
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "copy_or_download", unreachable)
    tensors = source_checkpoint(VARIANT, "torchvision").tensors
    save_file(
        {name: np.ascontiguousarray(array) for name, array in tensors.items()}, tmp_path / "own.safetensors"
    )
    porter.convert(
        VARIANT,
        "torchvision",
        "torch",
        weights=tmp_path / "own.safetensors",
        out=tmp_path / "port",
        check=False,
    )
    return tmp_path / "port"


def test_a_port_of_ones_own_weights_asks_for_them_and_no_network(own_port: Path) -> None:
    with pytest.raises(UsageError) as caught:
        porter.verify(own_port)
    assert digest(own_port.parent / "own.safetensors") in caught.value.message
    assert caught.value.next == "add weights with own.safetensors"
    porter.convert(
        VARIANT, "torchvision", "torch", weights=own_port, out=own_port.parent / "second", check=False
    )
    with pytest.raises(UsageError) as caught:
        porter.verify(own_port.parent / "second")
    assert caught.value.next == "add weights with that port"


def test_an_option_of_a_port_that_its_recipe_lacks_is_told(own_port: Path) -> None:
    record = json.loads((own_port / "port.json").read_text())
    (own_port / "port.json").write_text(json.dumps({**record, "chosen": {"depth": 3}}))
    with pytest.raises(UsageError, match="has no option 'depth'"):
        porter.verify(own_port, weights=own_port.parent / "own.safetensors")


GROWN: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a value": ([{"op": "upsample", "rows": 500, "columns": 500}], "more than 268435456 numbers"),
    "values": (
        [{"op": "upsample", "rows": 20, "columns": 20}, *([{"op": "relu"}] * 100)],
        "numbers together",
    ),
}


@pytest.mark.parametrize("name", GROWN)
def test_a_port_whose_values_take_any_memory_is_refused(name: str, own_port: Path) -> None:
    """A port comes from a stranger, too."""
    ops, words = GROWN[name]
    record = json.loads((own_port / "port.json").read_text())
    before, *after = record["graph"]["nodes"]
    added = [
        {"path": f"x{place}", "inputs": [f"x{place - 1}" if place else before["path"]], **op}
        for place, op in enumerate(ops)
    ]
    after[0]["inputs"] = [added[-1]["path"]]
    record["graph"]["nodes"] = [before, *added, *after]
    (own_port / "port.json").write_text(json.dumps(record))
    with pytest.raises(GraphError, match=words):
        porter.verify(own_port)


def test_a_port_that_is_many_times_as_large_as_its_source_is_not_run(own_port: Path) -> None:
    """Its values pass every bound, and took 14 GB where all convolutions had such pads."""
    record = json.loads((own_port / "port.json").read_text())
    stem = next(node for node in record["graph"]["nodes"] if node["op"] == "conv")
    stem["convention"] |= {"rule": "explicit", "pads": [1024] * 4}
    (own_port / "port.json").write_text(json.dumps(record))
    with pytest.raises(
        CheckFailed, match=f"not the source's function: {stem['path']}, the first node that is larger, is 16x"
    ):
        porter.verify(own_port, weights=own_port.parent / "own.safetensors")


def test_a_port_of_every_size_says_where_its_reference_took_only_one(
    own_port: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = own_port.parent / "own.safetensors"
    assert not porter.verify(own_port, weights=weights, float64=True).notes
    monkeypatch.setattr(ZooReference, "takes", lambda self, size: size == (224, 224))
    (said,) = porter.verify(own_port, weights=weights, float64=True).notes
    assert said == "the port takes every size and is proved at 224x224: torchvision takes no other"
