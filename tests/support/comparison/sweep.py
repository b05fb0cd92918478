"""Mistakes planted in small networks, and what `porter compare` says of them.
`python -m tests.support.comparison.sweep [SEED]` plants twenty of each kind.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from porter.comparison.comparison_result import Comparison
from porter.comparison.found_difference import KINDS, Kind
from porter.comparison.judging import compare_graphs
from porter.comparison.sides import SideProof
from porter.source.open import open_source
from porter.source.opened import Opened
from porter.source.place import InMemory
from porter.source.wishes import Wishes
from tests.support.comparison.plants import SIZE, networks, planted

EACH = 20
_HOLDS = SideProof(True, "not asked: only the reasons are")


class Planted(NamedTuple):
    kind: Kind
    network: str
    seed: int
    found: Comparison

    @property
    def refused(self) -> bool:
        return not self.found.ok

    @property
    def named(self) -> bool:
        """Whether the first difference is of the kind that was planted."""
        return self.found.differences[:1] != () and self.found.differences[0].kind == self.kind


def opened(model: Any) -> Opened:
    return open_source(InMemory(model), Wishes(size=(SIZE, SIZE)))


@cache
def _whole(name: str) -> tuple[Any, Opened]:
    model = networks()[name]()
    return model, opened(model)


def plant(kind: Kind, first: int = 0, count: int = EACH) -> Iterator[Planted]:
    """Plants a kind of mistake in one network after the other, and compares each with the whole one."""
    seed, names = first, list(networks())
    done = 0
    while done < count:
        seed += 1
        name = names[seed % len(names)]
        model, one = _whole(name)
        try:
            other = opened(planted(kind, model, seed))
        except LookupError:  # it has no such layer
            continue
        done += 1
        found = compare_graphs(("whole", "planted"), (one, other), (_HOLDS, _HOLDS), (SIZE, SIZE))
        yield Planted(kind, name, seed, found)


if __name__ == "__main__":
    counts = Counter[str]()
    for kind in KINDS:
        for each in plant(kind, int(sys.argv[1]) if len(sys.argv) > 1 else 0):
            counts.update(planted=1, refused=each.refused, named=each.named)
            said = [f"{one.kind}: {one.text}" for one in each.found.differences[:3]]
            print(
                "ok " if each.named else "BAD",
                kind,
                each.network,
                each.seed,
                each.found.verdict,
                said,
                flush=True,
            )
        print(kind, dict(counts), flush=True)
