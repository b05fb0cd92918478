"""Moving averages of weights, which a training file holds beside the weights. They were evaluated and
published.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from porter.base.errors import MappingError, some

_STATISTICS = ("mean", "variance")


def prefer_averages(
    found: Mapping[tuple[str, str], str], names: Collection[str], suffix: str | None
) -> tuple[dict[tuple[str, str], str], dict[str, str], tuple[str, ...]]:
    """Replaces each tensor by its moving average, if there is one.

    TF-slim's evaluation restores `X/ExponentialMovingAverage` into `X`
    (research/slim/eval_image_classifier.py, `variables_to_restore`): always for the trained variables, and
    for a batch norm's statistics if training averaged these too.

    Args:
        found: (path, role) to source tensor name.
        names: every tensor of the file.
        suffix: an average's name is the tensor's name with this suffix; None if the framework has no such
            convention.

    Returns:
        `found` with the averages, the unused names with the reason, and a note.

    Raises:
        MappingError: only some of the trained variables, or of the statistics, have an average.
    """
    chosen = dict(found)
    if suffix is None:
        return chosen, {}, ()
    counts = []
    for group, wanted in (("weights", False), ("batch norm statistics", True)):
        members = {key: name for key, name in found.items() if (key[1] in _STATISTICS) == wanted}
        averaged = {key: f"{name}{suffix}" for key, name in members.items() if f"{name}{suffix}" in names}
        lacking = sorted(name for key, name in members.items() if key not in averaged)
        if averaged and lacking:
            raise MappingError(
                f"{len(averaged)} of {len(members)} {group} have a moving average, {len(lacking)} have "
                f"none: {some(lacking)}",
                next="the file is incomplete; save it again, all averages or none",
            )
        chosen |= averaged
        counts.append(f"all {len(averaged)} {group}" if averaged else f"no {group}")
    unused = {name: "its moving average is used" for key, name in found.items() if chosen[key] != name}
    return chosen, unused, (f"using moving averages for {' and '.join(counts)}",) if unused else ()
