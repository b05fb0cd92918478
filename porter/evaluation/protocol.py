"""A port's protocol, and the size that it feeds the model."""

from __future__ import annotations

from porter.base.commands import PHOTO, PREDICT
from porter.base.errors import UsageError
from porter.base.options import CROPS, INPUT_SIZE, PREPROCESS
from porter.base.package import page
from porter.data.preprocess import Preprocess, ProtocolError
from porter.data.protocol_words import protocol_in_words
from porter.data.statements import example_protocol
from porter.evaluation.results import Crops
from porter.formats.recognition import known_format
from porter.graph import axes_text, further_text
from porter.port import Facts, Input, Record, StoredPort
from porter.source.photo_protocol import expect_colours
from porter.verification.inputs import PIXELS, SIGNED, UNIT, stated_range

_SCALINGS = {PIXELS: "", SIGNED: ",divide=127.5,mean=1"}
"""The scaling outside of a model whose graph says what it takes; of others, one that is common."""


def expect_protocol(port: StoredPort) -> Preprocess:
    """Return the protocol of a port that predicts classes.

    Raises:
        UsageError: the port gives no logits, takes no photos or has no protocol; the error has the line to
            type.
    """
    _expect_photos(port)
    _expect_classes(port.record, str(port.folder))
    return expect_prepared(port)


def expect_prepared(port: StoredPort) -> Preprocess:
    """Return a port's protocol, whatever the port gives.

    Raises:
        UsageError: the port takes no photos or has no protocol; the error has the line to type, with the
            scaling that the network's beginning speaks for.
    """
    _expect_photos(port)
    record, where = port.record, str(port.folder)
    expect_colours(record.input.channels, where)
    if record.preprocess is None:
        size = max(record.input.size or record.input.native_size)
        file_format = known_format(record.source.format)
        trained_in_tf = file_format is not None and file_format.framework == "tf"
        scaling = _SCALINGS.get(stated_range(port.graph, None) or UNIT, ",divide=255")
        raise _no_protocol(
            where, example_protocol(size, "tf_bilinear" if trained_in_tf else "pil_bilinear", scaling)
        )
    return record.preprocess


def _expect_photos(port: StoredPort) -> None:
    """Refuse a port that takes several inputs, or one that is no photo."""
    record = port.record
    if port.graph.further_inputs:
        next = "porter.load gives the model, which takes them in this order"
        message = (
            f"this model takes several inputs, and porter feeds photos only: input{further_text(port.graph)}"
        )
        raise UsageError(message, where=port.folder, next=next)
    if record.input.layout in ("NC", "file"):
        next = "porter.load gives the model, which takes it"
        raise UsageError(
            f"this model takes {axes_text(port.graph.axes)}, no photos", where=port.folder, next=next
        )


def _no_protocol(where: str, line: str) -> UsageError:
    """Make the error of a model without a protocol, with a `line` that states one as an example."""
    return UsageError(
        "nothing says how a photo becomes this model's input",
        where=where,
        next=f"say how the photos were prepared that it was trained on, such as {line}; "
        f"{page('protocols.md')} has all words",
    )


def _expect_classes(facts: Facts, where: str) -> None:
    """Expect a model that gives logits of classes.

    Raises:
        UsageError: it gives features.
    """
    if facts.output == "features":
        raise UsageError(
            "this model has no classifier head, so it cannot predict classes",
            where=where,
            next="porter.load gives the model, which gives features",
        )


def protocol_of(port: StoredPort, crops: Crops) -> Preprocess:
    """Return the protocol for a port's photos (`fit_protocol`), which feeds squares.

    Raises:
        UsageError: the port gives no logits, has no protocol, or takes only an input that is not square.
    """
    expect_protocol(port)
    record, where = port.record, str(port.folder)
    return fit_protocol(expect_square(record, record.input.channels, crops, where), record.input, where)


def own_protocol(record: Record) -> Preprocess | None:
    """Return the protocol (how a photo becomes the input) that a port is fed by where the user states none;
    None where predict and eval refuse the port.
    """
    try:
        return fit_protocol(expect_square(record, record.input.channels, 1, ""), record.input, "")
    except UsageError:
        return None


def fit_protocol(protocol: Preprocess, model_input: Input, where: str) -> Preprocess:
    """Return the protocol in proportion for a port that takes one size only: one that feeds 299x299 becomes
    one that feeds 224x224. Return the protocol itself for a port of any size.

    Raises:
        UsageError: the port's only size is not square or too large for the protocol, or the protocol gives
            each photo another size.
    """
    if model_input.size is None:
        return protocol
    rows, columns = model_input.size
    if rows != columns:
        raise UsageError(
            f"photos are fed as squares, and this port takes only {rows}x{columns}",
            where=where,
            next=f"convert again with {INPUT_SIZE.placeholder} or any",
        )
    if protocol.fed_side is None:
        raise UsageError(
            "this model's protocol gives every photo another size, and this port takes only "
            f"{rows}x{columns}",
            where=where,
            next=f"give it a crop: {PREPROCESS}",
        )
    try:
        return protocol.at(rows)
    except ProtocolError as error:
        raise UsageError(
            f"this model's protocol cannot feed {rows}x{columns}, the only size that this port takes: "
            f"{error.message}",
            where=where,
            next=f"convert again with a smaller {INPUT_SIZE} or any",
        ) from None


def notes_on_proportion(facts: Facts, fed: Preprocess) -> tuple[str, ...]:
    """Return a warning where photos are prepared for another size than the user or the file states, because
    the port takes one size only. A protocol that feeds 299x299 with a shorter side of 341, say, becomes
    224x224 with 256 for a port of 224x224: the same part of each photo.

    Args:
        facts: of the source; its `preprocess` is the protocol as it is stated.
        fed: the protocol that the port is fed by.

    Returns:
        One line, or none where both sizes are the same or only the zoo states the protocol.
    """
    stated = facts.preprocess
    if stated is None or facts.protocol_by not in ("user", "file") or stated.fed_side == fed.fed_side:
        return ()
    stated_size, only_size = (f"{side}x{side}" for side in (stated.fed_side, fed.fed_side))
    note = (
        f"the protocol feeds {stated_size}, and this port takes only {only_size}: it is taken in proportion, "
        f"{protocol_in_words(fed)}"
    )
    return (note,)


def expect_square(facts: Facts, channels: int, crops: Crops, where: str) -> Preprocess:
    """Return the protocol of a model that predicts classes, which feeds it squares.

    Raises:
        UsageError: the model gives no logits, has a single output or has no protocol, or the protocol gives
            photos several sizes or does not allow as many crops.
    """
    _expect_classes(facts, where)
    protocol = facts.preprocess
    if protocol is None:
        raise _no_protocol(where, example_protocol(224, "pil_bilinear", ",divide=255"))
    if facts.label_count == 1:
        raise UsageError(
            "this model has one output, so there are no classes to tell apart",
            where=where,
            next=f"{PREDICT.advise(folder=where, images=[PHOTO])} prints its output",
        )
    if protocol.fed_side is None:
        raise UsageError(
            "this model's protocol gives every photo another size",
            where=where,
            next=f"give it a crop: {PREPROCESS}",
        )
    expect_colours(channels, where)
    if crops == 10 and protocol.crop is None:
        raise UsageError(
            "ten crops need a protocol that crops, and this model's takes the whole photo",
            next=f"use {CROPS(1)}",
        )
    return protocol
