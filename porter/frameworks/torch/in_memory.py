"""Modules of torch in memory. See porter.frameworks.in_memory.ModelsInMemory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from inspect import Parameter, signature
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.fx.experimental import _config as export_config

from porter.base.dtypes import Array
from porter.base.errors import UsageError, first_line
from porter.formats.torch_export.archive import read_archive
from porter.formats.torch_export.module_calls import calls_in
from porter.frameworks.batches import split_into_batches
from porter.frameworks.in_memory import Saved, example_size, training_error
from porter.frameworks.torch.copies import prove_copies, run_users_model, tensors_of, unwrap
from porter.frameworks.torch.graph_module import GraphModule, as_tensor, plan_of
from porter.frameworks.torch.running import tensors_in, to_array
from porter.graph import input_shapes
from porter.padding import ANY, Size

_MAX_GUARDS = 64
"""Facts about an open size that torch.export may find before it takes the size as fixed. A Swin or a
MobileViT has hundreds, and an export with them takes many minutes; the deepest convolutional networks stay
below.
"""


class _OpenProgram(NamedTuple):
    """How a module is exported.

    Attributes:
        suffix: what its file is called besides.
        choices: the axes that torch.export is asked to leave open, one choice after the other.
    """

    suffix: str
    choices: tuple[tuple[int, ...], ...]


_PROGRAMS = (
    _OpenProgram("", ((0, 2, 3), (2, 3))),
    _OpenProgram(" of one size", ((0,),)),
    _OpenProgram(" of one image", ()),
)
"""Each with more constants than the one before."""


def save(model: nn.Module, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
    """Save the module as torch.export writes it (`.pt2`), for any number of images, rows and columns where
    the module allows it; see porter.frameworks.in_memory.ModelsInMemory.save. The module itself is only
    copied.
    """
    module = unwrap(model)
    name = type(module).__name__
    expect_ready(module, name)
    copies = prove_copies(model, name, _candidates(module, name, example, size))
    # Readers give a program's images before its other inputs.
    order = sorted(range(len(copies.images)), key=lambda index: copies.images[index].dim() != 4)
    first_copy = copies.make()
    images, as_tensors = _run_once(first_copy, copies.images, name)
    adapt = partial(_adapt_to_export, order=order, as_tensors=as_tensors)
    copy = adapt(first_copy)
    images = [images[index] for index in order]
    images_at_once = _images_at_once(copy, images)

    path = folder / name

    def saved(file: Path, program: torch.export.ExportedProgram, left: Sequence[_OpenProgram]) -> Saved:
        batch, *sides = _first_shape(program)
        at_once = len(images[0]) if isinstance(batch, int) else images_at_once
        return Saved(
            name,
            file,
            "the graph that torch.export draws",
            (images[0].shape[2], images[0].shape[3]) if len(sides) == 3 else None,
            make_copy=lambda: adapt(copies.make()),
            run_itself=None if copies.has_halves else partial(_run_as_it_is, model, order, at_once),
            batch=at_once,
            calls=_calls_of_taps(file, copy),
            notes=copies.notes,
            save_fixed=(lambda: saved(*_save_first(copy, images, path, left))) if left else None,
        )

    return saved(*_save_first(copy, images, path, _PROGRAMS))


def _save_first(
    module: nn.Module, images: Sequence[torch.Tensor], path: Path, programs: Sequence[_OpenProgram]
) -> tuple[Path, torch.export.ExportedProgram, Sequence[_OpenProgram]]:
    """Save the first of these programs of a module that torch can write, and return its file, the program,
    and those that have more constants.

    Args:
        path: of the file, without what it is called besides.
    """
    program, *left = programs
    file = path.with_name(f"{path.name}{program.suffix}.pt2")
    exported = _export_with_open_axes(module, images, path.name, program.choices)
    try:
        torch.export.save(exported, file)
    except OSError:  # of the disk
        raise
    except Exception:  # of programs that compute with sizes what torch has no text for, such as math.ceil
        if not left:
            raise
        return _save_first(module, images, path, left)
    return file, exported, left


def _run_as_it_is(
    model: nn.Module,
    order: Sequence[int],
    at_once: int | None,
    batches: Sequence[Array],
    arrays: Collection[int],
    names: Sequence[str],
) -> tuple[Array, ...]:
    """Run the user's own model on a batch for each input of the program, in parts of `at_once` images, and
    return its outputs; see Saved.run_itself. `arrays` and `names` are unused: torch's outputs have the file's
    layout and order.

    Args:
        order: the index in the module, for each input of the program.
    """
    count = len(batches[0])
    batches_of_module = [batches[order.index(index)] for index in range(len(order))]
    parts = zip(*(split_into_batches(batch, at_once) for batch in batches_of_module), strict=True)
    outputs_of_parts = [run_users_model(model, [as_tensor(array) for array in part]) for part in parts]
    # Without the images that filled up the last part.
    return tuple(
        to_array(torch.cat(parts_of_output)[:count])
        for parts_of_output in zip(*outputs_of_parts, strict=True)
    )


def _calls_of_taps(program: Path, module: nn.Module) -> dict[str, str]:
    """Return the layer and the call that give each value of a saved program, such as `layer1.relu@1`, by the
    value's name; see Saved.calls. A module that stands at several paths has the first. A program that was
    exported twice still names the modules of the first, and those that `module` lacks are left out.
    """
    path_of_module: dict[int, str] = {}
    # A module that stands at several paths is called by the first of them.
    first_path = {
        path: path_of_module.setdefault(id(part), path)
        for path, part in module.named_modules(remove_duplicate=False)
    }
    calls = calls_in(read_archive(program).program, first_path)
    return {tap: call for tap, call in calls.items() if call.rpartition("@")[0] in first_path}


def expect_ready(module: nn.Module, name: str) -> None:
    """Refuse a module that torch.export does not take, that is not in eval mode, or whose tensors have no
    numbers.

    Raises:
        UsageError: says what to do first.
    """
    for path, part in module.named_modules():
        where = f"'{path}' of it" if path else "it"
        python_module = type(part).__module__
        if isinstance(part, torch.jit.ScriptModule):
            reason = f"{where} is a ScriptModule, and torch.export takes none"
        elif python_module.startswith("torch.ao.nn.") and "quantized" in python_module:
            reason = f"{where} is quantized, and porter takes modules of floating-point numbers"
        else:
            continue
        raise UsageError(reason, where=name, next="give the module that it was made from")
    training = next((path for path, part in module.named_modules() if _acts_in_training(part)), None)
    if training is not None:
        raise training_error(training, name)
    for path, tensor in tensors_of(module):
        if nn.parameter.is_lazy(tensor):
            next_step = "call the module on a batch first"
            raise UsageError(f"'{path}' has no shape yet", where=name, next=next_step)
        if tensor.device.type == "meta":
            next_step = "load its weights first: model.load_state_dict(WEIGHTS, assign=True)"
            raise UsageError(
                f"'{path}' is on the device 'meta', where it has no numbers", where=name, next=next_step
            )


def _acts_in_training(module: nn.Module) -> bool:
    """Say whether a module is a norm or a dropout in training mode. Where another one computes something else
    in training, a copy of the model gives something else.
    """
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.training and module.running_mean is not None
    return isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0


def _candidates(
    module: nn.Module, name: str, example: Sequence[Any], size: Size | None
) -> list[list[torch.Tensor]]:
    """Return the inputs that the module may be called with, likeliest first: the example; otherwise those of
    a program's own graph; otherwise an image of 3 channels, of 1, or of those that a convolution takes. Each
    comes with random numbers in place of equal ones, then in the module's type, then as it is.
    """
    dtype = _floating_type(module)
    if example:
        candidates = _example_inputs(name, example)
    else:
        candidates = _program_inputs(module, size) or _inputs_of_size(module, name, size)
    in_types = [_cast_floats(inputs, dtype) for inputs in candidates]
    randomised = [[_random_if_constant(tensor) for tensor in inputs] for inputs in in_types]
    return [*randomised, *in_types, *candidates]


def _floating_type(module: nn.Module) -> torch.dtype:
    """Return the type of a module's first floating-point parameter; float32 where it has none."""
    floats = (parameter for parameter in module.parameters() if parameter.is_floating_point())
    return next((parameter.dtype for parameter in floats), torch.float32)


