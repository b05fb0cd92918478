"""Which value of a torch.export program is the output of which call of a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from porter.formats.torch_export.nodes import module_stack, values_of
from porter.formats.torch_export.read import tap_of


def calls_in(program: Mapping[str, Any]) -> dict[str, str]:
    """By tap, the call of a module that ends in the value: `layer1.0.relu@1` is the second call of that
    module. Where several end in it, the innermost.

    A call ends in the last op that it runs: torch.export leaves out ops whose values nobody reads.
    """
    last: dict[tuple[str, str], str] = {}
    for node in program["graph_module"]["graph"]["nodes"]:
        names = values_of(node)
        for key, path in module_stack(node):
            if path and len(names) == 1:
                last[key, path] = names[0]
            else:
                last.pop((key, path), None)
    found: dict[str, str] = {}
    for (key, path), name in last.items():  # the outer module of a node stands before the inner one
        found[tap_of(name)] = f"{path}@{key.partition('@')[2] or '0'}"
    return found
