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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from tests.support.finetuned_torch import MAKERS, assert_tells_images_apart
from tests.support.refusals import unreadable
from tests.support.standin import smooth_images

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
    assert "weights_only" not in unreadable(path, *words)


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
    wrapped = {
        "epoch": 3,
        "best_acc1": torch.tensor(70.5),
        key: net.state_dict(),
        "optimizer": optimiser.state_dict(),
    }
    found = read_checkpoint(save(tmp_path / "a.pth", wrapped, zipped))
    same(found, net.state_dict())
    assert found.notes == (f"read under '{key}'; ignored 'best_acc1', 'epoch', 'optimizer'",)


@pytest.mark.parametrize("zipped", FORMS)
def test_averages_of_torchs_own_class(tmp_path: Path, zipped: bool) -> None:
    net = module()
    averaged = torch.optim.swa_utils.AveragedModel(net, use_buffers=True)
    averaged.update_parameters(net)
    first: Any = net.get_submodule("0")
    torch.nn.init.ones_(first.weight)
    averaged.update_parameters(net)
    found = read_checkpoint(
        save(tmp_path / "a.pth", {"model": net.state_dict(), "model_ema": averaged.state_dict()}, zipped)
    )
    same(found, averaged.module.state_dict())
    assert (found.tensors["0.weight"] != 1).all()
    assert found.notes[0] == "read the averaged weights under 'model_ema', not the raw ones under 'model'"
    same(
        read_checkpoint(save(tmp_path / "alone.pth", averaged.state_dict(), zipped)),
        averaged.module.state_dict(),
    )


def test_averages_of_only_parameters(tmp_path: Path) -> None:
    net = module()
    shadow = {name: parameter.detach() for name, parameter in net.named_parameters()}
    path = save(tmp_path / "a.pth", {"model": net.state_dict(), "ema": shadow})
    refused(
        path, "'1.running_mean', '1.running_var'", "lack 2 of the 8", "torch.save(checkpoint['model'], FILE)"
    )


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
        "scheduler": torch.optim.lr_scheduler.MultiStepLR(
            torch.optim.SGD(net.parameters()), [30, 60]
        ).state_dict(),
    }
    found = read_checkpoint(save(tmp_path / "a.pth", {"state_dict": net.state_dict(), **beside}, zipped))
    same(found, net.state_dict())
    assert found.notes == (
        "read under 'state_dict'; ignored 'args', 'best', 'config', 'history', 'scheduler'",
    )


def test_classes_beside_the_weights_are_named(tmp_path: Path) -> None:
    checkpoint = {"state_dict": module().state_dict(), "hyper_parameters": {"level": Level.HIGH}}
    refused(
        save(tmp_path / "a.ckpt", checkpoint), f"{Level.__module__}.Level", "save only model.state_dict()"
    )


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
    found = read_checkpoint(
        save(tmp_path / "a.pth", {f"{prefix}{name}": value for name, value in state.items()})
    )
    same(found, state)
    assert "prefix 'module.' removed" in found.notes or "prefix '_orig_mod.' removed" in found.notes


def test_prefix_on_some_keys_is_a_name(tmp_path: Path) -> None:
    state = {"module.weight": torch.ones(2), "head.weight": torch.ones(3)}
    found = read_checkpoint(save(tmp_path / "a.pth", state))
    same(found, state)
    assert found.notes == ()


def test_entries_that_are_no_tensors_are_noted(tmp_path: Path) -> None:
    found = read_checkpoint(
        save(tmp_path / "a.pth", {"a.weight": torch.ones(2), "arch": "resnet18", 3: torch.ones(1)})
    )
    assert list(found.tensors) == ["a.weight"]
    assert found.notes == ("ignored '3', 'arch', which are not tensors",)


