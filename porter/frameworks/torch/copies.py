"""Copies of a module that a user holds. A copy serves as the module itself, so the module is run once, and a
copy that gives anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.nn.utils import parametrize

from porter.base.errors import CheckFailed, PorterError, UsageError, first_line, some
from porter.frameworks.torch.running import HALVES, leaves_in, tensors_in, tf32

_WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
"""Modules that compute what the one in them does, and where it is."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_BACKWARD = ("_backward_hooks", "_backward_pre_hooks")
_MAX_DISTANCE, _MAX_HALF_DISTANCE = 1e-6, 1e-2
"""The most by which a copy may be away from the module, in relative L2 distance, where it runs the same code
on the same device, and in half precision.
"""
ImageTensors: TypeAlias = "Sequence[torch.Tensor]"
"""What a module is called with: a batch for each input."""


class Hook(NamedTuple):
    """Where a hook of the user's own stands: the path of its module, the attribute that holds it, its key."""

    path: str
    kind: str
    key: int


@dataclass(frozen=True)
class Copies:
    """How a module is copied: what `prove_copies` has found out.

    Attributes:
        module: the user's, out of what wraps it.
        name: what messages call it.
        images: what it was called with.
        kept: the hooks of the user's own that a copy has.
        notes: what a copy lacks of the module, one line each.
    """

    module: nn.Module = field(repr=False)
    name: str
    images: ImageTensors = field(repr=False)
    kept: frozenset[Hook]
    notes: tuple[str, ...]

    @property
    def has_halves(self) -> bool:
        """Whether a part of the module is in half precision."""
        return any(tensor.dtype in HALVES for _, tensor in tensors_of(self.module))

    def make(self) -> nn.Module:
        """Make a copy on the CPU, in eval mode, with its weights as it computes them. Half precision becomes
        float32.
        """
        copy = _without_hooks(_copy_on_cpu(self.module, self.name), self.kept)
        return copy.float() if self.has_halves else copy


def unwrap(module: nn.Module) -> nn.Module:
    """Return the module itself, taken out of modules that only compile it or run it on several devices."""
    while (inner := _WRAPPERS.get(type(module).__name__)) is not None:
        module = getattr(module, inner)
    return module


def tensors_of(module: nn.Module) -> tuple[tuple[str, torch.Tensor], ...]:
    """Return a module's parameters and buffers by name."""
    return (*module.named_parameters(), *module.named_buffers())


def prove_copies(model: nn.Module, name: str, candidates: Sequence[ImageTensors]) -> Copies:
    """Find out how a model is copied, so that a copy gives what the model does: as many tensors, of the same
    shapes, with the same values.

    A copy lacks hooks of the user's own that neither give nor change a value, unless the model gives
    something else without them.

    Args:
        candidates: what the model may be called with; the first that it takes counts.

    Raises:
        UsageError: it takes none of them, gives something else than tensors, or cannot be copied.
        CheckFailed: no copy gives what it does.
    """
    module = unwrap(model)
    # A copy whose hooks are watched shows which of them change a value.
    watched_copy = _copy_on_cpu(module, name)
    watches = {hook: _watch(watched_copy, hook) for hook in _user_hooks(watched_copy)}
    images = _first_accepted(watched_copy, candidates, name)
    device = next((tensor.device for _, tensor in tensors_of(module)), torch.device("cpu"))
    wanted = _run_users_model(model, images, device)
    # Once more, because a module may add hooks when it is first called.
    hooks = frozenset(_user_hooks(_copy_on_cpu(module, name)))
    changing_hooks = frozenset(hook for hook in hooks if hook in watches and watches[hook].changes)
    difference = None
    # With few hooks first, then with all; once if these are the same.
    for kept_hooks in dict.fromkeys((changing_hooks, hooks)):
        copy = _without_hooks(_copy_on_cpu(module, name), kept_hooks).to(device)
        try:
            difference = _describe_difference(wanted, _output_tensors(copy, images, device))
        except Exception as error:  # its code may need what a hook collects
            difference = f"the copy raises {type(error).__name__}: {first_line(error)}"
        if difference is None:
            return Copies(module, name, images, kept_hooks, _notes_on_hooks(hooks - kept_hooks))
    raise _difference_error(module, name, hooks, str(difference))


def _difference_error(module: nn.Module, name: str, hooks: Collection[Hook], difference: str) -> PorterError:
    """Return the error for a module of which no copy gives the same: that it is in training mode, if it is,
    or else what to change so that it can be copied.

    Args:
        hooks: the hooks of the user's own.
        difference: how the copy's outputs differ, in words.
    """
    if any(part.training for part in module.modules()):
        return UsageError(
            f"it is in training mode, and gives something else in eval mode: {difference}",
            where=name,
            next="call model.eval() first",
        )
    next_step = "make it so that copy.deepcopy(model) gives what the model gives"
    if hooks:
        next_step = f"say in forward what the hooks of your own at {_list_modules(hooks)} do"
    return CheckFailed(
        f"a copy of it gives something else than it does: {difference}", where=name, next=next_step
    )


