"""The reference that is run by code: a model in memory, or what a user's own code makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype
from porter.base.errors import Contradiction, PorterError
from porter.files import digest
from porter.frameworks.batches import arrays_for_inputs, split_into_batches
from porter.frameworks.in_memory import Saved
from porter.frameworks.reference_models import Shown, framework_of, get_user_models
from porter.graph.ops import is_map
from porter.padding.sizes import InputSizes
from porter.source.in_memory import save_and_read
from porter.source.opened import Opened
from porter.verification.references.reference_of_file import reference_of_checkpoint
from porter.verification.references.user_code import expect_framework, load_maker, running_code, running_model
from porter.verification.references.user_reference import ReferenceName, UserReference, trial_images
from porter.verification.saved_graph import compare_with_saved_graph


class _RunningModel:
    """A user's code, or a model in memory, which is run in its framework.

    Attributes:
        running: a context in which it is run. What the user's code raises is told with its line; what a model
            in memory raises, with its name.
        image: two images, with which it is tried.
        checkpoint: whose tensors code gets; None for a model in memory.
        layers, arrays: see porter.frameworks.reference_models.UserModels.show.
        notes: what it ran with, in the order in which they came, each once.
    """

    def __init__(self, asked: ReferenceName, opened: Opened, stored: Dtype) -> None:
        self.asked, self.graph, self.stored = asked, opened.graph, stored
        saved = asked.in_memory
        copy_model = None if saved is None else saved.make_copy
        self.make = load_maker(asked.file, str(asked.maker)) if copy_model is None else copy_model
        self.running = partial(running_model, asked.name) if saved else partial(running_code, asked.file)
        self.image = trial_images(opened.graph, opened.sizes.built)
        self.checkpoint = opened.fitted.checkpoint if opened.fitted and not saved else None
        self.notes = dict[str, None]()
        self.models = dict[Dtype, Any]()
        with self.running():
            self.framework = get_user_models(str(framework_of(self.make_model())))
        if saved is not None and saved.calls:
            self.layers = _call_of_each_layer(saved.calls, opened)
        else:
            self.layers = _likely_names(opened)
        self.arrays = _paths_of_arrays(opened, saved)

    def make_model(self) -> Any:
        """Make the model, and expect that it is one of a framework."""
        model = self.make()
        expect_framework(model, str(self.asked.maker), self.asked.file)
        return model

    def prepare(self, stored: Dtype, dtype: Dtype) -> tuple[Any, str]:
        """Make the model with weights rounded to `stored`, in `dtype`; see UserModels.prepare."""
        return self.framework.prepare(self.make_model, self.image, self.checkpoint, stored, dtype)

    def model(self, dtype: Dtype) -> Any:
        """Return the model to run in a type, which is made once, and note what it runs with."""
        if dtype not in self.models:
            run_in: Dtype = "float32" if self.framework.KEEPS_TYPES else dtype
            self.models[dtype], weights = self.prepare(self.stored, run_in)
            if not self.asked.in_memory:
                self.notes[f"{self.asked.name} ran {weights}"] = None
        return self.models[dtype]

    def shown(self, batch: Array, dtype: Dtype, paths: Collection[str] | None) -> Shown:
        """Run the model on a batch, and return its outputs and the values of `paths`. A model that takes only
        so many images at once gets the batch in parts.
        """
        saved = self.asked.in_memory
        parts = split_into_batches(batch.astype(dtype), saved.batch if saved is not None else None)
        wanted = {path: names for path, names in self.layers.items() if paths is None or path in paths}
        with self.running():
            shown = [
                self.framework.show(
                    self.model(dtype), arrays_for_inputs(part, self.graph), wanted, self.arrays
                )
                for part in parts
            ]
        return shown[0] if len(parts[0]) == len(batch) else _join_outputs(shown, len(batch))


def _paths_of_arrays(opened: Opened, saved: Saved | None) -> set[str | int]:
    """Return the paths of values without rows and columns, whose axes stay as they are, and the numbers of
    such outputs.
    """
    arrays: set[str | int] = {path for path, shape in opened.graph.open_shapes.items() if not is_map(shape)}
    arrays |= {number for number, path in enumerate(opened.graph.outputs) if path in arrays}
    # The saved file says which outputs of a model in memory have their channels last.
    has_own_graph = opened.fitted is not None and opened.fitted.checkpoint.graph is not None
    if saved is not None and has_own_graph:
        arrays |= set(range(len(opened.graph.outputs))) - saved.channels_last_outputs
    return arrays


def reference_of_code(asked: ReferenceName, opened: Opened, stored: Dtype) -> UserReference:
    """Return the reference of a user's code, or of a model in memory. A model that keeps its number type runs
    in float32, or as the file that its framework saves it as.

    Args:
        stored: the port's type, to which weights are rounded.
    """
    model = _RunningModel(asked, opened, stored)
    if model.framework.KEEPS_TYPES:
        with model.running():
            saved_model = _reference_of_saved_model(
                asked, opened, stored, *model.prepare("float64", "float32")
            )
        if saved_model:
            return saved_model
    model.shown(model.image, "float32", None)
    saved = asked.in_memory
    file = None if saved else asked.file_record(digest(asked.file))
    sizes = InputSizes(opened.sizes.built)
    notes = tuple(model.notes)
    return UserReference(asked.name, file, opened.graph, sizes, model.shown, notes, named=not saved)


def _join_outputs(parts: Sequence[Shown], count: int) -> Shown:
    """Return the outputs of a model that ran on a batch in parts, because it takes only so many images at
    once: each output's parts are joined, and those of the first `count` images kept. Values inside the model
    may have other axes than that of the images, so they are left out.
    """
    parts_by_output = zip(*(part.outputs for part in parts), strict=True)
    return Shown(tuple(np.concatenate(output_parts)[:count] for output_parts in parts_by_output), {})


def _reference_of_saved_model(
    asked: ReferenceName, opened: Opened, stored: Dtype, model: Any, weights: str
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
        file = asked.file_record(digest(asked.file))
        reference = reference_of_checkpoint(asked, file, exported.checkpoint, opened, stored)
    except Contradiction:
        raise
    except PorterError:
        return None
    image = trial_images(opened.graph, reference.sizes.built)
    testimony = compare_with_saved_graph(exported.saved, exported.checkpoint, image)
    return replace(reference, notes=(f"{asked.name} ran {weights}", *testimony.held))


def _call_of_each_layer(calls: Mapping[str, str], opened: Opened) -> dict[str, tuple[str, ...]]:
    """Return by path the call of a layer of the user's model that gives the value.

    Args:
        calls: by tap (a name under which the engine of the saved file gives a value), the layer's call.
    """
    taps = opened.fitted.fit.in_file.taps if opened.fitted else {}
    return {path: (calls[tap],) for path, tap in taps.items() if tap in calls}


def _likely_names(opened: Opened) -> dict[str, tuple[str, ...]]:
    """Return by path the names that a layer may have in somebody's own implementation, likeliest first: as
    its tensors are called, as the source calls it, then the taps under which engines give its value.
    """
    fit = opened.fitted.fit if opened.fitted else None
    names = {path: [name, name.replace("/", ".")] for path, name in opened.names.items()}
    if fit is not None:
        for (path, _), tensor in fit.tensors.items():
            # `layer1.0.conv1.weight` is a tensor of `layer1.0.conv1`: likeliest, so it is put first.
            names[path][:0] = [tensor.rpartition(sign)[0] for sign in "./" if sign in tensor]
        for taps in (fit.in_zoo.taps, fit.in_file.taps):
            for path, tap in taps.items():
                if path in names:
                    names[path].append(tap)
    return {path: tuple(dict.fromkeys(of_layer)) for path, of_layer in names.items()}
