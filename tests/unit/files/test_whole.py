from __future__ import annotations

import os
from pathlib import Path

import pytest

from porter.base.errors import FileError
from porter.files import behind_links, expect_folder, new_folder, write_whole
from porter.port import OWN_FOLDERS


def test_the_new_text_takes_the_old_ones_place(tmp_path: Path) -> None:
    for text in ("first", "second, µ"):
        write_whole(tmp_path / "port.json", text)
        assert (tmp_path / "port.json").read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == ["port.json"]


def test_what_cannot_be_written_leaves_the_old_text(tmp_path: Path) -> None:
    write_whole(tmp_path / "port.json", "first")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "port.json", "half of a pair \ud800")
    assert (tmp_path / "port.json").read_text() == "first" and len(list(tmp_path.iterdir())) == 1


def test_a_link_in_the_way_is_replaced_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("untouched")
    for name in (".port.json.porter-new", "port.json"):
        (tmp_path / name).symlink_to("other")
    write_whole(tmp_path / "port.json", "text")
    assert not (tmp_path / "port.json").is_symlink() and (tmp_path / "port.json").read_text() == "text"
    assert (tmp_path / "other").read_text() == "untouched"


def test_the_target_of_a_link_that_the_user_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "answers.csv").symlink_to("there.csv")
    expect_folder(tmp_path / "answers.csv")
    write_whole(behind_links(tmp_path / "answers.csv"), "text")
    assert (tmp_path / "answers.csv").is_symlink() and (tmp_path / "there.csv").read_text() == "text"


def test_a_device_or_a_pipe_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for refused in (
        lambda: write_whole(tmp_path / "pipe", "text"),
        lambda: expect_folder(tmp_path / "link"),
        lambda: expect_folder(Path(os.devnull)),
    ):
        with pytest.raises(FileError, match="found a device, a pipe or a socket"):
            refused()
    assert (tmp_path / "pipe").is_fifo() and len(list(tmp_path.iterdir())) == 2


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        write_whole(tmp_path / "missing" / "port.json", "text")


def test_what_a_killed_write_left_does_not_stop_an_overwrite(tmp_path: Path) -> None:
    for name in ("port.json", ".port.json.porter-new", "evaluation.json"):
        (tmp_path / "port").mkdir(exist_ok=True)
        (tmp_path / "port" / name).write_text("{}")
    with new_folder(tmp_path / "port", OWN_FOLDERS) as fresh:
        (fresh / "port.json").write_text("new")
    assert [path.name for path in (tmp_path / "port").iterdir()] == ["port.json"]
