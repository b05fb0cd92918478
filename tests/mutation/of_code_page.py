"""What came of mistakes in porter's source, as a part of docs/mutants.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

ROOMS = ("formats", "filegraph", "graph", "padding", "source", "frameworks")
STATES = ("refused", "crashed", "slow", "unproved", "equal", "proved and wrong", "not planted")
TITLE = "## Mistakes in porter's own source\n"
HEAD = """\
`scripts/mutants --code FOLDER` plants one mistake at a time in porter's own source: another constant,
comparison, operator, sign, order, branch or argument, in its functions and in the tables of its modules.
Small files of one layer or operator each are then ported to torch. The judge is what each file's own
framework gave for its images before any mistake: a port that the proof passes and that gives something else,
by more than 1e-5 in float32, is *proved and wrong*, and a fault of the proof.

Mistakes are drawn from all that can be planted on lines that a file runs. Each is tried on four files that
run its line, two of them the fastest, and in a table on twelve that run any line of its module. The table
says how the one ended that ended worst: proved and wrong, otherwise the first that did not end equal.
*Refused* and *crashed* ones leave no port, and *unproved* ones a port that says so. *Equal* ones change
nothing that these files show: a message, a limit, a short cut, or a case that none of them has.
"""

ENDED = """\
Earlier runs, on older sources and with the seeds 45 and 46, planted 4,062 mistakes, of which 9 were proved
and wrong. A later one, with the seed 48, planted 800 in what reads and runs TensorFlow's graphs and
TensorFlow Lite's files, which the corpus had got by then: 312 were refused, 171 crashed, 36 were not proved,
278 changed nothing, and 2 were proved and wrong.

What such mistakes have shown of the proof, and what ended it:

- an output of another shape with as many numbers was proved: outputs keep the source's axes;
- a reader that ended one step too early was proved, because the reference was read there too: what a file
  states as its outputs, and what a zoo's code returns, is compared with what porter takes for it;
- the check took the graph of port.json with the pads of the graph in memory: now the port is read from its
  folder;
- a distance of 0.27 between the reference's float32 and its float64 counted as rounding: it is none;
- the slope of a hard sigmoid came from the reader, as did the part of a value and the shares of a cubic
  resize in a Keras file: the engines tell them for themselves;
- NaN of another shape was equal to the NaN that stood for what cannot be compared: that is infinitely far;
- both sides were given the layers of a Keras file as porter turns them to channels last: the engine calls
  them as the file states them;
- both were given the variables of a .keras by the names that porter gives them: the engine takes them by
  their places in the file;
- a layer of Caffe's that the weights have more blobs of than the net says was read without them: it is
  refused;
- a bound that a port lacks, and that no image reaches, was not looked for: activations are run by themselves
  beyond the port's own bounds too;
- where a Resizing of Keras's had nothing left to resize, both sides had the reader's crop: the engine crops,
  pads and resizes by Keras's own arithmetic;
- a concat at the end was taken off as an activation, which the values before it do not show: port.json takes
  activations only;
- a pool whose shape rule was wrong let the reader take a map of one cell for features and leave out the
  Flatten: a port's outputs have the axes that its graph says.

