"""Torch modules as evaluations run them: many photos, logits only, on any device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from porter.base.dtypes import Array
from porter.base.errors import UsageError, first_line
from porter.base.options import COMPILE, DEVICE
from porter.base.ways_to_run import Run
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier
from porter.frameworks.torch.freed_memory import keep_freed
from porter.frameworks.torch.graph_module import no_device_error
from porter.frameworks.torch.running import tf32

_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


_COMPARED_CALLS = 2
"""Calls of a compiled model that are compared: the first may be with made photos."""
_MIN_LIMIT, _MAX_TIMES_ROUNDING = 1e-4, 4


def make_classifier(
    model: nn.Module, protocol: Preprocess, device: str, how: Run, tap: str | None
) -> Classifier:
    """Return a classifier of photos that runs the model on `device` in the way `how`; see
    porter.frameworks.Engine.classifier. The model is moved there. Photos for which a GPU has no memory run by
    halves, and while a classifier runs on the CPU, freed memory is kept.

    Raises:
        UsageError: no such device, or torch cannot compile the model there.
    """
    try:
        target = torch.device(device)
        order = torch.channels_last if how.channels_last else torch.contiguous_format
        model.to(target, memory_format=order).eval()  # type: ignore[call-overload]
    except (RuntimeError, AssertionError) as error:
        raise no_device_error(device, error) from None
    classify = _TorchClassifier(model, protocol, target, how, tap)
    if target.type == "cpu":
        keep_freed(classify)
    return classify


class _TorchClassifier:
    """A model on its device.

    Attributes:
        scaling: what pixels are divided by, the mean and the deviation, on the device: CUDA replaces a
            division by a host's number by a product with its rounded reciprocal.
        callable_model, compile_errors: the model as it is called, and what it raises if torch cannot compile
            it.
        max_photos: the largest number of photos for which the GPU had memory.
        compiled_photos: the number of photos that the compiled model takes at once.
        calls_to_compare: how many further calls of the compiled model are compared with the model.
    """

    def __init__(
        self, model: nn.Module, protocol: Preprocess, target: torch.device, how: Run, tap: str | None
    ) -> None:
        self.model, self.protocol, self.target, self.how, self.tap = model, protocol, target, how, tap
        self.scaling = [
            torch.tensor(value, dtype=torch.float32, device=target)
            for value in ((protocol.divide,), protocol.mean, protocol.std)
        ]
        self.callable_model: Any = model
        self.compile_errors: tuple[type[Exception], ...] = ()
        if how.compiled:
            self.callable_model, self.compile_errors = _compile(model)
        self.max_photos = sys.maxsize
        self.compiled_photos = 0
        self.calls_to_compare = _COMPARED_CALLS if how.compiled else 0

    def __call__(self, pixels: NDArray[Any]) -> Callable[[], Array]:
        """Begin to compute the logits of photos, in ever smaller parts where the GPU has no memory for all;
        the function that it returns waits for them.
        """
        while True:
            # divided and rounded up
            parts = np.array_split(pixels, -(-len(pixels) // self.max_photos))
            try:
                logits = [self._classify_part(part) for part in parts]
            except torch.cuda.OutOfMemoryError:
                # The first part is one of the largest; a single photo cannot be divided.
                if len(parts[0]) == 1:
                    message = f"the GPU has no memory left for {pixels.shape[1]} images at once"
                    raise UsageError(
                        message, where=DEVICE, next=f"use another GPU, or {DEVICE('cpu')}"
                    ) from None
                self.max_photos = len(parts[0]) // 2
            else:
                return lambda: np.concatenate([part() for part in logits])

    def _classify_part(self, pixels: NDArray[Any]) -> Callable[[], Array]:
        """Begin to compute the logits of photos, all at once, and return the function that waits for them. A
        compiled model gets as many photos as ever: the last one is repeated, and cut off behind.
        """
        count = len(pixels) * pixels.shape[1]
        self.compiled_photos = min(max(self.compiled_photos, len(pixels)), self.max_photos)
        # For another number of photos, torch would compile anew.
        if self.how.compiled and len(pixels) < self.compiled_photos:
            pixels = np.concatenate([pixels, *[pixels[-1:]] * (self.compiled_photos - len(pixels))])
        images = torch.from_numpy(pixels)
        if self.target.type == "cuda":
            images = images.pin_memory().to(self.target, non_blocking=True)
        with torch.inference_mode(), tf32(self.how.precision == "tf32"):
            return _send_to_host(self._logits(self._normalise(images))[:count].flatten(1).float())

    def _normalise(self, pixels: torch.Tensor) -> torch.Tensor:
        """Turn N x crops x H x W x RGB into the model's input (N * crops) x 3 x H x W, its channels last in
        memory.
        """
        divide, mean, std = self.scaling
        images = pixels.flatten(0, 1)
        # Pixels are divided already, or here.
        values = images.float() if self.protocol.resampling.divides_first else images.float() / divide
        ordered = values if self.protocol.channels == "rgb" else values.flip(-1)
        normalised = ((ordered - mean) / std).permute(0, 3, 1, 2)
        return normalised if self.how.channels_last else normalised.contiguous()

    def _logits(self, images: torch.Tensor) -> torch.Tensor:
        """Run the model on images in the precision that is asked for. Its first calls, if it is compiled, are
        compared with the model itself.
        """
        try:
            with self._autocast():
                logits = _run_to_tap(self.callable_model, images, self.tap)
        except self.compile_errors as error:
            message = f"torch cannot compile this model here: {first_line(error)}"
            raise UsageError(message, where=COMPILE, next="leave it out") from None
        if self.calls_to_compare:
            self.calls_to_compare -= 1
            with self._autocast():
                plain = exact = _run_to_tap(self.model, images, self.tap)
            if self.how.precision in _HALVES:
                # one run more, in float32
                exact = _run_to_tap(self.model, images, self.tap)
            _expect_same(logits, plain, exact)
        return logits

    def _autocast(self) -> Any:
        """Return the context of automatic half precision; an empty one where the run has none."""
        half = _HALVES.get(self.how.precision)
        return nullcontext() if half is None else torch.autocast(self.target.type, half)


def _compile(model: nn.Module) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return the model as torch compiles it at its first call, and the errors that that call may raise."""
    from torch._dynamo.exc import TorchDynamoException  # importing it takes a second
    from torch._inductor.exc import InductorError

    return torch.compile(model, dynamic=False), (TorchDynamoException, InductorError)


