"""Recipes drafted from weights only: what the tensors say, and TODOs for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from porter.authoring.draft.chain import chain_layers
from porter.authoring.draft.from_weights import draft_from_weights
from porter.authoring.draft.network_layers import list_layers
from porter.authoring.todo import to_do
from porter.base.errors import UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.graph import Dense, GlobalAvgPool, PadChannels, SliceChannels, tensor_shapes
from porter.recipe import expand, load_recipe

Shapes = Mapping[str, tuple[int, ...]]


def torch_norm(name: str, channels: int) -> Shapes:
    return {
        f"{name}.{variable}": (channels,) for variable in ("weight", "bias", "running_mean", "running_var")
    }


def keras_norm(name: str, channels: int) -> Shapes:
    return {
        f"{name}/{variable}": (channels,) for variable in ("gamma", "beta", "moving_mean", "moving_variance")
    }


def checkpoint(shapes: Shapes, format: str = "torch", dialect: str | None = "torch") -> Checkpoint:
    """A file of tensors that take no memory."""
    tensors = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
    return Checkpoint(Path("weights"), format, dialect, tensors)


def residual() -> dict[str, tuple[int, ...]]:
    """A residual network's, whose second stage has a shortcut."""
    shapes = {"conv1.weight": (8, 3, 3, 3), **torch_norm("bn1", 8)}
    for stage, (reads, width) in enumerate([(8, 8), (8, 16)], 1):
        for unit in range(2):
            name, own = f"layer{stage}.{unit}", reads if unit == 0 else width
            shapes |= {f"{name}.conv1.weight": (width, own, 3, 3), **torch_norm(f"{name}.bn1", width)}
            shapes |= {f"{name}.conv2.weight": (width, width, 3, 3), **torch_norm(f"{name}.bn2", width)}
            if own != width:
                shapes |= {
                    f"{name}.downsample.0.weight": (width, own, 1, 1),
                    **torch_norm(f"{name}.downsample.1", width),
                }
    return {**shapes, "fc.weight": (5, 16), "fc.bias": (5,)}


def dense() -> dict[str, tuple[int, ...]]:
    """Layers that read all before them, after their norms."""
    shapes = {"features.conv0.weight": (16, 3, 7, 7), **torch_norm("features.norm0", 16)}
    for place in range(3):
        name, reads = f"features.denseblock1.denselayer{place + 1}", 16 + 8 * place
        shapes |= {**torch_norm(f"{name}.norm1", reads), f"{name}.conv1.weight": (32, reads, 1, 1)}
        shapes |= {**torch_norm(f"{name}.norm2", 32), f"{name}.conv2.weight": (8, 32, 3, 3)}
    return {
        **shapes,
        **torch_norm("features.norm5", 40),
        "classifier.weight": (5, 40),
        "classifier.bias": (5,),
    }


def fire() -> dict[str, tuple[int, ...]]:
    """Two convolutions of one value, joined."""
    shapes: dict[str, tuple[int, ...]] = {"features.0.weight": (8, 3, 3, 3), "features.0.bias": (8,)}
    for place, reads in ((3, 8), (4, 16), (5, 16)):
        shapes |= {
            f"features.{place}.squeeze.weight": (4, reads, 1, 1),
            f"features.{place}.squeeze.bias": (4,),
        }
        for side in (1, 3):
            name = f"features.{place}.expand{side}x{side}"
            shapes |= {f"{name}.weight": (8, 4, side, side), f"{name}.bias": (8,)}
    return shapes


def plain() -> dict[str, tuple[int, ...]]:
    """A Sequential whose numbers leave room for activations and pools, and a head of a flattened map."""
    shapes: dict[str, tuple[int, ...]] = {
        f"features.{place}.weight": (8, 3 if place == 0 else 8, 3, 3) for place in (0, 3, 6, 8)
    }
    shapes |= {f"{name.removesuffix('weight')}bias": (8,) for name in list(shapes)}
    return {
        **shapes,
        "classifier.0.weight": (10, 8 * 4 * 4),
        "classifier.0.bias": (10,),
        "classifier.3.weight": (5, 10),
    }


