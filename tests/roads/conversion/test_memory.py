"""How much memory a conversion with its check takes, as a multiple of the weights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import porter
from tests.support.checkout import ROOT
from tests.support.torch_onnx import export_to_onnx

FEATURES, UNITS, FEWER = 3 * 48 * 48, 2304, 256
MOST = {"pt2": {"torch": 5.6, "tf": 8.0, "onnx": 6.6}, "onnx": {"onnx": 7.6}}
"""By form and destination, how many times the weights in float32. A check runs both sides in float64 too: one
matrix, which is nearly all of this network, is held twice as large then, beside the file, the port and the
runtimes' own copies. The smaller network goes first and is large enough for what is allocated only once, so
that buffers of BLAS are not counted as weights.
"""


def network(units: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, units), nn.ReLU(), nn.Linear(units, 5)).eval()


def peak(work: Callable[[], object]) -> int:
    """The most bytes that this process has held more than before `work`."""
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    work()
    return resident("VmHWM") - before


def resident(name: str) -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(fields[name].split()[0])


def measured(suffix: str, folder: Path) -> dict[str, float]:
    """By destination, how many times the weights of a large network the conversion of its file has held at
    most.
    """
    image, found = torch.zeros(1, 3, 48, 48), dict[str, float]()
    for name, units in (("small", FEWER), ("large", UNITS)):
        if suffix == "pt2":
            torch.export.save(torch.export.export(network(units), (image,)), folder / f"{name}.pt2")
        else:
            export_to_onnx(network(units), (image,), folder / f"{name}.onnx", dynamo=False)
    for to in MOST[suffix]:
        porter.convert(folder / f"small.{suffix}", to=to, out=folder / f"small-{to}")  # frameworks begin
        held = peak(partial(porter.convert, folder / f"large.{suffix}", to=to, out=folder / to))
        found[to] = held / (4 * UNITS * FEATURES)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process has held")
@pytest.mark.full
@pytest.mark.parametrize("suffix", MOST)
def test_a_conversion_takes_a_few_times_the_weights(suffix: str, tmp_path: Path) -> None:
    """In a process of its own: what other tests have left in this one is released in between."""
    line = (
        f"from tests.roads.conversion.test_memory import *; print(json.dumps(measured({suffix!r}, "
        f"Path({str(tmp_path)!r}))))"
    )
    ran = subprocess.run([sys.executable, "-c", line], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout.splitlines()[-1])
    assert all(found[to] < most for to, most in MOST[suffix].items()), found