def _notes_on_hooks(hooks: Collection[Hook]) -> tuple[str, ...]:
    """Return a note for the user on the hooks that copies lack; () without such hooks."""
    if not hooks:
        return ()
    return (
        f"hooks of your own at {_list_modules(hooks)} are left out: they change nothing of what it gives",
    )


def _list_modules(hooks: Collection[Hook]) -> str:
    """Return, in words, at which modules the hooks stand: `'layer1', 'layer2'`."""
    paths = sorted({hook.path for hook in hooks})
    return some([f"'{path}'" if path else "its top" for path in paths])


def _copy_on_cpu(module: nn.Module, name: str) -> nn.Module:
    """Copy a module to the CPU as it is, but in eval mode, with its parts taken out of what wraps them, and
    without what acts in training only.
    """
    try:
        with torch.no_grad():
            copy: nn.Module = deepcopy(module, dict(_tensors_on_cpu(module)))
    except Exception as error:  # whatever the module's own code raises
        next_step = (
            "save it by torch.export.save(torch.export.export(module, (example,)), FILE), and convert FILE"
        )
        raise UsageError(f"it cannot be copied: {first_line(error)}", where=name, next=next_step) from None
    copy.cpu()
    for part in copy.modules():
        part.training = False  # a GraphModule of torch.export refuses eval()
        for child_name, child in part.named_children():
            part._modules[child_name] = unwrap(child)
        for kind in _BACKWARD:
            getattr(part, kind).clear()
    return copy.requires_grad_(False)


def _tensors_on_cpu(module: nn.Module) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the id of each plain tensor of a module and a copy of it, for deepcopy's memo: deepcopy refuses
    tensors that were computed from others, and would copy those of a GPU on the GPU.
    """
    for part in module.modules():
        for members in (part._parameters, part._buffers, vars(part)):
            for value in members.values():
                if type(value) is nn.Parameter:
                    yield id(value), nn.Parameter(value.detach().cpu().clone(), requires_grad=False)
                elif type(value) is torch.Tensor:
                    yield id(value), value.detach().cpu().clone()


def _without_hooks(copy: nn.Module, kept: Collection[Hook]) -> nn.Module:
    """Remove the hooks from a copy, but for those of the user's own that are kept, and give it the weights
    that it computes.

    Parametrisations and the norms of weights, which torch computes from other tensors at each call, are
    replaced by the weights that they give.
    """
    with torch.no_grad():
        for path, part in list(copy.named_modules()):
            if parametrize.is_parametrized(part):
                _remove_parametrizations(part)
            for kind in _HOOKS:
                hooks = getattr(part, kind)
                for key, hook in list(hooks.items()):
                    # Hooks of torch that compute a weight have `remove`; it leaves the weight, and so the
                    # hook goes.
                    computes_weight = hasattr(hook, "remove")
                    if computes_weight and _is_hook_of_torch(hook):
                        hook.remove(part)
                    is_left_out = not _is_hook_of_torch(hook) and (path, kind, key) not in kept
                    if computes_weight or is_left_out:
                        hooks.pop(key, None)
    return copy.requires_grad_(False)


def _remove_parametrizations(module: nn.Module) -> None:
    """Replace a module's parametrisations by the tensors that they compute.
    torch.nn.utils.parametrize.remove_parametrizations would take them from the class too, which a copy shares
    with the user's module.
    """
    computed = {name: getattr(module, name) for name in module.parametrizations}  # type: ignore[union-attr]
    # torch gives a parametrised module a class of its own, which extends the one it had.
    module.__class__ = type(module).__bases__[0]
    del module.parametrizations
    for name, tensor in computed.items():
        module.register_parameter(name, nn.Parameter(tensor, requires_grad=False))


def _is_hook_of_torch(hook: object) -> bool:
    """Say whether a hook is torch's own, such as one that computes the norm of a weight."""
    return type(hook).__module__.startswith("torch.")


def _user_hooks(module: nn.Module) -> tuple[Hook, ...]:
    """Return where the hooks stand that are not torch's own, in a module and in those within it."""
    return tuple(
        Hook(path, kind, key)
        for path, part in module.named_modules()
        for kind in _HOOKS
        for key, hook in getattr(part, kind).items()
        if not _is_hook_of_torch(hook)
    )


