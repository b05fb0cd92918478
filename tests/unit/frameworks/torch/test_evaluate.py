from __future__ import annotations

import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from porter.base.errors import UsageError
from porter.base.ways_to_run import FP32, Precision, Run
from porter.data.preparing import normalise
from porter.data.preprocess import Preprocess
from porter.frameworks import get_destination
from tests.support.arrays import Array
from tests.support.checkout import ROOT
from tests.support.evaluation.protocols import PROTOCOLS, pixels_of

FRAMEWORK = get_destination("torch")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


class Shows(nn.Module):
    """Gives its input, and what it was asked in."""

    allowed: tuple[bool, bool]
    channels_last: bool
    inference: bool

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Flatten()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.channels_last = x.is_contiguous(memory_format=torch.channels_last)
        self.allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        self.inference = torch.is_inference_mode_enabled()
        return self.head(x) + 0


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
@pytest.mark.parametrize("crops", [1, 10])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_pixels_are_scaled_as_porter_data_does_to_the_last_bit(
    protocol: Preprocess, crops: int, device: str
) -> None:
    pixels = pixels_of(protocol, photos=3, crops=crops)
    got = FRAMEWORK.ENGINE.classifier(Shows(), protocol, device, FP32)(pixels)()
    wanted = normalise(pixels, protocol).reshape(3 * crops, -1)
    assert got.dtype == np.float32 and np.array_equal(got, wanted)


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True)])
def test_the_tf32_switch_is_set_and_put_back(precision: Precision, allowed: bool) -> None:
    model, before = Shows(), (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    FRAMEWORK.ENGINE.classifier(model, PROTOCOLS[0], "cpu", Run(precision))(pixels_of(PROTOCOLS[0]))()
    assert model.allowed == (allowed, allowed) and model.channels_last and model.inference
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_halves_round_products_and_give_float32(precision: Precision) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()
    pixels = pixels_of(PROTOCOLS[0], photos=2)
    exact: Array = FRAMEWORK.ENGINE.classifier(model, PROTOCOLS[0], "cpu", FP32)(pixels)()
    rounded: Array = FRAMEWORK.ENGINE.classifier(model, PROTOCOLS[0], "cpu", Run(precision))(pixels)()
    assert rounded.dtype == np.float32 and model[0].weight.dtype == torch.float32
    assert 1e-6 < np.abs(rounded - exact).max() < 0.1


def test_the_channels_may_come_first_in_memory() -> None:
    model, pixels = Shows(), pixels_of(PROTOCOLS[0])
    last = FRAMEWORK.ENGINE.classifier(model, PROTOCOLS[0], "cpu", FP32)(pixels)()
    first = FRAMEWORK.ENGINE.classifier(model, PROTOCOLS[0], "cpu", Run(channels_last=False))(pixels)()
    assert np.array_equal(first, last) and not model.channels_last


def test_a_compiled_model_gets_batches_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch compiles anew for every size, for half a minute."""
    seen: list[int] = []

    def compile(model: nn.Module, dynamic: bool) -> Callable[[torch.Tensor], torch.Tensor]:
        assert not dynamic
        return lambda images: (seen.append(len(images)), model(images))[1]

    monkeypatch.setattr(torch, "compile", compile)
    pixels = pixels_of(PROTOCOLS[0], photos=5, crops=2)
    plain = FRAMEWORK.ENGINE.classifier(Shows(), PROTOCOLS[0], "cpu", FP32)
    compiled = FRAMEWORK.ENGINE.classifier(Shows(), PROTOCOLS[0], "cpu", Run(compiled=True))
    for part in (pixels, pixels[:3], pixels[:1]):
        assert np.array_equal(compiled(part)(), plain(part)())
    assert seen == [10, 10, 10]


def test_a_model_that_torch_cannot_compile_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.exc import InductorError

    def refusing(images: torch.Tensor) -> torch.Tensor:
        frame: Any = nn.Module
        raise InductorError(RuntimeError("cannot find a C++ compiler"), frame)

    monkeypatch.setattr(torch, "compile", lambda model, dynamic: refusing)
    with pytest.raises(
        UsageError, match=r"--compile: torch cannot compile this model here: .*C\+\+ compiler.*leave it out"
    ):
        FRAMEWORK.ENGINE.classifier(Shows(), PROTOCOLS[0], "cpu", Run(compiled=True))(pixels_of(PROTOCOLS[0]))


def test_a_compiled_model_that_is_another_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a compiled MobileNet v2 once had three of 290 photos in other classes, in bf16 and fp16
    alike.
    """
    pixels = pixels_of(PROTOCOLS[0], photos=3)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    ).eval()
    factors: dict[Precision, float] = {"fp32": 1.001, "bf16": 1.2, "fp16": 1.2}
    for precision, factor in factors.items():
        for wrong in (1.0, factor):
            monkeypatch.setattr(
                torch, "compile", lambda model, dynamic, wrong=wrong: lambda images: model(images) * wrong
            )
            classify = FRAMEWORK.ENGINE.classifier(model, PROTOCOLS[0], "cpu", Run(precision, compiled=True))
            if wrong == 1.0:
                classify(pixels)()
                continue
            with pytest.raises(
                UsageError, match="--compile: the compiled model is another function: relative L2"
            ):
                classify(pixels)


