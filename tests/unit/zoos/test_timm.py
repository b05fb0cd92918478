"""timm's own models as references."""

from pathlib import Path

import pytest
import torch

from porter.base.errors import UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.zoos.implementation import BuildRequest, get_implementation
from porter.zoos.timm import import_timm
from porter.zoos.torchvision import import_models


def test_any_model_of_the_installed_timm_is_a_reference() -> None:
    """A recipe of a user's own names one that porter has no recipe for."""
    import_models()  # timm imports torchvision, which does not import by itself beside every torch
    pytest.importorskip("timm")
    model = import_timm().create_model("test_resnet", num_classes=5).eval()
    tensors = {name: value.numpy() for name, value in model.state_dict().items()}
    checkpoint = Checkpoint(Path("weights"), "torch", "torch", tensors)
    build = get_implementation("timm").build
    built = build(BuildRequest("test_resnet", 5, (64, 64), checkpoint, "float64"))
    image = torch.randn(1, 3, 64, 64)
    assert torch.allclose(built(image.double()).float(), model(image), atol=1e-5)
    with pytest.raises(UsageError, match="porter knows no timm model 'no_such_model'"):
        build(BuildRequest("no_such_model", 5, (64, 64), checkpoint, "float64"))
