"""The numbers that Keras gives layers without a name."""

import keras
import pytest

from porter.frameworks.tf.numbering import numbered_layers

OWN = ["conv2d", "conv2d_1", "batch_normalization", "predictions", "activation"]


def tensors(*layers: str) -> list[str]:
    return [f"{layer}/kernel" for layer in layers]


def model() -> keras.Model:
    image = keras.Input((8, 8, 3))
    value = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(image))
    return keras.Model(image, keras.layers.Conv2D(2, 1, name="last")(keras.layers.Conv2D(3, 1)(value)))


def test_keras_itself_goes_on_counting() -> None:
    first, second = ([layer.name for layer in model().layers if layer.weights] for _ in range(2))
    assert first[-1] == second[-1] == "last" and not set(first[:-1]) & set(second)
    own = ["conv2d", "batch_normalization", "conv2d_1"]
    for layers in (first, second):
        assert numbered_layers([*own, "last"], tensors(*reversed(layers))) == dict(
            zip(own, layers[:-1], strict=True)
        )


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (OWN, ["conv2d", "conv2d_1", "batch_normalization"]),
        (
            ["conv2d_10", "conv2d_9", "batch_normalization_4"],
            ["conv2d_9", "conv2d_10", "batch_normalization_4"],
        ),
        (
            ["conv2d_1", "conv2d_2", "conv2d_3", "batch_normalization_1"],
            ["conv2d_1", "conv2d_2", "batch_normalization_1"],
        ),
        (
            ["base/conv2d_7", "base/conv2d_5", "base/batch_normalization", "conv2d"],
            ["conv2d_5", "conv2d_7", "batch_normalization"],
        ),
    ],
    ids=["as they are", "numbers, not words", "from one on", "behind the prefix with the most"],
)
def test_layers_go_by_the_order_of_their_numbers(layers: list[str], expected: list[str]) -> None:
    wanted = (
        expected
        if isinstance(expected, dict)
        else dict(zip(["conv2d", "conv2d_1", "batch_normalization"], expected, strict=True))
    )
    assert numbered_layers(OWN, tensors(*layers)) == wanted


def test_a_class_of_which_the_file_has_too_few_keeps_its_names() -> None:
    assert numbered_layers(OWN, tensors("conv2d_5", "batch_normalization_3")) == {
        "batch_normalization": "batch_normalization_3"
    }


def test_names_that_people_chose_are_no_numbers() -> None:
    assert (
        numbered_layers(["conv2d", "dense"], tensors("my_conv2d_1", "conv2d_a", "conv2d_1_", "predictions"))
        == {}
    )
    assert numbered_layers(["conv1", "fc_1"], tensors("conv2d_1")) == {}
