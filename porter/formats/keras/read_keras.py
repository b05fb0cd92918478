"""Keras 3's own formats: `.weights.h5`, and `.keras`, which is a zip of one with the model's config.

A layer's variables are at `layers/CLASS_COUNTER/vars/0`, `/1` and so on, and those of a nested model at
`layers/functional/layers/...`. The numbers are the order in which the class makes its variables, trainable
ones first (keras/src/layers/layer.py, save_own_variables).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.filegraph.checkpoint import Checkpoint
from porter.files.zips import ZipMembers, open_zip
from porter.formats.keras import CONFIG, METADATA, WEIGHTS, hdf5
from porter.formats.keras.config import Described, WeightsPath, describe_layers
from porter.formats.keras.graph import read_graph, with_graph
from porter.formats.keras.layer_variables import COUNTED
from porter.formats.keras.tensor_names import Holder, is_scaling, name_tensors
from porter.formats.limits import most_bytes, read_json

_SMALL_CONFIG = 16 << 20
"""Bytes of a config that is always read: the configs of Keras's largest models have half of that."""
_NOT_THE_MODEL = {"optimizer": "the optimiser's state", "metrics": "the metrics' state"}
"""What compiled models have besides layers, nested ones too; Keras 2 keeps its metrics."""

_RENORM = ("moving_stddev", "renorm_mean", "renorm_stddev")


def read_weights_h5(path: Path) -> Checkpoint:
    """Read a `.weights.h5`. Later Keras 3 stores each layer's name in it; without them, names are
    `class_counter/variable`.

    Raises:
        FileError: it is damaged, or a layer has other variables than its class.
    """
    return hdf5.read_hdf5(path, lambda file: _read_checkpoint(file, "keras-weights-h5", {}))


def read_keras(path: Path, outputs: Sequence[str] = ()) -> Checkpoint:
    """Read a `.keras` archive: only its config and its weights, both into memory. Its graph ends at `outputs`
    if any are named.

    Raises:
        FileError: it is damaged or incomplete, or a layer has other variables than its config says.
        UsageError: the model lacks one of `outputs`.
    """
    archive = read_archive(path)
    described = describe_layers(archive.config, path)
    checkpoint = hdf5.read_hdf5(
        path, lambda file: _read_checkpoint(file, "keras", described), archive.weights
    )
    metadata = {"keras_version": _keras_version(archive.metadata)}
    return with_graph(
        checkpoint, read_graph(archive.config, checkpoint.tensors, str(path), metadata, outputs)
    )


@dataclass(frozen=True)
class ArchiveBytes:
    """The bytes of the members of a `.keras` archive that are read."""

    config: bytes
    metadata: bytes
    weights: bytes


def read_archive(path: Path) -> ArchiveBytes:
    """Read the members of a `.keras` archive.

    Raises:
        FileError: it is damaged or incomplete.
    """
    size = path.stat().st_size
    with open_zip(path, ".keras archive") as archive:
        # The most bytes that all members together may unpack to.
        members = ZipMembers(archive, path, 2 * max(size, _SMALL_CONFIG) + most_bytes(size))
        return ArchiveBytes(
            # JSON takes some thirty times its bytes in memory, so a small file may not unpack to a large
            # config.
            members.read(CONFIG, max(size, _SMALL_CONFIG)),
            members.read(METADATA, _SMALL_CONFIG) if METADATA in members.by_name else b"{}",
            members.read(WEIGHTS, most_bytes(size)),
        )


def _keras_version(metadata: bytes) -> str | None:
    """Return the version of Keras that a file's metadata states; None if they state none or are damaged."""
    try:
        fields = read_json(metadata)
    except (ValueError, RecursionError):
        return None
    version = fields.get("keras_version") if isinstance(fields, dict) else None
    return version if isinstance(version, str) else None


@dataclass(frozen=True)
class _LayerVariables:
    """A layer's variables as the file keeps them: by number, under its path, with its name if the file has
    it.
    """

    path: WeightsPath
    name: str | None
    numbered: Mapping[str, hdf5.Hdf5Node]


