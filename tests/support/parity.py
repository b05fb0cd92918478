"""Ports proved against the zoos' own implementations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from porter.base.dtypes import Dtype
from porter.port import StoredPort
from porter.recipe import find_recipe
from porter.source.open import open_source
from porter.source.opened import Opened
from porter.source.place import find
from porter.verification.check import Check
from porter.verification.references.open_reference import open_user_reference
from porter.verification.references.reference import Reference
from porter.verification.references.source_references import references_of
from porter.verification.references.user_reference import ReferenceName
from porter.verification.results import Parity
from porter.verification.sizes import Sizes
from porter.verification.stored_numbers import unrounded_tensors
from tests.support.arrays import Array


@dataclass
class Remembered:
    """A source that runs each batch once, for all the ports that are compared with it."""

    source: Reference
    values: dict[tuple[tuple[int, ...], bytes, Dtype], Mapping[str, Array]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def run_by(self) -> str:
        return self.source.run_by

    def takes(self, size: tuple[int, int]) -> bool:
        return self.source.takes(size)

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> Mapping[str, Array]:
        key = (batch.shape, batch.tobytes(), dtype)
        if key not in self.values:
            self.values[key] = self.source.run(batch, dtype)
        return self.values[key]

    def __getattr__(self, name: str) -> Any:
        """What a source has that takes other values than its own (CutReference of porter.verification)."""
        if name not in ("run_cut", "is_moved"):
            raise AttributeError(name)
        return getattr(self.source, name)


OWN_CODE = {"akamaster": Path(__file__).with_name("cifar_resnets.py")}
"""Code written for the tests, by zoos whose own code porter does not have. It has a maker with each variant's
name.
"""

LINEN = {
    ("resnet_v1", "flax_examples"): "flax_resnets",
    **{("vit", zoo): "big_vision_vits" for zoo in ("big_vision", "big_vision_plain", "big_vision_map")},
    ("mlp_mixer", "vit_jax"): "mixers",
}
"""The same in Flax's linen: by architecture and zoo, the module of tests.support whose `module` makes the
network.
"""


def reference_of(opened: Opened) -> Remembered | None:
    """The first reference of a source, or code of `OWN_CODE`."""
    first, member = next(iter(references_of(opened, "float32")), None), opened.member
    if first is None and member is not None and member.zoo.name in OWN_CODE:
        return Remembered(
            open_user_reference(ReferenceName(OWN_CODE[member.zoo.name], member.variant), opened, "float32")
        )
    if member is not None and (member.recipe.architecture, member.zoo.name) in LINEN:
        from tests.support.linen import LinenValues  # which imports jax

        code = import_module(f"tests.support.{LINEN[member.recipe.architecture, member.zoo.name]}")
        return Remembered(LinenValues(opened, code.module(opened)))
    return None if first is None else Remembered(first)


def check_of(port: StoredPort, opened: Opened, dtypes: tuple[Dtype, ...]) -> Check:
    """A check of a port, with computed numbers as they are before they are rounded."""
    return Check(
        port,
        dtypes,
        tensors=unrounded_tensors(port, opened.graph, opened.tensors) if port.record.computed else None,
    )


def zoos_source(
    variant: str, zoo: str, weights: Path, recipes: Path | None = None
) -> tuple[Opened, Remembered]:
    """The weights as a zoo's, and the zoo's own implementation, or code of `OWN_CODE`, with them."""
    recipe = find_recipe(variant, recipes)
    opened = open_source(find(weights), member=recipe.member(variant, zoo))
    reference = reference_of(opened)
    has_graph = recipe.zoo(zoo, variant).framework in ("caffe", "mxnet")
    own_graph = "the file's own graph" if has_graph else None
    assert reference is not None and (
        zoo in OWN_CODE
        or (recipe.architecture, zoo) in LINEN
        or reference.name == (recipe.zoo(zoo, variant).reference or own_graph)
    )
    return opened, reference


def expect_proof(
    port: StoredPort, source: tuple[Opened, Reference], size: tuple[int, int], silent: tuple[str, ...]
) -> Parity:
    """The function is the same: in float64 1e-10 at every node, except those whose paths end in one of
    `silent`.
    """
    (found,) = check_of(port, source[0], ("float64",)).prove(source[1], Sizes((size,), ())).parities
    assert all(node.rel_l2 <= 1e-10 for node in found.nodes) and found.logits.argmax_equal
    assert all(path.endswith(silent) for path in found.uncompared)
    return found
