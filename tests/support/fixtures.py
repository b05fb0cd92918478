"""What the fixtures of tests/conftest.py give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # both import frameworks
    from tests.support.finetuned_keras import FineTuned
    from tests.support.slim_files import SlimFile


@dataclass(frozen=True)
class Ran:
    """The command, as it ended."""

    status: int
    out: str
    err: str


Cli = Callable[..., Ran]
WeightsMaker = Callable[..., Path]
SlimMaker = Callable[["SlimFile"], Path]
FineTunedMaker = Callable[[str], "FineTuned"]
