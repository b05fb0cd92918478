"""Modules of torch in memory. See porter.frameworks.in_memory.ModelsInMemory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.fx.experimental import _config as export_config
from torch.nn.utils import parametrize

from porter.base.errors import UsageError, first_line, some
from porter.formats.torch_export.archive import read_archive
from porter.formats.torch_export.calls import calls_in
from porter.frameworks.in_memory import Saved
from porter.frameworks.torch.running import tensors_in
from porter.padding import ANY, Size

_MOST_GUARDS = 64
"""Facts about an open size that torch.export may find before it takes the size as fixed. A Swin or a
MobileViT has hundreds, and an export with them takes many minutes; the deepest convolutional networks stay
below.
"""
_OPEN: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("", ((0, 2, 3), (2, 3))),
    (" of one size", ((0,),)),
    (" of one image", ()),
)
"""Programs of a module, each with more constants than the one before: what their files are called besides,
and the axes that torch.export is asked to leave open, one choice after the other.
"""
_PROBE = (224, 224)
"""Rows and columns of the example for a module of any size."""
_WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
"""Modules that compute what the one in them does, and where it is."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_BACKWARD = ("_backward_hooks", "_backward_pre_hooks")


def save(model: nn.Module, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
    """The module as torch.export writes it: `.pt2`, of any number of images, rows and columns where the
    module allows it.
    """
    module = _unwrapped(model)
    name = type(module).__name__
    expect_ready(module, name)
    copy, hooked = _copy(module, name)
    images = _images(copy, name, example, size)
    # Readers give a program's images before its other inputs.
    order = sorted(range(len(images)), key=lambda place: images[place].dim() != 4)
    as_tensors = _expect_runs(copy, images, name)
    fitted = partial(_fitted, order=order, as_tensors=as_tensors)
    left = f"hooks of your own at {some(hooked)} are left out: the port is of the module without them"

    def saved(level: int) -> Saved:
        said, choices = _OPEN[level]
        program, is_last = (
            _exported(fitted(copy), [images[place] for place in order], name, choices),
            level + 1 == len(_OPEN),
        )
        path = folder / f"{name}{said}.pt2"
        try:
            torch.export.save(program, path)
        except Exception:  # of programs that compute with sizes what torch has no text for, such as math.ceil
            if is_last:
                raise
            return saved(level + 1)
        return Saved(
            name,
            path,
            "the graph that torch.export draws",
            (images[order[0]].shape[2], images[order[0]].shape[3]) if images[order[0]].dim() == 4 else None,
            copied=lambda: fitted(_copy(module, name)[0]),
            calls=calls_in(read_archive(path).program, _same(copy)),
            notes=(left,) if hooked else (),
            fixed=None if is_last else lambda: saved(level + 1),
        )

    return saved(0)


def _same(module: nn.Module) -> dict[str, str]:
    """Of each path of a module in it the first one that it has."""
    first: dict[int, str] = {}
    return {
        path: first.setdefault(id(each), path) for path, each in module.named_modules(remove_duplicate=False)
    }


def _unwrapped(module: nn.Module) -> nn.Module:
    while (inner := _WRAPPERS.get(type(module).__name__)) is not None:
        module = getattr(module, inner)
    return module


def expect_ready(module: nn.Module, name: str) -> None:
    """Refuses a module that is not in eval mode, or whose tensors have no numbers.

    Raises:
        UsageError: with the way round.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError(
            "torch.export takes no ScriptModule", where=name, next="give the module that it was made from"
        )
    training = next((path for path, each in module.named_modules() if each.training), None)
    if training is not None:
        where = f"'{training}' of it" if training else "it"
        next_step = "call model.eval() first: norms and dropouts compute something else in training"
        raise UsageError(f"{where} is in training mode", where=name, next=next_step)
    for path, tensor in (*module.named_parameters(), *module.named_buffers()):
        if nn.parameter.is_lazy(tensor):
            next_step = "call the module on a batch first"
            raise UsageError(f"'{path}' has no shape yet", where=name, next=next_step)
        if tensor.device.type == "meta":
            next_step = "load its weights first: model.load_state_dict(WEIGHTS, assign=True)"
            raise UsageError(
                f"'{path}' is on the device 'meta', where it has no numbers", where=name, next=next_step
            )


def _copy(module: nn.Module, name: str) -> tuple[nn.Module, list[str]]:
    """A copy of a module on the CPU, with its weights as it computes them, and the paths of the hooks that it
    lacks.

    Parametrisations and the norms of weights, which torch computes from other tensors at each call, are the
    weights that they give. Half precision becomes float32.
    """
    try:
        copy: nn.Module = deepcopy(module, dict(_tensors_on_cpu(module)))
    except Exception as error:  # whatever the module's own code raises
        next_step = (
            "save it by torch.export.save(torch.export.export(module, (example,)), FILE), and convert FILE"
        )
        raise UsageError(f"it cannot be copied: {first_line(error)}", where=name, next=next_step) from None
    copy.cpu()
    if any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in copy.state_dict().values()):
        copy.float()
    copy.requires_grad_(False)
    hooked = list[str]()
    with torch.no_grad():
        for path, each in list(copy.named_modules()):
            if parametrize.is_parametrized(each):
                _settle(each)
            if _without_hooks(each):
                hooked.append(f"'{path}'" if path else "its top")
    return copy.requires_grad_(False), hooked


def _settle(module: nn.Module) -> None:
    """Gives a module the tensors that its parametrisations compute.
    torch.nn.utils.parametrize.remove_parametrizations would take them from the class too, which a copy shares
    with the user's module.
    """
    computed = {name: getattr(module, name) for name in module.parametrizations}  # type: ignore[union-attr]
    module.__class__ = type(module).__bases__[0]
    del module.parametrizations
    for name, tensor in computed.items():
        module.register_parameter(name, nn.Parameter(tensor, requires_grad=False))


def _tensors_on_cpu(module: nn.Module) -> Iterator[tuple[int, torch.Tensor]]:
    """By id, a copy of each plain tensor of a module, as deepcopy takes them: it refuses those that were
    computed from others, and it would copy those of a GPU on the GPU.
    """
    for each in module.modules():
        for held in (each._parameters, each._buffers, vars(each)):
            for value in held.values():
                if type(value) is nn.Parameter:
                    yield id(value), nn.Parameter(value.detach().cpu().clone(), requires_grad=False)
                elif type(value) is torch.Tensor:
                    yield id(value), value.detach().cpu().clone()


def _without_hooks(module: nn.Module) -> bool:
    """Takes the hooks off a module: torch's own, such as a norm of weights, become the weights; whether there
    were others.
    """
    others = False
    for name in _HOOKS:
        hooks: dict[int, Any] = getattr(module, name)
        for key, hook in list(hooks.items()):
            own = type(hook).__module__.startswith("torch.")
            if own and not hasattr(hook, "remove"):
                continue
            if own:
                hook.remove(module)
            others |= not own
            module_hooks: dict[int, Any] = getattr(module, name)
            module_hooks.pop(key, None)
    for name in _BACKWARD:
        getattr(module, name).clear()
    return others


def _images(module: nn.Module, name: str, example: Sequence[Any], size: Size | None) -> list[torch.Tensor]:
    """What the module is called with: the example, otherwise an image of zeros."""
    like = next((each for each in module.parameters() if each.is_floating_point()), torch.zeros(()))
    if example:
        wrong = next((each for each in example if not isinstance(each, torch.Tensor | np.ndarray)), None)
        if wrong is not None:
            next_step = "give a batch that the module takes, or a tuple with one for each input"
            raise UsageError(
                f"the example has a {type(wrong).__name__}, expected tensors", where=name, next=next_step
            )
        found = [each if isinstance(each, torch.Tensor) else torch.from_numpy(each) for each in example]
        return [
            each.detach().cpu().to(like.dtype) if each.is_floating_point() else each.detach().cpu()
            for each in found
        ]
    if size is None:
        next_step = "give example, a batch that the module takes, or input_size"
        raise UsageError("nothing says what size its images have", where=name, next=next_step)
    rows, columns = _PROBE if size == ANY else size
    channels = next((each.in_channels for each in module.modules() if isinstance(each, nn.Conv2d)), 3)
    return [torch.zeros(1, channels, rows or _PROBE[0], columns or _PROBE[1], dtype=like.dtype)]


def _expect_runs(module: nn.Module, images: Sequence[torch.Tensor], name: str) -> bool:
    """Runs the module once; whether it returns something else than one tensor or a tuple of them.

    Raises:
        UsageError: it does not take these images, or returns no tensors.
    """
    try:
        with torch.no_grad():
            returned = module(*images)
    except Exception as error:  # whatever the module's own code raises
        taken = " and ".join("x".join(map(str, each.shape)) for each in images)
        reason = f"it does not take the example of {taken}: {type(error).__name__}: {first_line(error)}"
        raise UsageError(reason, where=name, next="give example, a batch that the module takes") from None
    if not list(tensors_in(returned)):
        raise UsageError(
            f"it returns a {type(returned).__name__} without tensors",
            where=name,
            next="give a module that returns some",
        )
    return not isinstance(returned, torch.Tensor) and not (
        isinstance(returned, tuple) and all(isinstance(each, torch.Tensor) for each in returned)
    )


def _fitted(module: nn.Module, order: Sequence[int], as_tensors: bool) -> nn.Module:
    """The copy of a module, which then takes its images in another order, and gives a tuple of tensors."""
    moved = list(order) != sorted(order)
    if not as_tensors and not moved:
        return module
    own: Callable[..., Any] = module.forward

    def forward(*images: torch.Tensor) -> Any:
        given = [images[order.index(place)] for place in range(len(order))]
        returned = own(*given)
        return tuple(tensors_in(returned)) if as_tensors else returned

    module.forward = forward
    return module


def _exported(
    module: nn.Module, images: Sequence[torch.Tensor], name: str, choices: Sequence[Sequence[int]]
) -> torch.export.ExportedProgram:
    """The program of a module, with the first of these choices of open axes that the module allows, or with
    none.

    Raises:
        UsageError: torch.export refuses it, with its own reason.
    """
    free = getattr(torch.export.Dim, "AUTO", None)
    several = [torch.cat([each, each]) if len(each) == 1 else each for each in images]
    with _quiet(), export_config.patch(symbol_guard_limit_before_specialize=_MOST_GUARDS):  # type: ignore[attr-defined]
        for axes in choices if free is not None else ():
            given = several if 0 in axes else images
            try:
                program = _export(
                    module, given, [{axis: free for axis in axes if axis < each.dim()} for each in given]
                )
            except Exception:  # the exporter's own, of many kinds
                continue
            if 0 not in axes or not isinstance(_first_shape(program)[0], int):
                return program
        try:
            return _export(module, images, None)
        except Exception as error:
            next_step = (
                "change what it names in forward, or export the model to ONNX by torch.onnx.export, "
                "and convert that file"
            )
            raise UsageError(
                f"torch.export refuses it: {first_line(error)}", where=name, next=next_step
            ) from None


def _export(module: nn.Module, images: Sequence[torch.Tensor], axes: Any) -> torch.export.ExportedProgram:
    if axes is not None and "forward" in vars(module):
        axes = (tuple(axes),)  # of one parameter, *images
    # An export that fails leaves the open axes marked on its tensors.
    unmarked = tuple(each.clone() for each in images)
    with torch.no_grad():
        return torch.export.export(module, unmarked, dynamic_shapes=None if axes is None else tuple(axes))


def _first_shape(program: torch.export.ExportedProgram) -> Sequence[Any]:
    name = program.graph_signature.user_inputs[0]
    node = next(node for node in program.graph.nodes if node.op == "placeholder" and node.name == name)
    shape: Sequence[Any] = node.meta["val"].shape
    return shape


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch logs of sizes that it fixes, and the programs that it prints where it refuses: it is
    asked for open ones first.
    """
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logger.setLevel(before)