def inverted() -> dict[str, tuple[int, ...]]:
    """Keras's blocks of a depthwise convolution between two others."""
    shapes: dict[str, tuple[int, ...]] = {"Conv1/kernel": (3, 3, 3, 8), **keras_norm("bn_Conv1", 8)}
    for place in (1, 2):
        name = f"block_{place}"
        shapes |= {f"{name}_expand/kernel": (1, 1, 8, 48), **keras_norm(f"{name}_expand_BN", 48)}
        shapes |= {
            f"{name}_depthwise/depthwise_kernel": (3, 3, 48, 1),
            **keras_norm(f"{name}_depthwise_BN", 48),
        }
        shapes |= {f"{name}_project/kernel": (1, 1, 48, 8), **keras_norm(f"{name}_project_BN", 8)}
    return {**shapes, "logits/kernel": (8, 5), "logits/bias": (5,)}


def preactivated() -> dict[str, tuple[int, ...]]:
    """TF-slim's, whose checkpoints sort names, with a head that is a convolution."""
    shapes: dict[str, tuple[int, ...]] = {"net/conv1/weights": (3, 3, 3, 8), "net/conv1/biases": (8,)}
    for block, (reads, width) in enumerate([(8, 8), (8, 16)], 1):
        for unit in (1, 2):
            name, own = f"net/block{block}/unit_{unit}", reads if unit == 1 else width
            shapes |= {**keras_norm(f"{name}/preact", own), f"{name}/conv1/weights": (3, 3, own, width)}
            shapes |= {
                **keras_norm(f"{name}/conv1/BatchNorm", width),
                f"{name}/conv2/weights": (3, 3, width, width),
            }
            if own != width:
                shapes |= {
                    f"{name}/shortcut/weights": (1, 1, own, width),
                    f"{name}/shortcut/biases": (width,),
                }
    shapes |= {
        **keras_norm("net/postnorm", 16),
        "net/logits/weights": (1, 1, 16, 5),
        "net/logits/biases": (5,),
    }
    return dict(sorted(shapes.items()))


def excited() -> dict[str, tuple[int, ...]]:
    """Squeeze and excite."""
    shapes: dict[str, tuple[int, ...]] = {"stem.weight": (8, 3, 3, 3)}
    for place in (1, 2):
        shapes |= {f"blocks.{place}.conv.weight": (8, 8, 3, 3), f"blocks.{place}.se.fc1.weight": (2, 8, 1, 1)}
        shapes |= {
            f"blocks.{place}.se.fc1.bias": (2,),
            f"blocks.{place}.se.fc2.weight": (8, 2, 1, 1),
            f"blocks.{place}.se.fc2.bias": (8,),
        }
    return {**shapes, "head.weight": (5, 8), "head.bias": (5,)}


