"""Every protocol of every recipe, at its own sizes, against the zoo's own code or library; and the page that lists them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from porter.data.interpolations import RESAMPLINGS
from porter.data.preprocess import Preprocess, normalise, open_image, prepare, resized, ten_crops
from porter.frameworks.tf.runtime import import_keras
from tests import originals
from tests.photo_files import realistic
from tests.protocol_guide import BLOCK, DOCUMENT, ORIGINALS, TABLES, Use, uses, written

SIZES = [(500, 375), (333, 487)]
TIMM = {
    ("densenet", "timm"): "densenet121.ra_in1k",
    ("efficientnet_lite", "timm"): "efficientnet_lite0.ra_in1k",
    ("efficientnet_lite", "timm_tf"): "tf_efficientnet_lite0.in1k",
    ("inception_v3", "timm"): "inception_v3.tv_in1k",
    ("inception_v3", "timm_tf"): "inception_v3.tf_in1k",
    ("mnasnet", "timm"): "mnasnet_100.rmsp_in1k",
    ("mobilenet_v1", "timm"): "mobilenetv1_100.ra4_e3600_r224_in1k",
    ("mobilenet_v1", "timm_tf"): "mobilenetv1_100.ra4_e3600_r224_in1k",
    ("mobilenet_v2", "timm"): "mobilenetv2_100.ra_in1k",
    ("mobilenet_v2", "timm_tf"): "mobilenetv2_100.ra_in1k",
    ("mobilenet_v3", "timm"): "mobilenetv3_large_100.ra_in1k",
    ("mobilenet_v3", "timm_tf"): "tf_mobilenetv3_large_100.in1k",
    ("resnet_v1", "timm"): "resnet50.gluon_in1k",
    ("vgg", "timm"): "vgg16.tv_in1k",
    ("xception", "timm"): "legacy_xception.tf_in1k",
}
TENSORNETS = {
    "inception_v3": "tfslim",
    "mobilenet_v1": "tfslim",
    "mobilenet_v2": "tfslim",
    "resnet_v1": "keras_resnet",
    "resnet_v2": "tfslim",
    "resnet200v2": "fb",
    "resnext": "fb",
    "wide_resnet": "wrn",
}
KERAS = {
    "densenet": "densenet",
    "inception_v3": "inception_v3",
    "mobilenet_v1": "mobilenet",
    "mobilenet_v2": "mobilenet_v2",
    "mobilenet_v3": "mobilenet_v3",
    "resnet_v1": "resnet",
    "resnet_v2": "resnet_v2",
    "vgg": "vgg16",
    "xception": "xception",
}


def named(use: Use) -> str:
    return f"{use.zoo}-{use.variants[0]}"


def original(use: Use, image: Image.Image) -> np.ndarray:
    """3 x rows x columns of the zoos that do not resample with OpenCV."""
    protocol, pixels = use.protocol, np.asarray(image)
    if use.zoo in ("torchvision", "torchvision_v2"):
        variant = use.variants[0]
        return originals.torchvision_preset(variant, "IMAGENET1K_V2" if use.zoo.endswith("v2") else "IMAGENET1K_V1")(image)
    if use.zoo == "akamaster":
        return originals.akamaster_preset(image)
    if (use.architecture, use.zoo) in TIMM:
        return originals.timm_preset(TIMM[use.architecture, use.zoo])(image)
    if protocol.resize == "squash":
        return originals.slim_inception(pixels, protocol.size, protocol.central_fraction or 1).transpose(2, 0, 1)
    return originals.slim_vgg(pixels, protocol.size, protocol.crop or 0).transpose(2, 0, 1)


@pytest.mark.parametrize("use", [use for use in uses() if use.protocol.interpolation != "opencv_cubic"], ids=named)
@pytest.mark.parametrize("size", SIZES)
def test_protocols_are_their_zoos_bit_for_bit(use: Use, size: tuple[int, int]) -> None:
    image = realistic(*size)
    np.testing.assert_array_equal(prepare(image, use.protocol), original(use, image), strict=True)


OPENCV = [use for use in uses() if use.protocol.interpolation == "opencv_cubic"]


@pytest.mark.parametrize(
    "protocol", list({use.protocol.geometry: use.protocol for use in OPENCV}.values()), ids=lambda it: str(it.size)
)
@pytest.mark.parametrize("size", SIZES)
def test_opencv_pixels_are_within_a_level_of_tensornets(protocol: Preprocess, size: tuple[int, int], tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    cv2.ipp.setUseIPP(False)
    realistic(*size).save(tmp_path / "photo.png")
    assert protocol.crop is not None
    wanted = originals.tensornets_crops(originals.tensornets_pixels(tmp_path / "photo.png", protocol.size, cv2), protocol.crop)
    found = np.stack(ten_crops(resized(open_image(tmp_path / "photo.png"), protocol), protocol))
    apart = np.abs(found.astype(int) - wanted)
    assert apart.max() <= 1
    assert (apart > 0).mean() < 1e-4


@pytest.mark.parametrize("use", OPENCV, ids=named)
def test_opencv_pixels_are_scaled_as_their_zoos_do_bit_for_bit(use: Use) -> None:
    pixels = np.asarray(realistic(224, 224))
    if use.zoo == "tensornets":
        wanted = originals.tensornets_scaled(TENSORNETS[use.architecture], pixels)
    elif use.architecture in KERAS:
        wanted = getattr(import_keras().applications, KERAS[use.architecture]).preprocess_input(pixels.astype(np.float32))
    else:  # keras-applications' ResNeXt, which Keras 3 no longer has
        wanted = import_keras().applications.imagenet_utils.preprocess_input(pixels.astype(np.float32), mode="torch")
    np.testing.assert_array_equal(normalise(pixels, use.protocol), wanted.transpose(2, 0, 1), strict=True)


def test_the_page_holds_the_recipes_protocols() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [block[2] for block in BLOCK.finditer(text)] == list(TABLES)
    assert text == written(text)


def test_every_protocol_has_an_original_and_every_test_named_is_there() -> None:
    assert {(use.protocol.interpolation, use.protocol.resize) for use in uses()} <= set(ORIGINALS)
    assert {interpolation for interpolation, _ in ORIGINALS} == set(RESAMPLINGS) - {"none"}
    for entry in ORIGINALS.values():
        for test in entry.tests:
            file, name = test.split("::")
            assert f"def {name}(" in (Path(__file__).parent / file).read_text(encoding="utf-8"), test
