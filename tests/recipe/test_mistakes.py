"""Mistakes that authors make: each error names the place where the mistake is written, one cause, and what to write instead."""

from pathlib import Path
from typing import NamedTuple

import pytest

from porter.recipe.check import check_recipe
from tests.recipe.recipes import changed, place


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
UNIT = "{conv: conv, filters: =filters, kernel: =kernel, pad: same}"
ADD = "{add: add, from: [input, conv]}"
HOME = "    framework: torch\n"
MISTAKES = {
    # YAML
    "a brace without its pair": Mistake(f"- {NORM}", "- ¶{batch_norm: stem/norm", "not closed on its line", "add its }"),
    "a tab": Mistake(f"  - {NORM}", f"¶\t- {NORM}", "cannot start any token", "spaces, not with tabs"),
    "no space after a colon": Mistake(
        "options: {classes: 10, bn_epsilon:", "options:{classes: 10, bn_epsilon¶:", "mapping values", "a space after each ':'"
    ),
    "a key without its colon": Mistake(
        "=stem_pool}", "=stem_pool, ¶from stem/relu}", "no 'from stem/relu'", "write 'from: stem/relu'"
    ),
    "a key twice": Mistake("      stem/norm: bn1\n", "      stem/norm: bn1\n      ¶stem/norm: bn2\n", "is here twice", ""),
    # words
    "a section": Mistake("graph:\n", "¶graf:\n", "no key 'graf'", "'graph'"),
    "an operation": Mistake(
        "{batch_norm: stem/norm}", "{¶batchnorm: stem/norm}", "neither an operation nor a block", "'batch_norm'"
    ),
    "an attribute": Mistake(
        "filters: =width, kernel: 3, s", "¶filtres: =width, kernel: 3, s", "'conv' has no 'filtres'", "'filters'"
    ),
    "an argument of a block": Mistake("filters: =width}\n", "filters: =width, ¶kernal: 5}\n", "'unit' has no 'kernal'", "'kernel'"),
    "an option": Mistake(HOME, HOME + "    options: {¶bn_epsilom: 1}\n", "no option 'bn_epsilom'", "'bn_epsilon'"),
    "a declared option": Mistake(
        "bn_epsilon: 1", "¶bn_epsilom: 1", "takes its 'epsilon' from the option 'bn_epsilon'", "'bn_epsilon'"
    ),
    "a variable of one variant": Mistake("tiny_wide: {width", "¶tiny_wide: {widht", "'tiny_wide' has no 'width'", "'widht'"),
    "a framework": Mistake("framework: torch", "framework: ¶torhc", "no framework 'torhc'", "'torch'"),
    "a zoo": Mistake(HOME, HOME + "    extends: ¶hom\n", "no zoo 'hom'", "'home'"),
    "a variant": Mistake("      tiny: {top1", "      ¶tinny: {top1", "no variant 'tinny'", "'tiny'"),
    "a reference": Mistake(HOME, HOME + "    reference: ¶torchvison\n", "no reference 'torchvison'", "'torchvision'"),
    "a transform": Mistake("[conv1x1_to_dense]", "[¶conv1x1_to_dens]", "no transform", "'conv1x1_to_dense'"),
    "a convention": Mistake("padding: {stem/conv: 1}", "padding: {stem/conv: ¶smae}", "got 'smae', in tiny from home", "'same'"),
    # values
    "a word for a number": Mistake("kernel: 3, stride: 2, pad: s", "kernel: ¶three, stride: 2, pad: s", "is a whole number", ""),
    "a variable without its sign": Mistake("filters: =width, k", "filters: ¶width, k", "got 'width'", "write =width"),
    "half a filter": Mistake("filters: =width, k", "filters: ¶=width/3, k", "got 2.6666666666666665", "int(...) or round8(...)"),
    "half a filter of a variant": Mistake(
        "{width: 8, ", "{width: ¶8.5, ", "'filters' of 'stem/conv' is a whole number", "int(...)"
    ),
    "half a filter of a block": Mistake(
        "filters: =width}", "filters: ¶=0.3*width}", "'filters' of 'stage1/unit1/conv'", "int(...)"
    ),
    "a digest": Mistake("tiny: {top1: 50", "tiny: {file: 'https://x.org/a', md5: ¶3EF4, top1: 50", "'md5' is lower-case hex", ""),
    "a figure above 100": Mistake("top1: 50", "top1: ¶150", "top1", ""),
    "a figure without its source": Mistake(
        "tiny: {top1: 50, top5: 80, size: 32, source: made up}", "tiny: ¶{top1: 50, top5: 80, size: 32}", "'source'", ""
    ),
    # expressions
    "an unknown variable": Mistake("filters: =width, k", "filters: ¶=widht, k", "'widht' is no variable", "'width'"),
    "one in a part that nothing reaches": Mistake(
        "=stem_pool", "¶=stem_pool or stem_pol", "'stem_pol' is no variable", "'stem_pool'"
    ),
    "one of another scope": Mistake(
        "{relu: stem/relu}", "{relu: stem/relu, when: ¶=first}", "'first' is no variable", "with 'repeat'"
    ),
    "no expression": Mistake("filters: =width, k", "filters: ¶'=4 *', k", "'4 *' is no expression", "=4*width"),
    "a division by zero": Mistake("filters: =width, k", "filters: ¶=width//0, k", "'width // 0' divides by zero", "if b > 0"),
    "an index too large": Mistake('"=depths[0]"', '¶"=depths[2]"', "index 2 is outside a list of 2", "first index is 0"),
    "an unknown function": Mistake("filters: =width, k", "filters: ¶=floor(width), k", "no function 'floor'", "int"),
    # graphs
    "a path that does not exist": Mistake("[input, conv]", "[input, ¶cnv]", "no earlier step 'cnv'", "'conv'"),
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
        "make stem/pool and stage1/unit1/conv alike",
    ),
    "a window larger than its map": Mistake(
        "- {conv: stem/conv, filters: =width, kernel: 3, stride: 2, pad: same}",
        "- ¶{conv: stem/conv, filters: =width, kernel: 99, stride: 2}",
        "no 99x99 window fits",
        "smaller kernel",
    ),
    "two steps of one path": Mistake("{relu: stem/relu}", "{relu: ¶stem/norm}", "two steps have the path", "'when' conditions"),
    "a block inside itself": Mistake(UNIT, "¶{unit: again, filters: 8}", "'unit' is used inside itself: unit > unit", ""),
    # zoos
    "a pattern of names that matches nothing": Mistake("stem/norm: bn1", "¶stem/nrom: bn1", "matches no node", "'stem/norm'"),
    "a node without a name": Mistake("    names:\n      stem/conv: conv1\n", "    ¶names:\n", "does not name 'stem/conv'", ""),
    "two nodes of one name": Mistake("stem/norm: bn1", "stem/norm: ¶conv1", "both have the name 'conv1'", ""),
    "a pad where no site is": Mistake("padding: {stem", "padding: {¶stem/cnv: 1, stem", "no padding site", "'stem/conv'"),
    "a pad at a step that takes none": Mistake(
        "padding: {stem", "padding: {¶stem/relu: 1, stem", "'stem/relu' is a relu", "only convolutions and pools"
    ),
    "a fill that is no number": Mistake(
        "padding: {stem", "padding: {stem/pool: ¶{fill: zero}, stem", "'fill' is a number", "write 0"
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_where_it_is_written_with_its_fix(tmp_path: Path, name: str) -> None:
    mistake = MISTAKES[name]
    where = place(tmp_path / "tiny.yaml", changed(mistake.old, mistake.new))
    errors = check_recipe(tmp_path / "tiny.yaml").errors
    assert len(errors) == 1, errors
    found = (errors[0].where, mistake.message in errors[0].message, mistake.fix in (errors[0].next or ""))
    assert found == (where, True, True), errors[0]
