"""The models of timm that scripts/exported ports."""

from __future__ import annotations

import pytest

from porter.zoos.torchvision import import_models
from tests.support.timm_models import MODULES


@pytest.mark.full
def test_every_module_of_timm_has_a_small_model() -> None:
    import_models()  # timm imports torchvision
    import timm

    found = [timm.model_entrypoint(name).__module__.rpartition(".")[2] for name in MODULES]
    assert sorted(found) == timm.list_modules()
