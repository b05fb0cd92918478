"""The accuracy of ports on labelled photos, with or without their sources beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from porter.base.calls import takes
from porter.base.commands import AROUND, EvaluateOptions, EvaluateSeveralOptions, MeasuringOptions
from porter.base.errors import FileError, UsageError, refuse_first
from porter.base.options import (
    AFRESH,
    CHANNELS_LAST,
    COMPILE,
    EXPECT_TOP1,
    FAST,
    PRECISION,
    PREDICTIONS,
    SOURCE,
    TOLERANCE,
    WEIGHTS,
    AnyPath,
    path_of,
)
from porter.base.ways_to_run import FP32, Run
from porter.data.classes import Classes
from porter.data.layouts.opening import open_photos
from porter.data.photos import PhotoSet
from porter.evaluation.csv_tables import write_predictions
from porter.evaluation.details import write_details
from porter.evaluation.distributed import Process, join_run, this_process
from porter.evaluation.figures import make_evaluation
from porter.evaluation.measuring import Entrant, Measured, merge_measured
from porter.evaluation.photo_distances import PORT_ROLE
from porter.evaluation.photo_options import Options
from porter.evaluation.protocol import protocol_of
from porter.evaluation.results import Evaluation, OfPort
from porter.evaluation.scoring import Scored
from porter.evaluation.shared_passes import is_complete, run_passes
from porter.files import expect_folder
from porter.graph import tensor_shapes
from porter.port import Record, StoredPort, read_port, update_record
from porter.recipe import Member
from porter.source.from_port import find_member_of
from porter.source.in_memory import ModelWeights, parse_weights
from porter.source.reopening import reopen_source


@takes(EvaluateOptions)
def evaluate(asked: EvaluateOptions) -> Evaluation:
    """Measure a port's accuracy on labelled photos, prepared by the port's own protocol, beside the published
    accuracy.

    The figures go into port.json, and details for a report into evaluation.json beside it. If Ctrl-C ends the
    run, nothing is written there, the result has the figures so far and is not `complete`. The next run of
    the same port, photos and settings goes on where that one stopped, also after one that was killed
    (porter.evaluation.unfinished). Under torchrun every process scores its part of the photos, and all get
    the same result; the first process writes.

    Args:
        data: class folders, the official validation tar, or Parquet or webdataset shards
            (porter.data.layouts).
        source: runs the source in its own framework beside the port, over the same batches, in float32 on the
            same device.
        weights: the file or the model in memory that the port was made from; None for the zoo's published
            one.
        precision: `fp32` (an NVIDIA GPU's TF32 is off), `tf32`, `bf16` or `fp16` (torch's autocast: batch
            norms stay in float32).
        compiled, channels_last: of torch ports (porter.base.ways_to_run.Run).
        fast: takes the fastest way of running the port on this device (porter.evaluation.speed), and runs it
            in fp32 beside it.
        device: `cpu` or `cuda`.
        crops: 1, or 10: the mean of the crops' probabilities.
        batch_size: photos at a time; None for 16 on a CPU and 64 on a GPU.
        workers: processes that decode; None for one per core.
        limit: of photos.
        cache: a folder in which prepared photos are kept for the next run.
        split: `train`, `val` or `test` of a data set that has several; None for its validation set.
        labels: ReaL's real.json, ImageNet's development kit or a list of labels (docs/data.md), instead of
            the data set's own.
        preprocess, class_names: as `convert` takes them, in place of the port's own.
        real_labels: ReaL's real.json, whose figures stand beside those of the photos' own labels.
        expect_top1: in per cent; `ok` says whether the port's is within `tolerance` (percentage points, 0.05
            if None) of it.
        predictions: a CSV to write, with what the port saw in every photo (porter.evaluation.csv_tables).
        afresh: measures all photos, also where Ctrl-C ended an earlier run.

    Raises:
        PorterError: the input is bad, or the protocol cannot be fitted to the only size that the port takes.
    """
    return _measure(asked, [asked.folder])[0].evaluation


@takes(EvaluateSeveralOptions)
def evaluate_several(asked: EvaluateSeveralOptions) -> tuple[OfPort, ...]:
    """Measure several ports as `evaluate` measures one. Each gets the figures that it would get by itself.

    Ports that tell the same classes apart, and whose protocols resize and crop alike, are run in one pass:
    every photo is decoded once for all of them, and their models are in memory together. The others take a
    pass for each such group.

    Args:
        predictions: of one port only. The other arguments are those of `evaluate`, for every port.

    Returns:
        The results in the order of the folders. If Ctrl-C ends the run, ports that have no figures yet are
        left out.
    """
    return _measure(asked, asked.folders)


def _measure(
    asked: EvaluateOptions | EvaluateSeveralOptions, folders: Sequence[AnyPath]
) -> tuple[OfPort, ...]:
    """Measure ports in one pass over the photos for each group that can share one, record the figures, and
    return the results in the order of the folders. Under torchrun each process runs its part, and only the
    first writes.

    Raises:
        KeyboardInterrupt: Ctrl-C came before the first photos were scored.
    """
    options = Options.of(asked)
    process = this_process()
    _expect_options_agree(asked, options.run, process, folders)
    data = Path(asked.data)
    recipes = path_of(asked.recipes)
    with join_run(process) as gather:
        entrants = [
            _open_entrant(folder, asked.source, parse_weights(asked.weights), recipes, options)
            for folder in folders
        ]
        sets = {
            classes: _open_set(data, classes, options)
            for classes in dict.fromkeys(entrant.port.record.label_classes for entrant in entrants)
        }
        # Without a limit, so that all photos of the pass have their other labels.
        real = replace(options, labels=path_of(asked.real_labels), limit=None)
        relabelled = {classes: _open_set(data, classes, real) for classes in sets} if real.labels else {}
        passes = run_passes(entrants, sets, options, process, asked.afresh or asked.fast)
        parts = gather(passes.measured)
    # whether the next run can go on where this one was ended
    goes_on = passes.settle(all(is_complete(part, len(entrants)) for part in parts))
    results = []
    for index, entrant in enumerate(entrants):
        by_process = [part[index] for part in parts if index in part]
        if len(by_process) < len(parts):
            continue  # Ctrl-C came before this port's pass
        measured = merge_measured(by_process)
        if not measured.scored.complete and not measured.scored.reached.any():
            continue
        classes = entrant.port.record.label_classes
        data_set = sets[classes]
        member = _member(entrant.port.record, recipes)
        result = make_evaluation(entrant, data_set, options, measured, member, relabelled.get(classes))
        result = _judge_expected(result, asked.expect_top1, asked.tolerance)
        if not result.complete:
            goes_on_at = measured.scored if goes_on else None
            result = _say_interrupted(result, goes_on_at, len(data_set.photos), asked.predictions)
        elif process.leads:
            result = _record_figures(entrant.port, data_set, measured, result)
            if asked.predictions is not None:
                scores = measured.scored.models[PORT_ROLE]
                write_predictions(
                    Path(asked.predictions), entrant.port.record, data_set.photos, scores, result.failed
                )
        results.append(_result_of_port(entrant.port, result))
    if not results:
        raise KeyboardInterrupt("before the first photos were scored, so there are no figures")
    return tuple(results)


def _say_interrupted(
    result: Evaluation, scored: Scored | None, photos: int, predictions: AnyPath | None
) -> Evaluation:
    """Return the figures of an interrupted run, with warnings that say at which of so many photos the next
    one goes on, and that the predictions are not written.

    Args:
        scored: what is kept for the next run; None if nothing is.
    """
    if scored is not None:
        reached = int(scored.reached.sum())
        result = _with_warning(
            result, f"another run goes on at photo {reached:,} of {photos:,}; with {AFRESH}, at the first"
        )
    if predictions is not None:
        result = _with_warning(result, f"{predictions} is not written: the run was interrupted")
    return result


def _result_of_port(port: StoredPort, result: Evaluation) -> OfPort:
    """Make the result of one of several ports: the evaluation, with the port's folder, name and framework."""
    record = port.record
    return OfPort(str(port.folder), record.name, record.framework, result, _count_parameters(port))


