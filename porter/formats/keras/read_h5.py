"""Keras's legacy .h5, only weights or a whole model, as Keras 1, 2 and 3 write it.

Layout: attribute `layer_names` in topological order; a group per layer with attribute `weight_names`, which
are paths of datasets inside that group (keras/src/legacy/saving/legacy_h5_format.py). A whole model has the
same under `model_weights`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from porter.base.dtypes import NamedArrays
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras import hdf5
from porter.formats.keras.tensor_names import Holder, is_scaling, name_tensors

_KERAS_1_VARIABLES = {
    "W": "kernel",
    "b": "bias",
    "running_mean": "moving_mean",
    "running_std": "moving_variance",
}
"""Keras 1 names a variable `layer_W`. It passes its `running_std` to `K.batch_normalization` as the variance,
and Keras 2 loads it as the moving variance unchanged.
"""
_KERAS_1_NAME = re.compile(
    r"(?P<layer>.+)_(?P<variable>W|b|gamma|beta|running_mean|running_std|(?:depthwise|pointwise)_kernel)"
)
_FILTERS_FIRST = re.compile(r'"dim_ordering": *"th"')
"""In a config of Keras 1 (its keras/layers/convolutional.py, `build`)."""
_BACKEND_UNSTATED = (
    "Keras 1 wrote this model with channels first, but not whether it ran on Theano, whose windows "
    "and kernels are others"
)
_STATE_BACKEND = (
    "say so in the file: h5py.File('FILE.h5', 'a')['model_weights'].attrs['backend'] = b'theano', or "
    "b'tensorflow'"
)

_Scope = tuple[str, ...]
_Variables = Mapping[str, hdf5.Hdf5Node]


def read_h5(path: Path, outputs: Sequence[str] = ()) -> Checkpoint:
    """Read a legacy Keras file. Tensors are in the order of its layers; a whole model has its graph in
    `model_config`, which ends at `outputs` if any are named.

    Raises:
        FileError: it is damaged or incomplete, lacks tensors, has kernels of Theano's that Keras does not
            turn, or a `model_config` that is none.
        UsageError: the model lacks one of `outputs`.
    """
    contents = hdf5.read_hdf5(path, _read_contents)
    checkpoint = Checkpoint(path, "keras-h5", "tf", contents.tensors, contents.notes)
    # Weights only: there is no graph, and the layers that scale the input are told by their names.
    if contents.config is None:
        trained = {name.rpartition("/")[0] for name in contents.tensors}
        # Layers stand in the order of the data: those that scale the input come before any other trained one.
        first = takewhile(lambda name: name not in trained or is_scaling(name), contents.layers)
        return replace(checkpoint, scaling=tuple(filter(is_scaling, first)))
    from porter.formats.keras.graph import read_graph, with_graph

    return with_graph(
        checkpoint, read_graph(contents.config, contents.tensors, str(path), contents.metadata, outputs)
    )


def read_scoped(path: Path) -> NamedArrays:
    """Read the tensors of a file of weights by the whole names of its variables, with all scopes that these
    were made in.

    Raises:
        FileError: it is damaged.
    """

    def read(file: hdf5.Hdf5) -> NamedArrays:
        """Read the datasets of all layers by the names in their `weight_names`."""
        datasets: dict[str, hdf5.Hdf5Node] = {}
        for layer in file.read_names_attribute(file.root, "layer_names"):
            group = file.group_of(file.root, layer)
            for weight in file.read_names_attribute(group, "weight_names"):
                scope, _, variable = weight.rpartition("/")
                owner = file.group_of(group, scope) if scope else group
                datasets[weight.removesuffix(":0")] = file.dataset_of(owner, variable)
        return file.read_datasets(datasets)

    return hdf5.read_hdf5(path, read)


@dataclass(frozen=True)
class _Contents:
    """What a file holds: its tensors, the names of its layers in order, and a whole model's config."""

    tensors: NamedArrays
    notes: tuple[str, ...]
    layers: tuple[str, ...]
    config: str | None
    metadata: Mapping[str, str | None]


def _read_contents(file: hdf5.Hdf5) -> _Contents:
    """Read a file's tensors, its layers' names, and the config and statements of a whole model. Notes say
    what was changed or ignored.
    """
    is_whole_model = hdf5.has_child(file.root, "model_weights")
    group = file.group_of(file.root, "model_weights") if is_whole_model else file.root
    names = file.read_names_attribute(group, "layer_names")
    if hdf5.has_child(group, "top_level_model_weights"):
        names += ("top_level_model_weights",)
    config = file.read_text_attribute(file.root, "model_config") if is_whole_model else None
    metadata = {
        "keras_version": file.read_text_attribute(file.root, "keras_version"),
        "backend": file.read_text_attribute(group, "backend"),
    }
    inner_layers: Mapping[str, Collection[str]] = {}
    if config is not None:
        from porter.formats.keras.flow import names_within  # most files hold only weights

        inner_layers = names_within(config, str(file.path))
    layers = list[Holder]()
    for name in names:
        layer_group = file.group_of(group, name)
        layers += _layers_of(file, layer_group, name, inner_layers.get(name, frozenset()))
    tensors = file.read_datasets(name_tensors(file, layers))
    tensors, notes_on_kernels = _with_todays_kernels(file, tensors, config or "", metadata)
    notes = [*(["read under 'model_weights'"] if is_whole_model else []), *notes_on_kernels]
    if hdf5.has_child(file.root, "optimizer_weights"):
        notes.append("ignored the optimiser's state")
    return _Contents(tensors, tuple(notes), names, config, metadata)


