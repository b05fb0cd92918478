"""Source tensors fitted to a graph by the zoo's names: for files that hold weights and no graph.

The mapping is complete both ways: every tensor is used or ignored by a rule, and every node gets its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from porter.base.commands import INSPECT
from porter.base.errors import MappingError, some
from porter.base.options import MAP
from porter.filegraph.checkpoint import Checkpoint
from porter.graph import Graph, channels_of, tensor_shapes, with_classes
from porter.recipe import LayerName, NodeNames, Zoo, options_of, tap_names
from porter.recipe.fixed import holds
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.fit import Fit, StandIn, placed, shape_text
from porter.source.fitting.grafting import POOL
from porter.source.fitting.heads import (
    AFTER_HEAD,
    DenseHead,
    Head,
    Heads,
    dense_op,
    flattened,
    parse_head,
    reads_features,
    stand_in_head,
    with_dense_head,
    without_head,
)
from porter.source.fitting.locating import (
    Located,
    adapted_names,
    locate,
    prefer_averages,
    with_adapted,
)
from porter.source.fitting.names_in_file import Naming

SCALES = "it is of a layer that scales the input, and the file does not say what that computes"


def fit_by_names(candidate: Candidate, keep_background: bool = False) -> Fit:
    """Fits a variant to a file of weights by the zoo's names.

    Args:
        keep_background: see porter.source.wishes.Wishes.

    Raises:
        MappingError: tensors are missing or unexpected, in one error that lists both; or the head cannot be
            found.
    """
    checkpoint, current, last = candidate.checkpoint, candidate.member.zoo, candidate.head.path
    chosen = parse_head(candidate.mapped[last]) if last in candidate.mapped else None
    if chosen is not None:
        candidate = replace(candidate, mapped={**candidate.mapped, last: chosen.layers[-1]})
    naming = candidate.naming
    naming.expect_one(str(checkpoint.path))
    candidate = candidate.at(naming.generation)
    member, draft, dialect = candidate.member, candidate.graph, candidate.dialect
    zoo = member.zoo
    plain = candidate.located if zoo is current else locate(draft, naming.layers, zoo, checkpoint)
    head = Heads(candidate, naming.layers[last], plain.unexpected, chosen).find()
    headed = _with_head(candidate, naming, head, chosen, keep_background)
    located = (
        plain if headed.as_drafted(draft, naming) else locate(headed.graph, headed.named, zoo, checkpoint)
    )
    ignored, left_out = _ignored(candidate, located, plain, naming, head)
    places = {
        path: member.recipe.source.where(layer.location)
        for path, layer in headed.layers.items()
        if layer.location
    }
    _expect_cover(located, [name for name in located.unexpected if name not in ignored], places, candidate)
    _assert_ignored_values(zoo, checkpoint, ignored)
    found, unused, averaged = prefer_averages(located.tensors, checkpoint.tensors, dialect.AVERAGE_SUFFIX)
    taps, row = tap_names(member, draft, candidate.layers), headed.row
    stand_in = None
    if head.layer is None or row:
        tensors = stand_in_head(candidate, naming.reference_layers[last], located.spelling)
        stand_in = StandIn(tensors, taps[draft.output], without_head(draft).output)
    joined = (f"the head's dense layers are joined as {MAP} says: {chosen.text}",) if chosen and row else ()
    adapted = adapted_names(headed.named, naming.reference_layers, checkpoint)
    return Fit(
        graph=with_adapted(headed.graph, headed.named, checkpoint),
        tensors=found,
        transforms=headed.transforms,
        computed={path: layer.computed for path, layer in headed.named.items() if layer.computed},
        options=options_of(member),
        ignored=ignored | unused,
        source_classes=head.rows,
        own_head=head.own,
        head=head.layer.name if head.layer else None,
        background=headed.background and keep_background,
        activation=_activation(zoo, head.rows),
        reference_taps={
            path: name for path, name in taps.items() if path in headed.graph.by_path and path not in row
        },
        stand_in=stand_in,
        reference_names={
            name: naming.reference_layers[path].name
            + name.removeprefix(headed.layers[path].name).removesuffix(dialect.AVERAGE_SUFFIX or "")
            for (path, _), name in found.items()
            if zoo is current and path not in row
        }
        | adapted,
        places=places,
        warnings=(*head.warnings(), *_generation_warnings(current, zoo, naming.generation), *left_out),
        notes=(*naming.notes(), *averaged, *joined),
    )


@dataclass(frozen=True)
class _Headed:
    """A variant with the file's head.

    Attributes:
        layers: the file's names, by path; also of nodes that the graph lacks.
        transforms: of arrays, by path.
        row: of dense layers that `--map` joins, the file's names by path.
        background: the head is the zoo's own, whose first row is ImageNet's background class.
    """

    graph: Graph
    layers: NodeNames
    transforms: Mapping[str, tuple[str, ...]]
    row: Mapping[str, str]
    background: bool

    @property
    def named(self) -> NodeNames:
        return {node.path: self.layers[node.path] for node in self.graph.nodes if node.path in self.layers}

    def as_drafted(self, draft: Graph, naming: Naming) -> bool:
        """Whether its tensors are where those of the variant are as the zoo has it."""
        roles = [
            {path: {*needed} for path, needed in tensor_shapes(graph).items()}
            for graph in (self.graph, draft)
        ]
        return self.layers == naming.layers and roles[0] == roles[1]


def _with_head(
    candidate: Candidate, naming: Naming, head: Head, chosen: DenseHead | None, keep_background: bool
) -> _Headed:
    """The graph with the head that is kept, and the layers and transforms of its tensors."""
    draft, last = candidate.graph, candidate.head.path
    layers = dict(naming.layers)
    transforms = {path: layer.transforms for path, layer in naming.layers.items()}
    background = head.own and "drop_background" in transforms[last]
    if head.layer is None:
        return _Headed(without_head(draft), layers, transforms, {}, background)
    if chosen is not None and (chosen.between or reads_features(candidate, chosen.layers[-1])):
        ops = {name: dense_op(candidate, name) for name in chosen.layers}
        graph, row = with_dense_head(without_head(draft), chosen, ops, last)
        layers |= {path: LayerName(name) for path, name in row.items()}
        return _Headed(graph, layers, {**transforms, last: ()}, row, background)
    layers[last] = head.layer
    classes = head.rows - (background and not keep_background)
    graph = draft if classes == channels_of(draft)[last] else with_classes(draft, classes)
    if keep_background or not background:
        transforms[last] = tuple(name for name in head.layer.transforms if name != "drop_background")
    return _Headed(graph, layers, transforms, {}, background)


def _ignored(
    candidate: Candidate, located: Located, plain: Located, naming: Naming, head: Head
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The file's tensors that stay unused, each with the reason, and a warning about those beside the
    network.

    Args:
        plain: of the variant with the zoo's own head.
    """
    ignored = {**located.ignored, **dict.fromkeys(head.after, AFTER_HEAD)}
    warnings = tuple[str, ...]()
    # Beside the network, if the file's names begin with a prefix: tensors of a loss, of metrics, of a second
    # network.
    outside = [name for name in plain.unexpected if naming.prefix and not name.startswith(naming.prefix)]
    if outside and head.within(naming.prefix):
        ignored |= dict.fromkeys(outside, f"beside the network, outside '{naming.prefix}'")
        warnings = (f"left out, because they are outside '{naming.prefix}': {some(outside)}",)
    separator, scaling = candidate.dialect.SEPARATOR, candidate.checkpoint.scaling
    scales = {name for name in located.unexpected if name.rpartition(separator)[0] in scaling}
    return ignored | dict.fromkeys(scales, SCALES), warnings


