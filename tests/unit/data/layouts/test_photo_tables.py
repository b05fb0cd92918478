"""Parquet shards of Hugging Face data sets."""

import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

import porter.data.parquet_file
from porter.base.errors import FileError, NotInstalled
from porter.base.package import install
from porter.data.classes import Classes
from porter.data.labels import Labels
from porter.data.layouts.opening import open_photos
from porter.data.parquet_file import read_table
from porter.data.parquet_footer import read_row_groups, unpacked_bytes
from porter.data.photo_bytes import read_bytes
from porter.data.photos import Cell, Failure
from tests.support.data.layouts.making import WNIDS, label_of, opened, table, val

NAMES = [f"{wnid}, whatever else" for wnid in WNIDS]


def shared(value: pyarrow.Array, rows: int) -> pyarrow.Array:
    """A column of one value, which the file has once."""
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, pyarrow.int32()), value)


def test_rows_are_photos_and_are_read_by_row_group(tmp_path: Path) -> None:
    paths = [
        table(
            tmp_path / f"validation-{n:05}-of-00002.parquet",
            [(None, 7 * n + i) for i in range(5)],
            NAMES,
            row_group_size=2,
        )
        for n in (0, 1)
    ]
    found = opened(tmp_path)
    assert (found.layout, found.path, found.failed) == ("Parquet", tmp_path, ())
    assert [photo.labels for photo in found.photos] == [(n,) for n in (0, 1, 2, 3, 4, 7, 8, 9, 10, 11)]
    assert found.photos[8].name == "validation-00001-of-00002.parquet#3"
    assert found.photos[8].place == Cell(paths[1], 1, 1)
    assert [read_bytes(photo.place).decode() for photo in found.photos] == [
        f"{path.name} {i}" for path in paths for i in range(5)
    ]


def test_a_row_group_is_read_once_for_its_photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = opened(table(tmp_path / "x.parquet", [(None, 1)] * 6, row_group_size=3))
    reads = []
    read = parquet.ParquetFile.read_row_group

    def counting(self: parquet.ParquetFile, index: int, **options: object) -> pyarrow.Table:
        reads.append(index)
        return read(self, index, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counting)
    assert len({read_bytes(photo.place) for photo in found.photos}) == 6
    assert reads == [0, 1]


def test_an_overwritten_file_is_read_anew(tmp_path: Path) -> None:
    path = table(tmp_path / "x.parquet", [(None, 1)])
    assert read_bytes(Cell(path, 0, 0)) == b"x.parquet 0"
    table(tmp_path / "longer.parquet", [(None, 1)]).replace(path)
    assert read_bytes(Cell(path, 0, 0)) == b"longer.parquet 0"


def test_hugging_faces_folder_will_do(tmp_path: Path) -> None:
    for split, label in (("train", 1), ("validation", 2), ("test", -1)):
        table(tmp_path / "data" / f"{split}-00000-of-00001.parquet", [(None, label)], NAMES)
    (tmp_path / "README.md").touch()
    found = opened(tmp_path)
    assert (found.path, [photo.labels for photo in found.photos]) == (tmp_path / "data", [(2,)])


def test_rows_without_a_class_are_counted_and_named(tmp_path: Path) -> None:
    found = opened(table(tmp_path / "x.parquet", [(None, 3), (None, -1), (None, None), (None, 1000)]))
    assert [photo.labels for photo in found.photos] == [(3,)]
    assert found.failed == (
        Failure("x.parquet#1", "its label '-1' is no class of the port"),
        Failure("x.parquet#2", "it has no label"),
        Failure("x.parquet#3", "its label '1000' is no class of the port"),
    )


def test_classes_that_a_set_numbers_itself_go_by_their_names(tmp_path: Path) -> None:
    """Imagenette's class 1 is not ImageNet's goldfish."""
    found = opened(
        table(
            tmp_path / "x.parquet",
            [(None, label) for label in range(4)],
            ["tench", "English springer", "crane", "chain saw"],
        )
    )
    assert [photo.labels for photo in found.photos] == [(0,), (217,), (491,)]
    assert [failure.name for failure in found.failed] == ["x.parquet#2"]


def test_names_in_another_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="do not stand in the order of wnids"):
        opened(table(tmp_path / "x.parquet", [(None, 3)], NAMES[1:] + NAMES[:1]))