def _expect_same(compiled: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor) -> None:
    """Expect that a compiled model rounds about as the model itself does, by its logits; a compiler has
    faults of its own. Raise UsageError where it is further from the exact ones.

    Args:
        compiled, plain: the logits of both, in the run's precision.
        exact: in float32.
    """
    size = float(exact.norm()) or 1.0
    # How far the compiled model and the model itself are from the exact logits.
    distance, rounding = (float((logits.float() - exact).norm()) / size for logits in (compiled, plain))
    limit = max(_MIN_LIMIT, _MAX_TIMES_ROUNDING * rounding)
    # Not `>`, so that NaN is a difference too.
    if not distance <= limit:
        message = (
            f"the compiled model is another function: relative L2 {distance:.1e} in its logits, limit "
            f"{limit:.1e}"
        )
        raise UsageError(message, where=COMPILE, next="leave it out")


def _send_to_host(logits: torch.Tensor) -> Callable[[], Array]:
    """Begin to send logits to the host. The function that is returned waits only for them, not for later work
    of the device, and gives them.
    """
    # From a GPU into pinned memory, because only such a copy overlaps with work.
    host = logits.to("cpu", non_blocking=True)
    copied = None
    if logits.is_cuda:
        copied = torch.cuda.current_stream(logits.device).record_event()

    def wait() -> Array:
        """Wait until the logits have been copied, and return them."""
        if copied is not None:
            copied.synchronize()
        logits: Array = host.numpy()
        return logits

    return wait


def _run_to_tap(model: Any, images: torch.Tensor, tap: str | None) -> torch.Tensor:
    """Run the model and return its output, or if there is a tap, the name of a module within it, the first
    output of that module.
    """
    if tap is None:
        output: torch.Tensor = model(images)
        return output
    values: list[torch.Tensor] = []
    handle = model.get_submodule(tap).register_forward_hook(
        lambda _module, _inputs, output: values.append(output)
    )
    try:
        model(images)
    finally:
        handle.remove()
    return values[0]
