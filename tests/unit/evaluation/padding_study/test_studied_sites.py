from __future__ import annotations

import pytest

from porter.base.errors import UsageError
from porter.evaluation.padding_study.studied_sites import parse_sites
from porter.graph import Graph
from porter.padding import LOWEST, Convention
from porter.recipe import expand, find_recipe


def graph_of(variant: str, zoo: str) -> Graph:
    recipe = find_recipe(variant)
    return expand(recipe.member(variant, zoo))


@pytest.fixture(scope="module")
def resnet() -> Graph:
    return graph_of("resnet50v2", "keras")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stem/conv=same", [Convention("same")]),
        (
            "stem/conv=same,valid, same_lower,cntk",
            [Convention(rule) for rule in ("same", "valid", "same_lower", "cntk")],
        ),
        ("stem/conv=3,0", [Convention("explicit", (3, 3, 3, 3)), Convention("valid")]),
        ("stem/conv=[2,3,2,3],same", [Convention("explicit", (2, 3, 2, 3)), Convention("same")]),
        # As a step of a recipe has it: pads take no part in a max pool, whatever the zoo's own fill is.
        ("stem/pool=1", [Convention("explicit", (1, 1, 1, 1), fill=LOWEST)]),
        ("stem/pool={pad: 1, fill: 0}", [Convention("explicit", (1, 1, 1, 1), fill=0)]),
        ("stem/pool={pad: valid, rounding: ceil}", [Convention(fill=LOWEST, rounding="ceil")]),
    ],
)
def test_conventions_are_written_as_in_a_recipe(resnet: Graph, text: str, expected: list[Convention]) -> None:
    (path,) = {change.path for change in parse_sites([text], resnet)}
    assert path == text.partition("=")[0]
    assert [change.convention for change in parse_sites([text], resnet)] == expected


def test_options_add_up(resnet: Graph) -> None:
    found = parse_sites(["stem/conv=same,1", "stem/pool=same"], resnet)
    assert [str(change) for change in found] == ["stem/conv same", "stem/conv 1", "stem/pool same, -inf"]


def test_an_average_divides_as_the_zoos_does_unless_it_is_told() -> None:
    graph = graph_of("inception_v3", "torchvision")
    path = next(node.path for node in graph.nodes if node.op_name == "avg_pool")
    kept, told = parse_sites([f"{path}=same,{{pad: same, average: real_cells}}"], graph)
    assert kept.convention == Convention("same", average="full_window") and told.convention == Convention(
        "same"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stem/cnv=same", "'stem/cnv' is not a node of this model (did you mean 'stem/conv'?)"),
        ("head/norm=same", "'head/norm' is not a padding site"),
        ("stem/conv=sane", "did you mean 'same'?"),
        ("stem/conv=[1,2]", "[top, bottom, left, right], got (1, 2)"),
        ("stem/conv=-1", "a number of cells up to 1024"),
        ("stem/conv=1.5", "got 1.5"),
        ("stem/conv=yes", "got True"),
        ("stem/conv={fill: 0}", "a conv has no 'fill' (the choices are pad)"),
        ("stem/pool={fil: 0}", "a max_pool has no 'fil' (did you mean 'fill'?)"),
        ("stem/pool={average: real_cells}", "a max_pool has no 'average'"),
        ("stem/pool={pad: {pad: 1}}", "got {'pad': 1}"),
        ("stem/conv=", "is not a list of conventions"),
        ("stem/conv=2001-99-99", "is not a list of conventions"),
        ("stem/conv=0b_", "is not a list of conventions"),
        ("stem/conv=[1", "is not a list of conventions"),
        ("stem/conv=1]+[2", "is not a list of conventions"),
        ("stem/conv=!!python/object:os.system {}", "is not a list of conventions"),
        ("stem/conv=&a [1],*a", "is not a list of conventions"),
        ("stem/conv=" + "[" * 900, "is not a list of conventions"),
        ("stem/conv", "a site is written as PATH=CONVENTION"),
        ("stem/conv=" + "1," * 1000, "a site is written as PATH=CONVENTION"),
        ("=same", "'' is not a node"),
    ],
)
def test_what_is_no_site_or_convention_is_refused(resnet: Graph, text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_sites([text], resnet)
    assert str(error.value).startswith("--site ") and words in str(error.value)
