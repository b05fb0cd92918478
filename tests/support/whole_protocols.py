"""Every resampling with every way of resizing, and every zoo's protocol, from a photo's file to the input: by
the libraries, and by `porter eval`.

scripts/protocols compares them on a folder of photos, tests/roads/evaluation/test_inputs.py on three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from porter.base.ways_to_run import FP32
from porter.data.photos import Bytes, Photo
from porter.data.pipeline.batching import Feed, batches
from porter.data.preprocess import Preprocess
from porter.data.protocol_words import protocol_in_words
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.runtime import import_keras
from porter.frameworks.torch.evaluate import make_classifier
from tests.support import originals
from tests.support.protocol_guide import uses
from tests.support.zoo_protocols import input_of

Values = NDArray[np.float32]
Way = tuple[str, str]
SIDE, SIZE = 224, 256
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KERNELS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
_IMAGENET: Mapping[str, Any] = {"divide": 255.0, "mean": MEAN, "std": STD}
_ONES: Mapping[str, Any] = {"divide": 127.5, "mean": (1.0, 1.0, 1.0)}
_HALVES: Mapping[str, Any] = {"divide": 255.0, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
_SLIMS = {"mean": (123.68, 116.78, 103.94)}


def _cropped(interpolation: Any, **scaling: Any) -> Preprocess:
    return Preprocess("shorter_side", SIZE, interpolation, crop=SIDE, **scaling)


def _squashed(interpolation: Any, **scaling: Any) -> Preprocess:
    return Preprocess("squash", SIDE, interpolation, **scaling)


PROTOCOLS: Mapping[Way, Preprocess] = {
    (protocol.interpolation, protocol.resize): protocol
    for protocol in (
        *(_cropped(f"pil_{kernel}", **_IMAGENET) for kernel in KERNELS),
        *(_squashed(f"pil_{kernel}", **_ONES) for kernel in KERNELS),
        *(
            make(f"torch_{kernel}", **_IMAGENET)
            for kernel in ("bilinear", "bicubic")
            for make in (_cropped, _squashed)
        ),
        *(make("opencv_cubic", **_ONES) for make in (_cropped, _squashed)),
        *(
            make(f"tf_{kind}", **_ONES)
            for kind in ("bilinear", "antialiased")
            for make in (_cropped, _squashed)
        ),
        _cropped("tf1_bilinear", **_SLIMS),
        Preprocess("squash", SIDE, "tf1_bilinear", central_fraction=0.875, **_HALVES),
        Preprocess("none", SIDE, "none", **_IMAGENET),
    )
}
EXACT = frozenset(way for way in PROTOCOLS if way[0] != "opencv_cubic")
"""The protocols whose inputs are the library's to the last bit; docs/protocols.md says why OpenCV's are not.
"""


def original(file: Path, way: Way) -> Values:
    """The input 3 x rows x columns as the library prepares a file."""
    interpolation, resize = way
    kernel = interpolation.rpartition("_")[2]
    if resize == "none":
        return _normalised(Image.open(file).convert("RGB"), [])
    if interpolation.startswith("torch") or (interpolation.startswith("pil") and resize == "shorter_side"):
        return _torchvision(file, kernel, resize, tensors=interpolation.startswith("torch"))
    if interpolation.startswith("pil"):
        loaded = import_keras().utils.load_img(file, target_size=(SIDE, SIDE), interpolation=kernel)
        return _keras_scaled(np.asarray(loaded))
    if interpolation == "opencv_cubic":
        return _opencv(file, resize)
    return _tensorflow(file, interpolation, resize)


def _torchvision(file: Path, kernel: str, resize: str, tensors: bool) -> Values:
    transforms = originals.torchvision_transforms()
    mode = transforms.InterpolationMode(kernel)
    steps = [
        transforms.Resize((SIDE, SIDE) if resize == "squash" else SIZE, mode),
        transforms.CenterCrop(SIDE),
    ]
    image: Any = Image.open(file).convert("RGB")
    if tensors:
        pixels = transforms.Compose(steps)(torch.from_numpy(np.array(image)).permute(2, 0, 1))
        return _values(transforms.Normalize(MEAN, STD)(pixels / 255))
    return _normalised(image, steps)


def _normalised(image: Image.Image, steps: Sequence[Any]) -> Values:
    transforms = originals.torchvision_transforms()
    return _values(
        transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])(image)
    )


def _values(tensor: torch.Tensor) -> Values:
    found: Values = tensor.numpy()
    return found


def _keras_scaled(pixels: Any) -> Values:
    """keras.applications' `tf` mode of rows x columns x 3."""
    values = np.asarray(pixels, np.float32)
    values = values / np.float32(127.5)
    return (values - np.float32(1)).transpose(2, 0, 1)


