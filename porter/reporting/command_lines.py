"""The commands that reproduce a port and its report."""

from __future__ import annotations

from typing import Any

from porter.base.commands import CONVERT, EVALUATE, REPORT, STUDY, VERIFY
from porter.data.statements import protocol_text, read_preprocess
from porter.evaluation.padding_study.study_results import Study
from porter.evaluation.protocol import own_protocol
from porter.evaluation.results import Evaluation
from porter.frameworks import TRAINED
from porter.graph import OF_LOGITS
from porter.padding import ANY
from porter.padding.sizes import size_text
from porter.port import Record
from porter.reporting.records import Contents

_OF_LOGITS = {op.name for op in OF_LOGITS}


def convert(record: Record, folder: str, again: bool = False) -> str:
    """Return the line `porter convert` that made a port, with the options in its record.

    Args:
        folder: the port's folder, as it is typed.
        again: the line replaces the port by one that is checked.
    """
    # A file with the graph alone, beside the file of the weights; None where a recipe or that file has it.
    graph_file = record.source.graph
    is_one_file = graph_file is None
    has_no_recipe = record.zoo is None
    ops = [node["op"] for node in record.graph["nodes"]]
    last_ops = [node["op"] for node in record.graph["nodes"] if node["path"] == record.graph["output"]]
    subject = record.variant or record.source.given
    # A file that carries its graph is the subject itself.
    own_weights = None if has_no_recipe else record.source.to_give
    if graph_file is not None:
        subject, own_weights = graph_file.file, record.source.file
    # The port ends in a softmax or a sigmoid, which it would lack without the option.
    keeps_activation = record.activation is None and not _OF_LOGITS.isdisjoint(last_ops)
    is_stated_by_user = is_one_file and record.origin is not None and record.origin.by == "user"
    # True for the default library's class, `timm` for timm's
    stock: bool | str = False
    if record.stock_class is not None:
        stock = "timm" if record.stock_class.startswith("timm.") else True
    preprocess = None
    if record.protocol_by == "user" and record.preprocess is not None:
        preprocess = protocol_text(record.preprocess)
    return CONVERT.line(
        subject=subject,
        source=record.zoo if is_one_file else None,
        to=record.framework,
        weights=own_weights,
        out=folder,
        padding=record.padding if is_one_file else None,
        input_size=_input_size(record),
        keep_activation=has_no_recipe and keeps_activation,
        outputs=record.ended_at if has_no_recipe else (),
        origin=record.zoo if is_stated_by_user else None,
        dtype=record.dtype,
        quantize=record.quantize,
        keep_background=record.background,
        keep_dropout=record.framework in TRAINED and "dropout" in ops,
        stock=stock,
        fold_bn=record.folded is not None,
        preprocess=preprocess,
        class_names=record.labels if has_no_recipe and record.class_names else None,
        mapped=record.mapped,
        options=record.chosen,
        reference=_reference(record),
        recipes=record.recipes,
        check=True if again else None,
        overwrite=again,
    )


def verify(record: Record, folder: str) -> str:
    """Return the line `porter verify` for a port, with the files that its record names."""
    reference = _reference(record)
    return VERIFY.line(
        folder=folder, weights=record.source.to_give, layers=True, reference=reference, recipes=record.recipes
    )


def evaluate(record: Record, folder: str, result: Evaluation | None) -> str:
    """Return the line `porter eval` as it was run; if it was not run, with the source beside the port."""
    beside = result is None or result.source is not None
    return EVALUATE.line(
        folders=[folder],
        source=beside,
        weights=record.source.to_give if beside else None,
        recipes=record.recipes,  # a recipe has the published figure, too
        **(_run_options(result) if result else {}),
        **_photo_options(result, own_protocol(record)),
    )


def _run_options(result: Evaluation) -> dict[str, object]:
    """Return how an evaluation was run, as options of the command: a run in words of `bf16, compiled` gives
    `compiled` True.
    """
    words = result.run.split(", ")
    names = ("precision", "device", "crops", "real_labels")
    return {
        "compiled": "compiled" in words,
        "channels_last": "channels first" not in words,
        **{name: getattr(result, name) for name in names},
    }


def study(record: Record, folder: str, result: Study | None) -> str:
    """Return the line `porter study padding` as it was run; if it was not run, over photos at PATH."""
    ten = result is not None and any(case.ten_crop_top5_error is not None for case in result.cases)
    return STUDY.line(
        variant=record.variant,
        source=record.zoo,
        weights=record.source.to_give,
        mapped=record.mapped,
        options=record.chosen,
        recipes=record.recipes,
        port=folder,
        between=result.between if result else (),
        crops=10 if ten else 1,
        **_photo_options(result, record.preprocess),
    )


def _photo_options(result: Evaluation | Study | None, usual: object) -> dict[str, Any]:
    """Return which photos were measured, as options of the command: the data set, how many of it under which
    labels, and the protocol where it is not the `usual` one. Without a result, only a placeholder for the
    data set.
    """
    if result is None:
        return {"data": "PATH"}
    protocol = None if result.preprocess is None else read_preprocess(result.preprocess)
    return {
        "preprocess": protocol_text(protocol) if protocol is not None and protocol != usual else None,
        **{name: getattr(result, name) for name in ("limit", "split", "labels", "class_names")},
        "data": result.photos[0],
    }


def reproduce(contents: Contents, folder: str) -> list[str]:
    """Return every command that this port allows, in the order to type them."""
    record = contents.record
    lines = [convert(record, folder), verify(record, folder)]
    if contents.evaluation is not None or own_protocol(record) is not None:
        lines.append(evaluate(record, folder, contents.evaluation))
    if contents.study is not None:
        lines.append(study(record, folder, contents.study))
    return [*lines, REPORT.line(folder=folder)]


def _input_size(record: Record) -> str | None:
    """Return the size that has to be typed, None where it is the usual one; a file that carries its graph may
    state none.
    """
    only_size = record.input.size  # None for a port that takes any
    if record.zoo is None or only_size not in (None, record.input.native_size):
        return size_text(only_size or ANY)
    # Pads that are computed at run time, or compositions, say that `any` was asked for.
    has_pads_for_any = any(pad.kind in ("dynamic pad layer", "composition") for pad in record.pads)
    return size_text(ANY) if only_size is None and has_pads_for_any else None


def _reference(record: Record) -> str | None:
    """Return the user's own reference as it is typed: a file, or FILE.py:CALLABLE."""
    given = record.reference
    if given is None:
        return None
    return f"{given.file}:{given.maker}" if given.maker else given.file
