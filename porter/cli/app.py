"""The command line: parses, calls the API, prints."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

import porter
from porter.cli import printing
from porter.cli.arguments import (
    BatchSize,
    Cache,
    ClassNames,
    Crops,
    Data,
    Device,
    From,
    GivenReference,
    InputSize,
    Json,
    Labels,
    Limit,
    Mapped,
    MaybeFrom,
    Options,
    Origin,
    Outputs,
    PortFolder,
    Preprocess,
    Recipes,
    Split,
    Stock,
    Subject,
    To,
    Variant,
    Weights,
    WithStock,
    Workers,
    help_without_command,
)
from porter.cli.recipes import recipe_app
from porter.cli.terminal import INTERRUPTED, end_with, noted_interrupts, say, show, stems_from_interrupt
from porter.files import expect_folder

OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""With Python's own 700, a short command spends a fifth of its time looking for garbage among imported modules."""

# Plain help: rich would triple the time that `porter --help` takes.
app = typer.Typer(
    help="Moves trained weights of vision models between frameworks so that the port computes the same function, and proves it.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(recipe_app, name="recipe")
study_app = typer.Typer(help="Studies of trained weights.", invoke_without_command=True, rich_markup_mode=None)
study_app.callback()(help_without_command)
app.add_typer(study_app, name="study")


@app.callback()
def start(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show porter's version and exit.")] = False
) -> None:
    if version:
        show([f"porter {porter.__version__}"])
        raise typer.Exit
    help_without_command(context)


@app.command(cls=WithStock)
def convert(
    subject: Subject,
    destination: To,
    source: MaybeFrom = None,
    weights: Weights = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="default: ./VARIANT-ZOO-FRAMEWORK or ./STEM-FRAMEWORK")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace an existing port")] = False,
    padding: Annotated[
        str,
        typer.Option(metavar="shipped|trained", help="the pads that the zoo ships, or those that the weights were trained with"),
    ] = "shipped",
    input_size: InputSize = None,
    dtype: Annotated[str, typer.Option(help="float32, float16, bfloat16 or float64")] = "float32",
    allow_overflow: Annotated[bool, typer.Option("--allow-overflow", help="let values become infinite that are too large")] = False,
    keep_background: Annotated[bool, typer.Option("--keep-background", help="keep row 0 of a 1001-class head")] = False,
    keep_activation: Annotated[
        bool, typer.Option("--keep-activation", help="keep the softmax or sigmoid that gives a FILE's only output")
    ] = False,
    keep_dropout: Annotated[
        bool, typer.Option("--keep-dropout", help="write the dropouts that the file shows, for who trains on")
    ] = False,
    preprocess: Preprocess = None,
    class_names: ClassNames = None,
    outputs: Outputs = None,
    mapped: Mapped = None,
    options: Options = None,
    fold_bn: Annotated[bool, typer.Option("--fold-bn", help="fold batch norms into the layers before them")] = False,
    stock: Stock = None,
    check: Annotated[bool | None, typer.Option("--check/--no-check", help="compare port and source; default: if possible")] = None,
    reference: GivenReference = None,
    origin: Origin = None,
    recipes: Recipes = None,
    as_json: Json = False,
) -> None:
    """Port a variant's weights (--from its zoo), or a file that carries its own graph, to another framework and prove the port."""
    given = _given(locals()) | ({"stock": True} if stock == "" else {})
    conversion = porter.convert(**given)
    show(conversion.record() if as_json else printing.conversion(conversion))


@app.command()
def verify(
    folder: PortFolder,
    weights: Weights = None,
    float64: Annotated[bool, typer.Option("--float64", help="compare in double precision only")] = False,
    layers: Annotated[bool, typer.Option("--layers", help="print every compared node")] = False,
    device: Annotated[str, typer.Option(help="where the port runs: cpu or cuda")] = "cpu",
    tolerance: Annotated[float | None, typer.Option(help="limit on relative L2 distance")] = None,
    reference: GivenReference = None,
    recipes: Recipes = None,
    as_json: Json = False,
) -> None:
    """Compare a port with its source again, node by node. Exit status 1 if they differ."""
    verdict = porter.verify(**_given(locals(), "layers"))
    show(verdict.record() if as_json else printing.verdict(verdict, layers))
    if not verdict.ok:
        raise typer.Exit(1)


@app.command()
def predict(
    folder: PortFolder,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="photos")],
    preprocess: Preprocess = None,
    class_names: ClassNames = None,
    as_json: Json = False,
) -> None:
    """Print the five likeliest classes of photos."""
    predictions = porter.predict(folder, images, preprocess=preprocess, class_names=class_names)
    if as_json:
        show({"predictions": [prediction.record() for prediction in predictions]})
    else:
        show(printing.predictions(predictions))


