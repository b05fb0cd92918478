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
from porter.formats.reading import read_with_digests
from porter.frameworks.flax.graph_module import GraphModule
from porter.frameworks.flax.tracing.primitives import to_model
from porter.frameworks.flax.tracing.trace import (
    Traced,
    abstract_array,
    array_of,
    compile_module,
    input_names,
    merge,
    trace,
)
from porter.frameworks.in_memory import Saved, example_size, training_error
from porter.graph import Graph, input_shapes
from porter.graph.ops import Rearrange, is_map
from porter.graph.ops.arrays import CHANNELS_LAST, PermuteStep
from porter.padding import KnownSize, Size

_Shapes: TypeAlias = "tuple[tuple[int, ...], ...]"
"""The shapes of what a module is called with: first of an image, N×H×W×C."""
_COLLECTIONS: Mapping[Any, str] = {nnx.Param: "params", nnx.BatchStat: "batch_stats"}
_MAX_DIFFERENCE = 1e-5
"""The most by which two programs of one function may be apart in float32."""


def save(model: nnx.Module, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
    """Save what JAX traces of the module as an ONNX model, for any number of images, rows and columns where
    the module allows it; see porter.frameworks.in_memory.ModelsInMemory.save.
    """
    expect_installed("onnx", install("onnx"))
    name = type(model.to_nnx__module if isinstance(model, nnx.bridge.ToNNX) else model).__name__
    expect_ready(model, name)
    shapes = _input_shapes(model, name, example, size)
    _expect_runs(model, name, shapes)
    model = _in_eval_mode(model, name, shapes)

    def save_graph(is_open: bool) -> Saved:
        """Save the traced graph, for images of any size (`is_open`) or of the example's size only. Where the
        module cannot be traced for any size, the second is done instead.
        """
        path = folder / f"{name}{'' if is_open else ' of one size'}.onnx"
        try:
            traced = _trace_at_sizes(model, shapes, is_open)
            with jax.enable_x64(True):
                model_proto, _ = to_model(traced)
        except Exception as error:
            # Whatever the module's code raises at other sizes or in double precision, or what is computed of
            # open sizes.
            if is_open:
                return save_graph(False)
            reason = f"JAX cannot trace it in double precision: {type(error).__name__}: {first_line(error)}"
            next_step = "give its arrays no type of their own, so that they have the type of the images"
            raise UsageError(reason, where=name, next=next_step) from None
        path.write_bytes(model_proto.SerializeToString())
        # Written twice: only the file, as porter reads it, says which outputs are maps.
        maps = _maps_among_outputs(traced, path)
        with jax.enable_x64(True):
            model_proto, calls = to_model(traced, maps)
        path.write_bytes(model_proto.SerializeToString())
        return Saved(
            name,
            path,
            "the graph that JAX traces",
            (shapes[0][1], shapes[0][2]),
            make_copy=partial(nnx.clone, model),
            channels_last_outputs=maps,
            calls=calls,
            variables=_variables_by_linen_name(model),
            save_fixed=(lambda: save_graph(False)) if is_open else None,
        )

    # Images of several sizes are not traced with open ones.
    have_one_size = all(shape[1:3] == shapes[0][1:3] for shape in shapes if len(shape) == 4)
    return save_graph(is_open=have_one_size)


def _maps_among_outputs(traced: Traced, path: Path) -> frozenset[int]:
    """Return the indices of the outputs that are maps with their channels last. Only the file at `path`, as
    porter reads it, says so; of outputs that are maps, a port gives them in its destination's layout.
    """
    graph = None
    if any(len(traced.shapes[name]) == 4 for name in traced.outputs):
        with suppress(PorterError):  # told by whoever reads the file in the end
            graph = read_with_digests(path, with_md5=False).graph
    outputs = [] if graph is None else [(graph, graph.by_name.get(name)) for name in graph.given.values()]
    return frozenset(index for index, output in enumerate(outputs) if _is_transposed_map(*output))


def _is_transposed_map(graph: FileGraph, node: FileNode | None) -> bool:
    """Say whether the output `node` of a file's graph is a map that was only transposed to have its channels
    last. `node` is None for an output that no node gives.
    """
    if node is None or not isinstance(node.op, Rearrange) or node.op.map:
        return False
    shape = graph.shapes.get(node.inputs[0], ())
    return is_map(shape) and node.op.steps(shape, of_map=True) == [PermuteStep(CHANNELS_LAST)]


def _variables_by_linen_name(model: nnx.Module) -> dict[str, Array]:
    """Return a module's parameters and statistics under the names that linen's checkpoints have for them."""
    variables = dict[str, Array]()
    for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Any(*_COLLECTIONS))):
        collection = next(name for kind, name in _COLLECTIONS.items() if isinstance(variable, kind))
        variables["/".join((collection, *map(str, path)))] = np.asarray(variable.get_value())
    return variables