def _read_checkpoint(file: hdf5.Hdf5, format: str, described: Mapping[WeightsPath, Described]) -> Checkpoint:
    """Read the tensors of a `.weights.h5`, with the layers that config.json describes if there is one. Notes
    say what was ignored, guessed or not named.

    Args:
        format: the name of the file's format, for the checkpoint.
        described: the layers by their paths in the file; empty without a config.
    """
    by_path = _read_layers(file)
    names = _layer_names(by_path, described)
    ranks = {path: rank for rank, path in enumerate(described)}
    holders = [layer for layer in by_path.values() if layer.numbered]
    holders.sort(key=lambda layer: _sort_key(layer.path, ranks))
    # Either all layers have names, their own or those of the models around them, or none is used.
    lacks_names = any(layer.path and names.keys().isdisjoint(_path_prefixes(layer.path)) for layer in holders)
    notes = [f"ignored {state}" for name, state in _NOT_THE_MODEL.items() if hdf5.has_child(file.root, name)]
    if lacks_names:
        notes.append("the file holds no layer names: layers are named by class and counter")
        names = {}
    layers, guessed = [], []
    for layer in holders:
        variables, is_guess = _name_variables(file, layer, described.get(layer.path))
        guessed += ["/".join(layer.path)] if is_guess else []
        layers.append(_make_holder(layer, names, variables))
    if guessed:
        reading = "read as beta, moving_mean, moving_variance (scale=False)"
        notes.append(f"batch norms with three variables, {reading}: {len(guessed)}, such as {guessed[0]}")
    tensors = file.read_datasets(name_tensors(file, layers))
    scaling = () if described else _scaling_names(by_path, names)
    return Checkpoint(file.path, format, "tf", tensors, tuple(notes), lacks_names, scaling=scaling)


def _layer_names(
    by_path: Mapping[WeightsPath, _LayerVariables], described: Mapping[WeightsPath, Described]
) -> dict[WeightsPath, str]:
    """Return the layers' own names, as far as the file or its config says them."""
    names = {path: layer.name for path, layer in by_path.items() if layer.name}
    return names | {path: layer.name for path, layer in described.items()}


def _make_holder(
    layer: _LayerVariables, names: Mapping[WeightsPath, str], variables: Mapping[str, hdf5.Hdf5Node]
) -> Holder:
    """Return a layer with its variables under the names of the models around it and its own."""
    levels = [names.get(step, step[-1]) for step in _path_prefixes(layer.path)] or [layer.name or "model"]
    return Holder(levels[-1], "/".join(levels), variables)


def _scaling_names(paths: Iterable[WeightsPath], names: Mapping[WeightsPath, str]) -> tuple[str, ...]:
    """Return the names of layers that scale the input. A group's name is its layer's class."""
    return tuple(names.get(path, path[-1]) for path in paths if path and is_scaling(path[-1]))


def _path_prefixes(path: WeightsPath) -> list[WeightsPath]:
    """Return the paths of the models that a layer is nested in, outermost first, and its own."""
    return [path[: depth + 1] for depth in range(len(path))]


def _read_layers(file: hdf5.Hdf5) -> dict[WeightsPath, _LayerVariables]:
    """Return the variables of every layer by the layer's path."""
    by_path: dict[WeightsPath, _LayerVariables] = {}
    for path, group in file.walk_groups(file.root, _NOT_THE_MODEL):
        layer = _read_layer_variables(file, path, group)
        if layer is None:
            continue
        if layer.path in by_path:
            raise file.refuse(f"layer '{'/'.join(layer.path)}' is twice in the file")
        by_path[layer.path] = layer
    return by_path


def _read_layer_variables(
    file: hdf5.Hdf5, path: tuple[str, ...], group: hdf5.Hdf5Node
) -> _LayerVariables | None:
    """Return the variables in one group, or None where it has none or they are a dropout's random state.
    Raise FileError where their numbers do not run from 0 on.
    """
    if not hdf5.has_child(group, "vars") or "seed_generator" in path:
        return None
    if file.child_of(group, "vars").kind != "group":
        raise file.refuse(f"expected a group of variables at '{group.name}/vars', got a dataset")
    variables = file.group_of(group, "vars")
    # By length first, so that 10 comes behind 9.
    numbers = sorted(file.children(variables), key=lambda key: (len(key), key))
    if numbers != [str(number) for number in range(len(numbers))]:
        raise file.refuse(
            f"expected variables 0 to {len(numbers) - 1} in '{variables.name}', got {', '.join(numbers[:8])}"
        )
    numbered = {number: file.dataset_of(variables, number) for number in numbers}
    return _LayerVariables(_layer_path(path), file.read_text_attribute(variables, "name"), numbered)


