"""A port's protocol: the size that it feeds the model, and its text in a report."""

from __future__ import annotations

from porter.base.errors import RecipeError, UsageError
from porter.data.preprocess import Preprocess
from porter.evaluation.results import Crops
from porter.port import Facts, Input, Port, Record

NO_PROTOCOL = "nothing says how a photo becomes this model's input, and what its classes are called"
GIVE_PROTOCOL = (
    "write a recipe with `protocol` and `labels` and convert with it (--recipes DIR), or prepare the input yourself and call "
    "porter.load(DIR)"
)


def protocol_of(port: Port, crops: Crops) -> Preprocess:
    """The protocol for a port's photos (`fitted`), which feeds squares.

    Raises:
        UsageError: the port gives no logits, has no protocol, or takes only an input that is not square.
    """
    record, where = port.record, str(port.folder)
    return fitted(expect_square(record, record.input.channels, crops, where), record.input, where)


def feeds(record: Record) -> bool:
    """Whether photos can be fed to a port; predict and eval refuse any other."""
    try:
        fitted(expect_square(record, record.input.channels, 1, ""), record.input, "")
    except UsageError:
        return False
    return True


def fitted(protocol: Preprocess, taken: Input, where: str) -> Preprocess:
    """The protocol in proportion for a port of one size; the protocol itself for a port of any size.

    Raises:
        UsageError: the port's only size is not square or too large for the protocol, or the protocol gives each photo another size.
    """
    if taken.size is None:
        return protocol
    rows, columns = taken.size
    if rows != columns:
        raise UsageError(
            f"photos are fed as squares, and this port takes only {rows}x{columns}",
            where=where,
            next="convert again with --input-size N or any",
        )
    if protocol.fed_side is None:
        raise UsageError(
            f"this model's protocol gives every photo another size, and this port takes only {rows}x{columns}",
            where=where,
            next="give the recipe a crop",
        )
    try:
        return protocol.at(rows)
    except RecipeError as error:
        raise UsageError(
            f"this model's protocol does not reach {rows}x{columns}, the only size that this port takes: {error.message}",
            where=where,
            next="convert again with a smaller --input-size or any",
        ) from None


def fed(protocol: Preprocess, rows: int, columns: int) -> str:
    """The input of a model in words, for predict and eval: `160x160: resized to 183, cropped to 160`."""
    steps = [] if protocol.central_fraction is None else [f"cut to the central {protocol.central_fraction:.1%}"]
    words = {"none": "as they are", "squash": f"resized to {protocol.size}x{protocol.size}"}
    steps.append(words.get(protocol.resize, f"resized to {protocol.size}"))
    if protocol.crop is not None:
        steps.append(f"cropped to {protocol.crop}")
    return f"{rows}x{columns}: {', '.join(steps)}"


def expect_square(facts: Facts, channels: int, crops: Crops, where: str) -> Preprocess:
    """The protocol of a model that predicts classes, which feeds it squares.

    Raises:
        UsageError: the model gives no logits or has no protocol, or the protocol gives photos several sizes or does not allow as
            many crops.
    """
    protocol = facts.preprocess
    if facts.output == "features":
        raise UsageError(
            "this model has no classifier head, so it cannot predict classes", where=where, next="run it for its features"
        )
    if protocol is None:
        raise UsageError(NO_PROTOCOL, where=where, next=GIVE_PROTOCOL)
    if protocol.fed_side is None:
        raise UsageError("this model's protocol gives every photo another size", where=where, next="give the recipe a crop")
    if channels != 3:
        raise UsageError(f"this model takes {channels} channels, photos have 3", where=where)
    if crops == 10 and protocol.crop is None:
        raise UsageError("ten crops need a protocol that crops, and this model's takes the whole photo", next="use --crops 1")
    return protocol


def in_words(protocol: Preprocess, crops: Crops) -> str:
    """A protocol in words, for reports."""
    parts = [] if protocol.central_fraction is None else [f"central {protocol.central_fraction:.1%}"]
    square, kernel = f"{protocol.size}x{protocol.size}", protocol.resampling.name
    words = {"none": f"{square} as they are", "squash": f"{square} by {kernel}"}
    parts.append(words.get(protocol.resize, f"shorter side {protocol.size} by {kernel}"))
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
