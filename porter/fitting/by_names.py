"""Source tensors fitted to a graph by the zoo's names: for files that hold weights and no graph.

The mapping is complete both ways: every tensor is used or ignored by a rule, and every node gets its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from porter.base.errors import MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.fitting.adapted import with_adapted
from porter.fitting.averages import prefer_averages
from porter.fitting.dense_heads import parse_head, with_dense_head
from porter.fitting.fit import Fit, StandIn, placed, shape_text, some, without_head
from porter.fitting.grafting import POOL
from porter.fitting.heads import AFTER_HEAD, dense_op, find_head, flattened, reads_features, stand_in_head
from porter.fitting.locating import Located, locate
from porter.fitting.naming import name_layers, parse_map, tensor_names
from porter.fitting.wishes import NONE, Wishes
from porter.frameworks.dialects import Dialect, get_dialect
from porter.graph import Graph, channels_of, head_of, is_depthwise
from porter.recipe import LayerName, Member, Zoo, expand, options_of, tap_names
from porter.recipe.fixed import holds

SCALES = "of a layer that scales the input; the file does not say what it computes"


def fit_by_names(member: Member, checkpoint: Checkpoint, wishes: Wishes = NONE) -> Fit:
    """Fits a variant to a file of weights by the zoo's names.

    Raises:
        MappingError: tensors are missing or unexpected, in one error that lists both; or the head cannot be found.
    """
    dialect, draft = get_dialect(member.zoo.framework), expand(member)
    mapped, last = parse_map(wishes.map, draft), head_of(draft).path
    chosen = parse_head(mapped[last]) if last in mapped else None
    if chosen is not None:
        mapped[last] = chosen.layers[-1]
    naming = name_layers(member, draft, checkpoint, mapped)
    naming.expect_one(str(checkpoint.path))
    layers = dict(naming.layers)
    current, member = member.zoo, member.at(naming.generation)
    recipe, _, zoo = member
    if zoo is not current:
        draft = expand(member)
    located = locate(draft, layers, zoo, checkpoint)
    # Beside the network, if the file's names begin with a prefix: tensors of a loss, of metrics, of a second network.
    outside = tuple(name for name in located.unexpected if naming.prefix and not name.startswith(naming.prefix))
    head = find_head(draft, dialect, layers, checkpoint, located.unexpected, chosen)
    transforms = {path: layer.transforms for path, layer in layers.items()}
    background = head.own and "drop_background" in transforms[last]
    row: dict[str, str] = {}
    if head.layer is None:
        graph = without_head(draft)
    elif chosen is not None and (chosen.between or reads_features(draft, dialect, checkpoint, chosen.layers[-1])):
        ops = {name: dense_op(draft, dialect, checkpoint, name) for name in chosen.layers}
        graph, row = with_dense_head(without_head(draft), chosen, ops, last)
        layers |= {path: LayerName(name) for path, name in row.items()}
        transforms[last] = ()
    else:
        layers[last] = head.layer
        classes = head.rows - (background and not wishes.background)
        graph = draft if classes == channels_of(draft)[last] else expand(member, {"classes": classes})
        if wishes.background or not background:
            kept = tuple(name for name in head.layer.transforms if name != "drop_background")
            transforms[last] = kept
    named = {node.path: layers[node.path] for node in graph.nodes if node.path in layers}
    located = locate(graph, named, zoo, checkpoint)
    ignored = {**located.ignored, **dict.fromkeys(head.after, AFTER_HEAD)}
    warnings = (*head.warnings(), *_generation_warnings(current, zoo, naming.generation))
    if outside and head.within(naming.prefix):
        ignored |= dict.fromkeys(outside, f"beside the network, outside '{naming.prefix}'")
        warnings += (f"left out, because they are outside '{naming.prefix}': {some(list(outside))}",)
    ignored |= {name: SCALES for name in located.unexpected if name.rpartition(dialect.SEPARATOR)[0] in checkpoint.scaling}
    unexpected = [name for name in located.unexpected if name not in ignored]
    places = {path: recipe.source.where(layer.location) for path, layer in layers.items() if layer.location}
    if located.missing or unexpected:
        flat = flattened(draft, dialect, checkpoint, unexpected)
        problem = _two_lists(located, unexpected, places) + (f"; '{flat}' reads a map, flattened" if flat else "")
        next = POOL if flat else "porter inspect FILE ranks what it could be"
        raise MappingError(problem, where=str(checkpoint.path), next=next)
    _assert_ignored_values(zoo, checkpoint, ignored)
    found, unused, averaged = prefer_averages(located.found, checkpoint.tensors, dialect.AVERAGE_SUFFIX)
    shown = tap_names(member, draft)
    stand_in, joined = None, (f"the head's dense layers are joined as --map says: {chosen.text}",) if chosen and row else ()
    if head.layer is None or row:
        tensors = stand_in_head(draft, dialect, naming.reference_layers[last], _spelling(draft, dialect, layers, located))
        stand_in = StandIn(tensors, shown[draft.output], without_head(draft).output)
    return Fit(
        graph=with_adapted(graph, named, checkpoint),
        found=found,
        transforms=transforms,
        options=options_of(member),
        ignored=ignored | unused,
        source_classes=head.rows,
        own_head=head.own,
        head=head.layer.name if head.layer else None,
        background=background and wishes.background,
        activation=_activation(zoo, head.rows),
        reference_taps={path: name for path, name in shown.items() if path in graph.by_path and path not in row},
        stand_in=stand_in,
        reference_names={
            name: naming.reference_layers[path].name
            + name.removeprefix(layers[path].name).removesuffix(dialect.AVERAGE_SUFFIX or "")
            for (path, _), name in found.items()
            if zoo is current and path not in row
        },
        places=places,
        warnings=warnings,
        notes=(*naming.notes(), *averaged, *joined),
    )


def _spelling(graph: Graph, dialect: Dialect, layers: Mapping[str, LayerName], located: Located) -> int:
    """The index of the framework's name for a kernel that the file uses."""
    for (path, role), name in located.found.items():
        names = tensor_names(dialect, graph, path, layers[path])[role]
        if role == "kernel" and name in names and not is_depthwise(graph, graph.by_path[path]):
            return names.index(name)
    return 0


