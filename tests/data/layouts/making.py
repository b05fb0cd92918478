"""Data sets of every layout, made up: photos are told apart by their bytes, and none is an image."""

import io
import json
import struct
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from porter.data.labels import IMAGENET, Labels, imagenet_classes
from porter.data.layouts import open_photos
from porter.data.layouts.classes import Classes
from porter.data.photos import PhotoSet

WNIDS = [entry.wnid for entry in imagenet_classes()]
PHOTOS = 50_000


def label_of(number: int) -> int:
    """The class that these devkits give photo `number`, from 1: 50 photos of each."""
    return number * 7 % 1000


def id_of(label: int) -> int:
    """The ILSVRC id that these devkits give a class: no order that sorting would give."""
    return label * 3 % 1000 + 1


IMAGENET_CLASSES = Classes(1000, Labels(IMAGENET))


def val(number: int, suffix: str = "") -> str:
    return f"ILSVRC2012_val_{number:08}{suffix}.JPEG"


def opened(path: Path, **options: Any) -> PhotoSet:
    """As a port of ImageNet's classes opens it."""
    return open_photos(path, classes=IMAGENET_CLASSES, **options)


def files(folder: Path, *names: str) -> Path:
    """A folder of files whose content is their name."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def tar(path: Path, contents: Mapping[str, bytes | tarfile.TarInfo], **options: Any) -> Path:
    """A tar of files, or of whatever the given headers say."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as archive:
        for name, content in contents.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return path


def shard(path: Path, samples: Mapping[str, Mapping[str, bytes]]) -> Path:
    """A webdataset shard: the files of each key by suffix."""
    return tar(path, {f"{key}.{suffix}": content for key, parts in samples.items() for suffix, content in parts.items()})


def table(
    path: Path, rows: Sequence[tuple[str | None, int | str | None]], names: Sequence[str] | None = None, **options: Any
) -> Path:
    """A Parquet file as Hugging Face's datasets library writes it: rows are a path and a label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": f"{path.name} {index}".encode(), "path": name} for index, (name, _) in enumerate(rows)]
    columns = pyarrow.table({"image": images, "label": [label for _, label in rows]})
    if names is not None:
        features = {"image": {"_type": "Image"}, "label": {"names": list(names), "_type": "ClassLabel"}}
        columns = columns.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(columns, path, **options)
    return path


def devkit(folder: Path, meta: bytes | None = None) -> Path:
    """ILSVRC2012_devkit_t12 as it unpacks."""
    data = folder / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    truth = "".join(f"{id_of(label_of(number))}\n" for number in range(1, PHOTOS + 1))
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text(truth)
    leaves: list[dict[str, int | str]] = [
        {"ILSVRC2012_ID": id_of(label), "WNID": wnid, "words": "some words"} for label, wnid in enumerate(WNIDS)
    ]
    above: list[dict[str, int | str]] = [{"ILSVRC2012_ID": 1001, "WNID": "n00001740", "words": "entity"}]
    (data / "meta.mat").write_bytes(meta or mat("synsets", leaves + above))
    return data.parent


def real(path: Path, empty: Sequence[int] = ()) -> Path:
    """ReaL's real.json: the class of the devkit and the next one, and none for the photos in `empty`."""
    lists = [[] if number in empty else [label_of(number), (label_of(number) + 1) % 1000] for number in range(1, PHOTOS + 1)]
    path.write_text(json.dumps(lists))
    return path


def mat(name: str, rows: Sequence[Mapping[str, int | str]], order: str = "<", packed: bool = True) -> bytes:
    """A MATLAB 5 file with one struct array, as MATLAB writes it: numbers in the smallest type, small elements in their tags."""

    def element(kind: int, content: bytes) -> bytes:
        if 0 < len(content) <= 4 and kind != 14:
            tag = struct.pack(f"{order}I", len(content) << 16 | kind)
            return tag + content.ljust(4, b"\0")
        return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)

    def array(kind: int, shape: tuple[int, int], label: str, *parts: bytes) -> bytes:
        flags, dimensions = struct.pack(f"{order}II", kind, 0), struct.pack(f"{order}2i", *shape)
        return element(14, element(6, flags) + element(5, dimensions) + element(1, label.encode()) + b"".join(parts))

    def value(content: int | str) -> bytes:
        if isinstance(content, str):
            encoding = "utf-16-le" if order == "<" else "utf-16-be"
            return array(4, (1, len(content)), "", element(4, content.encode(encoding)))
        code, kind, of_array = ("B", 2, 9) if content < 256 else ("H", 4, 11)
        return array(of_array, (1, 1), "", element(kind, struct.pack(order + code, content)))

    fields = list(rows[0])
    width = max(map(len, fields)) + 1
    names = element(5, struct.pack(f"{order}i", width)) + element(
        1, b"".join(field.encode().ljust(width, b"\0") for field in fields)
    )
    cells = b"".join(value(row[field]) for row in rows for field in fields)
    variable = array(2, (len(rows), 1), name, names, cells)
    if packed:
        squeezed = zlib.compress(variable)
        variable = struct.pack(f"{order}II", 15, len(squeezed)) + squeezed
    return b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}HH", 0x0100, 0x4D49) + variable
