"""What is made of a table of options: a command with the lines that call it, and the function of the API with
its signature.
"""

import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property, wraps
from os import PathLike
from types import NoneType
from typing import Any, ForwardRef, ParamSpec, TypeVar

from porter.base import options as opt
from porter.base.argument_types import expect_kind, types_of_union
from porter.base.call_context import asked_for, asked_meanwhile, for_a_program
from porter.base.options import Asked, Option, in_python

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Command:
    """A command: its name, what its help says, and the class of its options, in the order of its help.

    Attributes:
        function: of the API, with the same options; None where only the command line has it.
        printing: options of what the command line prints, which no function has, beside `--json`.
        instead: parameters that have to be typed, unless another one is, which has these names.
    """

    name: str
    help: str
    values: type
    function: str | None = None
    printing: tuple[Option, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def options(self) -> Mapping[str, Option]:
        """The options of the command by the names of their parameters."""
        return _options_of(self.values) | {option.name: option for option in (*self.printing, opt.JSON)}

    def default(self, name: str) -> object:
        """Return the value that an option has where it is not given; None for one that has to be given. A
        switch that belongs to the command line, such as `--open`, is off.
        """
        if name not in self._defaults:  # an option of `printing`
            return False if self.options[name].kind is bool else None
        default = self._defaults[name]
        return None if default is MISSING else default

    @cached_property
    def _defaults(self) -> Mapping[str, object]:
        """The default of each parameter, MISSING for one that has none."""
        return {option_field.name: option_field.default for option_field in fields(self.values)}

    def line(self, **values: object) -> str:
        """Return the command as it is typed to give its options these values, in their order, such as `porter
        convert resnet50v2 --from keras`; defaults are left out.
        """
        words = (
            word
            for name, value in values.items()
            if self.options[name].required or value != self.default(name)
            for word in self.options[name].words(value)
        )
        return shlex.join(("porter", *self.name.split(), *words))

    def advise(self, **values: object) -> str:
        """Return the command as a message advises it: as it is typed or, to a program in Python, as the call
        of the function, where there is one, such as `porter.convert("resnet50v2", source="keras")`. An Asked
        stands for what the running command was asked for.
        """
        known = {name: _value_asked_for(name, value) for name, value in values.items()}
        only_typed = self.function is None or any(option.name in known for option in self.printing)
        if only_typed or not for_a_program():
            return self.line(**known)
        arguments = []
        for name, value in known.items():
            option = self.options[name]
            has_to_be_given = option.required or self._defaults.get(name) is MISSING
            says_something = value not in (self.default(name), None, "", (), [], {})
            if has_to_be_given or says_something:
                arguments.append(in_python(value) if option.flag is None else option(value))
        return f"porter.{self.function}({', '.join(arguments)})"


def _value_asked_for(name: str, value: object) -> object:
    """Return what the running command was asked for under an option's name, if `value` is a word that stands
    for it; other values as they are, and so the word where nothing was asked.
    """
    if not isinstance(value, Asked):
        return value
    asked = (values.get(name) for values in asked_for())
    return next((given for given in asked if isinstance(given, str | PathLike)), value)


def takes(values: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """Return a decorator for a function of one value, a command's options: it becomes a function whose
    parameters are these options, for `import porter` and the command line.

    Raises:
        UsageError: an argument is of another kind than its option.
    """
    options, annotations = _options_of(values), _annotations_of(values)

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        """Give a function the signature of its options, as `help` and editors show it."""
        signature = _signature_of(values, function.__annotations__["return"])

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            """Check each argument, and call the function with the options as one value."""
            given = signature.bind(*args, **kwargs).arguments
            for name, option in options.items():
                if name in given:
                    expect_kind(option, given[name], annotations[name].__origin__)
            with asked_meanwhile(given):
                return function(values(*args, **kwargs))

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = {
            **{name: parameter.annotation for name, parameter in signature.parameters.items()},
            "return": signature.return_annotation,
        }
        return call

    return decorate


def _signature_of(values: Callable[..., object], result: str) -> inspect.Signature:
    """Return the signature of a function of a command's options that returns `result`, a type's text."""
    signature = inspect.signature(values)
    parameters = [
        parameter.replace(annotation=_type_text(parameter.annotation.__origin__))
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters, return_annotation=_UnquotedText(result))


def _options_of(values: Any) -> dict[str, Option]:
    """Return the options of a command by the names of their fields. An example is given in Python only."""
    options = {name: kind.__metadata__[0] for name, kind in _annotations_of(values).items()}
    return {name: option for name, option in options.items() if option is not None}


def _annotations_of(values: Any) -> dict[str, Any]:
    """Return the annotations of the fields by name, each of which is Annotated[type, Option]."""
    return {option_field.name: option_field.type for option_field in fields(values)}


_MODULE_PREFIXES = re.compile(r"\b(?:os|collections\.abc)\.")


class _UnquotedText(str):
    """A type's name as `help` shows it: without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _type_text(kind: Any) -> str:
    """Return a type as an editor shows it; those of frameworks are texts already."""
    return _UnquotedText(" | ".join(map(_one_type_text, types_of_union(kind))))


def _one_type_text(kind: Any) -> str:
    """Return one type, as opposed to a union, as an editor shows it."""
    if isinstance(kind, ForwardRef):
        return kind.__forward_arg__
    return "None" if kind is NoneType else _MODULE_PREFIXES.sub("", inspect.formatannotation(kind))
