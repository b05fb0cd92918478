"""PyTorch files as people have them, and as nobody should."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from porter.errors import FileError
from porter.frameworks.reading import read_checkpoint, sniff

FORMS = [True, False]
"""The zip archive of torch ≥ 1.6, and the stream before it."""


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, groups=1), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4, 2)
    )


def save(path: Path, value: Any, zipped: bool = True) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


def same(found: Any, state: Any) -> None:
    assert list(found.tensors) == list(state)
    for name, tensor in state.items():
        np.testing.assert_array_equal(found.tensors[name], tensor.numpy())
        assert found.tensors[name].dtype == tensor.numpy().dtype


def refused(path: Path, *words: str) -> None:
    with pytest.raises(FileError) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message and "weights_only" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("zipped", FORMS)
def test_state_dict(tmp_path: Path, zipped: bool) -> None:
    state = module().state_dict()
    found = read_checkpoint(save(tmp_path / "a.h5", state, zipped))
    same(found, state)
    assert (found.format, found.framework, found.notes, found.counted) == ("torch", "torch", (), False)
    assert found.tensors["1.num_batches_tracked"].dtype == np.int64


@pytest.mark.parametrize("zipped", FORMS)
@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_training_checkpoint(tmp_path: Path, key: str, zipped: bool) -> None:
    net = module()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    wrapped = {"epoch": 3, "best_acc1": torch.tensor(70.5), key: net.state_dict(), "optimizer": optimiser.state_dict()}
    found = read_checkpoint(save(tmp_path / "a.pth", wrapped, zipped))
    same(found, net.state_dict())
    assert found.notes == (f"read under '{key}'; looked past 'best_acc1', 'epoch', 'optimizer'",)


def test_wrapped_twice(tmp_path: Path) -> None:
    state = module().state_dict()
    found = read_checkpoint(save(tmp_path / "a.pth", {"model": {"state_dict": state}}))
    same(found, state)
    assert found.notes == ("read under 'model'", "read under 'state_dict'")


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefix_on_every_key(tmp_path: Path, prefix: str) -> None:
    state = module().state_dict()
    found = read_checkpoint(save(tmp_path / "a.pth", {f"{prefix}{name}": value for name, value in state.items()}))
    same(found, state)
    assert "prefix 'module.' removed" in found.notes or "prefix '_orig_mod.' removed" in found.notes


def test_prefix_on_some_keys_is_a_name(tmp_path: Path) -> None:
    state = {"module.weight": torch.ones(2), "head.weight": torch.ones(3)}
    found = read_checkpoint(save(tmp_path / "a.pth", state))
    same(found, state)
    assert found.notes == ()


def test_entries_that_are_no_tensors_are_noted(tmp_path: Path) -> None:
    found = read_checkpoint(save(tmp_path / "a.pth", {"a.weight": torch.ones(2), "arch": "resnet18", 3: torch.ones(1)}))
    assert list(found.tensors) == ["a.weight"]
    assert found.notes == ("looked past '3', 'arch', which are not tensors",)


@pytest.mark.parametrize("zipped", FORMS)
def test_bits_are_kept(tmp_path: Path, zipped: bool) -> None:
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    state = {"half": patterns.view(torch.float16), "brain": patterns.clone().view(torch.bfloat16), "double": torch.rand(3).double()}
    found = read_checkpoint(save(tmp_path / "a.pth", state, zipped)).tensors
    assert found["half"].dtype == np.float16 and found["brain"].dtype == ml_dtypes.bfloat16 and found["double"].dtype == np.float64
    for name in ("half", "brain"):
        np.testing.assert_array_equal(found[name].view(np.int16), patterns.numpy())


def test_views_and_parameters(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    state = {
        "last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "slice": base[:, 1],
        "brain": base.bfloat16().transpose(0, 2),
        "parameter": torch.nn.Parameter(base),
        "scalar": torch.tensor(2.0, dtype=torch.bfloat16),
    }
    found = read_checkpoint(save(tmp_path / "a.pth", state)).tensors
    for name, tensor in state.items():
        np.testing.assert_array_equal(found[name].astype(np.float32), tensor.detach().float().numpy())


def test_nan_is_a_value(tmp_path: Path) -> None:
    assert np.isnan(read_checkpoint(save(tmp_path / "a.pth", {"w": torch.full((2,), float("nan"))})).tensors["w"]).all()


@pytest.mark.parametrize("zipped", FORMS)
def test_whole_modules(tmp_path: Path, zipped: bool) -> None:
    refused(save(tmp_path / "a.pth", module(), zipped), "torch.nn.modules.container.Sequential", "model.state_dict()")


class Runs:
    """Its unpickling makes the file that it was given."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.sentinel),)