def _trace_at_sizes(model: nnx.Module, shapes: _Shapes, is_open: bool) -> Traced:
    """Trace a module at several sizes and merge the traces, for any number of images; if it is open, for any
    rows and columns too.
    """
    names = input_names(model, len(shapes))
    _, rows, columns, _ = shapes[0]
    # The number of images, rows and columns of each trace.
    sizes = [(2, rows, columns), (3, rows, columns)]
    if is_open:
        # In each axis even and odd ones, also behind strides; the last are far apart, so that no two open
        # sizes are the same.
        sizes = [sizes[0], (3, rows + 1, columns + 3), (5, 2 * rows + 3, 2 * columns + 99)]

    def at_size(shape: tuple[int, ...], size: tuple[int, int, int]) -> tuple[int, ...]:
        """Return an input's shape in a trace: an image has all of its sizes, any other input only the number
        of images.
        """
        is_image = is_open and len(shape) == 4
        return (*size, *shape[3:]) if is_image else (size[0], *shape[1:])

    return merge(
        [
            trace(model, {name: at_size(shape, size) for name, shape in zip(names, shapes, strict=True)})
            for size in sizes
        ]
    )


def expect_ready(model: nnx.Module, name: str) -> None:
    """Refuse a module with norms or dropouts in training mode, or whose variables have no numbers.

    Raises:
        UsageError: says what to call first.
    """
    for path, module in nnx.iter_modules(model):
        # A dropout with a rate of 0 does nothing in training either.
        if _is_training(module) and _is_of_flax(module) and _dropout_rate(module) != 0:
            raise training_error(".".join(map(str, path)), name)
    if isinstance(model, nnx.bridge.ToNNX) and not nnx.state(model, nnx.Any(*_COLLECTIONS)):
        next_step = "call model.lazy_init(IMAGES) first, then nnx.update(model, WEIGHTS)"
        raise UsageError("it has no variables yet", where=name, next=next_step)
    for path, leaf in nnx.to_flat_state(nnx.state(model)):
        if isinstance(array_of(leaf), abstract_array):
            next_step = "load its weights first: nnx.update(model, WEIGHTS)"
            raise UsageError(
                f"'{'.'.join(map(str, path))}' has a shape and no numbers", where=name, next=next_step
            )


def _is_training(module: nnx.Module) -> bool:
    """Say whether a module states that it is in training mode."""
    return any(getattr(module, flag, None) is False for flag in ("deterministic", "use_running_average"))


def _is_of_flax(module: nnx.Module) -> bool:
    """Say whether a module is a layer of Flax's, or of a class that is made of one."""
    return any(kind.__module__.startswith("flax.nnx.nn.") for kind in type(module).__mro__)


def _dropout_rate(module: nnx.Module) -> float | None:
    """Return the share of values that a dropout, or an attention with one, leaves out; None for other
    modules.
    """
    return getattr(module, "rate", getattr(module, "dropout_rate", None))


def _in_eval_mode(model: nnx.Module, name: str, shapes: _Shapes) -> nnx.Module:
    """Return the module, or a copy in inference mode where parts of it are in training mode that are no
    layers of Flax's.

    Raises:
        UsageError: it gives something else in training.
    """
    if not any(_is_training(module) for _, module in nnx.iter_modules(model)):
        return model
    copy = nnx.clone(model)
    random = np.random.default_rng(0)
    copy.eval()  # type: ignore[no-untyped-call]
    images = [random.random(shape, np.float32) for shape in shapes]
    in_training, in_inference = compile_module(model)(images), compile_module(copy)(images)
    are_close = partial(np.allclose, rtol=_MAX_DIFFERENCE, atol=_MAX_DIFFERENCE)
    have_same_shapes = [value.shape for value in in_training] == [value.shape for value in in_inference]
    if not have_same_shapes or not all(map(are_close, in_training, in_inference)):
        reason = "it is in training mode, and gives something else in inference mode"
        raise UsageError(reason, where=name, next="call model.eval() first")
    return copy


