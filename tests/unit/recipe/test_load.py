import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import TypeAdapter

from porter.base.errors import RecipeError, UsageError
from porter.data.labels import Labels
from porter.recipe import Member, expand, load_recipe, schema
from tests.support.ops import op_at
from tests.support.recipe.recipes import VALID, changed, line_of, mistake, use, write


def test_the_valid_recipe_is_valid(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, VALID))
    assert recipe.architecture == "tiny" and recipe.native_size() == (32, 32)
    for variant in recipe.variants:
        use(recipe, variant)


NEAREST = [
    ("options: {classes", "optoins: {classes", "no key 'optoins'", "options"),
    ("size: 32, channels", "siez: 32, channels", "no key 'siez'", "size"),
    (
        "- {batch_norm: stem/norm}",
        "- {batchnorm: stem/norm}",
        "neither an operation nor a block",
        "batch_norm",
    ),
    ("- {unit: stage1/unit,", "- {units: stage1/unit,", "neither an operation nor a block", "unit"),
    ("filters: =filters, kernel", "filtres: =filters, kernel", "'conv' has no 'filtres'", "filters"),
    (
        'stage1/unit, repeat: "=depths[0]", filters',
        'stage1/unit, repaet: "=depths[0]", filters',
        "'unit' has no 'repaet'",
        "repeat",
    ),
    ("when: =stem_pool", "when: =stem_pol", "'stem_pol' is not a variable", "stem_pool"),
    (
        "filters: =width, kernel: 3, stride",
        "filters: =wdith, kernel: 3, stride",
        "'wdith' is not a variable",
        "width",
    ),
    ("[input, conv]", "[input, cnv]", "no earlier step 'cnv'", "conv"),
    ("framework: torch", "framework: torch\n    refrence: torchvision", None, "reference"),
    ("framework: torch", "framework: pytorch", "no framework 'pytorch'", "torch"),
    ("padding: {stem/conv: 1}", "labels: imagenet_1000", "no label map 'imagenet_1000'", "imagenet-1000"),
    ("tiny: {top1: 50", "tiny: {labels: imagenet, top1: 50", "no label map 'imagenet'", "imagenet-1000"),
    ("padding: {stem/conv: 1}", "reference: torchvison", "no reference 'torchvison'", "torchvision"),
    ("name: fc,", "naem: fc,", "no key 'naem'", "name"),
    ("[conv1x1_to_dense]", "[conv1x1_to_dens]", "no transform", "conv1x1_to_dense"),
    ("tiny: {top1: 50", "tinny: {top1: 50", "no variant 'tinny'", "tiny"),
    ("tiny: {top1: 50", "tiny: {top_1: 50", "no key 'top_1'", "top1"),
]


@pytest.mark.parametrize(
    ("old", "new", "message", "nearest"), NEAREST, ids=[new[:30] for _, new, _, _ in NEAREST]
)
def test_misspellings_are_found_and_corrected(
    tmp_path: Path, old: str, new: str, message: str | None, nearest: str
) -> None:
    if message is None:
        path = write(tmp_path, VALID.replace(old, new))
        with pytest.raises(RecipeError) as caught:
            load_recipe(path)
        error = caught.value
    else:
        error = mistake(tmp_path, old, new)
        assert message in error.message
    assert error.next == f"did you mean '{nearest}'?"


