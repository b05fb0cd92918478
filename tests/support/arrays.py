"""Arrays as tests know them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
"""Tests reckon with arrays whose number type only the case says. porter's own Array forbids that."""
