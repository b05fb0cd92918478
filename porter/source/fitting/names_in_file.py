"""A file's names of a zoo's layers: from today's table or an older one, after a scope or a wrapper's prefix,
or from `--map`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from porter.base.commands import INSPECT
from porter.base.errors import MappingError, UsageError, some
from porter.base.options import MAP
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import Graph, head_of, tensor_shapes
from porter.recipe import LayerName, Member, NodeNames, expect_head, layer_names
from porter.recipe.spelling import hint
from porter.recipe.zoo_names import tensor_names

SECOND_COPY = 0.9
"""A second prefix that covers at least this fraction of the first one's tensors is a second copy of the
network, no accident.
"""
LEAST_OF_NETWORK = 0.5
"""A prefix that covers less than this fraction of a graph's tensors holds another network, not a copy of this
one.
"""


@dataclass(frozen=True)
class Naming:
    """The layer names of a graph in one file.

    Attributes:
        layers: the file's names, by path.
        reference_layers: the names of the zoo's own implementation, by path.
        prefix: the beginning of every name in the file: `module.`, `model.`, `tower_0/`.
        generation: label of the older table of names that the file follows; None for today's table.
        twins: other prefixes under which the file holds the network again.
    """

    layers: NodeNames
    reference_layers: NodeNames
    prefix: str = ""
    generation: str | None = None
    twins: tuple[str, ...] = ()

    def notes(self) -> tuple[str, ...]:
        """Return what port.json records about the names, one line each."""
        notes = []
        if self.prefix:
            notes.append(f"names begin with '{self.prefix}'")
        if self.twins:
            notes.append(f"the file holds the network again under {some([*map(repr, self.twins)])}")
        if self.generation:
            notes.append(f"names are those of {self.generation}")
        return tuple(notes)

    def expect_one(self, where: str) -> None:
        """Refuse a file that holds the network more than once.

        Raises:
            MappingError: it does; `maps` lists the prefixes to choose from.
        """
        if self.twins:
            path, layer = next(iter(self.reference_layers.items()))
            prefixes = sorted([self.prefix, *self.twins])
            raise MappingError(
                f"the file holds this network more than once, under {some([*map(repr, prefixes)])}",
                where=where,
                maps=[f"{prefix}{layer.name}={path}" for prefix in prefixes],
            )


def tensors_hint(path: Path) -> str:
    """Return the next step where a file has no layer of a name: the command that lists its tensors."""
    return f"{INSPECT.advise(file=path, tensors=True)} lists its tensors"


def parse_map(settings: tuple[str, ...], graph: Graph) -> dict[str, str]:
    """Return the settings `--map SRC=NODE` as the source layer of each node: `fc=head/logits` as
    `{'head/logits': 'fc'}`.

    Raises:
        UsageError: a setting has another form, there is no such node, or a node is given twice.
    """
    mapped: dict[str, str] = {}
    for setting in settings:
        layer, equals, node = setting.rpartition("=")
        if not equals or not layer or not node:
            raise UsageError(
                f"'{setting}' is not SRC=NODE", where=str(MAP), next=f"such as LAYER={head_of(graph).path}"
            )
        if node not in tensor_shapes(graph):
            raise UsageError(
                f"the graph has no node '{node}' with tensors",
                where=str(MAP),
                next=hint(node, tensor_shapes(graph)),
            )
        if node in mapped:
            raise UsageError(f"'{node}' is given twice", where=str(MAP))
        mapped[node] = layer
    return mapped


def name_layers(
    member: Member, graph: Graph, todays_names: NodeNames, checkpoint: Checkpoint, mapped: Mapping[str, str]
) -> Naming:
    """Return the file's names of the layers. A zoo has a table of names for each generation of its code, and
    a file may put a prefix before all of them: the table and prefix are taken under which `checkpoint` holds
    most of the graph's tensors.

    Args:
        todays_names: the zoo's names, of today's code.
        mapped: node to source layer, from `--map`; a node that is not the head also decides the prefix.
    """
    expect_head(member.recipe, graph)
    dialect = get_dialect(member.zoo.framework)
    tables = dict[str | None, NodeNames]({None: todays_names})
    # The file numbers its layers by their kinds, and has no names of its own.
    if checkpoint.counted:
        convolutions = [
            path for path, layer in todays_names.items() if "conv1x1_to_dense" in layer.transforms
        ]
        names_by_count = dialect.counted_layers(
            graph, convolutions, {path: layer.name for path, layer in todays_names.items()}
        )
        tables[None] = {
            path: replace(layer, name=names_by_count[path])
            for path, layer in todays_names.items()
            if path in names_by_count
        }
    else:
        tables |= {label: layer_names(member, graph, label) for label in member.zoo.generations}
        tables = {label: _with_file_numbers(dialect, table, checkpoint) for label, table in tables.items()}
    naming, most_tensors = Naming(tables[None], todays_names), 0
    for generation, table in tables.items():
        prefix, count, twins = _best_prefix(dialect, graph, table, checkpoint, mapped)
        # On a tie the earlier table stays: today's names.
        if count > most_tensors:
            naming, most_tensors = Naming(table, todays_names, prefix, generation, twins), count
    layers = {path: replace(layer, name=naming.prefix + layer.name) for path, layer in naming.layers.items()}
    for path, name in mapped.items():
        # The user's own head has its own number of classes, and none is the zoo's background.
        layers[path] = LayerName(name) if path == head_of(graph).path else replace(layers[path], name=name)
    return replace(naming, layers=layers)


def _with_file_numbers(dialect: Dialect, layers: NodeNames, checkpoint: Checkpoint) -> NodeNames:
    """Return the table with the numbers that the file has in names such as `conv2d_3`: Keras counts its
    layers by process, and another process may have begun at another number.
    """
    names = dialect.numbered_layers([layer.name for layer in layers.values()], checkpoint.tensors)
    return {path: replace(layer, name=names.get(layer.name, layer.name)) for path, layer in layers.items()}


def _best_prefix(
    dialect: Dialect,
    graph: Graph,
    layers: NodeNames,
    checkpoint: Checkpoint,
    mapped: Mapping[str, str],
) -> tuple[str, int, tuple[str, ...]]:
    """Return the prefix, such as `module.`, under which the file has most of the graph's tensors, their
    number, and its twins: other prefixes that cover about as many. Return no prefix and 0 if the file has
    none of the names. If `--map` names a layer with its prefix, only the prefixes in `--map` count.

    Args:
        layers: the zoo's names by path.
        mapped: node to source layer, from `--map`.
    """
    spellings = [
        names
        for path in tensor_shapes(graph)
        for names in tensor_names(dialect, graph, path, layers[path]).values()
    ]
    expected = {name for names in spellings for name in names}
    counts = Counter(
        prefix
        for name in checkpoint.tensors
        for prefix, name_behind in _prefixes(name, dialect.SEPARATOR)
        if name_behind in expected
    )
    prefixes = {
        name.removesuffix(layers[path].name)
        for path, name in mapped.items()
        if path != head_of(graph).path and name.endswith(layers[path].name)
    }
    # `--map` names a layer with its prefix, which decides between copies of the network.
    if prefixes:
        counts = Counter({prefix: count for prefix, count in counts.items() if prefix in prefixes})
    if not counts:
        return "", 0, ()
    (prefix, most), *others = counts.most_common()
    twins = tuple(
        second_prefix
        for second_prefix, count in others
        if count >= SECOND_COPY * most and most >= LEAST_OF_NETWORK * len(spellings)
    )
    # A network without a prefix is the saved model; a copy with a prefix beside it is its average or its
    # teacher.
    if "" in (prefix, *twins):
        return "", counts[""], ()
    return prefix, most, twins


def _prefixes(name: str, separator: str) -> Iterator[tuple[str, str]]:
    """Yield every split of a name after a separator, the empty prefix first: `a.b.c` gives `('', 'a.b.c')`,
    `('a.', 'b.c')` and `('a.b.', 'c')`.
    """
    yield "", name
    position = name.find(separator)
    while position >= 0:
        end = position + len(separator)
        yield name[:end], name[end:]
        position = name.find(separator, end)
