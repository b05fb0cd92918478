"""The figures of a run as Markdown."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version

from tests.mutation.trial import Outcome

STATES = ("killed", "escaped", "equivalent", "refused, equal")

HEAD = """\
# Mutants

The proof is itself tested: `scripts/mutants` takes right ports, sees that the proof accepts them, plants one
mistake at a time, in the graph or in one tensor, and asks the proof again, as `porter convert` and `porter
verify` do. A judge that knows nothing of the proof says whether the mutant is another function: it runs it
beside the right port, in float64, on 24 images at each of two sizes, in the range that the network takes
(pictures, noise, flat colours, boards, edges, black, white, single cells). If any output is further than 1e-9
away in relative L2 distance, in any image, the mutant is another function. A mutant of that kind that is
accepted has *escaped*, and is a fault of the proof.

The right ports are the recipes (narrow, with few units, of 32 to 79 cells a side), random graphs of every op,
a network written by hand, Keras files that begin with a Rescaling or a Normalization, .pt2 and .onnx files,
and files that are given. The weights are calibrated, or badly scaled: dead channels (biases of -30), a first
layer a thousand times too large or too small, norms that grow, heads that saturate a softmax or a sigmoid. A
reference shows all values, those of its layers, some, or its outputs only; "given" is somebody's own code,
whose layers are paired by names of which a tenth are wrong.

Every port is also asked for written otherwise: with folded norms, ReLU6 as a clip, sums the other way round,
biases of zeros, and `same` pads as numbers.
"""


def table(outcomes: Sequence[Outcome], by: Callable[[Outcome], str], name: str) -> str:
    """Kill rates: of the mutants that are another function, how many are refused."""
    rows = [
        f"| {name} | mutants | another function | refused | escaped | equal, accepted | equal, refused |",
        "| --- " * 7 + "|",
    ]
    mutants = [outcome for outcome in outcomes if outcome.state in STATES]
    for group in [*sorted({by(outcome) for outcome in mutants}), "together"]:
        found = Counter(outcome.state for outcome in mutants if group in ("together", by(outcome)))
        killed, escaped, equal, refused = (found[state] for state in STATES)
        rate = f"{killed} ({killed / (killed + escaped):.2%})" if killed + escaped else "0"
        rows.append(
            f"| {group} | {found.total()} | {killed + escaped} | {rate} | {escaped} | {equal} | {refused} |"
        )
    return "\n".join(rows)


def part(at: int) -> Callable[[Outcome], str]:
    """What a key has at a place."""
    return lambda outcome: outcome.key.split(":")[at]


def family(outcome: Outcome) -> str:
    """The recipe's variant, or what kind of graph or file it is."""
    kind, name, *_ = outcome.key.split(":")
    return (
        name.split("/")[0]
        if kind == "recipe"
        else name.rpartition("/")[2]
        if kind in ("made", "file")
        else kind
    )


def line(outcome: Outcome) -> str:
    """An outcome, with what repeats it."""
    kind, name, *rest = outcome.key.split(":")
    # No folder of this machine.
    key = ":".join((kind, name.rpartition("/")[2] if kind == "file" else name, *rest))
    return f"`{key}:{outcome.index}` {outcome.kind}: {outcome.what}; moved {outcome.moved:.1e}; {outcome.why}"


def page(outcomes: Sequence[Outcome], seconds: float, commit: str) -> str:
    """docs/mutants.md."""
    mutants = Counter(outcome.state for outcome in outcomes if outcome.state in STATES)
    right = Counter(outcome.state for outcome in outcomes if outcome.index == -1)
    otherwise = Counter(outcome.state for outcome in outcomes if outcome.index < -1)
    killed, escaped = mutants["killed"], mutants["escaped"]
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "torch", "keras", "onnxruntime"))
    figures = [
        (
            f"- {mutants.total()} mutants of {right['right']} right ports, {seconds / 60:.0f} minutes of "
            "processor time."
        ),
        f"- {killed + escaped} are another function: {killed} are refused, {escaped} escaped.",
        f"- {mutants['equivalent']} are the same function to the judge and are accepted.",
        (
            f"- {mutants['refused, equal']} move no output and are refused, because a value inside differs "
            "or they do not run."
        ),
        f"- Right ports: {right['right']} accepted, {right['right, refused']} refused.",
        (
            f"- Right ports written otherwise: {otherwise['right']} accepted, "
            f"{otherwise['right, refused']} refused."
        ),
        (
            f"- {right['right, not provable']} more right ports cannot be proved: an output that the "
            "reference shows is the same for"
        ),
        "  all of the judge's images, or has two numbers only.",
        f"- Commit {commit}; Python {platform.python_version()}, {versions}.",
    ]
    parts = [
        HEAD,
        "## Figures",
        "\n".join(figures),
        "## By kind",
        table(outcomes, lambda outcome: outcome.kind, "kind"),
    ]
    parts += [
        "## By source",
        table(outcomes, family, "source"),
        "## By weights",
        table(outcomes, part(2), "weights"),
    ]
    parts += ["## By what the reference shows", table(outcomes, part(4), "shown")]
    parts += ["## By destination", table(outcomes, part(5), "destination"), "## Equal mutants", EQUAL]
    reasons = Counter(outcome.why for outcome in outcomes if outcome.state == "equivalent")
    parts.append("\n".join(f"- {count}: {text}." for text, count in reasons.most_common()))
    for title, state in (
        ("Escaped", "escaped"),
        ("Right ports refused", "right, refused"),
        ("Not provable", "right, not provable"),
    ):
        found = [outcome for outcome in outcomes if outcome.state == state]
        if found:
            parts += [f"## {title}", "\n".join(f"- {line(outcome)}" for outcome in found)]
    return "\n\n".join(parts) + "\n"


EQUAL = """\
What accepts them is right as far as the judge sees. "Proved" ones no input tells: the arithmetic of pads says
that every window reads the same numbers at the sizes that the port takes, or no output reads the node. Of the
others, the judge's images show where the difference ends: in a ReLU whose channel is dead, in a maximum that
another value wins, in a saturated softmax; or the node gives the same values, such as a ReLU6 for a ReLU that
nothing takes beyond 6. Some would be another function on inputs of another range: the graph of such a port
states none, so the proof takes one that excites it, and its verdict says which."""
