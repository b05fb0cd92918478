"""Legacy Keras files, against Keras itself and in the layouts that only older ones write."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from porter.base.errors import FileError
from porter.formats.apart import Limits
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from tests.support.arrays import Array
from tests.support.frameworks.tf.small_models import expected, functional, sequential
from tests.support.refusals import unreadable

KERNEL = np.arange(54, dtype=np.float32).reshape(3, 3, 3, 2)
VECTOR = np.array([1.5, -2.25], dtype=np.float32)


def write_legacy(
    path: Path, groups: Mapping[str, Mapping[str, Any]], under: str = "", **attributes: Any
) -> Path:
    """The layout of every Keras: `layer_names` on the group, `weight_names` on each layer's group, datasets
    at those paths.
    """
    with h5py.File(path, "w") as file:
        top = file.require_group(under) if under else file
        top.attrs["layer_names"] = np.array([name.encode() for name in groups])
        for key, value in attributes.items():
            top.attrs[key] = value
        for name, weights in groups.items():
            group = top.create_group(name)
            group.attrs["weight_names"] = np.array([weight.encode() for weight in weights])
            for weight, value in weights.items():
                group[weight] = value
    return path


def same(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert np.asarray(found[name]).tobytes() == np.asarray(value).tobytes(), name


@pytest.mark.parametrize("make", [functional, sequential])
def test_whole_model_of_keras_3(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "model.h5"
    make().save(path)
    found = read_checkpoint(path)
    same(found.tensors, expected(path, depthwise="kernel"))
    assert (found.format, found.dialect, found.counted) == ("keras-h5", "tf", False)
    assert found.notes == ("read under 'model_weights'",)


@pytest.mark.parametrize("wrong", [b"\xff", b'"', b"9", b"-"])
def test_one_wrong_byte_in_the_models_description(tmp_path: Path, wrong: bytes) -> None:
    """The file is read, or refused with a FileError, wherever the byte stands."""
    path = tmp_path / "model.h5"
    sequential().save(path)
    whole = path.read_bytes()
    start, length = whole.index(b'{"module"'), len(h5py.File(path).attrs["model_config"])
    for position in range(start, start + length, 61):
        path.write_bytes(whole[:position] + wrong + whole[position + 1 :])
        with suppress(FileError):
            read_checkpoint(path)


def test_only_weights_of_keras_3(tmp_path: Path) -> None:
    from keras.src.legacy.saving.legacy_h5_format import save_weights_to_hdf5_group

    model, path, whole = functional(), tmp_path / "weights.h5", tmp_path / "whole.h5"
    with h5py.File(path, "w") as file:
        save_weights_to_hdf5_group(file, model)
    model.save(whole)
    same(read_checkpoint(path).tensors, expected(whole, depthwise="kernel"))
    assert read_checkpoint(path).notes == ()


def test_tensors_stand_in_the_order_of_the_layers(tmp_path: Path) -> None:
    path = write_legacy(
        tmp_path / "a.h5",
        {name: {f"{name}/kernel:0": KERNEL} for name in ("conv2d_2", "conv2d_10", "conv2d_1")},
    )
    assert list(read_checkpoint(path).tensors) == ["conv2d_2/kernel", "conv2d_10/kernel", "conv2d_1/kernel"]


def test_tensors_are_views_of_the_file(tmp_path: Path) -> None:
    """Copies of all tensors would take half of the time that reading a file takes, and as much memory as the
    file.
    """
    found = read_checkpoint(
        write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL, "c/bias:0": VECTOR}})
    ).tensors
    assert not any(array.flags.writeable for array in found.values())
    same(found, {"c/kernel": KERNEL, "c/bias": VECTOR})


def nested_config(name: str, *layers: str) -> bytes:
    """The config of a Sequential whose one layer is a Sequential of convolutions."""
    inner = [
        {"class_name": "Conv2D", "config": {"name": one, "filters": 2, "kernel_size": 3, "use_bias": False}}
        for one in layers
    ]
    source = {"class_name": "InputLayer", "config": {"name": "in", "batch_input_shape": [None, 8, 8, 3]}}
    base = {"class_name": "Sequential", "config": {"name": name, "layers": [source, *inner]}}
    return json.dumps({"class_name": "Sequential", "config": {"name": "whole", "layers": [base]}}).encode()


def test_scopes_that_tf_1_numbered_have_their_layers_names(tmp_path: Path) -> None:
    """A backbone that was made twice in one TF 1 session: `c_1` is the layer `c`, `d_2` a name of its own."""
    path = write_legacy(
        tmp_path / "a.h5", {"base": {"c_1/kernel:0": KERNEL, "d_2/kernel:0": KERNEL}}, "model_weights"
    )
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = nested_config("base", "c", "d_2")
    found = read_checkpoint(path)
    same(found.tensors, {"c/kernel": KERNEL, "d_2/kernel": KERNEL})
    assert found.graph is not None
    assert [node.tensors["kernel"].name for node in found.graph.nodes] == ["c/kernel", "d_2/kernel"]


def test_a_nested_model_of_one_layer_has_that_layers_name(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "a.h5", {"base": {"c/kernel:0": KERNEL}}, "model_weights")
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = nested_config("base", "c")
    same(read_checkpoint(path).tensors, {"c/kernel": KERNEL})


@pytest.mark.parametrize("config", [b"{", b"[]", b'{"class_name": "Model", "config": {"layers": 3}}'])
def test_a_damaged_config_is_refused(tmp_path: Path, config: bytes) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}}, "model_weights")
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = config
    with pytest.raises(FileError, match="description of its model cannot be read"):
        read_checkpoint(path)


def test_keras_2_whole_model(tmp_path: Path) -> None:
    groups = {"input_1": {}, "conv1": {"conv1/kernel:0": KERNEL, "conv1/bias:0": VECTOR}}
    path = write_legacy(
        tmp_path / "a.h5", groups, "model_weights", keras_version=b"2.2.4", backend=b"tensorflow"
    )
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = b'{"class_name": "Model"}'
        file["optimizer_weights/iterations:0"] = 3
    found = read_checkpoint(path)
    same(found.tensors, {"conv1/kernel": KERNEL, "conv1/bias": VECTOR})
    assert found.notes == ("read under 'model_weights'", "ignored the optimiser's state")


@pytest.mark.parametrize("scope", ["conv1_1", "model/conv1", "conv1_1/conv1", "renamed"])
def test_a_groups_name_is_the_layers_whatever_the_scope(tmp_path: Path, scope: str) -> None:
    path = write_legacy(
        tmp_path / "a.h5", {"conv1": {f"{scope}/kernel:0": KERNEL, f"{scope}/bias:0": VECTOR}}
    )
    same(read_checkpoint(path).tensors, {"conv1/kernel": KERNEL, "conv1/bias": VECTOR})


def test_keras_1_names(tmp_path: Path) -> None:
    norm = {
        f"bn_1_{name}:0": VECTOR + place
        for place, name in enumerate(("gamma", "beta", "running_mean", "running_std"))
    }
    path = write_legacy(
        tmp_path / "a.h5", {"conv_1": {"conv_1_W:0": KERNEL, "conv_1_b:0": VECTOR}, "bn_1": norm}
    )
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    wanted = {f"bn_1/{name}": VECTOR + place for place, name in enumerate(names)}
    same(read_checkpoint(path).tensors, {"conv_1/kernel": KERNEL, "conv_1/bias": VECTOR, **wanted})


def test_long_lists_of_names_are_spread_over_attributes(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "a.h5", {"a": {"a/kernel:0": KERNEL}, "b": {"b/kernel:0": KERNEL + 1}})
    with h5py.File(path, "a") as file:
        del file.attrs["layer_names"]
        file.attrs["layer_names0"], file.attrs["layer_names1"] = np.array([b"a"]), np.array([b"b"])
    same(read_checkpoint(path).tensors, {"a/kernel": KERNEL, "b/kernel": KERNEL + 1})


def test_nested_models_show_only_where_names_clash(tmp_path: Path) -> None:
    inner = {"conv1/kernel:0": KERNEL, "conv2/kernel:0": KERNEL + 1}
    path = write_legacy(tmp_path / "a.h5", {"net": inner, "conv2": {"conv2/kernel:0": KERNEL + 2}})
    same(
        read_checkpoint(path).tensors,
        {"conv1/kernel": KERNEL, "net/conv2/kernel": KERNEL + 1, "conv2/kernel": KERNEL + 2},
    )


@pytest.mark.parametrize("dtype", ["<f2", "<f8", ">f4"])
def test_number_types_are_kept(tmp_path: Path, dtype: str) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL.astype(dtype)}})
    found = read_checkpoint(path).tensors["c/kernel"]
    assert found.dtype == np.dtype(dtype).newbyteorder("=") and found.dtype.isnative
    np.testing.assert_array_equal(found, KERNEL)


def test_nan_is_a_value(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/bias:0": VECTOR * np.float32("nan")}})
    assert np.isnan(read_checkpoint(path).tensors["c/bias"]).all()


def test_cut_short_at_every_length_of_interest(tmp_path: Path) -> None:
    whole = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL, "c/bias:0": VECTOR}}).read_bytes()
    cut = tmp_path / "cut.h5"
    for length in [*range(1, 200, 7), *range(200, len(whole), 97), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        unreadable(cut)


def test_kernels_of_theano_are_turned(tmp_path: Path) -> None:
    """As Keras 2 does when it loads them: a whole model then gives what it gave on Theano, which
    convolves.
    """
    dense, groups = np.ones((2, 5), np.float32), {"c": {"c/kernel:0": KERNEL, "c/bias:0": VECTOR}}
    path = write_legacy(tmp_path / "a.h5", {**groups, "d": {"d/kernel:0": dense}}, backend=b"theano")
    same(read_checkpoint(path).tensors, {"c/kernel": KERNEL[::-1, ::-1], "c/bias": VECTOR, "d/kernel": dense})
    assert "turned around" in read_checkpoint(path).notes[0]
    unreadable(
        write_legacy(tmp_path / "b.h5", {"c": {"c/depthwise_kernel:0": KERNEL}}, backend=b"theano"),
        "Theano",
        "flips",
    )


def test_a_list_that_names_what_is_not_there(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        del file["c/c/kernel:0"]
    unreadable(path, "'kernel:0' in group '/c/c'", "found none")


@pytest.mark.parametrize("names", [["c/kernel:0", "c/kernel:0"], ["c/kernel:0", "c/kernel"]])
def test_one_variable_twice(tmp_path: Path, names: list[str]) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL, "c/kernel": KERNEL}})
    with h5py.File(path, "a") as file:
        file["c"].attrs["weight_names"] = np.array([name.encode() for name in names])
    unreadable(path, "two variables 'kernel'")


def test_one_layer_twice(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        file.attrs["layer_names"] = np.array([b"c", b"c"])
    unreadable(path, "two tensors", "c/kernel")


@pytest.mark.parametrize("place", ["c", "c/c", "c/c/kernel:0"])
@pytest.mark.parametrize("link", [h5py.SoftLink("/elsewhere"), h5py.ExternalLink("other.h5", "/elsewhere")])
def test_links_are_not_followed(tmp_path: Path, place: str, link: Any) -> None:
    other = write_legacy(tmp_path / "other.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(other, "a") as file:
        file["elsewhere"] = file[place]
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        file["elsewhere"] = file[place]
        del file[place]
        file[place] = link
    unreadable(path, "leads elsewhere", "follows no links")


def test_values_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(KERNEL.tobytes())
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        del file["c/c/kernel:0"]
        file["c/c"].create_dataset(
            "kernel:0", KERNEL.shape, "f4", external=[(str(tmp_path / "secret"), 0, KERNEL.nbytes)]
        )
    unreadable(path, "another file")


def test_virtual_datasets(tmp_path: Path) -> None:
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["data"] = KERNEL
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    layout = h5py.VirtualLayout(KERNEL.shape, "f4")
    layout[...] = h5py.VirtualSource(other, "data", KERNEL.shape)
    with h5py.File(path, "a") as file:
        del file["c/c/kernel:0"]
        file["c/c"].create_virtual_dataset("kernel:0", layout)
    unreadable(path, "another file")


@pytest.mark.parametrize(
    "value", [np.array([b"text"]), np.array([1 + 2j]), np.array([(1, 2.0)], dtype="i4,f4")]
)
def test_values_that_are_not_numbers(tmp_path: Path, value: Array) -> None:
    unreadable(write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": value}}), "expected numbers")


def test_objects(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        del file["c/c/kernel:0"]
        file["c/c"].create_dataset("kernel:0", (2,), h5py.string_dtype())
    unreadable(path, "expected numbers")


@pytest.mark.parametrize("filters", [{}, {"chunks": (1024, 1024), "compression": "gzip"}])
def test_sizes_that_the_file_cannot_hold(tmp_path: Path, filters: dict[str, Any]) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        del file["c/c/kernel:0"]
        file["c/c"].create_dataset("kernel:0", (1 << 20, 1 << 20), "f4", **filters)
    unreadable(path, str(1 << 42), "can hold")


def test_one_dataset_under_many_names(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": np.zeros((1000, 1000), np.float32)}})
    with h5py.File(path, "a") as file:
        names = [f"c/v{number}" for number in range(100)]
        for name in names:
            file["c"][name] = file["c/c/kernel:0"]
        file["c"].attrs["weight_names"] = np.array([name.encode() for name in names])
    unreadable(path, "can hold")


def test_a_chunk_that_unpacks_to_more_than_memory(tmp_path: Path) -> None:
    """11 KB of zeros, deflated twice: HDF5 unpacks 2 GB, before the few values that were asked for."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_chunk((4,))
    for _ in range(2):
        settings.set_deflate(9)
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        del file["c/c/kernel:0"]
        space = h5py.h5s.create_simple((4,), (h5py.h5s.UNLIMITED,))
        made = h5py.h5d.create(file["c/c"].id, b"kernel:0", h5py.h5t.NATIVE_FLOAT, space, settings)
        made.write_direct_chunk((0,), zlib.compress(b"\x78\x9c" + 2048 * block))
    unreadable(path, "'/c/c/kernel:0' cannot be read by HDF5", "without compression")