WRONG = [
    ("architecture: tiny", "architecture: 3", "architecture"),
    ("  tiny_wide: {width: 16", "  tiny wide: {width: 16", "a word of letters"),
    ("tiny_wide: {width: 16, depths", "tiny_wide: {first: 16, depths", "cannot be the name"),
    ("tiny_wide: {width: 16, depths", "tiny_wide: {classes: 16, depths", "option too"),
    ("{classes: 10, bn", "{max: 10, bn", "cannot be the name"),
    ("size: 32, ch", "size: 0, ch", "size"),
    ("size: 32, ch", "size: [32, 32, 32], ch", "size"),
    ("- {batch_norm: stem/norm}", "- batch_norm", "a step must be a mapping"),
    ("- {batch_norm: stem/norm}", "- {batch_norm: /stem}", "path"),
    ("- {batch_norm: stem/norm}", "- {batch_norm: 3}", "path"),
    ("- {batch_norm: stem/norm}", "- {batch_norm: stem norm}", "path"),
    ("- {batch_norm: stem/norm}", "- {batch_norm: stem/conv}", "two steps have the path"),
    ("- {batch_norm: stem/norm}", "- {batch_norm: stem/norm, when: =width}", "condition"),
    ("- {batch_norm: stem/norm}", "- {batch_norm: stem/norm, when: '=width ='}", "not an expression"),
    ("- {batch_norm: stem/norm}", "- {batch_norm: stem/norm, epsilon: 0}", "'epsilon'"),
    ("- {batch_norm: stem/norm}", "- {batch_norm: stem/norm, scale: 1}", "'scale'"),
    ("- {batch_norm: stem/norm}", "- {add: stem/norm}", "needs 'from'"),
    ("- {batch_norm: stem/norm}", "- {multiply: stem/norm}", "needs 'from'"),
    ("- {batch_norm: stem/norm}", "- {add: stem/norm, branches: [[{relu: a}]]}", "no 'branches'"),
    ("- {batch_norm: stem/norm}", "- {concat: stem/norm}", "'branches' or 'from'"),
    ("- {batch_norm: stem/norm}", "- {concat: stem/norm, branches: 3}", "list of lists"),
    ("- {batch_norm: stem/norm}", "- {concat: stem/norm, branches: [3]}", "list of steps"),
    (
        "- {batch_norm: stem/norm}",
        "- {concat: stem/norm, branches: [[{relu: a, when: =not stem_pool}]]}",
        "branch without steps",
    ),
    ("- {batch_norm: stem/norm}", "- {batch_norm: stem/norm, repeat: 1000000000}", "'repeat'"),
    ("- {batch_norm: stem/norm}", "- {batch_norm: stem/norm, repeat: -1}", "'repeat'"),
    (
        "- {batch_norm: stem/norm}",
        "- {batch_norm: stem/norm, repeat: 2, first: 3}",
        "'first' must be a mapping",
    ),
    ("- {batch_norm: stem/norm}", "- {batch_norm: stem/norm, repeat: 2, first: {kernel: 3}}", "no 'kernel'"),
    ("- {batch_norm: stem/norm}", "- {global_avg_pool: stem/norm}\n  - {conv: again, filters: 3}", None),
    ("filters: =width, kernel: 3, stride: 2", "kernel: 3, stride: 2", "needs 'filters'"),
    (
        "filters: =width, kernel: 3, stride: 2",
        "filters: =width/3, kernel: 3, stride: 2",
        "'filters' of 'stem/conv' must be a whole number",
    ),
    (
        "filters: =width, kernel: 3, stride: 2",
        "filters: 0, kernel: 3, stride: 2",
        "'filters' of 'stem/conv' must be a whole number",
    ),
    ("filters: =width, kernel: 3, stride: 2", "filters: =width, kernel: [3], stride: 2", "'kernel'"),
    ("filters: =width, kernel: 3, stride: 2", "filters: =width, kernel: 3, stride: 0", "'stride'"),
    ("filters: =width, kernel: 3, stride: 2", "filters: =width, kernel: 99, stride: 2", "no 99x99 window"),
    ("filters: =width, kernel: 3, stride: 2", "filters: =width, groups: 2, kernel: 3, stride: 2", "groups"),
    ('repeat: "=depths[0]", filters: =width', 'repeat: "=depths[0]"', "needs 'filters'"),
    (
        'repeat: "=depths[0]", filters: =width',
        'repeat: "=depths[0]", filters: {a: 1}',
        "number, a word or a list",
    ),
    ("[input, conv]", "[input, conv, stem/conv]", "no earlier step 'stem/conv'"),
    ("[input, conv]", "[input, {input: conv}]", "no earlier step"),
    ("      - {add: add, from: [input, conv]}", "      - {relu: add, from: [input, conv]}", "one input"),
    ("stem/conv: conv1", "stem/cnv: conv1", "matches no node"),
    ("stem/norm: bn1", "stem/norm: conv1", "both have the name 'conv1'"),
    ("stem/norm: bn1", "stem/norm: {name: bn1, transforms: fold}", "transforms"),
    ('.{u-1}.conv"', '.{v-1}.conv"', "'v' is not a variable"),
    ('.{u-1}.conv"', '.{u-}.conv"', "not an expression"),
    ('"stage{s}/unit{u}/conv"', '"stage{s}/unit{s}/conv"', "capture"),
    ("framework: torch", "framework: onnx", "no framework 'onnx'"),
    ("padding: {stem/conv: 1}", "reference: torchvision", "reference 'torchvision' has no model 'tiny'"),
    ("top1: 50, top5", "top1: 150, top5", "top1"),
]


