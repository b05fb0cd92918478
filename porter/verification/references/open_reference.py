"""Opens the reference that a user gives, and tries it on two images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from porter.base.dtypes import Array, Dtype
from porter.base.errors import CheckFailed, PorterError, UsageError
from porter.graph import shapes
from porter.graph.ops import shape_text
from porter.padding import KnownSize
from porter.source.opened import Opened
from porter.verification.references.background import drops_background
from porter.verification.references.endings import ending_of
from porter.verification.references.reference_of_code import reference_of_code
from porter.verification.references.reference_of_file import reference_of_file
from porter.verification.references.user_reference import IMAGES, ReferenceName, UserReference, trial_images


def open_user_reference(asked: ReferenceName, opened: Opened, stored: Dtype) -> UserReference:
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
    of_code = asked.in_memory is not None or asked.maker is not None
    reference = (
        reference_of_code(asked, opened, stored) if of_code else reference_of_file(asked, opened, stored)
    )
    image = trial_images(opened.graph, reference.sizes.built)
    try:
        double = reference.shown(image, "float64", None)
        outputs = double.outputs
        exact = all(value.dtype == np.float64 for value in (*outputs, *double.values.values()))
    except UsageError:
        outputs, exact = reference.shown(image, "float32", None).outputs, False
    notes = reference.notes
    if not exact:
        notes += (f"{asked.name} runs in float32 only, so it is compared in float32",)
    rounds = reference.rounded or (opened.fitted is not None and bool(opened.fitted.fit.in_file.folded))
    dropped = _expect_outputs(asked, opened, outputs, reference.sizes.built)
    ending, ending_notes = ending_of(asked.name, opened, outputs)
    notes = (*notes, *ending_notes)
    return replace(reference, exact=exact, rounded=rounds, dropped=dropped, ending=ending, notes=notes)


def _expect_outputs(
    asked: ReferenceName, opened: Opened, outputs: Sequence[Array], size: KnownSize
) -> str | None:
    """Expect as many outputs, of the same shapes, as the source has. Return the path of the head that has a
    row 0, for the background, in the reference only; None if no head has one.

    Args:
        asked: what `--reference` names.
        outputs: of the reference for two images.
        size: rows and columns of these.
    """
    graph = opened.graph
    known = shapes(graph, size)
    if len(outputs) != len(graph.outputs):
        next = (
            "let the callable give a model that returns the same"
            if asked.maker
            else "give a model with the same outputs"
        )
        raise _other_function_error(asked, f"{len(graph.outputs)} outputs", str(len(outputs)), next)
    dropped = None
    for path, value in zip(graph.outputs, outputs, strict=True):
        wanted, got = tuple(size or 0 for size in known[path]), value.shape[1:]
        has_one_class_more = len(wanted) == 1 and got == (wanted[0] + 1,)
        if has_one_class_more and opened.fitted is not None and drops_background(opened.fitted.fit):
            dropped = path
        elif len(value) != IMAGES or math.prod(got) != math.prod(wanted):
            shown = f"{shape_text(value.shape)} for {IMAGES} images of {shape_text(size)}"
            next = "a reference computes the source's function, without resizing or cropping"
            raise _other_function_error(asked, shape_text((IMAGES, *wanted)), shown, next)
    return dropped


def _other_function_error(asked: ReferenceName, expected: str, got: str, next: str) -> PorterError:
    """Make the error of a reference that is another function than the source. What a model in memory gives is
    the source's own, so that porter's reading is then wrong.

    Args:
        expected, got: what the source gives and what the reference does, in words.
    """
    if asked.in_memory is not None:
        message = f"it gives {got}, and porter reads a graph that gives {expected}"
        return CheckFailed(message, where=asked.name, next="this is a mistake of porter's: report it")
    message = f"expected {expected}, as the source gives, got {got} from {asked.name}"
    return UsageError(message, where=asked.file, next=next)
