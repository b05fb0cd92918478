"""The source in its own framework, beside the port in the same pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from porter.data.preprocess import Preprocess
from porter.errors import MissingFramework, UsageError
from porter.frameworks import Classifier
from porter.port import Port
from porter.sources import Opened


def source_classifier(
    port: Port, opened: Opened, side: int, protocol: Preprocess, device: str
) -> tuple[str, Classifier, tuple[str, ...]]:
    """What computes the source's logits and the name of that, with what has to be said about it.

    It is the file's own graph, else the zoo's implementation, else porter's own build in the source's framework (`self`): always
    in float32, with the numbers of the file and with the pads that it ships.

    Raises:
        MissingFramework: none of them can run here, or all that could is the port itself.
    """
    size, output, warnings = (side, side), opened.graph.output, []
    note = "" if opened.shipped is None else ", with the pads it ships"
    for reference in opened.references("float64"):
        if not reference.takes(size):
            warnings.append(f"{reference.name} cannot be run at {side}x{side}")
            continue
        try:
            classifier, slower = _placed(partial(reference.classifier, output, size, protocol), device)
            return reference.name + note, classifier, slower
        except MissingFramework as error:
            warnings.append(str(error))
    if opened.zoo.framework == port.record.framework:
        only = f"there is nothing to run beside the port but porter's own {opened.zoo.framework} build, which is the port"
        raise MissingFramework("; ".join([*warnings, only]), where="--source")
    own = replace(opened.own("float64"), graph=opened.shipped or opened.graph)
    warnings.append("the source beside the port is porter's own build of it, not an implementation of others")
    classifier, slower = _placed(partial(own.classifier, output, size, protocol), device)
    return own.name + note, classifier, (*warnings, *slower)


def _placed(classifier: Callable[[str], Classifier], device: str) -> tuple[Classifier, tuple[str, ...]]:
    """On the port's device, else on the CPU: TensorFlow beside a torch that has a GPU is often one without."""
    try:
        return classifier(device), ()
    except UsageError as error:
        if device == "cpu":
            raise
        return classifier("cpu"), (f"the source ran on the CPU: {error}",)
