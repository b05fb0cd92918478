"""What the code of a port says of layers that its source has and that compute something in training only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from porter.base.left_out import LeftOut
from porter.graph.graph import INPUT


def notes_on(left_out: Iterable[LeftOut]) -> Mapping[str, str]:
    """Return notes for the code of a port on layers that its source has and that act in training only, by the
    path of the node that they stand behind.
    """
    words_by_path: dict[str, list[str]] = {}
    for layer in left_out:
        if layer.after is not None:
            words_by_path.setdefault(layer.after, []).append(layer.words)
    return {path: _note(path, words) for path, words in words_by_path.items()}


def _note(path: str, words: list[str]) -> str:
    """Write the note at a node: `behind it the source has Dropout(0.5), which acts in training only`. `words`
    are those of the layers.
    """
    where = "in front of it" if path == INPUT else "behind it"
    acts = "which acts" if len(words) == 1 else "which act"
    return f"{where} the source has {', '.join(words)}, {acts} in training only"