Three kinds stayed: the numbers of TensorFlow Lite's operators, which reader and engine take from one table;
the tensors of HDF5, of which both are given what porter reads; and where a frozen graph ends, which states no
outputs. Now each is [held to another program](proof.md#what-the-port-is-compared-with) in the check itself.
Planted again in what reads, runs and holds these files: 300 mistakes with TensorFlow Lite's (seed 51), and
500 with HDF5's and frozen graphs (seed 52). 346 were refused, 142 crashed, 43 were not proved, 268 changed
nothing, one could not be planted, and none was proved and wrong. In 15 further cases all files of the corpus
were read with a mistake of these kinds: a number of the table, an activation or its place, a default, a flag,
an output left out, the bytes of HDF5 the other way round, a graph that ends too early or lacks a head. Every
port that became wrong was refused. Of 320 right files none was.

Torch7's files and what Keras ran on Theano came last. Of 400 mistakes in what reads and runs Torch7's files
(seed 53), 5 were proved and wrong: 4 in the list of modules and their settings, which reader and engine both
took, such as rows for columns, and one in the container. Now the engine calls nn's modules by itself, and
says itself what the model gives. Of 700 in the source of then (seeds 53 and 55), 305 were refused, 71
crashed, 122 were not proved, 197 changed nothing, 4 could not be planted, and one was proved and wrong, again
in the container. Of 150 in what reads and runs files of Keras on Theano (seed 54), 66 were refused, 24
crashed, 14 were not proved, 46 changed nothing, and none was proved and wrong: the engine pads by itself as
Theano did, and h5py holds the kernels that the reader turns around.

The last runs are on sources of then: of 1,000 mistakes with the seeds 5829 and 5901, 3 were proved and wrong,
the last ones of the list above. Of 500 with the seed 6007, on 1,232 files, 177 were refused, 110 crashed, 16
were not proved, 195 changed nothing, 2 could not be planted, and none was proved and wrong. Of 500 with the
seed 6011, on 617 of these files and with all of the list ended, 168 were refused, 123 crashed, 15 were not
proved, 193 changed nothing, 1 could not be planted, and none was proved and wrong.

The readers of other containers share the tensors with the engines too: tests hold each of them to the
format's own library, and that of Torch7's files to torchfile. What porter's own engine computes of the files
of MXNet, Caffe and Torch7 is held by tests to MXNet, OpenCV and torch, operator by operator.
"""


def part(found: Sequence[Mapping[str, str]], files: Mapping[str, int], possible: int, made: str) -> str:
    """The part of the page.

    Args:
        files: how many there are of each format.
        possible: so many mistakes can be planted on lines that they run.
        made: the commit, and what repeats the run.
    """
    states, seconds = Counter(each["state"] for each in found), sum(float(each["seconds"]) for each in found)
    kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(files.items()))
    figures = [
        f"- {len(found)} mistakes of {possible} that can be planted on lines that the files run.",
        f"- {sum(files.values())} files: {kinds}.",
        f"- {states['proved and wrong']} proved and wrong.",
        f"- {1000 * seconds / max(1, len(found)):.0f} ms for each mistake, on one processor.",
        f"- {made}",
    ]
    wrong = [f"- {worded(each)}" for each in found if each["state"] == "proved and wrong"]
    listed = ["### Proved and wrong", "\n".join(wrong)] if wrong else []
    parts = [
        TITLE.strip(),
        HEAD.strip(),
        "\n".join(figures),
        table(found, 1),
        table(found, 2),
        *listed,
        ENDED.strip(),
    ]
    return "\n\n".join(parts) + "\n"


def with_part(page: str, part: str) -> str:
    """The page with another part on mistakes in the source, which is its last."""
    return f"{page.partition(TITLE)[0].rstrip()}\n\n{part}" if part else page


def part_of(page: str) -> str:
    """What a page has on mistakes in the source; nothing if it has none."""
    _, title, rest = page.partition(TITLE)
    return title + rest


def worded(found: Mapping[str, str]) -> str:
    """An outcome in a line."""
    return f"`{found['key']}` ({found['kind']}): {found['state']}, shown by {found['file']}"


def table(found: Sequence[Mapping[str, str]], depth: int) -> str:
    """A line for each room, at depth 1, or for each module or folder in one, at depth 2: how many of its
    mistakes ended in which way.
    """
    rows: dict[str, Counter[str]] = {room: Counter() for room in ROOMS} if depth == 1 else {}
    for each in sorted(found, key=lambda each: each["key"]):
        place = "/".join(each["key"].partition(":")[0].split("/")[1 : depth + 1])
        rows.setdefault(place, Counter())[each["state"]] += 1
    rows["together"] = sum(rows.values(), Counter())
    first = "room" if depth == 1 else "module"
    lines = [f"| {first} | mistakes | {' | '.join(STATES)} |", "| --- " * (len(STATES) + 2) + "|"]
    lines += [
        f"| {place} | {sum(row.values())} | {' | '.join(str(row[state]) for state in STATES)} |"
        for place, row in rows.items()
    ]
    return "\n".join(lines)
