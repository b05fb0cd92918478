"""What a terminal is shown of names that may hold anything."""

import signal

import pytest

from porter.base.errors import FileError, escaped, first_line, signal_name, some

ORDINARY = (
    "features.0.0.weight",
    "C:\\photos\\n01440764",
    "naïve café, Größe, 写真, фото, תמונה, صورة",
    "نمی\u200cخواهم",  # Persian joins and keeps apart with an invisible character
    "👩\u200d🔬 e\u0301 15\u202f%\u00a0",
    "",
)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m\x7f\x00", "\\x9b31m\\x7f\\x00"),
        ("a\r\n\tb\x85\u2028\u2029", "a\\r\\n\\tb\\x85\\u2028\\u2029"),
        ("photo\u202egpj.exe\u2066\u200f\u061c", "photo\\u202egpj.exe\\u2066\\u200f\\u061c"),
        ("\udcff\ufeff\U000e0041", "\\udcff\\ufeff\\U000e0041"),
        ("Größe\x1b[1m", "Größe\\x1b[1m"),
    ],
)
def test_what_acts_on_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert escaped(text) == shown == escaped(shown)


def test_what_a_stranger_called_something_makes_no_page() -> None:
    error = FileError(f"tensor '{'a' * 70_000}' is damaged", where="x.onnx")
    assert (
        len(str(error)) < 2100
        and str(error).startswith("x.onnx: tensor 'aaa")
        and str(error).endswith("aaa' is damaged")
    )


def test_what_another_library_says_ends_after_a_word() -> None:
    words = " ".join(["shapes", "cannot", "be", "multiplied"] * 20)
    said = first_line(RuntimeError(f"{words}\nand more"))
    assert len(said) <= 204 and said.endswith(" ...") and words.startswith(f"{said.removesuffix(' ...')} ")
    assert first_line(RuntimeError(f" {words[:200]}\n")) == words[:200]
    assert first_line(RuntimeError("a" * 300)) == f"{'a' * 200} ..."
    assert first_line(KeyError()) == "KeyError"


def test_a_list_says_how_many_more_it_has() -> None:
    assert some([*"abcde"]) == "a, b, c, d, e" and some([*"abcdefg"]) == "a, b, c, d, e, and 2 more"
    assert some([]) == ""


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    assert signal_name(signal.SIGTERM) == "SIGTERM" and signal_name(999) == "signal 999"