@pytest.mark.parametrize(
    ("old", "new", "message"), WRONG, ids=[f"{i}-{new[:40]}" for i, (_, new, _) in enumerate(WRONG)]
)
def test_mistakes_say_what_and_where(tmp_path: Path, old: str, new: str, message: str | None) -> None:
    if message is None:
        with pytest.raises(RecipeError, match="rank 3"):
            use(load_recipe(write(tmp_path, VALID.replace(old, new))))
    else:
        assert message in mistake(tmp_path, old, new).message


@pytest.mark.parametrize(
    ("old", "new", "limit", "advice"),
    [
        ("top1: 50", "top1: 150", "100 or less", "figures are in percent"),
        ("size: 32, ch", "size: 9999, ch", "8192 or less", None),
        ("channels: 3", "channels: 5000", "4096 or less", None),
    ],
)
def test_only_a_figure_in_percent_is_told_as_one(
    tmp_path: Path, old: str, new: str, limit: str, advice: str | None
) -> None:
    error = mistake(tmp_path, old, new)
    assert limit in error.message and error.next == advice


ZOOS = [
    (
        "extends: home\n    options: {bn_epsilon: 1, bn_epsilo: 1}",
        "no option 'bn_epsilo'",
        "did you mean 'bn_epsilon'?",
    ),
    ("extends: hom", "no zoo 'hom'", "did you mean 'home'?"),
    ("extends: other", "extends itself", None),
    ("padding: {stem/conv: 1}", "'framework' is missing", None),
    (
        "extends: home\n    weights: {tinny: {file: 'https://x.org/a'}}",
        "no variant 'tinny'",
        "did you mean 'tiny'?",
    ),
    (
        "extends: home\n    weights: {tiny: {flie: 'https://x.org/a'}}",
        "no key 'flie'",
        "did you mean 'file'?",
    ),
    ("extends: home\n    weights: {tiny: {file: 'gopher://x.org/a'}}", "must begin with https://", None),
    (
        "extends: home\n    weights: {tiny: {file: a.pth}}",
        "'a.pth' is not an address",
        "write it from https:// on, or",
    ),
    ("extends: home\n    weights: {tiny: {file: 'https://x.org/a', md5: 12}}", "md5", None),
    (
        "extends: home\n    weights: {tiny: {md5: 3ef43a0b657b3be2300d5770ece849e0}}",
        "'md5' describes a file",
        None,
    ),
    ("extends: home\n    weights: {tiny: {pypi: 'x>=1!a'}}", "'pypi'", None),
    ("extends: home\n    weights: {tiny: {top1: 50, source: a, size: 32}}", "'top5' is missing", None),
    ("extends: home\n    weights: {tiny: {top1: 50, top5: 80, size: 32}}", "'source' is missing", None),
    ("extends: home\n    weights: {tiny: {top1: 50, top5: 80, source: a}}", "'size' is missing", None),
    ("extends: home\n    weights: {tiny: {protocol: small}}", "no protocol 'small'", None),
    ("extends: home\n    protocols: {small: {resize: squash, size: 10}}", "'interpolation' is missing", None),
    ("extends: home\n    protocol: {resize: squash, size: 10}", "'interpolation' is missing", None),
    ("extends: home\n    protocol: {resize: squash, size: 10, interpolation: pil}", "interpolation", None),
    ("extends: home\n    protocol: {resize: squash, siez: 10}", "no key 'siez'", "did you mean 'size'?"),
    ("extends: home\n    preprocess: {resize: squash}", "no key 'preprocess'", "it is called 'protocol'"),
    (
        "extends: home\n    files: {tiny: {url: 'https://x.org/a'}}",
        "no key 'files'",
        "list it in the zoo's 'weights': ",
    ),
    (
        "extends: home\n    published: {tiny: {top1: 50}}",
        "no key 'published'",
        "list it in the zoo's 'weights': ",
    ),
    ("extends: home\n    names: {stem/: 3}", "a scope must be a table", None),
    ("extends: home\n    names: {'{s}/': {'{s}': a}}", "a capture is a plain name", None),
    ("extends: home\n    names: {prefix: [a]}", "'prefix' must be a word", None),
    ("extends: home\n    names: {prefix: '{s+}'}", "not an expression", None),
    ("extends: home\n    variants: {tiny: {names: {a: b}}}", "no key 'names'", None),
    ("extends: home\n    ignore: {a: {equals: 1}}", "'reason' is missing", None),
]


