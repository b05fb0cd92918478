"""The values of a plan's layers, one layer after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from porter.base.errors import UsageError
from porter.frameworks.batches import expect_axes, expect_count, expect_only_size
from porter.frameworks.code.plan_layers import LayerStep
from porter.frameworks.last_uses import last_uses
from porter.graph.ops import is_map
from porter.graph.plan import Plan, taken_shapes


def step_values(
    steps: Sequence[LayerStep],
    inputs: Mapping[str, Any],
    paths: Collection[str],
    cut: Mapping[str, Any],
    compute: Callable[[LayerStep, Sequence[Any]], Any],
) -> dict[str, Any]:
    """Compute a model layer by layer and return the values at `paths`, by path; each other value is held
    until its last use, so that a large model fits into memory.

    Args:
        inputs: values by path.
        cut: by path, the array that the layers behind it read in place of its value, so that a comparison
            sees each layer alone.
        compute: returns the value of a step, from those that it reads.
    """
    values = dict(inputs)
    shown = dict[str, Any]()
    # The paths that each step is the last to read.
    read_last = last_uses((*step.inputs, step.path) for step in steps)
    for step, unread in zip(steps, read_last, strict=True):
        value = compute(step, [values[path] for path in step.inputs])
        if step.path in paths:
            shown[step.path] = value
        # What reads the value gets the cut one; the step's own value is shown.
        values[step.path] = cut.get(step.path, value)
        for path in unread:
            del values[path]
    return {path: shown[path] for path in paths}


def inputs_last(plan: Plan, inputs: Sequence[Any]) -> dict[str, Any]:
    """Return the inputs of a port's model by their paths, after their number and shapes are checked: a map is
    N x H x W x C.

    Args:
        plan: of the port, which says what its model takes.
        inputs: in the order of the graph's inputs.

    Raises:
        UsageError: there is another number of them, or one has another shape or size.
    """
    taken = taken_shapes(plan)
    expect_count(len(inputs), taken)
    for x, shape in zip(inputs, taken.values(), strict=True):
        if not is_map(shape):
            expect_axes(x.shape, shape)
            continue
        channels, rows, columns = shape
        if x.ndim != 4 or x.shape[3] != channels:
            got = " x ".join(map(str, x.shape))
            next = "give it with the channels last"
            raise UsageError(f"the input is a batch of images, N x H x W x {channels}, got {got}", next=next)
        if rows is not None and columns is not None:
            size = x.shape[1], x.shape[2]
            expect_only_size(size, (rows, columns), fixed_by_pads=plan.fixed_by_pads)
    return dict(zip(taken, inputs, strict=True))
