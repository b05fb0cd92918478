"""The packages that porter can do without, by what they are for, and how to install them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Literal

Extra = Literal["torch", "tf", "data"]

TENSORFLOW = "tensorflow-cpu" if sys.platform == "linux" else "tensorflow"
EXTRAS: Mapping[Extra, tuple[str, ...]] = {
    "torch": ("torch>=2.4", "torchvision>=0.19"),
    "tf": (f"{TENSORFLOW}>=2.16", "keras>=3.5"),
    "data": ("pyarrow>=17",),
}
"""As pyproject.toml's extras of these names state them for this system."""


def install(extra: Extra) -> str:
    """The command that installs the packages of an extra. It names them, because porter itself is not on the package index."""
    return f"pip install {shlex.join(EXTRAS[extra])}"
