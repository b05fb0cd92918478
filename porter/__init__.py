"""porter moves trained weights of vision models between frameworks so that the port computes the same function, and proves it.

The functions below are the whole API; each imports what it needs when it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from porter.package import __version__ as __version__

if TYPE_CHECKING:
    from porter.conversion.convert import Conversion
    from porter.evaluation.prediction import Prediction
    from porter.evaluation.results import Evaluation, Study
    from porter.identify.inspection import Inspection
    from porter.reporting.write import Report
    from porter.verification.verdict import Verdict

__all__ = ["convert", "evaluate", "inspect", "load", "predict", "report", "study", "verify"]

AnyPath = str | PathLike[str]


def convert(
    subject: str | PathLike[str],
    source: str | None = None,
    destination: str = "torch",
    *,
    weights: AnyPath | None = None,
    out: AnyPath | None = None,
    overwrite: bool = False,
    padding: str = "shipped",
    input_size: str | None = None,
    dtype: str = "float32",
    allow_overflow: bool = False,
    keep_background: bool = False,
    keep_activation: bool = False,
    mapped: Sequence[str] = (),
    options: Mapping[str, bool | float | str] | None = None,
    fold_bn: bool = False,
    stock: bool = False,
    check: bool | None = None,
    reference: AnyPath | None = None,
    recipes: AnyPath | None = None,
) -> Conversion:
    """Ports a variant from a zoo, or a file that carries its own graph, to a framework, and proves the port against its source.

    Args:
        subject: a variant, such as `resnet50v2`; without `source`, a file (or a port) whose graph needs no recipe. Where a recipe
            has the file's graph, its names, labels and protocol are used.
        source: a zoo (`slim`), or a framework for its default zoo (`tf` is keras, `torch` is torchvision).
        destination: a framework: `tf`, `torch` or `onnx`. `tensorflow` and `pytorch` are other names, here and for `source`;
            `keras` is one of `tf` here.
        weights: a weights file, or a port; None for the zoo's published file.
        out: the port's folder; None for `VARIANT-ZOO-FRAMEWORK` or, for a file, `STEM-FRAMEWORK` here. It appears whole or not at
            all.
        padding: `shipped`, the pads of the zoo's own code, or `trained`, the pads that the weights were trained with, at the sites
            where the recipe says that the two differ.
        input_size: `224`, `225x201` (rows x columns) or `any`; None for the file's own, otherwise the recipe's.
        dtype: of storage: float32, float16, bfloat16 or float64.
        allow_overflow: lets values that `dtype` cannot hold become infinite.
        keep_background: keeps the background row of a 1001-class head.
        keep_activation: keeps the softmax or the sigmoid that gives a file's only output; no recipe is used then.
        mapped: pairs of a layer of the file and its node, as `LAYER=NODE`; `LAYER=head/logits` chooses the head, and
            `FIRST,relu,LAST=head/logits` joins dense layers of a file that holds only weights.
        options: of the recipe, instead of the zoo's, if the file of weights does not record them: `{"transform_input": False}`.
        fold_bn: folds every batch norm that is the only reader of a convolution or dense layer into it, for deployment.
        stock: writes the names of the destination's stock class (torchvision, keras.applications), which must compute exactly the
            source's function.
        check: compares the port with its source; None compares if the frameworks that it needs are installed.
        reference: a reference of your own, with which the port is compared too: another file that carries its graph, or code as
            `model.py:build`, which is run; `build()` gives a torch.nn.Module or a keras.Model.
        recipes: a folder of recipes to use beside porter's and the user's; they come first (porter.recipe.find).

    Raises:
        PorterError: the input is bad, or the port does not compute its source's function (CheckFailed).
    """
    from porter.conversion.convert import convert as run

    return run(
        str(subject),
        source,
        destination,
        weights=_path(weights),
        out=_path(out),
        overwrite=overwrite,
        padding=padding,
        input_size=input_size,
        dtype=dtype,
        allow_overflow=allow_overflow,
        keep_background=keep_background,
        keep_activation=keep_activation,
        mapped=tuple(mapped),
        options=options,
        fold_bn=fold_bn,
        stock=stock,
        checked=check,
        reference=None if reference is None else str(reference),
        recipes=_path(recipes),
    )


def load(folder: AnyPath, device: str = "cpu") -> Any:
    """The model of a port, built from port.json and never from model.py: an `nn.Module` in eval mode, or a Keras model."""
    from porter.port import read_port

    return read_port(Path(folder)).build(device=device)


def verify(
    folder: AnyPath,
    *,
    weights: AnyPath | None = None,
    float64: bool = False,
    device: str = "cpu",
    tolerance: float | None = None,
    reference: AnyPath | None = None,
    recipes: AnyPath | None = None,
) -> Verdict:
    """Compares a port with its source again, node by node: in float64, which decides, and in float32.

    Args:
        weights: the file that the port was made from; None for the zoo's published one.
        float64: compare in float64 only.
        tolerance: the limit on relative L2 distance; None for 1e-10 in float64, and in float32 for the larger of 1e-5 and four
            times the source's own rounding, at most 1e-4.
        reference: as for `convert`.
    """
    from porter.verification.given import parse_reference
    from porter.verification.reverify import verify as run

    given = None if reference is None else parse_reference(str(reference))
    return run(
        Path(folder),
        weights=_path(weights),
        float64=float64,
        device=device,
        tolerance=tolerance,
        given=given,
        recipes=_path(recipes),
    )


def predict(folder: AnyPath, images: Sequence[AnyPath]) -> tuple[Prediction, ...]:
    """The five likeliest classes of each photo. The photos are prepared by the recipe's own protocol."""
    from porter.evaluation.prediction import predict as run

    return run(Path(folder), [Path(image) for image in images])


