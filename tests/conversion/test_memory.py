"""How much memory a conversion with its check takes, as a multiple of the weights."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import porter

FEATURES, UNITS = 3 * 48 * 48, 1536
MOST = {"pt2": {"torch": 5.6, "tf": 7.0, "onnx": 6.6}, "onnx": {"onnx": 7.6}}
"""By form and destination, how many times the weights in float32. A check runs both sides in float64 too: one matrix, which is
nearly all of this network, is held twice as large then, beside the file, the port and the runtimes' own copies."""


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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process has held")
@pytest.mark.parametrize("suffix", MOST)
def test_a_conversion_takes_a_few_times_the_weights(suffix: str, tmp_path: Path) -> None:
    image = torch.zeros(1, 3, 48, 48)
    for name, units in (("small", 8), ("large", UNITS)):
        if suffix == "pt2":
            torch.export.save(torch.export.export(network(units), (image,)), tmp_path / f"{name}.pt2")
        else:
            with warnings.catch_warnings(action="ignore"):  # torch calls this exporter old
                torch.onnx.export(network(units), (image,), tmp_path / f"{name}.onnx", dynamo=False)
    found = {}
    for to in MOST[suffix]:
        porter.convert(tmp_path / f"small.{suffix}", destination=to, out=tmp_path / f"small-{to}")  # frameworks begin
        held = peak(lambda to=to: porter.convert(tmp_path / f"large.{suffix}", destination=to, out=tmp_path / to))
        found[to] = held / (4 * UNITS * FEATURES)
    assert all(found[to] < most for to, most in MOST[suffix].items()), found