def _generation_warnings(current: Zoo, older: Zoo, generation: str | None) -> tuple[str, ...]:
    """A warning if the code that wrote the file computed another function than today's code."""
    if older is current:
        return ()
    different = [f"{name} {value}" for name, value in older.options.items() if value != current.options.get(name)]
    different += ["its own pads"] if older.padding != current.padding else []
    return (f"the port computes what {generation} did, not what zoo '{current.name}' does today: {', '.join(different)}",)


def _activation(zoo: Zoo, classes: int) -> str | None:
    """The zoo's activation after logits. A softmax of one class is 1 for every photo, so one class has a sigmoid."""
    if classes == 1 and zoo.activation == "softmax":
        return "sigmoid"
    return zoo.activation if classes else None


def _assert_ignored_values(zoo: Zoo, checkpoint: Checkpoint, ignored: Mapping[str, str]) -> None:
    for rule in zoo.ignore:
        for name in ignored:
            if rule.equals is not None and fnmatchcase(name, rule.pattern) and not holds(checkpoint.tensors[name], rule.equals):
                raise MappingError(f"this tensor may be ignored only if it equals {rule.equals}", where=name)


def _two_lists(located: Located, unexpected: list[str], places: Mapping[str, str]) -> str:
    parts = []
    if located.missing:
        names = [(f"{name} {shape_text(lacking.shape)}", places.get(lacking.path)) for name, lacking in located.missing.items()]
        parts.append(f"{len(names)} tensors missing: {some(placed(names))}")
    if unexpected:
        parts.append(f"{len(unexpected)} tensors unexpected: {some(unexpected)}")
    return "; ".join(parts)
