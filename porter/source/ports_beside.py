"""The ports beside a file, whose models may have been trained on and saved as the file."""

from __future__ import annotations

from pathlib import Path

from porter.base.commands import CONVERT
from porter.base.errors import PorterError
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import other_than
from porter.port import RECORD, StoredPort, read_port
from porter.source.from_port import find_member_of
from porter.source.trained_port import has_tensors_of_port

_MOST_PORTS = 64
"""The most ports that are looked at."""


def find_ports_beside(checkpoint: Checkpoint) -> tuple[Path, ...]:
    """Return the folders of the ports beside a file whose models have its tensors and were not made from it.
    For each graph there is one, a port to the file's framework if possible.
    """
    folder = checkpoint.path.parent
    records = [
        record for record in (folder / RECORD, *sorted(folder.glob(f"*/{RECORD}"))) if record.is_file()
    ]
    with_these_tensors = [
        port for record in records[:_MOST_PORTS] if (port := _read_if_trained(record.parent, checkpoint))
    ]
    ports: list[StoredPort] = []
    for port in sorted(with_these_tensors, key=lambda port: port.record.framework != checkpoint.dialect):
        if all(port.graph != kept.graph for kept in ports):
            ports.append(port)
    return tuple(port.folder for port in ports)


def line_for_trained(port: Path, checkpoint: Checkpoint) -> str:
    """Return the command that ports the file with the port's graph."""
    framework = checkpoint.dialect or "torch"
    return CONVERT.line(subject=port, weights=checkpoint.path, to=other_than(framework))


def _read_if_trained(folder: Path, checkpoint: Checkpoint) -> StoredPort | None:
    """Return the port in a folder if the file can hold its model's tensors after further training: it has all
    of them and no others, and the port was not made from this very file. Return None otherwise, and for a
    folder that is no port or is damaged.
    """
    try:
        port = read_port(folder, verify_digests=False)
        was_made_from_it = port.record.source.sha256 == checkpoint.sha256
        if was_made_from_it:
            return None
        fits = has_tensors_of_port(port, checkpoint, find_member_of(port.record, None))
        return port if fits else None
    except PorterError:
        return None
