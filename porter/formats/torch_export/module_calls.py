"""Which value of a torch.export program is the output of which call of a module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from porter.formats.torch_export.nodes import module_stack, values_of
from porter.formats.torch_export.read import tap_of


def calls_in(program: Mapping[str, Any], first_paths: Mapping[str, str] = {}) -> dict[str, str]:
    """Return, by the tap of a value (the name under which an engine gives it), the call of a module that ends
    in it: `{"value_relu_1": "layer1.0.relu@1"}`, where `@1` is the second call of that module. Where several
    end in it, it is the innermost.

    A call ends in the last op that it runs: torch.export leaves out ops whose values nobody reads.

    Args:
        first_paths: of each path the first one of the same module, where a module has several. torch.export
            counts the calls by each.
    """
    # Calls by torch.export's keys, such as `L__self___relu@1`, and paths, in the order in which they begin.
    begun: dict[tuple[str, str], None] = {}
    last_values: dict[tuple[str, str], str] = {}
    for node in program["graph_module"]["graph"]["nodes"]:
        names = values_of(node)
        for key, path in module_stack(node):
            begun[key, path] = None
            if path and len(names) == 1:
                last_values[key, path] = names[0]
            else:
                # The call's last op gives several values, or none: no value is the call's.
                last_values.pop((key, path), None)
    numbers = _number_calls(begun, first_paths)
    calls: dict[str, str] = {}
    for (key, path), name in last_values.items():  # the outer module of a node stands before the inner one
        calls[tap_of(name)] = f"{path}@{numbers[key, path]}"
    return calls


def _number_calls(
    calls: Iterable[tuple[str, str]], first_paths: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """Return the number of each call among those of its module, in the order in which they begin, from 0.
    torch.export has counted those by one path, among them calls that it left out; a module of several paths
    is counted anew.

    Args:
        calls: a key, which ends in torch.export's number such as `@1`, and the module's path.
        first_paths: as in `calls_in`.
    """
    by_module = defaultdict[str, list[tuple[str, str]]](list)
    for key, path in calls:
        by_module[first_paths.get(path, path)].append((key, path))
    numbers: dict[tuple[str, str], str] = {}
    for module_calls in by_module.values():
        has_several_paths = len({path for _, path in module_calls}) > 1
        for number, (key, path) in enumerate(module_calls):
            numbers[key, path] = str(number) if has_several_paths else key.partition("@")[2] or "0"
    return numbers
