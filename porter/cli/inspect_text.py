"""The output of `porter inspect` for people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from porter.base.errors import LISTED
from porter.cli.printing import classes_words, table, tells
from porter.padding.sizes import size_text

if TYPE_CHECKING:
    from porter.source.inspection import Inspection


def _of_bytes(bytes: int) -> str:
    """Return a number of bytes in GB, MB or kB, the largest that fits into it: `97.8 MB`."""
    unit = next((unit for unit in ("GB", "MB") if bytes >= _UNITS[unit]), "kB")
    return f"{bytes / _UNITS[unit]:.1f} {unit}"


_UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}


def inspection(result: Inspection, tensors: bool = False) -> list[str]:
    """Return the lines of `porter inspect`: what a file is and how far porter knows it, and the commands that
    port it.

    Args:
        tensors: add a table of its tensors.
    """
    checkpoint, match = result.checkpoint, result.match
    types = Counter(str(array.dtype) for array in checkpoint.tensors.values())
    of_types = f" of {' and '.join(name for name, _ in types.most_common())}" if types else ""
    tensor_count = f"{len(checkpoint.tensors)} tensors{of_types}"
    content = "; ".join(
        (f"{checkpoint.format}, {tensor_count}, {_of_bytes(result.bytes)}", *checkpoint.notes)
    )
    lines = [str(checkpoint.path), f"  format     {content}", f"  framework  {result.framework or 'any'}"]
    lines += _identity_lines(result, _input_words(result))
    if result.classes is not None:
        activation = f", then {result.activation}" if result.activation else ""
        lines.append(f"  classes    {classes_words(result)}")
        lines.append(f"  head       {result.head or 'none'}{activation}")
    if tells(result.origin):
        lines.append(f"  origin     {result.origin.words}")
    lines += [f"  twin       {twin.name}: {'; '.join(twin.differs)}" for twin in result.twins]
    lines += [f"  differs    {line}" for line in result.differs]
    lines += [f"  assumed    {line}" for line in result.assumed]
    if result.problem is not None:
        lines.append(f"  problem    {result.problem}")
    lines += [f"  left out   {fault}" for fault in result.left_out]
    if match is not None and not result.commands:
        lines += [f"  missing    {name}, or it has another shape" for name in match.missing[:LISTED]]
        lines += [f"  unexpected {name}" for name in match.unexpected[:LISTED]]
    if result.commands:
        lines += [
            "to port it, one of:" if len(result.commands) > 1 else "to port it:",
            *(f"  {line}" for line in result.commands),
        ]
    if not tensors:
        return lines
    listed = [
        (name, "x".join(map(str, array.shape)) or "scalar", str(array.dtype))
        for name, array in checkpoint.tensors.items()
    ]
    return [*lines, "", *table(("tensor", "shape", "type"), listed)]


def _input_words(result: Inspection) -> str:
    """Say which inputs a file's network takes: `224x224`, `any size`, or the axes of an input that is no
    image, and those of further inputs.
    """
    from porter.graph import axes_text, further_text
    from porter.graph.record import from_record

    size = "any size" if result.size is None else size_text(result.size)
    graph = from_record(result.port.graph) if result.port else result.checkpoint.graph
    if graph is None:
        return size
    return (axes_text(graph.axes) if graph.axes else size) + further_text(graph)


def _identity_lines(result: Inspection, input_words: str) -> list[str]:
    """Say what a file is: a variant of a recipe, a port, weights trained further, or a graph of its own;
    nothing where porter cannot tell.
    """
    checkpoint, match = result.checkpoint, result.match
    if match is not None:
        label, fits = ("fits", "") if result.states_another_network else ("is", "fits ")
        return [
            f"  {label:11}{match.member.name} ({fits}{match.score:.1%})",
            *(f"  also fits  {other.member.name} ({other.score:.1%})" for other in result.close[:LISTED]),
            f"  input      {input_words}" + ("" if checkpoint.graph else ", as the recipe has it"),
        ]
    is_of_recipe = result.port is not None and result.port.variant is not None
    identity = _identity(result, input_words)
    lines = [f"  is         {identity}"] if identity else []
    return [*lines, f"  input      {input_words}"] if is_of_recipe else lines


def _identity(result: Inspection, input_words: str) -> str | None:
    """Say what a file is that matches no recipe's variant; None where porter cannot tell."""
    port = result.port
    if port is not None and port.variant is not None:
        return f"a port of {port.name}"
    if result.tuned is not None:
        return f"the model of {result.tuned}, with tensors of its own"
    if not result.commands:
        return None
    if result.checkpoint.graph is not None or port is not None:
        return f"a graph that no recipe has; none is needed; input {input_words}"
    if result.problem is not None:
        return "the model of a port, with tensors of its own"
    return "a network that no recipe has; its library, which has to be installed, builds it from the folder"
