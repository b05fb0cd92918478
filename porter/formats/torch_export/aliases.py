"""Ops that change what they take. A port's values never change, so nothing may use such a value after the
op.
"""

from __future__ import annotations

from collections.abc import Collection

from porter.filegraph.dataflow import NodeOutput
from porter.formats.torch_export.moves import VIEWS
from porter.formats.torch_export.nodes import AtenNode, AtenProgram


def changed_uses(program: AtenProgram, known_ops: Collection[str]) -> dict[str, str]:
    """In words, each use of a value that an op before it has changed, by the name of the node that uses it.
    Under "" is what concerns the whole program: an output that is changed, a stored tensor, or a value that a
    program without such ops gives back.

    Args:
        known_ops: ops that porter knows. Others may give the memory of what they take.
    """
    memory: dict[NodeOutput, str] = {}
    holding: dict[str, list[NodeOutput]] = {}
    changed: dict[NodeOutput, AtenNode] = {}
    uses = {"": f"each run changes {program.mutated[0]}"} if program.mutated else {}
    for node in program.nodes.values():
        for source in node.inputs:
            if source in changed:
                by = changed[source]
                uses.setdefault(
                    node.name, f"'{node.name}' uses a value that '{by.name}' ({by.target}) has changed"
                )
        taken = changed_inputs(node)
        for source in taken:
            if memory[source] in program.stored:
                uses.setdefault("", f"'{node.name}' ({node.target}) changes a tensor of the model")
            changed |= dict.fromkeys(holding.pop(memory[source], ()), node)
        shares = node.inputs and (taken or node.op in VIEWS or node.op not in known_ops)
        number = memory[node.source] if shares else node.name
        for output in range(max(node.outputs, 1)):
            memory[node.name, output] = number
            holding.setdefault(number, []).append((node.name, output))
    for by in (changed[end] for name in program.outputs if (end := program.given[name]) in changed):
        uses.setdefault("", f"an output is changed by '{by.name}' ({by.target}) after it")
    return uses


def changed_inputs(node: AtenNode) -> tuple[NodeOutput, ...]:
    """What a node may change: ops with `_` behind their names change their first input, ops of other
    libraries all.
    """
    library, _, rest = node.target.partition(".")
    name, _, overload = rest.rpartition(".")
    if library in ("", "_operator", "math") or not node.inputs:
        return ()
    if library != "aten" or "out" in overload.split("_"):
        return node.inputs
    return node.inputs[:1] if name.endswith("_") else ()
