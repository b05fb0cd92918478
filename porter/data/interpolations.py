"""The resamplings that a protocol can name: whose implementation each one is, and what the code around it
rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Interpolation = Literal[
    "pil_nearest",
    "pil_box",
    "pil_bilinear",
    "pil_hamming",
    "pil_bicubic",
    "pil_lanczos",
    "torch_bilinear",
    "torch_bicubic",
    "opencv_bilinear",
    "opencv_cubic",
    "tf_bilinear",
    "tf_bicubic",
    "tf_antialiased",
    "tf_area",
    "tf1_bilinear",
    "none",
]


class Resampling(NamedTuple):
    """What is known of a resampling.

    Attributes:
        name: the library and its kernel.
        how: what distinguishes it from others of the name.
        floats: it gives fractions; otherwise it gives bytes.
        divides_first: pixels are divided before they are resized, and not after it.
        torchvision: sides and offsets are those of torchvision's Resize and CenterCrop, which round to the
            nearest number, and a half to the even one. The code around the other resamplings rounds down.
        sizes_to_nearest: another size before the crop is rounded to the nearest number, as torchvision's
            published sizes are: 342 for 299.
        sides_in_float32: the longer side is computed in float32.
    """

    name: str
    how: str
    floats: bool = False
    divides_first: bool = False
    torchvision: bool = False
    sizes_to_nearest: bool = False
    sides_in_float32: bool = False


def _of_pillow(kernel: str, how: str = "antialiased, on bytes") -> Resampling:
    """Return Pillow's resampling with a kernel."""
    return Resampling(f"Pillow's {kernel}", how, torchvision=True)


RESAMPLINGS: Mapping[Interpolation, Resampling] = {
    "pil_nearest": _of_pillow("nearest", "on bytes"),
    "pil_box": _of_pillow("box"),
    "pil_bilinear": _of_pillow("bilinear")._replace(sizes_to_nearest=True),
    "pil_hamming": _of_pillow("Hamming"),
    "pil_bicubic": _of_pillow("bicubic"),
    "pil_lanczos": _of_pillow("Lanczos"),
    "torch_bilinear": Resampling(
        "torch's bilinear",
        "antialiased, on floats that are rounded to bytes",
        torchvision=True,
        sizes_to_nearest=True,
    ),
    "torch_bicubic": Resampling(
        "torch's bicubic", "antialiased, on floats that are rounded to bytes", torchvision=True
    ),
    "opencv_bilinear": Resampling("OpenCV's bilinear", "not antialiased, on bytes"),
    "opencv_cubic": Resampling("OpenCV's cubic", "not antialiased, on bytes"),
    "tf_bilinear": Resampling("TensorFlow's bilinear", "not antialiased, on floats", floats=True),
    "tf_bicubic": Resampling("TensorFlow's bicubic", "not antialiased, on floats", floats=True),
    "tf_antialiased": Resampling("TensorFlow's antialiased bilinear", "on floats", floats=True),
    "tf_area": Resampling(
        "TensorFlow's area", "the mean of what lies under each pixel, cut to bytes", sides_in_float32=True
    ),
    "tf1_bilinear": Resampling(
        "TensorFlow 1's bilinear",
        "not antialiased and without half-pixel centres, on floats",
        floats=True,
        divides_first=True,
        sides_in_float32=True,
    ),
    "none": Resampling("nothing", "the pixels stay as they are", torchvision=True),
}
