"""The variables of a SavedModel: the tensor of its checkpoint for each handle in its graph, and the tensor's
name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from porter.base.dtypes import NamedArrays
from porter.base.errors import FileError
from porter.formats.tf_checkpoint.messages import SavedObject
from porter.formats.tf_checkpoint.model_tensors import ObjectTensor
from porter.formats.tf_checkpoint.read import Bundle, open_bundle
from porter.formats.tf_graph.nodes import GraphNode

VARIABLE_OPS = frozenset({"VarHandleOp", "VariableV2", "Variable"})
_NODE_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
"""The names that TensorFlow accepts for a node (tensorflow/python/framework/ops.py)."""


@dataclass(frozen=True)
class Variables:
    """The variables that a graph reads.

    Attributes:
        names: names of their nodes to names of the tensors.
        values: by the names of the tensors.
        files: the files of the values.
    """

    names: Mapping[str, str]
    values: NamedArrays
    files: tuple[Path, ...]

    def rename_nodes(self, nodes: Mapping[str, GraphNode]) -> dict[str, GraphNode]:
        """Return the graph with its variables under the names of their tensors, and with nodes that read them
        by these.
        """
        renamed: dict[str, GraphNode] = {}
        for name, node in nodes.items():
            new_name = self.names.get(name, name)
            inputs = tuple((self.names.get(source, source), index) for source, index in node.inputs)
            renamed[new_name] = replace(node, name=new_name, inputs=inputs)
        return renamed


def read_variables(meta: Any, nodes: Mapping[str, GraphNode], stored: Path) -> Variables:
    """Read the variables among `nodes` from the checkpoint `stored`; `meta` is the MetaGraphDef that the
    nodes are from.

    A handle of TF 1 has its variable's name. A handle of TF 2 is an argument of a function, whose entry in
    the object graph lists the objects that are its arguments (saved_object_graph.proto,
    SavedConcreteFunction.bound_inputs); the same object in the checkpoint's object graph has the key.

    Raises:
        FileError: the checkpoint is incomplete or damaged, or a variable is not in it.
    """
    handles = [node for node in nodes.values() if node.op in VARIABLE_OPS]
    if not handles:
        return Variables({}, {}, ())
    bundle = open_bundle(stored)
    owners = _bound_owners(meta, bundle)
    keys = _find_keys(handles, owners, bundle, stored)
    names = _choose_names({name: owners[name].full_name for name in keys if name in owners}, keys, nodes)
    values = bundle.read(set(keys.values()))
    return Variables(names, {names[name]: values[key] for name, key in keys.items()}, bundle.files.files)


def _find_keys(
    handles: Iterable[GraphNode], owners: Mapping[str, ObjectTensor], bundle: Bundle, stored: Path
) -> dict[str, str]:
    """Return the keys of variables in the checkpoint, by the names of their handles. Raise FileError for one
    that is not there.

    Args:
        owners: the key and the name of variables, by the names of handles that are arguments of functions.
    """
    counts = Counter(owner.full_name for owner in bundle.owners)
    by_name = {owner.full_name: owner.key for owner in bundle.owners if counts[owner.full_name] == 1}
    by_handle: dict[str, str] = {}
    for node in handles:
        shared = node.text("shared_name", "") or node.name
        owned_key = owners[node.name].key if node.name in owners else None
        # The surest first: TF 2's object graph, TF 1's names, a name that only one variable was made with.
        keys = (owned_key, shared, node.name, by_name.get(shared))
        key = next((key for key in keys if key in bundle.tensors), None)
        if key is None:
            message = f"variable '{shared}' of the graph is not in its checkpoint"
            raise FileError(message, where=stored, next="save it again")
        by_handle[node.name] = key
    return by_handle


def _choose_names(
    full: Mapping[str, str], keys: Mapping[str, str], nodes: Mapping[str, GraphNode]
) -> dict[str, str]:
    """Return the variables' own names if no other node has any of them, otherwise their nodes' names."""
    own_names = {name: full.get(name) or name for name in keys}
    counts = Counter(own_names.values())
    other_nodes = nodes.keys() - keys.keys()
    are_free = all(
        counts[name] == 1 and name not in other_nodes and _NODE_NAME.fullmatch(name)
        for name in own_names.values()
    )
    return own_names if are_free else {name: name for name in keys}


def _bound_owners(meta: Any, bundle: Bundle) -> dict[str, ObjectTensor]:
    """Return the key in the checkpoint and the name of each variable whose handle is an argument of a
    function, by the name of the handle's node. Return none where the SavedModel has no object graph.
    """
    objects, saved = meta.object_graph_def, bundle.objects
    if not objects.nodes or not saved:
        return {}
    saved_by_object = _match_objects(objects, saved)
    owners: dict[str, ObjectTensor] = {}
    for node in meta.graph_def.node:
        function = objects.concrete_functions.get(node.attr["f"].func.name) if "f" in node.attr else None
        inputs = [name for name in node.input if not name.startswith("^")]
        # Objects that are arguments of the function, by their places in the object graph.
        bound = list(function.bound_inputs) if function is not None else []
        # They are the last inputs of a call.
        handles = inputs[len(inputs) - len(bound) :]
        for handle, number in zip(handles, bound, strict=False):
            if number in saved_by_object and objects.nodes[number].HasField("variable"):
                variables = saved[saved_by_object[number]].variables
                if len(variables) == 1:
                    owners[handle] = ObjectTensor(variables[0].key, objects.nodes[number].variable.name)
    return owners


def _match_objects(objects: Any, saved: Sequence[SavedObject]) -> dict[int, int]:
    """Return, for each object of the graph's `objects` by its place, its place in the checkpoint's `saved`,
    if it has one there: the roots match, and children of matching objects with the same name.
    """
    partners = {0: 0}
    waiting = [0]
    while waiting:
        node = waiting.pop()
        saved_children = saved[partners[node]].children
        for child in objects.nodes[node].children:
            partner = saved_children.get(child.local_name)
            if partner is None or child.node_id in partners:
                continue
            # A damaged file may name objects that it lacks.
            if 0 <= child.node_id < len(objects.nodes) and partner < len(saved):
                partners[child.node_id] = partner
                waiting.append(child.node_id)
    return partners
