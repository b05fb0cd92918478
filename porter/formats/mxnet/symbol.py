"""A symbol's operators, in the order in which MXNet runs them for one image, with nothing of training."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from porter.base.left_out import LeftOut
from porter.filegraph.places import Reading, Watched
from porter.filegraph.value_names import NodeOutput, take_name
from porter.formats.limits import MOST_NODES, read_json

_PASS_THROUGH = frozenset(
    {"Dropout", "BlockGrad", "identity", "_copy", "stop_gradient", "LinearRegressionOutput", "MakeLoss"}
)
_LOSSES = frozenset({"SoftmaxOutput", "Softmax", "LogisticRegressionOutput", "SVMOutput"})
"""Operators whose second input is a label."""
_IGNORED_ATTRIBUTES = frozenset(
    {
        "workspace",
        "cudnn_tune",
        "cudnn_off",
        "num_args",
        "num_hidden",
        "is_int",
        "min_calib_range",
        "max_calib_range",
        "output_mean_var",
        "use_global_stats",
        "grad_scale",
        "ignore_label",
        "use_ignore",
        "normalization",
        "out_grad",
        "smooth_alpha",
        "ctx_group",
        "force_mirroring",
        "mirror_stage",
    }
)
"""Attributes that a reader need not look at: of training, of devices, of whole numbers, of outputs that
nothing reads, and those that inputs state too.
"""
_WINDOW_ATTRIBUTES = frozenset({"kernel", "stride", "pad", "pooling_convention", "count_include_pad"})
_INTEGER = re.compile(r"-?\d+")


@dataclass(frozen=True)
class OperatorAttributes:
    """An operator's attributes: words, of which those that have their default may be left out."""

    words: Watched[str]

    @property
    def passed_over(self) -> list[str]:
        """Return the names of attributes that no reader has looked at, though they may change what the
        operator computes. Those of a window change nothing in a pool of the whole map, nor do those that are
        off, users' own (`__lr_mult__`), or the optimizer's (`lr_mult`, `wd_mult`).
        """
        ignored = _IGNORED_ATTRIBUTES | (_WINDOW_ATTRIBUTES if self.flag("global_pool") else set())
        names = (name for name in self.words.passed_over if name not in ignored)
        return [
            name
            for name in names
            if not name.startswith("__")
            and not name.endswith("_mult")
            and self.words[name] not in ("None", "False")
        ]

    def word(self, name: str, default: str = "") -> str:
        """Return an attribute as text; the default where it is left out."""
        return str(self.words.get(name, default))

    def number(self, name: str, default: float) -> float:
        """Return an attribute as a number; the default where it is left out or None."""
        word = self.words.get(name, "None")
        return default if word == "None" else float(word)

    def count(self, name: str, default: int) -> int:
        """Return an attribute as a whole number; the default where it is left out or None."""
        return int(self.words[name]) if self.words.get(name, "None") != "None" else default

    def flag(self, name: str, default: bool = False) -> bool:
        return self.words.get(name, str(default)).lower() in ("true", "1")

    def counts(self, name: str) -> list[int]:
        """Return the integers of a tuple or a list as Python writes it: `(3, 3)`; also of a single number."""
        return [int(number) for number in _INTEGER.findall(self.words.get(name, ""))]

    def bounds(self, name: str) -> list[int | None]:
        """Return an attribute's whole numbers, of which some may be None; none at all where it is
        left out.
        """
        words = self.words.get(name, "").strip("()[] ").split(",")
        return [None if word.strip() == "None" else int(word) for word in words if word.strip()]

    def pair(self, name: str, default: int) -> tuple[int, int]:
        """Return rows and columns; one number is both."""
        counts = self.counts(name) or [default]
        return counts[0], counts[-1]


@dataclass(frozen=True)
class SymbolNode(Reading):
    """An operator; `inputs` are values of others, and variables by their names."""

    name: str
    op: str
    inputs: tuple[NodeOutput, ...]
    attributes: OperatorAttributes


@dataclass(frozen=True)
class Symbol:
    """A symbol.

    Attributes:
        image: the only variable that no array is for; None if there are others, or none.
        sides: the sizes of its axes, as far as the symbol states them.
        ends: the values at which the graph ends.
        lacking: how many variables no array is for.
        said: what the file states of the model beside its graph, by name.
        passed: dropouts, which inference leaves out, each with the value that it reads.
    """

    nodes: tuple[SymbolNode, ...]
    image: str | None
    sides: tuple[int, ...]
    ends: tuple[NodeOutput, ...]
    lacking: int
    said: Mapping[str, str]
    passed: tuple[tuple[LeftOut, NodeOutput], ...] = ()


