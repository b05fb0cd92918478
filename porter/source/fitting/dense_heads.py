"""A head of several dense layers in a file that holds only weights. `--map` says what is between them; the
file does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.base.errors import UsageError
from porter.base.options import MAP
from porter.filegraph.names import unused_name
from porter.filegraph.to_graph import path_word
from porter.graph import Dense, Graph, Node, Relu, Relu6

BETWEEN: Mapping[str, type[Relu | Relu6] | None] = {"relu": Relu, "relu6": Relu6, "none": None}
"""The ops between two dense layers, as `--map` writes them. Dropout does nothing at inference, so it is
`none`.
"""


@dataclass(frozen=True)
class DenseHead:
    """The layers of a head in the order in which they run, and the words between them, which are keys of
    BETWEEN.
    """

    layers: tuple[str, ...]
    between: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As `--map` writes it: `classifier.1,relu,classifier.4`."""
        return ",".join(
            [
                self.layers[0],
                *(f"{word},{name}" for word, name in zip(self.between, self.layers[1:], strict=True)),
            ]
        )


def parse_head(text: str) -> DenseHead:
    """The head as `--map` states it: one layer, or several with the words between them.

    Raises:
        UsageError: the text does not begin and end with a layer or has a layer twice, or porter has no op for
            a word between two layers.
    """
    layers, between = tuple(text.split(",")[::2]), tuple(text.split(",")[1::2])
    wrong = [word for word in between if word not in BETWEEN]
    if wrong or len(layers) != len(between) + 1 or not all(layers):
        problem = (
            f"porter has no '{wrong[0]}' between dense layers"
            if wrong
            else f"'{text}' is not a row of layers"
        )
        raise UsageError(
            problem,
            where=str(MAP),
            next=f"write FIRST,WORD,SECOND with one of {', '.join(BETWEEN)} as the word",
        )
    repeated = [name for name in layers if layers.count(name) > 1]
    if repeated:
        raise UsageError(
            f"'{text}' has the layer '{repeated[0]}' twice", where=str(MAP), next="write every layer once"
        )
    return DenseHead(layers, between)


def with_dense_head(
    features: Graph, head: DenseHead, dense: Mapping[str, Dense], output: str
) -> tuple[Graph, dict[str, str]]:
    """The graph up to its features with a head after it.

    Args:
        dense: the op of each layer.
        output: the path of the last layer.

    Returns:
        The graph, and the file's layer by the path of each dense node.
    """
    nodes, layers, source = list(features.nodes), dict[str, str](), features.output
    used = {*features.by_path, output}
    for name, word in zip(head.layers, (*head.between, "none"), strict=True):
        path = output if name == head.layers[-1] else unused_name(f"head/{path_word(name)}", used)
        used.add(path)
        nodes.append(Node(path, dense[name], (source,)))
        layers[path], source, op = name, path, BETWEEN[word]
        if op is not None:
            source = unused_name(f"{path}_{word}", used)
            used.add(source)
            nodes.append(Node(source, op(), (path,)))
    return Graph(tuple(nodes), features.channels, output, features.scopes), layers
