"""What the reference `keras_applications` builds, and what it refuses."""

from __future__ import annotations

import sys

import pytest

from porter.base.errors import NotInstalled, UsageError
from porter.zoos.keras_applications import construct


def test_a_variant_or_a_size_that_it_does_not_have() -> None:
    pytest.importorskip("keras_applications")
    with pytest.raises(UsageError, match="'keras_applications' has no variant 'resnet50'"):
        construct("resnet50", 10, (64, 64))
    with pytest.raises(
        UsageError, match=r"keras-applications cannot build resnext50_32x4d at 8x8: .*at least 32"
    ):
        construct("resnext50_32x4d", 10, (8, 8))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras_applications.resnext", None)
    with pytest.raises(NotInstalled, match="keras-applications cannot be imported") as caught:
        construct("resnext50_32x4d", 10, (64, 64))
    assert caught.value.next == "pip install Keras-Applications==1.0.8"
