"""What a TensorFlow graph does besides computing its outputs: ops that change what it reads, or draw random
numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from porter.base.errors import FileError
from porter.formats.tf_graph.nodes import GraphNode
from porter.formats.tf_graph.saved_variables import VARIABLE_OPS
from porter.graph.walks import upstream

_READING_OPS = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"}
)
"""Ops of a variable's handle that leave the variable as it is. Another op may change it."""
_CHANGING_PREFIXES = ("Assign", "ResourceScatter", "ResourceApply")
"""How the names of ops begin that change a variable."""
_HANDLE_PASSING_OPS = frozenset({"Identity", "RefIdentity", "Enter", "RefEnter", "Switch", "RefSwitch"})
"""Ops that give their first input, a variable or its value, and leave it as it is."""
_ANONYMOUS = ("", "cd2c89b7-88b7-44c8-ad83-06c2a9158347")
"""Shared names of variables that share nothing (tensorflow/core/framework/resource_handle.h)."""


def nodes_run_for(
    nodes: Mapping[str, GraphNode], ends: Collection[str], calls: Mapping[str, Sequence[str]] | None = None
) -> set[str]:
    """Return the names of the nodes that TensorFlow runs for `ends`: what these read, and what has to be run
    before.

    Args:
        calls: what the calls ran that are inlined (`Inlined`). A call runs its whole function, also what its
            outputs do not need.
    """

    def before(name: str) -> list[str]:
        """Return the nodes that are run before one."""
        node = nodes.get(name)
        read = [] if node is None else [*(source for source, _ in node.inputs), *node.controls]
        return [*read, *(calls or {}).get(name, ())]

    return upstream(ends, before) & nodes.keys()


def expect_repeatable(
    nodes: Mapping[str, GraphNode], needed: Mapping[str, GraphNode], run: Collection[str], path: Path
) -> None:
    """Raise FileError for a graph that draws random numbers, as Keras 3's `export` keeps the augmentation of
    photos in it, or that changes a variable that it reads.

    Args:
        needed: those of the nodes that the outputs are computed from.
        run: the names of those that are run for the outputs (`nodes_run_for`).
    """
    drawing = next((node for node in needed.values() if "Random" in node.op), None)
    if drawing is not None:
        message = (
            f"'{drawing.name}' draws random numbers ({drawing.op}): the model answers otherwise each "
            "time that it is run"
        )
        advice = (
            "call the augmentation layers with training=False and export the model again; most do "
            "nothing in a .keras file"
        )
        raise FileError(message, where=path, next=advice)
    read = {_variable_key(node) for node in needed.values() if node.op in VARIABLE_OPS}
    for node in nodes.values():
        # An op that the outputs are computed from is read as what it is, or is foreign and refused by its
        # name.
        is_read = node.name in needed and not node.op.startswith(_CHANGING_PREFIXES)
        if node.name in run and not is_read and not read.isdisjoint(_changed_variables(node, nodes)):
            message = f"'{node.name}' ({node.op}) changes a variable that the model reads when it is run"
            raise FileError(message, where=path, next="export a model that changes none of its variables")


def _changed_variables(node: GraphNode, nodes: Mapping[str, GraphNode]) -> list[str]:
    """Return the variables that an op may change, as `_variable_key` names them; none for an op that only
    passes them on.
    """
    if node.op in _HANDLE_PASSING_OPS:
        return []
    definition = import_module("tensorflow.python.framework.op_def_registry").get(node.op)
    variables = []
    for index, (source, _) in enumerate(node.inputs):
        origin = nodes[source]
        is_value = False
        # Back to the variable itself, through ops that pass it on as a reference or as its value.
        while origin.op in _HANDLE_PASSING_OPS and origin.inputs:
            is_value |= not origin.op.startswith("Ref")
            origin = nodes[origin.source[0]]
        if origin.op == "VarHandleOp":
            may_change = node.op not in _READING_OPS
        elif origin.op not in VARIABLE_OPS or is_value or node.op == "IsVariableInitialized":
            may_change = False
        else:  # a variable of TF 1, a reference, which an op takes by its definition; most take its value
            # The definition of this input; an op with a list of inputs may have fewer definitions.
            arguments = [] if definition is None else definition.input_arg[index : index + 1]
            may_change = definition is None or any(argument.is_ref for argument in arguments)
        if may_change:
            variables.append(_variable_key(origin))
    return variables


def _variable_key(node: GraphNode) -> str:
    """Return the name that all handles of the same variable have in common."""
    shared = node.text("shared_name", "")
    return node.name if shared in _ANONYMOUS else shared
