"""Passes over the photos, each for the ports that can share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from porter.data.classes import Classes
from porter.data.photos import PhotoSet
from porter.data.preprocess import CropRounding, Preprocess
from porter.evaluation import unfinished
from porter.evaluation.distributed import Process
from porter.evaluation.measuring import Entrant, Measured, measure
from porter.evaluation.photo_options import Options


@dataclass(frozen=True)
class Passes:
    """What this process measured, by the place of each entrant, and where each pass is kept if the run does
    not end.
    """

    measured: dict[int, Measured] = field(default_factory=dict)
    files: dict[Path, list[int]] = field(default_factory=dict)

    def settle(self, is_complete: bool) -> bool:
        """Keep all passes for the next run, or drop them after a whole run. Return whether they are kept;
        False also where a file cannot be written, or nothing was scored.
        """
        if is_complete:
            for file in self.files:
                unfinished.drop(file)
            return False
        measured_by_file = {
            file: [self.measured[index] for index in places] for file, places in self.files.items()
        }
        # a list, so that a pass that cannot be written keeps none of the others from being written
        kept = [
            unfinished.keep(file, group)
            for file, group in measured_by_file.items()
            if group[0].scored.reached.any()
        ]
        return all(kept)


def is_complete(part: Mapping[int, Measured], entrants: int) -> bool:
    """Return whether a process measured all of so many entrants on all its photos."""
    return len(part) == entrants and all(measured.scored.complete for measured in part.values())


def run_passes(
    entrants: Sequence[Entrant],
    sets: Mapping[Classes, PhotoSet],
    options: Options,
    process: Process,
    afresh: bool,
) -> Passes:
    """Run a pass over the photos for each group of ports that share one, because they take the same pixels
    and tell the same classes apart. Go on where an earlier run was ended, unless `afresh`; Ctrl-C ends the
    pass, and those after it are not run.

    Args:
        sets: the photos of each group's classes.

    Raises:
        KeyboardInterrupt: Ctrl-C came before the first photos were scored.
    """
    # the places of the entrants of each group
    groups: dict[tuple[Classes, Preprocess, int | None, CropRounding], list[int]] = {}
    for index, entrant in enumerate(entrants):
        # Ports with the same key get the same pixels.
        key = (
            entrant.port.record.label_classes,
            entrant.protocol.geometry,
            entrant.protocol.crop,
            entrant.protocol.rounding,
        )
        groups.setdefault(key, []).append(index)
    passes = Passes()
    for (classes, *_), places in groups.items():
        members, photos = [entrants[index] for index in places], sets[classes].photos
        file = unfinished.file_of_pass(members, photos, options, process)
        try:
            earlier = None if afresh else unfinished.read_kept(file, len(photos))
            group = measure(members, photos, options, process, earlier, partial(unfinished.keep, file))
        except KeyboardInterrupt:
            if not passes.measured:
                raise
            break
        passes.measured.update(zip(places, group, strict=True))
        passes.files[file] = places
        if not group[0].scored.complete:
            break
        # A whole group is kept in case a later one is interrupted.
        if len(passes.measured) < len(entrants):
            unfinished.keep(file, group)
    return passes
