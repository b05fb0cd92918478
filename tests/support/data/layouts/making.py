"""Data sets of every layout, made up: photos are told apart by their bytes, and none is an image."""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from porter.data.classes import Classes
from porter.data.labels import IMAGENET, Labels, imagenet_classes
from porter.data.layouts.opening import open_photos
from porter.data.photos import PhotoSet

WNIDS = [entry.wnid for entry in imagenet_classes()]
PHOTOS = 50_000


def label_of(number: int) -> int:
    """The class that these devkits give photo `number`, from 1: 50 photos of each."""
    return number * 7 % 1000


IMAGENET_CLASSES = Classes(1000, Labels(IMAGENET))


def val(number: int, suffix: str = "") -> str:
    return f"ILSVRC2012_val_{number:08}{suffix}.JPEG"


def opened(path: Path, **options: Any) -> PhotoSet:
    """The photos as a port of ImageNet's classes opens them."""
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
    return tar(
        path,
        {f"{key}.{suffix}": content for key, parts in samples.items() for suffix, content in parts.items()},
    )


def table(
    path: Path,
    rows: Sequence[tuple[str | None, int | str | None]],
    names: Sequence[str] | None = None,
    **options: Any,
) -> Path:
    """A Parquet file as Hugging Face's datasets library writes it: rows are a path and a label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [
        {"bytes": f"{path.name} {index}".encode(), "path": name} for index, (name, _) in enumerate(rows)
    ]
    columns = pyarrow.table({"image": images, "label": [label for _, label in rows]})
    if names is not None:
        features = {"image": {"_type": "Image"}, "label": {"names": list(names), "_type": "ClassLabel"}}
        columns = columns.replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": features}})}
        )
    parquet.write_table(columns, path, **options)
    return path


def devkit(folder: Path) -> Path:
    """ILSVRC2012_devkit_t12 as it unpacks."""
    data = folder / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    truth = "".join(f"{imagenet_classes()[label_of(number)].ilsvrc}\n" for number in range(1, PHOTOS + 1))
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text(truth)
    return data.parent


def real(path: Path, empty: Sequence[int] = ()) -> Path:
    """ReaL's real.json: the class of the devkit and the next one, and none for the photos in `empty`."""
    lists = [
        [] if number in empty else [label_of(number), (label_of(number) + 1) % 1000]
        for number in range(1, PHOTOS + 1)
    ]
    path.write_text(json.dumps(lists))
    return path
