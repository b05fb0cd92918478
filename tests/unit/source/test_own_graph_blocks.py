"""A file's graph under paths that show its blocks."""

from __future__ import annotations

from porter.filegraph.to_graph import Translated
from porter.graph import INPUT, Add, Conv, Graph, Node, Relu
from porter.graph.record import from_record, to_record
from porter.padding import Convention, Window
from porter.source.own_graph import with_blocks


def test_joined_names_of_fused_layers_make_paths_that_a_record_holds() -> None:
    nodes, names, before = list[Node](), dict[str, str](), INPUT
    for place in range(3):
        conv, act, both = f"c{place}", f"a{place}", f"s{place}"
        nodes += [
            Node(conv, Conv(3, Window((3, 3)), Convention("same")), (before,)),
            Node(act, Relu(), (conv,)),
            Node(both, Add(), (act, before)),
        ]
        names |= {
            path: "_".join(f"model/{path}{part}/FusedBatchNormV3" for part in range(12))
            for path in (conv, act, both)
        }
        before = both
    graph, _ = with_blocks(Translated(Graph(tuple(nodes), 3, before), names, None))
    assert from_record(to_record(graph.graph)) == graph.graph and max(map(len, graph.graph.by_path)) <= 200
