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
from porter.frameworks.dialects import Dialect
from porter.graph import Graph, tensor_shapes, with_classes
from porter.recipe import LayerName, NodeNames, Zoo, options_of, tap_names
from porter.recipe.fixed import equals_fixed
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.fit import Fit, InZoo, StandIn, TensorKey, shape_text, with_places
from porter.source.fitting.grafting import POOL_THE_MAP
from porter.source.fitting.heads import (
    AFTER_HEAD,
    DenseHead,
    Head,
    Heads,
    dense_op,
    flattening_layer,
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
    with_adapted_steps,
)
from porter.source.fitting.names_in_file import Naming

SCALES_INPUT = "it is of a layer that scales the input, and the file does not say what that computes"


def fit_by_names(candidate: Candidate, keep_background: bool = False) -> Fit:
    """Fit a variant to a file of weights without a graph, by the zoo's names: return the graph with the
    file's head, and which tensor of the file is which of its nodes'.

    Args:
        keep_background: see porter.source.wishes.Wishes.

    Raises:
        MappingError: tensors are missing or unexpected, in one error that lists both; or the head cannot be
            found.
    """
    checkpoint, todays_zoo = candidate.checkpoint, candidate.member.zoo
    head_path = candidate.head.path
    chosen = parse_head(candidate.mapped[head_path]) if head_path in candidate.mapped else None
    if chosen is not None:
        candidate = replace(candidate, mapped={**candidate.mapped, head_path: chosen.layers[-1]})
    naming = candidate.naming
    naming.expect_one(str(checkpoint.path))
    candidate = candidate.at(naming.generation)
    member, draft, dialect = candidate.member, candidate.graph, candidate.dialect
    zoo = member.zoo
    # The tensors are looked for twice: with the zoo's own head, whose unexpected tensors tell which head the
    # file has, and then with that one.
    with_zoos_head = candidate.located if zoo is todays_zoo else locate(draft, naming.layers, zoo, checkpoint)
    head = Heads(candidate, naming.layers[head_path], with_zoos_head.unexpected, chosen).find()
    with_head = _with_head(candidate, naming, head, chosen, keep_background)
    located = with_zoos_head
    if not with_head.as_drafted(draft, naming):
        located = locate(with_head.graph, with_head.named, zoo, checkpoint)
    ignored, left_out_warnings = _unused_tensors(candidate, located, with_zoos_head, naming, head)
    places = {
        path: member.recipe.source.where(layer.location)
        for path, layer in with_head.layers.items()
        if layer.location
    }
    _expect_cover(located, [name for name in located.unexpected if name not in ignored], places, candidate)
    _expect_ignored_values(zoo, checkpoint, ignored)
    tensors, unused, average_notes = prefer_averages(
        located.tensors, checkpoint.tensors, dialect.AVERAGE_SUFFIX
    )
    taps = tap_names(member, draft, candidate.layers)
    joined_layers = with_head.joined
    stand_in = None
    if head.layer is None or joined_layers:
        head_tensors = stand_in_head(candidate, naming.reference_layers[head_path], located.spelling)
        stand_in = StandIn(head_tensors, taps[draft.output], without_head(draft).output)
    notes = [*naming.notes(), *average_notes]
    if chosen and joined_layers:
        notes.append(f"the head's dense layers are joined as {MAP} says: {chosen.text}")
    reference_names = adapted_names(with_head.named, naming.reference_layers, checkpoint)
    if zoo is todays_zoo:
        reference_names = _reference_names(tensors, with_head, naming, dialect) | reference_names
    return Fit(
        graph=with_adapted_steps(with_head.graph, with_head.named, checkpoint),
        tensors=tensors,
        transforms=with_head.transforms,
        computed={path: layer.computed for path, layer in with_head.named.items() if layer.computed},
        options=options_of(member),
        ignored=ignored | unused,
        source_classes=head.rows,
        own_head=head.own,
        head=head.layer.name if head.layer else None,
        background=with_head.background and keep_background,
        activation=_activation(zoo, head.rows),
        in_zoo=InZoo(
            {
                path: name
                for path, name in taps.items()
                if path in with_head.graph.by_path and path not in joined_layers
            },
            reference_names,
            stand_in,
        ),
        places=places,
        warnings=(
            *head.warnings(),
            *_generation_warnings(todays_zoo, zoo, naming.generation),
            *left_out_warnings,
        ),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _GraphWithHead:
    """A variant with the file's head.

    Attributes:
        layers: the file's names, by path; also of nodes that the graph lacks.
        transforms: of arrays, by path.
        joined: the file's names of the dense layers that `--map` joins, by path.
        background: the head is the zoo's own, whose first row is ImageNet's background class.
    """

    graph: Graph
    layers: NodeNames
    transforms: Mapping[str, tuple[str, ...]]
    joined: Mapping[str, str]
    background: bool

    @property
    def named(self) -> NodeNames:
        """The file's names of the layers that the graph has."""
        return {node.path: self.layers[node.path] for node in self.graph.nodes if node.path in self.layers}

    def as_drafted(self, draft: Graph, naming: Naming) -> bool:
        """Return whether the tensors are where those of the variant with the zoo's own head are: under the
        same names, and with the same roles.
        """
        return self.layers == naming.layers and _roles(self.graph) == _roles(draft)


def _reference_names(
    tensors: Mapping[TensorKey, str], with_head: _GraphWithHead, naming: Naming, dialect: Dialect
) -> dict[str, str]:
    """Return the name that the zoo's own implementation has for each tensor, by its name in the file:
    `fc.weight` for `module.fc.weight`. Tensors of layers that `--map` joins have none there.
    """
    names = {}
    average_suffix = dialect.AVERAGE_SUFFIX or ""
    for (path, _), name in tensors.items():
        if path not in with_head.joined:
            # such as `.weight`; a moving average stands for the tensor itself
            variable = name.removeprefix(with_head.layers[path].name).removesuffix(average_suffix)
            names[name] = f"{naming.reference_layers[path].name}{variable}"
    return names


def _roles(graph: Graph) -> dict[str, set[str]]:
    """Return the roles of each node's tensors, such as kernel and bias, by the node's path."""
    return {path: {*shapes} for path, shapes in tensor_shapes(graph).items()}


def _with_head(
    candidate: Candidate, naming: Naming, head: Head, chosen: DenseHead | None, keep_background: bool
) -> _GraphWithHead:
    """Return the recipe's graph with the head that the port has, with the file's names of its layers and the
    transforms of their tensors. That is one of three: no head at all, the dense layers that `--map` chose,
    or the recipe's head with the file's number of classes (one fewer if the row of the background is taken
    off).

    Args:
        head: the file's layer for it.
        chosen: the dense layers that `--map` names; None without.
    """
    draft, head_path = candidate.graph, candidate.head.path
    layers = dict(naming.layers)
    transforms = {path: layer.transforms for path, layer in naming.layers.items()}
    background = head.own and "drop_background" in transforms[head_path]
    if head.layer is None:
        return _GraphWithHead(without_head(draft), layers, transforms, {}, background)
    # Dense layers of `--map`: several, or one that takes the place of a convolution.
    if chosen is not None and (chosen.between or reads_features(candidate, chosen.layers[-1])):
        ops = {name: dense_op(candidate, name) for name in chosen.layers}
        graph, joined = with_dense_head(without_head(draft), chosen, ops, head_path)
        layers |= {path: LayerName(name) for path, name in joined.items()}
        return _GraphWithHead(graph, layers, {**transforms, head_path: ()}, joined, background)
    layers[head_path] = head.layer
    # The background is one row of the head.
    classes = head.rows - (background and not keep_background)
    graph = draft if classes == draft.channels_by_path[head_path] else with_classes(draft, classes)
    if keep_background or not background:
        transforms[head_path] = tuple(name for name in head.layer.transforms if name != "drop_background")
    return _GraphWithHead(graph, layers, transforms, {}, background)


def _unused_tensors(
    candidate: Candidate, located: Located, with_zoos_head: Located, naming: Naming, head: Head
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the file's tensors that stay unused, each with the reason, and a warning about those beside the
    network.

    Args:
        with_zoos_head: the tensors of the variant with the zoo's own head.
    """
    ignored = {**located.ignored, **dict.fromkeys(head.after, AFTER_HEAD)}
    warnings = tuple[str, ...]()
    # Beside the network, if the file's names begin with a prefix: tensors of a loss, of metrics, of a second
    # network.
    outside = [
        name for name in with_zoos_head.unexpected if naming.prefix and not name.startswith(naming.prefix)
    ]
    if outside and head.within(naming.prefix):
        ignored |= dict.fromkeys(outside, f"beside the network, outside '{naming.prefix}'")
        warnings = (f"left out, because they are outside '{naming.prefix}': {some(outside)}",)
    separator, scaling = candidate.dialect.SEPARATOR, candidate.checkpoint.scaling
    scales = {name for name in located.unexpected if name.rpartition(separator)[0] in scaling}
    return ignored | dict.fromkeys(scales, SCALES_INPUT), warnings


def _expect_cover(
    located: Located, unexpected: list[str], places: Mapping[str, str], candidate: Candidate
) -> None:
    """Refuse a file that lacks tensors of the variant, or has some that nothing uses; the error lists both.

    Args:
        unexpected: the names of those that nothing uses.
        places: by path, where the recipe names the node.
    """
    if not located.missing and not unexpected:
        return
    flat_layer = flattening_layer(candidate, unexpected)
    problem = _two_lists(located, unexpected, places) + (
        f"; '{flat_layer}' reads a map, flattened" if flat_layer else ""
    )
    advice = (
        POOL_THE_MAP
        if flat_layer
        else f"{INSPECT.advise(file=candidate.checkpoint.path)} ranks what it could be"
    )
    raise MappingError(problem, where=str(candidate.checkpoint.path), next=advice)


def _generation_warnings(current: Zoo, older: Zoo, generation: str | None) -> tuple[str, ...]:
    """Return a warning if the code that wrote the file computed another function than today's code."""
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
    """Return the zoo's activation after logits; None if there are no classes, or if the zoo has none. A
    softmax of one class is 1 for every photo, so one class has a sigmoid.
    """
    if classes == 1 and zoo.activation == "softmax":
        return "sigmoid"
    return zoo.activation if classes else None


def _expect_ignored_values(zoo: Zoo, checkpoint: Checkpoint, ignored: Mapping[str, str]) -> None:
    """Refuse tensors that a zoo's rule ignores because they equal something (`equals`, such as 0), if they
    do not.
    """
    for rule in zoo.ignore:
        if rule.equals is None:
            continue
        for name in ignored:
            fits_rule = fnmatchcase(name, rule.pattern)
            if fits_rule and not equals_fixed(checkpoint.tensors[name], rule.equals):
                raise MappingError(f"this tensor may be ignored only if it equals {rule.equals}", where=name)


def _two_lists(located: Located, unexpected: list[str], places: Mapping[str, str]) -> str:
    """Return the tensors that are missing and those that are unexpected, in words for an error."""
    parts = []
    if located.missing:
        missing = [
            (f"{name} {shape_text(tensor.shape)}", places.get(tensor.path))
            for name, tensor in located.missing.items()
        ]
        parts.append(f"{len(missing)} tensors missing: {some(with_places(missing))}")
    if unexpected:
        parts.append(f"{len(unexpected)} tensors unexpected: {some(unexpected)}")
    return "; ".join(parts)
