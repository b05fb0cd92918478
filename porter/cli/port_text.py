"""The output of `porter convert`, `porter batch` and `porter report` for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from porter.base.errors import LISTED, some
from porter.cli.printing import classes_words, first_lines, tells, tensors_words
from porter.cli.verdict_text import check_lines
from porter.padding.sizes import size_text

if TYPE_CHECKING:
    from porter.api.port import Ported
    from porter.base.left_out import LeftOut
    from porter.batch.batch import BatchOutcome
    from porter.comparison.transfer.fill import Filling
    from porter.conversion.convert import Conversion
    from porter.graph.pads import PadDecision
    from porter.port import Record
    from porter.reporting.write_page import Report


def conversion(made: Conversion | Ported) -> list[str]:
    """Return the lines of `porter convert`: what was ported to where, facts about it, how its check ended,
    and warnings.
    """
    from porter.port import not_possible

    record = made.port.record
    source = "; ".join((f"{record.source.file}, {record.source.format}", *record.source.notes))
    padding = f"{_pads_summary(record.pads)}; {_size(record)}"
    if record.padding == "trained":
        padding += "; as trained, not as shipped"
    lines = [
        f"{record.name} to {record.framework}: {made.port.folder}",
        f"  file     {source}",
        f"  tensors  {tensors_words(record.tensors)}",
        f"  classes  {classes_words(record)}",
        f"  licence  {record.licence or 'unknown'}",
        *([f"  origin   {record.origin.words}"] if tells(record.origin) else []),
        *first_lines("  assumed  ", record.assumed),
        *_left_out(record.left_out),
        f"  padding  {padding}",
    ]
    if record.folded is not None:
        norms = "none to fold: the source has no batch norms"
        if record.folded or record.norms:
            kept = f"{len(record.norms)} stay, such as {record.norms[0]}" if record.norms else "none stay"
            norms = f"{len(record.folded)} folded into the layers before them; {kept}"
        lines.append(f"  norms    {norms}")
    if record.stock_words:
        lines.append(f"  stock    {record.stock_words}")
    if made.verdict is None:
        lines.append(f"  check    {record.check}")
    else:
        lines += [f"  check    {line}" for line in check_lines(made.verdict)]
    # Why a check was skipped stands in its line already.
    return [
        *lines,
        *(f"  warning  {warning}" for warning in made.warnings if record.check != not_possible(warning)),
    ]


def _left_out(layers: Sequence[LeftOut]) -> list[str]:
    """Return one line for the layers that act in training only, such as dropouts, and that the port lacks;
    none if it lacks none.
    """
    if not layers:
        return []
    shown = [
        f"{layer.words} '{layer.name}'" + (f" behind {layer.after}" if layer.after else "")
        for layer in layers
    ]
    more = " (--json names all)" if len(layers) > LISTED else ""
    act = "it acts" if len(layers) == 1 else "they act"
    return [f"  left out {some(shown)}{more}: {act} in training only"]


def _size(record: Record) -> str:
    """Say which sizes of its inputs the port takes: `any input size, native 224x224`, or the axes of an input
    that is no image.
    """
    from porter.graph import axes_text, further_text
    from porter.graph.record import from_record

    graph = from_record(record.graph)
    if graph.axes:
        first_input = f"input {axes_text(graph.axes)}"
    elif record.input.size is not None:
        first_input = f"input {size_text(record.input.size)} only"
    else:
        first_input = f"any input size, native {size_text(record.input.native_size)}"
    return first_input + further_text(graph)


_REASONS = 20
"""So many ports that do not stand are named."""
_PADDED = {
    "pad layer": ("needs a pad layer", "need a pad layer"),
    "dynamic pad layer": (
        "needs a pad layer that works out its padding for each input size",
        "need a pad layer that works out its padding for each input size",
    ),
    "composition": ("needs a composition of layers", "need a composition of layers"),
    "larger kernel": ("needs a larger kernel", "need a larger kernel"),
    "native": ("uses the layer's own padding", "use the layer's own padding"),
}
"""What is said of one site and of several with this kind of pad."""


def _pads_summary(pads: Sequence[PadDecision]) -> str:
    """Say how many sites (nodes with a window) have each kind of pad: `1 site needs a pad layer; 52 use the
    layer's own padding`.
    """
    counts = Counter(pad.kind for pad in pads)
    clauses = list[str]()
    for kind, (said_of_one, said_of_several) in _PADDED.items():
        count = counts[kind]
        if not count:
            continue
        site, words = ("site", said_of_one) if count == 1 else ("sites", said_of_several)
        # The first clause has the noun.
        clauses.append(f"{count} {words}" if clauses else f"{count} {site} {words}")
    return "; ".join(clauses) or "no site"


def filling(made: Filling) -> list[str]:
    """Return the lines of `porter convert --into`: the class of the user's that was filled, the files that
    were written, and how its comparison with the source ended.
    """
    from porter.port import INTO_RECORD, INTO_SOURCE

    counts, found = made.counts, made.comparison
    filled = f", {counts['filled']} of the class filled with a number" if counts["filled"] else ""
    unused = f", {counts['ignored']} not used" if counts["ignored"] else ""
    kept = [f"  kept     {some(made.kept)}: the class's own, which no output reads"] if made.kept else []
    apart = "" if found.parity is None else f"; outputs {found.parity.rel_l2:.1e} apart (relative L2)"
    source = [] if made.own_file else [f"  source   {INTO_SOURCE}: the source's tensors, for the converter"]
    return [
        f"{made.source} into {made.target}: {made.folder}",
        f"  tensors  {counts['used']} used{unused}{filled}; {INTO_RECORD} says how each is made",
        f"  model    {made.file}",
        f"  convert  {made.module}.py, and test_{made.module}.py",
        *source,
        *kept,
        f"  check    {found.summary}{apart}",
        *(f"  note     {note}" for note in found.notes),
        *(f"  warning  {warning}" for warning in made.opened.warnings),
    ]


def batch(made: BatchOutcome) -> list[str]:
    """Return the lines on what became of a list of ports: how many there are of each state, and why some do
    not stand.
    """
    counts = ", ".join(f"{count} {state}" for state, count in made.counts.items() if count)
    skipped = f"; {made.skipped} of them had ended before" if made.skipped else ""
    reasons = [
        f"{result.state}  {result.name}: {result.message}"
        for result in made.results
        if result.message is not None
    ]
    return [f"{counts}{skipped}", *first_lines("  ", reasons, _REASONS, ""), f"table: {made.table}"]


def report(written: Report) -> list[str]:
    """Return the lines of `porter report`: where the page is, and which sections it lacks, with the commands
    that make them.
    """
    missing = [f"  not in it  {section}: {command}" for section, command in written.missing.items()]
    return [str(written.path), *missing]
