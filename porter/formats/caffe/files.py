"""The two files of a model."""

from __future__ import annotations

from pathlib import Path

from porter.base.errors import FileError

MOST_TEXT, MOST_BYTES = 8 << 20, (1 << 31) - 1
"""Of a net, and of a message of protobuf's."""
NET, WEIGHTS = ".prototxt", ".caffemodel"


def both(path: Path) -> tuple[Path | None, Path]:
    """The net, which weights may lack, and the weights."""
    found: list[Path] = []
    for suffix in (NET, WEIGHTS):
        others = sorted(path.parent.glob(f"*{suffix}"))
        deployed = [other for other in others if "deploy" in other.stem]
        beside = path if path.suffix == suffix else path.with_suffix(suffix)
        choices = [beside] if beside.is_file() else deployed if len(deployed) == 1 else others
        if suffix == NET and not choices:
            return None, path
        if len(choices) != 1:
            have = "there is none" if not choices else f"there are {len(choices)}"
            what = "layers are in a .prototxt" if suffix == NET else "weights are in a .caffemodel"
            raise FileError(f"a Caffe model's {what} beside it: {have}", where=str(path), next=f"name it {beside.name}")
        found.append(choices[0])
    return found[0], found[1]


def bounded(path: Path, most: int) -> bytes:
    if path.stat().st_size > most:
        raise ValueError(f"{path.name} has more than {most >> 20} MiB")
    return path.read_bytes()
