"""A recipe as it is read: the architecture, its variants, and what each zoo does differently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from porter.base.commands import RECIPE_SHOW
from porter.base.errors import RecipeError, UsageError, some
from porter.base.options import FROM
from porter.data.labels import Labels
from porter.data.preprocess import Preprocess
from porter.files import WeightsFile
from porter.frameworks import OTHER_NAMES
from porter.graph import USUAL_MOMENTUM
from porter.padding.sizes import MAX_SIDE
from porter.recipe.expressions import Value, evaluate
from porter.recipe.kept_graphs import KeptGraphs
from porter.recipe.paddings import PadRule
from porter.recipe.source import Location, RecipeSource
from porter.recipe.spelling import hint
from porter.recipe.steps import Block, RecipeStep
from porter.zoos.added import models_of
from porter.zoos.tables import DEFAULT_ZOOS

STANDARD_OPTIONS: Mapping[str, Value] = {
    "classes": 1000,
    "bn_momentum": USUAL_MOMENTUM,
    "bn_scale": True,
    "bn_center": True,
}
"""Options that every recipe has. `bn_epsilon` has no default, because nobody would notice a forgotten one."""

TRAINING_OPTIONS = frozenset({"bn_momentum"})
"""Options that do not change what a trained network computes."""

BUILT_SIZE = "input_size"
"""A key of a zoo's `assumed` that is not an option: the input size that a model was built for."""

OWN_NAME = "own"
"""The word in a tap that stands for the node's own name."""

PLACE = "place"
"""The word in a name that stands for the position of its node among those of its table
(porter.recipe.module_numbers).
"""

RESERVED = frozenset({"index", "count", "first", "last", "channels", "input", "variant", OWN_NAME, PLACE})
"""Names that variables and parameters may not have."""


@dataclass(frozen=True)
class LayerName:
    """A zoo's name of a node.

    Attributes:
        transforms: of its arrays (porter.recipe.transforms).
        location: the recipe's value that names it.
        bare: it is the name of the node's only tensor itself, which no layer of its own holds.
        adapted: the node is an affine step, and its numbers are the mean and the variance that the layer
            holds.
        computed: the array that the zoo's code computes for the node's only tensor, which no file holds
            (porter.recipe.fixed).
    """

    name: str
    transforms: tuple[str, ...] = ()
    location: Location = field(default=(), compare=False)
    bare: bool = False
    adapted: bool = False
    computed: str | None = None


NodeNames = Mapping[str, LayerName]
"""Names of nodes in a zoo's code or in a file, by path."""
PlacedText = tuple[Location, str]
"""A text and its place."""


@dataclass(frozen=True)
class NameRule:
    """One line of a table of names.

    Attributes:
        parts: its name, after the prefixes before it, each with its place.
        tensor: of a bare parameter, its name in the module.
        adapted, computed: see LayerName.
    """

    pattern: str
    parts: tuple[PlacedText, ...]
    transforms: tuple[str, ...]
    location: Location
    tensor: str | None = None
    adapted: bool = False
    computed: str | None = None

    @property
    def name(self) -> str:
        return "".join(text for _, text in self.parts)


@dataclass(frozen=True)
class Generation:
    """An older generation of a zoo's code: names that match before the zoo's, and what that code computed
    differently.
    """

    names: tuple[NameRule, ...]
    options: Mapping[str, Value]
    padding: tuple[PadRule, ...]


@dataclass(frozen=True)
class IgnoreRule:
    """Source tensors that stay unused: a shell-style pattern, the reason, and the values that they must have.

    `equals` is the number that every value must be, or the name of a fixed array (porter.recipe.fixed).
    """

    pattern: str
    reason: str
    equals: float | str | None = None


@dataclass(frozen=True)
class Override:
    """What a zoo does differently for one variant."""

    options: Mapping[str, Value]
    padding: tuple[PadRule, ...]


@dataclass(frozen=True)
class Published:
    """Accuracy on the ImageNet validation images as published, in percent, at an input of `size`."""

    top1: float
    top5: float
    size: int
    source: str
    note: str | None = None


@dataclass(frozen=True)
class Weights:
    """What a zoo publishes of one variant.

    Attributes:
        file: if there are several, the one for the native input size.
        preprocess, labels: where they differ from the zoo's.
    """

    file: WeightsFile | None
    published: Published | None
    preprocess: Preprocess | None
    labels: Labels | None


