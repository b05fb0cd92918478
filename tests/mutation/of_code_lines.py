"""The lines of porter that run when a file of the corpus is ported. They are kept beside the file until
porter's source or the file changes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

from tests.mutation.corpus import Item
from tests.mutation.nursery import Nursery
from tests.mutation.of_code_trial import state_of
from tests.support.checkout import ROOT


@dataclass(frozen=True)
class Ran:
    """What porting a file took.

    Attributes:
        digest: of porter's source and of the file.
        state: how it ended, without a mistake.
        seconds: with every line looked at.
        lines: by their file, below ROOT.
    """

    digest: str
    state: str
    seconds: float
    lines: Mapping[str, list[int]]


def lines_of(item: Item, nursery: Nursery) -> Ran:
    """Of a file, as they were kept, or found in a child."""
    kept, digest = item.file.with_name("lines.json"), _digest(item)
    if kept.exists() and (known := Ran(**json.loads(kept.read_text()))).digest == digest:
        return known
    found = Ran(digest, **json.loads(nursery.child(lambda say: say(_looked_at(item)))[0] or _ENDED))
    kept.write_text(json.dumps(asdict(found)))
    return found


_ENDED = b'{"state": "crashed", "seconds": 0, "lines": {}}'


@cache
def digest_of_source() -> str:
    """Of every file of porter's source."""
    files = sorted((ROOT / "porter").rglob("*.py"))
    return _sha(part for file in files for part in (str(file.relative_to(ROOT)).encode(), file.read_bytes()))


def _digest(item: Item) -> str:
    given = item.given
    arrays = [part for array in (item.images, *given.outputs) for part in (str(array.shape).encode(), array)]
    facts = [digest_of_source().encode(), str(given.activation).encode(), item.file.read_bytes()]
    return _sha([*facts, *arrays])


def _sha(parts: Iterable[Any]) -> str:
    made = sha256()
    for part in parts:
        made.update(sha256(part).digest())
    return made.hexdigest()


def _looked_at(item: Item) -> bytes:
    found: dict[str, set[int]] = {}
    home = f"{ROOT / 'porter'}{os.sep}"

    def look(frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(home):
            return None
        lines = found.setdefault(file, set())
        lines.add(frame.f_lineno)

        def line(frame: FrameType, event: str, argument: object) -> Any:
            lines.add(frame.f_lineno)
            return line

        return line

    start = time.monotonic()
    sys.settrace(look)
    state = state_of(item)
    sys.settrace(None)
    lines = {str(Path(file).relative_to(ROOT)): sorted(each) for file, each in found.items()}
    return json.dumps({"state": state, "seconds": time.monotonic() - start, "lines": lines}).encode()
