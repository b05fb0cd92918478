"""The ports beside a file, whose models may have been trained on."""

from __future__ import annotations

from pathlib import Path

from porter.base.errors import PorterError, command
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import other_than
from porter.port import RECORD, read_port
from porter.source.of_port import member_of
from porter.source.tuned import is_of

_MOST = 64
"""Ports that are looked at."""


def port_of(checkpoint: Checkpoint) -> Path | None:
    """The folder of the first port whose model has the file's tensors and was not made from the file; None where there is none."""
    folder = checkpoint.path.parent
    records = [record for record in (folder / RECORD, *sorted(folder.glob(f"*/{RECORD}"))) if record.is_file()]
    return next((record.parent for record in records[:_MOST] if _is_of(record.parent, checkpoint)), None)


def convert_trained(port: Path, checkpoint: Checkpoint) -> str:
    """The command that ports the file with the port's graph."""
    framework = checkpoint.dialect or "torch"
    return command("convert", str(port), "--weights", str(checkpoint.path), "--to", other_than(framework))


def _is_of(folder: Path, checkpoint: Checkpoint) -> bool:
    try:
        port = read_port(folder, held=False)
        made_from_it = port.record.source.sha256 == checkpoint.sha256
        return not made_from_it and is_of(port, checkpoint, member_of(port.record, None))
    except PorterError:
        return False
