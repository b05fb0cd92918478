"""Commands of the command line, made from the tables of options (porter.base.commands)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from porter.base.calls import Command
from porter.base.errors import UsageError
from porter.base.options import JSON, OPTION, OUTPUTS, STOCK, TO, Option
from porter.cli.terminal import write
from porter.frameworks import DESTINATION_NAMES
from porter.zoos import tables

_DESTINATIONS = " or ".join((", ".join(DESTINATION_NAMES[:-1]), DESTINATION_NAMES[-1]))
GivenArguments = dict[str, Any]
"""What was typed, for the function of the API whose parameters have these names. What was not typed is not in
it.
"""


def command(app: typer.Typer, table: Command, **how: Any) -> Callable[[Callable[..., None]], None]:
    """Return a decorator that makes a function a command of `app` with the options of a table. The function
    has the options that are parameters of its own, such as `as_json`; the others are in its parameter
    `given`.

    Args:
        table: the command, its options and its help.
        how: further arguments of Typer's `command`.
    """

    def register(function: Callable[..., None]) -> None:
        """Make `function` run as a command of the app: Typer gets a function with the table's options, which
        calls it.
        """
        options = table.options
        parameters = inspect.signature(function).parameters.keys()

        def run(**typed: Any) -> None:
            """Read the typed options, expect one of those that stand in each other's place, and call the
            function.
            """
            values = {name: _value(options[name], value) for name, value in typed.items()}
            # One of two options is needed, and either will do.
            for name, substitute in table.instead.items():
                if values[name] is None and values[substitute] is None:
                    next = f"add {options[name].placeholder}, or {options[substitute].placeholder}"
                    raise UsageError(f"{options[name]} is missing", next=next)
            given = {
                name: value
                for name, value in values.items()
                if value is not None and name not in (*parameters, JSON.name)
            }
            function(**{name: given if name == "given" else values[name] for name in parameters})

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                _parameter(option, table.default(name), option.required and name not in table.instead)
                for name, option in options.items()
            ]
        )
        run.__annotations__ = {}
        app.command(table.name.split()[-1], help=table.help, **how)(run)

    return register


def _value(option: Option, typed: Any) -> Any:
    """Return the value that the API's parameter has for what was typed; None for what was not typed."""
    read = _READ.get(option)
    return typed if typed is None or read is None else read(typed)


def split_settings(settings: Sequence[str]) -> dict[str, str]:
    """Return the text of each option of a recipe by its name, from `NAME=VALUE`.

    Raises:
        UsageError: one has no `=`, or a name occurs twice.
    """
    by_name: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name in by_name:
            problem = "is set twice" if equals else "is not NAME=VALUE"
            message = f"'{name if equals else setting}' {problem}"
            raise UsageError(message, where=OPTION, next="write NAME=VALUE, each name once")
        by_name[name] = value
    return by_name


_READ: Mapping[Option, Callable[[Any], Any]] = {
    OPTION: split_settings,
    OUTPUTS: lambda names: names.split(","),
    STOCK: lambda library: library or True,
}
"""What gives the parameter's value for what is typed, where that is something else."""


def _parameter(option: Option, default: object, required: bool) -> inspect.Parameter:
    """Return an option as Typer takes it, which makes a command's options from a signature: a parameter with
    an annotation.

    Args:
        default: of the option, where that is of its type; other defaults are the API's own, and Typer gets
            None.
        required: whether it has to be typed.
    """
    has_default = isinstance(default, option.kind) and required == option.required
    default_typed = default if has_default else None
    help = f"{option.help}: {_DESTINATIONS}" if option == TO else option.help
    info = typer.Argument if option.flag is None else typer.Option
    flags = [option.flag] if option.flag else []
    kind: Any = GenericAlias(list, option.kind) if option.many else option.kind
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else default_typed,
        annotation=Annotated[
            kind if has_default or required else kind | None,
            info(*flags, metavar=option.metavar, help=help),
        ],
    )


def help_without_command(context: typer.Context) -> None:
    """Print the help if no command is given, as --help does."""
    if context.invoked_subcommand is None:
        write(context.get_help())


class WithStock(TyperCommand):
    """A command whose `--stock` may have a value, which Typer's options always have or never have."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments. `--stock` may stand without a library, which an option with a value does not
        allow: then it gets an empty one.
        """
        libraries = {library for libraries in tables.STOCK.values() for library in libraries}
        with_next = zip(args, [*args, ""][1:], strict=True)
        completed = [
            "--stock=" if word == "--stock" and next_word not in libraries else word
            for word, next_word in with_next
        ]
        try:
            return super().parse_args(ctx, completed)
        except TyperException:
            # The word behind it may be the variant, or no library at all, which is then said of it.
            if "--stock" not in args[:-1] or args[args.index("--stock") + 1].startswith("-"):
                raise
            return super().parse_args(ctx, list(args))