def _judge_expected(result: Evaluation, top1: float | None, tolerance: float | None) -> Evaluation:
    """Return the result with `ok`: whether its top-1 is the expected one, within the tolerance. That of an
    interrupted run is not. Without an expected one, return the result as it is.

    Args:
        top1: what is expected, in per cent.
        tolerance: by how many percentage points it may be off; None for `AROUND`.
    """
    if top1 is None:
        return result
    around = AROUND if tolerance is None else tolerance
    # 1e-9 is for the binary rounding of percentages.
    met = result.complete and abs(result.top1 - top1) <= around + 1e-9
    return replace(result, expected=(top1, around), ok=met)


def _count_parameters(port: StoredPort) -> int:
    """Return how many numbers of a port training changes: those of all tensors but the statistics of norms, a
    tensor that several layers share counted once.
    """
    tensors = tensor_shapes(port.graph)
    tensors_of_layers = (tensors.get(path, {}) for path in port.graph.calls)
    return sum(
        math.prod(shape)
        for roles in tensors_of_layers
        for role, shape in roles.items()
        if role not in ("mean", "variance")
    )


def _expect_options_agree(
    asked: MeasuringOptions, run: Run, process: Process, folders: Sequence[AnyPath]
) -> None:
    """Refuse options that contradict each other or are out of their range, and those that need other ports or
    another number of processes than there are.

    Raises:
        UsageError: such an option is given, no port, or one port twice.
        FileError: the folder of a file to write does not exist.
    """
    chosen = f"{PRECISION}, {COMPILE} and {CHANNELS_LAST(False)}"
    top1, tolerance = asked.expect_top1, asked.tolerance
    places = [Path(folder).resolve() for folder in folders]
    twice = next(
        (folder for folder, place in zip(folders, places, strict=True) if places.count(place) > 1), None
    )
    refuse_first(
        (
            asked.fast and run != FP32,
            FAST,
            f"this option chooses how the port runs, and {run.words} is given too",
            f"leave out {FAST}, or leave out {chosen}",
        ),
        (
            asked.fast and process.world > 1,
            FAST,
            "several processes could each choose another way to run",
            "run it in one process first, and give all processes the options that it chooses",
        ),
        (
            asked.weights is not None and not asked.source,
            WEIGHTS,
            f"these weights are the source's, and {SOURCE} is not given",
            f"add {SOURCE()}",
        ),
        (
            top1 is None and tolerance is not None,
            TOLERANCE,
            f"a tolerance needs {EXPECT_TOP1}, which is not given",
            None,
        ),
        (
            top1 is not None and not 0 <= top1 <= 100,
            EXPECT_TOP1,
            f"an accuracy must be from 0 to 100 per cent, got {top1}",
            None,
        ),
        (
            tolerance is not None and not 0 <= tolerance <= 100,
            TOLERANCE,
            f"expected percentage points from 0 to 100, got {tolerance}",
            None,
        ),
        (not folders, None, "there is no port to measure", None),
        (twice is not None, twice, "this port is given twice", None),
        (
            asked.predictions is not None and len(folders) > 1,
            PREDICTIONS,
            f"the file has the answers of one port, and {len(folders)} ports are given",
            "measure each port in a command of its own",
        ),
    )
    if asked.predictions is not None:
        expect_folder(Path(asked.predictions))


