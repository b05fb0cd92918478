"""Progress bars: on stderr, or where a notebook runs the code, in its cell."""

from __future__ import annotations

import sys
from typing import Any


def progress_bar(*, shown: bool = True, **how: Any) -> Any:
    """Make a bar of tqdm, which goes when it is done. It shows nothing if stderr is no terminal and there is
    no notebook, or `shown` is false.
    """
    if in_notebook():
        from tqdm.auto import tqdm
    else:
        from tqdm import tqdm  # type: ignore[assignment]  # imported in half the time
    return tqdm(leave=False, disable=not (shown and has_viewer()), **how)


def has_viewer() -> bool:
    """Return whether somebody would see a bar."""
    return in_notebook() or sys.stderr.isatty()


def in_notebook() -> bool:
    """Return whether a kernel of Jupyter runs this. A program that starts kernels imports ipykernel too."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and bool(kernel.IPKernelApp.initialized())
