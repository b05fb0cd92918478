from pathlib import Path

import pytest

from porter.base.errors import RecipeError
from porter.padding import LOWEST, Convention
from porter.recipe import expand, load_recipe
from porter.recipe.paddings import default_convention
from tests.support.ops import op_at
from tests.support.recipe.recipes import VALID, mistake, write

POOLS = VALID.replace(
    "  - {global_avg_pool: head/pool}\n",
    "  - {avg_pool: head/mean, kernel: 3, pad: same}\n  - {global_avg_pool: head/pool}\n",
)


def convention_at(folder: Path, padding: str, path: str, text: str = POOLS) -> Convention:
    recipe = load_recipe(write(folder, text.replace("{stem/conv: 1}", padding)))
    found: Convention = op_at(expand(recipe.member("tiny", "home")), path).convention
    return found


@pytest.mark.parametrize(
    ("value", "kind", "convention"),
    [
        ("valid", "conv", Convention()),
        ("valid", "max_pool", Convention(fill=LOWEST)),
        ("same", "conv", Convention("same")),
        ("same", "max_pool", Convention("same", fill=LOWEST)),
        ("cntk", "avg_pool", Convention("cntk", average="real_cells")),
        (0, "conv", Convention()),
        (3, "conv", Convention("explicit", (3, 3, 3, 3))),
        ((0, 1, 0, 1), "conv", Convention("explicit", (0, 1, 0, 1))),
        ({"pad": 1, "fill": 0}, "max_pool", Convention("explicit", (1, 1, 1, 1), 0.0)),
        ({"pad": 1, "fill": -2.5}, "max_pool", Convention("explicit", (1, 1, 1, 1), -2.5)),
        (
            {"pad": 1, "rounding": "ceil"},
            "max_pool",
            Convention("explicit", (1, 1, 1, 1), LOWEST, rounding="ceil"),
        ),
        ({"rounding": "full"}, "max_pool", Convention(fill=LOWEST, rounding="full")),
        (
            {"pad": 1, "average": "clipped_window"},
            "avg_pool",
            Convention("explicit", (1, 1, 1, 1), average="clipped_window"),
        ),
    ],
)
def test_spellings(value: object, kind: str, convention: Convention) -> None:
    assert default_convention(value, kind) == convention  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("sane", "conv"),
        ("explicit", "conv"),
        (-1, "conv"),
        (10**9, "conv"),
        (1.5, "conv"),
        (True, "conv"),
        (None, "conv"),
        ((1, 1), "conv"),
        ((1, 1, 1, "1"), "conv"),
        ({"fill": 0}, "conv"),
        ({"fill": "none"}, "max_pool"),
        ({"fill": float("inf")}, "max_pool"),
        ({"average": "real_cells"}, "max_pool"),
        ({"average": "real_cell"}, "avg_pool"),
        ({"rounding": "ceiling"}, "max_pool"),
    ],
)
def test_spellings_that_are_none(value: object, kind: str) -> None:
    with pytest.raises(RecipeError):
        default_convention(value, kind)  # type: ignore[arg-type]


def test_a_zoo_says_only_what_differs(tmp_path: Path) -> None:
    full = Convention("same", average="full_window")
    assert convention_at(tmp_path, "{head/mean: {average: full_window}}", "head/mean") == full
    shipped = Convention("explicit", (1, 1, 1, 1), 0.0)
    assert convention_at(tmp_path, "{stem/pool: {fill: 0}}", "stem/pool") == shipped
    assert convention_at(tmp_path, "{stem/pool: same}", "stem/pool") == Convention("same", fill=LOWEST)
    assert convention_at(tmp_path, "{stem/pool: same}", "stem/conv") == Convention("same")


def test_a_rule_about_averages_does_not_change_max_pools(tmp_path: Path) -> None:
    everywhere = '{"**": {average: full_window}}'
    assert convention_at(tmp_path, everywhere, "stem/pool") == Convention("explicit", (1, 1, 1, 1), LOWEST)
    assert convention_at(tmp_path, everywhere, "head/mean").average == "full_window"


def test_the_first_match_holds_and_expressions_see_the_variant(tmp_path: Path) -> None:
    assert convention_at(tmp_path, '{stem/conv: "=depths[0]", "**": same}', "stem/conv").pads == (2, 2, 2, 2)
    assert convention_at(tmp_path, '{"**": same, stem/pool: 1}', "stem/pool").rule == "same"


def test_pads_as_trained_go_before_the_shipped_ones(tmp_path: Path) -> None:
    tables = "{stem/pool: {pad: 1, fill: 0}}\n    padding_as_trained: {stem/pool: same}"
    recipe = load_recipe(write(tmp_path, POOLS.replace("{stem/conv: 1}", tables)))
    member = recipe.member("tiny", "home")
    shipped, trained = (expand(member, as_trained=trained) for trained in (False, True))
    assert op_at(shipped, "stem/pool").convention == Convention("explicit", (1, 1, 1, 1), 0.0)
    assert op_at(trained, "stem/pool").convention == Convention("same", fill=LOWEST)
    differing = [node.path for node in shipped.nodes if node != trained.by_path[node.path]]
    assert differing == ["stem/pool"]


def test_mistakes_say_where(tmp_path: Path) -> None:
    error = mistake(tmp_path, "{stem/conv: 1}", "{stem/cnv: 1}")
    assert "matches no padding site" in error.message and error.next == "did you mean 'stem/conv'?"
    error = mistake(tmp_path, "{stem/conv: 1}", "{stem/conv: sam}")
    assert error.next == "did you mean 'same'?"
    error = mistake(tmp_path, "{stem/conv: 1}", "{stem/pool: {pads: 1}}")
    assert "no 'pads'" in error.message and error.next == "did you mean 'pad'?"
    mistake(tmp_path, "{stem/conv: 1}", "{stem/norm: 1}")
    mistake(tmp_path, "{stem/conv: 1}", "{stem/conv: {average: real_cells}}")
    mistake(tmp_path, "{stem/conv: 1}", "{stem/conv: =wdith}")
    text = VALID.replace("{stem/conv: 1}", "{stem/conv: 1}\n    padding_as_trained: {stem/cnv: same}")
    recipe = load_recipe(write(tmp_path, text))
    with pytest.raises(RecipeError, match="'stem/cnv' matches no padding site"):
        expand(recipe.member("tiny", "home"))


def test_a_site_of_another_variant_is_a_site(tmp_path: Path) -> None:
    text = VALID.replace('repeat: "=depths[0]"', 'repeat: "=depths[0]", when: =width == 8')
    recipe = load_recipe(write(tmp_path, text.replace("{stem/conv: 1}", "{stage1/unit2/conv: 1}")))
    assert "stage1/unit2/conv" not in expand(recipe.member("tiny_wide", "home")).by_path
