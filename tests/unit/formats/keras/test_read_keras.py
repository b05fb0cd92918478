"""Keras 3's `.weights.h5` and `.keras`, against Keras itself."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

from porter.formats.keras.config import snake_case
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from tests.support.arrays import Array
from tests.support.frameworks.tf.small_models import expected, functional, leaves, sequential
from tests.support.refusals import unreadable

KERNEL = np.arange(54, dtype=np.float32).reshape(3, 3, 3, 2)
VECTOR = np.array([1.5, -2.25], dtype=np.float32)
Edit = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    functional().save(path)
    return path


def same(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        assert np.asarray(found[name]).tobytes() == np.asarray(value).tobytes(), name


def rewritten(
    path: Path, folder: Path, edits: Mapping[str, Edit], compression: int = zipfile.ZIP_STORED
) -> Path:
    """The archive with some members changed."""
    changed = folder / "changed.keras"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, edits.get(name, lambda data: data)(old.read(name)))
    return changed


def without_names(data: bytes) -> bytes:
    """As earlier Keras 3 wrote it: no name attributes, no groups for layers without variables."""
    image = io.BytesIO(data)
    with h5py.File(image, "a") as file:

        def strip(name: str, item: Any) -> None:
            if "name" in item.attrs:
                del item.attrs["name"]

        file.visititems(strip)
        for name in [
            name
            for name, group in file["layers"].items()
            if list(group) == ["vars"] and not len(group["vars"])
        ]:
            del file["layers"][name]
    return image.getvalue()


def test_archive_against_keras(archive: Path) -> None:
    found = read_checkpoint(archive)
    same(found.tensors, expected(archive, depthwise="depthwise_kernel"))
    assert (found.format, found.dialect, found.counted, found.notes) == ("keras", "tf", False, ())
    assert [name for name in found.tensors if name.endswith("kernel")][:3] == [
        "c12/kernel",
        "c11/kernel",
        "c10/kernel",
    ]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archive_names_come_only_from_the_config(archive: Path, tmp_path: Path, compression: int) -> None:
    path = rewritten(archive, tmp_path, {"model.weights.h5": without_names}, compression)
    found = read_checkpoint(path)
    same(found.tensors, expected(archive, depthwise="depthwise_kernel"))
    assert not found.counted


def test_archive_of_a_sequential_that_was_trained(tmp_path: Path) -> None:
    import keras

    model = sequential()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    model.fit(np.ones((2, 8, 8, 3)), np.array([0, 1]), verbose=0)
    path = tmp_path / "a.keras"
    model.save(path)
    found = read_checkpoint(path)
    same(found.tensors, expected(path, depthwise="depthwise_kernel"))
    assert found.notes == ("ignored the optimiser's state",)


def test_what_compiled_models_have_besides_layers(archive: Path, tmp_path: Path) -> None:
    """Keras 2.12 to 2.15 keep metrics beside the optimiser, and every Keras the optimiser of a nested
    model.
    """

    def compiled(data: bytes) -> bytes:
        image = io.BytesIO(without_names(data))
        with h5py.File(image, "a") as file:
            for state in (
                "metrics/mean",
                "metrics/auc",
                "layers/functional/optimizer",
                "layers/functional/metrics/mean",
            ):
                file[f"{state}/vars/0"] = np.float32(1)
        return image.getvalue()

    found = read_checkpoint(rewritten(archive, tmp_path, {"model.weights.h5": compiled}))
    same(found.tensors, expected(archive, depthwise="depthwise_kernel"))
    assert not found.counted
    assert found.notes == ("ignored the metrics' state",)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_number_types_are_kept(tmp_path: Path, dtype: str, suffix: str) -> None:
    model, path, whole = sequential(dtype), tmp_path / f"a{suffix}", tmp_path / "whole.keras"
    model.save(whole)
    model.save(path) if suffix == ".keras" else model.save_weights(path)
    wanted = expected(whole, depthwise="depthwise_kernel")
    assert wanted["conv1/kernel"].dtype == np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    same(read_checkpoint(path).tensors, wanted)


def test_frozen_layers_keep_their_order(tmp_path: Path) -> None:
    model, path = sequential(), tmp_path / "a.keras"
    model.trainable = False
    model.save(path)
    same(read_checkpoint(path).tensors, expected(path, depthwise="depthwise_kernel"))


def test_only_weights_with_names(archive: Path, tmp_path: Path) -> None:
    import keras

    path = tmp_path / "a.weights.h5"
    keras.models.load_model(archive).save_weights(path)
    found, wanted = read_checkpoint(path), expected(archive, depthwise="depthwise_kernel")
    # The file does not say which of gamma and beta a norm of three variables has; the reader takes beta, and
    # says so.
    wanted["bn_gamma/beta"] = wanted.pop("bn_gamma/gamma")
    same(found.tensors, wanted)
    # One note for all norms.
    assert not found.counted and sum("scale=False" in note for note in found.notes) == 1


def test_only_weights_without_names(archive: Path, tmp_path: Path) -> None:
    import keras

    path = tmp_path / "a.weights.h5"
    with zipfile.ZipFile(archive) as members:
        path.write_bytes(without_names(members.read("model.weights.h5")))
    found, wanted = read_checkpoint(path), expected(archive, depthwise="depthwise_kernel")
    assert found.counted and any("class and counter" in note for note in found.notes)
    counts: dict[str, int] = {}
    convolutions = [
        layer for layer in keras.models.load_model(archive).layers if type(layer).__name__ == "Conv2D"
    ]
    assert len(convolutions) == 12
    for layer in convolutions:
        number = counts["conv2d"] = counts.get("conv2d", -1) + 1
        name = f"conv2d_{number}" if number else "conv2d"
        np.testing.assert_array_equal(found.tensors[f"{name}/kernel"], wanted[f"{layer.name}/kernel"])
        assert (f"{name}/bias" in found.tensors) == layer.use_bias
    # Nested layers share counters with the outer model, so they are shown with the model that they stand in.
    np.testing.assert_array_equal(found.tensors["functional/conv2d/kernel"], wanted["inner_conv/kernel"])
    np.testing.assert_array_equal(
        found.tensors["sequential/batch_normalization/gamma"], wanted["tail_bn/gamma"]
    )
    np.testing.assert_array_equal(
        found.tensors["depthwise_conv2d/depthwise_kernel"], wanted["conv_dw_1/depthwise_kernel"]
    )
    order = [name for name in found.tensors if name.startswith("conv2d") and name.endswith("/kernel")]
    assert order == ["conv2d/kernel", *(f"conv2d_{number}/kernel" for number in range(1, 12))]


def test_counted_names_against_every_class_that_keras_counts(archive: Path) -> None:
    import keras
    from keras.src.utils.naming import to_snake_case

    classes = {type(layer).__name__ for layer in leaves(keras.models.load_model(archive))} | {
        "PReLU",
        "ReLU",
        "Conv2DTranspose",
    }
    assert {name: snake_case(name) for name in classes} == {name: to_snake_case(name) for name in classes}


def write_counted(path: Path, layers: Mapping[str, list[Array]], container: str = "layers") -> Path:
    with h5py.File(path, "w") as file:
        for name, values in layers.items():
            group = file.create_group(f"{container}/{name}/vars")
            for number, value in enumerate(values):
                group[str(number)] = value
    return path


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (2, ["moving_mean", "moving_variance"]),
        (3, ["beta", "moving_mean", "moving_variance"]),
        (4, ["gamma", "beta", "moving_mean", "moving_variance"]),
    ],
)
def test_norms_by_their_count(tmp_path: Path, count: int, names: list[str]) -> None:
    values = [VECTOR + number for number in range(count)]
    found = read_checkpoint(write_counted(tmp_path / "a.weights.h5", {"batch_normalization_7": values}))
    same(
        found.tensors,
        {f"batch_normalization_7/{name}": value for name, value in zip(names, values, strict=True)},
    )
    assert any("scale=False" in note for note in found.notes) == (count == 3)


def test_tensorflow_2_13_container(tmp_path: Path) -> None:
    path = write_counted(
        tmp_path / "a.weights.h5", {"conv2d": [KERNEL, VECTOR]}, "_layer_checkpoint_dependencies"
    )
    same(read_checkpoint(path).tensors, {"conv2d/kernel": KERNEL, "conv2d/bias": VECTOR})


def test_subclassed_model(tmp_path: Path) -> None:
    path = tmp_path / "a.weights.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("stem/vars")
        group.attrs["name"], group["0"] = "conv_a", KERNEL
    assert recognise(path).name == "keras-weights-h5"
    same(read_checkpoint(path).tensors, {"conv_a/0": KERNEL})


def test_wrapped_layers_stand_under_their_wrapper(tmp_path: Path) -> None:
    import keras
    from keras import layers

    stack = [keras.Input((2, 8, 8, 3)), layers.TimeDistributed(layers.Conv2D(2, 3), name="frames")]
    path = tmp_path / "a.keras"
    keras.Sequential(stack).save(path)
    found = read_checkpoint(rewritten(path, tmp_path, {"model.weights.h5": without_names}))
    assert {name: array.shape for name, array in found.tensors.items()} == {
        "layer/0": (3, 3, 3, 2),
        "layer/1": (2,),
    }
    assert not found.counted


@pytest.mark.parametrize("values", [[KERNEL] * 3, [VECTOR] * 4])
def test_more_variables_than_a_class_has(tmp_path: Path, values: list[Array]) -> None:
    unreadable(
        write_counted(tmp_path / "a.weights.h5", {"conv2d": values}),
        "conv2d",
        f"{len(values)} variables",
        "quantised",
    )


def test_fewer_variables_than_the_config_says(archive: Path, tmp_path: Path) -> None:
    def without_bias(data: bytes) -> bytes:
        image = io.BytesIO(data)
        with h5py.File(image, "a") as file:
            del file["layers/dense/vars/1"]
        return image.getvalue()

    unreadable(
        rewritten(archive, tmp_path, {"model.weights.h5": without_bias}), "dense", "expected 2: kernel, bias"
    )


def test_numbers_with_a_gap(tmp_path: Path) -> None:
    path = write_counted(tmp_path / "a.weights.h5", {"conv2d": [KERNEL, VECTOR]})
    with h5py.File(path, "a") as file:
        file.move("layers/conv2d/vars/1", "layers/conv2d/vars/2")
    unreadable(path, "expected variables 0 to 1")


def test_groups_in_a_circle(tmp_path: Path) -> None:
    path = write_counted(tmp_path / "a.weights.h5", {"conv2d": [KERNEL]})
    with h5py.File(path, "a") as file:
        file["layers/conv2d/again"] = file["layers"]
    unreadable(path, "is twice")


def test_links(tmp_path: Path) -> None:
    path = write_counted(tmp_path / "a.weights.h5", {"conv2d": [KERNEL]})
    with h5py.File(path, "a") as file:
        file["layers/other"] = h5py.ExternalLink("other.h5", "/")
    unreadable(path, "leads elsewhere")


@pytest.mark.parametrize("length", [0.05, 0.3, 0.6, 0.9, 0.999])
def test_cut_short(archive: Path, tmp_path: Path, length: float) -> None:
    data, cut = archive.read_bytes(), tmp_path / "cut.keras"
    cut.write_bytes(data[: int(len(data) * length)])
    unreadable(cut, "cut short")


def test_a_changed_byte_is_caught_by_the_archives_sum(archive: Path, tmp_path: Path) -> None:
    data = bytearray(archive.read_bytes())
    kernel = np.asarray(read_checkpoint(archive).tensors["c12/kernel"]).tobytes()
    data[bytes(data).index(kernel) + 5] ^= 1
    changed = tmp_path / "a.keras"
    changed.write_bytes(data)
    unreadable(changed, "damaged", "CRC")


def test_weights_cut_short_within_the_archive(archive: Path, tmp_path: Path) -> None:
    unreadable(
        rewritten(archive, tmp_path, {"model.weights.h5": lambda data: data[: len(data) // 2]}),
        "this HDF5 file is damaged",
    )


def test_a_member_twice(archive: Path, tmp_path: Path) -> None:
    path = rewritten(archive, tmp_path, {})
    with zipfile.ZipFile(path, "a") as members, pytest.warns(UserWarning, match="Duplicate"):
        members.writestr("config.json", "{}")
    unreadable(path, "two members of this archive are called 'config.json'")


def test_a_member_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    with zipfile.ZipFile(path, "w") as members:
        members.writestr("config.json", "{}")
        members.writestr("metadata.json", "{}")
    unreadable(path, "this archive lacks 'model.weights.h5'")


@pytest.mark.parametrize(("name", "size"), [("config.json", 17 << 20), ("model.weights.h5", 66 << 20)])
def test_members_that_would_unpack_without_end(name: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as members:
        for member in ("config.json", "model.weights.h5"):
            members.writestr(member, bytes(size) if member == name else "{}")
    assert path.stat().st_size < 1 << 20
    unreadable(path, f"'{name}' declares {size} bytes")


def test_a_member_longer_than_declared(archive: Path, tmp_path: Path) -> None:
    path = rewritten(archive, tmp_path, {}, zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    directory = data.rindex(b"model.weights.h5") - 46
    size = int.from_bytes(data[directory + 24 : directory + 28], "little")
    data[directory + 24 : directory + 28] = (size // 2).to_bytes(4, "little")
    path.write_bytes(data)
    unreadable(path, "damaged")


@pytest.mark.parametrize(
    "config",
    [
        b"",
        b"[]",
        b"{",
        b'{"config": 5}',
        b'{"config": {"layers": [5]}}',
        b'{"config": {"layers": [{"class_name": 1, "config": {}}]}}',
    ],
)
def test_configs_that_are_none(archive: Path, tmp_path: Path, config: bytes) -> None:
    unreadable(
        rewritten(archive, tmp_path, {"config.json": lambda _: config}),
        "the file's description of its model cannot be read",
    )


def test_a_config_of_more_values_than_any_models(archive: Path, tmp_path: Path) -> None:
    config = b"[" + b"[]," * (1 << 20) + b"0]"
    unreadable(
        rewritten(archive, tmp_path, {"config.json": lambda _: config}), "has more than 2097152 values"
    )


def test_a_config_nested_without_end(archive: Path, tmp_path: Path) -> None:
    unreadable(
        rewritten(archive, tmp_path, {"config.json": lambda _: b"[" * 200_000}),
        "the file's description of its model cannot be read",
    )


def test_a_config_runs_nothing(archive: Path, tmp_path: Path) -> None:
    def with_code(data: bytes) -> bytes:
        config = json.loads(data)
        lambda_layer = {
            "module": "builtins",
            "class_name": "Lambda",
            "config": {"name": "l", "function": "import os; os._exit(7)"},
        }
        config["config"]["layers"].append(lambda_layer)
        return json.dumps(config).encode()

    found = read_checkpoint(rewritten(archive, tmp_path, {"config.json": with_code}))
    same(found.tensors, expected(archive, depthwise="depthwise_kernel"))


def test_names_in_the_archive_are_never_paths(archive: Path, tmp_path: Path) -> None:
    path = rewritten(archive, tmp_path, {})
    with zipfile.ZipFile(path, "a") as members:
        members.writestr("../escaped", "x")
    before = sorted(tmp_path.parent.iterdir())
    read_checkpoint(path)
    assert sorted(tmp_path.parent.iterdir()) == before


def test_a_users_own_layer_without_a_name_in_its_config(tmp_path: Path) -> None:
    """Keras writes only the arguments of a class that has no `get_config`; the layer's name stands beside
    them.
    """
    import keras

    class Window(keras.layers.Layer):
        def __init__(self, cells: int, **others: Any) -> None:
            super().__init__(**others)
            self.inner = keras.layers.Dense(cells)

        def build(self, shape: Any) -> None:
            self.inner.build(shape)

        def call(self, x: Any) -> Any:
            return self.inner(x)

    image = keras.Input((6, 6, 3))
    keras.Model(image, Window(4, name="own")(keras.layers.Conv2D(2, 3)(image))).save(tmp_path / "model.keras")
    graph = read_checkpoint(tmp_path / "model.keras").graph
    assert graph is not None and graph.by_name["own"].op.kind.startswith("Window of")  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
def test_a_sequential_of_a_layer_without_get_config(name: str, tmp_path: Path) -> None:
    """A Sequential has its layers' names in their configs only."""
    import keras

    class Scale(keras.layers.Layer):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = by

        def call(self, x: Any) -> Any:
            return x * self.by

    keras.Sequential([keras.Input((6, 6, 3)), keras.layers.Conv2D(2, 3), Scale(2.0)]).save(tmp_path / name)
    unreadable(tmp_path / name, "class 'Scale' was not saved whole", "give the class a get_config() that")