def read_symbol(text: bytes, is_held: Callable[[str], bool]) -> Symbol:
    """Return the graph of a -symbol.json. `is_held` tells whether there is an array of a name. The image is
    None where not exactly one variable lacks an array.

    Raises:
        ValueError, TypeError, LookupError: it is damaged. RecursionError: it is nested too deeply.
    """
    symbol = read_json(text)
    if len(symbol["nodes"]) > MOST_NODES:
        raise ValueError(f"it has more than {MOST_NODES} nodes")
    reader = _SymbolReader(is_held)
    for entry in symbol["nodes"]:
        reader.read(entry)
    ends = tuple(reader.value(index_of_node, index) for index_of_node, index, *_ in symbol["heads"])
    # The variables without arrays: the image, if it is the only one.
    (image, sides), *others = reader.free.items() or [(None, ())]
    stated = {name: str(fact[-1]) for name, fact in symbol.get("attrs", {}).items() if isinstance(fact, list)}
    return Symbol(
        tuple(reader.nodes),
        None if others else image,
        sides,
        ends,
        len(reader.free),
        stated,
        tuple(reader.passed),
    )


def join_definition(image: str, text: bytes) -> bytes:
    """Return a graph's definition: the name of its image, which no -symbol.json states, before the JSON."""
    return image.encode() + b"\n" + text


def split_definition(definition: bytes) -> tuple[str, bytes]:
    """Return the name and the JSON that `join_definition` joined."""
    image, _, text = definition.partition(b"\n")
    return image.decode(), text


@dataclass
class _SymbolReader:
    """The nodes so far.

    Attributes:
        first_outputs: what each node of the file gives first.
        free: the sizes of variables that no array is for, by name.
    """

    is_held: Callable[[str], bool]
    first_outputs: list[NodeOutput] = field(default_factory=list)
    nodes: list[SymbolNode] = field(default_factory=list)
    free: dict[str, tuple[int, ...]] = field(default_factory=dict)
    passed: list[tuple[LeftOut, NodeOutput]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def value(self, node: int, index: int) -> NodeOutput:
        """Return the source of the output of a node in the file. A node that is passed through gives its
        input's.
        """
        name, first = self.first_outputs[node]
        # What a passed node gives may itself be a further output.
        return name, index or first

    def read(self, entry: Mapping[str, Any]) -> None:
        """Read a node, after those that it reads. A variable is kept only by its name, a loss reads no
        labels, and a node that changes nothing in inference stands for what it reads; every other one is
        added.
        """
        # The number of a node in the file, and of one of its outputs.
        sources = [source[:2] for source in entry["inputs"]]
        number = len(self.first_outputs)
        op = entry["op"]
        name = take_name(str(entry["name"]), number, self.names)
        words = _attributes(entry, name)
        if any(type(index) is not int or not 0 <= source < number for source, index in sources):
            raise ValueError(f"'{name}' reads what comes after it")
        inputs = [self.value(*source) for source in sources]
        if op == "null":
            self.first_outputs.append((name, 0))
            if not self.is_held(name):
                self.free[name] = tuple(words.counts("__shape__"))
            return
        # Its further inputs are labels, which nobody feeds.
        if op in _LOSSES:
            for source, _ in inputs[1:]:
                self.free.pop(source, None)
            inputs = inputs[:1]
        if op in _PASS_THROUGH:
            self.first_outputs.append(inputs[0])
            if op == "Dropout":
                self.passed.append((LeftOut(name, "Dropout", words.number("p", 0.5)), inputs[0]))
            return
        # Before 0.9, statistics were no inputs (nnvm/legacy_json_util.cc).
        if op == "BatchNorm" and len(inputs) == 3:
            inputs += [(f"{name}_moving_mean", 0), (f"{name}_moving_var", 0)]
        self.nodes.append(SymbolNode(name, str(op), tuple(inputs), words))
        self.first_outputs.append((name, 0))


def _attributes(entry: Mapping[str, Any], name: str) -> OperatorAttributes:
    """Return the attributes of a node: in `attrs` since 1.0, before that in `attr`, and before 0.9 in
    `param`, beside an `attr` that means nothing to an operator.
    """
    stated = {**entry.get("attr", {}), **entry.get("param", {}), **entry.get("attrs", {})}
    if any(isinstance(word, list | dict | None) for word in stated.values()):
        raise ValueError(f"an attribute of '{name}' is not text")
    return OperatorAttributes(Watched({key: str(word) for key, word in stated.items()}))
