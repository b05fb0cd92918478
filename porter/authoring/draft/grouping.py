"""What the names of a file's layers say of their groups."""

from __future__ import annotations

import re

from porter.authoring.draft.layers import Listed

_HALF = re.compile(r"/(depthwise|pointwise)_(kernel|weights)$")


def groups_of(listed: Listed) -> dict[str, tuple[str, ...]]:
    """By layer, the beginnings of its name that it shares with all layers between the first and the last that have it, two or more
    that are no norms; the shortest first.
    """
    found = {layer.name: [layer.name[:end] for end in _ends(layer.name)] for layer in listed.layers}
    places: dict[str, list[int]] = {}
    holding = [layer for layer in listed.layers if not layer.is_norm]
    for place, layer in enumerate(holding):
        for group in found[layer.name]:
            places.setdefault(group, []).append(place)
    kept = {group for group, own in places.items() if 1 < len(own) == own[-1] - own[0] + 1}
    return {name: tuple(group for group in groups if group in kept) for name, groups in found.items()}


def _ends(name: str) -> list[int]:
    """Where the parts of a name end, without the last. A kernel of a separable convolution is no part."""
    name = _HALF.sub("", name)
    return [match.start() for match in re.finditer(r"[./]", name)] or [match.start() for match in re.finditer("_", name)]


def parent(name: str) -> tuple[str, str]:
    """What a layer's name begins with, and its last part."""
    ends = _ends(name)
    return (name[: ends[-1]], name[ends[-1] + 1 :]) if ends else ("", name)