@pytest.mark.parametrize("zipped", FORMS)
def test_code_is_never_run(tmp_path: Path, zipped: bool) -> None:
    sentinel = tmp_path / "ran"
    path = save(tmp_path / "a.pth", {"w": torch.ones(2), "x": Runs(sentinel)}, zipped)
    refused(path, "mkdir", "runs no code")
    assert not sentinel.exists()
    torch.load(path, weights_only=False)
    assert sentinel.exists(), "the file would have run it"


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_bare_pickles(tmp_path: Path, protocol: int) -> None:
    path, sentinel = tmp_path / "a.pth", tmp_path / "ran"
    path.write_bytes(pickle.dumps({"x": Runs(sentinel)}, protocol))
    assert sniff(path) == "pickle"
    refused(path, "pickle")
    assert not sentinel.exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    assert sniff(path) == "torchscript"
    refused(path, "TorchScript", "state_dict()")


def test_sparse(tmp_path: Path) -> None:
    refused(save(tmp_path / "a.pth", {"w": torch.eye(3).to_sparse()}), "'w'", "sparse_coo", "dense")


@pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning", "ignore:TypedStorage:UserWarning")
def test_quantised(tmp_path: Path) -> None:
    quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    refused(save(tmp_path / "a.pth", {"conv.weight": quantised}), "'conv.weight'", "quantised")


def test_whole_numbers_for_a_weight(tmp_path: Path) -> None:
    refused(save(tmp_path / "a.pth", {"conv.weight": torch.ones(3, dtype=torch.int8)}), "'conv.weight'", "int8")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn])
def test_other_number_types(tmp_path: Path, dtype: torch.dtype) -> None:
    refused(save(tmp_path / "a.pth", {"w": torch.ones(2).to(dtype)}), "'w'", str(dtype))


def test_strides_that_declare_more_than_there_is(tmp_path: Path) -> None:
    refused(save(tmp_path / "a.pth", {"w": torch.ones(1).expand(1 << 40)}), "'w'", "fewer bytes")


def test_one_storage_under_many_names(tmp_path: Path) -> None:
    shared = torch.zeros(1 << 20)
    refused(save(tmp_path / "a.pth", {str(number): shared for number in range(70)}), "can hold")


@pytest.mark.parametrize("value", [torch.ones(3), [torch.ones(3)], 5, {}, {"epoch": 3}, {"optimizer": {"state": {}}}])
def test_no_state_dict(tmp_path: Path, value: Any) -> None:
    refused(save(tmp_path / "a.pth", value), "expected a state_dict", "model.state_dict()")


@pytest.mark.parametrize("zipped", FORMS)
def test_cut_short(tmp_path: Path, zipped: bool) -> None:
    whole = save(tmp_path / "a.pth", module().state_dict(), zipped).read_bytes()
    cut = tmp_path / "cut.pth"
    for length in [*range(1, 60, 5), *range(60, len(whole), 251), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        refused(cut)


def test_a_compressed_record(tmp_path: Path) -> None:
    path, packed = save(tmp_path / "a.pth", module().state_dict()), tmp_path / "packed.pth"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    refused(packed, "compressed")


def test_a_record_shorter_than_its_tensor(tmp_path: Path) -> None:
    path, short = save(tmp_path / "a.pth", OrderedDict(w=torch.ones(64))), tmp_path / "short.pth"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(short, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("data.pkl"):
                assert data.count(b"K@") >= 1
                data = data.replace(b"K@", b"J\xff\xff\xff\x0f")
            new.writestr(name, data)
    refused(short)