def _cast_floats(tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    """Return tensors of which those of floating-point numbers are in `dtype`."""
    return [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]


def _example_inputs(name: str, example: Sequence[Any]) -> list[list[torch.Tensor]]:
    """Return the example as tensors on the CPU; anything else than tensors and arrays is refused."""
    not_a_tensor = next(
        (batch for batch in example if not isinstance(batch, torch.Tensor | np.ndarray)), None
    )
    if not_a_tensor is not None:
        next_step = "give a batch that the module takes, or a tuple with one for each input"
        raise UsageError(
            f"the example has a {type(not_a_tensor).__name__}, expected tensors", where=name, next=next_step
        )
    tensors = [
        batch if isinstance(batch, torch.Tensor) else _tensor_of_array(name, batch) for batch in example
    ]
    return [[tensor.detach().cpu() for tensor in tensors]]


def _tensor_of_array(name: str, array: Array) -> torch.Tensor:
    """Return an array of the example, which may have another byte order or run backwards, as a tensor. Raise
    UsageError for one of a type that torch lacks, such as text.
    """
    if not array.dtype.isnative or min(array.strides, default=0) < 0:
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    try:
        return as_tensor(array)
    except TypeError:
        next_step = "give a batch of numbers that the module takes"
        raise UsageError(f"the example is an array of {array.dtype}", where=name, next=next_step) from None


def _program_inputs(module: nn.Module, size: Size | None) -> list[list[torch.Tensor]]:
    """Return inputs of zeros for a module that torch.export or torch.fx made, with the sizes that its graph
    states; open ones are `size` or 2. Return none where the graph does not state them, and for any other
    module.
    """
    if not isinstance(module, torch.fx.GraphModule):
        return []
    values = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    if not values or not all(isinstance(value, torch.Tensor) for value in values):
        return []
    map_sizes = [None, None, *(size or ANY)]

    def known_sizes(value: torch.Tensor) -> list[int]:
        """Return the sizes of an input: those in the graph, which are symbols where they are open."""
        requested = map_sizes if value.dim() == 4 else [None] * value.dim()
        return [
            in_graph if isinstance(in_graph, int) else wanted or 2
            for in_graph, wanted in zip(value.shape, requested, strict=True)
        ]

    return [[torch.zeros(known_sizes(value), dtype=value.dtype) for value in values]]


def _inputs_of_size(module: nn.Module, name: str, size: Size | None) -> list[list[torch.Tensor]]:
    """Return inputs of zeros of this size for any module, likeliest first."""
    plan = plan_of(module) if isinstance(module, GraphModule) else None
    if size is None and plan is not None:
        size = plan.usual_size
    rows, columns = example_size(size, name)
    if plan is not None:
        return [
            [torch.zeros(1, *shape) for shape in input_shapes(plan.lowered, (rows, columns)).values()]  # type: ignore[arg-type]
        ]
    conv_channels = (part.in_channels for part in module.modules() if isinstance(part, nn.Conv2d))
    return [[torch.zeros(1, channels, rows, columns)] for channels in dict.fromkeys((3, 1, *conv_channels))]


def _random_if_constant(tensor: torch.Tensor) -> torch.Tensor:
    """Return random numbers in place of an example of equal numbers, which would show little of what a module
    computes.
    """
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    has_different_numbers = bool((tensor != tensor.flatten()[0]).any())
    if has_different_numbers:
        return tensor
    return torch.rand(tensor.shape, generator=torch.Generator().manual_seed(0)).to(tensor.dtype)


def _run_once(
    module: nn.Module, images: Sequence[torch.Tensor], name: str
) -> tuple[list[torch.Tensor], bool]:
    """Run a module once, to see that it takes the images. Return two things: the images in the module's
    number type, and whether what it returned has to be made a tuple of different tensors, because it is
    neither one tensor nor such a tuple.

    Raises:
        UsageError: it does not take these images.
    """
    dtype = _floating_type(module)
    converted = _cast_floats(images, dtype)
    try:
        with torch.no_grad():
            returned = module(*(image.clone() for image in converted))
    except Exception as error:
        reason = f"it does not run in {dtype}: {type(error).__name__}: {first_line(error)}"
        raise UsageError(
            reason, where=name, next="call model.float(), and leave casts to half precision out of its code"
        ) from None
    # Anything else is made a tuple of different tensors before the export.
    is_tuple_of_different_tensors = (
        type(returned) is tuple
        and all(isinstance(output, torch.Tensor) for output in returned)
        and len(set(map(id, returned))) == len(returned)
    )
    is_plain = isinstance(returned, torch.Tensor) or is_tuple_of_different_tensors
    return converted, not is_plain


def _repeat_images(images: torch.Tensor) -> torch.Tensor:
    """Return a batch with its images once more; a number stays one number."""
    return torch.cat([images, images]) if images.dim() else images


def _images_at_once(module: nn.Module, images: Sequence[torch.Tensor]) -> int | None:
    """Return how many images the module has to be given at once: None for any number, 2 where it squeezes, so
    that one is not enough, and as many as `images` has where it takes no other number.
    """
    one_image = [batch[:1] if batch.dim() else batch for batch in images]
    several_images = [_repeat_images(batch) for batch in images]
    ranks = _output_ranks(module, several_images)
    if ranks is None:
        return len(images[0])
    # With one image, a squeeze takes the batch away too, and the outputs have other axes.
    return None if _output_ranks(module, one_image) == ranks else 2


def _output_ranks(module: nn.Module, images: Sequence[torch.Tensor]) -> list[int] | None:
    """Return how many axes each output of the module has; None if it does not run."""
    try:
        with torch.no_grad():
            return [output.dim() for output in tensors_in(module(*images))]
    except Exception:  # whatever the module's own code raises
        return None


def _adapt_to_export(module: nn.Module, order: Sequence[int], as_tensors: bool) -> nn.Module:
    """Change a copy of a module, in place, so that it takes its images in another order and returns a tuple
    of tensors, and return it. Hooks that it has still see what they saw.

    Args:
        order: the index in the module, for each input in the new order.
        as_tensors: whether it returns anything else than one tensor or a tuple of different ones.
    """
    if list(order) != sorted(order):
        forward: Callable[..., Any] = module.forward
        module.forward = lambda *images: forward(*images)
        module.register_forward_pre_hook(
            lambda _, images: tuple(images[order.index(index)] for index in range(len(order))), prepend=True
        )
    if as_tensors:
        module.register_forward_hook(lambda _, __, returned: _as_distinct_values(tensors_in(returned)))
    return module


def _as_distinct_values(returned: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return the tensors, with a copy of each that is given again: a graph gives each value once."""
    seen = set[int]()
    tensors = list[torch.Tensor]()
    for tensor in returned:
        tensors.append(tensor * 1 if id(tensor) in seen else tensor)
        seen.add(id(tensor))
    return tuple(tensors)


def _export_with_open_axes(
    module: nn.Module, images: Sequence[torch.Tensor], name: str, choices: Sequence[Sequence[int]]
) -> torch.export.ExportedProgram:
    """Return the program of the module, exported with the first of these choices of open axes that it allows,
    or with none. The choice (0, 2, 3) leaves the batch, rows and columns open.

    Raises:
        UsageError: torch.export refuses it, with its own reason.
    """
    auto = getattr(torch.export.Dim, "AUTO", None)
    # torch.export takes a batch of one for a fixed number.
    several = [_repeat_images(batch) if batch.dim() and len(batch) == 1 else batch for batch in images]
    with _silence_torch(), export_config.patch(symbol_guard_limit_before_specialize=_MAX_GUARDS):  # type: ignore[attr-defined]
        for axes in choices if auto is not None else ():
            opens_batch = 0 in axes
            inputs = several if opens_batch else images
            open_axes = [{axis: auto for axis in axes if axis < batch.dim()} for batch in inputs]
            try:
                program = _export(module, inputs, open_axes)
            except Exception:  # the exporter's own, of many kinds
                continue
            # An export that has fixed the batch in spite of it does not count.
            has_fixed_batch = isinstance(_first_shape(program)[0], int)
            if not opens_batch or not has_fixed_batch:
                return program
        try:
            return _export(module, images, None)
        except Exception as error:
            reason = first_line(error)
            change = (
                "keep what is computed from images a tensor in forward: no `if`, float() or .item() of it"
                if "data-dependent" in reason
                else "change what it names in forward"
            )
            raise UsageError(
                f"torch.export refuses it: {reason}",
                where=name,
                next=f"{change}, or export the model to ONNX by torch.onnx.export, and convert that file",
            ) from None


def _export(module: nn.Module, images: Sequence[torch.Tensor], axes: Any) -> torch.export.ExportedProgram:
    """Export the module for inputs with these open axes, a mapping for each input; None for none."""
    kinds = [parameter.kind for parameter in signature(module.forward).parameters.values()]
    if axes is not None and Parameter.VAR_POSITIONAL in kinds:
        # torch.export takes the inputs that `*images` gathers for one, a tuple.
        variadic = kinds.index(Parameter.VAR_POSITIONAL)
        gathered = axes[variadic:]
        axes = (*axes[:variadic], tuple(gathered)) if gathered else tuple(axes[:variadic])
    # An export that fails leaves the open axes marked on its tensors.
    unmarked = tuple(image.clone() for image in images)
    with torch.no_grad():
        return torch.export.export(module, unmarked, dynamic_shapes=None if axes is None else tuple(axes))


def _first_shape(program: torch.export.ExportedProgram) -> Sequence[Any]:
    """Return the sizes of a program's first input; open sizes are symbols."""
    name = program.graph_signature.user_inputs[0]
    node = next(node for node in program.graph.nodes if node.op == "placeholder" and node.name == name)
    shape: Sequence[Any] = node.meta["val"].shape
    return shape


@contextmanager
def _silence_torch() -> Iterator[None]:
    """Silence, within the context, what torch logs of sizes that it fixes, and the programs that it prints
    where it refuses: it is asked for open sizes first.
    """
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logger.setLevel(before)
