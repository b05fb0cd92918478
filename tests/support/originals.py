"""The zoos' own preprocessing, run by the libraries that they use: what porter's protocols are held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from porter.formats.tensorflow import import_tensorflow
from porter.zoos.tables import TORCHVISION
from porter.zoos.timm import import_timm
from porter.zoos.torchvision import import_models

Pixels = NDArray[np.uint8]
Values = NDArray[np.float32]
"""Rows x columns x channels, unless it says otherwise."""
IMAGENET_MEAN, IMAGENET_DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def torchvision_transforms() -> ModuleType:
    import_models()  # its compiled part does not load beside a CPU torch, and the rest only after this
    return import_module("torchvision.transforms")


def torchvision_preset(variant: str, weights: str) -> Callable[[Image.Image], Values]:
    """What torchvision documents as the transforms of a set of weights; gives 3 x rows x columns."""
    preset = import_models().get_model_weights(TORCHVISION[variant][0])[weights].transforms()
    return lambda image: preset(image).numpy()


def akamaster_preset(image: Image.Image) -> Values:
    """trainer.py of akamaster/pytorch_resnet_cifar10, after torchvision's resizing to CIFAR's size; gives 3 x
    32 x 32.
    """
    transforms = torchvision_transforms()
    normalize = transforms.Normalize(mean=IMAGENET_MEAN, std=IMAGENET_DEVIATION)
    steps = [transforms.Resize(32), transforms.CenterCrop(32), transforms.ToTensor(), normalize]
    values: Values = transforms.Compose(steps)(image).numpy()
    return values


def big_transfer(image: Image.Image, size: int) -> Values:
    """bit_pytorch/train.py of google-research/big_transfer, for photos above 96x96; gives 3 x size x size."""
    transforms = torchvision_transforms()
    normalize = transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    values: Values = transforms.Compose([transforms.Resize((size, size)), transforms.ToTensor(), normalize])(
        image
    ).numpy()
    return values


def timm_preset(model: str) -> Callable[[Image.Image], Values]:
    """timm's transform for a pretrained model; gives 3 x rows x columns."""
    import_timm()
    return timm_transform(import_module("timm").get_pretrained_cfg(model).to_dict())


def timm_transform(settings: Mapping[str, Any]) -> Callable[[Image.Image], Values]:
    """timm's transform for a `pretrained_cfg`; gives 3 x rows x columns."""
    import_timm()
    data = import_module("timm.data")
    transform = data.create_transform(**data.resolve_data_config(pretrained_cfg=dict(settings)))
    return lambda image: transform(image).numpy()


def slim_inception(image: Pixels, size: int, fraction: float) -> Values:
    """research/slim/preprocessing/inception_preprocessing.py, preprocess_for_eval."""
    tf: Any = import_tensorflow()
    cropped = tf.image.central_crop(tf.image.convert_image_dtype(image, tf.float32), fraction)
    resized = tf.raw_ops.ResizeBilinear(images=cropped[None], size=(size, size), align_corners=False)[0]
    values: Values = tf.multiply(tf.subtract(resized, 0.5), 2.0).numpy()
    return values


def vit_jax(image: Pixels, size: int) -> Values:
    """google-research/vision_transformer, vit_jax/input_pipeline.py, get_data in mode "test"."""
    tf: Any = import_tensorflow()
    values: Values = ((tf.image.resize(image, [size, size]) - 127.5) / 127.5).numpy()
    return values


