"""Mistakes that authors make: each error names the place where the mistake is written, one cause, and what to
write instead.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from porter.authoring.check.recipe_check import Checked, check_recipe
from tests.support.recipe.recipes import VALID, changed, place


class Mistake(NamedTuple):
    """A mistake in the valid recipe.

    Attributes:
        old, new: text, and what stands there instead; ¶ stands before the place that the error names.
        message, fix: parts of the error.
    """

    old: str
    new: str
    message: str
    fix: str


STEM = "{conv: stem/conv, filters: =width, kernel: 3, stride: 2, pad: same}"
NORM = "{batch_norm: stem/norm}"
INPUT = "input: {size: 32, channels: 3}\ngraph:\n"
UNIT = "{conv: conv, filters: =filters, kernel: =kernel, pad: same}"
ADD = "{add: add, from: [input, conv]}"
HOME = "    framework: torch\n"
MISTAKES = {
    # YAML
    "a brace without its pair": Mistake(
        f"- {NORM}", "- ¶{batch_norm: stem/norm", "not closed on its line", "add its }"
    ),
    "a tab": Mistake(f"  - {NORM}", f"¶\t- {NORM}", "cannot start any token", "spaces, not with tabs"),
    "no space after a colon": Mistake(
        "options: {classes: 10, bn_epsilon:",
        "options:{classes: 10, bn_epsilon¶:",
        "mapping values",
        "a space after each ':'",
    ),
    "a key without its colon": Mistake(
        "=stem_pool}", "=stem_pool, ¶from stem/relu}", "no 'from stem/relu'", "write 'from: stem/relu'"
    ),
    "a key twice": Mistake(
        "      stem/norm: bn1\n", "      stem/norm: bn1\n      ¶stem/norm: bn2\n", "is here twice", ""
    ),
    # words
    "a section": Mistake("graph:\n", "¶graf:\n", "no key 'graf'", "'graph'"),
    "an operation": Mistake(
        "{batch_norm: stem/norm}",
        "{¶batchnorm: stem/norm}",
        "neither an operation nor a block",
        "'batch_norm'",
    ),
    "an attribute": Mistake(
        "filters: =width, kernel: 3, s",
        "¶filtres: =width, kernel: 3, s",
        "'conv' has no 'filtres'",
        "'filters'",
    ),
    "an argument of a block": Mistake(
        "filters: =width}\n", "filters: =width, ¶kernal: 5}\n", "'unit' has no 'kernal'", "'kernel'"
    ),
    "an option": Mistake(
        HOME, HOME + "    options: {¶bn_epsilom: 1}\n", "no option 'bn_epsilom'", "'bn_epsilon'"
    ),
    "a declared option": Mistake(
        "bn_epsilon: 1", "¶bn_epsilom: 1", "takes its 'epsilon' from the option 'bn_epsilon'", "'bn_epsilon'"
    ),
    "an option that is missing": Mistake(
        f"bn_epsilon: 1.0e-3, stem_pool: true}}\n{INPUT}  - {STEM}\n  - {NORM}\n",
        f"stem_pool: true}}\n{INPUT}  - {STEM}\n  - ¶{NORM}\n  - {{batch_norm: stem/again}}\n",
        "'batch_norm' takes its 'epsilon' from the option 'bn_epsilon', and this recipe has none",
        "add bn_epsilon to 'options'",
    ),
    "a variable of one variant": Mistake(
        "tiny_wide: {width", "¶tiny_wide: {widht", "'tiny_wide' has no 'width'", "'widht'"
    ),
    "a framework": Mistake("framework: torch", "framework: ¶torhc", "no framework 'torhc'", "'torch'"),
    "a zoo": Mistake(HOME, HOME + "    extends: ¶hom\n", "no zoo 'hom'", "'home'"),
    "a variant": Mistake(
        HOME, HOME + "    only: [tiny, ¶tiny_wid]\n", "no variant 'tiny_wid'", "'tiny_wide'"
    ),
    "a reference": Mistake(
        HOME, HOME + "    reference: ¶torchvison\n", "no reference 'torchvison'", "'torchvision'"
    ),
    "a transform": Mistake("[conv1x1_to_dense]", "[¶conv1x1_to_dens]", "no transform", "'conv1x1_to_dense'"),
    "a convention": Mistake(
        "padding: {stem/conv: 1}", "padding: {stem/conv: ¶smae}", "got 'smae', in tiny from home", "'same'"
    ),
    # values
    "a word for a number": Mistake(
        "kernel: 3, stride: 2, pad: s", "kernel: ¶three, stride: 2, pad: s", "must be a whole number", ""
    ),
    "a variable without its sign": Mistake(
        "filters: =width, k", "filters: ¶width, k", "got 'width'", "write =width"
    ),
    "half a filter": Mistake(
        "filters: =width, k", "filters: ¶=width/3, k", "got 2.6666666666666665", "int(...) or round8(...)"
    ),
    "half a filter of a variant": Mistake(
        "{width: 8, ", "{width: ¶8.5, ", "'filters' of 'stem/conv' must be a whole number", "int(...)"
    ),
    "half a filter of a block": Mistake(
        "filters: =width}", "filters: ¶=0.3*width}", "'filters' of 'stage1/unit1/conv'", "int(...)"
    ),
    "a digest": Mistake(
        "tiny: {top1: 50",
        "tiny: {file: 'https://x.org/a', md5: ¶3EF4, top1: 50",
        "'md5' must be lower-case hex",
        "",
    ),
    "a figure above 100": Mistake("top1: 50", "top1: ¶150", "100 or less, got 150", "in percent"),
    "a figure without its source": Mistake(
        "tiny: {top1: 50, top5: 80, size: 32, source: made up}",
        "tiny: ¶{top1: 50, top5: 80, size: 32}",
        "'source'",
        "",
    ),
    # expressions
    "an unknown variable": Mistake(
        "filters: =width, k", "filters: ¶=widht, k", "'widht' is not a variable", "'width'"
    ),
    "one in a part that nothing reaches": Mistake(
        "=stem_pool", "¶=stem_pool or stem_pol", "'stem_pol' is not a variable", "'stem_pool'"
    ),
    "one of another scope": Mistake(
        "{relu: stem/relu}", "{relu: stem/relu, when: ¶=first}", "'first' is not a variable", "with 'repeat'"
    ),
    "not an expression": Mistake(
        "filters: =width, k", "filters: ¶'=4 *', k", "'4 *' is not an expression", "=4*width"
    ),
    "not an expression as a default": Mistake(
        "kernel: 3}\n    steps", "kernel: ¶=3+}\n    steps", "'3+' is not an expression", "=4*width"
    ),
    "a constant that is an option": Mistake(
        "options: {", "constants: {¶stem_pool: 3}\noptions: {", "'stem_pool' is an option too", "another name"
    ),
    "a variable that is a constant": Mistake(
        "tiny_wide: {width: 16, depths: [1, 1]}\n",
        "tiny_wide: {width: 16, ¶extra: 1, depths: [1, 1]}\nconstants: {extra: 3}\n",
        "'extra' is a constant too",
        "another name",
    ),
    **{
        f"a variable called {word}": Mistake(
            "{width: 8, ", f"{{¶{word}: 1, width: 8, ", f"'{word}' is a word of recipes", "another name"
        )
        for word in ("place", "variant", "count", "min")
    },
    "an expression as a constant": Mistake(
        "options: {", "constants: {a: ¶'=2*4'}\noptions: {", "is not an expression", ""
    ),
    "an option that is a constant": Mistake(
        HOME, HOME + "    options: {¶depth: 1}\n", "no option 'depth'", "the choices are"
    ),
    "an expression as a variable": Mistake(
        "{width: 8, ", '{width: ¶"=2*4", ', "value is not an expression", "in the step that needs it"
    ),
    "a division by zero": Mistake(
        "filters: =width, k", "filters: ¶=width//0, k", "'width // 0' divides by zero", "if b > 0"
    ),
    "an index too large": Mistake(
        '"=depths[0]"', '¶"=depths[2]"', "index 2 is outside a list of 2", "first index is 0"
    ),
    "an unknown function": Mistake(
        "filters: =width, k", "filters: ¶=floor(width), k", "no function 'floor'", "int"
    ),
    "a condition without its sign": Mistake(
        "when: =stem_pool",
        "when: ¶stem_pool == True",
        "'when' must be a condition, got 'stem_pool == True'",
        "when: =stem_pool == True",
    ),
    # graphs
    "a dense layer of a map": Mistake(
        "  - {global_avg_pool: head/pool}\n  - {dense",
        "  - ¶{dense",
        "head/logits: expected an input of rank 1, got 8x8x8",
        "global_avg_pool or a flatten",
    ),
    "a path that does not exist": Mistake(
        "[input, conv]", "[input, ¶cnv]", "no earlier step 'cnv'", "'conv'"
    ),
    "a step that is left out": Mistake(
        f"{UNIT}\n      - {ADD}",
        f"{UNIT[:-1]}, when: =filters > 8}}\n      - {{add: add, from: [input, ¶conv]}}",
        "step 'conv' is left out here",
        "a 'when' too",
    ),
    "a sum of unlike shapes": Mistake(
        f"{UNIT}\n      - {ADD}",
        f"{UNIT.replace('=filters', '=2*filters')}\n      - ¶{ADD}",
        "stage1/unit1/add: cannot add shapes 8x8x8, 16x8x8, in tiny from home",
        "make stem/pool, stage1/unit1/conv alike",
    ),
    "a window larger than its map": Mistake(
        "- {conv: stem/conv, filters: =width, kernel: 3, stride: 2, pad: same}",
        "- ¶{conv: stem/conv, filters: =width, kernel: 99, stride: 2}",
        "no 99x99 window fits",
        "smaller kernel",
    ),
    "an end that is no head": Mistake(
        "{dense: head/logits, units: =classes}\n",
        "{dense: head/logits, units: =classes}\n  - ¶{relu: end}\n",
        "the graph ends in",
        "end it",
    ),
    "two steps of one path": Mistake(
        "{relu: stem/relu}", "{relu: ¶stem/norm}", "two steps have the path", "'when' conditions"
    ),
    "a block inside itself": Mistake(
        UNIT, "¶{unit: again, filters: 8}", "'unit' is used inside itself: unit > unit", ""
    ),
    "an input too many for a block": Mistake(
        "{unit: stage1/unit, ",
        "{unit: stage1/unit, from: ¶[stem/conv, stem/relu], ",
        "'unit' reads input, and is given 2",
        "from:",
    ),
    "a norm that repeats": Mistake(
        "{relu: stem/relu}",
        "{conv: a, filters: 8, repeat: 2, ¶norm: b}",
        "a step with 'repeat' cannot have 'norm'",
        "a block of the two",
    ),
    # zoos
    "a pattern of names that matches nothing": Mistake(
        "stem/norm: bn1", "¶stem/nrom: bn1", "matches no node", "'stem/norm'"
    ),
    **{
        f"what is caught called {word}": Mistake(
            '"stage{s}/unit{u}/conv"',
            f'¶"stage{{{word}}}/unit{{u}}/conv"',
            f"'{word}' is a word of recipes",
            "another name",
        )
        for word in ("place", "input")
    },
    "a place of all names": Mistake(
        "      stem/conv: conv1\n",
        "      prefix: ¶'a{place}'\n      stem/conv: conv1\n",
        "'place' is not a variable here",
        "not in the prefix of all",
    ),
    "a name that computes with a word": Mistake(
        '"stage{s}/unit{u}/conv": "layer{s}.{u-1}.conv"',
        '"stage{s}/u{u}/conv": ¶"layer{s}.{u-1}.conv"',
        "'stage{s}/u{u}/conv' matches 'stage1/unit1/conv', and its name "
        "'layer{s}.{u-1}.conv' cannot be computed: "
        "expected a number, got 'nit1'",
        "such as stage1/unit1/conv: NAME",
    ),
    "a node without a name": Mistake(
        "    names:\n      stem/conv: conv1\n",
        "    ¶names:\n",
        "does not name 'stem/conv', in tiny",
        "such as stem/conv: NAME",
    ),
    "two nodes of one name": Mistake(
        "stem/norm: bn1", "stem/norm: ¶conv1", "both have the name 'conv1', in tiny", "what tells them apart"
    ),
    "a pad where no site is": Mistake(
        "padding: {stem", "padding: {¶stem/cnv: 1, stem", "no padding site", "'stem/conv'"
    ),
    "a pad at a step that takes none": Mistake(
        "padding: {stem",
        "padding: {¶stem/relu: 1, stem",
        "'stem/relu' is a relu",
        "only convolutions and pools",
    ),
    "a fill that is not a number": Mistake(
        "padding: {stem", "padding: {stem/pool: {fill: ¶zero}, stem", "'fill' must be a number", "write 0"
    ),
}


ZOO = """\
zoo: home
framework: torch
licence: MIT
protocols:
  small: {resize: shorter_side, size: 40, interpolation: pil_bilinear, crop: 32}
