"""Running a torch module and reading values inside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from porter.base.dtypes import Array, NamedArrays
from porter.frameworks import UNCUT
from porter.frameworks.batches import arrays_for_inputs, expect_nodes
from porter.frameworks.torch.exported import ExportedModule
from porter.frameworks.torch.graph_module import GraphModule, plan_of, to_tensor
from porter.frameworks.torch.layout import module_name


def run_model(
    model: GraphModule, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Run a model from graph_module.py on a batch N×C×H×W and return by path its values at the nodes `taps`;
    maps are N×C×H×W.

    Args:
        cut: by path, what is read in place of the value; see porter.frameworks.PortEngine.run.

    Raises:
        UsageError: a tap is not a node of the model.
    """
    modules = {path: module_name(path) for path in taps}
    expect_nodes(taps, {path for path, name in modules.items() if _has_module(model, name)})
    return _capture(model, arrays_for_inputs(batch, plan_of(model).graph), modules, cut)


def run_stock(
    model: nn.Module, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """Run any module as `run_model` does a port's, and return its values by path.

    Args:
        taps: module names by path; those that the module lacks are left out. RETURNED names the first tensor
            that the module returns.
        cut: as in `run_model`. An exported program may have values that cannot be replaced; these are left
            out.
    """
    inputs = [batch]
    modules = {path: name for path, name in taps.items() if _has_module(model, name)}
    if isinstance(model, ExportedModule):
        inputs = model.inputs_for(batch)
        modules = {path: name for path, name in modules.items() if path not in cut or model.can_cut}
    return _capture(model, inputs, modules, {path: cut[path] for path in cut if path in modules})


def _has_module(model: nn.Module, name: str) -> bool:
    """Say whether a model has a module of this name; the empty name is the model itself."""
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True


def _capture(
    model: nn.Module, batches: Sequence[Array], modules: Mapping[str, str], cut: NamedArrays
) -> dict[str, Array]:
    """Run the model and return the last value of each of `modules` (module name by path) as an array, by
    path; see `record`. A value of a module that is called several times is not cut, and its path is left out.
    """
    _, values = record(model, batches, modules, cut)
    of_several_values = {path for path in cut if len(values.get(path, ())) != 1}
    if of_several_values:  # several values have the name: what reads one of them is not what reads another
        other_modules = {path: name for path, name in modules.items() if path not in of_several_values}
        other_cuts = {path: array for path, array in cut.items() if path not in of_several_values}
        return _capture(model, batches, other_modules, other_cuts)
    return {path: to_array(tensors[-1]) for path, tensors in values.items()}


def record(
    model: nn.Module, batches: Sequence[Array], modules: Mapping[str, str], cut: NamedArrays = UNCUT
) -> tuple[Any, dict[str, list[torch.Tensor]]]:
    """Run `model` in its own dtype and on its own device, without gradients. Return what it returns, and by
    path the tensors that a module gave at each of its calls, in order.

    Args:
        batches: a batch for each input.
        modules: path to module name.
        cut: by path, an array that a module gives instead.
    """
    values: dict[str, list[torch.Tensor]] = {}

    def make_hook(path: str) -> Any:
        """Return a hook that notes a module's tensors under a path, and replaces them where they are cut."""

        def hook(module: nn.Module, _inputs: Any, output: Any) -> torch.Tensor | None:
            """Note what the module gives, and return what stands in its place where the path is cut,
            otherwise None.
            """
            # Of the model itself, the first tensor; a part's output counts only if it is one.
            tensor = next(tensors_in(output), None) if module is model else output
            if isinstance(tensor, torch.Tensor):
                # The stock ReLUs that follow work in place.
                values.setdefault(path, []).append(tensor.clone())
                if path in cut:
                    return to_tensor(cut[path]).to(tensor).reshape(tensor.shape)
            return None

        return hook

    with ExitStack() as stack:
        for path, name in modules.items():
            handle = model.get_submodule(name).register_forward_hook(make_hook(path))
            stack.callback(handle.remove)
        stack.enter_context(torch.inference_mode())
        stack.enter_context(tf32(False))
        parameter = next(model.parameters(), None)
        inputs = [to_tensor(batch) for batch in batches]
        if parameter is not None:
            inputs = [tensor.to(parameter.device, parameter.dtype) for tensor in inputs]
        if inputs[0].dtype == torch.float64:
            stack.enter_context(_on_one_thread())
        if not isinstance(model, GraphModule):  # a port is judged as it is
            stack.enter_context(_compute_in(inputs[0].dtype, model))
        return model(*inputs), values


def tensors_in(returned: Any) -> Iterator[torch.Tensor]:
    """Return the tensors among the values that a module returns, in its own order."""
    return (leaf for leaf in leaves_in(returned) if isinstance(leaf, torch.Tensor))


def leaves_in(returned: Any) -> Iterator[Any]:
    """Yield the values that a module returns, in its own order; those within a tuple, a list, a mapping or a
    dataclass one by one.
    """
    if isinstance(returned, Mapping | list | tuple):
        for value in returned.values() if isinstance(returned, Mapping) else returned:
            yield from leaves_in(value)
    elif is_dataclass(returned):
        for field in fields(returned):
            yield from leaves_in(getattr(returned, field.name))
    else:
        yield returned


def to_array(value: torch.Tensor) -> Array:
    """Return the values as an array of numpy; bfloat16, which numpy lacks, as float32."""
    array: Array = (value.float() if value.dtype == torch.bfloat16 else value).cpu().numpy()
    return array


@contextmanager
def _on_one_thread() -> Iterator[None]:
    """Run torch on one thread within the context. Its double-precision convolutions wait for all threads once
    per group: on a busy machine a depthwise one takes a hundred times as long on two threads as on one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _compute_in(kind: torch.dtype, model: nn.Module) -> Iterator[None]:
    """Compute, within the context, in the type `kind` what a module's own code states another type for: half
    precision, and if `kind` is float64 also float32, such as a table of positions. An ExportedModule replaces
    types itself, and each of its ops would take longer here.
    """
    if kind not in _REPLACED_DTYPES:
        yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        with nullcontext() if isinstance(model, ExportedModule) else _ReplaceDtypes(kind):
            yield
    finally:
        torch.set_default_dtype(before)


HALVES = torch.float16, torch.bfloat16
_REPLACED_DTYPES = {torch.float32: HALVES, torch.float64: (torch.float32, *HALVES)}
"""The types that a module's own type replaces while it computes."""


class _ReplaceDtypes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Ops in one type where their arguments state others."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kind = kind

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an op with `kind` in place of the types in its arguments that it replaces, and return its
        result.
        """

        def replace_dtype(argument: Any) -> Any:
            is_replaced = isinstance(argument, torch.dtype) and argument in _REPLACED_DTYPES[self._kind]
            return self._kind if is_replaced else argument

        named = {name: replace_dtype(argument) for name, argument in (kwargs or {}).items()}
        return op(*map(replace_dtype, args), **named)


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 within the context. It keeps only 10 bits of the mantissa, so on a GPU it hides
    differences and makes false ones.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
