"""Pages of docs/ whose commands run. `python -m tests.support.pages FILE...` writes what they print now into
the pages.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import porter
from porter.verification.inputs import NORMAL, PIXELS, SIGNED, UNIT
from porter.zoos.torchvision import import_models
from tests.support.checkout import ROOT
from tests.support.slim_files import SlimFile, write_slim

BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"\$ (porter [^\n]*)\n(.*?)(?=\$ porter |\Z)", re.DOTALL)

PAGES = (ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "guides").glob("*.md")))

Runner = Callable[..., str]
"""Takes the arguments of a command; gives what it prints, or raises if its status is not 0."""


def without_figures(text: str) -> str:
    """Distances and times differ between machines, and the range of images that excites random weights most
    from run to run.
    """
    ranges = "|".join(each.words for each in (SIGNED, PIXELS, UNIT, NORMAL))
    figures = rf"\d(\.\d)?e[-+]\d\d|\d+\.\d+ s\b|(?<=: )({ranges})$"
    return re.sub(figures, "FIGURE", text, flags=re.MULTILINE)


def as_run(page: str, run: Runner) -> str:
    """The page with what its commands print now, run in order in the folder that is the current one.

    A block of Python is executed with the names of those before it. A block whose lines begin with `$` shows
    commands and what they print. Each line of a block of sh runs too, and nothing is shown of it.
    """
    names: dict[str, object] = {"__name__": "page"}
    sys.path.append(str(Path.cwd()))  # as a script in this folder has it

    def block(found: re.Match[str]) -> str:
        language, text = found.groups()
        if language == "python":
            exec(compile(text, "page", "exec"), names)
        elif language == "sh":
            for line in filter(None, (line.partition("  #")[0].strip() for line in text.splitlines())):
                if line.startswith("porter "):
                    run(*_unshown(shlex.split(line)[1:]))
        else:
            text = COMMAND.sub(lambda shown: f"$ {shown[1]}\n{run(*shlex.split(shown[1])[1:])}", text)
        return f"```{language}\n{text}```"

    return BLOCK.sub(block, page)


def _unshown(arguments: list[str]) -> list[str]:
    """What is run of a command whose output no page shows. A conversion of published weights is planned only,
    because they would be fetched; that other ports are right is shown where the page shows it.
    """
    if arguments[0] != "convert":
        return arguments
    if "--from" not in arguments or "--weights" in arguments:
        return [*arguments, "--no-check"]
    places = [arguments.index(flag) for flag in ("--from", "--to")]
    return ["pads", arguments[1], *(word for place in places for word in arguments[place : place + 2])]


def statuses(command: str, *others: str) -> tuple[int, ...]:
    """What a command of a page may end with: a comparison may find that two models differ."""
    return (0, 1) if command == "compare" or "--into" in others else (0,)


def refusal(said: str) -> str:
    """What porter says on stderr of a command that it refuses, without what libraries log there."""
    return said[said.find("error: ") :] if "error: " in said else ""


def lay_out(page: str) -> None:
    """Puts the files into the current folder that readers of this guide have."""
    made = {
        "torch-to-keras": _pth,
        "slim-to-torch": _slim,
        "caffe-mxnet": _archive,
        "flax": _onnx,
        "litert": _onnx,
        "mlx": _onnx,
    }
    if page in made:
        made[page]()


def _pth() -> None:
    import torch

    torch.save(import_models().resnet18(num_classes=3).state_dict(), "tuned.pth")


def _slim() -> None:
    write_slim(Path("mobilenet_v1_0.25_128_frozen"), SlimFile(format="frozen", size=128))
    write_slim(Path("mobilenet_v1_0.25_128.ckpt"), SlimFile(size=128, ema=True))


def _archive() -> None:
    names = {"model.prototxt": "deploy.prototxt", "model.caffemodel": "net.caffemodel"}
    names |= {"model-symbol.json": "net-symbol.json", "model-0000.params": "net-0000.params"}
    for to in ("caffe", "mxnet"):
        porter.convert(_network(), to=to, input_size=64, out=to, check=False)
        for file in Path(to).iterdir():
            if file.name in names:
                file.rename(names[file.name])


def _onnx() -> None:
    import torch

    batch = torch.export.Dim("batch")
    example = (torch.zeros(2, 3, 64, 64),)
    torch.onnx.export(
        _network(), example, "net.onnx", input_names=["image"], dynamic_shapes=({0: batch},), verbose=False
    )


def _network() -> Any:
    """A small network with a pool that rounds up, whose numbers are random and always the same."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    stem = (
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, ceil_mode=True),
    )
    return nn.Sequential(*stem, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()


def _run(*arguments: str) -> str:
    ran = subprocess.run(
        [Path(sys.executable).with_name("porter"), *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode in statuses(*arguments), (arguments, ran.stdout, ran.stderr)
    return ran.stdout + refusal(ran.stderr)


if __name__ == "__main__":
    for name in map(Path.resolve, map(Path, sys.argv[1:])):
        with tempfile.TemporaryDirectory() as place:
            os.chdir(place)
            lay_out(name.stem)
            name.write_text(as_run(name.read_text(encoding="utf-8"), _run), encoding="utf-8")
