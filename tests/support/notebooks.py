"""Notebooks of docs/ whose cells run. `python -m tests.support.notebooks FILE...` writes what they print now
into the notebooks.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.support.checkout import ROOT
from tests.support.pages import without_figures

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
SHOWN = "text/html", "text/plain"
"""What is kept of an output, the first that it has."""
_SECONDS = 300
"""For a cell."""
_ANEW = "import os; os.chdir({0!r}); os.environ.update({1!r})\n%reset -f"


def as_run(notebook: Path, folder: Path, kernel: KernelManager | None = None) -> str:
    """The text of a notebook with what its cells print now, run in an empty folder by a kernel of its own, or
    by one that has run others, which then has nothing of them but what they imported.

    Only what differs from run to run by nature is left out: numbers of cells, versions, and what libraries
    log on stderr.
    """
    book = nbformat.read(notebook, as_version=4)
    if kernel and kernel.has_kernel:
        book.cells.insert(0, nbformat.v4.new_code_cell(_ANEW.format(str(folder), _environment(folder))))
    client = NotebookClient(book, km=kernel, timeout=_SECONDS, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, **_environment(folder)})
    if kernel and client.kc:
        client.kc.stop_channels()
    book.cells = [cell for cell in book.cells if not cell.source.startswith(_ANEW[:10])]
    for cell in book.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = None, _kept(cell.outputs)
    book.metadata.language_info = {"name": "python"}
    return nbformat.writes(book) + "\n"


def without_rounding(text: str) -> str:
    """Distances differ between machines, and so may the node that is furthest from its source."""
    return re.sub(r"the worst \S+ at", "the worst NODE at", without_figures(text))


def _environment(folder: Path) -> dict[str, str]:
    """The kernel finds the command `porter` beside its Python, and keeps its history in no home."""
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {"PATH": programs, "IPYTHONDIR": str(folder / ".ipython"), "PORTER_CACHE": str(folder / ".cache")}


def _kept(outputs: list[Any]) -> list[Any]:
    """What a page shows of a cell: its printed text as one, and of each value its page or its words."""
    kept: list[Any] = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stdout":
                text = output.text.replace("\r\n", "\n")  # a command of a cell has a terminal
                if kept and kept[-1].output_type == "stream":
                    kept[-1].text += text
                else:
                    kept.append(nbformat.v4.new_output("stream", text=text))
        else:
            kind = next(each for each in SHOWN if each in output.data)
            shown = {"data": {kind: output.data[kind]}, "metadata": {}}
            kept.append(nbformat.v4.new_output("display_data", **shown))
    return kept


if __name__ == "__main__":
    for name in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as place:
            name.write_text(as_run(name, Path(place)), encoding="utf-8")
