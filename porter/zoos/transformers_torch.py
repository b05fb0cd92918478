"""transformers' own models that pad as torch does where its others pad as TensorFlow does."""

from __future__ import annotations

from porter.zoos.tables import TRANSFORMERS_TORCH
from porter.zoos.transformers import implementation

IMPLEMENTATION = implementation(TRANSFORMERS_TORCH)
