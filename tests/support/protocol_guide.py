"""The tables of docs/protocols.md, from the recipes.

`python -m tests.support.protocol_guide` writes them into the document; tests/roads/data/test_protocols.py
holds it to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from porter.data.preprocess import Preprocess
from porter.data.protocol_words import protocol_in_words
from tests.support.checkout import ROOT
from tests.support.recipe.recipes import all_recipes

DOCUMENT = ROOT / "docs" / "protocols.md"
BLOCK = re.compile(r"(<!-- protocols: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


class Use(NamedTuple):
    """Variants of an architecture whose weights in a zoo share a protocol."""

    architecture: str
    zoo: str
    variants: tuple[str, ...]
    protocol: Preprocess


def uses() -> list[Use]:
    found: dict[tuple[str, str, Preprocess | None], list[str]] = {}
    for recipe in all_recipes():
        for variant in recipe.variants:
            for name, zoo in recipe.zoos_of(variant).items():
                found.setdefault((recipe.architecture, name, zoo.preprocess), []).append(variant)
    return sorted(
        Use(architecture, zoo, tuple(those), protocol)
        for (architecture, zoo, protocol), those in found.items()
        if protocol
    )


class Original(NamedTuple):
    """What a resampling is compared with, how closely, and in which tests of tests/unit/data/."""

    code: str
    agreement: str
    tests: tuple[str, ...]


_RESIZING = "test_photos_are_prepared_as_keras_hub_prepares_floats"
_LOAD_IMG = "test_preprocess.py::test_pil_kernels_are_load_imgs_bit_for_bit"
_INTERPOLATE = Original(
    "`torch.nn.functional.interpolate` of floats with antialias=True, rounded",
    "bit for bit where the processor has AVX2; torch's code for others rounds one value in 60,000 to "
    "another level",
    ("test_resampling.py::test_torch_resampling_is_interpolates_bit_for_bit",),
)
_PIL = (
    "test_preprocess.py::test_pil_protocols_are_torchvisions_bit_for_bit",
    "test_preprocess.py::test_ten_crops_are_torchvisions",
)
ORIGINALS: Mapping[tuple[str, str], Original] = {
    ("pil_bilinear", "shorter_side"): Original("torchvision's transforms on PIL images", "bit for bit", _PIL),
    ("pil_bicubic", "shorter_side"): Original(
        "timm's transforms, which are torchvision's on PIL images", "bit for bit", _PIL
    ),
    ("opencv_bilinear", "shorter_side"): Original(
        "OpenCV, as MXNet's `Resize` and `CenterCrop` and Caffe's tools call it",
        "bit for bit",
        ("test_resampling.py::test_opencv_bilinear_is_opencvs_bit_for_bit",),
    ),
    ("opencv_cubic", "shorter_side"): Original(
        "OpenCV with the arithmetic of TensorNets' `load_img` and `crop`, scaled by keras.applications "
        "or as TensorNets does",
        "resampling within one level, scaling bit for bit",
        (
            "test_preprocess.py::test_keras_protocol_is_tensornets_within_a_level",
            "test_resampling.py::test_opencv_cubic_is_the_fixed_point_cubic_cell_by_cell",
            "test_resampling.py::test_opencv_cubic_is_within_a_level_of_opencv",
        ),
    ),
    ("tf1_bilinear", "shorter_side"): Original(
        "slim's `vgg_preprocessing`, run by TensorFlow",
        "bit for bit",
        ("test_preprocess.py::test_vgg_protocol_is_slims_bit_for_bit",),
    ),
    ("tf1_bilinear", "squash"): Original(
        "slim's `inception_preprocessing`, run by TensorFlow",
        "bit for bit",
        ("test_preprocess.py::test_inception_protocol_is_slims_bit_for_bit",),
    ),
    **{
        (f"pil_{kernel}", "squash"): Original("Keras's `load_img`", "bit for bit", (_LOAD_IMG,))
        for kernel in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
    },
    ("tf_bilinear", "squash"): Original(
        "`image_dataset_from_directory` of PNGs, and `tf.image.resize`",
        "bit for bit",
        (
            "test_preprocess.py::test_tf_bilinear_squashed_is_what_keras_trains_on",
            "test_resampling.py::test_tf_bilinear_is_tf_image_resize_bit_for_bit",
        ),
    ),
    ("tf_bicubic", "squash"): Original(
        '`tf.image.resize` with method="bicubic"',
        "bit for bit",
        ("test_resampling.py::test_tf_bicubic_is_tf_image_resize_bit_for_bit",),
    ),
    **{
        (kernel, "square"): Original(
            "`keras.layers.Resizing` with crop_to_aspect_ratio",
            "bit for bit",
            ("test_keras_hub_config.py::" + _RESIZING,),
        )
        for kernel in ("tf_bilinear", "tf_bicubic", "tf_antialiased")
    },
    ("tf_antialiased", "squash"): Original(
        "`tf.image.resize` with antialias=True",
        "bit for bit",
        ("test_resampling.py::test_tf_bilinear_is_tf_image_resize_bit_for_bit",),
    ),
    ("tf_area", "shorter_side"): Original(
        'big_vision\'s `resize_small`, and `tf.image.resize` with method="area", cut to bytes',
        "bit for bit",
        ("test_resampling.py::test_tf_area_is_tf_image_resize_cut_to_bytes",),
    ),
    ("torch_bilinear", "shorter_side"): _INTERPOLATE,
    ("torch_bicubic", "shorter_side"): _INTERPOLATE,
}


def weights() -> list[tuple[str, ...]]:
    rows = [
        (use.zoo, ", ".join(f"`{variant}`" for variant in use.variants), protocol_in_words(use.protocol, 1))
        for use in uses()
    ]
    return [("zoo", "variants", "protocol"), *rows]


def originals() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("`interpolation`, `resize`", "compared with", "agreement", "tests")]
    for (interpolation, resize), original in ORIGINALS.items():
        tests = "<br>".join(f"`{test}`" for test in original.tests)
        rows.append((f"`{interpolation}`, `{resize}`", original.code, original.agreement, tests))
    return rows


TABLES: Mapping[str, Callable[[], list[tuple[str, ...]]]] = {"weights": weights, "originals": originals}


def written(text: str) -> str:
    """The document with its tables made anew."""

    def table(block: re.Match[str]) -> str:
        head, *rows = TABLES[block[2]]()
        return (
            block[1]
            + "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))
            + block[3]
        )

    return BLOCK.sub(table, text)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
