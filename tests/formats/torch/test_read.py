"""PyTorch files as people have them, and as nobody should."""

from __future__ import annotations

import argparse
import enum
import os
import pickle
import tarfile
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from porter.base.errors import FileError
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from tests.finetuned_torch import MAKERS, assert_tells_images_apart
from tests.standin import smooth_images

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
    assert (found.format, found.dialect, found.notes, found.counted) == ("torch", "torch", (), False)
    assert found.tensors["1.num_batches_tracked"].dtype == np.int64


@pytest.mark.parametrize("zipped", FORMS)
@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_training_checkpoint(tmp_path: Path, key: str, zipped: bool) -> None:
    net = module()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    wrapped = {"epoch": 3, "best_acc1": torch.tensor(70.5), key: net.state_dict(), "optimizer": optimiser.state_dict()}
    found = read_checkpoint(save(tmp_path / "a.pth", wrapped, zipped))
    same(found, net.state_dict())
    assert found.notes == (f"read under '{key}'; ignored 'best_acc1', 'epoch', 'optimizer'",)


@pytest.mark.parametrize("zipped", FORMS)
def test_averages_of_torchs_own_class(tmp_path: Path, zipped: bool) -> None:
    net = module()
    averaged = torch.optim.swa_utils.AveragedModel(net, use_buffers=True)
    averaged.update_parameters(net)
    torch.nn.init.ones_(net[0].weight)
    averaged.update_parameters(net)
    found = read_checkpoint(save(tmp_path / "a.pth", {"model": net.state_dict(), "model_ema": averaged.state_dict()}, zipped))
    same(found, averaged.module.state_dict())
    assert (found.tensors["0.weight"] != 1).all()
    assert found.notes[0] == "read the averaged weights under 'model_ema', not the raw ones under 'model'"
    same(read_checkpoint(save(tmp_path / "alone.pth", averaged.state_dict(), zipped)), averaged.module.state_dict())


def test_averages_of_only_parameters(tmp_path: Path) -> None:
    net = module()
    shadow = {name: parameter.detach() for name, parameter in net.named_parameters()}
    path = save(tmp_path / "a.pth", {"model": net.state_dict(), "ema": shadow})
    refused(path, "'1.running_mean', '1.running_var'", "lack 2 of the 8", "torch.save(checkpoint['model'], FILE)")


class Level(enum.Enum):
    HIGH = 1


@pytest.mark.parametrize("zipped", FORMS)
def test_what_scripts_keep_beside_the_weights(tmp_path: Path, zipped: bool) -> None:
    net = module()
    beside = {
        "args": argparse.Namespace(lr=0.1, out=tmp_path, seed=np.int64(1)),
        "best": np.float64(70.5),
        "config": types.SimpleNamespace(width=1),
        "history": np.arange(3.0),
    }
    before = torch.serialization.get_safe_globals()
    found = read_checkpoint(save(tmp_path / "a.pth", {"state_dict": net.state_dict(), **beside}, zipped))
    same(found, net.state_dict())
    assert found.notes == ("read under 'state_dict'; ignored 'args', 'best', 'config', 'history'",)
    assert set(torch.serialization.get_safe_globals()) == set(before), "the caller's own torch.load must not change"


def test_classes_beside_the_weights_are_named(tmp_path: Path) -> None:
    checkpoint = {"state_dict": module().state_dict(), "hyper_parameters": {"level": Level.HIGH}}
    refused(save(tmp_path / "a.ckpt", checkpoint), f"{Level.__module__}.Level", "save only model.state_dict()")


def test_arrays_of_numpy_are_no_tensors(tmp_path: Path) -> None:
    refused(save(tmp_path / "a.pth", {"w": np.ones(3)}), "no tensor among 'w'")


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
    assert found.notes == ("ignored '3', 'arch', which are not tensors",)


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


@pytest.mark.parametrize("zipped", FORMS)
def test_one_storage_that_tensors_share(tmp_path: Path, zipped: bool) -> None:
    base = torch.arange(60.0)
    state = {
        "whole": base.reshape(3, 4, 5),
        "middle": base[20:40].reshape(4, 5),
        "column": base.reshape(12, 5)[:, 2],
        "turned": base.reshape(3, 20).t(),
        "again": base.reshape(3, 4, 5),
    }
    assert len({tensor.untyped_storage().data_ptr() for tensor in state.values()}) == 1
    path = save(tmp_path / "a.pth", state, zipped)
    assert path.stat().st_size < 240 * 3 + 1500, "the storage is in the file once"
    same(read_checkpoint(path), state)


def test_an_old_stream_that_declares_more_than_it_holds(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pth", OrderedDict(w=torch.ones(64)), zipped=False)
    data = path.read_bytes()
    assert data.count(b"K@") >= 1
    path.write_bytes(data.replace(b"K@", b"\x8a\x05\x00\x00\x00\x00\x04"))
    refused(path)


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
    assert recognise(path).name == "pickle"
    refused(path, "pickle")
    assert not sentinel.exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)
    assert recognise(path).name == "torchscript"
    refused(path, "TorchScript", "state_dict()", "torch.export.save(torch.export.export(model.eval(), ")


def test_a_tar_of_torch_0_1(tmp_path: Path) -> None:
    path, other = tmp_path / "a.pth", tmp_path / "b.tar"
    for file, members in ((path, ("sys_info", "pickle", "tensors", "storages")), (other, ("notes", "sys_info"))):
        with tarfile.open(file, "w:", format=tarfile.PAX_FORMAT) as archive:
            for member in members:
                archive.addfile(tarfile.TarInfo(member))
    assert (recognise(path).name, recognise(other).name) == ("torch-tar", "tar")
    refused(path, "from before 0.2", "later PyTorch")


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


@pytest.mark.parametrize("members", [("a/data.pkl",), ("a/DATA.PKL", "a/data.pkl"), ()])
@pytest.mark.parametrize(("count", "levels"), [(1, 200_000), (2, 90)])
def test_keys_nested_without_end(tmp_path: Path, members: tuple[str, ...], count: int, levels: int) -> None:
    """Hashing the first crashes Python, hashing the second takes 2**90 steps: they are refused before anything is made of them.

    torch does not tell capitals from small letters: of two records it reads either one.
    """
    doubled = b"2" * (count - 1) + (b"\x85", b"\x86")[count - 1]  # DUP, TUPLE1 or TUPLE2
    pickled = b"\x80\x02}N" + doubled * levels + b"K\x01s."
    path = save(tmp_path / "a.pth", {}, zipped=bool(members))
    if members:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in zip((*members, "a/version"), (pickled, *[b"\x80\x02}."] * (len(members) - 1), b"3"), strict=True):
                archive.writestr(name, content)
    else:
        path.write_bytes(path.read_bytes().replace(b"\x80\x02}q\x00.", pickled))
    refused(path, "has 2 'data.pkl'" if len(members) > 1 else "nests values deeper")


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


@pytest.mark.parametrize("name", MAKERS)
def test_fine_tuned_models(tmp_path: Path, name: str) -> None:
    tuned = MAKERS[name](tmp_path)
    found = read_checkpoint(tuned.path)
    assert list(found.tensors) == list(tuned.state)
    for key, tensor in tuned.state.items():
        assert str(found.tensors[key].dtype) == str(tensor.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(found.tensors[key].astype(np.float64), tensor.double().numpy())
    assert found.tensors[f"{tuned.head}.weight"].shape[0] == tuned.classes
    logits = tuned.logits(smooth_images(3, (64, 64), 5, 4))
    assert logits.shape == (4, tuned.classes) and logits.dtype == np.float64
    assert_tells_images_apart(logits)
