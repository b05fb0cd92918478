"""Modules of flax.nnx in memory. See porter.frameworks.in_memory.ModelsInMemory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from porter.base.dtypes import Array
from porter.base.errors import PorterError, UsageError, first_line
from porter.base.package import expect_installed, install
from porter.filegraph.file_graph import FileGraph, FileNode
from porter.formats.reading import read_weights
from porter.frameworks.flax.graph_module import GraphModule
from porter.frameworks.flax.tracing.primitives import to_model
from porter.frameworks.flax.tracing.trace import Traced, input_names, merge, number_of, trace, untraced
from porter.frameworks.in_memory import Saved
from porter.graph import Graph, input_shapes
from porter.graph.ops import Rearrange, is_map
from porter.graph.ops.arrays import CHANNELS_LAST
from porter.padding import ANY, KnownSize, Size

_Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"
"""The shapes of what a module is called with: first of an image, N×H×W×C."""
_kind: Any = jax.ShapeDtypeStruct
_COLLECTIONS: Mapping[Any, str] = {nnx.Param: "params", nnx.BatchStat: "batch_stats"}
_ROUNDING = 1e-5
"""The most by which two programs of one function may be apart in float32."""
_PROBE = (224, 224)
"""Rows and columns of the example for a module of any size."""


def save(model: nnx.Module, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
    """Return what JAX traces of the module as an ONNX model, of any number of images, rows and columns where
    the module allows it.
    """
    expect_installed("onnx", install("onnx"))
    name = type(model.to_nnx__module if isinstance(model, nnx.bridge.ToNNX) else model).__name__
    expect_ready(model, name)
    shapes = _shapes(model, name, example, size)
    _expect_runs(model, name, shapes)
    model = _in_eval_mode(model, name, shapes)

    def saved(is_open: bool) -> Saved:
        path = folder / f"{name}{'' if is_open else ' of one size'}.onnx"
        try:
            traced = _traced(model, shapes, is_open)
            with jax.enable_x64(True):
                written, _ = to_model(traced)
        except Exception as error:
            # Whatever the module's code raises at other sizes or in double precision, or what is computed of
            # open sizes.
            if is_open:
                return saved(False)
            reason = f"JAX cannot trace it in double precision: {type(error).__name__}: {first_line(error)}"
            next_step = "give its arrays no type of their own, so that they have the type of the images"
            raise UsageError(reason, where=name, next=next_step) from None
        path.write_bytes(written.SerializeToString())
        turned = _turned(traced, path)
        with jax.enable_x64(True):
            written, calls = to_model(traced, turned)
        path.write_bytes(written.SerializeToString())
        return Saved(
            name,
            path,
            "the graph that JAX traces",
            (shapes[0][1], shapes[0][2]),
            copied=partial(nnx.clone, model),
            turned=turned,
            calls=calls,
            variables=_variables(model),
            fixed=(lambda: saved(False)) if is_open else None,
        )

    # A further image has the first one's size, or one size only.
    return saved(all(shape[1:3] == shapes[0][1:3] for shape in shapes if len(shape) == 4))


def _turned(traced: Traced, path: Path) -> frozenset[int]:
    """Return places of the outputs that porter reads as maps with their channels last: a port gives maps in
    its destination's layout.
    """
    graph = None
    if any(len(traced.shapes[name]) == 4 for name in traced.outputs):
        with suppress(PorterError):  # told by whoever reads the file in the end
            graph = read_weights(path, with_md5=False).graph
    ends = [] if graph is None else [(graph, graph.by_name.get(name)) for name in graph.given.values()]
    return frozenset(index for index, end in enumerate(ends) if _is_turned_map(*end))


def _is_turned_map(graph: FileGraph, end: FileNode | None) -> bool:
    """Say whether an output is a map that was only turned to have its channels last."""
    if end is None or not isinstance(end.op, Rearrange) or end.op.map:
        return False
    shape = graph.shapes.get(end.inputs[0], ())
    return is_map(shape) and end.op.steps(shape, of_map=True) == [(False, CHANNELS_LAST)]


def _variables(model: nnx.Module) -> dict[str, Array]:
    """Return a module's parameters and statistics under the names that linen's checkpoints have for such."""
    variables = dict[str, Array]()
    for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Any(*_COLLECTIONS))):
        collection = next(name for kind, name in _COLLECTIONS.items() if isinstance(variable, kind))
        variables["/".join((collection, *map(str, path)))] = np.asarray(variable.get_value())
    return variables


def _traced(model: nnx.Module, shapes: _Shapes, is_open: bool) -> Traced:
    """Return the operations of a module for any number of images; if it is open, of any rows and columns
    too.
    """
    names, (_, rows, columns, _) = input_names(model, len(shapes)), shapes[0]
    sizes = [(2, rows, columns), (3, rows, columns)]
    if is_open:
        # In each axis even and odd ones, also behind strides; the last are far apart, so that no two open
        # sizes are the same.
        sizes = [sizes[0], (3, rows + 1, columns + 3), (5, 2 * rows + 3, 2 * columns + 99)]
    taken = [
        {
            name: (*(each if is_open and len(shape) == 4 else (each[0], *shape[1:3])), *shape[3:])
            for name, shape in zip(names, shapes, strict=True)
        }
        for each in sizes
    ]
    return merge([trace(model, each) for each in taken])


def expect_ready(model: nnx.Module, name: str) -> None:
    """Refuse a module with norms or dropouts in training mode, or whose variables have no numbers.

    Raises:
        UsageError: with the way round.
    """
    for path, module in nnx.iter_modules(model):
        if _is_training(module) and _is_of_flax(module) and _rate(module) != 0:
            where = f"'{'.'.join(map(str, path))}' of it" if path else "it"
            next_step = "call model.eval() first: norms and dropouts compute something else in training"
            raise UsageError(f"{where} is in training mode", where=name, next=next_step)
    if isinstance(model, nnx.bridge.ToNNX) and not nnx.state(model, nnx.Any(*_COLLECTIONS)):
        next_step = "call model.lazy_init(IMAGES) first, then nnx.update(model, WEIGHTS)"
        raise UsageError("it has no variables yet", where=name, next=next_step)
    for path, leaf in nnx.to_flat_state(nnx.state(model)):
        if isinstance(number_of(leaf), _kind):
            next_step = "load its weights first: nnx.update(model, WEIGHTS)"
            raise UsageError(
                f"'{'.'.join(map(str, path))}' has a shape and no numbers", where=name, next=next_step
            )


def _is_training(module: nnx.Module) -> bool:
    return any(getattr(module, flag, None) is False for flag in ("deterministic", "use_running_average"))


def _is_of_flax(module: nnx.Module) -> bool:
    """Say whether it is a layer of Flax's, or of a class that is made of one."""
    return any(kind.__module__.startswith("flax.nnx.nn.") for kind in type(module).__mro__)


