"""What a stranger's JSON may hold."""

from __future__ import annotations

import pytest

from porter.formats.limits import read_json


@pytest.mark.parametrize(
    "text", ['["\\ud83d\\ude00"]', '["\\\\ud800"]', '["\U0001f600"]', '\ufeff["\u00e9"]']
)
def test_whole_characters_are_read_as_text_and_as_bytes(text: str) -> None:
    assert read_json(text.encode()) == read_json(text.removeprefix("\ufeff"))


@pytest.mark.parametrize("text", ['["\\ud800"]', '{"\\uDFFF": 1}', '["\\ude00\\ud83d"]'])
def test_halves_of_characters_are_refused_because_nothing_can_write_them(text: str) -> None:
    for given in (text, text.encode()):
        with pytest.raises(ValueError, match="surrogates not allowed"):
            read_json(given)
    with pytest.raises(ValueError, match="invalid continuation"):
        read_json(b'["\xed\xa0\x80"]')