def test_labels_may_be_wnids(tmp_path: Path) -> None:
    assert opened(table(tmp_path / "x.parquet", [(None, "n01443537")])).photos[0].labels == (1,)


def test_classes_of_ones_own_are_numbers(tmp_path: Path) -> None:
    path = table(tmp_path / "x.parquet", [(None, 0), (None, 2)], ["daisy", "tulip"])
    found = open_photos(path, classes=Classes(2))
    assert ([photo.labels for photo in found.photos], len(found.failed)) == ([(0,)], 1)
    turned = Classes(3, Labels("flowers.txt", ("tulip", "rose", "daisy")))
    assert [photo.labels for photo in open_photos(path, classes=turned).photos] == [(2,)]
    with pytest.raises(FileError, match="expected the names of 3 classes, as the port has, got 2"):
        open_photos(path, classes=Classes(3))


def test_reals_labels_go_by_the_paths(real: Path, tmp_path: Path) -> None:
    rows = [(val(number, "_n01440764"), 0) for number in (1, 3)] + [("other.jpg", 0)]
    found = opened(table(tmp_path / "x.parquet", rows, NAMES), labels=real)
    assert [photo.labels for photo in found.photos] == [(label_of(1), label_of(1) + 1)]
    assert (len(found.excluded), len(found.failed)) == (1, 1)


def test_photos_may_be_a_column_of_bytes(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"image": [b"a", b"b"], "label": [1, 2]}), tmp_path / "x.parquet")
    assert [read_bytes(photo.place) for photo in opened(tmp_path).photos] == [b"a", b"b"]


def test_a_row_without_a_photo_is_a_file_error(tmp_path: Path) -> None:
    images = [{"bytes": None, "path": "a.jpg"}, None]
    schema = pyarrow.schema(
        {
            "image": pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()}),
            "label": pyarrow.int64(),
        }
    )
    parquet.write_table(
        pyarrow.table({"image": images, "label": [1, 1]}, schema=schema), tmp_path / "x.parquet"
    )
    for photo in opened(tmp_path).photos:
        with pytest.raises(FileError, match="the row has no photo in it"):
            read_bytes(photo.place)
    for row_group, row, message in [
        (0, 2, "no photo in it"),
        (0, -1, "no photo in it"),
        (1, 0, "1 row groups"),
    ]:
        with pytest.raises(FileError, match=message):
            read_bytes(Cell(tmp_path / "x.parquet", row_group, row))


