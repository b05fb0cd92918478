"""The source of a port, opened: its graph, and its tensors in porter's axis order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from porter.base.dtypes import Array, is_floating
from porter.base.errors import FileError, MappingError, some
from porter.base.left_out import LeftOut
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph, to_canonical
from porter.frameworks import OwnTensors, Tensors
from porter.frameworks.dialects import Dialect
from porter.graph import INPUT, Graph, tensor_shapes
from porter.padding import KnownSize
from porter.padding.sizes import InputSizes
from porter.port import Facts, SourceFile, TensorLists
from porter.recipe import Member
from porter.recipe.expressions import Value
from porter.recipe.fixed import COMPUTED
from porter.recipe.transforms import apply_transforms, computes_numbers
from porter.source.fitting.fit import Fit, TensorKey, shape_text, with_places

if TYPE_CHECKING:
    from porter.frameworks.in_memory import Saved


@dataclass(frozen=True)
class Fitted:
    """The file that a source was opened from, as read, and its fit to the graph."""

    checkpoint: Checkpoint
    fit: Fit


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A source: its graph and its tensors in canonical order.

    Attributes:
        framework: the zoo's or the port's, otherwise the engine that runs the file's graph.
        sizes: the size that the file states, otherwise the recipe's; of a port, its only size, otherwise its
            own native size.
        member: what it is; None for a file of a graph that no recipe has.
        chosen: the options of the recipe that a user, or what stands beside the file, sets.
        assumed_size: one line if the recipe and not the source says what input size it was built for.
        shipped: with training pads, the graph with the source's own.
        fitted: None if the source is a port.
        own_model: what the model is called that porter builds from the graph, where the tensors were trained
            in that very model.
        in_memory: the model that the user holds, if the source is one.
    """

    graph: Graph
    tensors: Tensors
    facts: Facts
    sizes: InputSizes
    framework: str
    lists: TensorLists
    file: SourceFile
    member: Member | None = None
    chosen: Mapping[str, Value] = field(default_factory=dict)
    assumed_size: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    shipped: Graph | None = None
    fitted: Fitted | None = None
    own_model: str | None = None
    in_memory: Saved | None = None

    def stating(self, **facts: Any) -> Facts:
        """Return the facts of this source, with others in place of some."""
        return self.facts.model_copy(update=facts)

    @property
    def names(self) -> dict[str, str]:
        """The source's own names of the graph's nodes by their paths; of one that it does not name, the
        path.
        """
        return {node.path: self.facts.names.get(node.path, node.path) for node in self.graph.nodes}

    @property
    def built_size(self) -> KnownSize | None:
        """Rows and columns that the file's graph was built for; None if the file has no graph, or its graph
        takes any size.
        """
        graph = self.fitted.checkpoint.graph if self.fitted else None
        return graph.built_size if graph else None


def open_fit(
    fit: Fit, checkpoint: Checkpoint, framework: str, native: KnownSize, dialect: Dialect | None = None
) -> Opened:
    """Return a file opened as it was fitted: its graph, its tensors, and what the file itself states; without
    what only a recipe states.

    Args:
        native: rows and columns that the source is built for, where the file states none.
        dialect: as `read_tensors`.

    Raises:
        MappingError, FileError: as `read_tensors`.
    """
    file = checkpoint.graph
    # A node that calls a layer again has the tensors of the node that holds them.
    holders = {node.path: node.holder for node in fit.graph.nodes}
    used = {name: f"{holders[path]}:{role}" for (path, role), name in fit.tensors.items()}
    return Opened(
        graph=fit.graph,
        tensors=read_tensors(fit, checkpoint, dialect),
        facts=Facts(
            options={},
            preprocess=None,
            labels=None,
            classes=fit.classes,
            source_classes=fit.source_classes,
            background=fit.background,
            output=fit.output,
            activation=fit.activation,
            left_out=_left_out(file, fit.in_file.taps) if file else (),
            licence=None,
            evaluated=(
                *(
                    name
                    for (path, role), name in fit.tensors.items()
                    # numbers that were computed of the file's, which no file has as they are
                    if (file and name in file.evaluated)
                    or computes_numbers(fit.transforms.get(path, ()), role)
                ),
                *(f"{path} ({word})" for path, word in fit.computed.items()),
            ),
        ),
        sizes=file.sizes(native) if file else InputSizes(native),
        framework=framework,
        lists=TensorLists(used=used, ignored=fit.ignored, filled={}),
        file=SourceFile(
            file=checkpoint.path.name,
            format=checkpoint.format,
            sha256=checkpoint.sha256,
            published=False,
            notes=(*checkpoint.notes, *fit.notes, *_shared_tensors_note(fit)),
        ),
        fitted=Fitted(checkpoint, fit),
    )


