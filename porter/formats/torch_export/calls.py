"""Which value of a torch.export program is the output of which call of a module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from porter.formats.torch_export.nodes import module_stack, values_of
from porter.formats.torch_export.read import tap_of


def calls_in(program: Mapping[str, Any], same: Mapping[str, str] = {}) -> dict[str, str]:
    """The call, by tap, of a module that ends in the value: `layer1.0.relu@1` is the second call of that
    module. Where several end in it, the innermost.

    A call ends in the last op that it runs: torch.export leaves out ops whose values nobody reads.

    Args:
        same: of each path the first one of the same module, where a module has several. torch.export counts
            the calls by each.
    """
    last: dict[tuple[str, str], str] = {}
    begun: dict[tuple[str, str], None] = {}
    for node in program["graph_module"]["graph"]["nodes"]:
        names = values_of(node)
        for key, path in module_stack(node):
            begun[key, path] = None
            if path and len(names) == 1:
                last[key, path] = names[0]
            else:
                last.pop((key, path), None)
    numbers = _numbers(begun, same)
    calls: dict[str, str] = {}
    for (key, path), name in last.items():  # the outer module of a node stands before the inner one
        calls[tap_of(name)] = f"{path}@{numbers[key, path]}"
    return calls


def _numbers(calls: Iterable[tuple[str, str]], same: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """The number of each call among those of its module, in the order in which they begin. torch.export has
    counted those by one path, among them calls that it left out.
    """
    together = defaultdict[str, list[tuple[str, str]]](list)
    for key, path in calls:
        together[same.get(path, path)].append((key, path))
    numbers: dict[tuple[str, str], str] = {}
    for own in together.values():
        several = len({path for _, path in own}) > 1
        numbers |= {
            (key, path): str(number) if several else key.partition("@")[2] or "0"
            for number, (key, path) in enumerate(own)
        }
    return numbers
