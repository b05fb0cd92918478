"""The commands that reproduce a port and its report."""

from __future__ import annotations

from porter.base.errors import command
from porter.data.statements import read_preprocess, stated
from porter.evaluation.protocol import own_protocol
from porter.evaluation.results import Evaluation, Study
from porter.frameworks import TRAINED
from porter.port import Record
from porter.recipe.options import written
from porter.reporting.records import Contents


def convert(record: Record, folder: str) -> str:
    """`porter convert` with the options in the record."""
    options, whose = ["--to", record.framework, "--out", folder], record.source.graph
    if whose is not None:
        options = ["--to", record.framework, "--weights", record.source.file, "--out", folder]
    elif record.zoo is not None:
        options = ["--from", record.zoo, "--to", record.framework, *_weights(record), "--out", folder]
    if record.padding != "shipped" and whose is None:
        options += ["--padding", record.padding]
    size, native = record.input.size, record.input.native_size
    if record.zoo is None:  # the file may state no size
        options += ["--input-size", "any" if size is None else "{}x{}".format(*size)]
        ends = [node["op"] for node in record.graph["nodes"] if node["path"] == record.graph["output"]]
        options += ["--keep-activation"] if record.activation is None and ends in (["softmax"], ["sigmoid"]) else []
        options += ["--outputs", ",".join(record.ended_at)] if record.ended_at else []
    elif size is None and any(pad.kind in ("dynamic pad layer", "composition") for pad in record.pads):
        options += ["--input-size", "any"]
    elif size is not None and size != native:
        options += ["--input-size", "{}x{}".format(*size)]
    if record.origin is not None and record.origin.by == "user" and record.zoo is not None and whose is None:
        options += ["--origin", record.zoo]
    if record.dtype != "float32":
        options += ["--dtype", record.dtype]
    if record.background:
        options.append("--keep-background")
    if record.framework in TRAINED and any(node["op"] == "dropout" for node in record.graph["nodes"]):
        options.append("--keep-dropout")
    if record.stock_class is not None:
        options += ["--stock", *(["timm"] if record.stock_class.startswith("timm.") else [])]
    if record.folded is not None:
        options.append("--fold-bn")
    if record.protocol_by == "user" and record.preprocess is not None:
        options += ["--preprocess", stated(record.preprocess)]
    if record.zoo is None and record.labels is not None and record.class_names:
        options += ["--class-names", record.labels]
    subject = whose.file if whose is not None else record.variant or _made_from(record)
    return command("convert", subject, *options, *_settings(record), *_reference(record), *_recipes(record))


def verify(record: Record, folder: str) -> str:
    return command("verify", folder, *_weights(record), "--layers", *_reference(record), *_recipes(record))


def evaluate(record: Record, folder: str, result: Evaluation | None) -> str:
    """`porter eval` as it was run; if it was not run, with the source beside the port."""
    beside, recipes = ("--source", *_weights(record)), _recipes(record)  # a recipe has the published figure, too
    if result is None:
        return command("eval", folder, *beside, *recipes, "--data", "PATH")
    options = [*(beside if result.source is not None else ()), *recipes]
    if result.crops != 1:
        options += ["--crops", str(result.crops)]
    if result.precision != "fp32":
        options += ["--precision", result.precision]
    if result.device != "cpu":
        options += ["--device", result.device]
    if result.preprocess is not None and (fed := read_preprocess(result.preprocess)) != own_protocol(record):
        options += ["--preprocess", stated(fed)]
    return command("eval", folder, *options, *_photos(result))


def study(record: Record, folder: str, result: Study | None) -> str:
    """`porter study padding` as it was run; if it was not run, over photos at PATH."""
    assert record.variant is not None and record.zoo is not None
    options = ["--from", record.zoo, *_weights(record), *_settings(record), *_recipes(record), "--port", folder]
    if result is None:
        return command("study", "padding", record.variant, *options, "--data", "PATH")
    if result.between:
        options += ["--between", ",".join(result.between)]
    if any(case.ten_crop_top5_error is not None for case in result.cases):
        options += ["--crops", "10"]
    if result.preprocess is not None and (stated_then := read_preprocess(result.preprocess)) != record.preprocess:
        options += ["--preprocess", stated(stated_then)]
    return command("study", "padding", record.variant, *options, *_photos(result))


def _photos(result: Evaluation | Study) -> list[str]:
    """The photos that were measured, and how many of them under which labels."""
    limit = [] if result.limit is None else ["--limit", str(result.limit)]
    labels = [] if result.labels is None else ["--labels", result.labels]
    split = [] if result.split is None else ["--split", result.split]
    names = [] if result.class_names is None else ["--class-names", result.class_names]
    return [*limit, *split, *labels, *names, "--data", result.photos[0]]


def reproduce(contents: Contents, folder: str) -> list[str]:
    """Every command that this port allows, in the order to type them."""
    record = contents.record
    lines = [convert(record, folder), verify(record, folder)]
    if contents.evaluation is not None or own_protocol(record) is not None:
        lines.append(evaluate(record, folder, contents.evaluation))
    if contents.study is not None:
        lines.append(study(record, folder, contents.study))
    return [*lines, command("report", folder)]


def _weights(record: Record) -> tuple[str, ...]:
    """`--weights` with the file or port that this port was made from. The zoo's published file needs none: it is fetched."""
    if record.source.published:
        return ()
    return "--weights", _made_from(record)


def _made_from(record: Record) -> str:
    return "PORT" if record.source.format == "port" else record.source.file


def _recipes(record: Record) -> tuple[str, ...]:
    return () if record.recipes is None else ("--recipes", record.recipes)


def _reference(record: Record) -> tuple[str, ...]:
    given = record.reference
    return () if given is None else ("--reference", f"{given.file}:{given.maker}" if given.maker else given.file)


def _settings(record: Record) -> list[str]:
    words = [word for setting in record.mapped for word in ("--map", setting)]
    return [*words, *(word for name, value in record.chosen.items() for word in ("--option", f"{name}={written(value)}"))]