def _layer_path(path: tuple[str, ...]) -> WeightsPath:
    """Return a group's path without the containers, which are at every second place, beginning with the
    first.
    """
    return tuple(step for depth, step in enumerate(path) if depth % 2 or step not in hdf5.CONTAINERS)


def _sort_key(path: WeightsPath, ranks: Mapping[WeightsPath, int]) -> tuple[object, ...]:
    """Return a key that sorts layers by the config's order; without a config by class and then by counter,
    because HDF5 lists `_10` before `_2`.
    """
    if path in ranks:
        return (0, ranks[path])
    # `conv2d_10` sorts as conv2d and 10, and `conv2d` as conv2d and 0.
    return (1, *((_class_of(step), int(step[len(_class_of(step)) + 1 :] or 0)) for step in path))


def _class_of(counted: str) -> str:
    return re.sub(r"_\d+$", "", counted)


def _name_variables(
    file: hdf5.Hdf5, layer: _LayerVariables, described: Described | None
) -> tuple[dict[str, hdf5.Hdf5Node], bool]:
    """Return a layer's variables by name, and whether the names are a guess. The variables of an unknown
    class keep their numbers. Raise FileError where the class has another number of variables.
    """
    kind = ""
    if described:
        kind = described.kind
    elif layer.path:
        kind = _class_of(layer.path[-1])
    where = "/".join(layer.path)
    count = len(layer.numbered)
    numbers = tuple(layer.numbered)
    guessed = False
    if kind == "batch_normalization":
        names = _norm_variables(count, described)
        guessed = described is None and count == 3
    elif kind in ("layer_normalization", "group_normalization"):
        scale_and_offset = ("gamma", "beta")
        # Without a config, one variable may be either.
        names_by_count = scale_and_offset if count == len(scale_and_offset) else numbers
        names = _trained_variables(described) if described else names_by_count
    elif kind in COUNTED:
        names = COUNTED[kind]
        has_bias = _has_bias(described) if described else count == len(names)
        names = names if has_bias else names[:-1]
    else:
        names = numbers
    if len(names) != count:
        raise file.refuse(
            f"layer '{where}' has {count} variables, expected {len(names)}: {', '.join(names)}",
            "quantised and LoRA layers are not read: save the model without them",
        )
    return dict(zip(names, layer.numbered.values(), strict=True)), guessed


def _has_bias(layer: Described) -> bool:
    """Return whether a layer has a bias: EinsumDense states the axes of its bias, other classes whether they
    have one.
    """
    return bool(layer.arguments.get("use_bias", True)) and layer.arguments.get("bias_axes", "") is not None


def _norm_variables(count: int, described: Described | None) -> tuple[str, ...]:
    """Return gamma, beta and the statistics, in the order in which BatchNormalization.build makes them.

    Without a config, three variables are read as `scale=False` (beta stays), as in every Inception; no zoo
    has only `center=False`.
    """
    statistics = ("moving_mean", "moving_variance")
    if described is None:
        by_count = {2: statistics, 3: ("beta", *statistics), 4: ("gamma", "beta", *statistics)}
        return by_count.get(count, ("gamma", "beta", *statistics, *_RENORM))
    return (
        *_trained_variables(described),
        *statistics,
        *(_RENORM if described.arguments.get("renorm") else ()),
    )


def _trained_variables(norm: Described) -> tuple[str, ...]:
    """Return the names of the variables that a norm was trained with: gamma and beta, unless its config says
    that it has none.
    """
    return tuple(
        name for name, key in (("gamma", "scale"), ("beta", "center")) if norm.arguments.get(key, True)
    )
