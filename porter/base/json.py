"""What a file of JSON states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = Mapping[str, Any]
