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
from porter.frameworks.torch.running import leaves_in, tensors_in, tf32

_HALF = (torch.float16, torch.bfloat16)
_WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
"""Modules that compute what the one in them does, and where it is."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_BACKWARD = ("_backward_hooks", "_backward_pre_hooks")
_ROUNDING, _HALF_ROUNDING = 1e-6, 1e-2
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
    """How a module is copied.

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
    def in_half(self) -> bool:
        """Whether a part of the module is in half precision."""
        return any(each.dtype in _HALF for _, each in tensors_of(self.module))

    def make(self) -> nn.Module:
        """Return a copy on the CPU, in eval mode, with its weights as it computes them. Half precision
        becomes float32.
        """
        copy = _bare(_copied(self.module, self.name), self.kept)
        return copy.float() if self.in_half else copy


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module in those that only run it on several devices, or compiled."""
    while (inner := _WRAPPERS.get(type(module).__name__)) is not None:
        module = getattr(module, inner)
    return module


def tensors_of(module: nn.Module) -> tuple[tuple[str, torch.Tensor], ...]:
    """Return a module's parameters and buffers by name."""
    return (*module.named_parameters(), *module.named_buffers())


def copies_of(model: nn.Module, name: str, candidates: Sequence[ImageTensors]) -> Copies:
    """Return how a model is copied, so that a copy gives what the model does: as many tensors, of the same
    shapes, with the same values.

    A copy lacks hooks of the user's own that neither give nor change a value, unless the model gives
    something else without them.

    Args:
        candidates: what the model may be called with; the first that it takes counts.

    Raises:
        UsageError: it takes none of them, gives something else than tensors, or cannot be copied.
        CheckFailed: no copy gives what it does.
    """
    module = unwrapped(model)
    watched = _copied(module, name)
    watches = {hook: _watch(watched, hook) for hook in _hooks_of(watched)}
    images = _taken(watched, candidates, name)
    device = next((each.device for _, each in tensors_of(module)), torch.device("cpu"))
    wanted = _given_by_itself(model, images, device)
    hooks = frozenset(_hooks_of(_copied(module, name)))  # a module may add some when it is first called
    changing = frozenset(hook for hook in hooks if hook in watches and watches[hook].changes)
    difference = None
    for kept_hooks in dict.fromkeys((changing, hooks)):
        copy = _bare(_copied(module, name), kept_hooks).to(device)
        try:
            difference = _apart(wanted, _tensors_given(copy, images, device))
        except Exception as error:  # its code may need what a hook collects
            difference = f"the copy raises {type(error).__name__}: {first_line(error)}"
        if difference is None:
            return Copies(module, name, images, kept_hooks, _left_out(hooks - kept_hooks))
    raise _unlike(module, name, hooks, str(difference))


def _unlike(module: nn.Module, name: str, hooks: Collection[Hook], apart: str) -> PorterError:
    """Return the error of a module of which no copy gives the same."""
    if any(each.training for each in module.modules()):
        return UsageError(
            f"it is in training mode, and gives something else in eval mode: {apart}",
            where=name,
            next="call model.eval() first",
        )
    next_step = "make it so that copy.deepcopy(model) gives what the model gives"
    if hooks:
        next_step = f"say in forward what the hooks of your own at {_places(hooks)} do"
    return CheckFailed(f"a copy of it gives something else than it does: {apart}", where=name, next=next_step)


def _left_out(hooks: Collection[Hook]) -> tuple[str, ...]:
    if not hooks:
        return ()
    return (f"hooks of your own at {_places(hooks)} are left out: they change nothing of what it gives",)


def _places(hooks: Collection[Hook]) -> str:
    return some([f"'{path}'" if path else "its top" for path in sorted({hook.path for hook in hooks})])


