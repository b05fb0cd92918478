"""What is known of the ports of porter's own recipes: each was compared with the zoo's code, with calibrated
random weights.

`scripts/parity` measures them, and writes proofs.json beside the recipes and docs/parity.md. A conversion
proves its own port in any case; this says beforehand what to expect.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from porter.recipe.load import recipes_folder
from porter.recipe.recipe import Member

FILE = "proofs.json"


@dataclass(frozen=True)
class Proof:
    """How a zoo's variant fares in a destination.

    Attributes:
        outcome: `exact`; `refused`, with the `reason`; `unproven` where nobody has compared it.
        float64: the worst relative L2 distance of any node in float64; 0 is equal bit for bit. The limit is
            1e-10.
        of: what was compared in float64, where that is not the port's file: `Keras build`, which TensorFlow
            Lite's converter is given. The file is compared in float32.
        reference: what it was compared with.
        date: of the measurement.
    """

    outcome: Literal["exact", "refused", "unproven"]
    float64: float | None = None
    of: str | None = None
    reference: str | None = None
    date: str | None = None
    reason: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the record that `--json` prints."""
        return asdict(self)


def proof_of(member: Member, destination: str) -> Proof:
    """Return what is known of a port to `destination` (its folder's name). Nothing is known of other people's
    recipes.
    """
    folder = recipes_folder()
    if member.recipe.path.parent != folder:
        return Proof("unproven")
    return _read(folder / FILE).get(f"{member.variant}/{member.zoo.name}/{destination}", Proof("unproven"))


@lru_cache(maxsize=1)
def _read(file: Path) -> dict[str, Proof]:
    """Return the proofs in a file by VARIANT/ZOO/DESTINATION; nothing if the file is not there."""
    if not file.is_file():
        return {}
    return {name: Proof(**row) for name, row in json.loads(file.read_text(encoding="utf-8")).items()}