def _shared_tensors_note(fit: Fit) -> tuple[str, ...]:
    """Return a note on tensors that several layers of the port have for themselves, because they are not
    calls of one layer.
    """
    paths: dict[str, list[str]] = {}
    for (path, _), name in fit.tensors.items():
        # `shares` is the path of the layer that a node calls again; such a call has no tensors of its own.
        if fit.graph.by_path[path].shares is None:
            paths.setdefault(name, []).append(path)
    shared = {name: layers for name, layers in paths.items() if len(layers) > 1}
    if not shared:
        return ()
    # One of them serves as an example.
    name, example_paths = next(iter(shared.items()))
    copies = "the port has a copy for each layer, and training it would make the copies differ"
    return (
        (
            f"several layers share tensors ({len(shared)} in all, such as {name} of "
            f"{' and '.join(example_paths[:2])}); {copies}"
        ),
    )


def _left_out(file: FileGraph, taps: Mapping[str, str]) -> tuple[LeftOut, ...]:
    """Return the layers that act in training only, which a file's graph leaves out. Their `after` names a
    layer of the file; here it becomes the path of that layer's node, or None if the port's graph lacks it.

    Args:
        taps: by path, the name under which the file's engine gives the value.
    """
    paths_by_tap = {INPUT: INPUT, **{tap: path for path, tap in taps.items()}}
    taps_by_layer = {INPUT: INPUT, **{node.name: node.tap for node in file.nodes}}

    def path_of(layer_name: str | None) -> str | None:
        """Return the path of the node that has the value of a layer of the file."""
        tap = taps_by_layer.get(layer_name or "")
        return paths_by_tap.get(tap or "")

    return tuple(replace(layer, after=path_of(layer.after)) for layer in file.left_out)


def read_tensors(fit: Fit, checkpoint: Checkpoint, dialect: Dialect | None) -> OwnTensors:
    """Return every tensor of the fitted graph in canonical axis order: path to role to array. Tensors that no
    file has, because their layer computes them, are computed.

    Args:
        dialect: of the file's names, which tells the axes where the file's graph does not (Fit.stored).

    Raises:
        MappingError: tensors have another shape than the graph needs; all are listed.
        FileError: a tensor has a NaN.
    """
    shapes = tensor_shapes(fit.graph)
    tensors: OwnTensors = {}
    wrong: list[tuple[str, str | None]] = []
    for (path, role), name in fit.tensors.items():
        expected = shapes[path].get(role)
        try:
            array = laid_out(fit, dialect, (path, role), expected, checkpoint.tensors[name])
        except MappingError as error:
            wrong.append((f"{name} at {path}: {error.message}", fit.places.get(path)))
            continue
        if expected is not None and array.shape != expected:
            mismatch = f"{name} is {shape_text(array.shape)} where {path} needs {shape_text(expected)}"
            wrong.append((mismatch, fit.places.get(path)))
        tensors.setdefault(path, {})[role] = array
    # No file has these tensors: their word says how they are made from the shape.
    for path, word in fit.computed.items():
        tensors[path] = {role: COMPUTED[word].values(shape) for role, shape in shapes[path].items()}
    if wrong:
        raise MappingError(
            "tensors of another shape: " + some(with_places(wrong)), where=str(checkpoint.path)
        )
    _expect_no_nan(fit, checkpoint)
    return tensors


def laid_out(
    fit: Fit, dialect: Dialect | None, key: TensorKey, expected: tuple[int, ...] | None, array: Array
) -> Array:
    """Return a tensor of the file in canonical axis order, as its node takes it.

    Args:
        dialect: as `read_tensors`.
        key: the node's path and the tensor's role.
        expected: the shape that the graph states.

    Raises:
        MappingError: the array has another rank.
    """
    path, role = key
    transforms = fit.transforms.get(path, ())
    if fit.in_file.stored and expected is not None:
        # The file still has the row of the background, which the transform takes off.
        shape_in_file = (fit.source_classes, *expected[1:]) if "drop_background" in transforms else expected
        array = to_canonical(array, fit.in_file.stored[path, role], shape_in_file)
    else:
        assert dialect is not None
        array = dialect.to_canonical(fit.graph, fit.graph.by_path[path], role, array)
    return apply_transforms(transforms, role, array)


def _expect_no_nan(fit: Fit, checkpoint: Checkpoint) -> None:
    """Refuse NaN: one in the weights can make every logit NaN. Infinities may be intended: see
    --allow-overflow.
    """
    for name in fit.tensors.values():
        array = checkpoint.tensors[name]
        if is_floating(array) and (count := int(np.count_nonzero(np.isnan(array)))):
            raise FileError(
                f"{count} of {array.size} values in tensor '{name}' are NaN: the training diverged, or "
                "the file is damaged",
                where=str(checkpoint.path),
                next="take an earlier checkpoint, or fetch the file again",
            )
