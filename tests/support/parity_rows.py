"""The rows of docs/parity.jsonl, and the program of the batch that measures them: a job has all rows of one
zoo's variant.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import porter
from porter.base.errors import CheckFailed, GraphError, PaddingError, PorterError
from porter.cli.supervised import end_with_parent
from porter.files import write_whole
from porter.files.locks import locked
from porter.graph.plan import make_plan
from porter.padding import ANY
from porter.port import StoredPort
from porter.source.opened import Opened
from porter.verification.check import PROVED_DTYPES
from porter.verification.references.reference import Reference
from porter.verification.results import Parity
from porter.verification.sizes import Sizes, takes_size
from tests.support.checkout import commit
from tests.support.parity import check_of, zoos_source
from tests.support.weights_files import published_like

Row = dict[str, Any]
Size = tuple[int, int]
EVEN, ODD = (128, 160), (139, 129)
"""Rows and columns: small, but above Inception's minimum of 75. Both sizes give odd maps inside the network.
A network whose maps would be too small, as those of timm's VGG, gets twice as many.
"""
ALIKE = (231, 225)
"""A size with the last map of 224x224: for a network that flattens its last map and takes no other, as
torchvision's VGG.
"""
OF_ONE_SIZE = ("mlp_mixer", "vit")
"""Architectures whose code takes the size that it is built for only."""


def read_rows(file: Path, since: str = "") -> dict[str, Row]:
    """The row of each port that was measured, on the day `since` or later, by VARIANT/ZOO/FRAMEWORK."""
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {row["row"]: row for row in rows if row["date"] >= since}


def write_rows(file: Path, rows: Mapping[str, Row]) -> None:
    write_whole(file, "".join(json.dumps(row) + "\n" for row in rows.values()))


def main() -> None:
    """Measures the rows of a job that do not stand yet, and writes each when it is there: a kill loses none
    of them. Behind the file of the rows and the day of `--since` stands what a batch gives to
    `porter convert`.
    """
    end_with_parent()
    file, since, variant, _, zoo, _, to, _, out, *_ = sys.argv[1:]
    records, stand = Path(file), read_rows(Path(file), since)
    left = [framework for framework in to.split(",") if f"{variant}/{zoo}/{framework}" not in stand]
    with TemporaryDirectory(dir=Path(out).parent) as folder, redirect_stdout(sys.stderr):
        for row in measure(variant, zoo, left, Path(folder)):
            with locked(records.with_suffix(".lock")):
                write_rows(records, read_rows(records) | {row["row"]: row})
    print("{}")  # a batch asks for an object


def measure(variant: str, zoo: str, frameworks: list[str], folder: Path) -> Iterator[Row]:
    """Yields the row of each port of one zoo's weights, which are made in `folder`."""
    weights = published_like(folder, variant, zoo)
    source = zoos_source(variant, zoo, weights)
    for framework in frameworks:
        start = time.monotonic()
        row: Row = {"row": f"{variant}/{zoo}/{framework}"}
        try:
            row |= _compare(weights, source, framework, folder / framework)
        except PorterError as error:
            reason = f"{error.where}: {error.message}" if error.where else error.message
            row |= {"ok": False, "refused": not isinstance(error, CheckFailed), "error": reason}
        seconds = round(time.monotonic() - start)
        yield row | {"seconds": seconds, "date": date.today().isoformat(), "commit": commit()}


def _compare(weights: Path, source: tuple[Opened, Reference], framework: str, folder: Path) -> Row:
    opened, reference = source
    assert opened.member is not None, "a file with names of its zoo"
    variant, zoo, native = opened.member.variant, opened.member.zoo.name, opened.member.native_size()

    def port(name: str, size: str | None = None) -> StoredPort:
        out = folder / name
        return porter.convert(
            variant, zoo, framework, weights=weights, out=out, input_size=size, check=False
        ).port

    def compared(port: StoredPort, *sizes: Size) -> tuple[Parity, ...]:
        return check_of(port, opened, PROVED_DTYPES).prove(reference, Sizes(sizes, sizes)).parities

    made = port("native")
    others = [size if takes_size(opened.graph, size) else (2 * size[0], 2 * size[1]) for size in (EVEN, ODD)]
    others = [size for size in others if reference.takes(size)]
    if made.plan.only_size is None:
        parities = compared(made, native, *others)
    else:
        parities = compared(made, native)
        if others and opened.member.recipe.architecture not in OF_ONE_SIZE:
            for size, at in _again(made, others).items():
                parities += compared(port(size, size), *at)
    tensors = made.record.tensors
    doubles, singles = parities[1::2], parities[::2]
    return {
        "ok": all(parity.ok for parity in parities),
        "reference": doubles[0].reference,
        "used": len(tensors.used),
        "ignored": len(tensors.ignored),
        "filled": len(tensors.filled),
        "nodes": len(doubles[0].nodes),
        "uncompared": len(doubles[0].uncompared),
        "float64_worst": max(node.rel_l2 for parity in doubles for node in parity.nodes),
        "float64_logits": max(parity.logits.rel_l2 for parity in doubles),
        "float32_logits": max(parity.logits.rel_l2 for parity in singles),
        "float32_limit": min(parity.limit for parity in singles),
        "argmax_equal": not any(parity.top_changed for parity in parities),
    }


def _again(port: StoredPort, others: list[Size]) -> dict[str, list[Size]]:
    """The sizes for which a port of one size is written again, each with those to compare it at."""
    try:
        make_plan(port.graph, ANY, port.destination.CAPABILITIES)
    except PaddingError:  # the destination cannot pad by a size that it does not know
        return {f"{rows}x{columns}": [(rows, columns)] for rows, columns in others}
    except GraphError:  # it flattens its last map
        return {"{}x{}".format(*ALIKE): [ALIKE]}
    return {"any": others}


if __name__ == "__main__":
    main()
