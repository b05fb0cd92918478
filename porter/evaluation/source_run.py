"""The source in its own framework, run beside the port in the same pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from porter.base.errors import CannotRun, UsageError
from porter.base.options import INPUT_SIZE
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier
from porter.port import StoredPort
from porter.source.opened import Opened
from porter.verification.references.own_build import OwnBuild
from porter.verification.references.source_references import SourceReference, with_fallback

SourceModel = tuple[str, Classifier, tuple[str, ...]]
"""The name of the source's model, its classifier, and warnings."""


def source_classifier(port: StoredPort, opened: Opened, protocol: Preprocess, device: str) -> SourceModel:
    """Build the source's model to run beside the port, and return its name, its classifier, and warnings. It
    is the first reference of the source (the file's graph, the zoo's implementation, porter's own build) that
    can run, in float32, with the file's numbers and the shipped pads.

    Raises:
        CannotRun: none of them can run here, or only porter's own build can, which is the port.
    """
    side, output = protocol.square, opened.graph.output
    note = "" if opened.shipped is None else ", with the shipped pads"

    def build(reference: SourceReference) -> SourceModel:
        """Return the model of a reference of the source, with its name and warnings.

        Raises:
            CannotRun: the reference does not take the protocol's squares.
        """
        if not reference.takes((side, side)):
            next = f"convert with an {INPUT_SIZE} that it takes"
            raise CannotRun(f"{reference.name} cannot be run at {side}x{side}", next=next)
        warnings: tuple[str, ...] = ()
        if isinstance(reference, OwnBuild):
            reference = replace(reference, graph=opened.shipped or opened.graph)
            warning = (
                "the source beside the port is porter's own build, not an implementation "
                "that porter did not write"
            )
            warnings = (warning,)
        build_on = partial(reference.classifier, output, (side, side), protocol)
        classifier, warnings_of_device = _on_device(build_on, device)
        return reference.name + note, classifier, (*warnings, *warnings_of_device)

    (name, classifier, warnings), failures = with_fallback(opened, port.record.framework, "float64", build)
    return name, classifier, (*failures, *warnings)


def _on_device(build_on: Callable[[str], Classifier], device: str) -> tuple[Classifier, tuple[str, ...]]:
    """Return a classifier on the port's device and no warning, otherwise one on the CPU with a warning:
    TensorFlow often lacks a GPU where torch has one.

    Args:
        build_on: builds it on the device of this name.
    """
    try:
        return build_on(device), ()
    except UsageError as error:
        if device == "cpu":
            raise
        return build_on("cpu"), (f"the source ran on the CPU: {error}",)