def test_a_tap_is_read_instead_of_the_output() -> None:
    class Doubled(Shows):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    pixels = pixels_of(PROTOCOLS[0])
    whole = FRAMEWORK.ENGINE.classifier(Doubled(), PROTOCOLS[0], "cpu", FP32)(pixels)()
    assert np.array_equal(
        2 * FRAMEWORK.ENGINE.classifier(Doubled(), PROTOCOLS[0], "cpu", FP32, "head")(pixels)(), whole
    )


def test_a_batch_that_a_gpu_has_no_memory_for_runs_by_halves() -> None:
    runs: list[int] = []

    class Large(Shows):
        def __init__(self, most: int) -> None:
            super().__init__()
            self.most = most

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            runs.append(len(x))
            if len(x) > self.most:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return super().forward(x)

    pixels = pixels_of(PROTOCOLS[0], photos=5, crops=2)
    whole = FRAMEWORK.ENGINE.classifier(Shows(), PROTOCOLS[0], "cpu", FP32)(pixels)()
    halves = FRAMEWORK.ENGINE.classifier(Large(4), PROTOCOLS[0], "cpu", FP32)
    assert np.array_equal(halves(pixels)(), whole) and runs == [10, 4, 4, 2]
    # What does not fit is tried once.
    assert np.array_equal(halves(pixels)(), whole) and runs[4:] == [4, 4, 2]
    with pytest.raises(UsageError, match="no memory left for 2 images at once"):
        FRAMEWORK.ENGINE.classifier(Large(1), PROTOCOLS[0], "cpu", FP32)(pixels)


def test_no_such_device() -> None:
    for device in ("tpu", "cuda:7", "nowhere"):
        if device == "cuda:7" and torch.cuda.device_count() > 7:
            continue
        with pytest.raises(UsageError, match=r"cannot use the device.*use --device cpu, or"):
            FRAMEWORK.ENGINE.classifier(nn.Linear(1, 1), PROTOCOLS[0], device, FP32)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep what they keep")
def test_a_batch_takes_the_memory_of_the_last_one_and_the_last_gives_it_back() -> None:
    """In a process of its own: what others left in this one decides what its C library keeps."""
    line = f"from {__name__} import taken_and_given_back; print(*taken_and_given_back())"
    ran = subprocess.run([sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True, check=True)
    of_a_map, taken, given_back = map(int, ran.stdout.split())
    assert taken < of_a_map / 4 and given_back > of_a_map


def taken_and_given_back() -> tuple[int, int, int]:
    """Pages: of one map of a batch, those that the fourth batch takes anew, and those that the last
    classifier gives back.
    """
    model = nn.Sequential(nn.Conv2d(3, 48, 1), nn.ReLU(), nn.Conv2d(48, 1, 1))
    classify = FRAMEWORK.ENGINE.classifier(model, Preprocess("none", 256, "none"), "cpu", FP32)
    pixels, before = np.zeros((4, 1, 256, 256, 3), np.uint8), 0
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        classify(pixels)()
    taken, kept = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, _pages()
    del classify
    return 4 * 256 * 256 * 48 * 4 // resource.getpagesize(), taken, kept - _pages()


def _pages() -> int:
    """Of this process, in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1])
