"""The command line: parses, calls the functions that the API gives, prints."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from porter.base import commands
from porter.base.errors import UsageError
from porter.base.options import CARD, INTO
from porter.base.package import __version__
from porter.base.plugins import KINDS, plugins
from porter.cli import comparison_text, inspect_text, pads_text, port_text, verdict_text
from porter.cli.arguments import GivenArguments, WithStock, command, help_without_command
from porter.cli.recipes import recipe_app
from porter.cli.terminal import INTERRUPTED, end_with, noted_interrupts, say, show, stems_from_interrupt
from porter.files import expect_folder

OBJECTS_BETWEEN_COLLECTIONS = 250_000
"""Python collects garbage more often, after 700 objects: then a short command spends a fifth of its time
looking for garbage among imported modules.
"""

# Plain help: rich would triple the time that `porter --help` takes.
app = typer.Typer(
    help="Moves trained weights of vision models between frameworks so that the port computes the same "
    "function, and proves it.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(recipe_app, name="recipe")
study_app = typer.Typer(
    help="Studies of trained weights.", invoke_without_command=True, rich_markup_mode=None
)
study_app.callback()(help_without_command)
app.add_typer(study_app, name="study")


@app.callback()
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show porter's version and its plug-ins, and exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: print one JSON object.")] = False,
) -> None:
    """Print the version if that is asked for, otherwise the help where no command is given."""
    if version:
        added = [plugin for kind in KINDS for plugin in plugins(kind)]
        record = {"version": __version__, "plugins": [plugin.record() for plugin in added]}
        lines = [f"porter {__version__}", *(f"  {plugin.kind}: {plugin.name} ({plugin})" for plugin in added)]
        show(record if as_json else lines)
        raise typer.Exit
    help_without_command(context)


@command(app, commands.CONVERT, cls=WithStock)
def run_convert(given: GivenArguments, card: bool, as_json: bool) -> None:
    """Port the source, or fill the class that `--into` names, and print the result. `given` has the options
    that were typed, as in every command here.
    """
    if "into" in given:
        from porter.comparison.transfer.fill import fill

        if card:
            raise UsageError(f"{INTO} writes no port", where=str(CARD), next=f"leave out {CARD}")
        filling = fill(**given)
        show(filling.record() if as_json else port_text.filling(filling))
        return
    from porter.conversion.convert import convert

    conversion = convert(**given)
    if card:
        from porter.reporting.model_card import write_card

        write_card(conversion.port.folder)
    show(conversion.record() if as_json else port_text.conversion(conversion))


@command(app, commands.VERIFY)
def run_verify(given: GivenArguments, layers: bool, as_json: bool) -> None:
    """Compare a port with its source again, print the verdict, and end with status 1 if it fails."""
    from porter.verification.reverify import verify

    verdict = verify(**given)
    show(verdict.record() if as_json else verdict_text.verdict(verdict, layers))
    if not verdict.ok:
        raise typer.Exit(1)


@command(app, commands.BATCH)
def run_batch(given: GivenArguments, as_json: bool) -> None:
    """Make the ports of a list, print what became of them, and end with status 1 if some do not stand."""
    from porter.batch.batch import batch

    made = batch(
        commands.BatchOptions(**given), (sys.executable, "-m", "porter.cli.supervised", commands.CONVERT.name)
    )
    show(made.record() if as_json else port_text.batch(made))
    if not made.ok:
        raise typer.Exit(1)


@command(app, commands.COMPARE)
def run_compare(given: GivenArguments, layers: bool, junit: Path | None, as_json: bool) -> None:
    """Compare two models, print what differs, and end with status 1 if they are not the same function."""
    if junit is not None:
        expect_folder(junit)
    from porter.comparison.compare import compare
    from porter.comparison.junit import write_junit

    found = compare(**given)
    if junit is not None:
        write_junit(junit, found)
    show(found.record() if as_json else comparison_text.comparison(found, layers))
    if not found.ok:
        raise typer.Exit(1)


@command(app, commands.PREDICT)
def run_predict(given: GivenArguments, as_json: bool) -> None:
    """Predict the classes of photos, and print them."""
    from porter.cli import evaluation_text
    from porter.evaluation.prediction import predict

    predictions = predict(**given)
    if as_json:
        show({"predictions": [prediction.record() for prediction in predictions]})
    else:
        show(evaluation_text.predictions(predictions))


@command(app, commands.EVALUATE)
def run_evaluate(given: GivenArguments, results: Path | None, as_json: bool) -> None:
    """Measure ports, and let the first process of a run print the figures. End with status 1 if one misses
    the expected accuracy, and with that of Ctrl-C if photos are left.
    """
    if results is not None:
        expect_folder(results)
    try:
        from porter.evaluation.evaluate import evaluate_several

        measured = evaluate_several(**given)
    except KeyboardInterrupt as stopped:  # typer would end without a word
        end_with(stopped)
    from porter.cli.evaluation_text import evaluation, evaluations
    from porter.evaluation.csv_tables import write_results
    from porter.evaluation.distributed import this_process

    asked = len(given["folders"])
    complete = len(measured) == asked and all(of_port.evaluation.complete for of_port in measured)
    if this_process().leads:
        if asked == 1:
            show(measured[0].evaluation.record() if as_json else evaluation(measured[0].evaluation))
        elif as_json:
            show({"ports": [of_port.record() for of_port in measured]})
        else:
            show(evaluations(measured, asked))
        if results is not None and complete:
            write_results(results, measured)
        elif results is not None:
            say([f"warning: {results} is not written: the run was interrupted"], err=True)
    if not complete:
        raise typer.Exit(INTERRUPTED)
    if not all(of_port.evaluation.ok for of_port in measured):
        raise typer.Exit(1)


@command(app, commands.INSPECT)
def run_inspect(given: GivenArguments, tensors: bool, as_json: bool) -> None:
    """Print what a file is, and the commands that port it."""
    from porter.source.inspection import inspect

    inspection = inspect(**given)
    show(inspection.record() if as_json else inspect_text.inspection(inspection, tensors))


@command(app, commands.PADS)
def run_pads(given: GivenArguments, all_sites: bool, as_json: bool) -> None:
    """Print how a source pads, and how a port of it does the same."""
    from porter.conversion.pad_table import pads

    table = pads(**given)
    show(table.record() if as_json else pads_text.pads(table, all_sites))


@command(app, commands.FETCH)
def run_fetch(variant: str, source: str, recipes: Path | None, as_json: bool) -> None:
    """Fetch the published weights of a variant, and print their path."""
    from porter.recipe import find_member
    from porter.source.place import fetch_published

    fetched = fetch_published(find_member(variant, source, recipes))
    if as_json:
        show({"path": str(fetched.path), "sha256": fetched.sha256, "warnings": list(fetched.warnings)})
    else:
        say((f"warning: {warning}" for warning in fetched.warnings), err=True)
        show([str(fetched.path)])


@command(study_app, commands.STUDY)
def run_study(given: GivenArguments, source: str | None, as_json: bool) -> None:
    """Study the padding of weights, print what was found, and end with the status of Ctrl-C if cases are
    missing.
    """
    from porter.cli import study_text
    from porter.evaluation.padding_study.study import study

    studied = study(source=source, **given)
    show(studied.record() if as_json else study_text.study(studied))
    if not studied.complete:
        raise typer.Exit(INTERRUPTED)


@command(app, commands.REPORT)
def run_report(given: GivenArguments, open_page: bool, as_json: bool) -> None:
    """Write a port's report, open it if that is asked for, and print where it is."""
    from porter.reporting.write_page import report

    written = report(**given)
    if open_page:
        import webbrowser

        webbrowser.open(written.path.resolve().as_uri())
    show(written.record() if as_json else port_text.report(written))


def main() -> NoReturn:
    """Run the `porter` command with the arguments that were typed, and exit with its status."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    # Otherwise Python looks through all modules for garbage once more before it ends.
    atexit.register(gc.freeze)
    # Otherwise pydantic searches every installed distribution for its plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    if isinstance(sys.stdout, TextIOWrapper):  # names may have characters that the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with noted_interrupts() as interrupts:
            sys.exit(app(standalone_mode=False, prog_name="porter"))
    except Exception as error:
        end_with(KeyboardInterrupt() if interrupts and stems_from_interrupt(error) else error)
