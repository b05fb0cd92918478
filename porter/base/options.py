"""Every option of porter, once: how it is typed, the parameter that it is in the API, and what its help says.

The command line is made from these tables, and so are the commands that porter prints. The functions of the
API have signatures of their own, for `help()` and for mypy: a test compares them with the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from porter.base.errors import UsageError, command

REQUIRED: Any = object()
"""The default of what has to be typed."""


@dataclass(frozen=True)
class Option:
    """An option of commands, or an argument, which is typed by its place.

    Attributes:
        name: of the parameter.
        flag: None for an argument.
        kind: the type of what is typed.
        many: whether it may be typed several times.
        read: gives the parameter's value for what is typed.
    """

    name: str
    flag: str | None
    metavar: str | None
    help: str
    kind: type = str
    default: Any = None
    many: bool = False
    read: Callable[[Any], Any] | None = None

    def words(self, value: object) -> list[str]:
        """What is typed for a value: nothing for the default."""
        if value is None or value in ("", (), [], {}, self.default):
            return []
        if isinstance(value, bool):
            on, _, off = str(self.flag).partition("/")
            return [each for each in [on if value else off] if each]
        if isinstance(value, Mapping):
            value = [f"{name}={written(setting)}" for name, setting in value.items()]
        values = (
            list(map(str, value))
            if isinstance(value, Sequence) and not isinstance(value, str)
            else [str(value)]
        )
        flag = [] if self.flag is None else [self.flag]
        return [word for each in (values if self.many else [",".join(values)]) for word in (*flag, each)]


@dataclass(frozen=True)
class Command:
    """A command: its name, what its help says, and its options, in the order of its help. Each has `--json`
    too.
    """

    name: str
    help: str
    options: tuple[Option, ...]

    def line(self, **values: object) -> str:
        """The command as it is typed to give its options these values, in their order; defaults are left
        out.
        """
        known = {option.name: option for option in self.options}
        return command(
            *self.name.split(), *(word for name, value in values.items() for word in known[name].words(value))
        )


def written(value: object) -> str:
    """A value as recipes and `--option` write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def items(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """What is given where there may be several texts: one text is one of them."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def split_settings(settings: Sequence[str]) -> dict[str, str]:
    """The text of each option of a recipe by its name, from `NAME=VALUE`.

    Raises:
        UsageError: one has no `=`, or a name occurs twice.
    """
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name in found:
            problem = "is set twice" if equals else "is not NAME=VALUE"
            message = f"'{name if equals else setting}' {problem}"
            raise UsageError(message, where="--option", next="write NAME=VALUE, each name once")
        found[name] = value
    return found


def _argument(name: str, metavar: str, help: str, kind: type = Path, many: bool = False) -> Option:
    return Option(name, None, metavar, help, kind, REQUIRED, many)


def _switch(name: str, help: str, flag: str | None = None) -> Option:
    return _option(name, None, help, bool, False, flag)


def _option(
    name: str,
    metavar: str | None,
    help: str,
    kind: type = str,
    default: Any = None,
    flag: str | None = None,
    **more: Any,
) -> Option:
    return Option(name, flag or f"--{name.replace('_', '-')}", metavar, help, kind, default, **more)


_DEVICE = _option("device", "cpu|cuda", "where the models run", default="cpu")
_FROM = _option(
    "source", "ZOO|FRAMEWORK", "where a variant's weights come from; not for a FILE", flag="--from"
)
_WEIGHTS = _option("weights", "FILE", "a file to use instead of the zoo's published one", Path)
_SHARED = {
    option.name: option
    for option in (
        _argument("variant", "VARIANT", "such as mobilenet_v2; see porter recipe list", str),
        _argument(
            "subject",
            "VARIANT|FILE",
            "a variant, a file that carries its own graph, or a folder of the Hub or hf://OWNER/NAME",
            str,
        ),
        _argument("folder", "DIR", "a port's folder"),
        _argument("folders", "DIR...", "folders of ports; several share the decoded photos", many=True),
        _argument("images", "IMAGE...", "photos", many=True),
        _argument(
            "file", "FILE", "a weights file of any readable format, a folder of the Hub or hf://OWNER/NAME"
        ),
        _argument("name", "NAME", "an architecture or a variant", str),
        _FROM,
        _option("to", "FRAMEWORK", "the framework of the port", default=REQUIRED),
        _WEIGHTS,
        _option("out", "DIR", "default: ./VARIANT-ZOO-FRAMEWORK or ./STEM-FRAMEWORK", Path),
        _switch("overwrite", "replace an existing port"),
        _option(
            "padding",
            "shipped|trained",
            "the zoo's pads, or those that the weights were trained with",
            default="shipped",
        ),
        _option("input_size", "N|HxW|any", "default: the file's own, otherwise the recipe's"),
        _option(
            "dtype",
            "TYPE",
            "the type of the stored weights: float32, float16, bfloat16 or float64",
            default="float32",
        ),
        _option(
            "quantize",
            "dynamic",
            "with --to tflite: store the weights in 8 bits, and measure what that loses",
        ),
        _switch("allow_overflow", "let values that are too large for the type become infinite"),
        _switch("keep_background", "keep the background class, row 0 of a 1001-class head"),
        _switch("keep_activation", "keep the softmax or sigmoid at the end of a FILE that has one output"),
        _switch("keep_dropout", "write the file's dropouts too, for further training"),
        _option("preprocess", "TEXT|FILE", "how photos become the input: resize=...,size=...,... or JSON"),
        _option("class_names", "FILE", "the names of the classes, one on each line, in their order", Path),
        _option(
            "outputs",
            "NAME,...",
            "end a FILE's graph at these values",
            default=(),
            read=lambda names: names.split(","),
        ),
        _option(
            "mapped",
            "SRC=NODE",
            "layer SRC of the file is node NODE of the recipe; for dense layers in a row: "
            "FIRST,relu,LAST=head/logits",
            default=(),
            flag="--map",
            many=True,
        ),
        _option(
            "options",
            "NAME=VALUE",
            "set an option of the recipe that a file of weights does not record",
            flag="--option",
            many=True,
            read=split_settings,
        ),
        _switch("fold_bn", "fold batch norms into the layers before them"),
        _option(
            "stock",
            "[timm]",
            "use the layer names of a stock class (torchvision's, Keras's or timm's), if that class "
            "computes the same",
            default=False,
            read=lambda library: library or True,
        ),
        _option(
            "check", None, "compare port and source; default: if possible", bool, flag="--check/--no-check"
        ),
        _option(
            "reference",
            "FILE|FILE.py:CALLABLE",
            "compare the port with this too: another file that carries its graph, or your own code, "
            "which porter then RUNS",
        ),
        _option(
            "origin",
            "ZOO",
            "say that the weights are this zoo's, even where the file or its folder states another",
        ),
        _switch("card", "write README.md too, a model card for Hugging Face's Hub; nothing is uploaded"),
        _option("recipes", "DIR", "a folder of your own recipes; porter looks there first", Path),
        _switch("float64", "compare in double precision only"),
        _switch("layers", "print every compared node"),
        _DEVICE,
        _option("tolerance", "X", "limit on relative L2 distance", float),
        _option("data", "PATH", "labelled photos: class folders, a tar, Parquet shards, ...", Path, REQUIRED),
        _option(
            "precision",
            "fp32|tf32|bf16|fp16",
            "the precision that the port runs in; the source runs in fp32",
            default="fp32",
        ),
        _option("amp", "bf16|fp16", "torch's automatic mixed precision: another spelling of --precision"),
        _switch("compiled", "compile a torch port by torch.compile", "--compile"),
        _option(
            "channels_last",
            None,
            "the memory layout of torch's feature maps",
            bool,
            True,
            "--channels-last/--channels-first",
        ),
        _switch(
            "fast",
            "try the precisions, memory layouts and torch.compile, use the fastest, and print "
            "fp32's figures beside it",
        ),
        _option(
            "real_labels",
            "FILE",
            "ReaL's real.json: score by its labels too, beside the photos' own",
            Path,
        ),
        _option("crops", "1|10", "with 10: average the probabilities of ten crops", int, 1),
        _option("batch_size", "N", "photos at a time; default: 16 on a CPU, 64 on a GPU", int),
        _option("workers", "N", "processes that decode; default: one per core", int),
        _option("limit", "N", "score at most N photos", int),
        _option("cache", "DIR", "keep prepared photos for the next run", Path),
        _option("split", "NAME", "train, val or test; default: val, or the only one"),
        _option(
            "labels",
            "FILE",
            "take the labels from this: ReaL's real.json, ImageNet's development kit, or a list",
            Path,
        ),
        _option(
            "expect_top1", "X", "exit with status 1 unless top-1 is X per cent, within --tolerance", float
        ),
        _option("predictions", "FILE.csv", "write what the port saw in every photo", Path),
        _switch("afresh", "begin at the first photo, not where an interrupted run ended"),
        _option("results", "FILE.csv", "write a line of figures for each port", Path),
        _switch("tensors", "list every tensor with its shape and type"),
        _switch("all_sites", "also the sites that need no padding (--json has them)", "--all"),
        _option(
            "between",
            "ZOO,ZOO",
            "two zoos whose networks take the same tensors: find which of them the weights were trained as",
        ),
        _option(
            "sites",
            "PATH=CONVENTION,...",
            "try these paddings at this site only, not at all strided sites",
            default=(),
            flag="--site",
            many=True,
        ),
        _option("port", "DIR", "write the study into this port's record", Path),
        _option("model", "FILE", "a file that carries its own graph", Path, flag="--from-model"),
        _option("zoo", "ZOO", "the name of the recipe's zoo; default: own"),
    )
}
_PHOTOS = "device crops batch_size workers limit cache split labels preprocess class_names"
JSON = _switch("as_json", "print one JSON object and nothing else", "--json")


def _command(name: str, help: str, names: str, *own: Option) -> Command:
    """A command with the options of these names, some of which are its `own`."""
    options = {**_SHARED, **{option.name: option for option in own}}
    return Command(name, help, tuple(options[each] for each in names.split()))


CONVERT = _command(
    "convert",
    "Port weights to another framework, and prove the port. The subject is a variant, with --from its "
    "zoo, or a file that carries its own graph.",
    "subject source to weights out overwrite padding input_size dtype quantize allow_overflow "
    "keep_background keep_activation "
    "keep_dropout preprocess class_names outputs mapped options fold_bn stock check reference origin "
    "card recipes",
)
VERIFY = _command(
    "verify",
    "Compare a port with its source again, node by node. Exit status 1 if they differ.",
    "folder weights float64 layers device tolerance reference recipes",
    replace(_DEVICE, help="where the port runs"),
)
PREDICT = _command(
    "predict", "Print the five likeliest classes of photos.", "folder images preprocess class_names"
)
EVALUATE = _command(
    "eval",
    "Measure the top-1, top-5 and loss of ports on labelled photos. Ctrl-C stops and prints the "
    "figures so far.",
    "folders data source weights precision amp compiled channels_last fast "
    f"{_PHOTOS} real_labels expect_top1 tolerance predictions afresh results recipes",
    _switch("source", "run the source in its own framework beside the port"),
    _option("tolerance", "T", "how far top-1 may be from X, in percentage points; default: 0.05", float),
)
INSPECT = _command(
    "inspect",
    "Print what a weights file is, and the command that ports it.",
    "file tensors input_size recipes",
)
PADS = _command(
    "pads",
    "Print how a source pads, and how the port does the same. Each site has its convention in the source, "
    "its realisation in the destination, and why; training pads and what the destination refuses follow.",
    "subject source to input_size all_sites recipes",
)
FETCH = _command(
    "fetch",
    "Download and check published weights. They go into the cache, and their path is printed.",
    "variant source recipes",
    replace(_FROM, help="where the weights come from", default=REQUIRED),
)
STUDY = _command(
    "study padding",
    "Name the padding that weights were trained with. The same weights are measured under each candidate.",
    f"variant source data between origin weights sites mapped options {_PHOTOS} port recipes",
)
REPORT = _command(
    "report",
    "Write all that is recorded of a port as one HTML page.",
    "folder other out",
    Option("other", None, "OTHER", "a second port, to show both side by side", Path),
    _option("out", "FILE", "default: DIR/report.html; for two ports ./DIR-and-OTHER.html", Path),
)
RECIPE_LIST = _command("recipe list", "List architectures, their variants and zoos.", "recipes")
RECIPE_SHOW = _command("recipe show", "Print a recipe; for a variant, its graph and zoos.", "name recipes")
RECIPE_CHECK = _command(
    "recipe check",
    "Check every variant of a recipe in every zoo. Its graph, shapes, names, pads, expressions and figures "
    "are checked.",
    "file weights",
    _argument("file", "FILE", "a recipe"),
    replace(_WEIGHTS, help="try the recipe on this file: mapping and numbers"),
)
RECIPE_NEW = _command(
    "recipe new",
    "Draft a recipe from a model or from weights. A file that carries its own graph gives the whole "
    "recipe, a file of weights one with a # TODO at each guess.",
    "name model weights zoo out overwrite input_size",
    _argument("name", "NAME", "of the variant, and of its architecture", str),
    replace(_WEIGHTS, help="try the recipe on this file; without --from-model, draft it from this file"),
    _option("out", "FILE", "default: ./NAME.yaml", Path),
    _switch("overwrite", "replace an existing file"),
)
RECIPE_SCHEMA = _command(
    "recipe schema",
    "Print the JSON Schema of recipes and of zoos' files, for editors. --json changes nothing.",
    "",
)

CALLS = {
    "convert": CONVERT,
    "verify": VERIFY,
    "predict": PREDICT,
    "evaluate": EVALUATE,
    "inspect": INSPECT,
    "study": STUDY,
}
CALLS["report"] = REPORT
"""The functions of the API, and the commands that call them."""
ONLY_TYPED = {"layers", "results", "tensors", "all_sites", "card"}
"""Options of what the command line prints, which no function has, and of what a method of Port does."""
_FUNCTIONS = {table.name: function for function, table in CALLS.items()}
_TABLES = {table.name: table for table in list(vars().values()) if isinstance(table, Command)}
_NAMES = "|".join(map(re.escape, sorted(_TABLES, key=len, reverse=True)))
_COMMAND = re.compile(rf"\bporter (?P<name>{_NAMES})\b")
_A_WORD = r"'[^']*'|[^\s;)'\"]*[^\s;:,.)'\"]"
_WORD = re.compile(rf" (?P<word>{_A_WORD})")
_FLAG = re.compile(
    rf"(?P<without>\b(?:without|leave out) )?(?P<flag>--[a-z][\w-]*)(?:[ =](?P<value>{_A_WORD}))?"
)
_VALUE = re.compile(r"[A-Z0-9].*|'.*'|.*[=/_].*")
"""What follows a flag as its value and not as the next word of a sentence; and the choices of its metavar."""
_END = re.compile(r"$|[\n;,.)]| --")
"""What follows a name, and does not follow a verb."""
_NAMES_OF = {"ZOO", "ZOO,ZOO", "NAME", "timm", "FRAMEWORK"}
_FLAGS = {
    flag: option
    for table in CALLS.values()
    for option in table.options
    if option.name not in ONLY_TYPED
    for flag in (option.flag or "").split("/")
    if flag
}


def parameter_of(flag: str) -> str:
    """The parameter that a flag gives; any other text in the API's words."""
    option = _FLAGS.get(flag)
    return in_python(flag) if option is None else option.name


def in_python(text: str) -> str:
    """A message of porter's, which speaks of commands and flags, as the API says it: `add --input-size N` is
    `add input_size=N`, and `porter convert FILE --to tf` is `porter.convert(FILE, to="tf")`.
    """
    said, place = "", 0
    while found := _COMMAND.search(text, place):
        call, end = _call(found["name"], text, found.end())
        said += _flags(text[place : found.start()]) + (call or text[found.start() : end])
        place = end
    return said + _flags(text[place:])


def _call(name: str, text: str, place: int) -> tuple[str | None, int]:
    """The call of the command `name` whose options stand in `text` from `place` on, and where they end; None
    where no function has one of them.
    """
    function, table = _FUNCTIONS.get(name), _TABLES[name]
    flags = {flag: option for option in table.options for flag in (option.flag or "").split("/") if flag}
    typed, given, callable_ = [option for option in table.options if option.flag is None], list[str](), True
    while found := _WORD.match(text, place):
        word, option = found["word"], flags.get(found["word"])
        if option is not None:
            place = found.end()
            if option.kind is not bool and (value := _WORD.match(text, place)):
                place = value.end()
                given.append(_argument_of(option, value["word"]))
            else:
                given.append(_switched(option, word))
            callable_ &= option.name not in ONLY_TYPED
        elif (
            typed
            and not word.startswith("--")
            and (not word.isalpha() or word.isupper() or text.startswith(" --", found.end()))
        ):
            place = found.end()
            given.append(_literal(word))
            typed = typed[1:]
        else:
            break
    if function is None or not callable_:
        return None, place
    return (f"porter.{function}({', '.join(given)})" if given else f"porter.{function}"), place


def _flags(text: str) -> str:
    """`text` with arguments in place of flags."""
    return _FLAG.sub(_named, text)


def _named(found: re.Match[str]) -> str:
    option, value, before = _FLAGS.get(found["flag"]), found["value"], found["without"] or ""
    if option is None:
        return found[0]
    rest = "" if value is None else f" {_flags(value)}"
    choices = (option.metavar or "").strip("[]").split("|")
    named = (
        value is not None
        and not _NAMES_OF.isdisjoint(choices)
        and bool(_END.match(found.string, found.end()))
    )
    if (
        value is not None
        and (option.kind is not bool or named)
        and (named or value in choices or _VALUE.fullmatch(value))
    ):
        return before + _argument_of(option, value)
    if before or option.kind is not bool:
        return f"{before}{option.name}{rest}"
    return _switched(option, found["flag"]) + rest


def _switched(option: Option, flag: str) -> str:
    """A switch as it is given: `check=False` for `--no-check`."""
    return f"{option.name}={flag == str(option.flag).partition('/')[0]}"


def _argument_of(option: Option, word: str) -> str:
    if option.read is split_settings and "=" in word:
        name, _, value = word.strip("'").partition("=")
        return f'{option.name}={{"{name}": {_literal(value)}}}'
    return f"{option.name}={_literal(word)}"


def _literal(word: str) -> str:
    """A word of a command in Python: a number and a word that stands for something, such as FILE, are no
    texts.
    """
    word = word.strip("'")
    if word.endswith("*"):  # which a shell would take apart
        return f'glob.glob("{word}")'
    return word if re.fullmatch(r"[A-Z][A-Z_]*|\d+(\.\d+)?", word) else f'"{word}"'
