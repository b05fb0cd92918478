"""What `porter inspect` says of a file with every zoo's names, today's and older ones: the right variant and
zoo come first.

Files as people have them are in test_slim.py and test_finetuned.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest

import porter
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.dialects import get_dialect
from porter.graph import Graph, tensor_shapes
from porter.recipe import LayerName, Member, expand, find_recipe, layer_names
from porter.recipe.transforms import undo_transforms
from porter.recipe.zoo_names import tensor_names
from porter.source.fitting import names_in_file
from porter.source.ranking import rank as ranking
from porter.source.ranking.rank import rank
from tests.support.arrays import Array
from tests.support.recipe.recipes import all_recipes

CASES = [
    (variant, zoo.name, generation)
    for recipe in all_recipes()
    for variant in recipe.variants
    for zoo in recipe.zoos_of(variant).values()
    for generation in (None, *zoo.generations)
]
# In CI one variant of each architecture, with all of its zoos' tables of names.
FIRST = {next(iter(recipe.variants)) for recipe in all_recipes()}
QUICK = [case for case in CASES if case[0] in FIRST]


def named(variant: str, zoo_name: str, generation: str | None) -> Checkpoint:
    """All tensors of a variant under a zoo's names, without values."""
    recipe = find_recipe(variant)
    member = recipe.member(variant, zoo_name)
    dialect, graph = get_dialect(member.zoo.framework), expand(member)
    layers = layer_names(member, graph, generation)
    tensors = {}
    for path, roles in tensor_shapes(graph).items():
        names = tensor_names(dialect, graph, path, layers[path])
        if layers[path].computed:
            continue  # no file has it
        for role, shape in roles.items():
            rows = shape[0] + (
                role in ("kernel", "bias")
                and "drop_background" in layers[path].transforms
                and shape[0] == 1000
            )
            array: Array = np.broadcast_to(np.float32(0), (rows, *shape[1:]))
            array = undo_transforms(
                [name for name in layers[path].transforms if name == "depthwise_to_grouped"], role, array
            )
            tensors[names[role][0]] = dialect.from_canonical(graph, graph.by_path[path], role, array)
    return Checkpoint(Path("a file"), "memory", member.zoo.framework, tensors)


@pytest.fixture(scope="module")
def expanded_once() -> Iterator[None]:
    """Each case ranks every variant that its names could be of, and most cases rank the same ones."""
    graphs: dict[tuple[object, ...], Graph] = {}
    names: dict[tuple[object, ...], Mapping[str, LayerName]] = {}

    def expand_once(member: Member, options: Mapping[str, int] | None = None) -> Graph:
        key = (member.name, *(options or {}).items())
        return graphs[key] if key in graphs else graphs.setdefault(key, expand(member, options))

    def name_once(member: Member, graph: Graph, label: str | None = None) -> Mapping[str, LayerName]:
        key = (member.name, label)
        return names[key] if key in names else names.setdefault(key, layer_names(member, graph, label))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "expand", expand_once)
        patch.setattr(names_in_file, "layer_names", name_once)
        yield


def check_first(variant: str, zoo: str, generation: str | None) -> None:
    checkpoint = named(variant, zoo, generation)
    matches = rank(checkpoint).matches
    best = next(match for match in matches if match.member.zoo.name == zoo)
    assert (best.member.variant, best.score) == (variant, matches[0].score) and best.score > 0.99
    # Other zoos may have the very same names, as timm's ResNets have torchvision's; which it is, a digest
    # tells (porter.source).
    same = [match.member.zoo.name for match in matches if match.score == best.score]
    older = {
        other: generation if generation in find_recipe(variant).zoos[other].generations else None
        for other in same
    }
    assert {frozenset(named(variant, other, older[other]).tensors) for other in same} == {
        frozenset(checkpoint.tensors)
    }
    assert not generation or any(generation in note for note in best.notes)


@pytest.mark.usefixtures("expanded_once")
@pytest.mark.parametrize(("variant", "zoo", "generation"), QUICK)
def test_the_right_one_comes_first(variant: str, zoo: str, generation: str | None) -> None:
    check_first(variant, zoo, generation)


@pytest.mark.full
@pytest.mark.usefixtures("expanded_once")
@pytest.mark.parametrize(("variant", "zoo", "generation"), [case for case in CASES if case not in QUICK])
def test_the_right_one_always_comes_first(variant: str, zoo: str, generation: str | None) -> None:
    check_first(variant, zoo, generation)


def test_only_variants_whose_names_could_be_the_files_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        ranking,
        "expand",
        lambda member, *rest: seen.append(member.recipe.architecture) or expand(member, *rest),
    )
    rank(named("mobilenet_v2", "torchvision", None))
    assert "mobilenet_v2" in seen and not {"resnet_v1", "densenet", "vgg"} & set(seen)


@pytest.mark.parametrize("prefix", ["module.", "model.", "backbone.net."])
def test_a_prefix_is_said(prefix: str) -> None:
    plain = named("mobilenet_v2", "torchvision", None)
    best = rank(
        replace(plain, tensors={prefix + name: array for name, array in plain.tensors.items()})
    ).matches[0]
    assert (*best.member.is_a, best.notes) == (
        "mobilenet_v2",
        "torchvision",
        (f"names begin with '{prefix}'",),
    )


def test_a_format_of_no_framework_is_told_by_its_names() -> None:
    best = rank(replace(named("mobilenet_v2_0.5", "keras", None), dialect=None)).matches[0]
    assert best.member.is_a == ("mobilenet_v2_0.5", "keras")


V3 = "mobilenet_v3_small_0.5"


@pytest.mark.parametrize("scaling", [True, False])
def test_a_file_with_a_graph_has_a_line_to_type(scaling: bool, tmp_path: Path) -> None:
    """Keras writes MobileNet v3's hard sigmoids in three layers. Without its scaling of pixels the graph is
    not the recipe's.
    """
    file = tmp_path / "v3.keras"
    keras.applications.MobileNetV3Small(
        (32, 32, 3), 0.5, weights=None, classes=3, include_preprocessing=scaling
    ).save(file)
    found = porter.inspect(file)
    assert found.match is not None and found.match.member.is_a == (V3, "keras")
    line = f"{V3} --from keras --to torch --weights {file}" if scaling else f"{file} --to torch"
    assert found.commands == (f"porter convert {line}",)
    assert (
        found.problem is None if scaling else "rescaling: the file's graph has 'conv'" in str(found.problem)
    )
