"""timm's own models that pad as TensorFlow does."""

from __future__ import annotations

from porter.zoos.tables import TIMM_TF
from porter.zoos.timm import implementation

IMPLEMENTATION = implementation(TIMM_TF)
