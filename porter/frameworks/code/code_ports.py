"""The two files of a port whose modules nest: `model.py`, and the tensors of its modules under the paths that
these have in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from porter.base.dtypes import Array, Dtype, cast
from porter.base.errors import FileError, MappingError
from porter.formats.safetensors.tensors import read_safetensors, write_safetensors
from porter.frameworks import OwnTensors, Tensors
from porter.frameworks.code.language import Language
from porter.frameworks.code.plan_layers import Layer, Spellings
from porter.frameworks.code.public_names import with_names
from porter.frameworks.code.tree import Body, make_tree
from porter.frameworks.port_tensors import FILLS, WEIGHTS_FILE, expect_tensor
from porter.graph import Graph, Node, Op, tensor_shapes
from porter.graph.plan import Plan

SOURCE_FILE = "model.py"
ModulePlace = tuple[str | int, ...]
"""The path of a layer in a module: names of attributes, and numbers among the `layers` of a row."""


@dataclass(frozen=True)
class CodePorts:
    """How a framework's ports are written and read.

    Attributes:
        source: the text of model.py.
        variables: the names of the variables of an op's layer, by the role of its tensors.
        stored: a canonical tensor in the axis order of its layer's variable, a view where possible.
        canonical: the inverse of `stored`.
        names: other paths for a graph's nodes in the module, by their paths.
    """

    spellings: Spellings
    language: Language
    source: Callable[[Plan], str]
    variables: Callable[[Op], Mapping[str, str]]
    stored: Callable[[Graph, Node, str, Array], Array]
    canonical: Callable[[Graph, Node, str, Array], Array]
    names: Callable[[Graph], Mapping[str, str]] = lambda graph: {}

    def places(self, plan: Plan) -> dict[str, ModulePlace]:
        """Return where the layer of each node stands in the module, by the node's path: `layer1/0/conv1` is
        at `("layer1", "layers", 0, "conv1")`. A further call of a layer has the place of the first, and nodes
        without a layer of their own are left out.
        """
        names = self.names(plan.lowered)
        named = with_names(plan, names)
        tree = make_tree(named.lowered, self.spellings.steps(named), self.language)
        by_path = dict(_yield_places(tree, "", ()))
        paths = {node.path: names.get(node.holder, node.holder) for node in plan.lowered.nodes}
        return {path: by_path[name] for path, name in paths.items() if name in by_path}

    def keys(self, plan: Plan) -> Iterator[tuple[Node, str, str]]:
        """Yield each node with each of its tensors' roles and the tensor's name in `model.safetensors`, which
        is the path of the variable in the module: a node, `gamma` and `layer1.layers.0.norm1.weight`.
        """
        by_path = self.places(plan)
        for node in plan.lowered.nodes:
            for role, name in self.variables(node.op).items():
                yield node, role, ".".join(map(str, (*by_path[node.path], name)))

    def arrays(self, plan: Plan, tensors: Tensors) -> dict[str, Array]:
        """Return the arrays of `model.safetensors` by name, in the types of `tensors`. Variables that only
        the framework's layers have, such as the gamma of a norm without scale, get ones or zeros.

        Args:
            tensors: porter's, by the node's path and role.

        Raises:
            MappingError: a tensor is missing or has another shape than the graph needs.
        """
        shapes, channels = tensor_shapes(plan.lowered), plan.lowered.channels_by_path
        arrays: dict[str, Array] = {}
        for node, role, key in self.keys(plan):
            expected = shapes.get(node.path, {}).get(role)
            if expected is None:
                # Only the layer has this variable, one number for each channel.
                arrays[key] = np.full(channels[node.source], FILLS[role], np.float32)
                continue
            array = expect_tensor(tensors.get(node.holder, {}).get(role), expected, role, node.path)
            arrays[key] = self.stored(plan.lowered, node, role, array)
        return arrays

    def write(self, folder: Path, plan: Plan, tensors: Tensors, dtype: Dtype) -> dict[str, str]:
        """Write `model.safetensors` in `dtype`, and `model.py`, its module, into `folder`. Return the sha256
        of each by its name.

        Raises:
            MappingError: the tensors do not fit the graph. GraphError: an attribute cannot have such a path.
        """
        text = self.source(plan).encode()
        arrays = {
            key: cast(array, dtype, key, allow_overflow=True)
            for key, array in self.arrays(plan, tensors).items()
        }
        (folder / SOURCE_FILE).write_bytes(text)
        written = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
        return {
            SOURCE_FILE: sha256(text).hexdigest(),
            WEIGHTS_FILE: write_safetensors(folder / WEIGHTS_FILE, written),
        }

    def read(self, folder: Path, plan: Plan) -> OwnTensors:
        """Return the canonical tensors of the port in `folder`.

        Raises:
            FileError: there is no such file, or it is not a safetensors file. MappingError: the tensors do
                not fit the graph.
        """
        path = folder / WEIGHTS_FILE
        if not path.is_file():
            raise FileError("the port has no weights", where=path, next="convert again")
        arrays = read_safetensors(path).tensors
        shapes = tensor_shapes(plan.lowered)
        tensors: OwnTensors = {}
        for node, role, key in self.keys(plan):
            array = arrays.get(key)
            expected = shapes.get(node.path, {}).get(role)
            is_further_call, only_in_layer = node.shares is not None, expected is None
            if is_further_call or only_in_layer:
                continue
            canonical_array = None if array is None else self.canonical(plan.lowered, node, role, array)
            if canonical_array is None or canonical_array.shape != expected:
                got = "got none" if array is None else f"got {array.shape}"
                raise MappingError(
                    f"expected the {role} of shape {expected} of {node.path}, {got}", where=key
                )
            tensors.setdefault(node.path, {})[role] = canonical_array
        return tensors


def _yield_places(body: Body, prefix: str, place: ModulePlace) -> Iterator[tuple[str, ModulePlace]]:
    """Yield each layer's path in the graph with its place in the module: names of attributes, and `layers`
    and a number for a part of a row.

    Args:
        prefix: the path of `body` in the graph, with a slash behind it; empty for the whole model.
        place: that of `body` in the module.
    """
    for number, part in enumerate(body.parts):
        names: ModulePlace = ("layers", number) if body.row else tuple(part.name.split("."))
        if isinstance(part.content, Body):
            yield from _yield_places(part.content, f"{part.content.path}/", (*place, *names))
        elif isinstance(part.content, Layer):
            yield prefix + part.name.replace(".", "/"), (*place, *names)
