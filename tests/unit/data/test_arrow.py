"""Folders that Hugging Face's `save_to_disk` wrote."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from porter.base.errors import FileError
from porter.data.classes import Classes
from porter.data.labels import IMAGENET, Labels
from porter.data.layouts.opening import open_photos
from porter.data.photo_bytes import read_bytes
from porter.data.photos import Failure

Row = tuple[bytes | None, Any]
WNIDS = ["n01443537", "n01440764"]


def saved(folder: Path, files: Sequence[Sequence[Row]], names: Any = WNIDS, **options: Any) -> Path:
    """Two rows to a batch, as the library writes a thousand."""
    folder.mkdir(parents=True)
    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    schema = pyarrow.schema([("image", image), ("label", pyarrow.int64())])
    for number, rows in enumerate(files):
        path = folder / f"data-{number:05}-of-{len(files):05}.arrow"
        with (
            pyarrow.OSFile(str(path), "wb") as sink,
            pyarrow.ipc.new_stream(sink, schema, **options) as writer,
        ):
            for start in range(0, len(rows), 2):
                images = [{"bytes": photo, "path": "x.jpg"} for photo, _ in rows[start : start + 2]]
                labels = [label for _, label in rows[start : start + 2]]
                columns = [pyarrow.array(images, image), pyarrow.array(labels, pyarrow.int64())]
                writer.write_batch(pyarrow.record_batch(columns, schema=schema))
    features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "state.json").write_text("{}")
    return folder


def opened(path: Path, **options: Any) -> Any:
    return open_photos(path, classes=Classes(1000, Labels(IMAGENET)), **options)


def test_photos_are_read_where_they_stand(tmp_path: Path) -> None:
    found = opened(saved(tmp_path / "set", [[(b"first", 1), (b"", 0), (b"third", 0)], [(b"fourth", 1)]]))
    assert (found.layout, found.failed) == ("Arrow", ())
    assert [(read_bytes(photo.place), photo.labels) for photo in found.photos] == [
        (b"first", (0,)),
        (b"", (1,)),
        (b"third", (1,)),
        (b"fourth", (0,)),
    ]
    assert found.photos[3].name == "data-00001-of-00002.arrow#0"


def test_rows_that_cannot_be_scored_and_files_that_are_not_there(tmp_path: Path) -> None:
    folder = saved(tmp_path / "set", [[(None, 1), (b"a", None), (b"b", 7), (b"c", 0)], [(b"d", 1)]])
    (folder / "data-00001-of-00002.arrow").unlink()
    found = opened(folder)
    assert [photo.labels for photo in found.photos] == [(1,)]
    assert [failure.why for failure in found.failed] == [
        "it has no bytes",
        "it has no label",
        "its label '7' is no class of the port",
    ]
    assert found.excluded == (Failure("data-00001-of-00002.arrow", "this file of the data set is not there"),)


def test_a_dictionary_of_splits(tmp_path: Path) -> None:
    for split, label in (("train", 1), ("validation", 0)):
        saved(tmp_path / split, [[(split.encode(), label)]])
    (tmp_path / "dataset_dict.json").write_text("{}")
    assert [read_bytes(photo.place) for photo in opened(tmp_path).photos] == [b"validation"]
    assert [read_bytes(photo.place) for photo in opened(tmp_path, split="train").photos] == [b"train"]


@pytest.mark.parametrize("damage", ["cut", "compressed", "text", "info"])
def test_what_cannot_be_read_is_one_error(damage: str, tmp_path: Path) -> None:
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd") if damage == "compressed" else None
    rows = [(b"photo" * 1000, 1), (b"other" * 1000, 0)]
    folder = saved(tmp_path / "set", [rows], **({"options": options} if options else {}))
    file = folder / "data-00000-of-00001.arrow"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-4000])
    if damage == "text":
        file.write_text("plain text")
    if damage == "info":
        (folder / "dataset_info.json").write_text("[]")
    with pytest.raises(FileError, match="save it again, with datasets"):
        opened(folder)
