"""The arguments and options that several commands have, and the help of a group of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from porter.cli.terminal import write
from porter.frameworks import DESTINATION_NAMES
from porter.zoos.tables import STOCK

_DESTINATIONS = " or ".join((", ".join(DESTINATION_NAMES[:-1]), DESTINATION_NAMES[-1]))
Variant = Annotated[str, typer.Argument(metavar="VARIANT", help="such as mobilenet_v2; see porter recipe list")]
Subject = Annotated[str, typer.Argument(metavar="VARIANT|FILE", help="a variant, or a file that carries its own graph")]
From = Annotated[str, typer.Option("--from", metavar="ZOO|FRAMEWORK", help="where the weights come from")]
MaybeFrom = Annotated[
    str | None, typer.Option("--from", metavar="ZOO|FRAMEWORK", help="where a variant's weights come from; a file needs none")
]
To = Annotated[str, typer.Option("--to", metavar="FRAMEWORK", help=f"the framework of the port: {_DESTINATIONS}")]
Weights = Annotated[Path | None, typer.Option("--weights", metavar="FILE", help="a file to use instead of the zoo's published one")]
Origin = Annotated[
    str | None,
    typer.Option(
        "--origin", metavar="ZOO", help="insist that the weights are this zoo's, if something states another (docs/twins.md)"
    ),
]
InputSize = Annotated[
    str | None, typer.Option("--input-size", metavar="N|HxW|any", help="default: the file's own, otherwise the recipe's")
]
Recipes = Annotated[
    Path | None, typer.Option("--recipes", metavar="DIR", help="a folder of recipes to use beside porter's; they come first")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]
PortFolder = Annotated[Path, typer.Argument(metavar="DIR", help="a port's folder")]
Mapped = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="SRC=NODE",
        help="which layer of the file is which node; for dense layers in a row: FIRST,relu,LAST=head/logits",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="set an option of the recipe that a file of weights does not record"),
]
Outputs = Annotated[
    str | None,
    typer.Option("--outputs", metavar="NAME,...", help="end a FILE's graph at these of its values, which the port then gives"),
]
Stock = Annotated[
    str | None,
    typer.Option(
        "--stock",
        metavar="[timm]",
        help="use the names of the destination's stock class, if it computes the same: torchvision's, Keras's or timm's",
    ),
]
GivenReference = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="FILE|FILE.py:CALLABLE",
        help="compare the port with this too: another file that carries its graph, or your own code, which porter then RUNS",
    ),
]
Data = Annotated[Path, typer.Option("--data", metavar="PATH", help="labelled photos: class folders, a tar, Parquet shards, ...")]
Device = Annotated[str, typer.Option(metavar="cpu|cuda", help="where the models run")]
Crops = Annotated[int, typer.Option(metavar="1|10", help="ten crops: the mean of their probabilities")]
BatchSize = Annotated[int | None, typer.Option(metavar="N", help="photos at a time; default: 16 on a CPU, 64 on a GPU")]
Workers = Annotated[int | None, typer.Option(metavar="N", help="processes that decode; default: one per core")]
Limit = Annotated[int | None, typer.Option(metavar="N", help="score at most N photos")]
Cache = Annotated[Path | None, typer.Option(metavar="DIR", help="keep prepared photos for the next run")]
Preprocess = Annotated[
    str | None,
    typer.Option("--preprocess", metavar="TEXT|FILE", help="how photos become the input: resize=...,size=...,... or JSON"),
]
ClassNames = Annotated[
    Path | None, typer.Option("--class-names", metavar="FILE", help="the names of the classes, one on each line, in their order")
]
Split = Annotated[str | None, typer.Option(metavar="NAME", help="train, val or test; default: val, or the only one")]
Labels = Annotated[
    Path | None, typer.Option(metavar="FILE", help="ReaL's real.json, ImageNet's development kit, or a list (docs/data.md)")
]


def help_without_command(context: typer.Context) -> None:
    """Prints the help if no command is given, as --help does."""
    if context.invoked_subcommand is None:
        write(context.get_help())


class WithStock(TyperCommand):
    """A command whose `--stock` may have a value, which Typer's options always have or never have."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        libraries = {library for libraries in STOCK.values() for library in libraries}
        followed = zip(args, [*args, ""][1:], strict=True)
        bare = ["--stock=" if each == "--stock" and then not in libraries else each for each, then in followed]
        try:
            return super().parse_args(ctx, list(bare))
        except TyperException:
            # The word behind it may be the variant, or no library at all, which is then said of it.
            if "--stock" not in args[:-1] or args[args.index("--stock") + 1].startswith("-"):
                raise
            return super().parse_args(ctx, list(args))