CASES = {
    "residual": (residual(), "torch", 1, "unit"),
    "dense": (dense(), "torch", 3, None),
    "fire": (fire(), "torch", 5, "unit"),
    "plain": (plain(), "torch", 0, None),
    "inverted": (inverted(), "keras-h5", 0, "block"),
    "preactivated": (preactivated(), "tf-checkpoint", 1, None),
    "excited": (excited(), "torch", 0, None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_draft_has_every_layer_in_order_and_marks_where_channels_do_not_fit(
    name: str, tmp_path: Path
) -> None:
    shapes, format, joins, block = CASES[name]
    listed = list_layers(checkpoint(shapes, format, "torch" if format == "torch" else "tf"))
    assert not listed.others and not listed.unknown and listed.ordered == (format != "tf-checkpoint")
    draft = draft_from_weights(listed, "mine", "own", ["Drafted."])
    (tmp_path / "mine.yaml").write_text(draft.text)
    recipe = load_recipe(tmp_path / "mine.yaml")
    graph = expand(recipe.member("mine", "own"))
    assert isinstance(graph.by_path[graph.output].op, GlobalAvgPool if name == "fire" else Dense)
    assert len(tensor_shapes(graph)) == len(listed.layers) and all(
        len(node.inputs) == 1 for node in graph.nodes
    )
    assert sum(isinstance(node.op, PadChannels | SliceChannels) for node in graph.nodes) == joins
    assert block is None or block in draft.blocks
    said = [text for _, _, text in to_do(draft.text)]
    assert "the size that the network was trained at" in said and "stride and pad" in said
    assert any(text.startswith("a branch, a join") for text in said) == bool(joins)


def test_a_bias_of_one_number_tells_one_filter_from_a_depthwise_kernel() -> None:
    shapes: Shapes = {
        "all/kernel": (3, 3, 8, 1),
        "all/bias": (8,),
        "one/kernel": (3, 3, 8, 1),
        "one/bias": (1,),
    }
    listed = list_layers(checkpoint(shapes, "keras-h5", "tf"))
    assert [(layer.gives, layer.depthwise) for layer in listed.layers] == [(8, True), (1, False)]


def test_names_are_patterns() -> None:
    draft = draft_from_weights(list_layers(checkpoint(residual())), "mine", "own", [])
    assert '"layer{l}/unit{u}/conv{c}": "layer{l}.{u}.conv{c}"' in draft.text and "relu1:" not in draft.text


def test_names_tell_the_order_where_the_file_does_not() -> None:
    in_order = list_layers(checkpoint(residual()))
    by_name = list_layers(checkpoint(dict(sorted(residual().items())), "safetensors", None))
    assert not by_name.ordered and by_name.framework == "torch"
    assert [layer.name for layer in by_name.layers] == [layer.name for layer in in_order.layers]


def test_names_of_a_third_framework_are_not_taken_for_tensorflows() -> None:
    with pytest.raises(UsageError, match="no recipe is drafted from the names of caffe"):
        list_layers(checkpoint(residual(), "caffe", "caffe"))


@pytest.mark.parametrize(
    ("norm", "activation"),
    [("batch_normalization_1", "relu_1"), ("layer_normalization_1", "layer_relu_1"), ("norm_1", "relu_1")],
)
def test_an_activation_is_called_after_the_norm_that_it_follows(norm: str, activation: str) -> None:
    shapes = {"conv2d_1/kernel": (3, 3, 3, 8), **keras_norm(norm, 8)}
    if norm.startswith("layer"):
        shapes = {name: shape for name, shape in shapes.items() if "moving" not in name}
    listed = list_layers(checkpoint(shapes, "keras-h5", "tf"))
    assert activation in chain_layers(listed).names.values()


def test_a_flattened_map_fixes_the_input() -> None:
    assert chain_layers(list_layers(checkpoint(plain()))).side == 4


def test_a_name_that_would_be_an_expression_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot say the name"):
        draft_from_weights(
            list_layers(checkpoint({"a{b}.weight": (8, 3, 3, 3), "fc.weight": (5, 8)})), "mine", "own", []
        )


def test_tensors_of_no_layer_end_the_draft() -> None:
    shapes = {"a.weight": (8, 3, 3, 3), "a.gamma": (8,), "a.strange": (2, 2, 2), "fc.weight": (5, 8)}
    with pytest.raises(
        UsageError, match=r"no layer that porter knows has these tensors: a\.gamma, a\.strange"
    ) as refusal:
        draft_from_weights(list_layers(checkpoint(shapes)), "mine", "own", [])
    assert refusal.value.next is not None and "--from-model FILE" in refusal.value.next


def test_auxiliary_heads_and_counters_are_ignored(tmp_path: Path) -> None:
    shapes = {"a.weight": (8, 3, 3, 3), "aux.conv.weight": (8, 8, 1, 1), "steps": (), "fc.weight": (5, 8)}
    draft = draft_from_weights(list_layers(checkpoint(shapes)), "mine", "own", [])
    (tmp_path / "mine.yaml").write_text(draft.text)
    assert {rule.pattern for rule in load_recipe(tmp_path / "mine.yaml").zoo("own", "mine").ignore} == {
        "aux.*",
        "steps",
    }
