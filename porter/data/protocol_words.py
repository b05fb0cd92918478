"""A protocol in words: in a line, as the steps of a report, and as the input that it gives."""

from __future__ import annotations

from typing import Literal

from porter.data.preprocess import Preprocess

_ROUNDING_WORDS = {"even": "to even", "down": "down", "up": "up"}


def input_in_words(protocol: Preprocess, rows: int, columns: int) -> str:
    """Return the input of a model in words, for predict and eval: `160x160: resized to 183, cropped to
    160`.
    """
    share, of_square = _share_in_words(protocol)
    steps = [f"cut to the central {share}"] if share else []
    square = f"resized to {protocol.size}x{protocol.size}"
    words = {"none": "as they are", "squash": square, "square": f"cut to a square{of_square}, {square}"}
    steps.append(words.get(protocol.resize, f"resized to {protocol.size}"))
    if protocol.crop is not None:
        steps.append(f"cropped to {protocol.crop}")
    return f"{rows}x{columns}: {', '.join(steps)}"


def _share_in_words(protocol: Preprocess) -> tuple[str, str]:
    """Return in words the share that is kept before resizing: of rows and columns, and of the square's side.
    One of the two is empty.
    """
    if protocol.central_fraction is None:
        return "", ""
    share = f"{protocol.central_fraction:.1%}"
    return ("", f" of {share}") if protocol.resize == "square" else (share, "")


def protocol_in_words(protocol: Preprocess, crops: Literal[1, 10] = 1) -> str:
    """Return a protocol in words, for reports: `shorter side 256 by Pillow's bilinear, centre 224, RGB /
    255`.
    """
    parts = [] if protocol.jpeg is None else [f"JPEGs decoded {protocol.jpeg}"]
    share, of_square = _share_in_words(protocol)
    if share:
        parts.append(f"central {share}")
    square, kernel = f"{protocol.size}x{protocol.size}", protocol.resampling.name
    words = {
        "none": f"{square} as they are",
        "squash": f"{square} by {kernel}",
        "square": f"central square{of_square} {square} by {kernel}",
    }
    parts.append(words.get(protocol.resize, f"shorter side {protocol.size} by {kernel}"))
    if protocol.crop is not None:
        crop = f"centre {protocol.crop}" if crops == 1 else f"ten crops of {protocol.crop}"
        if protocol.crop_rounding:
            crop += f" rounded {_ROUNDING_WORDS[protocol.crop_rounding]}"
        parts.append(crop)
    scaling = protocol.channels.upper() + ("" if protocol.divide == 1 else f" / {protocol.divide:g}")
    if any(protocol.mean):
        scaling += f" - {_numbers_text(protocol.mean)}"
    if any(value != 1 for value in protocol.std):
        scaling = f"({scaling}) / {_numbers_text(protocol.std)}"
    return ", ".join([*parts, scaling])


def _numbers_text(values: tuple[float, ...]) -> str:
    """Return three numbers as a text; one of them if all are equal."""
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"


def steps_in_words(protocol: Preprocess) -> list[str]:
    """List the steps from a photo to the model's input in order, each a sentence such as `Divide by 255.`."""
    how = "; JPEGs by libjpeg’s fast transform, as TensorFlow does" if protocol.jpeg else ""
    steps = [f"Decode to 8-bit RGB{how}. The EXIF orientation is not applied."]
    share = None if protocol.central_fraction is None else f"{100 * protocol.central_fraction:g} %"
    if share and protocol.resize != "square":
        steps.append(f"Keep the central {share} of height and width.")
    square = f"{protocol.size}×{protocol.size}"
    rounded = f", rounded {_ROUNDING_WORDS[protocol.crop_rounding]}" if protocol.crop_rounding else ""
    kept = f"a square of {share} of the shorter side" if share else "the largest square"
    resampling = protocol.resampling
    kernel = resampling.name.replace("'", "’")
    resize = {
        "none": f"Take photos of {square} pixels as they are.",
        "squash": f"Resize to {square} pixels, ignoring the aspect ratio",
        "square": f"Keep {kept} at the centre{rounded}, and resize it to {square} pixels",
        "shorter_side": f"Resize the shorter side to {protocol.size} pixels, keeping the aspect ratio",
    }[protocol.resize]
    if protocol.resize != "none":
        resize = f"{resize}, with {kernel} kernel: {resampling.how}."
    steps.append(resize)
    if protocol.crop is not None:
        steps.append(f"Keep the {protocol.crop}×{protocol.crop} pixels at the centre{rounded}.")
    if protocol.channels == "bgr":
        steps.append("Reverse the channels to blue, green, red.")
    if protocol.divide != 1:
        steps.append(f"Divide by {protocol.divide:g}.")
    if protocol.mean != (0.0, 0.0, 0.0):
        steps.append(f"Subtract {_channel_values(protocol.mean)}.")
    if protocol.std != (1.0, 1.0, 1.0):
        steps.append(f"Divide by {_channel_values(protocol.std)}.")
    return steps


def _channel_values(values: tuple[float, float, float]) -> str:
    """Write three numbers, one for each channel; one of them if they are equal."""
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    return f"{values[0]:g}, {values[1]:g} and {values[2]:g}, channel by channel"
