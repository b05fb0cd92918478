"""What a port's record says of where its weights come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from porter.port.recorded_files import Strict

By = Literal["graph", "metadata", "config.json", "digest", "file name", "user"]
"""What states an origin: the file's own graph or its metadata, the config.json beside it, its digest, which a
zoo publishes, its name, which a release gave it, or the user (`--origin`). Of several, the first is believed.
"""

BY: Mapping[By, str] = {
    "graph": "the file's own graph",
    "metadata": "the file's metadata",
    "config.json": "config.json",
    "digest": "the file's digest",
    "file name": "the file's name",
    "user": "the user",
}
"""What states an origin, in words."""


class Origin(Strict):
    """Where weights come from.

    Attributes:
        says: what is stated, in words, such as `timm's tf_mobilenetv3_small_100`.
        variant, zoo: what that is in a recipe; None where no recipe has it, and where the file's own graph
        says what is computed.
    """

    by: By
    says: str
    variant: str | None = None
    zoo: str | None = None

    @property
    def words(self) -> str:
        """Return what the weights are and who states it, in one phrase: "resnet50.a1_in1k, which is resnet50
        from timm (...)". What the graph says is a sentence already.
        """
        if self.by == "graph":
            return self.says
        name = None if self.variant is None else f"{self.variant} from {self.zoo}"
        statement = self.says if name in (None, self.says) else f"{self.says}, which is {name}"
        return f"{statement} ({BY[self.by]})"
