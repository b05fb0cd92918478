"""Opening what a port is made from: a weights file under a zoo's names, or another port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from porter.dtypes import Array, Dtype
from porter.errors import MappingError, UsageError
from porter.files import Fetched, WeightsFile, digest, fetch
from porter.frameworks import get_framework
from porter.frameworks.checkpoint import Checkpoint
from porter.frameworks.reading import read_checkpoint
from porter.graph import Graph, tensor_shapes
from porter.mapping import head_classes, map_tensors, source_layers
from porter.matching import rank
from porter.port import Port, SourceFile, TensorLists, port_at
from porter.recipe import LayerName, Recipe, Zoo, expand, find_recipe
from porter.verification.source import OwnBuild, Reference, Source, rounded, rounded_tensors


@dataclass(frozen=True)
class Opened:
    """A source: its graph and its tensors in canonical order.

    Attributes:
        options: the options that the recipe was expanded with beyond the zoo's own, `classes` among them.
        source_classes: rows of the file's head.
        labels: the map of the classes; None where the file's head is not the zoo's own.
        background: the first row of the port's head is ImageNet's background class.
        layers: the source's layer names by path; empty where the source is a port.
        checkpoint: the file as read; None where the source is a port.
    """

    variant: str
    zoo: Zoo
    graph: Graph
    tensors: Mapping[str, Mapping[str, Array]]
    lists: TensorLists
    options: Mapping[str, Any]
    file: SourceFile
    source_classes: int
    labels: str | None
    background: bool
    warnings: tuple[str, ...]
    layers: Mapping[str, LayerName]
    checkpoint: Checkpoint | None

    def reference(self, dtype: Dtype) -> Source | None:
        """The zoo's own implementation with this file's tensors rounded to the port's type; None where there is none."""
        framework = get_framework(self.zoo.framework)
        if self.checkpoint is None or self.zoo.reference not in framework.REFERENCES:
            return None
        checkpoint, keep_background = rounded(self.checkpoint, dtype), self.source_classes == self.options["classes"]
        return Reference(framework, self.zoo, self.variant, self.source_classes, checkpoint, self.layers, keep_background)

    def own(self, dtype: Dtype) -> Source:
        """Porter's own build of the same graph in the source's framework."""
        return OwnBuild(get_framework(self.zoo.framework), self.graph, rounded_tensors(self.tensors, dtype))


def open_source(recipe: Recipe, variant: str, zoo: Zoo, weights: Path | None, keep_background: bool = False) -> Opened:
    """Opens `weights` (a file, or a port and its files), or the zoo's published file from the cache or the network.

    Raises:
        UsageError: the zoo publishes no file for this variant. FileError: a file that cannot be read.
        MappingError: file and graph do not cover each other; `next` says what the file looks like instead.
    """
    warnings: tuple[str, ...] = ()
    if weights is None:
        fetched = fetch(_published(recipe, variant, zoo))
        weights, warnings = fetched.path, fetched.warnings
    port = port_at(weights)
    if port is not None:
        return _open_port(port, variant, zoo)
    return _open_file(recipe, variant, zoo, weights, keep_background, warnings)


def _open_port(port: Port, variant: str, zoo: Zoo) -> Opened:
    folder, record = port.folder, port.record
    if (record.variant, record.zoo) != (variant, zoo.name):
        raise UsageError(
            f"this is a port of {record.variant} from {record.zoo}, not of {variant} from {zoo.name}",
            where=str(folder),
            next=f"porter convert {record.variant} --from {record.zoo}",
        )
    tensors = port.tensors()
    for path, seen in record.batches.items():
        tensors.get(path, {})["batches"] = np.array(seen, np.int64)
    used = {f"{path}:{role}": f"{path}:{role}" for path, roles in tensors.items() for role in roles}
    return Opened(
        variant=variant,
        zoo=zoo,
        graph=port.graph,
        tensors=tensors,
        lists=TensorLists(used=used, ignored={}, filled={}),
        options=record.options,
        file=SourceFile(file=port.framework.MODEL_FILE, format="port", sha256=digest(folder / port.framework.MODEL_FILE)),
        source_classes=record.classes,
        labels=record.labels,
        background=record.background,
        warnings=(),
        layers={},
        checkpoint=None,
    )


