"""Every command of porter: what its help says, and its options as one frozen value, whose fields have the
types and defaults that the function of the API has.

The command line is made from these tables, and so are the signatures of the API and the commands that porter
prints. The annotations are evaluated here, because they lead to the options; types of frameworks are texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Annotated, TypeAlias, Union

from porter.base import options as opt
from porter.base.calls import Command
from porter.base.options import AnyPath, AnySize, Asked, Placeholder

if TYPE_CHECKING:
    from os import PathLike

    import jax
    import keras
    import numpy as np
    import onnx
    import torch
    from flax import nnx
    from numpy.typing import NDArray
    from PIL import Image

# Options of several commands.
Model: TypeAlias = "torch.nn.Module | keras.Model | nnx.Module | onnx.ModelProto"
"""A model that a user holds."""
Example: TypeAlias = (
    "torch.Tensor | jax.Array | NDArray[np.generic] | Sequence[torch.Tensor | NDArray[np.generic]] | None"
)
"""What a module is called with: a batch, or one for each input; None for zeros."""
Subject = Union[AnyPath, Model]  # noqa: UP007  a text in `|` would be no type
Recipes = Annotated[AnyPath | None, opt.RECIPES]
InputSize = Annotated[AnySize | None, opt.INPUT_SIZE]
PhotoProtocol = Annotated[AnyPath | Mapping[str, object] | None, opt.PREPROCESS]
ClassNames = Annotated[AnyPath | None, opt.CLASS_NAMES]
Folder = Annotated[AnyPath, opt.FOLDER]


@dataclass(frozen=True)
class ConvertOptions:
    """The options of `porter convert`."""

    subject: Annotated[Subject, opt.SUBJECT]
    source: Annotated[str | None, opt.FROM] = None
    to: Annotated[str, opt.TO] = "torch"
    _: KW_ONLY
    into: Annotated[
        "str | PathLike[str] | Callable[[], object] | torch.nn.Module | keras.Model | nnx.Module | None",
        opt.INTO,
    ] = None
    example: Annotated[Example, None] = None
    weights: Annotated[AnyPath | None, opt.WEIGHTS] = None
    out: Annotated[AnyPath | None, opt.OUT] = None
    overwrite: Annotated[bool, opt.OVERWRITE] = False
    padding: Annotated[str, opt.PADDING] = "shipped"
    input_size: InputSize = None
    dtype: Annotated[str, opt.DTYPE] = "float32"
    quantize: Annotated[str | None, opt.QUANTIZE] = None
    allow_overflow: Annotated[bool, opt.ALLOW_OVERFLOW] = False
    keep_background: Annotated[bool, opt.KEEP_BACKGROUND] = False
    keep_activation: Annotated[bool, opt.KEEP_ACTIVATION] = False
    keep_dropout: Annotated[bool, opt.KEEP_DROPOUT] = False
    preprocess: PhotoProtocol = None
    class_names: ClassNames = None
    outputs: Annotated[str | Sequence[str], opt.OUTPUTS] = ()
    mapped: Annotated[str | Sequence[str], opt.MAP] = ()
    options: Annotated[Mapping[str, bool | float | str] | None, opt.OPTION] = None
    fold_bn: Annotated[bool, opt.FOLD_BN] = False
    stock: Annotated[bool | str, opt.STOCK] = False
    check: Annotated[bool | None, opt.CHECK] = None
    reference: Annotated[AnyPath | None, opt.REFERENCE] = None
    origin: Annotated[str | None, opt.ORIGIN] = None
    recipes: Recipes = None


@dataclass(frozen=True)
class VerifyOptions:
    """The options of `porter verify`."""

    folder: Folder
    _: KW_ONLY
    weights: Annotated[Subject | None, opt.WEIGHTS] = None
    float64: Annotated[bool, opt.FLOAT64] = False
    device: Annotated[str, replace(opt.DEVICE, help="where the port runs")] = "cpu"
    tolerance: Annotated[float | None, opt.TOLERANCE] = None
    reference: Annotated[AnyPath | None, opt.REFERENCE] = None
    recipes: Recipes = None


@dataclass(frozen=True)
class CompareOptions:
    """The options of `porter compare`."""

    a: Annotated[Subject, opt.A]
    b: Annotated[Subject, opt.B]
    _: KW_ONLY
    input_size: InputSize = None
    example: Annotated[Example, None] = None
    tolerance: Annotated[
        float | None,
        replace(
            opt.TOLERANCE,
            help="how far apart weights may be, relative; default: 1e-12, and 1e-6 where norms may be folded",
        ),
    ] = None
    recipes: Recipes = None


@dataclass(frozen=True)
class PredictOptions:
    """The options of `porter predict`."""

    folder: Folder
    images: Annotated[
        "str | PathLike[str] | Image.Image | NDArray[np.generic] "
        "| Sequence[str | PathLike[str] | Image.Image | NDArray[np.generic]]",
        opt.IMAGES,
    ]
    _: KW_ONLY
    preprocess: PhotoProtocol = None
    class_names: ClassNames = None


@dataclass(frozen=True, kw_only=True)
class PhotosOptions:
    """How the photos of an evaluation or of a study are read and run."""

    device: Annotated[str, opt.DEVICE] = "cpu"
    crops: Annotated[int, opt.CROPS] = 1
    batch_size: Annotated[int | None, opt.BATCH_SIZE] = None
    workers: Annotated[int | None, opt.WORKERS] = None
    limit: Annotated[int | None, opt.LIMIT] = None
    cache: Annotated[AnyPath | None, opt.CACHE] = None
    split: Annotated[str | None, opt.SPLIT] = None
    labels: Annotated[AnyPath | None, opt.LABELS] = None
    preprocess: PhotoProtocol = None
    class_names: ClassNames = None


AROUND = 0.05
"""Percentage points around `--expect-top1` if no `--tolerance` is given."""


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions(PhotosOptions):
    """The options of `porter eval`, whatever it measures."""

    source: Annotated[bool, opt.SOURCE] = False
    weights: Annotated[Subject | None, opt.WEIGHTS] = None
    precision: Annotated[str, opt.PRECISION] = "fp32"
    compiled: Annotated[bool, opt.COMPILE] = False
    channels_last: Annotated[bool, opt.CHANNELS_LAST] = True
    fast: Annotated[bool, opt.FAST] = False
    real_labels: Annotated[AnyPath | None, opt.REAL_LABELS] = None
    expect_top1: Annotated[float | None, opt.EXPECT_TOP1] = None
    tolerance: Annotated[
        float | None,
        replace(
            opt.TOLERANCE,
            metavar="T",
            help=f"how far top-1 may be from X, in percentage points; default: {AROUND}",
        ),
    ] = None
    predictions: Annotated[AnyPath | None, opt.PREDICTIONS] = None
    afresh: Annotated[bool, opt.AFRESH] = False
    recipes: Recipes = None


@dataclass(frozen=True)
class EvaluateOptions(MeasuringOptions):
    """The options of `porter.evaluate`, which measures one port."""

    folder: Folder
    data: Annotated[AnyPath, opt.DATA]


@dataclass(frozen=True)
class EvaluateSeveralOptions(MeasuringOptions):
    """The options of `porter eval`, which measures each port that is named."""

    folders: Annotated[Sequence[AnyPath], opt.FOLDERS]
    data: Annotated[AnyPath, opt.DATA]


@dataclass(frozen=True)
class OpenOptions:
    """The options of `porter.open`."""

    folder: Folder


@dataclass(frozen=True)
class LoadOptions(OpenOptions):
    """The options of `porter.load`."""

    device: Annotated[str, replace(opt.DEVICE, help="where the port runs")] = "cpu"


@dataclass(frozen=True)
class ListModelsOptions:
    """The options of `porter.list_models`."""

    name: Annotated[str, opt.NAME] = "*"
    zoo: Annotated[str | None, opt.ZOO] = None
    _: KW_ONLY
    recipes: Recipes = None


@dataclass(frozen=True)
class InspectOptions:
    """The options of `porter inspect`."""

    file: Annotated[AnyPath, opt.FILE]
    recipes: Recipes = None
    input_size: InputSize = None


@dataclass(frozen=True)
class PadsOptions:
    """The options of `porter pads`."""

    subject: Annotated[str, opt.SUBJECT]
    source: Annotated[str | None, opt.FROM] = None
    to: Annotated[str, opt.TO] = "torch"
    input_size: InputSize = None
    recipes: Recipes = None


@dataclass(frozen=True)
class FetchOptions:
    """The options of `porter fetch`."""

    variant: Annotated[str, opt.VARIANT]
    source: Annotated[str, replace(opt.FROM, help="where the weights come from", required=True)]
    recipes: Recipes = None


@dataclass(frozen=True)
class StudyOptions(PhotosOptions):
    """The options of `porter study padding`."""

    variant: Annotated[str, opt.VARIANT]
    source: Annotated[str | None, opt.FROM]
    data: Annotated[AnyPath, opt.DATA]
    _: KW_ONLY
    between: Annotated[str | Sequence[str] | None, opt.BETWEEN] = None
    origin: Annotated[str | None, opt.ORIGIN] = None
    weights: Annotated[AnyPath | None, opt.WEIGHTS] = None
    sites: Annotated[str | Sequence[str], opt.SITE] = ()
    mapped: Annotated[str | Sequence[str], opt.MAP] = ()
    options: Annotated[Mapping[str, bool | float | str] | None, opt.OPTION] = None
    port: Annotated[AnyPath | None, opt.PORT] = None
    recipes: Recipes = None


@dataclass(frozen=True)
class ReportOptions:
    """The options of `porter report`."""

    folder: Folder
    out: Annotated[
        AnyPath | None,
        replace(opt.OUT, metavar="FILE", help="default: DIR/report.html; for two ports ./DIR-and-OTHER.html"),
    ] = None
    other: Annotated[AnyPath | None, opt.OTHER] = None


@dataclass(frozen=True)
class BatchOptions:
    """The options of `porter batch`."""

    list: Annotated[AnyPath, opt.LIST]
    out: Annotated[AnyPath, replace(opt.OUT, help="the folder of the ports and the tables", required=True)]
    workers: Annotated[
        int | None, replace(opt.WORKERS, help="ports that are made at a time; default: one for two cores")
    ] = None
    shard: Annotated[str | None, opt.SHARD] = None
    on: Annotated[str, opt.ON] = "local"
    memory: Annotated[float | None, opt.MEMORY] = None
    timeout: Annotated[float | None, opt.TIMEOUT] = None


@dataclass(frozen=True)
class RecipeListOptions:
    """The options of `porter recipe list`."""

    recipes: Recipes = None


@dataclass(frozen=True)
class RecipeShowOptions:
    """The options of `porter recipe show`."""

    name: Annotated[str, opt.NAME]
    recipes: Recipes = None


@dataclass(frozen=True)
class RecipeCheckOptions:
    """The options of `porter recipe check`."""

    file: Annotated[AnyPath, replace(opt.FILE, help="a recipe")]
    weights: Annotated[
        AnyPath | None,
        replace(opt.WEIGHTS, help="try the recipe on this file: mapping and numbers"),
    ] = None


@dataclass(frozen=True)
class RecipeNewOptions:
    """The options of `porter recipe new`."""

    name: Annotated[str, replace(opt.NAME, help="the name of the variant, and of its architecture")]
    model: Annotated[AnyPath | None, opt.FROM_MODEL] = None
    weights: Annotated[
        AnyPath | None,
        replace(
            opt.WEIGHTS, help="try the recipe on this file; without --from-model, draft it from this file"
        ),
    ] = None
    zoo: Annotated[str | None, opt.ZOO] = None
    out: Annotated[AnyPath | None, replace(opt.OUT, metavar="FILE", help="default: ./NAME.yaml")] = None
    overwrite: Annotated[bool, replace(opt.OVERWRITE, help="replace an existing file")] = False
    input_size: InputSize = None


@dataclass(frozen=True)
class RecipeSchemaOptions:
    """`porter recipe schema` has no options."""


CONVERT = Command(
    "convert",
    "Port weights to another framework, and prove the port. The subject is a variant, with --from its "
    "zoo, or a file that carries its own graph.",
    ConvertOptions,
    "convert",
    (opt.CARD,),
    {"to": "into"},
)
VERIFY = Command(
    "verify",
    "Compare a port with its source again, node by node. Exit status 1 if they differ.",
    VerifyOptions,
    "verify",
    (opt.LAYERS,),
)
COMPARE = Command(
    "compare",
    "Say whether two models are the same function. All that differs is listed. Exit status 1 if they "
    "differ, or nothing decides.",
    CompareOptions,
    "compare",
    (opt.LAYERS, opt.JUNIT),
)
PREDICT = Command("predict", "Print the five likeliest classes of photos.", PredictOptions, "predict")
EVALUATE = Command(
    "eval",
    "Measure the top-1, top-5 and loss of ports on labelled photos. Ctrl-C stops and prints the "
    "figures so far.",
    EvaluateSeveralOptions,
    "evaluate",
    (opt.RESULTS,),
)
INSPECT = Command(
    "inspect",
    "Print what a weights file is, and the command that ports it.",
    InspectOptions,
    "inspect",
    (opt.TENSORS,),
)
PADS = Command(
    "pads",
    "Print how a source pads, and how the port does the same. Each site has its convention in the source, "
    "its realisation in the destination, and why; training pads and what the destination refuses follow.",
    PadsOptions,
    printing=(opt.ALL,),
)
FETCH = Command(
    "fetch",
    "Download and check published weights. They go into the cache, and their path is printed.",
    FetchOptions,
)
STUDY = Command(
    "study padding",
    "Name the padding that weights were trained with. The same weights are measured under each candidate.",
    StudyOptions,
    "study",
)
REPORT = Command(
    "report",
    "Write all that is recorded of a port as one HTML page.",
    ReportOptions,
    "report",
    (opt.OPEN,),
)
BATCH = Command(
    "batch",
    "Make the ports of a list, and a table of them. Each port has a process of its own. Typed again, the "
    "command makes what is left. Exit status 1 if a port was refused or failed.",
    BatchOptions,
)
RECIPE_LIST = Command("recipe list", "List architectures, their variants and zoos.", RecipeListOptions)
RECIPE_SHOW = Command("recipe show", "Print a recipe; for a variant, its graph and zoos.", RecipeShowOptions)
RECIPE_CHECK = Command(
    "recipe check",
    "Check every variant of a recipe in every zoo. Its graph, shapes, names, pads, expressions and figures "
    "are checked.",
    RecipeCheckOptions,
)
RECIPE_NEW = Command(
    "recipe new",
    "Draft a recipe from a model or from weights. A file that carries its own graph gives the whole "
    "recipe, a file of weights one with a # TODO at each guess.",
    RecipeNewOptions,
)
RECIPE_SCHEMA = Command(
    "recipe schema",
    "Print the JSON Schema of recipes and of zoos' files, for editors. --json changes nothing.",
    RecipeSchemaOptions,
)
COMMANDS = (
    CONVERT,
    VERIFY,
    COMPARE,
    PREDICT,
    EVALUATE,
    INSPECT,
    PADS,
    FETCH,
    STUDY,
    REPORT,
    BATCH,
    RECIPE_LIST,
    RECIPE_SHOW,
    RECIPE_CHECK,
    RECIPE_NEW,
    RECIPE_SCHEMA,
)

FRAMEWORK = Asked("FRAMEWORK")
FILE, ZOO, VARIANT, PORT, MODEL, PHOTO, PHOTOS, NAME = map(
    Placeholder, ("FILE", "ZOO", "VARIANT", "PORT", "MODEL", "PHOTO", "PHOTOS", "NAME")
)
