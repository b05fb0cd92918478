"""Calibrated stand-in weights as the files that people have, written by the libraries that write them where
one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from porter.frameworks.dialects import get_dialect
from porter.graph import Graph
from porter.recipe import find_recipe, layer_names
from porter.zoos.implementation import BuildRequest, get_implementation
from tests.support.arrays import Array
from tests.support.caffe_files import zoo_files
from tests.support.mxnet_runs import gluon_name, write_gluon
from tests.support.slim_files import slim_checkpoint, write_checkpoint
from tests.support.standin_files import source_checkpoint, standin_graph, standin_tensors
from tests.support.tensornets_files import write_tensornets


def published_like(
    folder: Path, variant: str, zoo_name: str, recipes: Path | None = None, size: tuple[int, int] = (224, 224)
) -> Path:
    """Weights of any zoo in the format in which it publishes them. A zoo's code that must be run for them
    runs at `size`. Most need no network for that: building one takes as long as proving a port.
    """
    recipe = find_recipe(variant, recipes)
    member = recipe.member(variant, zoo_name)
    if member.zoo.reference == "tf_slim":
        return write_checkpoint(
            folder / variant,
            slim_checkpoint(variant, int(str(member.zoo.options.get("classes", 1000))), recipes).tensors,
        )
    if member.zoo.reference == "tensornets":
        return write_tensornets(folder / f"{variant}.npz", variant, recipes, size)
    if member.zoo.framework == "caffe":
        return zoo_files(folder, variant, 1.0, recipes)
    if member.zoo.framework == "mxnet":
        write_gluon(gluon_name(variant), folder, member.native_size()[0])
        return folder / "net-0000.params"
    if zoo_name == "flax_examples":
        from flax import serialization, traverse_util

        tree = traverse_util.unflatten_dict(
            source_checkpoint(variant, zoo_name, recipes=recipes).tensors, sep="/"
        )
        (folder / f"{variant}.msgpack").write_bytes(serialization.msgpack_serialize({**tree, "step": 7}))
        return folder / f"{variant}.msgpack"
    if member.zoo.framework == "jax" or member.zoo.reference == "timm_bit":
        np.savez(
            folder / f"{variant}.npz",
            allow_pickle=False,
            **source_checkpoint(variant, zoo_name, recipes=recipes).tensors,
        )
        return folder / f"{variant}.npz"
    if member.zoo.framework == "torch":
        import torch

        tensors = source_checkpoint(variant, zoo_name, int(str(recipe.options["classes"])), recipes).tensors
        torch.save(
            {name: torch.from_numpy(array) for name, array in tensors.items()}, folder / f"{variant}.pth"
        )
        return folder / f"{variant}.pth"
    if (recipe.architecture, member.zoo.reference) == ("convnext", "keras"):
        return write_weights(folder / f"{variant}.weights.h5", variant, zoo_name, recipes=recipes)
    if member.zoo.reference == "keras":
        return write_h5(
            folder / f"{variant}.h5", source_checkpoint(variant, zoo_name, recipes=recipes).tensors
        )
    graph = standin_graph(variant, zoo_name, recipes=recipes)
    layers = layer_names(member, graph)
    return write_h5(
        folder / f"{variant}.h5",
        keras_arrays(graph, layers, standin_tensors(variant, zoo_name, recipes=recipes)),
    )


def write_weights(
    path: Path, variant: str, zoo_name: str, classes: int = 1000, recipes: Path | None = None
) -> Path:
    """Weights of a zoo that keras.applications, torchvision or timm implement, in the format that `path` ends
    in.
    """
    member = find_recipe(variant, recipes).member(variant, zoo_name)
    zoo, size = member.zoo, (224, 224) if member.zoo.framework == "tf" else member.native_size()
    checkpoint = source_checkpoint(variant, zoo_name, classes, recipes)
    model = get_implementation(str(zoo.reference)).build(
        BuildRequest(variant, classes, size, checkpoint, "float32")
    )
    if zoo.framework == "torch":
        import torch

        torch.save(model.state_dict(), path)
    elif path.name.endswith(".weights.h5"):
        model.save_weights(path)
    elif path.name.endswith((".keras", ".whole.h5")):
        model.save(path)
    else:
        from keras.src.legacy.saving import legacy_h5_format

        with h5py.File(path, "w") as file:
            legacy_h5_format.save_weights_to_hdf5_group(file, model)
    return path


def keras_arrays(
    graph: Graph, layers: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Array]]
) -> dict[str, Array]:
    """Tensors under the names and in the axis order of a Keras file, ResNeXt's as depthwise convolutions."""
    tf, found = get_dialect("tf"), {}
    for path, roles in tensors.items():
        names = tf.tensor_names(graph, graph.by_path[path], layers[path].name)
        for role, array in roles.items():
            stored, name = tf.from_canonical(graph, graph.by_path[path], role, array), names[role][0]
            if role == "kernel" and layers[path].transforms:
                stored, name = as_depthwise(array), f"{layers[path].name}/depthwise_kernel"
            found[name] = stored
    return found


def as_depthwise(kernel: Array) -> Array:
    """(groups * width, width, rows, columns) as (rows, columns, groups * width, width), element by
    element.
    """
    channels, width, *_ = kernel.shape
    depthwise = np.zeros((*kernel.shape[2:], channels, width), kernel.dtype)
    for filter_ in range(channels):
        group, place = divmod(filter_, width)
        for j in range(width):
            depthwise[:, :, group * width + j, place] = kernel[filter_, j]
    return depthwise


def write_h5(path: Path, arrays: Mapping[str, Array]) -> Path:
    """A file of weights as Keras 2 laid it out."""
    with h5py.File(path, "w") as file:
        names = list(dict.fromkeys(name.rpartition("/")[0] for name in arrays))
        file.attrs["layer_names"] = [name.encode() for name in names]
        for layer in names:
            own = [name for name in arrays if name.rpartition("/")[0] == layer]
            group = file.create_group(layer)
            group.attrs["weight_names"] = [f"{name}:0".encode() for name in own]
            for name in own:
                group[f"{name}:0"] = arrays[name]
    return path