def _open_entrant(
    folder: AnyPath, source: bool, weights: ModelWeights | None, recipes: Path | None, options: Options
) -> Entrant:
    """Read a port that takes part, with its protocol and, if `source` asks for it, its source."""
    port = read_port(Path(folder))
    port = replace(port, record=options.stated.override(port.record, str(folder)))
    return Entrant(
        port, protocol_of(port, options.crops), reopen_source(port, weights, recipes) if source else None
    )


def _open_set(data: Path, classes: Classes, options: Options) -> PhotoSet:
    """Open the photos of ports that tell these classes apart; there has to be one."""
    photos = open_photos(
        data, classes=classes, labels=options.labels, limit=options.limit, split=options.split
    )
    if not (photos.photos or photos.failed):
        raise UsageError(f"there is no photo to score in these {photos.layout}", where=data)
    return photos


def _member(record: Record, recipes: Path | None) -> Member | None:
    """Return the recipe's variant that a port was made of, which has the published figure; None if no recipe
    has it any more.
    """
    try:
        return find_member_of(record, recipes)
    except UsageError:
        return None


def _record_figures(port: StoredPort, photos: PhotoSet, measured: Measured, result: Evaluation) -> Evaluation:
    """Write the figures into the port's folder, and return the result, with a warning if there is one. The
    record lists the figures of every run, and keeps in full, for the report, those of the most photos. A
    warning says so where these are fewer, and where the folder cannot be written.
    """
    earlier = port.record.evaluation
    images = earlier.get("images") if earlier else None
    try:
        if earlier is not None and isinstance(images, int) and images > result.images:
            update_record(port.folder, "evaluation", earlier, result.line())
            return _with_warning(
                result,
                f"the port's record keeps the figures of {images:,} photos, which are more; the report lists "
                "these figures beside them",
            )
        write_details(port, photos.photos, measured.scored, measured.compared)
        update_record(port.folder, "evaluation", result.summary(), result.line())
    except FileError as error:
        return _with_warning(result, f"the figures are not in the port's folder: {error}")
    return result


def _with_warning(result: Evaluation, warning: str) -> Evaluation:
    return replace(result, warnings=(*result.warnings, warning))
