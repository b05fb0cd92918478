"""Recipes whose zoos have files of their own: what is written where, what goes before what, and what is read
when.
"""

from pathlib import Path
from typing import Any

import pytest

from porter.base.errors import RecipeError
from porter.recipe import declared_recipes, find_recipe, load_recipe, recipes_folder, zoos
from porter.recipe.load import open_recipe
from porter.recipe.source import read_source
from tests.support.recipe.recipes import VALID, line_of, use, write

FACTS = """\
framework: torch
licence: MIT
options: {bn_momentum: 0.5, classes: 20}
ignore: {step: counts}
address: "https://example.org/"
source: a page
protocols:
  small: {resize: shorter_side, size: 40, interpolation: pil_bilinear, crop: 32}
  whole: {resize: squash, size: 64, interpolation: pil_bicubic}
"""
GROUP = """\
protocol: small
options: {classes: 30}
licence: BSD-3-Clause
weights:
  tiny: {file: a/tiny.pth, sha256_prefix: 0123abcd, top1: 50, top5: 80}
  tiny_wide: {file: "https://example.com/wide.pth", protocol: whole, top1: 60, top5: 90, source: another page, note: n, licence: X}
"""  # noqa: E501
GRAPH, SECTION = (
    VALID[: VALID.index("zoos:")],
    VALID[VALID.index("    padding:") : VALID.index("    weights:")],
)


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def split(folder: Path, section: str = SECTION, zoo: str = FACTS, group: str = GROUP) -> Path:
    (folder / "zoos").mkdir(parents=True, exist_ok=True)
    write(
        folder / "zoos",
        f"zoo: home\n{zoo}architectures:\n  other: {{}}\n  tiny:\n{indented(group, 4)}",
        "home.yaml",
    )
    return write(folder, f"{GRAPH}zoos:\n  home:\n{section}")


def test_a_zoos_file_says_what_a_recipe_can_say_itself(tmp_path: Path) -> None:
    facts = FACTS.replace("classes: 20", "classes: 30").replace("licence: MIT", "licence: BSD-3-Clause")
    rest = GROUP.replace("options: {classes: 30}\nlicence: BSD-3-Clause\n", "")
    whole = load_recipe(write(tmp_path, f"{GRAPH}zoos:\n  home:\n{SECTION}{indented(facts + rest, 4)}"))
    parted = load_recipe(split(tmp_path / "parted"))
    mine, theirs = parted.zoos["home"], whole.zoos["home"]
    assert mine == theirs
    for variant in whole.variants:
        assert use(parted, variant) == use(whole, variant)
    assert (
        mine.files["tiny"].url == "https://example.org/a/tiny.pth"
        and mine.files["tiny"].licence == "BSD-3-Clause"
    )
    assert mine.files["tiny_wide"].licence == "X" and mine.of("tiny_wide").preprocess != mine.preprocess
    assert (mine.published["tiny"].size, mine.published["tiny_wide"].size) == (32, 64), (
        "the crop, otherwise what is fed"
    )
    assert (mine.published["tiny"].source, mine.published["tiny_wide"].source) == ("a page", "another page")


def test_the_recipe_goes_before_the_group_and_the_group_before_the_zoo(tmp_path: Path) -> None:
    assert load_recipe(split(tmp_path)).zoos["home"].options == {"classes": 30, "bn_momentum": 0.5}
    section = (
        f"{SECTION}    options: {{classes: 40}}\n    ignore: {{more: counts too}}\n    protocol: whole\n"
    )
    zoo = load_recipe(split(tmp_path, section)).zoos["home"]
    assert zoo.options == {"classes": 40, "bn_momentum": 0.5} and [rule.pattern for rule in zoo.ignore] == [
        "more",
        "step",
    ]
    assert zoo.preprocess is not None and zoo.preprocess.size == 64 and zoo.licence == "BSD-3-Clause"


def test_a_zoo_that_extends_another_may_use_its_protocols_and_its_address(tmp_path: Path) -> None:
    path = split(tmp_path, f"{SECTION}  heir: {{extends: home, only: [tiny]}}\n")
    heir = (
        "zoo: heir\nlicence: own\narchitectures:\n  tiny:\n    protocol: whole\n    weights: {tiny: "
        "{file: b/tiny.pth}}\n"
    )
    write(tmp_path / "zoos", heir, "heir.yaml")
    zoo = load_recipe(path).zoos["heir"]
    assert (zoo.framework, zoo.licence, zoo.files["tiny"].url) == (
        "torch",
        "own",
        "https://example.org/b/tiny.pth",
    )
    assert (
        zoo.preprocess is not None
        and zoo.preprocess.size == 64
        and not zoo.published
        and use(load_recipe(path), zoo="heir")
    )


MISTAKES = [
    ("zoo", "licence: MIT", "licenec: MIT", "no key 'licenec'"),
    ("zoo", "licence: MIT", "names: {a: b}", "no key 'names'"),
    ("zoo", "classes: 20}", "clases: 20}", "no option 'clases'"),
    ("zoo", "framework: torch", "framework: torhc", "no framework 'torhc'"),
    ("zoo", "resize: squash", "resize: squeeze", "resize"),
    ("group", "protocol: small", "protocol: smal", "no protocol 'smal'"),
    ("group", "protocol: whole", "protocol: whle", "no protocol 'whle'"),
    ("group", "protocol: small", "padding: {a: 1}", "no key 'padding'"),
    ("group", "0123abcd", "0123ABCD", "lower-case hex"),
    ("group", "  tiny_wide:", "  tiny_wied:", "no variant 'tiny_wied'"),
    ("section", "stem/conv: conv1", "stem/cnv: conv1", "matches no node"),
    ("section", "padding: {stem/conv", "padding: {stem/cnv", "matches no padding site"),
    ("section", "[conv1x1_to_dense]", "[conv1x1_to_dens]", "no transform"),
]