def big_vision(image: Pixels, size: int, crop: int) -> Values:
    """google-research/big_vision, pp/ops_image.py: resize_small, central_crop, value_range(-1, 1)."""
    tf: Any = import_tensorflow()
    factor = np.float32(size) / np.float32(min(image.shape[:2]))
    shape = [int(np.rint(np.float32(cells) * factor)) for cells in image.shape[:2]]
    bytes_ = tf.cast(tf.image.resize(image, shape, method="area"), tf.uint8).numpy()
    top, left = ((cells - crop) // 2 for cells in shape)
    values: Values = bytes_[top : top + crop, left : left + crop].astype(np.float32) / np.float32(255)
    return values * np.float32(2) - np.float32(1)


def flax_examples(image: Pixels, size: int) -> Values:
    """flax's examples/imagenet/input_pipeline.py, preprocess_for_eval, of a decoded photo."""
    tf: Any = import_tensorflow()
    side = int(size / (size + 32) * min(image.shape[:2]))
    top, left = ((cells - side + 1) // 2 for cells in image.shape[:2])
    cropped = tf.image.crop_to_bounding_box(image, top, left, side, side)
    resized = tf.image.resize(cropped[None], [size, size], method="bicubic")[0]
    mean, deviation = ([share * 255 for share in of] for of in (IMAGENET_MEAN, IMAGENET_DEVIATION))
    values: Values = ((resized - tf.constant(mean)) / tf.constant(deviation)).numpy()
    return values


def gluon(image: Pixels, size: int, crop: int) -> Values:
    """mxnet/gluon/data/vision/transforms: Resize(size, keep_ratio=True), CenterCrop, ToTensor and
    Normalize.
    """
    import cv2

    rows, columns = (side * size // min(image.shape[:2]) for side in image.shape[:2])
    resized = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_LINEAR)
    top, left = (rows - crop) // 2, (columns - crop) // 2
    scaled = resized[top : top + crop, left : left + crop].astype(np.float32) / np.float32(255)
    mean, deviation = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
    values: Values = (scaled - mean) / deviation
    return values


def caffe(image: Pixels, size: int, crop: int, mean: Sequence[float], deviation: float) -> Values:
    """eval_image.py of shicai/MobileNet-Caffe, with the resize of Caffe's tools: BGR without the mean, over
    `deviation`, for which the former has a factor of 0.017. Gives rows x columns x BGR.
    """
    import cv2

    rows, columns = (side * size // min(image.shape[:2]) for side in image.shape[:2])
    resized = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_LINEAR)
    top, left = (rows - crop) // 2, (columns - crop) // 2
    values: Values = (
        resized[top : top + crop, left : left + crop, ::-1].astype(np.float32) - np.asarray(mean, np.float32)
    ) / np.float32(deviation)
    return values


def slim_vgg(image: Pixels, size: int, crop: int) -> Values:
    """research/slim/preprocessing/vgg_preprocessing.py, preprocess_for_eval."""
    tf: Any = import_tensorflow()
    height, width = (tf.cast(n, tf.float32) for n in image.shape[:2])
    scale = size / tf.minimum(width, height)
    rows, columns = (int(tf.math.rint(n * scale)) for n in (height, width))
    resized = tf.raw_ops.ResizeBilinear(images=image[None], size=(rows, columns), align_corners=False)[0]
    top, left = int((rows - crop) / 2), int((columns - crop) / 2)
    values: Values = (
        resized[top : top + crop, left : left + crop] - tf.constant([123.68, 116.78, 103.94])
    ).numpy()
    return values


def tensornets_pixels(file: Path, size: int, cv2: Any) -> Pixels:
    """tensornets/utils.py, load_img: RGB, before the crop."""
    image = cv2.imread(str(file))
    columns, rows = (side * size // min(image.shape[:2]) for side in image.shape[1::-1])
    pixels: Pixels = cv2.resize(image, (columns, rows), interpolation=cv2.INTER_CUBIC)[:, :, ::-1]
    return pixels


def tensornets_crops(pixels: Pixels, side: int) -> Pixels:
    """tensornets/utils.py, crop with crop_loc=10: the first is the one that its single-crop figures use."""
    top, left = ((total - side) // 2 for total in pixels.shape[:2])
    five = [
        pixels[top : top + side, left : left + side],
        pixels[:side, :side],
        pixels[:side, -side:],
        pixels[-side:, :side],
        pixels[-side:, -side:],
    ]
    return np.stack([*five, *(crop[:, ::-1] for crop in five)])


def tensornets_scaled(kind: str, pixels: Pixels) -> Values:
    """tensornets/preprocess.py, the function `kind`."""
    x = pixels.astype(np.float32)
    if kind == "keras_resnet":
        return x[..., ::-1] - np.array([103.939, 116.779, 123.68], np.float32)
    x /= 255.0
    if kind == "tfslim":
        x -= 0.5
        x *= 2.0
        return x
    mean, std = {
        "fb": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        "wrn": ([0.491, 0.482, 0.447], [0.247, 0.244, 0.262]),
    }[kind]
    for channel in range(3):
        x[..., channel] -= mean[channel]
        x[..., channel] /= std[channel]
    return x
