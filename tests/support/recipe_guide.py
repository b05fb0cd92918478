"""The tables of docs/recipes.md, from the code: keys, operations and what the frameworks make of them,
conventions, transforms, ...

`python -m tests.support.recipe_guide` writes them into the document, and recipes/schema.json beside it;
tests/roads/recipe/test_guide.py and tests/unit/authoring/test_json_schema.py hold both to the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import yaml

from porter.authoring.json_schema import operation_words, schema_text
from porter.data.preprocess import Preprocess
from porter.frameworks import get_destination
from porter.frameworks.torch.code import model_source
from porter.graph import Graph
from porter.graph.ops.kinds import FLAG
from porter.graph.plan import make_plan
from porter.padding import Average, Rounding
from porter.recipe import expand, load_recipe, recipes_folder
from porter.recipe.keys import KEYS
from porter.recipe.recipe import STANDARD_OPTIONS
from porter.recipe.schema import (
    SECTIONS,
    BlockSection,
    Document,
    Extension,
    GenerationSection,
    GroupSection,
    IgnoreSection,
    InputSection,
    NameSection,
    OverrideSection,
    WeightsSection,
    ZooDocument,
    ZooSection,
    keys_of,
)
from porter.recipe.steps import ATTRIBUTES, REQUIRED, Attribute
from porter.recipe.transforms import TRANSFORMS
from porter.zoos.tables import REFERENCES
from tests.support.checkout import ROOT
from tests.support.frameworks.every_op import tensors_of

DOCUMENT = ROOT / "docs" / "recipes.md"
BLOCK = re.compile(r"(<!-- recipes: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Rows = list[tuple[str, ...]]

EXAMPLES: Mapping[str, str] = {
    "conv": "{conv: x, filters: 16, kernel: 3, stride: 2, pad: same}",
    "depthwise_conv": "{depthwise_conv: x, kernel: 3, pad: 1}",
    "conv_transpose": "{conv_transpose: x, filters: 4, kernel: 4, stride: 2, cut: [1, 1, 1, 1]}",
    "max_pool": "{max_pool: x, kernel: 3, stride: 2, pad: same}",
    "avg_pool": "{avg_pool: x, kernel: 3, pad: 1}",
    "global_avg_pool": "{global_avg_pool: x}",
    "global_max_pool": "{global_max_pool: x, keep: true}",
    "adaptive_avg_pool": "{adaptive_avg_pool: x, rows: 2, columns: 4}",
    "adaptive_max_pool": "{adaptive_max_pool: x, rows: 4, columns: 4}",
    "reduce": "{reduce: x, function: mean, axis: channels}",
    "dense": "{dense: x, units: 10}",
    "batch_norm": "{batch_norm: x}",
    "layer_norm": "{layer_norm: x, epsilon: 1.0e-6}",
    "rms_norm": "{rms_norm: x, epsilon: 1.0e-6}",
    "group_norm": "{group_norm: x, groups: 4, epsilon: 1.0e-5}",
    "local_response_norm": "{local_response_norm: x, size: 5, alpha: 2.0e-5, beta: 0.75, bias: 1.0}",
    "channel_scale": "{channel_scale: x}",
    "affine": "{affine: x, scale: 0.5, offset: 1.0}",
    "clip": "{clip: x, low: 0.0, high: 6.0}",
    "power": "{power: x, exponent: 3}",
    "thresholded_relu": "{thresholded_relu: x, threshold: 0.5}",
    "leaky_relu": "{leaky_relu: x, slope: 0.25}",
    "pad_map": "{pad_map: x, pads: [0, 1, 0, 1]}",
    "extend_map": "{extend_map: x, pads: [0, 1, 0, 1], mode: reflect}",
    "crop": "{crop: x, pads: [1, 0, 1, 0]}",
    "dropout": "{dropout: x, rate: 0.5}",
    "flatten": "{flatten: x, rows: 8, columns: 8, order: HWC}",
    "pad_channels": "{pad_channels: x, before: 4, after: 4}",
    "slice_channels": "{slice_channels: x, start: 0, stop: 4}",
    "channel_shuffle": "{channel_shuffle: x, groups: 2}",
    "depth_to_space": "{depth_to_space: x, block: 2}",
    "space_to_depth": "{space_to_depth: x, block: 2}",
    "upsample": "{upsample: x, rows: 2, columns: 2}",
    "resize": "{resize: x, mode: linear, scale: [2, 2]}",
    "resize_like": "{resize_like: x, mode: linear, coordinates: align_corners, from: [small, a]}",
    "pad_like": "{pad_like: x, rows: both, columns: end, from: [small, a]}",
    "crop_like": "{crop_like: x, rows: both, columns: end, from: [a, small]}",
    "rearrange": '{rearrange: x, pattern: "c h w -> (h w) c"}',
    "matmul": "{matmul: x, transpose: true, from: [cells, cells]}",
    "attention": "{attention: x, heads: 2, scale: 0.5, from: [cells, cells, cells]}",
    "join": "{join: x, axis: 0, from: [cells, cells]}",
    "crop_axis": "{crop_axis: x, axis: 0, before: 1, after: 0}",
    "pad_axis": "{pad_axis: x, axis: 0, before: 1, after: 0}",
    "reduce_axis": "{reduce_axis: x, function: mean, axis: 0}",
    "add_array": "{add_array: x, sizes: [64, 8]}",
    "multiply_array": "{multiply_array: x, sizes: [1, 8]}",
    "tokens": "{tokens: x, count: 1}",
    **{
        name: f"{{{name}: x, from: [input, a]}}"
        for name in ("add", "multiply", "divide", "maximum", "minimum", "concat")
    },
}
"""A step with each operation that needs an attribute or several inputs; the others are written like a
relu.
"""
BEFORE: Mapping[str, str] = {
    **dict.fromkeys(("dense", "as_map"), "{global_avg_pool: features}"),
    **dict.fromkeys(
        (
            "matmul",
            "attention",
            "join",
            "crop_axis",
            "pad_axis",
            "reduce_axis",
            "add_array",
            "multiply_array",
            "tokens",
        ),
        '{rearrange: cells, pattern: "c h w -> (h w) c"}',
    ),
    **dict.fromkeys(("resize_like", "pad_like", "crop_like"), "{max_pool: small, kernel: 2, stride: 2}"),
}
"""What makes the features, the array or the small map that an operation takes."""
RECIPE = """\
architecture: example
variants: {{example: {{}}}}
options: {{bn_epsilon: 1.0e-3}}
input: {{size: 8, channels: 8}}
graph:
  - {{relu: a}}
{before}  - {step}
zoos: {{home: {{framework: torch}}}}
"""


def example(name: str) -> str:
    return EXAMPLES.get(name, f"{{{name}: x}}")


def graph_of(name: str) -> Graph:
    """An operation's example at the end of a small network."""
    before = f"  - {BEFORE[name]}\n" if name in BEFORE else ""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "example.yaml"
        path.write_text(RECIPE.format(before=before, step=example(name)), encoding="utf-8")
        recipe = load_recipe(path)
        return expand(recipe.member("example", "home"))


