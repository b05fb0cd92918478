"""Every option of porter, once: how it is typed, the parameter that it is in Python, and what its help says;
and how a message names it to whoever reads it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from porter.base.call_context import for_a_program

AnyPath = str | PathLike[str]
AnySize = int | Sequence[int] | str
"""A size as callers of the API write it: `224`, `(225, 201)` (rows x columns), or a text as on the command
line.
"""


def path_of(path: AnyPath | None) -> Path | None:
    """Return a Path; None for None."""
    return None if path is None else Path(path)


class Placeholder(str):
    """A word that stands for what the reader has, such as FILE."""


class Asked(Placeholder):
    """A word in whose place stands what the running function was asked for under the same option."""


@dataclass(frozen=True)
class Option:
    """An option of commands, or an argument, which is typed by its place.

    In a message, `str` of it is its name, and a call of it is what gives it a value: `--split` and
    `--split val`, or `split` and `split="val"`. A text with it is made when it is said, because only then
    is it known to whom: never at a module's import.

    Attributes:
        name: of the parameter.
        flag: None for an argument.
        kind: the type of what is typed.
        many: whether it may be typed several times.
        required: whether it has to be typed, also where the parameter has a default.
    """

    name: str
    flag: str | None
    metavar: str | None
    help: str
    kind: type = str
    many: bool = False
    required: bool = False

    def __str__(self) -> str:
        return self.name if for_a_program() or self.flag is None else self.flags[0]

    def __call__(self, value: object = True) -> str:
        return f"{self.name}={in_python(value)}" if for_a_program() else shlex.join(self.words(value))

    @property
    def placeholder(self) -> str:
        """What gives it a value that only the reader knows: `--from ZOO`, or `source=ZOO`."""
        return self(Placeholder(str(self.metavar).split("|")[0]))

    @property
    def flags(self) -> list[str]:
        """The flag, and for a switch with two the one that turns it off."""
        return str(self.flag).split("/")

    def words(self, value: object) -> list[str]:
        """Return what is typed for a value, word by word: `--split`, `val`. A switch is one word or none, and
        so is nothing typed for an empty value.
        """
        if value is None or value in ("", (), [], {}):
            return []
        if isinstance(value, bool):
            return self.flags[:1] if value else self.flags[1:]
        if isinstance(value, Mapping):
            value = [f"{name}={written(setting)}" for name, setting in value.items()]
        values = [str(value)]
        if isinstance(value, Sequence) and not isinstance(value, str):
            values = list(map(str, value))
        # Several values of an option that is typed once stand with commas.
        if not self.many:
            values = [",".join(values)]
        if self.flag is None:
            return values
        return [word for typed in values for word in (self.flag, typed)]


def in_python(value: object) -> str:
    """Return a value as a program in Python writes it: a text in quotes, a sequence of one as that one, a
    placeholder such as FILE as it is.
    """
    if isinstance(value, Placeholder):
        return str(value)
    if isinstance(value, str | PathLike):
        return json.dumps(fspath(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{in_python(key)}: {in_python(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return in_python(value[0]) if len(value) == 1 else f"[{', '.join(map(in_python, value))}]"
    return repr(value)


def written(value: object) -> str:
    """Return a value as recipes and `--option` write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def items(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return as a tuple what is given for an option that may be given several times: one text, a sequence of
    texts, or None.
    """
    return (given,) if isinstance(given, str) else tuple(given or ())


def _argument(name: str, metavar: str, help: str, kind: type = Path, many: bool = False) -> Option:
    return Option(name, None, metavar, help, kind, many, required=True)


def _switch(name: str, help: str, flag: str | None = None) -> Option:
    return _option(name, None, help, bool, flag)


def _option(
    name: str, metavar: str | None, help: str, kind: type = str, flag: str | None = None, **more: Any
) -> Option:
    return Option(name, flag or f"--{name.replace('_', '-')}", metavar, help, kind, **more)


DEVICE = _option("device", "cpu|cuda", "where the models run")
FROM = _option(
    "source", "ZOO|FRAMEWORK", "where a variant's weights come from; not for a FILE", flag="--from"
)
WEIGHTS = _option("weights", "FILE", "a file to use instead of the zoo's published one", Path)
VARIANT = _argument("variant", "VARIANT", "such as mobilenet_v2; see porter recipe list", str)
SUBJECT = _argument(
    "subject",
    "VARIANT|FILE",
    "a variant, a file that carries its own graph, or a folder of the Hub or hf://OWNER/NAME",
    str,
)
FOLDER = _argument("folder", "DIR", "a port's folder")
FOLDERS = _argument("folders", "DIR...", "folders of ports; several share the decoded photos", many=True)
IMAGES = _argument("images", "IMAGE...", "photos", many=True)
FILE = _argument(
    "file", "FILE", "a weights file of any readable format, a folder of the Hub or hf://OWNER/NAME"
)
NAME = _argument("name", "NAME", "an architecture or a variant", str)
TO = _option("to", "FRAMEWORK", "the framework of the port", required=True)
INTO = _option(
    "into",
    "FILE.py:CALLABLE|package.module.Class",
    "in place of --to: put the tensors into this class of yours, whose code is RUN, and write a converter",
)
OUT = _option("out", "DIR", "default: ./VARIANT-ZOO-FRAMEWORK or ./STEM-FRAMEWORK", Path)
OVERWRITE = _switch("overwrite", "replace an existing port")
PADDING = _option(
    "padding",
    "shipped|trained",
    "the zoo's pads, or those that the weights were trained with",
)
INPUT_SIZE = _option("input_size", "N|HxW|any", "default: the file's own, otherwise the recipe's")
DTYPE = _option(
    "dtype",
    "TYPE",
    "the type of the stored weights: float32, float16, bfloat16 or float64",
)
QUANTIZE = _option(
    "quantize",
    "dynamic",
    "with --to tflite: store the weights in 8 bits, and measure what that loses",
)
ALLOW_OVERFLOW = _switch("allow_overflow", "let values that are too large for the type become infinite")
KEEP_BACKGROUND = _switch("keep_background", "keep the background class, row 0 of a 1001-class head")
KEEP_ACTIVATION = _switch(
    "keep_activation", "keep the softmax or sigmoid at the end of a FILE that has one output"
)
KEEP_DROPOUT = _switch("keep_dropout", "write the file's dropouts too, for further training")
PREPROCESS = _option(
    "preprocess", "TEXT|FILE", "how photos become the input: resize=...,size=...,... or JSON"
)
CLASS_NAMES = _option(
    "class_names", "FILE", "the names of the classes, one on each line, in their order", Path
)
OUTPUTS = _option(
    "outputs",
    "NAME,...",
    "end a FILE's graph at these values",
)
MAP = _option(
    "mapped",
    "SRC=NODE",
    "layer SRC of the file is node NODE of the recipe; for dense layers in a row: "
    "FIRST,relu,LAST=head/logits",
    flag="--map",
    many=True,
)
OPTION = _option(
    "options",
    "NAME=VALUE",
    "set an option of the recipe that a file of weights does not record",
    flag="--option",
    many=True,
)
FOLD_BN = _switch("fold_bn", "fold batch norms into the layers before them")
STOCK = _option(
    "stock",
    "[timm]",
    "use the layer names of a stock class (torchvision's, Keras's or timm's), if that class "
    "computes the same",
)
CHECK = _option(
    "check", None, "compare port and source; default: if possible", bool, flag="--check/--no-check"
)
REFERENCE = _option(
    "reference",
    "FILE|FILE.py:CALLABLE",
    "compare the port with this too: another file that carries its graph, or your own code, "
    "which porter then RUNS",
)
ORIGIN = _option(
    "origin",
    "ZOO",
    "say that the weights are this zoo's, even where the file or its folder states another",
)
CARD = _switch("card", "write README.md too, a model card for Hugging Face's Hub; nothing is uploaded")
RECIPES = _option("recipes", "DIR", "a folder of your own recipes; porter looks there first", Path)
FLOAT64 = _switch("float64", "compare in double precision only")
LAYERS = _switch("layers", "print every compared node")
TOLERANCE = _option("tolerance", "X", "limit on relative L2 distance", float)
DATA = _option(
    "data", "PATH", "labelled photos: class folders, a tar, Parquet shards, ...", Path, required=True
)
PRECISION = _option(
    "precision",
    "fp32|tf32|bf16|fp16",
    "the precision that the port runs in; the source runs in fp32",
)
COMPILE = _switch("compiled", "compile a torch port by torch.compile", "--compile")
CHANNELS_LAST = _option(
    "channels_last",
    None,
    "the memory layout of torch's feature maps",
    bool,
    "--channels-last/--channels-first",
)
FAST = _switch(
    "fast",
    "try the precisions, memory layouts and torch.compile, use the fastest, and print "
    "fp32's figures beside it",
)
REAL_LABELS = _option(
    "real_labels",
    "FILE",
    "ReaL's real.json: score by its labels too, beside the photos' own",
    Path,
)
CROPS = _option("crops", "1|10", "with 10: average the probabilities of ten crops", int)
CPU_BATCH, GPU_BATCH = 16, 64
"""Photos at a time by device. On a CPU the maps of more do not stay in its caches: MobileNet v2 in torch on
two cores takes 45 to 68 images a second by 16, and 29 to 44 by 64, in torchvision's own module too.
"""
BATCH_SIZE = _option(
    "batch_size", "N", f"photos at a time; default: {CPU_BATCH} on a CPU, {GPU_BATCH} on a GPU", int
)
WORKERS = _option("workers", "N", "processes that decode; default: one per core", int)
LIMIT = _option("limit", "N", "score at most N photos", int)
CACHE = _option("cache", "DIR", "keep prepared photos for the next run", Path)
SPLIT = _option("split", "NAME", "train, val or test; default: val, or the only one")
LABELS = _option(
    "labels",
    "FILE",
    "take the labels from this: ReaL's real.json, ImageNet's development kit, or a list",
    Path,
)
EXPECT_TOP1 = _option(
    "expect_top1", "X", "exit with status 1 unless top-1 is X per cent, within --tolerance", float
)
PREDICTIONS = _option("predictions", "FILE.csv", "write what the port saw in every photo", Path)
AFRESH = _switch("afresh", "begin at the first photo, not where an interrupted run ended")
RESULTS = _option("results", "FILE.csv", "write a line of figures for each port", Path)
TENSORS = _switch("tensors", "list every tensor with its shape and type")
OPEN = _switch("open_page", "show the page in the browser", "--open")
ALL = _switch("all_sites", "also the sites that need no padding (--json has them)", "--all")
BETWEEN = _option(
    "between",
    "ZOO,ZOO",
    "two zoos whose networks take the same tensors: find which of them the weights were trained as",
)
SITE = _option(
    "sites",
    "PATH=CONVENTION,...",
    "try these paddings at this site only, not at all strided sites",
    flag="--site",
    many=True,
)
PORT = _option("port", "DIR", "write the study into this port's record", Path)
FROM_MODEL = _option("model", "FILE", "a file that carries its own graph", Path, flag="--from-model")
ZOO = _option("zoo", "ZOO", "the name of the recipe's zoo; default: own")
A = _argument(
    "a", "A", "a file with its graph, a folder of the Hub, a port, or FILE.py:CALLABLE, which is RUN", str
)
B = _argument("b", "B", "another one, in any framework", str)
LIST = _argument("list", "LIST.csv|LIST.toml", "what to port: subject, from, to and options of convert")
SHARD = _option("shard", "I/N", "make only part I of N of the list, as in an array of Slurm")
ON = _option("on", "local|ray", "where the ports are made: here, or on a running Ray cluster")
MEMORY = _option("memory", "GB", "kill a port that takes more memory", float)
TIMEOUT = _option("timeout", "S", "kill a port that takes longer", float)
JUNIT = _option("junit", "FILE", "write the verdict and each difference as a JUnit XML file too", Path)
OTHER = Option("other", None, "OTHER", "a second port, to show both side by side", Path)
SOURCE = _switch("source", "run the source in its own framework beside the port")
JSON = _switch("as_json", "print one JSON object and nothing else", "--json")
