"""The nodes of a GraphDef by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from porter.base.errors import FileError
from porter.formats.tf_graph import nodes


def refuse(message: str) -> FileError:
    return FileError(message)


def test_as_many_nodes_as_the_limit_are_read_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_NODES", 2)
    protos = [SimpleNamespace(name=name, op="Relu", input=["x:1", "^y"], attr={}) for name in "abc"]
    read = nodes.parse_nodes(protos[:2], refuse)
    assert [(*read,), read["a"].inputs] == [("a", "b"), (("x", 1),)]
    with pytest.raises(FileError, match="more than 2 nodes"):
        nodes.parse_nodes(protos, refuse)
    with pytest.raises(FileError, match="two nodes have the name 'a'"):
        nodes.parse_nodes([protos[0], protos[0]], refuse)