@pytest.mark.parametrize("zipped", FORMS)
def test_bits_are_kept(tmp_path: Path, zipped: bool) -> None:
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    state = {
        "half": patterns.view(torch.float16),
        "brain": patterns.clone().view(torch.bfloat16),
        "double": torch.rand(3).double(),
    }
    found = read_checkpoint(save(tmp_path / "a.pth", state, zipped)).tensors
    assert (
        found["half"].dtype == np.float16
        and found["brain"].dtype == ml_dtypes.bfloat16
        and found["double"].dtype == np.float64
    )
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


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_an_old_stream_with_complex_numbers_beside_the_weights(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {"weight": torch.rand(3)}
    path = save(
        tmp_path / "a.pth", {"rotations": torch.ones(6, dtype=dtype), "state_dict": state}, zipped=False
    )
    same(read_checkpoint(path), state)


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("zipped", FORMS)
def test_later_protocols_of_pickle(tmp_path: Path, protocol: int, zipped: bool) -> None:
    state = {
        "weight": torch.rand(3, 2).t(),
        "bias": torch.nn.Parameter(torch.rand(2)),
        "gewöhnlich": torch.ones(1),
    }
    torch.save(state, tmp_path / "a.pth", pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    found = read_checkpoint(tmp_path / "a.pth").tensors
    assert list(found) == list(state)
    for name, tensor in state.items():
        np.testing.assert_array_equal(found[name], tensor.detach().numpy())


def test_an_old_stream_that_declares_more_than_it_holds(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pth", OrderedDict(w=torch.ones(64)), zipped=False)
    data = path.read_bytes()
    assert data.count(b"K@") >= 1
    path.write_bytes(data.replace(b"K@", b"\x8a\x05\x00\x00\x00\x00\x04"))
    refused(path)


def test_nan_is_a_value(tmp_path: Path) -> None:
    assert np.isnan(
        read_checkpoint(save(tmp_path / "a.pth", {"w": torch.full((2,), float("nan"))})).tensors["w"]
    ).all()


@pytest.mark.parametrize("zipped", FORMS)
def test_whole_modules(tmp_path: Path, zipped: bool) -> None:
    refused(
        save(tmp_path / "a.pth", module(), zipped),
        "torch.nn.modules.container.Sequential",
        "model.state_dict()",
    )


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
    for file, members in (
        (path, ("sys_info", "pickle", "tensors", "storages")),
        (other, ("notes", "sys_info")),
    ):
        with tarfile.open(file, "w:", format=tarfile.PAX_FORMAT) as archive:
            for member in members:
                archive.addfile(tarfile.TarInfo(member))
    assert (recognise(path).name, recognise(other).name) == ("torch-tar", "tar")
    refused(path, "from before 0.2", "later PyTorch")


ODD = {
    "sparse_coo": lambda: torch.eye(3).to_sparse(),
    "without values, on the device 'meta'": lambda: torch.ones(3, device="meta"),
    "stored with its signs turned": lambda: torch._neg_view(torch.ones(3)),
}


@pytest.mark.parametrize("kind", ODD)
def test_tensors_that_are_no_plain_arrays(tmp_path: Path, kind: str) -> None:
    refused(save(tmp_path / "a.pth", {"w": ODD[kind]()}), f"'w' is {kind}", "dense")


@pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning", "ignore:TypedStorage:UserWarning")
def test_quantised(tmp_path: Path) -> None:
    quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    refused(save(tmp_path / "a.pth", {"conv.weight": quantised}), "'conv.weight'", "quantised")


def test_whole_numbers_for_a_weight(tmp_path: Path) -> None:
    refused(
        save(tmp_path / "a.pth", {"conv.weight": torch.ones(3, dtype=torch.int8)}), "'conv.weight'", "int8"
    )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn])
def test_other_number_types(tmp_path: Path, dtype: torch.dtype) -> None:
    refused(save(tmp_path / "a.pth", {"w": torch.ones(2).to(dtype)}), "'w'", str(dtype), "int8")


def test_strides_that_declare_more_than_there_is(tmp_path: Path) -> None:
    refused(save(tmp_path / "a.pth", {"w": torch.ones(1).expand(1 << 40)}), "'w'", "fewer bytes")


def test_one_storage_under_many_names(tmp_path: Path) -> None:
    shared = torch.zeros(1 << 20)
    refused(save(tmp_path / "a.pth", {str(number): shared for number in range(70)}), "can hold")


@pytest.mark.parametrize(
    "value", [torch.ones(3), [torch.ones(3)], 5, {}, {"epoch": 3}, {"optimizer": {"state": {}}}]
)
def test_no_state_dict(tmp_path: Path, value: Any) -> None:
    refused(save(tmp_path / "a.pth", value), "expected a state_dict", "model.state_dict()")


@pytest.mark.parametrize("zipped", FORMS)
@pytest.mark.parametrize(("count", "levels"), [(1, 200_000), (2, 90)])
def test_keys_nested_without_end(tmp_path: Path, zipped: bool, count: int, levels: int) -> None:
    """Hashing the first crashes Python, hashing the second takes 2**90 steps."""
    doubled = b"q\x00h\x00" * (count - 1) + (b"\x85", b"\x86")[count - 1]  # TUPLE1 or TUPLE2
    pickled = b"\x80\x02}N" + doubled * levels + b"K\x01s."
    path = save(tmp_path / "a.pth", {}, zipped)
    if zipped:
        rewrite(path, {"data.pkl": lambda _: pickled})
    else:
        path.write_bytes(path.read_bytes().replace(b"\x80\x02}q\x00.", pickled))
    refused(path, "found no tensor among 'tuple'")


def test_one_list_that_many_calls_copy(tmp_path: Path) -> None:
    """A hundred thousand mappings of as many items would take minutes and all memory."""
    pairs = b"](" + b"K\x01K\x02\x86" * 100_000 + b"eq\x01"  # a list of (1, 2), kept as 1
    calls = b"ccollections\nOrderedDict\nq\x02" + b"h\x02h\x01\x85R" * 100_000
    path = save(tmp_path / "a.pth", {})
    rewrite(path, {"data.pkl": lambda _: b"\x80\x02" + pairs + calls + b"."})
    refused(path, "more memory than tensors need")


def rewrite(path: Path, changes: dict[str, Callable[[bytes], bytes]], prefix: str = "a/") -> None:
    """Changes members of an archive, and writes it without the gaps by which torch aligns its records."""
    with zipfile.ZipFile(path) as old:
        members = {name.split("/", 1)[1]: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in members.items():
            new.writestr(prefix + name, changes.get(name, bytes)(data))


@pytest.mark.parametrize("prefix", ["a/", "ab/", "abc/", "abcd/"])
@pytest.mark.parametrize("order", ["little", "big"])
def test_records_at_any_byte_and_in_either_order(tmp_path: Path, order: str, prefix: str) -> None:
    state = {
        "a": torch.rand(3, 4).t(),
        "b": torch.rand(5).double(),
        "c": torch.rand(4).bfloat16(),
        "d": torch.ones(4).to(torch.uint16),
    }
    path = save(tmp_path / "a.pth", state)
    swaps: dict[str, Callable[[bytes], bytes]] = {"byteorder": lambda _: order.encode()}
    for number, size in enumerate((4, 8, 2, 2)):
        kind = f"{'<' if order == 'little' else '>'}u{size}"
        swaps[f"data/{number}"] = lambda data, kind=kind: np.frombuffer(data, kind).astype(kind[1:]).tobytes()  # type: ignore[misc]
    rewrite(path, swaps, prefix)
    found = read_checkpoint(path).tensors
    for name, tensor in state.items():
        assert (
            found[name].dtype.name == str(tensor.dtype).removeprefix("torch.") and found[name].flags.aligned
        )
        np.testing.assert_array_equal(found[name].astype(float), tensor.double().numpy())


def stream(pickled: bytes, storages: dict[str, Any]) -> bytes:
    """The older stream around a pickle."""
    head: tuple[Any, ...] = (0x1950A86A20F9469CFC6C, 1001, {})
    parts = [pickle.dumps(part, 2) for part in head] + [
        pickled,
        pickle.dumps(list(storages), 2),
    ]
    return b"".join(
        [*parts, *(len(held).to_bytes(8, "little") + held.tobytes() for held in storages.values())]
    )


def oldest(view: bytes) -> bytes:
    """A 2x2 tensor as torch 0.1 calls for it, with Python 2's strings, over a storage of 6 numbers or a view
    of it.
    """
    stored = b"(U\x07storagectorch\nFloatStorage\nU\x011U\x06cuda:0K\x06" + view + b"tQ"
    return b"ctorch._utils\n_rebuild_tensor\n(" + stored + b"K\x01K\x02K\x02\x86K\x02K\x01\x86tR"


WHOLE, PART = b"N", b"U\x012K\x01K\x05\x87"
OLD = {
    "Python 2's OrderedDict": (
        b"ccollections\nOrderedDict\n](](U\x01w" + oldest(WHOLE) + b"ee\x85R}U\x09_metadata}sb",
        1,
    ),
    "a view of a storage": (b"}U\x01w" + oldest(PART) + b"s", 2),
    "Python 2's numbers": (b"}(U\x05stateI140234567890123\nU\x01w" + oldest(WHOLE) + b"u", 1),
}


@pytest.mark.parametrize("name", OLD)
def test_old_streams(tmp_path: Path, name: str) -> None:
    pickled, first = OLD[name]
    path = tmp_path / "a.pth"
    path.write_bytes(stream(b"\x80\x02" + pickled + b".", {"1": np.arange(6, dtype="f4")}))
    assert read_checkpoint(path).tensors["w"].tolist() == [[first, first + 1], [first + 2, first + 3]]


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
    path = save(tmp_path / "a.pth", OrderedDict(w=torch.ones(64)))
    rewrite(path, {"data.pkl": lambda data: data.replace(b"K@", b"J\xff\xff\xff\x0f")})
    refused(path, "lacks values of tensor 'w'")


@pytest.mark.parametrize("name", MAKERS)
def test_fine_tuned_models(tmp_path: Path, name: str) -> None:
    tuned = MAKERS[name](tmp_path)
    found = read_checkpoint(tuned.path)
    assert list(found.tensors) == list(tuned.state)
    for key, tensor in tuned.state.items():
        assert str(found.tensors[key].dtype) == str(tensor.dtype).removeprefix("torch.")
        rounding = 1e-12 if name == "parametrised" else 0  # of what is computed in another order
        np.testing.assert_allclose(found.tensors[key].astype(np.float64), tensor.double().numpy(), rounding)
    assert found.tensors[f"{tuned.head}.weight"].shape[0] == tuned.classes
    logits = tuned.logits(smooth_images(3, (64, 64), 5, 4))
    assert logits.shape == (4, tuned.classes) and logits.dtype == np.float64
    assert_tells_images_apart(logits)
