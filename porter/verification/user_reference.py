"""The reference that a user gives: the model in memory that is ported, or with `--reference` code of their
own that makes a model, or another file that carries its graph.

It shows at least its outputs, and the values of layers that can be paired with nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype
from porter.base.errors import CheckFailed, Contradiction, MappingError, PorterError, UsageError
from porter.base.options import REFERENCE
from porter.base.package import page
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.filegraph.to_graph import to_graph
from porter.files import digest
from porter.formats.reading import read_with_digests
from porter.frameworks import engine_name, get_engine
from porter.frameworks.images import arrays_for_inputs, split_into_batches
from porter.frameworks.in_memory import Saved
from porter.frameworks.reference_models import Shown, framework_of, get_given_models
from porter.graph import OF_LOGITS, Graph, shapes
from porter.graph.ops import is_map, shape_text
from porter.padding import ANY, KnownSize
from porter.padding.sizes import InputSizes
from porter.port import GivenFile
from porter.source.in_memory import save_and_read
from porter.source.opened import Opened
from porter.verification.background import drops_background
from porter.verification.itself import compare_with_saved_graph
from porter.verification.pairing import pair, weight_distances
from porter.verification.rounded_tensors import round_checkpoint
from porter.verification.user_code import load_maker, parse_code, running_code, running_model

_CARRYING = {
    "torch": "a .pt2 of torch.export or an ONNX model",
    "tf": "a .keras file, a SavedModel or an ONNX model",
}
"""What a framework writes of a whole model, with its graph."""
IMAGES = 2
"""Images that a reference is tried with."""
_SUM_TOLERANCE = 1e-4
"""The most by which the sum of float32 probabilities misses 1."""
_LEAST_LOGARITHM = -80.0
"""Logarithms of probabilities below it are taken for it: float32 has no digits left there."""


@dataclass(frozen=True)
class Ending:
    """An activation in which a reference ends and which its source's port lacks: what is compared in place of
    the logits.

    Attributes:
        of_logits: from the port's logits.
        of_outputs: from the reference's outputs.
    """

    of_logits: Callable[[Array], Array]
    of_outputs: Callable[[Array], Array]


@dataclass(frozen=True)
class ReferenceName:
    """What `--reference` names: a file, and the callable in it if it is code. Or the model that the user
    holds.
    """

    file: Path
    maker: str | None = None
    held: Saved | None = None

    @property
    def name(self) -> str:
        """The name of the reference in messages and in port.json, such as `the given net.py:build`."""
        if self.held:
            return f"the model {self.held.name} itself"
        return f"the given {self.file.name}:{self.maker}" if self.maker else f"the given {self.file.name}"


def model_itself(opened: Opened) -> ReferenceName | None:
    """Return the model in memory that is ported as a reference of its own port; None where the source is no
    such model, or the file that porter reads is the model.
    """
    held = opened.in_memory
    if held is None or held.make_copy is None:
        return None
    return ReferenceName(Path(held.name), held=held)


def parse_reference(text: str) -> ReferenceName:
    """Return what `--reference` names: FILE.py:CALLABLE, or a FILE that carries its graph.

    Raises:
        UsageError: there is no such file, or code is given without its callable.
    """
    given = ReferenceName(*(parse_code(text) or (Path(text),)))
    if not given.file.exists():
        raise UsageError("there is no such file", where=f"{REFERENCE(given.file)}", next="check the path")
    if given.maker is None and given.file.suffix == ".py":
        next = f"{REFERENCE(given.file)}:CALLABLE, the class or function that gives the model"
        raise UsageError("code needs the name of what makes its model", where=f"{REFERENCE(text)}", next=next)
    return given


@dataclass(frozen=True)
class UserReference:
    """A reference that a user gives (porter.verification.references.SourceValues).

    Attributes:
        file: for port.json; None for a model in memory.
        notes: what it ran with, and how it was compared, one line each.
        exact: it runs in float64 too; otherwise its values are float32's in every type.
        rounded: it or the source has numbers of the other rounded to float32 (porter.verification.pairing).
        apart: how far a file's weights are from the source's (porter.verification.pairing.weight_distances).
        sizes: those at which it runs.
        graph: of the source.
        ending: makes a port's logits and its outputs comparable; None if they are.
        shown: runs it on a batch, in a type.
        dropped: path of the head whose row 0 the port lacks.
        named: its layers are paired with nodes by their names only.
        run_by: what runs it, in words.
    """

    name: str
    file: GivenFile | None
    graph: Graph
    sizes: InputSizes
    shown: Callable[[Array, Dtype, Collection[str] | None], Shown]
    notes: tuple[str, ...] = ()
    exact: bool = True
    rounded: bool = False
    apart: Mapping[str, float] = field(default_factory=dict)
    ending: Ending | None = None
    dropped: str | None = None
    named: bool = True
    run_by: str = "its own code"

    def takes(self, size: KnownSize) -> bool:
        """Return whether the reference runs at a size (rows, columns); it is tried, unless it states its
        sizes.
        """
        if size == self.sizes.built or self.sizes.only is not None:
            return self.sizes.takes(size)
        try:
            self.shown(np.zeros((1, self.graph.channels, *size), np.float32), "float32", ())
        except PorterError:
            return False
        return True

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        """Run the reference, and return its values by path with its outputs made comparable: without the
        background row that the port lacks, and behind the activation in which the reference ends. See
        SourceValues.run.
        """
        shown = self.shown(batch, dtype if self.exact else "float32", paths)
        outputs = dict(zip(self.graph.outputs, shown.outputs, strict=True))
        if self.dropped is not None:
            outputs[self.dropped] = outputs[self.dropped][:, 1:]
        if self.ending is not None:
            outputs = {path: self.ending.of_outputs(value) for path, value in outputs.items()}
        return {**shown.values, **outputs}


def open_given(given: ReferenceName, opened: Opened, stored: Dtype) -> UserReference:
    """Open the user's reference of a source, with weights rounded to a port's type, try it on two images, and
    return it with what is known of it: whether it runs in float64, which of its outputs has a background row
    that the port lacks, and in which activation it ends.

    Args:
        stored: the port's type.

    Raises:
        UsageError: the code raises an exception or gives no model, or the outputs are not those of the
            source.
        NotInstalled: a framework that it needs is not installed, or does not run it.
        FileError, MappingError: the file cannot be read, or carries no graph that porter knows.
    """
    of_code = given.held is not None or given.maker is not None
    reference = (
        _reference_of_code(given, opened, stored) if of_code else _reference_of_file(given, opened, stored)
    )
    image = _image(opened.graph, reference.sizes.built)
    try:
        double = reference.shown(image, "float64", None)
        outputs = double.outputs
        exact = all(value.dtype == np.float64 for value in (*outputs, *double.values.values()))
    except UsageError:
        outputs, exact = reference.shown(image, "float32", None).outputs, False
    notes = reference.notes
    if not exact:
        notes += (f"{given.name} runs in float32 only, so it is compared in float32",)
    rounds = reference.rounded or (opened.fitted is not None and bool(opened.fitted.fit.folded))
    dropped = _expect_outputs(given, opened, outputs, reference.sizes.built)
    ending, ending_notes = _ending_of(given, opened, outputs)
    notes = (*notes, *ending_notes)
    return replace(reference, exact=exact, rounded=rounds, dropped=dropped, ending=ending, notes=notes)


def _image(graph: Graph, size: KnownSize) -> Array:
    """Make two images N x C x H x W of random numbers, with which a reference is tried."""
    return np.random.default_rng(0).standard_normal((IMAGES, graph.channels, *size))


class _RunningModel:
    """A user's code, or a model in memory, which is run in its framework.

    Attributes:
        running: a context in which it is run. What the user's code raises is told with its line; what a model
            in memory raises, with its name.
        image: two images, with which it is tried.
        checkpoint: whose tensors code gets; None for a model in memory.
        layers, arrays: see porter.frameworks.reference_models.GivenModels.show.
        notes: what it ran with, in the order in which they came, each once.
    """

    def __init__(self, given: ReferenceName, opened: Opened, stored: Dtype) -> None:
        self.given, self.graph, self.stored = given, opened.graph, stored
        held = given.held
        copy_model = None if held is None else held.make_copy
        self.make = load_maker(given.file, str(given.maker)) if copy_model is None else copy_model
        self.running = partial(running_model, given.name) if held else partial(running_code, given.file)
        self.image = _image(opened.graph, opened.sizes.built)
        self.checkpoint = opened.fitted.checkpoint if opened.fitted and not held else None
        self.notes = dict[str, None]()
        self.models = dict[Dtype, Any]()
        with self.running():
            self.framework = get_given_models(str(framework_of(self.make_model())))
        if held is not None and held.calls:
            self.layers = _call_of_each_layer(held.calls, opened)
        else:
            self.layers = _likely_names(opened)
        self.arrays = _paths_of_arrays(opened, held)

    def make_model(self) -> Any:
        """Make the model, and expect that it is one of a framework."""
        model = self.make()
        if framework_of(model) is None:
            message = (
                f"{self.given.maker}() gives a {type(model).__name__}, expected a torch.nn.Module, a "
                "keras.Model or an nnx.Module"
            )
            raise UsageError(message, where=self.given.file)
        return model

    def prepare(self, stored: Dtype, dtype: Dtype) -> tuple[Any, str]:
        """Make the model with weights rounded to `stored`, in `dtype`; see GivenModels.prepare."""
        return self.framework.prepare(self.make_model, self.image, self.checkpoint, stored, dtype)

    def model(self, dtype: Dtype) -> Any:
        """Return the model to run in a type, which is made once, and note what it runs with."""
        if dtype not in self.models:
            run_in: Dtype = "float32" if self.framework.KEEPS_TYPES else dtype
            self.models[dtype], weights = self.prepare(self.stored, run_in)
            if not self.given.held:
                self.notes[f"{self.given.name} ran {weights}"] = None
        return self.models[dtype]

    def shown(self, batch: Array, dtype: Dtype, paths: Collection[str] | None) -> Shown:
        """Run the model on a batch, and return its outputs and the values of `paths`. A model that takes only
        so many images at once gets the batch in parts.
        """
        held = self.given.held
        parts = split_into_batches(batch.astype(dtype), held.batch if held is not None else None)
        wanted = {path: names for path, names in self.layers.items() if paths is None or path in paths}
        with self.running():
            shown = [
                self.framework.show(
                    self.model(dtype), arrays_for_inputs(part, self.graph), wanted, self.arrays
                )
                for part in parts
            ]
        return shown[0] if len(parts[0]) == len(batch) else _join_outputs(shown, len(batch))


def _paths_of_arrays(opened: Opened, held: Saved | None) -> set[str | int]:
    """Return the paths of values without rows and columns, whose axes stay as they are, and the numbers of
    such outputs.
    """
    arrays: set[str | int] = {path for path, shape in opened.graph.open_shapes.items() if not is_map(shape)}
    arrays |= {number for number, path in enumerate(opened.graph.outputs) if path in arrays}
    # The saved file says which outputs of a model in memory have their channels last.
    has_own_graph = opened.fitted is not None and opened.fitted.checkpoint.graph is not None
    if held is not None and has_own_graph:
        arrays |= set(range(len(opened.graph.outputs))) - held.channels_last_outputs
    return arrays


def _reference_of_code(given: ReferenceName, opened: Opened, stored: Dtype) -> UserReference:
    """Return the reference of a user's code, or of a model in memory. A model that keeps its number type runs
    in float32, or as the file that its framework saves it as.

    Args:
        stored: the port's type, to which weights are rounded.
    """
    model = _RunningModel(given, opened, stored)
    if model.framework.KEEPS_TYPES:
        with model.running():
            saved_model = _reference_of_saved_model(
                given, opened, stored, *model.prepare("float64", "float32")
            )
        if saved_model:
            return saved_model
    model.shown(model.image, "float32", None)
    held = given.held
    file = None if held else GivenFile(file=given.file.name, sha256=digest(given.file), maker=given.maker)
    sizes = InputSizes(opened.sizes.built)
    notes = tuple(model.notes)
    return UserReference(given.name, file, opened.graph, sizes, model.shown, notes, named=not held)


def _join_outputs(parts: Sequence[Shown], count: int) -> Shown:
    """Return the outputs of a model that ran on a batch in parts, because it takes only so many images at
    once: each output's parts are joined, and those of the first `count` images kept. Values inside the model
    may have other axes than that of the images, so they are left out.
    """
    parts_by_output = zip(*(part.outputs for part in parts), strict=True)
    return Shown(tuple(np.concatenate(output_parts)[:count] for output_parts in parts_by_output), {})


def _reference_of_saved_model(
    given: ReferenceName, opened: Opened, stored: Dtype, model: Any, weights: str
) -> UserReference | None:
    """Save the model that a user's code makes, and return that file as the reference, because it runs in
    every number type and the model in float32 only. Return None where its framework saves no such file, or
    porter does not read it.

    Args:
        stored: the port's type.
        model: made by the code.
        weights: what it ran with, in words, for a note.

    Raises:
        Contradiction: the model itself gives something else than that file.
    """
    try:
        exported = save_and_read(model)
        file = GivenFile(file=given.file.name, sha256=digest(given.file), maker=given.maker)
        reference = _reference_of_checkpoint(given, file, exported.checkpoint, opened, stored)
    except Contradiction:
        raise
    except PorterError:
        return None
    image = _image(opened.graph, reference.sizes.built)
    testimony = compare_with_saved_graph(exported.saved, exported.checkpoint, image)
    return replace(reference, notes=(f"{given.name} ran {weights}", *testimony.held))


def _call_of_each_layer(calls: Mapping[str, str], opened: Opened) -> dict[str, tuple[str, ...]]:
    """Return by path the call of a layer of the user's model that gives the value.

    Args:
        calls: by tap (a name under which the engine of the saved file gives a value), the layer's call.
    """
    taps = opened.fitted.fit.taps if opened.fitted else {}
    return {path: (calls[tap],) for path, tap in taps.items() if tap in calls}


def _likely_names(opened: Opened) -> dict[str, tuple[str, ...]]:
    """Return by path the names that a layer may have in somebody's own implementation, likeliest first: as
    its tensors are called, as the source calls it, then the taps under which engines give its value.
    """
    fit = opened.fitted.fit if opened.fitted else None
    in_source = {node.path: opened.facts.names.get(node.path, node.path) for node in opened.graph.nodes}
    names = {path: [name, name.replace("/", ".")] for path, name in in_source.items()}
    if fit is not None:
        for (path, _), tensor in fit.tensors.items():
            # `layer1.0.conv1.weight` is a tensor of `layer1.0.conv1`: likeliest, so it is put first.
            names[path][:0] = [tensor.rpartition(sign)[0] for sign in "./" if sign in tensor]
        for taps in (fit.reference_taps, fit.taps):
            for path, tap in taps.items():
                if path in names:
                    names[path].append(tap)
    return {path: tuple(dict.fromkeys(of_layer)) for path, of_layer in names.items()}


def _reference_of_file(given: ReferenceName, opened: Opened, stored: Dtype) -> UserReference:
    """Read the file that `--reference` names, and return it as a reference."""
    checkpoint = read_with_digests(given.file, with_md5=False)
    record = GivenFile(file=given.file.name, sha256=checkpoint.sha256, maker=None)
    return _reference_of_checkpoint(given, record, checkpoint, opened, stored)


def _reference_of_checkpoint(
    given: ReferenceName, record: GivenFile, checkpoint: Checkpoint, opened: Opened, stored: Dtype
) -> UserReference:
    """Return the reference of a user's file with a graph, which is run by the file's engine, with its layers
    paired with the source's nodes.

    Args:
        record: what port.json says of the file.
        stored: the port's type, to which the file's weights are rounded.

    Raises:
        UsageError: the file has no graph, other inputs, or an output that the engine does not show.
    """
    file = checkpoint.graph
    where = str(given.file)
    if file is None:
        carrying = _CARRYING.get(checkpoint.dialect or "", "an ONNX model")
        raise UsageError(
            f"this {checkpoint.format} file carries no graph that can be run",
            where=where,
            next="give code that makes the model, as FILE.py:CALLABLE, or the whole model, as "
            f"{carrying}: {page('files.md')} says which files carry their graph",
        )
    _expect_inputs(file, opened.graph, where)
    # The file's final softmax is kept where the source has one too.
    ends_in_activation = isinstance(opened.graph.by_path[opened.graph.output].op, OF_LOGITS)
    built = file.built_size or opened.sizes.built
    try:
        sized = replace(file, size=built)
        reference = to_graph(sized, keep_activation=ends_in_activation)
    except MappingError as error:
        raise error.at(f"{where}: {error.where}" if error.where else where) from None
    taps = {path: file.by_name[name].tap for path, name in reference.names.items()}
    lacking = next((path for path in reference.graph.outputs if taps[path] is None), None)
    if lacking is not None:
        raise UsageError(
            "the file's framework gives no value for this output, so there is nothing to compare with",
            where=f"{where}: {lacking}",
            next="give another reference",
        )
    pairs = pair(opened, reference, file)
    # by the source's path, the name under which the engine gives the value of the file's layer
    inside = {
        path: tap for path, layer in pairs.layers.items() if (tap := file.by_name[layer].tap) is not None
    }
    outputs = {f"output {number}": str(taps[path]) for number, path in enumerate(reference.graph.outputs)}
    of_layers = {tensor.name for node in file.nodes for tensor in node.tensors.values()}
    rounded = round_checkpoint(checkpoint, stored, of_layers)
    engine = get_engine(engine_name(checkpoint))

    @cache
    def model(dtype: Dtype) -> Any:
        return engine.build_file(rounded, dtype, ANY if file.resizable else file.size)

    def shown(batch: Array, dtype: Dtype, paths: Collection[str] | None) -> Shown:
        """Run the file's graph on a batch, and return its outputs, and the values inside it by the source's
        paths.
        """
        layers = {path: tap for path, tap in inside.items() if paths is None or path in paths}
        values = dict(engine.run_reference(model(dtype), batch.astype(dtype), layers | outputs))
        return Shown(
            tuple(values.pop(f"output {number}") for number in range(len(reference.graph.outputs))), values
        )

    sizes = InputSizes(built, None if file.resizable else file.built_size)
    distances = weight_distances(opened, file, checkpoint.tensors, pairs.layers)
    return UserReference(
        given.name,
        record,
        opened.graph,
        sizes,
        shown,
        rounded=pairs.rounded,
        named=pairs.named,
        apart=distances,
        run_by=engine.RUNNER,
    )


def _expect_inputs(file: FileGraph, graph: Graph, where: str) -> None:
    """Expect that a reference file takes the inputs that the source's graph takes."""
    if file.channels != graph.channels:
        raise UsageError(
            f"expected an input of {graph.channels} channels, as the source has, got {file.channels}",
            where=where,
            next="give a reference with the source's input",
        )
    if len(file.inputs) != len(graph.inputs):
        raise UsageError(
            f"expected {len(graph.inputs)} inputs, as the source takes, got {len(file.inputs)}",
            where=where,
            next="give a reference with the source's inputs",
        )