@dataclass
class _Watch:
    """A hook, of which is noted whether it gives or changes a value."""

    hook: Callable[..., Any]
    changes: bool = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the hook, and note whether it returns something or changes the version of a tensor that it
        takes.
        """
        tensors = list(tensors_in((arguments, options)))
        # torch counts a version at each change in place.
        before = [tensor._version for tensor in tensors]
        output = self.hook(*arguments, **options)
        self.changes |= output is not None or before != [tensor._version for tensor in tensors]
        return output


def _watch(module: nn.Module, hook: Hook) -> _Watch:
    """Replace a hook of a module, in place, by a watch that calls it, and return the watch."""
    hooks_of_kind = getattr(module.get_submodule(hook.path), hook.kind)
    hooks_of_kind[hook.key] = watch = _Watch(hooks_of_kind[hook.key])
    return watch


_PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
"""What may stand beside the tensors that a module returns."""


def _first_accepted(module: nn.Module, candidates: Sequence[ImageTensors], name: str) -> ImageTensors:
    """Return the first of the candidates that the module can be called with.

    Raises:
        UsageError: it takes none, or gives something else than tensors.
    """
    refusals = []
    for images in candidates:
        try:
            returned = _call(module, images, torch.device("cpu"))
        except Exception as error:  # whatever the module's own code raises
            refusals.append(f"{type(error).__name__}: {first_line(error)}")
            continue
        _expect_tensors(returned, name)
        return images
    shapes = dict.fromkeys(
        " and ".join("x".join(map(str, image.shape)) for image in images) for images in candidates
    )
    raise UsageError(
        f"it does not take the example of {' or '.join(shapes)}: {refusals[0]}",
        where=name,
        next="give example, a batch that the module takes",
    )


def _expect_tensors(returned: Any, name: str) -> None:
    """Refuse outputs that hold no tensors, or other things beside tensors."""
    leaves = list(leaves_in(returned))
    expected_types = (torch.Tensor, *_PLAIN_TYPES)
    unexpected = next((leaf for leaf in leaves if not isinstance(leaf, expected_types)), None)
    if unexpected is not None or not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        kind = type(returned if unexpected is None else unexpected).__name__
        what_is_wrong = " without tensors" if unexpected is None else ", in which porter finds no tensors"
        raise UsageError(
            f"it returns a {kind}{what_is_wrong}",
            where=name,
            next="give a module that returns tensors, or a tuple, a list, a mapping or a dataclass of them",
        )


def _call(module: nn.Module, images: ImageTensors, device: torch.device) -> Any:
    """Call a module on the images on a device, not compiled, without gradients and TF32, and return what it
    returns. It leaves no trace in torch's state: random numbers are those of a fixed seed, and the state
    comes back.
    """
    with ExitStack() as stack:
        for context in (torch.inference_mode(False), torch.no_grad(), tf32(False)):
            stack.enter_context(context)
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        if hasattr(torch.compiler, "set_stance"):  # since torch 2.6
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        torch.manual_seed(0)
        return module(*(image.to(device, copy=True) for image in images))


def run_users_model(model: nn.Module, images: ImageTensors) -> list[torch.Tensor]:
    """Run the user's own model on images in its own order, in its own type and on its own device: those of
    its first tensor of real numbers, or else of the images. Return its output tensors, on the CPU.
    """
    real_tensors = (tensor for _, tensor in tensors_of(model) if tensor.is_floating_point())
    reference = next(real_tensors, images[0])
    converted = [image.to(reference.dtype) if image.is_floating_point() else image for image in images]
    return [output.cpu() for output in _run_users_model(model, converted, reference.device)]


def _output_tensors(module: nn.Module, images: ImageTensors, device: torch.device) -> list[torch.Tensor]:
    """Return copies of the tensors that a module returns for the images on a device."""
    return [output.clone() for output in tensors_in(_call(module, images, device))]


def _run_users_model(model: nn.Module, images: ImageTensors, device: torch.device) -> list[torch.Tensor]:
    """Run the user's own model and return its output tensors. Buffers in which it counts its calls get their
    numbers back.
    """
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        return _output_tensors(model, images, device)
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in before and not torch.equal(buffer, before[name]):
                    buffer.copy_(before[name])


def _describe_difference(wanted: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> str | None:
    """Say in words how the outputs of a module and of its copy differ; None where they do not."""
    if len(wanted) != len(got):
        return f"{len(wanted)} tensors, and the copy {len(got)}"
    for index, (expected, copied) in enumerate(zip(wanted, got, strict=True)):
        if (expected.shape, expected.dtype) != (copied.shape, copied.dtype):
            expected_shape, copied_shape = ("x".join(map(str, output.shape)) for output in (expected, copied))
            return (
                f"output {index} is {expected_shape} {expected.dtype}, and in the copy {copied_shape} "
                f"{copied.dtype}"
            )
        if torch.equal(expected, copied):
            continue
        limit = _MAX_HALF_DISTANCE if expected.dtype in HALVES else _MAX_DISTANCE
        distance = _relative_distance(expected.double(), copied.double())
        # Not `>`, so that NaN is a difference too.
        if not distance <= limit:
            return f"output {index} is {distance:.1e} away from the copy's (relative L2)"
    return None


def _relative_distance(wanted: torch.Tensor, got: torch.Tensor) -> float:
    """Return the relative L2 distance; infinite where a number is not finite in one of them and differs in
    the other.
    """
    finite = wanted.isfinite()
    if not torch.equal(wanted[~finite].nan_to_num(), got[~finite].nan_to_num()):
        return float("inf")
    difference = (wanted[finite] - got[finite]).norm()
    size = wanted[finite].norm()
    if size:
        return float(difference / size)
    return float("inf" if difference else 0)
