"""`porter recipe check`: what it looks at, what it suspects, and every independent error in one run."""

import json
from pathlib import Path

import pytest

from porter.authoring.check.recipe_check import check_recipe
from porter.recipe import recipes_folder
from tests.support.fixtures import Cli
from tests.support.recipe.recipes import VALID, changed, place, write

pytestmark = pytest.mark.usefixtures("in_double")


def test_the_valid_recipe_has_nothing_to_report(tmp_path: Path) -> None:
    (tmp_path / "gone.yaml").symlink_to("nowhere")
    found = check_recipe(write(tmp_path, VALID))
    assert (found.errors, found.warnings) == ((), ())
    # stem/conv, stem/norm, head/logits and one or two units have names; their convolutions and stem/pool are
    # sites
    assert (found.variants, found.zoos, found.nodes, found.sites) == (2, 1, 5 + 4, 4 + 3)


@pytest.mark.parametrize("path", sorted(recipes_folder().glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_recipes_have_nothing_to_report(path: Path) -> None:
    found = check_recipe(path)
    assert [str(problem) for problem in (*found.errors, *found.warnings)] == []
    assert found.nodes > 0 and found.recipe is not None and found.zoos == len(found.recipe.zoos)


UNIT = "      - {conv: conv, filters: =filters, kernel: =kernel, pad: same}\n"
SUSPICIOUS = {
    "a strided window without a pad": (
        "- {max_pool: stem/pool, kernel: 3, stride: 2, pad: 1,",
        "- ¶{max_pool: stem/pool, kernel: 3, stride: 2,",
        "'stem/pool' has a stride, and neither its step nor zoo 'home' says a pad: 'valid' is taken",
    ),
    "an option": ("stem_pool: true}", "stem_pool: true, ¶dropout: 0.5}", "option 'dropout' is not used"),
    "a constant": ("options: {", "constants: {¶widths: [8]}\noptions: {", "constant 'widths' is not used"),
    "a variable": ("depths: [1, 1]}", "depths: [1, 1], ¶layers: 2}", "variable 'layers' is not used"),
    "a block": ("blocks:\n", "blocks:\n  ¶rest: {steps: [{relu: a}]}\n", "block 'rest' is not used"),
    "a parameter": (
        "kernel: 3}\n    steps",
        "kernel: 3, ¶stride: 1}\n    steps",
        "parameter 'stride' of block 'unit' is not used",
    ),
    "a path twice": (
        UNIT,
        "      - {relu: act, when: =filters > 99}\n      - {relu: ¶act, when: =filters > 99}\n" + UNIT,
        "'act' is the path of the step at",
    ),
    "a name that an earlier line gives": (
        "      stem/norm: bn1\n",
        '      stem/norm: bn1\n      ¶"stem/no{x}": bn2\n',
        "'stem/no{x}' applies to no node",
    ),
    "a step that is repeated 0 times": (
        '{unit: stage1/unit, repeat: "=depths[0]", filters: =width}\n',
        '{unit: stage1/unit, repeat: "=depths[0]", filters: =width}\n  - {relu: more, repeat: ¶0}\n',
        "'more' is repeated 0 times",
    ),
    "an empty name": ("stem/norm: bn1\n", "stem/norm: ¶''\n", "the name of 'stem/norm' is empty"),
    "an architecture of porter's own": (
        "architecture: tiny",
        "architecture: ¶vgg",
        "'vgg' is in porter's own vgg.yaml too",
    ),
    "a variant of porter's own": (
        "  tiny_wide: {width",
        "  ¶vgg11: {width",
        "'vgg11' is in porter's own vgg.yaml too",
    ),
    "a pad that an earlier line says": (
        "padding: {stem/conv: 1}",
        'padding: {stem/conv: 1, ¶"stem/con{v}": 2}',
        "'stem/con{v}' applies to no node",
    ),
}


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_what_is_legal_and_rarely_meant_is_a_warning(tmp_path: Path, name: str) -> None:
    old, new, message = SUSPICIOUS[name]
    where = place(tmp_path / "tiny.yaml", changed(old, new))
    found = check_recipe(tmp_path / "tiny.yaml")
    assert found.errors == () and [
        (warning.where, message in warning.message) for warning in found.warnings
    ] == [(where, True)]


def test_errors_that_do_not_follow_from_each_other_come_together(tmp_path: Path) -> None:
    text = changed("filters: =width, kernel: 3, s", "filtres: =width, kernel: 3, s").replace(
        "{relu: stem/relu}", "{rleu: stem/relu}"
    )
    text = text.replace("[input, conv]}", "[input, conv], form: a, wehn: true}")
    messages = [error.message for error in check_recipe(write(tmp_path, text)).errors]
    expected = ("no 'filtres'", "'rleu' is neither", "no 'form'", "no 'wehn'")
    assert len(messages) == 4 and all(
        part in message for part, message in zip(expected, messages, strict=True)
    )


@pytest.mark.parametrize(
    ("old", "new", "fix"),
    [
        ("blocks:\n  unit:", "blocks:\n  uint:", "did you mean 'uint'?"),
        ("{filters: null, kernel: 3}", "{fitlers: null, kernel: 3}", "did you mean 'fitlers'?"),
        ("{conv: stem/conv,", "{conv: stem/cnov,", "did you mean 'stem/cnov'?"),
        ("  tiny_wide: {width", "  tiny_wdie: {width", "did you mean 'tiny_wdie'?"),
    ],
)
def test_a_misspelt_declaration_is_named_where_the_word_is_used(
    tmp_path: Path, old: str, new: str, fix: str
) -> None:
    text = VALID.replace(
        "    weights:\n", "    weights:\n      tiny_wide: {top1: 50, top5: 80, size: 32, source: a}\n"
    )
    errors = check_recipe(write(tmp_path, text.replace(old, new))).errors
    assert fix in [error.next for error in errors]


def test_what_a_recipe_extends_is_right(tmp_path: Path) -> None:
    names = "names: {stem/cnv: a}"
    text = (
        f"extends: resnet_v1\nzoos:\n  one: {{extends: torchvision, {names}}}\n  two: {{extends: "
        f"torchvision, {names}}}\n"
    )
    errors = check_recipe(write(tmp_path, text)).errors
    assert [(str(error.where)[-5:], error.next) for error in errors] == [
        (":3:39", "did you mean 'stem/conv'?"),
        (":4:39", "did you mean 'stem/conv'?"),
    ]


def test_a_zoos_file_is_no_recipe(tmp_path: Path) -> None:
    (error,) = check_recipe(recipes_folder() / "zoos" / "keras.yaml").errors
    assert "a zoo's file" in error.message and str(error.where).endswith("keras.yaml:2:1")


def test_the_command_prints_what_was_checked_and_says_it_as_json(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path, changed("stem_pool: true}", "stem_pool: true, dropout: 0.5}"))
    ran = cli("recipe check", path)
    assert ran.status == 0 and ran.out.splitlines() == [
        f"warning: {path}:5:61: option 'dropout' is not used",
        "checked: 2 variants, 1 zoo, 7 padding sites, 9 nodes named",
    ]
    write(tmp_path, changed("stem/norm: bn1", "stem/nrom: bn1"))
    ran = cli("recipe check", path)
    assert (ran.status, ran.out, ran.err) == (
        2,
        f"error: {path}:27:7: 'stem/nrom' matches no node (did you mean 'stem/norm'?)\n",
        "",
    )
    ran = cli("recipe check", path, "--json")
    said = json.loads(ran.out)
    assert (ran.status, said["ok"], said["warnings"]) == (2, False, [])
    write(tmp_path, changed("stem/norm: bn1", "stem/norm: {naem: bn1}").replace("top5: 80", "top_5: 80"))
    ran = cli("pads tiny --from home --to tf --recipes", tmp_path)
    assert ran.status == 2 and ran.err.endswith("(did you mean 'top5'?; 1 more: porter recipe check FILE)\n")
    assert said["errors"] == [
        {
            "code": "recipe",
            "message": "'stem/nrom' matches no node",
            "where": f"{path}:27:7",
            "next": "did you mean 'stem/norm'?",
        }
    ]