@app.command("eval")
def evaluate(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="folders of ports; several share the decoded photos")],
    data: Data,
    source: Annotated[bool, typer.Option("--source", help="run the source in its own framework beside the port")] = False,
    weights: Weights = None,
    device: Device = "cpu",
    precision: Annotated[str, typer.Option(metavar="fp32|tf32|bf16", help="of the port; the source runs in fp32")] = "fp32",
    crops: Crops = 1,
    batch_size: BatchSize = None,
    workers: Workers = None,
    limit: Limit = None,
    cache: Cache = None,
    split: Split = None,
    labels: Labels = None,
    preprocess: Preprocess = None,
    class_names: ClassNames = None,
    expect_top1: Annotated[float | None, typer.Option(metavar="X", help="exit status 1 unless top-1 is near X per cent")] = None,
    tolerance: Annotated[float | None, typer.Option(metavar="T", help="how near, in percentage points; default: 0.05")] = None,
    predictions: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="write what the port saw in every photo")] = None,
    afresh: Annotated[bool, typer.Option("--afresh", help="do not go on where Ctrl-C ended a run, but measure all photos")] = False,
    results: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="write a line of figures for each port")] = None,
    recipes: Recipes = None,
    as_json: Json = False,
) -> None:
    """Measure the top-1, top-5 and loss of ports on labelled photos. Ctrl-C stops and prints the figures so far."""
    given = _given(locals(), "results")
    if results is not None:
        expect_folder(results)
    try:
        measured = porter.evaluate_several(**given)
    except KeyboardInterrupt as stopped:  # typer would end without a word
        end_with(stopped)
    from porter.cli.evaluation import evaluation, evaluations
    from porter.evaluation.distributed import this_process
    from porter.evaluation.predictions import write_results

    complete = len(measured) == len(folders) and all(each.evaluation.complete for each in measured)
    if this_process().leads:
        if len(folders) == 1:
            show(measured[0].evaluation.record() if as_json else evaluation(measured[0].evaluation))
        else:
            show({"ports": [each.record() for each in measured]} if as_json else evaluations(measured, len(folders)))
        if results is not None and complete:
            write_results(results, measured)
    if not (complete and all(each.evaluation.ok for each in measured)):
        raise typer.Exit(1 if complete else INTERRUPTED)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a weights file of any readable format")],
    tensors: Annotated[bool, typer.Option("--tensors", help="list every tensor with its shape and type")] = False,
    input_size: InputSize = None,
    recipes: Recipes = None,
    as_json: Json = False,
) -> None:
    """Print what a weights file is, and the command that ports it."""
    inspection = porter.inspect(file, recipes, input_size)
    show(inspection.record() if as_json else printing.inspection(inspection, tensors))


@app.command()
def pads(
    subject: Subject,
    to: To,
    source: MaybeFrom = None,
    input_size: InputSize = None,
    all_sites: Annotated[bool, typer.Option("--all", help="also the sites that need no padding (--json has them)")] = False,
    recipes: Recipes = None,
    as_json: Json = False,
) -> None:
    """Print the padding sites: the source's convention, its realisation in the destination, and why; also training pads, and what
    the destination refuses.
    """
    from porter.conversion.pad_table import pads as table
    from porter.frameworks import get_destination
    from porter.recipe import find_member, proof_of

    found = table(subject, source, to, input_size, recipes)
    proof = None if source is None else proof_of(find_member(subject, source, recipes), get_destination(to).NAME)
    record = {**found.record(), "proof": proof and proof.record()}
    show(record if as_json else printing.pads(found, all_sites, proof))


@app.command()
def fetch(variant: Variant, source: From, recipes: Recipes = None, as_json: Json = False) -> None:
    """Download a variant's published weights into the cache, check them and print their path."""
    from porter.recipe import find_member
    from porter.source.weights import fetch_published

    fetched = fetch_published(find_member(variant, source, recipes))
    if as_json:
        show({"path": str(fetched.path), "sha256": fetched.sha256, "warnings": list(fetched.warnings)})
    else:
        say((f"warning: {warning}" for warning in fetched.warnings), err=True)
        show([str(fetched.path)])


@study_app.command("padding")
def study_padding(
    variant: Variant,
    data: Data,
    source: MaybeFrom = None,
    between: Annotated[
        str | None,
        typer.Option(metavar="ZOO,ZOO", help="decide as which of two zoos' networks of the same tensors the weights were trained"),
    ] = None,
    origin: Origin = None,
    weights: Weights = None,
    sites: Annotated[
        list[str] | None,
        typer.Option(
            "--site", metavar="PATH=CONVENTION,...", help="try these conventions at this site, instead of all strided sites"
        ),
    ] = None,
    mapped: Mapped = None,
    options: Options = None,
    device: Device = "cpu",
    crops: Crops = 1,
    batch_size: BatchSize = None,
    workers: Workers = None,
    limit: Limit = None,
    cache: Cache = None,
    split: Split = None,
    labels: Labels = None,
    preprocess: Preprocess = None,
    class_names: ClassNames = None,
    port: Annotated[Path | None, typer.Option(metavar="DIR", help="write the study into this port's record")] = None,
    recipes: Recipes = None,
    as_json: Json = False,
) -> None:
    """Measure the same weights under each candidate padding and name the one that they were trained with."""
    studied = porter.study(**({"source": None} | _given(locals())))
    from porter.cli.study import study

    show(studied.record() if as_json else study(studied))
    if not studied.complete:
        raise typer.Exit(INTERRUPTED)


@app.command()
def report(
    folder: PortFolder,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="default: DIR/report.html")] = None,
    as_json: Json = False,
) -> None:
    """Write everything that is recorded about a port as one HTML page."""
    written = porter.report(folder, out)
    show(written.record() if as_json else printing.report(written))


def _given(arguments: dict[str, Any], *own: str) -> dict[str, Any]:
    """What was typed, for the function of the API whose arguments have the same names. `own` are only the command's."""
    given = {name: value for name, value in arguments.items() if value is not None and name not in ("as_json", *own)}
    if "options" in given:
        from porter.recipe import split_settings

        given["options"] = split_settings(given["options"])
    if "outputs" in given:
        given["outputs"] = given["outputs"].split(",")
    return given


def main() -> NoReturn:
    """The `porter` command."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)  # otherwise Python looks through all modules for garbage once more before it ends
    # Otherwise pydantic searches every installed distribution for its plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    try:
        with noted_interrupts() as interrupts:
            sys.exit(app(standalone_mode=False, prog_name="porter"))
    except Exception as error:
        end_with(KeyboardInterrupt() if interrupts and stems_from_interrupt(error) else error)
