"""timm's own models that pad as TensorFlow does."""

from __future__ import annotations

from porter.zoos.implementation import Implementation
from porter.zoos.tables import TIMM_TF
from porter.zoos.timm import import_timm
from porter.zoos.torchvision import build_by

IMPLEMENTATION = Implementation(build_by("timm", TIMM_TF, import_timm), runs_at_any_size=lambda variant: True)