def _copied(module: nn.Module, name: str) -> nn.Module:
    """Return a copy of a module on the CPU as it is, but in eval mode, out of what wraps its parts, and
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
    for each in copy.modules():
        each.training = False  # a GraphModule of torch.export refuses eval()
        for path, part in each.named_children():
            each._modules[path] = unwrapped(part)
        for kind in _BACKWARD:
            getattr(each, kind).clear()
    return copy.requires_grad_(False)


def _tensors_on_cpu(module: nn.Module) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield a copy by id of each plain tensor of a module, as deepcopy takes them: it refuses those that were
    computed from others, and it would copy those of a GPU on the GPU.
    """
    for each in module.modules():
        for members in (each._parameters, each._buffers, vars(each)):
            for value in members.values():
                if type(value) is nn.Parameter:
                    yield id(value), nn.Parameter(value.detach().cpu().clone(), requires_grad=False)
                elif type(value) is torch.Tensor:
                    yield id(value), value.detach().cpu().clone()


def _bare(copy: nn.Module, kept: Collection[Hook]) -> nn.Module:
    """Return a copy with the weights that it computes, without hooks of the user's own but those that are
    kept.

    Parametrisations and the norms of weights, which torch computes from other tensors at each call, are the
    weights that they give.
    """
    with torch.no_grad():
        for path, each in list(copy.named_modules()):
            if parametrize.is_parametrized(each):
                _without_parametrizations(each)
            for kind in _HOOKS:
                for key, hook in list(getattr(each, kind).items()):
                    if _is_torchs(hook) and hasattr(hook, "remove"):
                        hook.remove(each)
                    if hasattr(hook, "remove") or (not _is_torchs(hook) and (path, kind, key) not in kept):
                        getattr(each, kind).pop(key, None)
    return copy.requires_grad_(False)


def _without_parametrizations(module: nn.Module) -> None:
    """Give a module the tensors that its parametrisations compute.
    torch.nn.utils.parametrize.remove_parametrizations would take them from the class too, which a copy shares
    with the user's module.
    """
    computed = {name: getattr(module, name) for name in module.parametrizations}  # type: ignore[union-attr]
    module.__class__ = type(module).__bases__[0]
    del module.parametrizations
    for name, tensor in computed.items():
        module.register_parameter(name, nn.Parameter(tensor, requires_grad=False))


def _is_torchs(hook: object) -> bool:
    """Say whether a hook is torch's own, such as one that computes the norm of a weight."""
    return type(hook).__module__.startswith("torch.")


def _hooks_of(module: nn.Module) -> tuple[Hook, ...]:
    """Return the hooks that are not torch's own."""
    return tuple(
        Hook(path, kind, key)
        for path, each in module.named_modules()
        for kind in _HOOKS
        for key, hook in getattr(each, kind).items()
        if not _is_torchs(hook)
    )