protocol: small
architectures:
  tiny:
    weights:
      tiny: {file: "https://x.org/a.pth", sha256_prefix: 0123abcd, top1: 50, top5: 80, source: a page}
"""
SPLIT = VALID[: VALID.index("    weights:")].replace(HOME, "")
NAMES = '      "stage{s}/unit{u}/conv": "layer{s}.{u-1}.conv"\n'
ROW = "tiny: {file"
OF_TWO_FILES = {
    "a protocol's name": Mistake("protocol: small", "protocol: ¶smal", "no protocol 'smal'", "'small'"),
    "a protocol's word": Mistake("pil_bilinear", "¶pil_bilinaer", "got 'pil_bilinaer'", "'pil_bilinear'"),
    "a protocol's number": Mistake(
        "crop: 32", "crop: ¶50", "'crop' must be from 1 to the size 40, got 50", ""
    ),
    "a digest": Mistake("0123abcd", "¶0123ABCD", "'sha256_prefix' must be lower-case hex", ""),
    "a figure above 100": Mistake("top1: 50", "top1: ¶500", "100 or less, got 500", "in percent"),
    "a figure without its source": Mistake(
        '{file: "https://x.org/a.pth", sha256_prefix: 0123abcd, top1: 50, top5: 80, source: a page}',
        '¶{file: "https://x.org/a.pth", sha256_prefix: 0123abcd, top1: 50, top5: 80}',
        "the key 'source' is missing",
        "add source",
    ),
    "a key of a row": Mistake("top5: 80", "¶top_5: 80", "no key 'top_5'", "'top5'"),
    "a variant": Mistake(ROW, "¶tinny: {file", "no variant 'tinny'", "'tiny'"),
    "an option": Mistake(
        "licence: MIT", "options: {¶bn_epsilom: 1.0}", "no option 'bn_epsilom'", "'bn_epsilon'"
    ),
    "a zoo's name": Mistake(
        "zoo: home", "zoo: ¶hom", "expected zoo 'home', as the file is called, got 'hom'", ""
    ),
    "a word in quotes": Mistake(
        "licence: MIT", "licence: ¶3", "'licence' must be a word or a text, got 3", "quotes"
    ),
    "a scope's variable": Mistake(
        NAMES,
        '      "stage{s}/":\n        "unit{u}/conv": ¶"layer{t}.{u-1}.conv"\n',
        "'t' is not a variable",
        "the choices are",
    ),
    "a scope's pattern": Mistake(
        NAMES,
        NAMES + '      "stage{s}/":\n        ¶"unt{u}/conv": a\n',
        "'stage{s}/unt{u}/conv' matches no node",
        "did you mean",
    ),
    "a scope": Mistake(
        NAMES,
        '      ¶"satge{s}/unit{u}/":\n        conv: "layer{s}.{u-1}.conv"\n        relu: '
        '"layer{s}.{u-1}.relu"\n',
        "'satge{s}/unit{u}/' matches no node",
        "'stage1/unit1/conv'",
    ),
    "a scope's prefix": Mistake(
        NAMES,
        '      "stage{s}/unit{u}/":\n        ¶prfeix: "layer{s}.{u-1}."\n        conv: conv\n',
        "'stage{s}/unit{u}/prfeix' matches no node",
        "'prefix'",
    ),
    "a scope that is no table": Mistake(
        "      stem/norm: bn1\n", "      stem/: ¶bn1\n", "a scope must be a table of names", ""
    ),
}


@pytest.mark.parametrize("name", OF_TWO_FILES)
def test_a_mistake_is_named_in_the_file_in_which_it_is_written(tmp_path: Path, name: str) -> None:
    mistake = OF_TWO_FILES[name]
    (tmp_path / "zoos").mkdir()
    texts = {tmp_path / "tiny.yaml": SPLIT, tmp_path / "zoos" / "home.yaml": ZOO}
    assert sum(text.count(mistake.old) for text in texts.values()) == 1
    marked = {path: place(path, text.replace(mistake.old, mistake.new)) for path, text in texts.items()}
    expect(mistake, check_recipe(tmp_path / "tiny.yaml"), [where for where in marked.values() if where])


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_where_it_is_written_with_its_fix(tmp_path: Path, name: str) -> None:
    mistake = MISTAKES[name]
    where = place(tmp_path / "tiny.yaml", changed(mistake.old, mistake.new))
    expect(mistake, check_recipe(tmp_path / "tiny.yaml"), [where])


def expect(mistake: Mistake, found: Checked, places: list[str | None]) -> None:
    """One error, at one of the places, with the mistake's words."""
    assert len(found.errors) == 1, found.errors
    error = found.errors[0]
    assert error.where in places and mistake.message in error.message and mistake.fix in (error.next or ""), (
        error,
        places,
    )