@pytest.mark.parametrize(("section", "message", "advice"), ZOOS, ids=[section[:50] for section, _, _ in ZOOS])
def test_mistakes_in_a_second_zoo(tmp_path: Path, section: str, message: str, advice: str | None) -> None:
    path = write(tmp_path, f"{VALID}  other:\n    {section}\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert message in caught.value.message
    assert advice is None or str(caught.value.next).startswith(advice)
    assert int(line_of(caught.value).rpartition(":")[2]) > VALID.count("\n")


@pytest.mark.parametrize(
    ("labels", "where", "message"),
    [
        (
            "imagenet-1000",
            "tiny.yaml:24:13",
            "'imagenet-1000' has 1000 labels, and the head of tiny from home has 10 classes",
        ),
        (
            "two.txt",
            "tiny.yaml:24:13",
            "'two.txt' has 2 labels, and the head of tiny from home has 10 classes",
        ),
        ("none.txt", "tiny.yaml:24:13", "there is no file 'none.txt' beside this one"),
        (
            "bad.txt",
            "bad.txt:2",
            "expected the name of a class, of 1 to 200 characters, none of which controls a terminal",
        ),
        ("../two.txt", "tiny.yaml:24:13", "'../two.txt'"),
    ],
)
def test_labels_are_as_many_as_the_classes(labels: str, where: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, "daisy\nrose\n", "two.txt")
    write(tmp_path, "daisy\n\n", "bad.txt")
    with pytest.raises(RecipeError) as caught:
        recipe = load_recipe(write(tmp_path, VALID.replace("padding: {stem/conv: 1}", f"labels: {labels}")))
        expand(Member(recipe, "tiny", recipe.zoos["home"]))
    assert message in caught.value.message and caught.value.where == str(tmp_path / where)
    assert caught.value.next or labels == "../two.txt"


def test_what_a_zoo_inherits_and_what_not(tmp_path: Path) -> None:
    second = """\
  second:
    extends: home
    options: {bn_epsilon: 1.0e-5}
    padding: {"stem/*": [0, 1, 0, 1]}
    names: {stem/conv: first}
    licence: MIT
    weights:
      tiny: {file: "https://example.org/weights/tiny-0123abcd.pth", sha256_prefix: 0123abcd}
      tiny_wide: {labels: ten.txt}
    variants:
      tiny_wide: {options: {bn_epsilon: 1.0e-4}, padding: {stem/conv: 2}}
"""
    write(tmp_path, "\n".join("abcdefghij"), "ten.txt")
    recipe = load_recipe(write(tmp_path, VALID + second))
    zoo = recipe.zoo("second", "tiny")
    assert zoo.framework == "torch" and not zoo.published and zoo.preprocess is None
    assert zoo.files["tiny"].name == "tiny-0123abcd.pth" and zoo.files["tiny"].licence == "MIT"
    graph = use(recipe, "tiny", "second")
    assert op_at(graph, "stem/conv").convention.pads == (0, 1, 0, 1)
    assert op_at(graph, "stem/norm").epsilon == 1e-5
    wide = recipe.zoo("second", "tiny_wide")
    assert wide.labels == Labels("ten.txt", tuple("abcdefghij")) and zoo.labels is None
    graph = expand(Member(recipe, "tiny_wide", wide))
    assert op_at(graph, "stem/conv").convention.pads == (2, 2, 2, 2)
    assert op_at(graph, "stem/norm").epsilon == 1e-4


def test_an_heir_may_have_no_reference(tmp_path: Path) -> None:
    text = VALID.replace("tiny", "resnet18").replace(
        "framework: torch", "framework: torch\n    reference: torchvision"
    )
    text = text.replace("  resnet18_wide: ", "  own: ").replace("padding: {stem/conv: 1}", "only: [resnet18]")
    wrong = f"{text}  heir: {{extends: home, only: [own], reference: torchvision}}\n"
    with pytest.raises(RecipeError, match="reference 'torchvision' has no model 'own'") as caught:
        load_recipe(write(tmp_path, wrong))
    assert line_of(caught.value) == f"{tmp_path / 'tiny.yaml'}:{wrong.count(chr(10))}"
    assert "reference: none" in str(caught.value.next)
    recipe = load_recipe(write(tmp_path, text + "  heir: {extends: home, only: [own, resnet18]}\n"))
    assert [recipe.zoo("heir", name).reference for name in ("own", "resnet18")] == [None, "torchvision"]
    heir = load_recipe(
        write(tmp_path, text + "  heir: {extends: home, only: [own], reference: none}\n")
    ).zoos["heir"]
    assert (heir.reference, heir.framework) == (None, "torch")


def test_the_reference_of_a_zoos_file_is_for_the_models_that_it_has(tmp_path: Path) -> None:
    text = VALID.replace("  home:\n    framework: torch\n", "  keras:\n").replace(
        "    padding: {stem/conv: 1}\n", ""
    )
    recipe = load_recipe(write(tmp_path, text))
    assert recipe.zoos["keras"].reference == "keras" and recipe.zoo("keras", "tiny").reference is None


def test_a_zoo_without_a_variant_says_so(tmp_path: Path) -> None:
    narrow = "  narrow: {extends: home, only: [tiny]}\n  narrower: {extends: narrow}\n"
    other = "  other: {extends: narrow, only: [tiny_wide]}\n"
    assert list(load_recipe(write(tmp_path, VALID + narrow + other)).zoos_of("tiny_wide")) == [
        "home",
        "other",
    ]
    recipe = load_recipe(write(tmp_path, VALID + narrow))
    assert list(recipe.zoos_of("tiny")) == ["home", "narrow", "narrower"] and list(
        recipe.zoos_of("tiny_wide")
    ) == ["home"]
    for zoo in ("narrow", "narrower"):
        use(recipe, "tiny", zoo)
        with pytest.raises(UsageError, match=f"zoo '{zoo}' has no 'tiny_wide'") as caught:
            recipe.zoo(zoo, "tiny_wide")
        assert caught.value.next == "it has tiny; 'tiny_wide' is in home"


def test_an_heirs_own_variants_are_all_that_it_has(tmp_path: Path) -> None:
    zoos = "  narrow: {extends: home, only: [tiny]}\n  other: {extends: narrow, only: [tiny_wide]}\n"
    recipe = load_recipe(write(tmp_path, VALID + zoos))
    assert recipe.zoos["other"].only == ("tiny_wide",) and list(recipe.zoos_of("tiny")) == ["home", "narrow"]


def test_rules_of_a_zoo_are_not_looked_for_in_variants_that_it_lacks(tmp_path: Path) -> None:
    narrow = "  narrow: {extends: home, only: [tiny], padding: {stage1/unit3/conv: 1}}\n"
    recipe = load_recipe(write(tmp_path, changed("depths: [1, 1]}", "depths: [3, 1]}") + narrow))
    with pytest.raises(RecipeError, match="'stage1/unit3/conv' matches no padding site"):
        use(recipe, "tiny", "narrow")


def test_a_variant_that_no_zoo_has(tmp_path: Path) -> None:
    assert (
        mistake(tmp_path, "    padding: {stem/conv: 1}\n", "    only: [tinny]\n").next
        == "did you mean 'tiny'?"
    )
    path = write(tmp_path, changed("    framework: torch\n", "    framework: torch\n    only: [tiny]\n"))
    with pytest.raises(RecipeError, match="no zoo has 'tiny_wide'") as caught:
        load_recipe(path)
    assert line_of(caught.value) == f"{path}:4"


def test_arguments_that_name_nothing(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, VALID))
    for call, nearest in (
        (lambda: recipe.zoo("hone", "tiny"), "home"),
        (lambda: recipe.zoo("home", "tinny"), "tiny"),
        (lambda: expand(Member(recipe, "tiny", recipe.zoos["home"]), {"clases": 3}), "classes"),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        assert caught.value.next == f"did you mean '{nearest}'?"


PIECES = [
    "{",
    "}",
    "[",
    "]",
    ":",
    "=",
    '"',
    "-",
    "*",
    "&",
    "!",
    "null",
    "1.0e+9",
    "-1",
    "true",
    "[]",
    "{}",
    "\n",
    "=9**9",
    "{i}",
    ".inf",
    "\0",
    "#",
]


@given(st.randoms(use_true_random=False))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_damaged_the_error_says_where(tmp_path: Path, random: Random) -> None:
    text = VALID + "      tiny_wide: {file: 'https://x.org/tiny.pth'}\n"
    for _ in range(random.randint(1, 3)):
        start = random.randrange(len(text))
        text = text[:start] + random.choice([*PIECES, ""]) + text[start + random.choice([0, 1, 1, 3, 10]) :]
    path = write(tmp_path, text)
    try:
        recipe = load_recipe(path)
        for variant in recipe.variants:
            for zoo in recipe.zoos:
                use(recipe, variant, zoo)
    except RecipeError as error:
        assert str(error.where).startswith(str(path))


def test_importing_it_imports_no_framework() -> None:
    load = (
        "from porter.recipe import declared_recipes, load_recipe; [load_recipe(*each.files) for each "
        "in declared_recipes()]"
    )
    code = f"import sys; {load}; sys.exit(bool({{'torch', 'tensorflow', 'keras'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_pydantic_reads_a_kind_of_section_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a dataclass that takes longer than to read a recipe: at 854 times for one recipe it was half of a
    convert.
    """
    made: list[Any] = []
    schema._adapter.cache_clear()
    monkeypatch.setattr(schema, "TypeAdapter", lambda kind: made.append(kind) or TypeAdapter(kind))
    load_recipe(write(tmp_path, VALID))
    schema._adapter.cache_clear()
    assert made and len(made) == len(set(made))