def test_other_columns_are_refused(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": ["a"], "label": [1]}), tmp_path / "x.parquet")
    with pytest.raises(
        FileError,
        match="expected columns 'image' of bytes and 'label', got text \\(UTF8\\), label \\(INT64\\)",
    ):
        opened(tmp_path)


def test_a_text_that_many_rows_share_is_kept_once(tmp_path: Path) -> None:
    """As it is in the file, where two million rows may share it."""
    path, rows = tmp_path / "x.parquet", 50_000
    columns = {"image": [b"a"] * rows, "label": shared(pyarrow.array(["n" * 4096]), rows)}
    parquet.write_table(pyarrow.table(columns), path, store_schema=False)
    found = read_table(path).rows
    assert path.stat().st_size < rows and len(found) == rows and len({id(row.label) for row in found}) == 1


@pytest.mark.parametrize("column", ["label", "image"])
def test_long_texts_are_refused(column: str, tmp_path: Path) -> None:
    long = {
        "label": ["n01440764", "n" * 4097],
        "image": [{"bytes": b"a", "path": "p" * 4097}, {"bytes": b"b", "path": "p"}],
    }
    columns = {"image": [b"a", b"b"], "label": [1, 2], column: long[column]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    with pytest.raises(
        FileError, match="a label or file name has 4,097 characters, and porter reads at most 4,096"
    ):
        opened(tmp_path)


def test_much_text_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path / "x.parquet", [(f"{number}.jpg", 1) for number in range(1000)])
    opened(tmp_path)
    monkeypatch.setattr(porter.data.parquet_file, "_MAX_TEXT", 1000)
    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", None)
    with pytest.raises(FileError, match="bytes of labels and file names, and porter reads at most 1,000"):
        opened(tmp_path)


def test_sizes_of_columns_are_those_that_pyarrow_tells(tmp_path: Path) -> None:
    pairs = pyarrow.array([[("a", 1)]] * 9, pyarrow.map_(pyarrow.string(), pyarrow.int32()))
    columns = {
        "image": [{"bytes": b"x", "path": "a.jpg"}] * 9,
        "label": [*range(9)],
        "pairs": pairs,
        "seen": [True] * 9,
    }
    parquet.write_table(
        pyarrow.table(columns), tmp_path / "x.parquet", row_group_size=2, write_page_index=True
    )
    path = tmp_path / "x.parquet"
    metadata, groups = parquet.read_metadata(path), read_row_groups(path)
    assert [len(group) for group in groups] == [6] * 5
    for place, group in enumerate(groups):
        for chunk, column in zip(group, map(metadata.row_group(place).column, range(6)), strict=True):
            assert (chunk.name, chunk.size) == (column.path_in_schema, column.total_compressed_size)
            assert chunk.start == (column.dictionary_page_offset or column.data_page_offset)
            # It counts the headers of the pages too.
            assert 0 < column.total_uncompressed_size - unpacked_bytes(path, [chunk]) < 200


def test_a_damaged_schema_is_one_error(tmp_path: Path) -> None:
    """pyarrow itself ends the process where it is asked for the sizes of this column."""
    path = table(tmp_path / "x.parquet", [("a.jpg", 1), ("b.jpg", 2)])
    path.write_bytes(path.read_bytes().replace(b"%\x02\x18\x04path", b"$\x02\x18\x04path"))
    with pytest.raises(FileError, match="cannot be read as a Parquet file"):
        opened(tmp_path)


@pytest.mark.parametrize("column", ["label", "image"])
def test_columns_of_a_fixed_length_are_refused(column: str, tmp_path: Path) -> None:
    """A few hundred bytes hold two million rows of a megabyte each, which pyarrow would lay out one by
    one.
    """
    wide = shared(pyarrow.array([b"x" * 99], pyarrow.binary(99)), 9)
    columns = {"image": [b"a"] * 9, "label": [1] * 9, column: wide}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet", store_schema=False)
    with pytest.raises(FileError, match=f"expected columns .*, got .*{column} \\(FIXED_LEN_BYTE_ARRAY\\)"):
        opened(tmp_path)
    if column == "image":
        with pytest.raises(FileError, match="no column 'image' of bytes"):
            read_bytes(Cell(tmp_path / "x.parquet", 0, 0))


def test_texts_that_are_none_and_columns_of_one_name_are_file_errors(tmp_path: Path) -> None:
    no_text = pyarrow.Array.from_buffers(pyarrow.string(), 1, pyarrow.array([b"\xff"]).buffers())
    for columns, names in [
        ([[b"a"], no_text], ["image", "label"]),
        ([[b"a"], [1], [2]], ["image", "label", "label"]),
    ]:
        parquet.write_table(
            pyarrow.table([pyarrow.array(column) for column in columns], names), tmp_path / "x.parquet"
        )
        with pytest.raises(FileError, match="cannot be read as a Parquet file"):
            opened(tmp_path)


def test_row_groups_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = opened(table(tmp_path / "x.parquet", [(None, 1)]))
    monkeypatch.setattr(porter.data.parquet_file, "_MAX_ROW_GROUP", 10)
    with pytest.raises(FileError, match="row group 0 has more than 10 bytes"):
        read_bytes(found.photos[0].place)


def test_a_row_group_that_unpacks_to_far_more_than_its_file_is_refused(tmp_path: Path) -> None:
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    photo = pyarrow.array([{"bytes": bytes(65 << 20), "path": "a.jpg"}], kind)
    columns = pyarrow.table({"image": photo, "label": pyarrow.array([1])})
    parquet.write_table(columns, tmp_path / "x.parquet", compression="zstd", use_dictionary=False)
    found = opened(tmp_path)
    with pytest.raises(FileError, match="row group 0 has more than 67,108,864 bytes"):
        read_bytes(found.photos[0].place)


def test_broken_files_are_file_errors(tmp_path: Path) -> None:
    path = table(tmp_path / "x.parquet", [(None, 1)] * 50)
    whole = path.read_bytes()
    for length in range(4, len(whole), len(whole) // 40):
        path.write_bytes(whole[:length])
        with pytest.raises(FileError, match="cannot be read as a Parquet file"):
            opened(path)
    path.unlink()
    with pytest.raises(FileError, match="cannot be read"):
        read_bytes(Cell(path, 0, 0))


def test_without_pyarrow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path / "x.parquet", [(None, 1)])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NotInstalled) as caught:
        opened(path)
    assert caught.value.next == install("data")


