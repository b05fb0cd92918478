"""The weights that a port is compared with again."""

from pathlib import Path
from typing import NoReturn

import pytest

import porter
from porter.errors import DownloadError
from porter.files import download
from tests.conftest import WeightsMaker

VARIANT = "mobilenet_v2_0.35"


def offline(location: str, partial: Path) -> NoReturn:
    raise DownloadError("cannot be reached", where=location)


def test_a_port_of_ones_own_weights_asks_for_them_where_the_published_ones_cannot_be_had(
    weights_file: WeightsMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = weights_file(VARIANT, "keras", ".h5")
    porter.convert(VARIANT, "keras", "torch", weights=weights, out=tmp_path / "port", check=False)
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "copy_or_download", offline)
    with pytest.raises(DownloadError) as caught:
        porter.verify(tmp_path / "port")
    assert str(caught.value.next).startswith(f"give --weights the {weights.name} that the port was made from, or put the file at")