@pytest.mark.parametrize("filters", [{"compression": "gzip"}, {"fletcher32": True}])
def test_a_chunk_that_is_damaged_is_refused(tmp_path: Path, filters: dict[str, Any]) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        del file["c/c/kernel:0"]
        made = file["c/c"].create_dataset("kernel:0", data=KERNEL, chunks=KERNEL.shape, **filters)
        packed = made.id.read_direct_chunk((0,) * KERNEL.ndim)[1]
        made.id.write_direct_chunk((0,) * KERNEL.ndim, packed[:-4] + bytes(4))  # its checksum
    unreadable(path, "'/c/c/kernel:0' cannot be read by HDF5")


def test_compressed_weights_are_read(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        del file["c/c/kernel:0"]
        file["c/c"].create_dataset("kernel:0", data=KERNEL, compression="gzip", shuffle=True)
    same(read_checkpoint(path).tensors, {"c/kernel": KERNEL})


def test_whole_numbers_for_a_kernel(tmp_path: Path) -> None:
    unreadable(
        write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL.astype(np.int8)}}),
        "c/kernel",
        "int8",
        "quantised",
    )


def test_no_tensors(tmp_path: Path) -> None:
    unreadable(write_legacy(tmp_path / "a.h5", {"input_1": {}}), "no tensors")


