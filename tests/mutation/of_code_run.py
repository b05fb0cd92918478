"""Plants mistakes in porter's source, and keeps what came of each."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation import corpus
from tests.mutation.nursery import Nursery
from tests.mutation.of_code import Mistake, mistakes_in
from tests.mutation.of_code_lines import digest_of_source, lines_of
from tests.mutation.of_code_page import ROOMS, worded
from tests.mutation.of_code_trial import nursery, outcome
from tests.support.checkout import ROOT

EACH, OF_A_TABLE = 4, 12
"""So many files are ported under a mistake, of those that run its line: half are the fastest, half are drawn.
Of a mistake in a table so many of those that run any line of its module.
"""
Running = Mapping[tuple[str, int], Sequence[corpus.Item]]
"""The files that run a line of a file of porter's, fastest first; at line 0, any of its lines."""


@dataclass(frozen=True)
class Run:
    """What came of mistakes.

    Attributes:
        files: how many are ported, by their format.
        possible: how many mistakes can be planted on lines that they run.
    """

    found: list[dict[str, str]]
    files: Mapping[str, int]
    possible: int


def run(folder: Path, log: Path, count: int, seed: int, text: str = "") -> Run:
    """Plants `count` mistakes on lines that the corpus runs. A log is continued with what it has of this
    source.

    Args:
        folder: of the corpus, which is made if it is not there.
        text: what the places of the mistakes contain, such as `formats/caffe`.
    """
    if not any(folder.glob("*/item.json")):
        _make(folder)
    items = corpus.read(folder)
    parent = nursery(items)
    running, files = _running(items, parent)
    every = [mistake for mistake in _mistakes(running) if text in _key(mistake)]
    print(f"{sum(files.values())} files, {len(every)} mistakes on lines that they run", flush=True)
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    found = [each for each in map(json.loads, lines) if each.get("source") == digest_of_source()]
    done = {each["key"] for each in found}
    random.Random(seed).shuffle(every)
    for mistake in every[:count]:
        if _key(mistake) in done:
            continue
        found.append(_tried(mistake, running, parent))
        with log.open("a", encoding="utf-8") as out:
            out.write(json.dumps(found[-1]) + "\n")
        if found[-1]["state"] == "proved and wrong":
            print(worded(found[-1]), flush=True)
    return Run(found, files, len(every))


def _make(folder: Path) -> None:
    # In another process, because one that has run TensorFlow cannot be forked.
    making = f"from pathlib import Path; from tests.mutation.corpus import make; make(Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-W", "ignore", "-c", making], cwd=ROOT, check=True)


def _running(items: Sequence[corpus.Item], parent: Nursery) -> tuple[Running, Counter[str]]:
    """The files that run each line, and how many of each format there are. A file that does
    not end equal without a mistake tells nothing, and is left out.
    """
    ran = {item.name: lines_of(item, parent) for item in items}
    for item in items:
        if ran[item.name].state != "equal":
            print(f"{item.name} is left out: it is {ran[item.name].state} without a mistake", flush=True)
    right = [item for item in items if ran[item.name].state == "equal"]
    found: dict[tuple[str, int], list[corpus.Item]] = {}
    for item in sorted(right, key=lambda item: ran[item.name].seconds):
        for file, lines in ran[item.name].lines.items():
            for line in (0, *lines):
                found.setdefault((file, line), []).append(item)
    return found, Counter(item.name.split("-")[0] for item in right)


def _mistakes(running: Running) -> list[Mistake]:
    files = [file for room in ROOMS for file in sorted((ROOT / "porter" / room).rglob("*.py"))]
    return [mistake for file in files for mistake in mistakes_in(file) if _line(mistake) in running]


def _line(mistake: Mistake) -> tuple[str, int]:
    return str(mistake.file.relative_to(ROOT)), 0 if mistake.table else mistake.line


def _key(mistake: Mistake) -> str:
    return str(Path(mistake.key).relative_to(ROOT))


def _chosen(mistake: Mistake, files: Sequence[corpus.Item]) -> list[corpus.Item]:
    count = OF_A_TABLE if mistake.table else EACH
    first, others = list(files[: count // 2]), list(files[count // 2 :])
    return first + random.Random(_key(mistake)).sample(others, min(len(others), count - len(first)))


def _tried(mistake: Mistake, running: Running, parent: Nursery) -> dict[str, str]:
    start = time.monotonic()
    state, shown = outcome(mistake, _chosen(mistake, running[_line(mistake)]), parent)
    return {
        "key": _key(mistake),
        "kind": mistake.kind,
        "state": state,
        "file": shown,
        "seconds": f"{time.monotonic() - start:.2f}",
        "source": digest_of_source(),
    }
