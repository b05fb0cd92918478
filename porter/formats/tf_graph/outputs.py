"""How many values an op gives, by its definition: in TensorFlow's registry, or a function of the graph's
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def output_counts(op: str, attributes: Mapping[str, Any], library: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of values under each name of an op's outputs, in order; nothing for an op that
    nothing defines.

    Args:
        attributes: of the node; they say how long its lists are (tensorflow/core/framework/op_def.proto,
            OpDef.ArgDef).
        library: the graph's functions (FunctionDef) by name, which a node may have for its op.
    """
    if op in library:
        definition = library[op].signature
    else:
        definition = import_module("tensorflow.python.framework.op_def_registry").get(op)
    if definition is None:
        return {}
    return {output.name: _count_values(output, attributes) for output in definition.output_arg}


def _count_values(output: Any, attributes: Mapping[str, Any]) -> int:
    """Return how many values one output of an op (an ArgDef) has: one, or the length of a list, which an
    attribute states as a number or as a list of types. Return 0 if the attribute is missing.
    """
    name = output.number_attr or output.type_list_attr
    if not name:
        return 1
    if name not in attributes:
        return 0
    return int(attributes[name].i) if output.number_attr else len(attributes[name].list.type)