@dataclass
class _Watch:
    """A hook, of which is noted whether it gives or changes a value."""

    hook: Callable[..., Any]
    changes: bool = False

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the hook, and compare the versions of the tensors that it takes before and after."""
        tensors = list(tensors_in((given, named)))
        before = [each._version for each in tensors]
        output = self.hook(*given, **named)
        self.changes |= output is not None or before != [each._version for each in tensors]
        return output


def _watch(module: nn.Module, hook: Hook) -> _Watch:
    """Put a watch into the place of a hook."""
    hooks_of_kind = getattr(module.get_submodule(hook.path), hook.kind)
    hooks_of_kind[hook.key] = watch = _Watch(hooks_of_kind[hook.key])
    return watch


_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
"""What may stand beside the tensors that a module returns."""


def _taken(module: nn.Module, candidates: Sequence[ImageTensors], name: str) -> ImageTensors:
    """Return the first of the candidates that a module takes.

    Raises:
        UsageError: it takes none, or gives something else than tensors.
    """
    refusals = []
    for images in candidates:
        try:
            returned = _called(module, images, torch.device("cpu"))
        except Exception as error:  # whatever the module's own code raises
            refusals.append(f"{type(error).__name__}: {first_line(error)}")
            continue
        _expect_tensors(returned, name)
        return images
    shapes = dict.fromkeys(
        " and ".join("x".join(map(str, each.shape)) for each in images) for images in candidates
    )
    raise UsageError(
        f"it does not take the example of {' or '.join(shapes)}: {refusals[0]}",
        where=name,
        next="give example, a batch that the module takes",
    )


def _expect_tensors(returned: Any, name: str) -> None:
    """Refuse outputs that hold no tensors, or other things beside tensors."""
    leaves = list(leaves_in(returned))
    other = next((each for each in leaves if not isinstance(each, (torch.Tensor, *_PLAIN))), None)
    if other is not None or not any(isinstance(each, torch.Tensor) for each in leaves):
        kind = type(returned if other is None else other).__name__
        without = " without tensors" if other is None else ", in which porter finds no tensors"
        raise UsageError(
            f"it returns a {kind}{without}",
            where=name,
            next="give a module that returns tensors, or a tuple, a list, a mapping or a dataclass of them",
        )


def _called(module: nn.Module, images: ImageTensors, device: torch.device) -> Any:
    """Return what a module gives, not compiled, and without a trace in what torch holds for others."""
    with ExitStack() as stack:
        for each in (torch.inference_mode(False), torch.no_grad(), tf32(False)):
            stack.enter_context(each)
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        if hasattr(torch.compiler, "set_stance"):  # since torch 2.6
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        torch.manual_seed(0)
        return module(*(each.to(device, copy=True) for each in images))


def given_as_it_is(model: nn.Module, images: ImageTensors) -> list[torch.Tensor]:
    """Return what the user's own model gives for images in its own order, in its own type and on its own
    device.
    """
    like = next((each for _, each in tensors_of(model) if each.is_floating_point()), images[0])
    given = [each.to(like.dtype) if each.is_floating_point() else each for each in images]
    return [each.cpu() for each in _given_by_itself(model, given, like.device)]


def _tensors_given(module: nn.Module, images: ImageTensors, device: torch.device) -> list[torch.Tensor]:
    return [each.clone() for each in tensors_in(_called(module, images, device))]


def _given_by_itself(model: nn.Module, images: ImageTensors, device: torch.device) -> list[torch.Tensor]:
    """Return what the user's own model gives. Buffers in which it counts its calls get their numbers back."""
    before = {name: each.clone() for name, each in model.named_buffers()}
    try:
        return _tensors_given(model, images, device)
    finally:
        with torch.no_grad():
            for name, each in model.named_buffers():
                if name in before and not torch.equal(each, before[name]):
                    each.copy_(before[name])


def _apart(wanted: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> str | None:
    """Return how what a module gives and what a copy of it gives differ, in words; None where they do not."""
    if len(wanted) != len(got):
        return f"{len(wanted)} tensors, and the copy {len(got)}"
    for index, (one, other) in enumerate(zip(wanted, got, strict=True)):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            kinds = ("x".join(map(str, each.shape)) for each in (one, other))
            return f"output {index} is {'{} {}, and in the copy {} {}'}".format(
                *(part for kind, each in zip(kinds, (one, other), strict=True) for part in (kind, each.dtype))
            )
        if torch.equal(one, other):
            continue
        limit = _HALF_ROUNDING if one.dtype in _HALF else _ROUNDING
        distance = _distance(one.double(), other.double())
        if not distance <= limit:
            return f"output {index} is {distance:.1e} away from the copy's (relative L2)"
    return None


def _distance(wanted: torch.Tensor, got: torch.Tensor) -> float:
    """Return the relative L2 distance; infinite where one is finite and the other is not, or another
    number.
    """
    finite = wanted.isfinite()
    if not torch.equal(wanted[~finite].nan_to_num(), got[~finite].nan_to_num()):
        return float("inf")
    apart = (wanted[finite] - got[finite]).norm()
    size = wanted[finite].norm()
    if size:
        return float(apart / size)
    return float("inf" if apart else 0)
