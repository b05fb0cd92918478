"""A class of a framework's own library of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StockClass:
    """How to build a model that gives logits: the name of a class or function, and its arguments, which JSON can hold."""

    name: str
    arguments: Mapping[str, Any]