def _expect_outputs(
    given: ReferenceName, opened: Opened, outputs: Sequence[Array], size: KnownSize
) -> str | None:
    """Expect as many outputs, of the same shapes, as the source has. Return the path of the head that has a
    row 0, for the background, in the reference only; None if no head has one.

    Args:
        given: what `--reference` names.
        outputs: of the reference for two images.
        size: rows and columns of these.
    """
    graph = opened.graph
    known = shapes(graph, size)
    if len(outputs) != len(graph.outputs):
        next = (
            "let the callable give a model that returns the same"
            if given.maker
            else "give a model with the same outputs"
        )
        raise _other_function_error(given, f"{len(graph.outputs)} outputs", str(len(outputs)), next)
    dropped = None
    for path, value in zip(graph.outputs, outputs, strict=True):
        wanted, got = tuple(size or 0 for size in known[path]), value.shape[1:]
        has_one_class_more = len(wanted) == 1 and got == (wanted[0] + 1,)
        if has_one_class_more and opened.fitted is not None and drops_background(opened.fitted.fit):
            dropped = path
        elif len(value) != IMAGES or math.prod(got) != math.prod(wanted):
            shown = f"{shape_text(value.shape)} for {IMAGES} images of {shape_text(size)}"
            next = "a reference computes the source's function, without resizing or cropping"
            raise _other_function_error(given, shape_text((IMAGES, *wanted)), shown, next)
    return dropped


