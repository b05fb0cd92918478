"""The nodes of which a plan makes one whose op a destination lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from porter.graph.graph import Node
from porter.graph.ops import Op, Shape


@dataclass(frozen=True)
class Parts:
    """The nodes that stand for one whose op a destination lacks: a lowering adds them.

    Attributes:
        node: the node that is replaced.
        lacks: whether the destination lacks an op.
        shapes: of every path; those of the parts are added.
        made: the parts so far. The last one has the node's path and tensors.
    """

    node: Node
    lacks: Callable[[Op], bool]
    shapes: dict[str, Shape]
    made: list[Node] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The first of the values that the node reads."""
        return self.node.source

    @property
    def shape(self) -> Shape:
        """The shape of this value."""
        return self.shapes[self.source]

    def add(self, word: str, op: Op, *inputs: str) -> str:
        """Add a part before the last one, and return its path: the node's path and then the word, `act_line`
        for `line` in `act`. `inputs` are the paths that it reads.
        """
        path = f"{self.node.path}_{word}"
        while path in self.shapes:
            path += "_"
        self.shapes[path] = op.shape(*(self.shapes[source] for source in inputs))
        self.made.append(Node(path, op, inputs))
        return path

    def end(self, op: Op, *inputs: str) -> None:
        """Add the last part, which has the node's own path."""
        self.made.append(replace(self.node, op=op, inputs=inputs))