def test_more_rows_than_a_data_set_has_are_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path / "x.parquet", [(None, 1)] * 6)
    monkeypatch.setattr(porter.data.parquet_file, "MAX_ROWS", 6)
    assert len(opened(path).photos) == 6
    monkeypatch.setattr(porter.data.parquet_file, "MAX_ROWS", 5)
    with pytest.raises(FileError, match="6 rows, and porter reads at most 5"):
        opened(path)


def test_a_photo_that_many_rows_share_takes_memory_once(tmp_path: Path) -> None:
    photo, rows = bytes(1 << 20), 200
    parquet.write_table(
        pyarrow.table({"image": [{"bytes": photo, "path": None}] * rows, "label": [1] * rows}),
        tmp_path / "x.parquet",
        dictionary_pagesize_limit=2 << 20,
    )
    before = pyarrow.total_allocated_bytes()
    assert read_bytes(Cell(tmp_path / "x.parquet", 0, rows - 1)) == photo
    assert pyarrow.total_allocated_bytes() - before < 10 * len(photo)


@pytest.mark.parametrize("packed", ["image", "label"])
def test_what_a_file_says_of_its_pages_is_not_believed(
    packed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end said that a row group has ten bytes: 30 KB took 4.6 GB."""
    long = {"image": [b"x" * 400_000], "label": ["x" * 400_000]}
    columns = {"image": [b"a"], "label": [1], packed: long[packed]}
    path = tmp_path / "x.parquet"
    parquet.write_table(
        pyarrow.table(columns), path, compression="zstd", use_dictionary=False, write_statistics=False
    )
    data, group = path.read_bytes(), parquet.ParquetFile(path).metadata.row_group(0)
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    said = data[end:]
    for size in {group.total_byte_size, group.column(0 if packed == "image" else 1).total_uncompressed_size}:
        number = bytes([size << 1 & 127 | 128, size >> 6 & 127 | 128, size >> 13])
        assert number in said
        said = said.replace(number, b"\x94\x80\x00")  # 10, in as many bytes
    path.write_bytes(data[:end] + said)
    assert parquet.ParquetFile(path).metadata.row_group(0).total_byte_size == 10
    monkeypatch.setattr(porter.data.parquet_file, "_SMALL_ROW_GROUP", 300_000)
    monkeypatch.setattr(porter.data.parquet_file, "_EXPANSION", 1)
    monkeypatch.setattr(porter.data.parquet_file, "_MAX_TEXT", 300_000)
    message = {"image": "row group 0 has more than 300,000", "label": "bytes of labels and file names"}[
        packed
    ]
    with pytest.raises(FileError, match=message):
        read_bytes(opened(path).photos[0].place)


def test_a_page_whose_values_repeat_each_other_is_refused(tmp_path: Path) -> None:
    """A value of DELTA_BYTE_ARRAY states how much of the one before it it repeats: a megabyte is any number
    of them.
    """
    columns = pyarrow.table({"image": [b"a" * 1000] * 9, "label": [1] * 9})
    encoding = {"image": "DELTA_BYTE_ARRAY", "label": "PLAIN"}
    parquet.write_table(columns, tmp_path / "x.parquet", use_dictionary=False, column_encoding=encoding)
    with pytest.raises(FileError, match="a page has the encoding DELTA_BYTE_ARRAY"):
        read_bytes(opened(tmp_path).photos[0].place)


def test_a_place_behind_the_values_that_rows_share_is_a_file_error(tmp_path: Path) -> None:
    """Found by fuzzing: Arrow takes such places as they are, and raises an error of its own when a photo is
    taken.
    """
    path, said = table(tmp_path / "x.parquet", [(None, 1)] * 3), list[str]()
    whole = path.read_bytes()
    for place in range(4, len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 2]) + whole[place + 1 :])
        try:
            for row in read_table(path).rows:
                read_bytes(Cell(path, row.row_group, row.row))
        except FileError as error:
            said.append(str(error))
    assert any("out of bounds" in message for message in said)