def _other_function_error(given: ReferenceName, expected: str, got: str, next: str) -> PorterError:
    """Make the error of a reference that is another function than the source. What a model in memory gives is
    the source's own, so that porter's reading is then wrong.

    Args:
        expected, got: what the source gives and what the reference does, in words.
    """
    if given.held is not None:
        message = f"it gives {got}, and porter reads a graph that gives {expected}"
        return CheckFailed(message, where=given.name, next="this is a mistake of porter's: report it")
    message = f"expected {expected}, as the source gives, got {got} from {given.name}"
    return UsageError(message, where=given.file, next=next)


def _ending_of(
    given: ReferenceName, opened: Opened, outputs: Sequence[Array]
) -> tuple[Ending | None, tuple[str, ...]]:
    """Find out whether the reference ends in an activation that the port lacks, such as a softmax after which
    its outputs are probabilities. Return what is then compared in place of logits, and a line that says so;
    None and no line where they are comparable as they are.

    Args:
        given: what `--reference` names.
        outputs: of the reference for two images.
    """
    value = outputs[0].reshape(len(outputs[0]), -1).astype(np.float64)
    port_ends_in_activation = isinstance(opened.graph.by_path[opened.graph.output].op, OF_LOGITS)
    if port_ends_in_activation or len(outputs) > 1:
        return None, ()
    # Logarithms of probabilities are at most 0. The bound of 1 keeps the exponentials of others finite.
    for name, ending, probabilities in (
        ("softmax", Ending(log_softmax, _renormalised_logarithms), value),
        ("log_softmax", Ending(log_softmax, log_softmax), np.exp(np.minimum(value, 1))),
    ):
        if _sum_to_one(probabilities):
            logarithms = (
                "the logarithms of the probabilities are compared, which are equal too if all logits "
                "differ by one number"
            )
            return ending, (f"{given.name} ends in a {name}, which the port lacks: {logarithms}",)
    if opened.facts.activation == "sigmoid" and value.min() >= 0 and value.max() <= 1:
        return Ending(sigmoid, np.asarray), (
            f"{given.name} ends in a sigmoid, which the port lacks: the probabilities are compared",
        )
    return None, ()