@dataclass(frozen=True)
class Zoo:
    """An origin of weights.

    Attributes:
        only: the variants that it has; empty if it has them all.
        reference: None if porter has none; `of` a variant, None if it has no such model.
        options: those that differ from the recipe's.
        chosen: the options that a caller set to another value than the zoo's; the network then differs from
            the zoo's own.
        assumed: options, or `BUILT_SIZE`, that differ among the zoo's own models and that a file of weights
            does not record, with the reason.
        padding: rules for sites that differ from the graph's own; the first match applies.
        padding_as_trained: rules for training pads that differ from the shipped ones; they match before
            `padding`.
        names: of layers by path; the first match applies.
        generations: older names, and what the code that wrote them computed, by label.
        taps: by path, names of layers whose output can be read although no tensor has the name.
        activation: the activation after the source's logits.
        weights: what it publishes, by variant.
        overrides: differences of single variants; see `of`.
    """

    name: str
    framework: str
    only: tuple[str, ...]
    reference: str | None
    options: Mapping[str, Value]
    assumed: Mapping[str, str]
    padding: tuple[PadRule, ...]
    padding_as_trained: tuple[PadRule, ...]
    names: tuple[NameRule, ...]
    generations: Mapping[str, Generation]
    taps: tuple[NameRule, ...]
    ignore: tuple[IgnoreRule, ...]
    preprocess: Preprocess | None
    labels: Labels | None
    activation: str | None
    licence: str | None
    weights: Mapping[str, Weights]
    overrides: Mapping[str, Override]
    chosen: Mapping[str, Value] = field(default_factory=dict)

    @property
    def files(self) -> Mapping[str, WeightsFile]:
        """The published file of each variant that has one."""
        return {variant: weights.file for variant, weights in self.weights.items() if weights.file}

    @property
    def published(self) -> Mapping[str, Published]:
        """The published accuracy of each variant that has one."""
        return {variant: weights.published for variant, weights in self.weights.items() if weights.published}

    def licence_of(self, variant: str) -> str | None:
        """Return the licence of the weights that the zoo publishes for a variant; None if it states none."""
        file = self.files.get(variant)
        return file.licence if file else self.licence

    def has(self, variant: str) -> bool:
        """Return whether the zoo has this variant of the recipe."""
        return not self.only or variant in self.only

    def of(self, variant: str) -> Zoo:
        """Return this zoo as it is for `variant`: with the variant's own options, pads, protocol and labels
        where it has some. The first match of a rule applies, so that the variant's rules of padding come
        first.
        """
        override = self.overrides.get(variant, Override({}, ()))
        weights = self.weights.get(variant, Weights(None, None, None, None))
        models = models_of(self.framework, self.reference)
        return replace(
            self,
            options={**self.options, **override.options},
            padding=(*override.padding, *self.padding),
            reference=self.reference if variant in models else None,
            preprocess=weights.preprocess or self.preprocess,
            labels=weights.labels or self.labels,
            overrides={},
        )

    def at(self, generation: str | None) -> Zoo:
        """Return this zoo with the options and pads of an older generation, but its own names; the zoo itself
        if nothing differs.
        """
        older = None if generation is None else self.generations[generation]
        if older is None or not (older.options or older.padding):
            return self
        return replace(
            self, options={**self.options, **older.options}, padding=(*older.padding, *self.padding)
        )


