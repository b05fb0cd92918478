"""A port's protocol: the size at which it feeds the model, and how it reads in a report."""

from __future__ import annotations

from porter.data.preprocess import Preprocess
from porter.errors import UsageError
from porter.evaluation.results import Crops
from porter.port import Port, Record

_IMPLEMENTATIONS = {
    "pil_bilinear": "Pillow's bilinear",
    "pil_bicubic": "Pillow's bicubic",
    "opencv_cubic": "OpenCV's cubic",
    "tf1_bilinear": "TensorFlow 1's bilinear",
}


def protocol_of(port: Port, crops: Crops) -> tuple[Preprocess, int]:
    """How a port's photos are prepared, and the side of the square that the model is fed. Nothing is resized to suit a port.

    Raises:
        UsageError: the port gives no logits, has no protocol, or takes another size than its protocol gives.
    """
    record = port.record
    protocol, side = expect_square(record.preprocess, record.output, record.input.channels, crops, str(port.folder))
    expect_taken(record, (side, side), str(port.folder))
    return protocol, side


def expect_taken(record: Record, fed: tuple[int, int], where: str) -> None:
    """Asks that a port takes what its protocol makes of a photo, `fed` rows and columns.

    Raises:
        UsageError: it takes another size alone.
    """
    if record.input.size not in (None, fed):
        given, taken = ("{}x{}".format(*size) for size in (fed, record.input.size))
        raise UsageError(
            f"the protocol gives {given}, and this port takes {taken} alone",
            where=where,
            next=f"convert again with --input-size {fed[0] if fed[0] == fed[1] else given}",
        )


def expect_square(protocol: Preprocess | None, output: str, channels: int, crops: Crops, where: str) -> tuple[Preprocess, int]:
    """The protocol of a model that tells classes, and the side of the square that it is fed.

    Raises:
        UsageError: no logits, no protocol, none that gives every photo one size, or none that so many crops can be taken in.
    """
    if output == "features":
        raise UsageError("this model has no head, so it tells no classes", where=where, next="run it for its features")
    if protocol is None:
        raise UsageError("this model's recipe declares no preprocessing", where=where)
    side = fed_side(protocol)
    if side is None:
        raise UsageError("this model's protocol gives every photo another size", where=where, next="give the recipe a crop")
    if channels != 3:
        raise UsageError(f"this model takes {channels} channels, photos have 3", where=where)
    if crops == 10 and protocol.crop is None:
        raise UsageError("ten crops need a protocol that crops, and this model's takes the whole photo", next="use --crops 1")
    return protocol, side


def fed_side(protocol: Preprocess) -> int | None:
    """The side of the square that a protocol gives; None where it keeps each photo's own shape."""
    if protocol.crop is not None:
        return protocol.crop
    return protocol.size if protocol.resize == "squash" else None


def in_words(protocol: Preprocess, crops: Crops) -> str:
    """A protocol as reports say it."""
    parts = [] if protocol.central_fraction is None else [f"central {protocol.central_fraction:.1%}"]
    resized = f"{protocol.size}x{protocol.size}" if protocol.resize == "squash" else f"shorter side {protocol.size}"
    parts.append(f"{resized} by {_IMPLEMENTATIONS[protocol.interpolation]}")
    if protocol.crop is not None:
        parts.append(f"centre {protocol.crop}" if crops == 1 else f"ten crops of {protocol.crop}")
    scaling = protocol.channels.upper() + ("" if protocol.divide == 1 else f" / {protocol.divide:g}")
    if any(protocol.mean):
        scaling += f" - {_numbers(protocol.mean)}"
    if any(value != 1 for value in protocol.std):
        scaling = f"({scaling}) / {_numbers(protocol.std)}"
    return ", ".join([*parts, scaling])


def _numbers(values: tuple[float, ...]) -> str:
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"
