"""The ports beside a file, whose models may have been trained on and saved as the file."""

from __future__ import annotations

from pathlib import Path

from porter.base.commands import CONVERT
from porter.base.errors import PorterError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import other_than
from porter.port import RECORD, StoredPort, read_port
from porter.source.from_port import member_of
from porter.source.trained_port import is_of

_MOST = 64
"""The most ports that are looked at."""


def ports_of(checkpoint: Checkpoint) -> tuple[Path, ...]:
    """The folders of the ports whose models have the file's tensors and were not made from the file: of each
    graph one, which if possible is a port to the file's framework.
    """
    folder = checkpoint.path.parent
    records = [
        record for record in (folder / RECORD, *sorted(folder.glob(f"*/{RECORD}"))) if record.is_file()
    ]
    fitting = [port for record in records[:_MOST] if (port := _fitting(record.parent, checkpoint))]
    ports: list[StoredPort] = []
    for port in sorted(fitting, key=lambda port: port.record.framework != checkpoint.dialect):
        if all(port.graph != other.graph for other in ports):
            ports.append(port)
    return tuple(port.folder for port in ports)


def convert_trained(port: Path, checkpoint: Checkpoint) -> str:
    """The command that ports the file with the port's graph."""
    framework = checkpoint.dialect or "torch"
    return CONVERT.line(subject=port, weights=checkpoint.path, to=other_than(framework))


def _fitting(folder: Path, checkpoint: Checkpoint) -> StoredPort | None:
    """The port in a folder, if these weights can be of its model and it was not made from them."""
    try:
        port = read_port(folder, held=False)
        made_from_it = port.record.source.sha256 == checkpoint.sha256
        return port if not made_from_it and is_of(port, checkpoint, member_of(port.record, None)) else None
    except PorterError:
        return None