def _input_shapes(model: nnx.Module, name: str, example: Sequence[Any], size: Size | None) -> _Shapes:
    """Return the shapes of the module's inputs: those of the example; otherwise those of a port's graph;
    otherwise an image of 3 channels, of 1, or of those that a convolution takes, the first that the module
    takes.

    Args:
        name: of the module, for messages.
        size: rows and columns of the image, where there is no example.

    Raises:
        UsageError: the example is no images, or no size is known.
    """
    if example:
        are_arrays = all(isinstance(batch, np.ndarray | jax.Array) for batch in example)
        shapes = tuple(tuple(np.shape(batch)) for batch in example)
        if not are_arrays or not _has_image_first(shapes):
            got = " and ".join(
                "x".join(map(str, np.shape(batch))) or type(batch).__name__ for batch in example
            )
            raise UsageError(
                f"the example is {got}, expected images N x H x W x C",
                where=name,
                next="give one batch of images, and behind it one of numbers for each further input",
            )
        return shapes
    plan = model.program.plan if isinstance(model, GraphModule) else None
    size = size or (plan.usual_size if plan is not None else None)
    rows, columns = example_size(size, name)
    if plan is not None:
        return _input_shapes_of_port(plan.lowered, (rows, columns), name)
    modules = [module for _, module in nnx.iter_modules(model)]
    channels = [module.in_features for module in modules if isinstance(module, nnx.Conv)]
    candidates = [((1, rows, columns, count),) for count in dict.fromkeys((3, 1, *channels))]
    runnable = (shapes for shapes in candidates if _reason_not_to_run(model, shapes) is None)
    return next(runnable, candidates[0])


def _input_shapes_of_port(graph: Graph, size: KnownSize, name: str) -> _Shapes:
    """Return the shapes of the inputs of a port's module for one image, with the channels of maps last."""
    channels_last = [
        (*shape[1:], shape[0]) if is_map(shape) else shape for shape in input_shapes(graph, size).values()
    ]
    shapes = tuple((1, *(axis_size or 0 for axis_size in shape)) for shape in channels_last)
    if not _has_image_first(shapes):
        raise UsageError("it takes no images first", where=name, next="convert the folder of the port")
    return shapes


def _has_image_first(shapes: _Shapes) -> bool:
    """Say whether the first of these shapes is that of images, and the others have an axis behind the
    batch.
    """
    return len(shapes[0]) == 4 and min(map(len, shapes)) >= 2


def _expect_runs(model: nnx.Module, name: str, shapes: _Shapes) -> None:
    """Refuse inputs of shapes that the module does not take.

    Raises:
        UsageError: has the reason in the module's own words.
    """
    refusal = _reason_not_to_run(model, shapes)
    if refusal is not None:
        shapes_text = " and ".join("x".join(map(str, shape)) for shape in shapes)
        reason = f"it does not take the example of {shapes_text}: {refusal}"
        raise UsageError(reason, where=name, next="give example, a batch N x H x W x C that the module takes")


def _reason_not_to_run(model: nnx.Module, shapes: _Shapes) -> str | None:
    """Return why a module does not take inputs of these shapes, in its own words; None where it takes them.
    Nothing is computed.
    """
    try:
        graph, state = nnx.split(model)
        inputs = [abstract_array(shape, jnp.float32) for shape in shapes]
        returned = jax.eval_shape(lambda state, *given: nnx.merge(graph, state)(*given), state, *inputs)
    except Exception as error:  # whatever the module's own code raises
        return f"{type(error).__name__}: {first_line(error)}"
    return None if jax.tree.leaves(returned) else f"it returns a {type(returned).__name__} without arrays"
