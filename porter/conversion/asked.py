"""What `convert` is asked for: each option is read, and all are checked against each other and against the
kind of source, before anything is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from porter.base.commands import CONVERT, FILE, FRAMEWORK, VARIANT, ZOO, ConvertOptions, Model
from porter.base.dtypes import DTYPES, Dtype
from porter.base.errors import UsageError, refuse_first
from porter.base.options import (
    CHECK,
    DTYPE,
    FOLD_BN,
    FROM,
    KEEP_ACTIVATION,
    KEEP_DROPOUT,
    MAP,
    OPTION,
    ORIGIN,
    OUTPUTS,
    PADDING,
    QUANTIZE,
    REFERENCE,
    STOCK,
    WEIGHTS,
    Option,
    items,
    path_of,
)
from porter.frameworks import TRAINED, Destination, get_destination, is_converted
from porter.frameworks.in_memory import expect_subject, is_model
from porter.padding import Size
from porter.padding.sizes import parse_size
from porter.port import Quantize
from porter.recipe import choose_options, find_member
from porter.source.hub_download import repository_of
from porter.source.open import open_source
from porter.source.opened import Opened
from porter.source.place import InMemory, expect_file, find, find_pair, find_weights
from porter.source.stated_photos import PhotoFacts, read_statements
from porter.source.training_pads import parse_padding, with_padding
from porter.source.wishes import Wishes

if TYPE_CHECKING:
    from porter.verification.references.user_reference import ReferenceName


@dataclass(frozen=True)
class Wanted:
    """What `convert` is asked for.

    Attributes:
        size: None for the source's own.
        reference: the user's own, with which the port is compared too.
        recipes: the folder that the user names.
        name: of the source, as its port's folder begins.
        out: the port's folder.
        open: opens the source.
    """

    framework: Destination
    dtype: Dtype
    quantize: Quantize | None
    size: Size | None
    photos: PhotoFacts
    reference: ReferenceName | None
    recipes: Path | None
    wishes: Wishes
    name: str
    out: Path
    open: Callable[[], Opened]


def read_asked(asked: ConvertOptions) -> Wanted:
    """Read the options of `convert`, and check them against each other; nothing is opened yet.

    Raises:
        PorterError: one of them is wrong, contradicts another, or does not go with this kind of source.
    """
    framework, dtype, recipes = get_destination(asked.to), parse_dtype(asked.dtype), path_of(asked.recipes)
    subject = expect_subject(asked.subject, "a variant, a file")
    _expect_together(asked, framework, dtype)
    size = None if asked.input_size is None else parse_size(asked.input_size)
    name, wishes, opening = _source(asked, subject, size, recipes)
    return Wanted(
        framework=framework,
        dtype=dtype,
        quantize="dynamic" if asked.quantize else None,
        size=size,
        photos=read_statements(asked.preprocess, asked.class_names),
        reference=_reference(asked.reference),
        recipes=recipes,
        wishes=wishes,
        name=name,
        out=Path(asked.out or f"{name}-{framework.NAME}"),
        open=opening,
    )


def _source(
    asked: ConvertOptions, subject: str | PathLike[str] | Model, size: Size | None, recipes: Path | None
) -> tuple[str, Wishes, Callable[[], Opened]]:
    """Return the name of the source, what is wished of it, and a function that opens it. The source is one
    of three: a recipe's variant (with `--from`), a model in memory, or what a path names: a file, a port or
    a repository.
    """
    weights = path_of(asked.weights)
    if isinstance(subject, str | PathLike) and asked.source is not None:
        member = find_member(fspath(subject), asked.source, recipes)
        chosen = choose_options(member.recipe, asked.options or {})
        wishes = Wishes(asked.keep_background, items(asked.mapped), chosen, origin=asked.origin)
        pads = parse_padding(asked.padding, member)
        name = f"{member.variant}-{member.zoo.name}"

        def as_member() -> Opened:
            return with_padding(open_source(find_weights(member, weights), wishes, member), pads)

        return name, wishes, as_member
    wishes = Wishes(
        asked.keep_background,
        size=size,
        keep_activation=asked.keep_activation,
        outputs=items(asked.outputs),
        as_given=asked.into is not None,
    )
    if not isinstance(subject, str | PathLike):
        place = InMemory(subject, asked.example)
        return type(subject).__name__, wishes, lambda: open_source(place, wishes, recipes=recipes)
    file = expect_file(fspath(subject), recipes)
    repository = repository_of(file)
    name = file.name if file.is_dir() else file.stem
    if repository is not None:
        name = repository.name

    def as_itself() -> Opened:
        place = find(file) if weights is None else find_pair(file, weights)
        return open_source(place, wishes, recipes=recipes)

    return name, wishes, as_itself


def _expect_together(asked: ConvertOptions, framework: Destination, dtype: Dtype) -> None:
    """Refuse options that contradict each other, or that do not go with this kind of source.

    Raises:
        UsageError: the first pair that contradicts, with what to leave out.
    """
    in_memory = is_model(asked.subject)
    by_recipe = asked.source is not None and not in_memory
    if asked.quantize not in (None, "dynamic"):
        message = f"porter does not know the quantization '{asked.quantize}'"
        raise UsageError(message, where=str(QUANTIZE), next="write dynamic")
    rows: list[tuple[bool, Option | str, str, str]] = [
        (
            asked.fold_bn and bool(asked.stock),
            FOLD_BN,
            "stock classes have batch norms, so none can be folded",
            f"leave out {FOLD_BN} or {STOCK}",
        ),
        (
            asked.keep_dropout and bool(asked.stock),
            KEEP_DROPOUT,
            "a stock class has its own dropouts",
            "leave it out",
        ),
        (
            asked.keep_dropout and framework.NAME not in TRAINED,
            KEEP_DROPOUT,
            f"porter's models of {framework.NAME} have no dropouts",
            "leave it out",
        ),
        (
            asked.quantize is not None and not is_converted(framework),
            QUANTIZE,
            "porter quantizes ports to tflite only",
            "leave it out",
        ),
        (
            asked.quantize is not None and dtype != "float32",
            DTYPE,
            f"{QUANTIZE} stores the weights in 8 bits, so they can have no other type",
            f"leave out {DTYPE} or {QUANTIZE}",
        ),
        (
            in_memory and asked.reference is not None,
            REFERENCE,
            "a model in memory is its own reference",
            "leave it out",
        ),
        (
            asked.reference is not None and asked.check is False,
            CHECK(False),
            f"{REFERENCE} asks for a comparison, and {CHECK(False)} forbids it",
            f"leave out {REFERENCE} or {CHECK(False)}",
        ),
    ]
    needs_recipe = f"write {CONVERT.advise(subject=VARIANT, source=ZOO, to=FRAMEWORK, weights=FILE)}"
    own_graph = CONVERT.advise(subject=FILE, to=FRAMEWORK)
    rows += [
        (not by_recipe and bool(value), option, "this needs a recipe's variant", needs_recipe)
        for option, value in (
            (MAP, asked.mapped),
            (OPTION, asked.options),
            (PADDING, asked.padding != "shipped"),
            (ORIGIN, asked.origin),
            (FROM, in_memory and asked.source),
            (WEIGHTS, in_memory and asked.weights),
        )
    ]
    rows += [
        (
            by_recipe and bool(value),
            option,
            f"a port by a recipe ({FROM}) always gives logits",
            f"leave it out, or port a file by its own graph: {own_graph}",
        )
        for option, value in ((OUTPUTS, asked.outputs), (KEEP_ACTIVATION, asked.keep_activation))
    ]
    refuse_first(*rows)


def parse_dtype(text: str) -> Dtype:
    """Return the storage type of this name, such as `float16`.

    Raises:
        UsageError: it is none of porter.base.dtypes.DTYPES.
    """
    for dtype in DTYPES:
        if dtype == text:
            return dtype
    raise UsageError(
        f"'{text}' is not a storage type", where=str(DTYPE), next=f"write one of {', '.join(DTYPES)}"
    )


def _reference(reference: str | PathLike[str] | None) -> ReferenceName | None:
    """Return the user's own reference as it is parsed: a file, or code as `model.py:build`; None if there is
    none.
    """
    if reference is None:
        return None
    from porter.verification.references.user_reference import parse_reference

    return parse_reference(fspath(reference))
