"""Protocols against the implementations they are named after; files that are no photographs."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest
from PIL import Image

from porter.base.errors import FileError, UsageError
from porter.data.interpolations import RESAMPLINGS, Interpolation
from porter.data.photo_decoding import open_image
from porter.data.preparing import prepare
from porter.data.preprocess import Preprocess, ProtocolError
from tests.support import originals
from tests.support.arrays import Array
from tests.support.photo_files import png_of, prepare_ten

IMAGENET: dict[str, Any] = {"divide": 255.0, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
TORCHVISION = Preprocess("shorter_side", 64, "pil_bilinear", crop=56, **IMAGENET)
KERAS = Preprocess(
    "shorter_side", 64, "opencv_cubic", crop=56, channels="bgr", mean=(103.939, 116.779, 123.68)
)
INCEPTION = Preprocess(
    "squash", 75, "tf1_bilinear", central_fraction=0.875, divide=255.0, mean=(0.5,) * 3, std=(0.5,) * 3
)
VGG = Preprocess("shorter_side", 64, "tf1_bilinear", crop=56, mean=(123.68, 116.78, 103.94))
SIZES = [(120, 90), (91, 121), (64, 64), (83, 97), (57, 200), (333, 71)]


def photo(width: int, height: int) -> Image.Image:
    random = np.random.default_rng(width * 1000 + height)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def transforms() -> ModuleType:
    return originals.torchvision_transforms()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_pil_protocols_are_torchvisions_bit_for_bit(
    transforms: Any, size: tuple[int, int], interpolation: str
) -> None:
    original = transforms.Compose(
        [
            transforms.Resize(64, transforms.InterpolationMode(interpolation)),
            transforms.CenterCrop(55),
            transforms.ToTensor(),
            transforms.Normalize(IMAGENET["mean"], IMAGENET["std"]),
        ]
    )
    kernel: Any = f"pil_{interpolation}"
    protocol = replace(TORCHVISION, interpolation=kernel, crop=55)
    np.testing.assert_array_equal(prepare(photo(*size), protocol), original(photo(*size)).numpy())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kernel", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_pil_kernels_are_load_imgs_bit_for_bit(size: tuple[int, int], kernel: str, tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    photo(*size).save(tmp_path / "photo.png")
    wanted = keras.utils.load_img(tmp_path / "photo.png", target_size=(48, 48), interpolation=kernel)
    interpolation: Any = f"pil_{kernel}"
    found = prepare(photo(*size), Preprocess("squash", 48, interpolation))
    np.testing.assert_array_equal(found, np.asarray(wanted, np.float32).transpose(2, 0, 1))


def test_tf_bilinear_squashed_is_what_keras_trains_on(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    sizes = sorted(SIZES)
    (tmp_path / "one").mkdir()
    for number, size in enumerate(sizes):
        photo(*size).save(tmp_path / "one" / f"{number}.png")
    loaded = keras.utils.image_dataset_from_directory(
        tmp_path, image_size=(48, 48), shuffle=False, labels=None
    )
    wanted = np.concatenate([np.asarray(batch) for batch in loaded]) / np.float32(127.5) - np.float32(1)
    protocol = Preprocess("squash", 48, "tf_bilinear", divide=127.5, mean=(1, 1, 1))
    for size, values in zip(sizes, wanted, strict=True):
        np.testing.assert_array_equal(prepare(photo(*size), protocol), values.transpose(2, 0, 1))


def test_photos_of_the_right_size_are_taken_as_they_are() -> None:
    protocol = Preprocess("none", 64, "none", crop=56)
    np.testing.assert_array_equal(
        prepare(photo(64, 64), protocol), np.asarray(photo(64, 64))[4:60, 4:60].transpose(2, 0, 1)
    )
    with pytest.raises(
        FileError, match="it has 120x90 pixels, and the protocol takes 64x64 and resizes nothing"
    ):
        prepare(photo(120, 90), protocol)


def test_every_interpolation_has_its_words() -> None:
    assert set(RESAMPLINGS) == set(get_args(Interpolation))


def test_ten_crops_are_torchvisions(transforms: ModuleType) -> None:
    resized = transforms.Resize(64)(photo(120, 90))  # 85 columns: the centre lies between two
    wanted = [prepare(crop, replace(TORCHVISION, size=56)) for crop in transforms.TenCrop(56)(resized)]
    found = prepare_ten(photo(120, 90), TORCHVISION)
    assert {crop.tobytes() for crop in found} == {crop.tobytes() for crop in wanted}
    np.testing.assert_array_equal(found[0], prepare(photo(120, 90), TORCHVISION))


def test_ten_crops_elsewhere_mirror_the_crops() -> None:
    found = prepare_ten(photo(120, 90), KERAS)
    assert found.shape == (10, 3, 56, 56)
    np.testing.assert_array_equal(found[5:], found[:5, :, :, ::-1])
    np.testing.assert_array_equal(found[0], prepare(photo(120, 90), KERAS))


@pytest.mark.parametrize("size", [*SIZES, (500, 375), (37, 41)])
@pytest.mark.parametrize("fraction", [0.875, 0.9, 0.5])
def test_inception_protocol_is_slims_bit_for_bit(size: tuple[int, int], fraction: float) -> None:
    wanted = originals.slim_inception(np.asarray(photo(*size)), 75, fraction)
    np.testing.assert_array_equal(
        prepare(photo(*size), replace(INCEPTION, central_fraction=fraction)), wanted.transpose(2, 0, 1)
    )


@pytest.mark.parametrize("size", SIZES)
def test_vgg_protocol_is_slims_bit_for_bit(size: tuple[int, int]) -> None:
    wanted = originals.slim_vgg(np.asarray(photo(*size)), 64, 56)
    np.testing.assert_array_equal(prepare(photo(*size), VGG), wanted.transpose(2, 0, 1))


@pytest.mark.parametrize("size", SIZES)
def test_keras_protocol_is_tensornets_within_a_level(size: tuple[int, int], tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    photo(*size).save(tmp_path / "photo.png")
    crops = originals.tensornets_crops(originals.tensornets_pixels(tmp_path / "photo.png", 64, cv2), 56)
    wanted = originals.tensornets_scaled("keras_resnet", crops).transpose(0, 3, 1, 2)
    # Of 255, after a subtraction that rounds.
    assert np.abs(prepare_ten(photo(*size), KERAS) - wanted).max() < 1.0001
    assert np.abs(prepare(photo(*size), KERAS) - wanted[0]).max() < 1.0001


def test_keras_protocol_crops_down_reverses_channels_and_subtracts_in_their_order() -> None:
    image = Image.new("RGB", (97, 83), (10, 20, 30))
    found = prepare(image, KERAS)
    assert found.shape == (3, 56, 56)
    assert found[:, 0, 0].tolist() == [
        np.float32(30) - np.float32(103.939),
        np.float32(20) - np.float32(116.779),
        np.float32(10) - np.float32(123.68),
    ]


def test_centre_crops_round_half_to_even_as_torchvision_and_down_as_the_others() -> None:
    columns = np.zeros((64, 71, 3), np.uint8)
    columns[:] = np.arange(71, dtype=np.uint8)[:, None]
    image, plain = Image.fromarray(columns), Preprocess("shorter_side", 64, "pil_bilinear", crop=56)
    assert prepare(image, plain)[0, 0, 0] == 8  # 7.5 goes to 8
    assert prepare(image, replace(plain, interpolation="opencv_cubic"))[0, 0, 0] == 7
    assert prepare(image, replace(plain, interpolation="tf1_bilinear"))[0, 0, 0] == 7


def test_without_a_crop_the_whole_image_is_kept_contiguous_and_float32() -> None:
    found = prepare(photo(120, 90), replace(TORCHVISION, crop=None))
    assert (found.shape, found.dtype, found.flags.c_contiguous) == (
        (3, 64, 85),
        np.dtype(np.float32),
        True,
    )


def test_ten_crops_without_a_crop_are_refused() -> None:
    with pytest.raises(UsageError, match="ten crops"):
        prepare_ten(photo(120, 90), INCEPTION)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"resize": "longer_side"},
            "'resize' must be one of shorter_side, squash, square, none, got 'longer_side'",
        ),
        ({"interpolation": "lanczos"}, "'interpolation' must be one of"),
        ({"channels": "gbr"}, "'channels'"),
        (
            {"resize": "none"},
            "'resize' and 'interpolation' must be 'none' together, got 'none' and 'pil_bilinear'",
        ),
        ({"interpolation": "none"}, "'resize' and 'interpolation' must be 'none' together"),
        ({"size": 0}, "'size'"),
        ({"size": 1_000_000}, "'size'"),
        ({"crop": 65}, "'crop' must be from 1 to the size 64, got 65"),
        ({"central_fraction": 0.0}, "'central_fraction'"),
        ({"central_fraction": 1.5}, "'central_fraction'"),
        ({"divide": 0.0}, "'divide'"),
        ({"divide": float("inf")}, "'divide'"),
        ({"mean": (0.5, float("nan"), 0.5)}, "'mean'"),
        ({"std": (1.0, 0.0, 1.0)}, "'std'"),
        ({"mean": (1.0,)}, "'mean'"),
    ],
)
def test_values_that_make_no_protocol(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        replace(TORCHVISION, **change)


@pytest.mark.parametrize("interpolation", ["pil_bilinear", "opencv_cubic", "tf1_bilinear"])
def test_a_strip_is_refused_before_it_is_enlarged(interpolation: Any) -> None:
    with pytest.raises(FileError, match="1x600000"):
        prepare(Image.new("RGB", (1, 600_000)), replace(TORCHVISION, interpolation=interpolation))


def test_grey_palette_alpha_and_cmyk_become_rgb(tmp_path: Path) -> None:
    grey = Image.fromarray(np.array([[7, 200]], np.uint8))
    palette = Image.new("P", (2, 1))
    palette.putpalette([1, 2, 3, 250, 251, 252])
    palette.putpixel((1, 0), 1)
    clear = Image.fromarray(np.array([[[9, 8, 7, 0], [1, 2, 3, 255]]], np.uint8))
    for name, image, wanted in [
        ("grey.png", grey, [[7] * 3, [200] * 3]),
        ("palette.png", palette, [[1, 2, 3], [250, 251, 252]]),
        ("alpha.png", clear, [[9, 8, 7], [1, 2, 3]]),
        ("cmyk.tiff", Image.new("CMYK", (2, 1), (0, 0, 0, 255)), [[0, 0, 0], [0, 0, 0]]),
    ]:
        image.save(tmp_path / name)
        opened = open_image(tmp_path / name)
        assert (opened.mode, np.asarray(opened)[0].tolist()) == ("RGB", wanted), name


def test_a_palette_with_transparency_raises_no_warning(tmp_path: Path) -> None:
    palette = Image.new("P", (1, 1))
    palette.putpalette([1, 2, 3])
    palette.save(tmp_path / "clear.png", transparency=b"\x00")
    assert open_image(tmp_path / "clear.png").getpixel((0, 0)) == (1, 2, 3)


def test_sixteen_bits_keep_the_high_byte(tmp_path: Path) -> None:
    values = np.array([[0, 255, 256, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert np.asarray(open_image(tmp_path / "deep.png"))[0, :, 0].tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize("values", [np.array([[0, 70000]], np.int32), np.array([[0.5]], np.float32)])
def test_values_without_a_brightness_range_are_refused(tmp_path: Path, values: Array) -> None:
    Image.fromarray(values).save(tmp_path / "odd.tiff")
    with pytest.raises(FileError, match="8 bits") as caught:
        open_image(tmp_path / "odd.tiff")
    assert caught.value.where == str(tmp_path / "odd.tiff")


def test_exif_orientation_is_not_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(120, 90).save(tmp_path / "turned.jpg", exif=exif)
    assert open_image(tmp_path / "turned.jpg").size == (120, 90)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    ("side", "size", "said"),
    [(4200, 0, "4200x4200"), (8200, 1 << 21, "more than the 67108864"), (60_000, 0, "DecompressionBomb")],
)
def test_a_photo_of_too_many_pixels_is_a_file_error(tmp_path: Path, side: int, size: int, said: str) -> None:
    """Too many for its bytes, for any photo, and for Pillow."""
    (tmp_path / "bomb.png").write_bytes(png_of(side, side).ljust(size, b"\0"))
    with pytest.raises(FileError, match=said) as caught:
        open_image(tmp_path / "bomb.png")
    assert caught.value.where == str(tmp_path / "bomb.png")


@pytest.mark.parametrize(
    "content", [b"", b"not an image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
)
def test_what_is_no_photograph_is_a_file_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "photo.jpg").write_bytes(content)
    with pytest.raises(FileError, match="cannot be read as an image"):
        open_image(tmp_path / "photo.jpg")


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "tiff", "webp", "bmp"])
def test_every_truncation_is_a_file_error_or_an_image(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"photo.{suffix}"
    photo(40, 30).save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), max(len(whole) // 40, 1)):
        path.write_bytes(whole[:length])
        try:
            assert open_image(path).mode == "RGB"
        except FileError as error:
            assert error.where == str(path)


def test_photos_in_memory_and_open_files_are_read_as_files_are(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    photo(40, 30).save(path)
    wanted = np.asarray(open_image(path))
    for source in (path.read_bytes(), BytesIO(path.read_bytes())):
        np.testing.assert_array_equal(np.asarray(open_image(source)), wanted)
    with pytest.raises(FileError, match="none of JPEG") as caught:
        open_image(b"not an image")
    assert caught.value.where is None


def test_a_missing_file_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        open_image(tmp_path / "none.jpg")


def test_jpegs_are_decoded_as_tensorflows_accurate_transform(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    photo(120, 90).save(tmp_path / "photo.jpg", quality=90)
    wanted = tf.io.decode_jpeg(
        (tmp_path / "photo.jpg").read_bytes(), channels=3, dct_method="INTEGER_ACCURATE"
    ).numpy()
    np.testing.assert_array_equal(np.asarray(open_image(tmp_path / "photo.jpg")), wanted)