@pytest.mark.parametrize(
    ("part", "old", "new", "message"), MISTAKES, ids=[new[:30] for _, _, new, _ in MISTAKES]
)
def test_a_mistake_is_found_in_the_file_where_it_is_written(
    tmp_path: Path, part: str, old: str, new: str, message: str
) -> None:
    parts: dict[str, Any] = {"section": SECTION, "zoo": FACTS, "group": GROUP}
    assert parts[part].count(old) == 1
    parts[part] = parts[part].replace(old, new)
    path = split(tmp_path, **parts)
    with pytest.raises(RecipeError) as caught:
        use(load_recipe(path))
    assert message in caught.value.message
    file = path if part == "section" else tmp_path / "zoos" / "home.yaml"
    text = file.read_text()
    assert line_of(caught.value) == f"{file}:{text[: text.index(new.strip())].count(chr(10)) + 1}"


@pytest.mark.parametrize("protocol", ["small", "whole"])
def test_a_protocol_needs_an_input_of_three_channels(tmp_path: Path, protocol: str) -> None:
    lines = [
        line for line in GROUP.splitlines() if "protocol: " not in line or f"protocol: {protocol}" in line
    ]
    path = split(
        tmp_path, group="\n".join(lines).replace("top1: 50, top5: 80}", "top1: 50, top5: 80, size: 32}")
    )
    path.write_text(path.read_text().replace("channels: 3", "channels: 1"))
    with pytest.raises(
        RecipeError, match="photos, which have 3 channels, and the recipe's input has 1"
    ) as caught:
        load_recipe(path)
    file = tmp_path / "zoos" / "home.yaml"
    text = file.read_text()
    assert line_of(caught.value) == f"{file}:{text[: text.index(f'protocol: {protocol}')].count(chr(10)) + 1}"
    assert caught.value.next == "leave it out, or write 'protocol: null' for zoo 'home' in the recipe"
    if protocol == "small":
        path.write_text(path.read_text().replace("  home:\n", "  home:\n    protocol: null\n"))
        assert load_recipe(path).zoos["home"].preprocess is None


def test_a_zoo_is_read_when_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = split(tmp_path, f"{SECTION}  broken: {{}}\n")
    write(tmp_path / "zoos", "zoo: [", "broken.yaml")
    assert use(open_recipe(path)) and list(open_recipe(path).zoos) == ["home", "broken"]
    with pytest.raises(RecipeError, match="not valid YAML"):
        load_recipe(path)
    read: list[str] = []
    monkeypatch.setattr(zoos, "read_source", lambda path: read.append(path.name) or read_source(path))
    zoos._read_file.cache_clear()
    recipe = find_recipe("resnet50v2")
    recipe.zoos._zoos.clear()  # type: ignore[attr-defined]
    assert recipe.zoo("keras", "resnet50v2").published and read == ["keras.yaml"]


def test_files_of_zoos_that_changed_are_read_again(tmp_path: Path) -> None:
    assert load_recipe(split(tmp_path)).zoos["home"].licence == "BSD-3-Clause"
    assert (
        load_recipe(split(tmp_path, group=GROUP.replace("BSD-3-Clause", "BSD-2-Clause"))).zoos["home"].licence
        == "BSD-2-Clause"
    )


def test_a_zoo_without_a_file_of_its_own_is_porters(tmp_path: Path) -> None:
    section = SECTION.replace("    padding", "    reference: none\n    padding")
    recipe = load_recipe(write(tmp_path, f"{GRAPH}zoos:\n  keras:\n{section}"))
    assert (recipe.zoos["keras"].framework, recipe.zoos["keras"].activation) == ("tf", "softmax")
    assert recipe.zoos["keras"].options == {"bn_momentum": 0.01} and not recipe.zoos["keras"].weights
    whole = load_recipe(write(tmp_path, f"{GRAPH}zoos:\n  keras:\n    framework: tf\n{SECTION}")).zoos[
        "keras"
    ]
    assert whole.activation is whole.licence is None and not whole.options, (
        "one that states its framework says everything"
    )
    with pytest.raises(RecipeError, match="'framework' is missing") as caught:
        load_recipe(write(tmp_path, f"{GRAPH}zoos:\n  nowhere:\n{SECTION}"))
    assert caught.value.next == "write it here, or in zoos/nowhere.yaml"


def test_a_file_has_the_name_of_its_zoo(tmp_path: Path) -> None:
    path = split(tmp_path)
    file = tmp_path / "zoos" / "home.yaml"
    file.write_text(file.read_text().replace("zoo: home", "zoo: house"))
    with pytest.raises(
        RecipeError, match="expected zoo 'home', as the file is called, got 'house'"
    ) as caught:
        load_recipe(path)
    assert caught.value.where == f"{file}:1:6"


def test_porters_own_zoos_have_no_group_and_no_protocol_that_nobody_uses() -> None:
    having = {
        (recipe.architecture, zoo) for recipe in declared_recipes(with_zoos=True) for zoo in recipe.zoos
    }
    protocols, used = set(), set()
    for path in (recipes_folder() / "zoos").glob("*.yaml"):
        file = read_source(path).data
        assert {(architecture, path.stem) for architecture in file["architectures"]} <= having
        groups = file["architectures"].values()
        rows = [row for group in groups for row in group.get("weights", {}).values()]
        protocols |= set(file.get("protocols", ()))
        used |= {str(one.get("protocol")) for one in (file, *groups, *rows)}
    assert protocols <= used
