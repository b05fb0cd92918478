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
from porter.verification.references import OwnBuild
from porter.verification.source_forms import Form, with_fallback

Beside = tuple[str, Classifier, tuple[str, ...]]


def source_classifier(port: StoredPort, opened: Opened, protocol: Preprocess, device: str) -> Beside:
    """The name of the source's model, its classifier, and warnings.

    It is the first form of the source that can run (porter.verification.source_forms), in float32, with the
    file's numbers and the shipped pads.

    Raises:
        CannotRun: none of them can run here, or only porter's own build can, which is the port.
    """
    side, output = protocol.square, opened.graph.output
    note = "" if opened.shipped is None else ", with the shipped pads"

    def run(form: Form) -> Beside:
        if not form.takes((side, side)):
            next = f"convert with an {INPUT_SIZE} that it takes"
            raise CannotRun(f"{form.name} cannot be run at {side}x{side}", next=next)
        warnings: tuple[str, ...] = ()
        if isinstance(form, OwnBuild):
            form = replace(form, graph=opened.shipped or opened.graph)
            warnings = (
                (
                    "the source beside the port is porter's own build, not an implementation "
                    "that porter did not write"
                ),
            )
        classifier, slower = _placed(partial(form.classifier, output, (side, side), protocol), device)
        return form.name + note, classifier, (*warnings, *slower)

    (name, classifier, warnings), failures = with_fallback(opened, port.record.framework, "float64", run)
    return name, classifier, (*failures, *warnings)


def _placed(classifier: Callable[[str], Classifier], device: str) -> tuple[Classifier, tuple[str, ...]]:
    """The classifier on the port's device, otherwise on the CPU: TensorFlow often lacks a GPU where torch has
    one.
    """
    try:
        return classifier(device), ()
    except UsageError as error:
        if device == "cpu":
            raise
        return classifier("cpu"), (f"the source ran on the CPU: {error}",)