def _open_file(recipe: Recipe, variant: str, zoo: Zoo, weights: Path, keep_background: bool, warnings: tuple[str, ...]) -> Opened:
    checkpoint, framework, sha256 = read_checkpoint(weights), get_framework(zoo.framework), digest(weights)
    zoo, said = _zoo_of_digest(recipe, variant, zoo, sha256)
    if checkpoint.framework not in (None, zoo.framework):
        raise MappingError(
            f"this is a {checkpoint.framework} file ({checkpoint.format}), and zoo '{zoo.name}' is {zoo.framework}'s",
            where=str(weights),
            next=_looks_like(checkpoint, recipe),
        )
    draft = expand(recipe, variant, zoo, {})
    source_classes = head_classes(draft, framework, source_layers(recipe, variant, zoo, draft, checkpoint), checkpoint)
    head = source_layers(recipe, variant, zoo, draft, checkpoint)[draft.output]
    own_head = source_classes == tensor_shapes(draft)[draft.output]["kernel"][0]
    background = own_head and "drop_background" in head.transforms
    drops = background and not keep_background
    options = {"classes": source_classes - 1 if drops else source_classes}
    graph = expand(recipe, variant, zoo, options)
    layers = source_layers(recipe, variant, zoo, graph, checkpoint)
    try:
        mapped = map_tensors(graph, framework, layers, zoo, checkpoint, keep_background=not drops)
    except MappingError as error:
        raise MappingError(error.message, where=error.where, next=_looks_like(checkpoint, recipe)) from None
    return Opened(
        variant=variant,
        zoo=zoo,
        graph=graph,
        tensors=mapped.tensors,
        lists=TensorLists(used=mapped.used, ignored=mapped.ignored, filled={}),
        options=options,
        file=SourceFile(file=weights.name, format=checkpoint.format, sha256=sha256, notes=checkpoint.notes),
        source_classes=source_classes,
        labels=zoo.labels if own_head else None,
        background=background and not drops,
        warnings=(*warnings, *said),
        layers=layers,
        checkpoint=checkpoint,
    )


def _zoo_of_digest(recipe: Recipe, variant: str, zoo: Zoo, sha256: str) -> tuple[Zoo, tuple[str, ...]]:
    """The zoo that publishes this very file, where its names are those of the zoo asked for; and what to say about it.

    One set of weights has one protocol: torchvision's two differ in preprocessing and published figures alone.
    """
    for name in recipe.zoos:
        other = recipe.zoo(name, variant)
        file = other.files.get(variant)
        pinned = file and (file.sha256 or file.sha256_prefix)
        if pinned and sha256.startswith(pinned) and other.names == zoo.names and other.name != zoo.name:
            return other, (f"this is the file of zoo '{other.name}': its preprocessing and figures are used, not {zoo.name}'s",)
    return zoo, ()


def _looks_like(checkpoint: Checkpoint, recipe: Recipe) -> str:
    matches = rank(checkpoint, recipe.path.parent)
    if not matches or matches[0].score < 0.5:
        return "it looks like none of the variants that porter knows"
    best = matches[0]
    return f"it looks like {best.variant} from {best.zoo}: porter convert {best.variant} --from {best.zoo}"


def fetch_weights(variant: str, source: str, recipes: Path | None) -> Fetched:
    """The zoo's published file of a variant, from the cache or the network, checked. See porter.files.fetch."""
    recipe = find_recipe(variant, recipes)
    return fetch(_published(recipe, variant, recipe.zoo(source, variant)))


def _published(recipe: Recipe, variant: str, zoo: Zoo) -> WeightsFile:
    if variant in zoo.files:
        return zoo.files[variant]
    raise UsageError(f"zoo '{zoo.name}' publishes no weights of {variant}", where=str(recipe.path), next="give --weights FILE")
