"""Ops that change what they take. A port's values never change, so nothing may use such a value after the
op.
"""

from __future__ import annotations

from collections.abc import Collection

from porter.filegraph.value_names import NodeOutput
from porter.formats.torch_export.moves import VIEWS
from porter.formats.torch_export.nodes import AtenNode, AtenProgram


def find_changed_uses(program: AtenProgram, known_ops: Collection[str]) -> dict[str, str]:
    """Return a sentence about each use of a value that an op before it has changed, by the name of the node
    that uses it: `'add' uses a value that 'relu_' (aten.relu_.default) has changed`. Under "" is what
    concerns the whole program: an output that is changed, a stored tensor, or a value that a program without
    such ops gives back.

    Args:
        known_ops: ops that porter knows. Others may give the memory of what they take.
    """
    # Of each value the name of the node that made its memory, and the values of each such memory.
    memory: dict[NodeOutput, str] = {}
    values_in: dict[str, list[NodeOutput]] = {}
    changed: dict[NodeOutput, AtenNode] = {}
    uses = {"": f"each run changes {program.mutated[0]}"} if program.mutated else {}
    for node in program.nodes.values():
        for source in node.inputs:
            if source in changed:
                writer = changed[source]
                uses.setdefault(
                    node.name,
                    f"'{node.name}' uses a value that '{writer.name}' ({writer.target}) has changed",
                )
        written = changed_inputs(node)
        for source in written:
            if memory[source] in program.stored:
                uses.setdefault("", f"'{node.name}' ({node.target}) changes a tensor of the model")
            # Whatever shares the memory has changed too.
            changed |= dict.fromkeys(values_in.pop(memory[source], ()), node)
        # An op that porter does not know may give back the memory that it takes.
        gives_its_memory = node.inputs and (written or node.op in VIEWS or node.op not in known_ops)
        owner = memory[node.source] if gives_its_memory else node.name
        for output in range(max(node.outputs, 1)):
            memory[node.name, output] = owner
            values_in.setdefault(owner, []).append((node.name, output))
    for source in map(program.sources.__getitem__, program.outputs):
        if source in changed:
            writer = changed[source]
            uses.setdefault("", f"an output is changed by '{writer.name}' ({writer.target}) after it")
    return uses


def changed_inputs(node: AtenNode) -> tuple[NodeOutput, ...]:
    """Return the values that a node may change: none for arithmetic, all for other libraries' ops and those
    that write to `out`, the first one for ops with `_` behind their names, and otherwise none.
    """
    library, _, rest = node.target.partition(".")
    name, _, overload = rest.rpartition(".")
    if library in ("", "_operator", "math") or not node.inputs:
        return ()
    if library != "aten" or "out" in overload.split("_"):
        return node.inputs
    return node.inputs[:1] if name.endswith("_") else ()