def test_hdf5_of_someone_else(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["data"] = VECTOR
    assert recognise(path).name == "hdf5"
    unreadable(path, "Keras did not write")


@pytest.mark.parametrize("value", [np.arange(3), np.zeros((2, 2), "S4"), 5])
def test_lists_of_names_that_are_none(tmp_path: Path, value: Any) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        file["c"].attrs["weight_names"] = value
    unreadable(path, "weight_names")


def test_names_that_are_all_the_same_long_text(tmp_path: Path) -> None:
    """HDF5 takes memory for each: 1.1 MB of file took 7.9 GB."""
    count, length = 500, 1_000_000
    path = tmp_path / "names.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = np.array(["ab"] * count, h5py.string_dtype())
        file.attrs["long"] = "L" * length
    data = bytearray(path.read_bytes())

    def references(size: int) -> list[int]:
        """The places of texts of that size: its length, its collection's address, and its index there."""
        places = [match.start() for match in re.finditer(re.escape(size.to_bytes(4, "little")), data)]
        return [
            at
            for at in places
            if data[(where := int.from_bytes(data[at + 4 : at + 12], "little")) : where + 4] == b"GCOL"
        ]

    (long,), short = references(length), references(2)
    assert len(short) == count
    for place in short:
        data[place : place + 16] = data[long : long + 16]
    path.write_bytes(data)
    unreadable(path, "'layer_names' of '/' have more than")


@pytest.mark.parametrize(
    ("number", "size", "said"),
    [
        (1, 2**64 - 16, "a text of 18446744073709551600 bytes at byte"),  # it leads back to itself
        (1, 2**64 - 40, "a text of 18446744073709551576 bytes at byte"),  # to before its collection
        (1, 5000, "a text of 5000 bytes at byte"),
        (0, 0, "is not in its collection"),
    ],
)
def test_a_text_that_leads_out_of_its_collection(tmp_path: Path, number: int, size: int, said: str) -> None:
    """HDF5's own library never ends reading some of these."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"], file.attrs["backend"] = ["a"], "tensorflow"
    data = bytearray(path.read_bytes())
    first = data.index(b"GCOL") + 16
    assert data[first : first + 16] == b"\1" + bytes(7) + b"\1" + bytes(7)  # number 1, of one byte
    data[first], data[first + 8 : first + 16] = number, size.to_bytes(8, "little")
    path.write_bytes(data)
    unreadable(path, said)


def test_names_of_any_length_are_read(tmp_path: Path) -> None:
    """As a script that renames layers writes them."""
    path = write_legacy(
        tmp_path / "names.h5", {"conv": {"conv/kernel:0": np.ones((1, 1, 2, 3), np.float32)}}, text="t" * 5000
    )
    with h5py.File(path, "a") as file:
        file.attrs["layer_names"] = np.array(["conv"], h5py.string_dtype())
    assert list(read_checkpoint(path).tensors) == ["conv/kernel"]


def test_links_of_long_names_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("porter.formats.limits._NEVER_REFUSED", 1000)
    monkeypatch.setattr("porter.formats.limits._MOST_EXPANSION", 0)
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["layers/" + "n" * 2000 + "/vars/0"] = np.ones(3, np.float32)
    unreadable(tmp_path / "links.h5", "the names in '/layers' have more than 1000 bytes")


def of_every_kind(path: Path, unusual: Mapping[str, Any], **settings: Any) -> Path:
    """A layer for each way in which h5py keeps numbers and texts; `unusual` are settings of a dataset."""
    rng = np.random.default_rng(0)
    compact, sparse = h5py.h5p.create(h5py.h5p.DATASET_CREATE), {"chunks": (2, 4, 3)}
    compact.set_layout(h5py.h5d.COMPACT)
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        **{
            dtype: (rng.standard_normal((3, 4)).astype(dtype), {})
            for dtype in ("<f2", ">f4", "<f8", "i1", ">i2", "u4", "?")
        },
        "bfloat16": (rng.integers(0, 65535, (3, 4)).astype("u2").view("V2"), {}),
        "scalar": (np.float32(2.5), {}),
        "empty": (np.zeros((0, 3), "f4"), {}),
        "compact": (rng.standard_normal((3, 4)), {"dcpl": compact}),
        "chunks": (rng.standard_normal((5, 6, 7)), sparse),
        "shuffled": (rng.standard_normal((5, 6, 7)), {**sparse, "compression": "gzip", "shuffle": True}),
        "growing": (
            rng.standard_normal((5, 6, 7)),
            {**sparse, "compression": "gzip", "maxshape": (None, 6, None)},
        ),
        "unusual": (rng.standard_normal((5, 6, 7)), dict(unusual)),
    }
    with h5py.File(path, "w", **settings) as file:
        file.attrs["layer_names"] = np.array(list(kinds), h5py.string_dtype())
        for name, (values, options) in kinds.items():
            group = file.create_group(name, track_order=bool(settings.get("track_order")))
            group.create_dataset("ü/w:0", data=values, **options)
            group.attrs["weight_names"] = ["ü/w:0".encode()]  # as Keras does: h5py calls it ASCII
            for number in range(12):
                group.attrs[f"other{number}"] = number
        if settings:
            file["type"], file["link"] = np.dtype("f4"), h5py.ExternalLink("b.h5", "/x")
    return path


@pytest.mark.parametrize(
    ("unusual", "settings"),
    [
        ({}, {}),
        ({"compression": "lzf", "fletcher32": True}, {}),
        ({"fillvalue": 3.0}, {"libver": "latest"}),
        ({}, {"track_order": True}),
    ],
)
def test_what_h5py_reads(tmp_path: Path, unusual: dict[str, Any], settings: dict[str, Any]) -> None:
    """The first is read by porter, the others are copied by HDF5's own library first."""
    path = of_every_kind(tmp_path / "a.h5", unusual, **settings)
    found = read_checkpoint(path).tensors
    with h5py.File(path) as file:
        for name in file.attrs["layer_names"]:
            wanted = file[name]["ü/w:0"]
            assert (
                found[f"{name}/w"].tobytes()
                == np.asarray(wanted[()]).astype(wanted.dtype.newbyteorder("=")).tobytes()
            ), name
            assert found[f"{name}/w"].shape == wanted.shape
            assert wanted.dtype.kind == "V" or found[f"{name}/w"].dtype == wanted.dtype.newbyteorder("=")
    assert found["bfloat16/w"].dtype.name == "bfloat16"


def test_numbers_in_a_part_of_their_bytes(tmp_path: Path) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL, "c/counts:0": VECTOR}})
    kind, numbers = h5py.h5t.STD_I32LE.copy(), np.array([-5, 7, 2047], np.int32)
    kind.set_precision(12)
    kind.set_offset(4)
    with h5py.File(path, "a") as file:
        del file["c/c/counts:0"]
        made = h5py.h5d.create(file["c/c"].id, b"counts:0", kind, h5py.h5s.create_simple((3,)))
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, numbers)
    same(read_checkpoint(path).tensors, {"c/kernel": KERNEL, "c/counts": numbers})


