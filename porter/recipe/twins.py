"""Twins: two zoos' variants that take the same tensors and compute something else, such as timm's tf_ models and its others.

A strict load of a twin's weights succeeds, and its answers are wrong. Those among porter's own recipes are kept beside them in
twins.json, so that no recipe has to be expanded to know them. `python -m tests.twins` computes the file from the recipes, and a
test holds it to them. If it was made from other texts than those beside it, it is not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from porter.recipe.fingerprints import digest
from porter.recipe.load import recipes_folder
from porter.recipe.model import Member

FILE = "twins.json"


@dataclass(frozen=True)
class Twin:
    """A variant of another zoo. `differs` says what it computes otherwise, a line for each kind of steps."""

    variant: str
    zoo: str
    differs: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.variant} from {self.zoo}"


Twins = Mapping[str, Mapping[str, Mapping[str, tuple[Twin, ...]]]]
"""By the name of the recipe's file, by variant, by zoo."""


def shipped_twins(member: Member) -> tuple[Twin, ...] | None:
    """Those of a member of porter's own recipes; None if they are not known: of another recipe, or with other options."""
    folder = recipes_folder()
    file = folder / FILE
    if member.zoo.chosen or not file.is_file() or not member.recipe.path.parent.samefile(folder):
        return None
    status = file.stat()
    found = _read(file, status.st_mtime_ns, status.st_size, digest(folder))
    return None if found is None else found.get(member.recipe.path.name, {}).get(member.variant, {}).get(member.zoo.name, ())


@lru_cache(maxsize=1)
def _read(file: Path, changed: int, size: int, texts: str) -> Twins | None:
    content = json.loads(file.read_text(encoding="utf-8"))
    if content["sha256"] != texts:
        return None
    return {
        name: {
            variant: {
                zoo: tuple(Twin(each["variant"], each["zoo"], tuple(each["differs"])) for each in listed)
                for zoo, listed in zoos.items()
            }
            for variant, zoos in variants.items()
        }
        for name, variants in content["twins"].items()
    }