def _expect_cover(
    located: Located, unexpected: list[str], places: Mapping[str, str], candidate: Candidate
) -> None:
    """Refuses a file that lacks tensors, or has some that nothing uses."""
    if not located.missing and not unexpected:
        return
    flat = flattened(candidate, unexpected)
    problem = _two_lists(located, unexpected, places) + (f"; '{flat}' reads a map, flattened" if flat else "")
    next = POOL if flat else f"{INSPECT.advise(file=candidate.checkpoint.path)} ranks what it could be"
    raise MappingError(problem, where=str(candidate.checkpoint.path), next=next)


def _generation_warnings(current: Zoo, older: Zoo, generation: str | None) -> tuple[str, ...]:
    """A warning if the code that wrote the file computed another function than today's code."""
    if older is current:
        return ()
    different = [
        f"{name} {value}" for name, value in older.options.items() if value != current.options.get(name)
    ]
    different += ["its own pads"] if older.padding != current.padding else []
    return (
        (
            f"the port computes what {generation} did, not what zoo '{current.name}' does today: "
            f"{', '.join(different)}"
        ),
    )


def _activation(zoo: Zoo, classes: int) -> str | None:
    """The zoo's activation after logits. A softmax of one class is 1 for every photo, so one class has a
    sigmoid.
    """
    if classes == 1 and zoo.activation == "softmax":
        return "sigmoid"
    return zoo.activation if classes else None


def _assert_ignored_values(zoo: Zoo, checkpoint: Checkpoint, ignored: Mapping[str, str]) -> None:
    """Refuses ignored tensors that differ from what the zoo says they equal."""
    for rule in zoo.ignore:
        for name in ignored:
            if (
                rule.equals is not None
                and fnmatchcase(name, rule.pattern)
                and not holds(checkpoint.tensors[name], rule.equals)
            ):
                raise MappingError(f"this tensor may be ignored only if it equals {rule.equals}", where=name)


def _two_lists(located: Located, unexpected: list[str], places: Mapping[str, str]) -> str:
    """The tensors that are missing and those that are unexpected, as a message lists them."""
    parts = []
    if located.missing:
        names = [
            (f"{name} {shape_text(lacking.shape)}", places.get(lacking.path))
            for name, lacking in located.missing.items()
        ]
        parts.append(f"{len(names)} tensors missing: {some(placed(names))}")
    if unexpected:
        parts.append(f"{len(unexpected)} tensors unexpected: {some(unexpected)}")
    return "; ".join(parts)
