"""Tables as rules: names by their numbers, loops for repeated blocks."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from porter.comparison.transfer.array_moves import Turned
from porter.comparison.transfer.converter import About, converter_text
from porter.comparison.transfer.rules import expect_layers, layers_of, loop_lines, read_name, rules_of
from porter.comparison.transfer.variable_table import Given, Row, TakenTensor

ABOUT = About("convert_net", "net.safetensors", "Net", "safetensors", "load(model)")


def copied(name: str, source: str) -> Row:
    return Row(name, {"": TakenTensor(source, (Turned((1, 0)),))}, (2, 3), "float32", kind="dense")


def run(rows: list[Row], source: dict[str, Any]) -> Any:
    """What the text of a converter gives; a stand-in has the place of safetensors."""
    text = converter_text(rows, ABOUT)
    names: dict[str, Any] = {"__name__": "converter"}
    lines = text.replace("from safetensors.numpy import load_file, save_file", "load_file = save_file = None")
    exec(compile(lines, "converter", "exec"), names)
    return names["convert"](source), text


def test_blocks_are_loops_and_every_tensor_has_its_own() -> None:
    pairs = [
        (f"stack{stage - 1}_block{block}_{conv}_conv/kernel", f"layer{stage}.{block}.conv{conv}.weight")
        for stage, depth in ((1, 2), (2, 3))
        for block, conv in product(range(depth), (1, 2))
    ]
    pairs += [("stem/kernel", "conv1.weight"), ("block2b_out/kernel", "tail.1.weight")]
    pairs += [("block2c_out/kernel", "tail.2.weight"), ("block10_out/kernel", "tail.3.weight")]
    rng = np.random.default_rng(0)
    source = {name: rng.normal(size=(3, 2)).astype("float32") for _, name in pairs}
    made, text = run([copied(*pair) for pair in pairs], source)
    assert {name: array.tobytes() for name, array in made.items()} == {
        name: source[theirs].T.tobytes() for name, theirs in pairs
    }
    assert "for layer, count in enumerate((2, 3), 1):" in text and "for i in range(count):" in text
    assert text.count("    put_dense(made") == 4 and "layer{layer}.{i}.conv{conv}" in text
    assert "chr(97 + " in text


def test_loops_are_ranges_where_they_can_be() -> None:
    names = "stage", "block"
    assert loop_lines([(1, 0), (1, 1), (2, 0), (2, 1)], names) == [
        "for stage in range(1, 3):",
        "for block in range(2):",
    ]
    assert loop_lines([(1, 0), (2, 0), (2, 1)], names) == [
        "for stage, blocks in enumerate((1, 2), 1):",
        "for block in range(blocks):",
    ]
    assert loop_lines([(0, 7), (3, 1)], names) == ["for stage, block in ((0, 7), (3, 1)):"]
    assert loop_lines([(3,), (7,)], names[:1]) == ["for stage in (3, 7):"]


def test_names_of_a_file_stay_names() -> None:
    """What a file calls its tensors is text of the converter and never code of it."""
    evil = [
        'a"]; raise SystemExit("',
        "b{1/0}",
        "c\\",
        'd"""',
        "e\n\u2028f",
        "g{0}h",
        "i\0" + "0\0j",
        "k'7'.{ours}",
    ]
    source = {f"{name}.weight": np.full((3, 2), place, "float32") for place, name in enumerate(evil)}
    rows = [copied(f"{name}/kernel", f"{name}.weight") for name in evil]
    made, _ = run(rows, source)
    assert {name: float(array[0, 0]) for name, array in made.items()} == {
        f"{name}/kernel": float(place) for place, name in enumerate(evil)
    }


def test_a_name_is_read_as_texts_and_numbers() -> None:
    assert read_name("block2b_out").numbers == (2, 1) and read_name("block2b_out").letters == (1,)
    assert read_name("layer01.2").numbers == (), "01 is no number that Python writes back"


def test_a_number_of_any_length_in_a_name_is_text() -> None:
    assert read_name(f"layer{'1' * 5_000}.2").numbers == ()


def test_loops_of_more_variables_than_letters_have_names() -> None:
    numbers = [".".join(str(row * place) for place in range(1, 13)) for row in range(2)]
    source = {f"x{text}.weight": np.full((3, 2), row, "float32") for row, text in enumerate(numbers)}
    made, text = run([copied(f"x{text}/kernel", f"x{text}.weight") for text in numbers], source)
    assert [float(made[f"x{text}/kernel"][0, 0]) for text in numbers] == [0.0, 1.0]
    assert "n11" in text


def test_rules_that_lose_a_layer_are_refused() -> None:
    layers = layers_of([copied("a1/kernel", "x1.weight"), copied("a2/kernel", "x3.weight")])
    rules = rules_of(layers)
    assert expect_layers(rules, layers) == rules
    other = layers_of([copied("a1/kernel", "x1.weight"), copied("a2/kernel", "x2.weight")])
    try:
        expect_layers(rules, other)
    except AssertionError as error:
        assert "other layers" in str(error)
    else:
        raise AssertionError("they give other layers")


def test_values_are_computed_as_the_text_says() -> None:
    norm: dict[str, Given] = {
        "kernel": TakenTensor("c.w", ()),
        "gamma": 1.0,
        "variance": TakenTensor("n.v", ()),
        "epsilon": 1e-3,
    }
    row = Row("a/kernel", norm, (3, 2), "float32", "folded_kernel", (Turned((1, 0)),), kind="conv")
    zeros = Row("a/count", {"": 0.0}, (), "int64", kind="conv")
    source = {"c.w": np.ones((3, 2), "float32"), "n.v": np.arange(3, dtype="float32")}
    made, text = run([row, zeros], source)
    assert made["a/kernel"].tobytes() == row.made(source).tobytes() and made["a/kernel"].dtype == "float32"
    assert made["a/count"] == 0 and made["a/count"].dtype == np.int64
    assert "def folded_kernel(kernel, gamma, variance, epsilon):" in text
    assert SimpleNamespace(**row.record()).how.endswith(".T")