def _sum_to_one(probabilities: Array) -> bool:
    """Return whether each row of N x C numbers could be probabilities."""
    return (
        probabilities.shape[1] > 1
        and probabilities.min() >= 0
        and np.allclose(probabilities.sum(axis=1), 1, rtol=0, atol=_SUM_TOLERANCE)
    )


def _renormalised_logarithms(probabilities: Array) -> Array:
    """Return the logarithms of N x C probabilities, scaled to sum to 1: they sum to less if a row was
    dropped.
    """
    with np.errstate(divide="ignore"):
        return log_softmax(np.log(probabilities))


def log_softmax(logits: Array) -> Array:
    """Return the logarithms of the probabilities that N x C logits give, at least `_LEAST_LOGARITHM`."""
    # The largest is subtracted, so that no exponential is infinite.
    below = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    log_of_sum = np.log(np.exp(below).sum(axis=-1, keepdims=True))
    logarithms: Array = np.maximum(below - log_of_sum, _LEAST_LOGARITHM)
    return logarithms


def sigmoid(logits: Array) -> Array:
    """Return the probabilities 1 / (1 + exp(-logit)), one by one, of logits of any shape."""
    with np.errstate(over="ignore"):
        probabilities: Array = 1 / (1 + np.exp(-logits.astype(np.float64)))
    return probabilities
