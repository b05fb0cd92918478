"""Two models of which one cannot be read, compared at their outputs only, in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from porter.base.dtypes import Array
from porter.base.errors import PorterError
from porter.comparison.running import IMAGES, worse
from porter.comparison.sides import IN, Side
from porter.frameworks import get_destination
from porter.frameworks.in_memory import Held
from porter.frameworks.reference_models import framework_of, get_user_models
from porter.padding import KnownSize
from porter.source.opened import Opened
from porter.source.place import File, FilePair, InMemory
from porter.source.reading import read
from porter.verification.inputs import FALLBACKS, make_images
from porter.verification.references.own_build import OwnBuild
from porter.verification.references.user_code import running_model
from porter.verification.results import Distance
from porter.verification.saved_graph import ReadGraph

Outputs: TypeAlias = Callable[[Array], Sequence[Array]]


def outputs_only(
    sides: Sequence[Side], opened: Sequence[Opened | None], size: KnownSize
) -> tuple[Distance | None, str | None]:
    """Run two models on images and return how far apart their outputs are, the worst of several ranges of
    images, and None; or None and the reason why that is not known.

    Args:
        opened: the models whose graph can be read.
        size: rows and columns.
    """
    channels = next((each.graph.channels for each in opened if each is not None), 3)
    worst: Distance | None = None
    try:
        runs = [_outputs(side, each) for side, each in zip(sides, opened, strict=True)]
        for value_range in FALLBACKS:
            images = make_images(size, IMAGES, channels, value_range)
            outputs_a, outputs_b = (run(images.astype(np.float32)) for run in runs)
            if [value.size for value in outputs_a] != [value.size for value in outputs_b]:
                shapes = [
                    ", ".join("x".join(map(str, value.shape)) for value in values)
                    for values in (outputs_a, outputs_b)
                ]
                return None, f"A gives {shapes[0]}, B {shapes[1]}"
            for value_a, value_b in zip(outputs_a, outputs_b, strict=True):
                worst = worse(worst, value_a, value_b)
    except PorterError as error:
        return None, f"the outputs were not compared: {error}"
    return worst, None


def _outputs(side: Side, opened: Opened | None) -> Outputs:
    """Return a function that gives a model's outputs for images N x C x H x W: porter's build of its graph,
    or the model or file itself where the graph cannot be read.
    """
    if opened is not None:
        build = OwnBuild(get_destination(IN), opened.graph, opened.tensors)
        paths = opened.graph.outputs
        return lambda batch: [build.run(batch, "float32", paths)[path] for path in paths]
    match side.place:
        case InMemory(model):
            return partial(_of_model, model.model if isinstance(model, Held) else model, side.name)
        case File() | FilePair() as place:
            return lambda batch: ReadGraph(read(place), batch).outputs("float32")
    raise PorterError("what it was made from is not at hand", where=side.name)


def _of_model(model: Any, name: str, batch: Array) -> Sequence[Array]:
    """Return the outputs of a copy of a user's model for images, in float32."""
    framework = get_user_models(str(framework_of(model)))
    with running_model(name):
        made, _ = framework.prepare(lambda: deepcopy(model), batch, None, "float32", "float32")
        return framework.show(made, [batch], {}, ()).outputs
