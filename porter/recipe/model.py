"""What a recipe is once it is read: the architecture, its variants, and what each zoo does otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from porter.data.preprocess import Preprocess
from porter.errors import UsageError
from porter.files import WeightsFile
from porter.frameworks import FRAMEWORK_NAMES, OTHER_NAMES, get_framework
from porter.recipe.expressions import Value
from porter.recipe.paddings import PadRule
from porter.recipe.schema import Published
from porter.recipe.source import Location, Source
from porter.recipe.spelling import hint
from porter.recipe.steps import Block, Step

STANDARD_OPTIONS: Mapping[str, Value] = {"classes": 1000, "bn_momentum": 0.1, "bn_scale": True, "bn_center": True}
"""Options that every recipe has; `bn_epsilon` has no default, since a forgotten one would go unnoticed."""

TRAINING_OPTIONS = frozenset({"bn_momentum"})
"""Options that change nothing of what a network computes once it is trained."""

BUILT_SIZE = "input_size"
"""In a zoo's `assumed`, the size that a model was built for, which is no option."""

RESERVED = frozenset({"index", "count", "first", "last", "channels", "input"})
"""What variables and parameters may not be called."""


@dataclass(frozen=True)
class LayerName:
    """The name that a zoo gives a node, and the transforms (porter.transforms) that its arrays go through after that."""

    name: str
    transforms: tuple[str, ...] = ()


@dataclass(frozen=True)
class NameRule:
    """One line of a table of names."""

    pattern: str
    name: str
    transforms: tuple[str, ...]
    location: Location


@dataclass(frozen=True)
class Generation:
    """An older generation of a zoo's code: names that go before the zoo's, and what that code computed otherwise."""

    names: tuple[NameRule, ...]
    options: Mapping[str, Value]
    padding: tuple[PadRule, ...]


@dataclass(frozen=True)
class IgnoreRule:
    """Source tensors that stay unused: a shell-style pattern, the reason, and what they must hold for it.

    `equals` is the number that every value is, or the name of a fixed array (porter.fixed).
    """

    pattern: str
    reason: str
    equals: float | str | None = None


@dataclass(frozen=True)
class Override:
    """What a zoo does otherwise for one variant."""

    options: Mapping[str, Value]
    padding: tuple[PadRule, ...]
    preprocess: Preprocess | None
    labels: str | None


@dataclass(frozen=True)
class Zoo:
    """An origin of weights.

    Attributes:
        only: the variants that it has; empty where it has them all.
        options: that differ from the recipe's.
        chosen: of `options`, those that a caller has set, so that the network computes what the zoo's own does not.
        assumed: options, or `BUILT_SIZE`, that differ among the zoo's own models and that no file of weights tells; to why.
        padding: rules for sites that differ from the graph's own; the first match holds.
        padding_as_trained: rules that go before them where the weights were trained with other pads than the zoo ships.
        names: of layers by path; the first match holds.
        generations: older names and what the code that wrote them computed, by label.
        taps: by path, names of layers whose output can be read although no tensor is named so.
        activation: what the source applies to its logits at the very end.
        files: the published file of each variant, the one for the native input size where there are several.
        overrides: what differs for single variants; see `of`.
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
    labels: str | None
    activation: str | None
    licence: str | None
    files: Mapping[str, WeightsFile]
    published: Mapping[str, Published]
    overrides: Mapping[str, Override]
    chosen: Mapping[str, Value] = field(default_factory=dict)

    def licence_of(self, variant: str) -> str | None:
        """The licence of the weights that the zoo publishes of a variant."""
        return self.files[variant].licence if variant in self.files else self.licence

    def has(self, variant: str) -> bool:
        """Whether the zoo has this variant of the recipe."""
        return not self.only or variant in self.only

    def of(self, variant: str) -> Zoo:
        """This zoo with what it does otherwise for `variant` put in."""
        override = self.overrides.get(variant)
        if override is None:
            return self
        return replace(
            self,
            options={**self.options, **override.options},
            padding=(*override.padding, *self.padding),
            preprocess=override.preprocess or self.preprocess,
            labels=override.labels or self.labels,
            overrides={},
        )

    def at(self, generation: str | None) -> Zoo:
        """This zoo with the options and pads of an older generation; names stay today's. The zoo itself where they are the same."""
        older = None if generation is None else self.generations[generation]
        if older is None or not (older.options or older.padding):
            return self
        return replace(self, options={**self.options, **older.options}, padding=(*older.padding, *self.padding))


@dataclass(frozen=True)
class Recipe:
    """One architecture.

    Attributes:
        path: the file.
        variants: name to parameters.
        options: name to default; a zoo's and a caller's go before.
        input_size: rows and columns that it was designed for.
        channels: of the input.
        graph: the steps, not expanded; see porter.recipe.expand.
        source: the file's text with its lines.
    """

    architecture: str
    paper: str | None
    path: Path
    variants: Mapping[str, Mapping[str, Value]]
    options: Mapping[str, Value]
    input_size: tuple[int, int]
    channels: int
    graph: tuple[Step, ...]
    blocks: Mapping[str, Block]
    zoos: Mapping[str, Zoo]
    source: Source

    def parameters(self, variant: str) -> Mapping[str, Value]:
        """The parameters of a variant.

        Raises:
            UsageError: there is no such variant.
        """
        if variant == self.architecture and variant not in self.variants:
            raise UsageError(f"'{variant}' is an architecture, not a variant", next=f"its variants are {', '.join(self.variants)}")
        if variant not in self.variants:
            raise UsageError(f"'{self.architecture}' has no variant '{variant}'", next=hint(variant, self.variants))
        return self.variants[variant]

    def zoo(self, name: str, variant: str) -> Zoo:
        """A zoo by its name, or the default zoo of a framework, as it is for `variant`.

        Raises:
            UsageError: there is no such variant or zoo, or the zoo does not have this variant.
        """
        zoo = self._zoo(name)
        having = self.zoos_of(variant)
        if zoo.name not in having:
            raise UsageError(
                f"zoo '{zoo.name}' has no '{variant}'",
                where=str(self.path),
                next=f"it has {', '.join(zoo.only)}; '{variant}' is in {', '.join(having)}",
            )
        return having[zoo.name]

    def zoos_of(self, variant: str) -> Mapping[str, Zoo]:
        """The zoos that have `variant`, at least one, each as it is for it.

        Raises:
            UsageError: there is no such variant.
        """
        self.parameters(variant)
        return {name: zoo.of(variant) for name, zoo in self.zoos.items() if zoo.has(variant)}

    def _zoo(self, name: str) -> Zoo:
        if name in self.zoos:
            return self.zoos[name]
        if name not in (*FRAMEWORK_NAMES, *OTHER_NAMES) or name == get_framework(name).DEFAULT_ZOO:
            usable = [framework for framework in FRAMEWORK_NAMES if get_framework(framework).DEFAULT_ZOO in self.zoos]
            raise UsageError(
                f"'{self.architecture}' has no zoo '{name}'", where=str(self.path), next=hint(name, (*self.zoos, *usable))
            )
        default = get_framework(name).DEFAULT_ZOO
        if default not in self.zoos:
            raise UsageError(f"'{self.architecture}' has no zoo '{default}', the default of '{name}'", next=hint(name, self.zoos))
        return self.zoos[default]

    def native_size(self) -> tuple[int, int]:
        """Rows and columns of the input that the architecture was designed for."""
        return self.input_size