def evaluate(
    folder: AnyPath,
    data: AnyPath,
    *,
    source: bool = False,
    weights: AnyPath | None = None,
    device: str = "cpu",
    precision: str = "fp32",
    crops: int = 1,
    batch_size: int = 64,
    workers: int | None = None,
    limit: int | None = None,
    cache: AnyPath | None = None,
    labels: AnyPath | None = None,
    expect_top1: float | None = None,
    tolerance: float | None = None,
    recipes: AnyPath | None = None,
) -> Evaluation:
    """Measures a port's accuracy on labelled photos, prepared by the recipe's own protocol, beside the published accuracy.

    The figures go into port.json, and details for a report into evaluation.json beside it. If Ctrl-C ends the run, nothing is
    written and the result has the figures so far and is not `complete`. Under torchrun every process scores its part of the photos,
    and all get the same result; the first process writes.

    Args:
        data: class folders, the official validation tar, or Parquet or webdataset shards (porter.data.layouts).
        source: runs the source in its own framework beside the port, over the same batches, in float32 on the same device.
        weights: the file that the port was made from; None for the zoo's published one.
        device: `cpu` or `cuda`.
        precision: `fp32` (an NVIDIA GPU's TF32 is off), `tf32`, or `bf16` (torch's autocast: batch norms stay in float32).
        crops: 1, or 10: the mean of the crops' probabilities.
        workers: processes that decode; None for one per core.
        limit: of photos.
        cache: a folder in which prepared photos are kept for the next run.
        labels: ReaL's real.json or ImageNet's development kit, instead of the data set's own labels, if it has any.
        expect_top1: in per cent; `ok` says whether the port's is within `tolerance` (percentage points, 0.05 if None) of it.

    Raises:
        PorterError: the input is bad, or the protocol cannot be fitted to the only size that the port takes.
    """
    from porter.evaluation.evaluate import evaluate as run
    from porter.evaluation.measuring import parse_options

    return run(
        Path(folder),
        Path(data),
        parse_options(device, precision, crops, batch_size, workers, limit, _path(cache), _path(labels)),
        source=source,
        weights=_path(weights),
        expect_top1=expect_top1,
        tolerance=tolerance,
        recipes=_path(recipes),
    )


def study(
    variant: str,
    source: str,
    data: AnyPath,
    *,
    weights: AnyPath | None = None,
    sites: Sequence[str] = (),
    mapped: Sequence[str] = (),
    options: Mapping[str, bool | float | str] | None = None,
    device: str = "cpu",
    crops: int = 1,
    batch_size: int = 64,
    workers: int | None = None,
    limit: int | None = None,
    cache: AnyPath | None = None,
    labels: AnyPath | None = None,
    port: AnyPath | None = None,
    recipes: AnyPath | None = None,
) -> Study:
    """Measures the same weights under each candidate padding, and names the one that they were trained with.

    First it changes all strided sites together: as shipped, asymmetric (TensorFlow's SAME), symmetric ((k-1)//2 cells on every
    side), and the recipe's training pads. Then it changes one site at a time in the best of these; then it combines the changes
    that are significantly better. Cases whose windows are the same at this input size are one case. Cases are compared photo by
    photo: by the log-loss of the true class, or by the entropy of the answers if the photos have no classes. It uses the recipe's
    own preprocessing and float32.

    Args:
        variant, source, weights, mapped, options, recipes: see `convert`.
        data, device, crops, batch_size, workers, limit, cache, labels: see `evaluate`; `data` may also be a folder of photos
            without classes. With ten crops, the single-crop errors of their centre are measured too.
        sites: instead of all strided sites, as `PATH=CONVENTION,CONVENTION`, with conventions as recipes write them.
        port: the folder of a port of these weights; the study goes into its record too.

    Raises:
        PorterError: the input is bad.
        KeyboardInterrupt: Ctrl-C in the first round. After Ctrl-C in a later round, the result is not `complete`.
    """
    from porter.evaluation.measuring import parse_options
    from porter.evaluation.padding_study.study import study as run

    return run(
        variant,
        source,
        Path(data),
        parse_options(device, "fp32", crops, batch_size, workers, limit, _path(cache), _path(labels)),
        weights=_path(weights),
        sites=tuple(sites),
        mapped=tuple(mapped),
        chosen=options or {},
        port=_path(port),
        recipes=_path(recipes),
    )


def inspect(file: AnyPath, recipes: AnyPath | None = None) -> Inspection:
    """What a weights file is: format, variant, zoo, classes, input size, head and differences, and the command that ports it."""
    from porter.identify.inspection import inspect as run

    return run(Path(file), _path(recipes))


def report(folder: AnyPath, out: AnyPath | None = None) -> Report:
    """Writes a port's records as one HTML page that needs neither a network nor a script.

    Args:
        out: the page; None for report.html in the port's folder. It appears whole or not at all, and replaces only an older
            report.
    """
    from porter.reporting.write import write_report

    return write_report(Path(folder), _path(out))


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _path(path: AnyPath | None) -> Path | None:
    return None if path is None else Path(path)