def in_torch(graph: Graph) -> str:
    """The layers of model.py that are the graph's last node, otherwise what its `forward` says."""
    text = model_source(make_plan(graph, (8, 8), get_destination("torch").CAPABILITIES))
    network = text[text.index("class Model(") : text.index("\ndef load")]
    layers = re.findall(r"self\.x(?:_pad)? = (.*?)(?:  # .*)?$", network, re.MULTILINE)
    return "<br>".join(f"`{code}`" for code in layers or re.findall(r"return (.*)", network)[-1:])


def in_keras(graph: Graph) -> str:
    """The layers and the functions of keras.ops that are the graph's last node."""
    tf = get_destination("tf")
    model = tf.ENGINE.build(
        make_plan(graph, (8, 8), tf.CAPABILITIES), tensors_of(graph), {}, "float32", "cpu"
    )
    made = [_keras(found) for found in model.operations if found.name == "x" or found.name.startswith("x_")]
    return "<br>".join(f"`{code}`" for code in dict.fromkeys(made))


def _keras(operation: Any) -> str:
    import keras

    kind = type(operation).__name__
    if not isinstance(operation, keras.layers.Layer):
        return f"ops.{re.sub('(?<=[a-z0-9])(?=[A-Z])', '_', kind).lower()}"
    return f'{kind}("{operation.activation.__name__}")' if kind == "Activation" else kind


OPTIONS: Mapping[str, str] = {
    "classes": "classes of the head; read from the weights",
    "bn_momentum": (
        "the weight of each new batch in a batch norm's averages; it changes nothing that a trained "
        "network computes"
    ),
    "bn_scale": "whether batch norms have a trained factor",
    "bn_center": "whether batch norms have a trained summand",
}
USES: Mapping[str, str] = {
    "min": "the least of two or more numbers",
    "max": "the largest of two or more numbers",
    "int": "a number without its fraction",
    "round_to": (
        "the nearest multiple of its second argument, such as `round_to(width * 16, 4)`: the widths of "
        "GhostNet; as `round8` otherwise"
    ),
    "round8": (
        "the nearest multiple of 8, at least 8 and never below 90 % of the number: the widths of MobileNets"
    ),
}
CONVENTIONS: Mapping[str, str] = {
    "valid": "no pad",
    "same": (
        "TensorFlow's: as many windows as strides fit into the input; the odd cell is at the bottom and right"
    ),
    "same_lower": "the same with the odd cell at the top and left",
    "cntk": "CNTK's: (k - 1) // 2 cells at the top and left at every input size, the rest after",
}
DETAILS: Mapping[str, str] = {
    "fill": (
        "of a max pool: what a cell of the pad holds; -.inf takes no part, 0 is a pad layer before the pool"
    ),
    "real_cells": "an average divides by the cells of the window that are input",
    "full_window": "an average divides by all cells of the window",
    "clipped_window": "an average divides by the cells of the window inside the padded input, as Caffe does",
    "floor": "a window that would reach past the padded input is left out",
    "ceil": "it is kept, unless it would begin past the input",
    "full": "it is always kept, as in MXNet",
}


