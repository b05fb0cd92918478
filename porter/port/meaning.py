"""What the input and the output of a source, and of its port, mean."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from porter.data.preprocess import Preprocess


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a user of a model has to know. An opened source has it, and a port's record has the same fields.

    Attributes:
        preprocess: the protocol that turns a photo into the source's input.
        labels: the map of the classes; None if the file's head is not the zoo's own.
        classes: of the port; 0 if the source has no head.
        source_classes: rows of the file's head.
        background: the first row of the port's head is ImageNet's background class.
        activation: the source's own after its output, which the port lacks.
        licence: of the zoo's published file; None for any other file.
    """

    preprocess: Preprocess | None
    labels: str | None
    classes: int
    source_classes: int
    background: bool
    output: Literal["logits", "features"]
    activation: str | None
    licence: str | None


def meaning_of(holder: object) -> dict[str, Any]:
    """The fields of Meaning that an opened source or a record holds."""
    return {field.name: getattr(holder, field.name) for field in fields(Meaning)}