def test_many_layers_with_names_beyond_ascii(tmp_path: Path) -> None:
    """HDF5 keeps nine such links in a heap, whatever version of the format is asked for."""
    layers = {f"größe{number}": {f"größe{number}/kernel:0": KERNEL + number} for number in range(9)}
    found = read_checkpoint(write_legacy(tmp_path / "a.h5", layers)).tensors
    for number in range(9):
        np.testing.assert_array_equal(found[f"größe{number}/kernel"], KERNEL + number)


def test_hdf5s_own_library_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It follows texts for ever, and porter's reader does not know the file's headers."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["layer_names"], file.attrs["backend"] = ["a"], "tensorflow"
    data = bytearray(path.read_bytes())
    first = data.index(b"GCOL") + 16
    data[first + 8 : first + 16] = (2**64 - 16).to_bytes(8, "little")
    path.write_bytes(data)
    monkeypatch.setattr("porter.formats.apart.READING", Limits(seconds=1))
    unreadable(path, "HDF5 does not read it in 1 seconds")


@pytest.mark.parametrize("written", [False, True])
def test_values_that_were_never_written(tmp_path: Path, written: bool) -> None:
    path = write_legacy(tmp_path / "a.h5", {"c": {"c/kernel:0": KERNEL}})
    with h5py.File(path, "a") as file:
        del file["c/c/kernel:0"]
        made = file["c/c"].create_dataset("kernel:0", (4, 4), "f4", chunks=(2, 2) if written else None)
        if written:
            made[:2] = 1
    unreadable(path, "never written")