def options() -> Rows:
    return [
        ("option", "default", "is"),
        *((f"`{name}`", _yaml(STANDARD_OPTIONS[name]), words) for name, words in OPTIONS.items()),
    ]


def functions() -> Rows:
    return [("function", "gives"), *((f"`{name}`", words) for name, words in USES.items())]


def transforms() -> Rows:
    """A row for each transform, with what the first sentence of its docstring says that it returns."""
    rows: Rows = [("transform", "gives")]
    for name, found in TRANSFORMS.items():
        text = " ".join((inspect.getdoc(found.forward) or "").split())
        returned = text.partition(". ")[0].rstrip(".").removeprefix("Return ")
        rows.append((f"`{name}`", returned[:1].upper() + returned[1:]))
    return rows


def conventions() -> Rows:
    rows: Rows = [("convention", "is"), *((f"`{name}`", words) for name, words in CONVENTIONS.items())]
    rows += [("`1`", "so many cells on every side"), ("`[0, 1, 0, 1]`", "top, bottom, left, right")]
    for key, words in (("average", get_args(Average)), ("rounding", get_args(Rounding))):
        rows += [(f"`{{{key}: {word}}}`", DETAILS[word]) for word in words]
    return [*rows, ("`{fill: 0}`", DETAILS["fill"])]


def keys() -> Rows:
    """Every key, with the kinds of mappings that have it."""
    rows: Rows = [("key", "of", "is")]
    for key, words in KEYS.items():
        places = [PLACES[kind] for kind in SECTIONS if key in keys_of(kind)]
        rows.append((f"`{key}`", ", ".join(places) or OTHER_PLACES[key], words))
    return rows


PLACES: Mapping[type[Any], str] = {
    Document: "recipe",
    Extension: "recipe that extends another",
    InputSection: "`input`",
    BlockSection: "block",
    ZooSection: "zoo",
    GenerationSection: "generation",
    OverrideSection: "zoo's variant",
    NameSection: "name",
    IgnoreSection: "`ignore`",
    WeightsSection: "weights",
    Preprocess: "protocol",
    ZooDocument: "zoo's file",
    GroupSection: "its architecture",
}
OTHER_PLACES = {
    "prefix": "`names`, `taps`",
    "branches": "`concat`",
    "norm": "`conv`, `depthwise_conv`",
    **dict.fromkeys(("from", "when", "repeat", "first", "last"), "step"),
}


def operations() -> Rows:
    """Every operation, with its attributes and their defaults."""
    rows: Rows = [("operation", "what it computes", "attributes")]
    for name, known in ATTRIBUTES.items():
        rows.append(
            (
                f"`{name}`",
                operation_words(name),
                ", ".join(_attribute(*attribute) for attribute in known.items()),
            )
        )
    return rows


def _attribute(key: str, attribute: Attribute) -> str:
    default = "" if attribute.default is REQUIRED else f": {_yaml(attribute.default)}"
    return f"`{key}{default}`" + (
        "" if attribute.says or attribute.kind is FLAG else f" ({_words(attribute)})"
    )


def attributes() -> Rows:
    """The attributes that an operation's own text does not explain."""
    known = [
        (key, attribute)
        for attributes in ATTRIBUTES.values()
        for key, attribute in attributes.items()
        if attribute.says
    ]
    rows = [(f"`{key}`", attribute.says, _words(attribute)) for key, attribute in known]
    return [("attribute", "is", "may be"), *dict.fromkeys(rows)]


def _words(attribute: Attribute) -> str:
    """What it may be, without the bounds that nobody reaches."""
    return re.sub(r" from (1|-\d+) to \d+", "", attribute.kind.words)


def _yaml(value: Any) -> str:
    return str(
        yaml.safe_dump(list(value) if isinstance(value, tuple) else value, default_flow_style=True)
    ).splitlines()[0]


def references() -> Rows:
    rows = [
        (f"`{name}`", framework, ", ".join(f"`{model}`" for model in models))
        for framework, known in REFERENCES.items()
        for name, models in known.items()
    ]
    return [("reference", "framework", "models"), *rows]


def destinations() -> Rows:
    rows: Rows = [("step", "torch: model.py", "Keras: model.keras")]
    for name in ATTRIBUTES:
        graph = graph_of(name)
        rows.append((f"`{example(name)}`", in_torch(graph), in_keras(graph)))
    return rows


TABLES: Mapping[str, Callable[[], Rows]] = {
    table.__name__: table
    for table in (
        options,
        functions,
        transforms,
        conventions,
        references,
        keys,
        operations,
        attributes,
        destinations,
    )
}


def markdown(name: str) -> str:
    head, *rows = TABLES[name]()
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def written(text: str) -> str:
    """The document with its tables made anew."""
    return BLOCK.sub(lambda block: f"{block[1]}{markdown(block[2])}{block[3]}", text)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    (recipes_folder() / "schema.json").write_text(schema_text(), encoding="utf-8")
