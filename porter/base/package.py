"""What pyproject.toml states too: the version, and the packages that porter can do without, by what they are
for.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from porter.base.errors import NotInstalled

__version__ = "0.2.0"
"""pyproject.toml, the command line and the record of a port read it here."""

Extra = Literal["torch", "tf", "onnx", "flax", "mlx", "data", "batch", "ray"]

TENSORFLOW = "tensorflow-cpu" if sys.platform == "linux" else "tensorflow"
EXTRAS: Mapping[Extra, tuple[str, ...]] = {
    "torch": ("torch>=2.10", "torchvision>=0.25"),
    "tf": (f"{TENSORFLOW}>=2.16", "keras>=3.15"),
    "onnx": ("onnx>=1.21", "onnxruntime>=1.18"),
    "flax": ("jax>=0.7", "flax>=0.12", "orbax-checkpoint>=0.11", "msgpack>=1.0.8"),
    "mlx": ("mlx[cpu]>=0.32" if sys.platform == "linux" else "mlx>=0.32",),
    "data": ("pyarrow>=17", "simplejpeg>=1.7"),
    "batch": ("psutil>=5.9",),
    "ray": ("ray>=2.40",),
}
"""The packages of pyproject.toml's extras that this system needs."""


def install(extra: Extra) -> str:
    """Return the command that installs the packages of an extra. It names them, because porter itself is not
    on the package index.
    """
    return f"pip install {shlex.join(EXTRAS[extra])}"


def version_of(module: str) -> str | None:
    """Return the version of the distribution that has a module, which is not imported; None where there is
    none.
    """
    from importlib.metadata import PackageNotFoundError, version  # `porter --help` needs neither

    try:
        return version(TENSORFLOW if module == "tensorflow" else module)
    except PackageNotFoundError:
        return None


def page(name: str) -> str:
    """Return where a reader finds a page of docs/: in the checkout, or with the installed modules
    (pyproject.toml lists them).
    """
    installed = Path(__file__).parents[1] / "docs" / name
    return str(installed) if installed.is_file() else f"docs/{name}"


def expect_installed(package: str, next: str) -> None:
    """Expect that a package is installed; it is not imported.

    Raises:
        NotInstalled: it is not installed; `next` says what installs it.
    """
    if find_spec(package) is None:
        raise NotInstalled(f"{package} is not installed", next=next)
