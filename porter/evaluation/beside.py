"""The source in its own framework, run beside the port in the same pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from porter.data.preprocess import Preprocess
from porter.errors import MissingFramework, UsageError
from porter.frameworks import Classifier
from porter.port import Port
from porter.source.opened import Opened


def source_classifier(
    port: Port, opened: Opened, side: int, protocol: Preprocess, device: str
) -> tuple[str, Classifier, tuple[str, ...]]:
    """The name of the source's model, its classifier, and warnings.

    It is the file's own graph, otherwise the zoo's implementation, otherwise porter's own build in the source's framework (`self`):
    always in float32, with the file's numbers and the shipped pads.

    Raises:
        MissingFramework: none of them can run here, or only porter's own build can, which is the port.
    """
    size, output, warnings = (side, side), opened.graph.output, []
    note = "" if opened.shipped is None else ", with the shipped pads"
    for reference in opened.references("float64"):
        if not reference.takes(size):
            warnings.append(f"{reference.name} cannot be run at {side}x{side}")
            continue
        try:
            classifier, slower = _placed(partial(reference.classifier, output, size, protocol), device)
            return reference.name + note, classifier, slower
        except MissingFramework as error:
            warnings.append(str(error))
    if port.record.framework == opened.framework.NAME:
        only = f"only porter's own {opened.framework.NAME} build is left to run beside the port, and it is the port"
        raise MissingFramework("; ".join([*warnings, only]), where="--source")
    own = replace(opened.own("float64"), graph=opened.shipped or opened.graph)
    warnings.append("the source beside the port is porter's own build, not an implementation that porter did not write")
    classifier, slower = _placed(partial(own.classifier, output, size, protocol), device)
    return own.name + note, classifier, (*warnings, *slower)


def _placed(classifier: Callable[[str], Classifier], device: str) -> tuple[Classifier, tuple[str, ...]]:
    """The classifier on the port's device, otherwise on the CPU: TensorFlow often lacks a GPU where torch has one."""
    try:
        return classifier(device), ()
    except UsageError as error:
        if device == "cpu":
            raise
        return classifier("cpu"), (f"the source ran on the CPU: {error}",)