def _rate(module: nnx.Module) -> float | None:
    """Return the share of values that a dropout, or an attention with one, leaves out; None of others."""
    return getattr(module, "rate", getattr(module, "dropout_rate", None))


def _in_eval_mode(model: nnx.Module, name: str, shapes: _Shapes) -> nnx.Module:
    """Return the module, or where parts of it are in training mode that are no layers of Flax's, a copy in
    inference mode.

    Raises:
        UsageError: it gives something else in training.
    """
    if not any(_is_training(module) for _, module in nnx.iter_modules(model)):
        return model
    copy = nnx.clone(model)
    numbers = np.random.default_rng(0)
    copy.eval()  # type: ignore[no-untyped-call]
    images = [numbers.random(shape, np.float32) for shape in shapes]
    wanted, got = (untraced(each)(images) for each in (model, copy))
    same = partial(np.allclose, rtol=_ROUNDING, atol=_ROUNDING)
    if [each.shape for each in wanted] != [each.shape for each in got] or not all(map(same, wanted, got)):
        reason = "it is in training mode, and gives something else in inference mode"
        raise UsageError(reason, where=name, next="call model.eval() first")
    return copy


def _shapes(model: nnx.Module, name: str, example: Sequence[Any], size: Size | None) -> _Shapes:
    """Return the shapes of what the module is called with: of the example, or what a port's graph takes, or
    an image of 3 channels, of 1, or of those that a convolution takes.
    """
    if example:
        are_arrays = all(isinstance(each, np.ndarray | jax.Array) for each in example)
        shapes = tuple(tuple(np.shape(each)) for each in example)
        if not are_arrays or not _has_image_first(shapes):
            got = " and ".join("x".join(map(str, np.shape(each))) or type(each).__name__ for each in example)
            raise UsageError(
                f"the example is {got}, expected images N x H x W x C",
                where=name,
                next="give one batch of images, and behind it one of numbers for each further input",
            )
        return shapes
    plan = model.program.plan if isinstance(model, GraphModule) else None
    size = size or (plan.usual_size if plan is not None else None)
    if size is None:
        next_step = "give example, a batch that the module takes, or input_size"
        raise UsageError("nothing says what size its images have", where=name, next=next_step)
    rows, columns = _PROBE if size == ANY else (size[0] or _PROBE[0], size[1] or _PROBE[1])
    if plan is not None:
        return _taken_by(plan.lowered, (rows, columns), name)
    channels = [each.in_features for _, each in nnx.iter_modules(model) if isinstance(each, nnx.Conv)]
    tried = [((1, rows, columns, each),) for each in dict.fromkeys((3, 1, *channels))]
    return next((each for each in tried if _refusal(model, each) is None), tried[0])


def _taken_by(graph: Graph, size: KnownSize, name: str) -> _Shapes:
    """Return the shapes of what the module of a port's graph is called with."""
    known = input_shapes(graph, size).values()
    shapes = tuple(
        (1, *(each or 0 for each in ((*shape[1:], shape[0]) if is_map(shape) else shape))) for shape in known
    )
    if not _has_image_first(shapes):
        raise UsageError("it takes no images first", where=name, next="convert the folder of the port")
    return shapes


def _has_image_first(shapes: _Shapes) -> bool:
    return len(shapes[0]) == 4 and min(map(len, shapes)) >= 2


def _expect_runs(model: nnx.Module, name: str, shapes: _Shapes) -> None:
    """Refuse images that the module does not take.

    Raises:
        UsageError: with its own reason.
    """
    refusal = _refusal(model, shapes)
    if refusal is not None:
        taken = " and ".join("x".join(map(str, shape)) for shape in shapes)
        reason = f"it does not take the example of {taken}: {refusal}"
        raise UsageError(reason, where=name, next="give example, a batch N x H x W x C that the module takes")


def _refusal(model: nnx.Module, shapes: _Shapes) -> str | None:
    """Return why a module does not take inputs of these shapes, in its own words; None where it takes them.
    Nothing is computed.
    """
    try:
        graph, state = nnx.split(model)
        kinds = [_kind(shape, jnp.float32) for shape in shapes]
        returned = jax.eval_shape(lambda held, *given: nnx.merge(graph, held)(*given), state, *kinds)
    except Exception as error:  # whatever the module's own code raises
        return f"{type(error).__name__}: {first_line(error)}"
    return None if jax.tree.leaves(returned) else f"it returns a {type(returned).__name__} without arrays"
