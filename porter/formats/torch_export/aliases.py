"""Ops that change what they take. A port's values never change, so nothing may use such a value after the op."""

from __future__ import annotations

from collections.abc import Collection

from porter.filegraph.dataflow import Reference
from porter.formats.torch_export.nodes import AtenNode, Program

_SAME = frozenset(
    {
        *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "permute", "transpose", "t"),
        *("slice", "select", "narrow", "split", "split_with_sizes", "chunk", "unbind", "alias", "detach", "contiguous", "to"),
        *("expand_as", "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "lift_fresh"),
    }
)
"""Ops whose values may be the memory of what they take."""


def changed_value(program: Program, known: Collection[str]) -> str | None:
    """In words, the first use of a value that an op before it has changed, or the change of a stored tensor; None if there is none.

    Args:
        known: ops that porter knows. Others may give the memory of what they take.
    """
    memory: dict[Reference, str] = {}
    holding: dict[str, list[Reference]] = {}
    changed: dict[Reference, AtenNode] = {}
    for node in program.nodes.values():
        for source in node.inputs:
            if source in changed:
                return f"'{node.name}' uses a value that '{changed[source].name}' ({changed[source].target}) has changed"
        taken = changed_inputs(node)
        for source in taken:
            if memory[source] in program.stored:
                return f"'{node.name}' ({node.target}) changes a tensor of the model"
            changed |= dict.fromkeys(holding.pop(memory[source], ()), node)
        shares = node.inputs and (taken or node.op in _SAME or node.op not in known)
        place = memory[node.inputs[0]] if shares else node.name
        for output in range(max(node.outputs, 1)):
            memory[node.name, output] = place
            holding.setdefault(place, []).append((node.name, output))
    ends = [changed[end] for name in program.outputs if (end := program.given[name]) in changed]
    return f"an output is changed by '{ends[0].name}' ({ends[0].target}) after it" if ends else None


def changed_inputs(node: AtenNode) -> tuple[Reference, ...]:
    """What a node may change: ops with `_` behind their names change their first input, ops of other libraries all."""
    library, _, rest = node.target.partition(".")
    name, _, overload = rest.rpartition(".")
    if library in ("", "_operator", "math") or not node.inputs:
        return ()
    if library != "aten" or "out" in overload.split("_"):
        return node.inputs
    return node.inputs[:1] if name.endswith("_") else ()