def _with_todays_kernels(
    file: hdf5.Hdf5, tensors: NamedArrays, config: str, metadata: Mapping[str, str | None]
) -> tuple[NamedArrays, list[str]]:
    """Return the tensors with kernels as Keras stores them today, and notes on those that it stored
    otherwise. Raise FileError where the filters stand first and nothing says which backend turned them.

    Args:
        config: of a whole model; empty of mere weights.
    """
    notes = list[str]()
    backend = metadata["backend"]
    if _FILTERS_FIRST.search(config):
        if backend is None:
            raise file.refuse(_BACKEND_UNSTATED, _STATE_BACKEND)
        tensors = {
            name: array.transpose(2, 3, 1, 0) if array.ndim == 4 else array for name, array in tensors.items()
        }
        notes.append(
            "its kernels had their filters first, as Keras 1 stored them beside maps with channels first"
        )
    elif config and backend is None and (metadata["keras_version"] or "").startswith("1."):
        notes.append(
            "nothing says whether Keras 1 ran it on Theano, which pads and turns kernels otherwise: read "
            "as TensorFlow's"
        )
    if backend == "theano":
        tensors = _turn_kernels(file, tensors)
        notes.append(
            "its kernels are turned around, because Keras on Theano stored them for convolutions, not "
            "correlations"
        )
    return tensors, notes


def _turn_kernels(file: hdf5.Hdf5, tensors: NamedArrays) -> NamedArrays:
    """Return the tensors with the kernels of Conv2D as TensorFlow has them: Theano's run over a map from
    their last cell to the first, and Keras 2 turns those of a Conv2D when it loads them, but not those of
    depthwise and separable ones (keras/engine/saving.py). Raise FileError for those.
    """
    other_kernels = (
        name
        for name, array in tensors.items()
        if array.ndim > 2 and not (array.ndim == 4 and name.endswith("/kernel"))
    )
    if (other := next(other_kernels, None)) is not None:
        raise file.refuse(
            f"'{other}' was stored by Keras on Theano, which flips kernels, and porter turns those of "
            "Conv2D only",
            "load it in Keras 2 on TensorFlow and save it there",
        )
    return {
        name: np.ascontiguousarray(array[::-1, ::-1]) if array.ndim == 4 else array
        for name, array in tensors.items()
    }


def _layers_of(
    file: hdf5.Hdf5, group: hdf5.Hdf5Node, name: str, inner_names: Collection[str]
) -> list[Holder]:
    """Return the layers whose variables are in one group, which is a layer or a nested model.

    Weight names begin with the scopes that were open when the variable was made (`conv1`, `conv1_1` in a
    second TF 1 session, `model/conv1`), so the layer's name is the group's, unless the weight names are of
    several layers.

    Args:
        inner_names: names of the layers in the nested model, where the file says them.
    """
    scopes: dict[_Scope, dict[str, hdf5.Hdf5Node]] = {}
    owners = {"": group}
    for weight in file.read_names_attribute(group, "weight_names"):
        scope, variable = _split_name(weight)
        variables = scopes.setdefault(scope, {})
        if variable in variables:
            raise file.refuse(f"layer '{name}' has two variables '{variable}'")
        path, _, dataset = weight.rpartition("/")
        if path not in owners:
            owners[path] = file.group_of(group, path)
        variables[variable] = file.dataset_of(owners[path], dataset)
    if len(scopes) == 1 and not inner_names:
        return [Holder(name, name, variables) for variables in scopes.values()]
    layers = []
    for scope, layer_variables in _with_layer_names(scopes, inner_names).items():
        # The scopes may begin with the model's own name.
        inner_path = scope[1:] if scope[:1] == (name,) else scope
        # Keras 2 names the variables of a TimeDistributed's layer as its own.
        if len(inner_names) == len(scopes) == 1:
            inner_path = inner_path or tuple(inner_names)
        layer_path = (name, *inner_path)
        layers.append(Holder(layer_path[-1], "/".join(layer_path), layer_variables))
    return layers


def _with_layer_names(
    scopes: Mapping[_Scope, _Variables], inner_names: Collection[str]
) -> Mapping[_Scope, _Variables]:
    """Return the variables by their layers' names instead of their scopes, unless two scopes would be one
    then.

    TF 1 numbers a scope that it has seen before, as when a notebook's cell is run twice: `conv1_1` for the
    layer `conv1`.
    """
    by_layer = {_without_number(scope, inner_names): variables for scope, variables in scopes.items()}
    return by_layer if len(by_layer) == len(scopes) else scopes


def _without_number(scope: _Scope, inner_names: Collection[str]) -> _Scope:
    """Return a scope without the number that TF 1 gave it, if the rest is a layer's name and the whole is
    none; otherwise as it is.
    """
    plain = re.sub(r"_\d+$", "", scope[-1]) if scope else ""
    if plain in inner_names and scope[-1] not in inner_names:
        return (*scope[:-1], plain)
    return scope


def _split_name(weight: str) -> tuple[tuple[str, ...], str]:
    """Return the scopes in a weight's name, and the variable's name as Keras 2 and 3 have it:
    `conv1/kernel:0` gives (("conv1",), "kernel"). A name of Keras 1 has no scopes: it is the layer's and the
    variable's, joined by `_`, so that `conv1_W` gives the same.
    """
    *scope, variable = weight.removesuffix(":0").split("/")
    if not scope and (old := _KERAS_1_NAME.fullmatch(variable)):
        return (old["layer"],), _KERAS_1_VARIABLES.get(old["variable"], old["variable"])
    return tuple(scope), variable