@dataclass(frozen=True)
class Recipe:
    """One architecture.

    Attributes:
        path: the file.
        variants: name to parameters.
        options: name to default; a zoo's and a caller's override it.
        constants: variables of every expression that are the same everywhere.
        input_size: rows and columns that it was designed for, or an expression of the side; see
            `native_size`.
        channels: of the input.
        graph: the steps, not expanded; see porter.recipe.expansion.
        zoos: by name; a zoo is read when it is first asked for, and the RecipeErrors of what is wrong there
            come then.
        roots: of each zoo, the last in its chain of `extends`.
        source: what the recipe says, with the places of it and of all that is said of its zoos.
        kept: the graphs that porter.recipe.expansion made of it.
    """

    architecture: str
    paper: str | None
    path: Path
    variants: Mapping[str, Mapping[str, Value]]
    options: Mapping[str, Value]
    constants: Mapping[str, Value]
    input_size: tuple[int, int] | str
    channels: int
    graph: tuple[RecipeStep, ...]
    blocks: Mapping[str, Block]
    zoos: Mapping[str, Zoo]
    roots: Mapping[str, str]
    source: RecipeSource
    kept: KeptGraphs = field(default_factory=KeptGraphs, init=False, repr=False, compare=False)

    def parameters(self, variant: str) -> Mapping[str, Value]:
        """Return the parameters of a variant.

        Raises:
            UsageError: there is no such variant.
        """
        if variant == self.architecture and variant not in self.variants:
            raise UsageError(
                f"'{variant}' is an architecture, not a variant",
                next=f"its variants are {some([*self.variants])}",
            )
        if variant not in self.variants:
            raise UsageError(
                f"'{self.architecture}' has no variant '{variant}'", next=hint(variant, self.variants)
            )
        return self.variants[variant]

    def zoo(self, name: str, variant: str) -> Zoo:
        """Return a zoo by its name, or the default zoo of a framework, with the override of `variant`
        applied.

        Raises:
            UsageError: there is no such variant or zoo, or the zoo lacks this variant.
        """
        self.parameters(variant)
        zoo = self._zoo(name, variant)
        if not zoo.has(variant):
            raise UsageError(
                f"zoo '{zoo.name}' has no '{variant}'",
                where=f"{FROM(name)}",
                next=f"it has {some(zoo.only)}; '{variant}' is in {some([*self.zoos_of(variant)])}",
            )
        return zoo.of(variant)

    def member(self, variant: str, zoo: str) -> Member:
        """Return a variant as a zoo has it.

        Raises:
            UsageError: as `zoo`.
        """
        return Member(self, variant, self.zoo(zoo, variant))

    def sound_members(self, variant: str) -> Iterator[Member]:
        """Yield `variant` as each of its zoos has it, without zoos that have a fault: a zoo spoils only
        itself.
        """
        for name in self.zoos:
            with suppress(RecipeError):
                if self.zoos[name].has(variant):
                    yield self.member(variant, name)

    def members(self, variant: str | None = None) -> Iterator[Member]:
        """Yield `variant`, or every variant, as each of its zoos has it."""
        variants = self.variants if variant is None else (variant,)
        for name in variants:
            yield from (Member(self, name, zoo) for zoo in self.zoos_of(name).values())

    def zoos_of(self, variant: str) -> Mapping[str, Zoo]:
        """Return the zoos that have `variant`, at least one, each with the override of `variant` applied.

        Raises:
            UsageError: there is no such variant.
        """
        self.parameters(variant)
        return {name: zoo.of(variant) for name, zoo in self.zoos.items() if zoo.has(variant)}

    def _zoo(self, name: str, variant: str) -> Zoo:
        """Return the zoo of a name, or the default zoo of a framework of that name, as keras for `tf`.

        Raises:
            UsageError: there is no such zoo; `variant` is for the message.
        """
        if name in self.zoos:
            return self.zoos[name]
        default = DEFAULT_ZOOS.get(OTHER_NAMES.get(name, name))
        if default is None or name == default:
            usable = [framework for framework, zoo in DEFAULT_ZOOS.items() if zoo in self.zoos]
            advice = hint(name, (*self.zoos, *usable), RECIPE_SHOW.advise(name=self.architecture))
            raise UsageError(f"no zoo '{name}' has '{variant}'", where=f"{FROM(name)}", next=advice)
        if default not in self.zoos:
            raise UsageError(
                f"zoo '{default}', the default of '{name}', has no '{variant}'",
                where=f"{FROM(name)}",
                next=hint(name, self.zoos),
            )
        return self.zoos[default]

    def native_size(self, variables: Mapping[str, Value] = {}) -> tuple[int, int]:
        """Return rows and columns of the input that the architecture was designed for.

        Args:
            variables: of a variant as a zoo has it; without them, the recipe's own options decide.

        Raises:
            RecipeError: the expression gives no side.
        """
        if not isinstance(self.input_size, str):
            return self.input_size
        with self.source.at(("input", "size")):
            side = evaluate(self.input_size, {**self.constants, **self.options, **variables})
            if type(side) is not int or not 1 <= side <= MAX_SIDE:
                raise RecipeError(f"'size' must be a whole number from 1 to {MAX_SIDE}, got {side!r}")
            return side, side


class Member(NamedTuple):
    """A variant as a zoo has it, from its recipe."""

    recipe: Recipe
    variant: str
    zoo: Zoo

    @property
    def name(self) -> str:
        return f"{self.variant} from {self.zoo.name}"

    @property
    def is_a(self) -> tuple[str, str]:
        """The names of the variant and of its zoo."""
        return self.variant, self.zoo.name

    def variables(self, options: Mapping[str, Value] | None = None) -> Mapping[str, Value]:
        """Return the variables that every expression can use; `options` override the zoo's."""
        recipe, variant, zoo = self
        options_of_zoo = {**recipe.options, **zoo.options, **(options or {})}
        return {**recipe.constants, **options_of_zoo, **recipe.parameters(variant)}

    def native_size(self) -> tuple[int, int]:
        """Return rows and columns of the input that the zoo's model is for."""
        return self.recipe.native_size(self.variables())

    @property
    def file(self) -> WeightsFile | None:
        """The file that the zoo publishes of the variant; None if it publishes none."""
        return self.zoo.files.get(self.variant)

    def at(self, generation: str | None) -> Member:
        """Return the variant as an older generation of the zoo's code has it, but under the zoo's own names
        (Zoo.at).
        """
        return self._replace(zoo=self.zoo.at(generation))

    def kin(self) -> Iterator[Member]:
        """Yield the variant itself, and then the same variant in the zoos that may have the same names,
        because a chain of `extends` joins them to its zoo.
        """
        yield self
        recipe, variant, zoo = self
        for name, root in recipe.roots.items():
            if name != zoo.name and root == recipe.roots.get(zoo.name) and recipe.zoos[name].has(variant):
                yield recipe.member(variant, name)
