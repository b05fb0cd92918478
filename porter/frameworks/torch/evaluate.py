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

from porter.base.dtypes import Array, Run
from porter.base.errors import UsageError, first_line
from porter.base.options import COMPILE, DEVICE
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier
from porter.frameworks.torch.freed_memory import keep_freed
from porter.frameworks.torch.graph_module import no_device
from porter.frameworks.torch.running import tf32

_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


_COMPARED = 2
"""Calls of a compiled model that are compared: the first may be with made photos."""
_LEAST_LIMIT, _TIMES = 1e-4, 4


def make_classifier(
    model: nn.Module, protocol: Preprocess, device: str, how: Run, tap: str | None
) -> Classifier:
    """See porter.frameworks.Engine.classifier. Photos for which a GPU has no memory run by halves.

    Raises:
        UsageError: no such device, or torch cannot compile the model there.
    """
    try:
        target = torch.device(device)
        order = torch.channels_last if how.channels_last else torch.contiguous_format
        model.to(target, memory_format=order).eval()  # type: ignore[call-overload]
    except (RuntimeError, AssertionError) as error:
        raise no_device(device, error) from None
    classify = _TorchClassifier(model, protocol, target, how, tap)
    if target.type == "cpu":
        keep_freed(classify)
    return classify


class _TorchClassifier:
    """A model on its device.

    Attributes:
        scaling: what pixels are divided by, the mean and the deviation, on the device: CUDA replaces a
            division by a host's number by a product with its rounded reciprocal.
        called, uncompiled: the model as it is called, and what it raises if torch cannot compile it.
        most: the largest number of photos for which the GPU had memory.
        full: the number of photos that the compiled model takes at once.
        doubted: how many further calls of the compiled model are compared with the model.
    """

    def __init__(
        self, model: nn.Module, protocol: Preprocess, target: torch.device, how: Run, tap: str | None
    ) -> None:
        self.model, self.protocol, self.target, self.how, self.tap = model, protocol, target, how, tap
        self.scaling = [
            torch.tensor(value, dtype=torch.float32, device=target) for value in _scaling(protocol)
        ]
        self.called: Any = model
        self.uncompiled: tuple[type[Exception], ...] = ()
        if how.compiled:
            self.called, self.uncompiled = _compiled(model)
        self.most = sys.maxsize
        self.full = 0
        self.doubted = _COMPARED if how.compiled else 0

    def __call__(self, pixels: NDArray[Any]) -> Callable[[], Array]:
        """Begin to compute the logits of photos, in ever smaller parts where the GPU has no memory for all;
        what it returns waits for them.
        """
        while True:
            parts = np.array_split(pixels, -(-len(pixels) // self.most))
            try:
                logits = [self._whole(part) for part in parts]
            except torch.cuda.OutOfMemoryError:
                if len(parts[0]) == 1:
                    message = f"the GPU has no memory left for {pixels.shape[1]} images at once"
                    raise UsageError(
                        message, where=DEVICE, next=f"use another GPU, or {DEVICE('cpu')}"
                    ) from None
                self.most = len(parts[0]) // 2
            else:
                return lambda: np.concatenate([part() for part in logits])

    def _whole(self, pixels: NDArray[Any]) -> Callable[[], Array]:
        """Return the logits of photos for which there is memory."""
        count = len(pixels) * pixels.shape[1]
        self.full = min(max(self.full, len(pixels)), self.most)
        # For another number of photos, torch would compile anew.
        if self.how.compiled and len(pixels) < self.full:
            pixels = np.concatenate([pixels, *[pixels[-1:]] * (self.full - len(pixels))])
        given = torch.from_numpy(pixels)
        if self.target.type == "cuda":
            given = given.pin_memory().to(self.target, non_blocking=True)
        with torch.inference_mode(), tf32(self.how.precision == "tf32"):
            return _fetched(self._logits(self._normalised(given))[:count].flatten(1).float())

    def _normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """N x crops x H x W x RGB as the model's input (N * crops) x 3 x H x W, its channels last in
        memory.
        """
        divide, mean, std = self.scaling
        images = pixels.flatten(0, 1)
        values = images.float() if self.protocol.resampling.divides_first else images.float() / divide
        ordered = values if self.protocol.channels == "rgb" else values.flip(-1)
        normalised = ((ordered - mean) / std).permute(0, 3, 1, 2)
        return normalised if self.how.channels_last else normalised.contiguous()

    def _logits(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of images in the precision that is asked for."""
        try:
            with self._precision():
                logits = _value(self.called, images, self.tap)
        except self.uncompiled as error:
            message = f"torch cannot compile this model here: {first_line(error)}"
            raise UsageError(message, where=COMPILE, next="leave it out") from None
        if self.doubted:
            self.doubted -= 1
            with self._precision():
                plain = _value(self.model, images, self.tap)
            halved = self.how.precision in _HALVES
            _expect_same(logits, plain, _value(self.model, images, self.tap) if halved else plain)
        return logits

    def _precision(self) -> Any:
        half = _HALVES.get(self.how.precision)
        return nullcontext() if half is None else torch.autocast(self.target.type, half)


def _compiled(model: nn.Module) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return the model as torch compiles it at its first call, and what that call may raise."""
    from torch._dynamo.exc import TorchDynamoException  # importing it takes a second
    from torch._inductor.exc import InductorError

    return torch.compile(model, dynamic=False), (TorchDynamoException, InductorError)


def _expect_same(compiled: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor) -> None:
    """Expect that a compiled model rounds about as the model itself does: a compiler has faults of its own.

    Args:
        compiled, plain: the logits of both, in the run's precision.
        exact: in float32.
    """
    size = float(exact.norm()) or 1.0
    apart, rounding = (float((logits.float() - exact).norm()) / size for logits in (compiled, plain))
    limit = max(_LEAST_LIMIT, _TIMES * rounding)
    if not apart <= limit:
        message = (
            f"the compiled model is another function: relative L2 {apart:.1e} in its logits, limit "
            f"{limit:.1e}"
        )
        raise UsageError(message, where=COMPILE, next="leave it out")


def _fetched(logits: torch.Tensor) -> Callable[[], Array]:
    """Send logits to the host. Calling the result waits only for them, not for later work of the device."""
    # From a GPU into pinned memory, because only such a copy overlaps with work.
    host = logits.to("cpu", non_blocking=True)
    copied = None
    if logits.is_cuda:
        copied = torch.cuda.current_stream(logits.device).record_event()

    def wait() -> Array:
        if copied is not None:
            copied.synchronize()
        logits: Array = host.numpy()
        return logits

    return wait


def _scaling(protocol: Preprocess) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    return (protocol.divide,), protocol.mean, protocol.std


def _value(model: Any, images: torch.Tensor, tap: str | None) -> torch.Tensor:
    """Return what the model gives, or a module within it."""
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
