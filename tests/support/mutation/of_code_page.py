"""Runs mistakes in porter's source, and words what came of them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.checkout import ROOT
from tests.support.mutation import corpus
from tests.support.mutation.of_code import Mistake, mistakes_in

ROOMS = ("formats", "filegraph", "fitting", "graph", "padding", "source", "frameworks")
EACH = 3
"""So many files are ported under a mistake: those that run the fewest lines, among those that run its
line.
"""


def run(folder: Path, log: Path, count: int, seed: int) -> list[dict[str, str]]:
    """Plants `count` mistakes on lines that the corpus runs; a log that exists is continued.

    Args:
        folder: of the corpus, which is made if it is not there.
    """
    if not any(folder.glob("*/item.json")):
        # In another process, because one that has run TensorFlow cannot be forked.
        making = (
            "from pathlib import Path; from tests.support.mutation.corpus import make; "
            f"make(Path({str(folder)!r}))"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", making], cwd=ROOT, check=True)
    from tests.support.mutation.of_code_trial import lines_of, outcome, warm

    warm()
    items = corpus.read(folder)
    lines = {item.name: lines_of(item) for item in items}
    sizes = {name: sum(map(len, found.values())) for name, found in lines.items()}

    def ported(mistake: Mistake) -> list[corpus.Item]:
        chosen = [item for item in items if mistake.line in lines[item.name].get(str(mistake.file), ())]
        return sorted(chosen, key=lambda item: sizes[item.name])[:EACH]

    files = [file for room in ROOMS for file in sorted((ROOT / "porter" / room).rglob("*.py"))]
    every = [mistake for file in files for mistake in mistakes_in(file) if ported(mistake)]
    print(f"{len(items)} files, {len(every)} mistakes on lines that they run", flush=True)
    known = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {each["key"] for each in known}
    for mistake in random.Random(seed).sample(every, min(count, len(every))):
        key = str(Path(mistake.key).relative_to(ROOT))
        if key in done:
            continue
        start = time.monotonic()
        state, shown = outcome(mistake, ported(mistake))
        known.append(
            {
                "key": key,
                "kind": mistake.kind,
                "state": state,
                "file": shown,
                "seconds": f"{time.monotonic() - start:.1f}",
            }
        )
        with log.open("a", encoding="utf-8") as out:
            out.write(json.dumps(known[-1]) + "\n")
        if state == "proved and wrong":
            print(f"proved and wrong: {key} ({mistake.kind}), shown by {shown}", flush=True)
    return known


def table(found: Sequence[Mapping[str, str]]) -> str:
    """A line for each room: how many of its mistakes ended in which way."""
    states = ("refused", "crashed", "slow", "unproved", "equal", "proved and wrong", "not planted")
    rows = {
        room: Counter(each["state"] for each in found if each["key"].split("/")[1] == room) for room in ROOMS
    }
    lines = [f"| room | mistakes | {' | '.join(states)} |", "|---" * (len(states) + 2) + "|"]
    lines += [
        f"| {room} | {sum(row.values())} | {' | '.join(str(row[state]) for state in states)} |"
        for room, row in rows.items()
    ]
    return "\n".join(lines)