def _opencv(file: Path, resize: str) -> Values:
    import cv2

    if resize == "squash":
        read = cv2.imread(str(file))
        assert read is not None
        image = cv2.resize(read, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
        return _keras_scaled(image[:, :, ::-1])
    return _keras_scaled(originals.tensornets_crops(originals.tensornets_pixels(file, SIZE, cv2), SIDE)[0])


def _tensorflow(file: Path, interpolation: str, resize: str, dct_method: str = "INTEGER_ACCURATE") -> Values:
    tf: Any = import_tensorflow()
    content = tf.io.read_file(str(file))
    image = (
        tf.io.decode_png(content, channels=3)
        if file.suffix == ".png"
        else tf.io.decode_jpeg(content, channels=3, dct_method=dct_method)
    )
    if interpolation == "tf1_bilinear":
        values = (
            originals.slim_inception(image, SIDE, 0.875)
            if resize == "squash"
            else originals.slim_vgg(image, SIZE, SIDE)
        )
        return values.transpose(2, 0, 1)
    rows, columns = image.shape[:2]
    short = min(rows, columns)
    shape = (SIDE, SIDE) if resize == "squash" else (SIZE * rows // short, SIZE * columns // short)
    resized = tf.image.resize(image, shape, antialias=interpolation == "tf_antialiased")
    top, left = (shape[0] - SIDE) // 2, (shape[1] - SIDE) // 2
    return _keras_scaled(resized[top : top + SIDE, left : left + SIDE].numpy())


class Whole(NamedTuple):
    """A protocol, and what its own library makes of a file."""

    name: str
    protocol: Preprocess
    original: Callable[[Path], Values]


def all_protocols() -> Iterator[Whole]:
    for way, protocol in PROTOCOLS.items():
        yield Whole(", ".join(f"`{word}`" for word in way), protocol, partial(original, way=way))
        if way[0].startswith("tf"):
            by_default = partial(_tensorflow, interpolation=way[0], resize=way[1], dct_method="")
            yield Whole(
                ", ".join(f"`{word}`" for word in (*way, "jpeg=fast")),
                replace(protocol, jpeg="fast"),
                by_default,
            )
    by_protocol: dict[Preprocess, list[Any]] = {}
    for use in uses():
        by_protocol.setdefault(use.protocol, []).append(use)
    for protocol, those in by_protocol.items():
        zoos = ", ".join(sorted({use.zoo for use in those}))
        yield Whole(f"{zoos}: {protocol_in_words(protocol, 1)}", protocol, partial(input_of, use=those[0]))


class _Inputs(torch.nn.Module):
    """A model whose output is its input."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images


def inputs_of_eval(files: Sequence[Path], protocol: Preprocess, workers: int = 0) -> Iterator[Values]:
    """The inputs 3 x rows x columns that `porter eval` gives a torch model, in the order of the files."""
    photos = [Photo(file.name, (0,), Bytes(file)) for file in files]
    classifier: Callable[..., Any] = make_classifier(_Inputs(), protocol, "cpu", FP32, None)
    for batch in batches(photos, protocol, Feed(batch_size=16, workers=workers)):
        assert not batch.failed
        yield from classifier(batch.pixels)().reshape(
            len(batch.positions), 3, protocol.square, protocol.square
        )
