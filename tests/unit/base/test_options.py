"""How options are typed, and what is given for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import porter
from porter.base.errors import PorterError, UsageError
from porter.base.options import items
from porter.padding import ANY
from porter.padding.sizes import parse_size


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (224, (224, 224)),
        ((225, 201), (225, 201)),
        ([225, 201], (225, 201)),
        ("225x201", (225, 201)),
        ("any", ANY),
    ],
)
def test_a_size_is_a_number_a_pair_or_a_text(given: Any, size: object) -> None:
    assert parse_size(given) == size


@pytest.mark.parametrize("given", [0, -1, 2.5, True, (), (1, 2, 3), ("a", 2), (224, None), "", "axb", 10**9])
def test_what_is_no_size_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="is not an input size"):
        parse_size(given)


def test_one_text_is_one_item() -> None:
    assert (
        items("conv1=stem/conv") == ("conv1=stem/conv",)
        and items(["a", "b"]) == ("a", "b")
        and items(None) == ()
    )


def test_a_size_and_one_text_go_through_the_api(tmp_path: Path) -> None:
    (tmp_path / "weights.h5").write_bytes(b"none")
    for size in (224, (224, 224), "224"):
        with pytest.raises(PorterError) as refused:
            porter.convert(
                "mobilenet_v2",
                "keras",
                weights=tmp_path / "weights.h5",
                input_size=size,
                mapped="a=head/logits",
            )
        assert refused.value.where == str(tmp_path / "weights.h5")
