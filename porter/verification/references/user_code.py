"""A user's own code, run only where the user names it as `FILE.py:CALLABLE` or by its import path: never for
a recipe or a port.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from typing import Any

from porter.base.errors import NotInstalled, PorterError, UsageError, first_line, shortened
from porter.base.package import install
from porter.formats.triton import load_triton
from porter.frameworks.reference_models import framework_of
from porter.recipe.spelling import hint

_CODE = re.compile(r"(?P<file>.+\.py):(?P<name>[^:/\\]+)", re.DOTALL)
_EXTRAS = {
    "torch": install("torch"),
    **dict.fromkeys(("keras", "tensorflow"), install("tf")),
    **dict.fromkeys(("jax", "flax"), install("flax")),
}


def parse_code(text: str) -> tuple[Path, str] | None:
    """Return the file and the callable of `FILE.py:CALLABLE`; None for other text."""
    code = _CODE.fullmatch(text)
    return code and (Path(code["file"]), code["name"])


@contextmanager
def running_model(name: str) -> Iterator[None]:
    """Run a model that the user holds inside this context.

    Raises:
        UsageError: it raised an exception.
    """
    try:
        yield
    except (PorterError, KeyboardInterrupt, GeneratorExit):
        raise
    except Exception as error:  # whatever the model's own code raises
        raise UsageError(
            f"{type(error).__name__}: {first_line(error)}",
            where=name,
            next="porter runs it on several images: nothing in it may depend on their number",
        ) from None


@contextmanager
def running_own_code(refusal: Callable[[BaseException], PorterError]) -> Iterator[None]:
    """Run a user's code inside this context: what it prints goes to stderr, and an exception is told by the
    error that `refusal` makes of it.

    Raises:
        PorterError: the code raised an exception.
    """
    load_triton()  # the code may import TensorFlow
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (PorterError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # SystemExit too, and what the code derives from BaseException
        raise refusal(error) from None


@contextmanager
def running_code(file: Path) -> Iterator[None]:
    """Run the user's code of `file` inside this context: it can import files beside it, what it prints goes
    to stderr, and an exception is told with the line of the user's code where it was raised.

    Raises:
        UsageError: the code raised an exception.
        NotInstalled: the code imports a framework that is not installed.
    """
    folder = str(file.resolve().parent)
    with running_own_code(partial(_error_at_user_line, file)):
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            if folder in sys.path:
                sys.path.remove(folder)


def _error_at_user_line(file: Path, error: BaseException) -> PorterError:
    """Return the error for an exception in a user's code, placed at the last line of that code that ran. It
    is NotInstalled where a framework that porter knows is missing, otherwise a UsageError.
    """
    folder = file.resolve().parent
    lines = [(frame.filename, frame.lineno) for frame in extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((error.filename, error.lineno))
    # the frames in the user's own files; those of libraries say little
    own_lines = [(name, line) for name, line in lines if Path(name).resolve().parent == folder]
    name, line = own_lines[-1] if own_lines else (str(file), None)
    # the user's file as the user wrote it
    where = str(file) if Path(name).resolve() == file.resolve() else name
    where = f"{where}:{line}" if line else where
    text_lines = str(error).strip().splitlines()
    message = type(error).__name__
    if text_lines:
        message = f"{message}: {shortened(text_lines[0])}"
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        return NotInstalled(message, where=where, next=_EXTRAS[error.name])
    return UsageError(message, where=where, next="this is your own code, which porter runs")


def load_maker(file: Path, name: str) -> Callable[[], Any]:
    """Run a Python file and return its callable `name`, such as `build` or `nets.build`, which makes a model.

    Raises:
        UsageError: the code raises an exception, or has no such callable.
        NotInstalled: as `running_code`.
    """
    spec = spec_from_file_location(f"code_{file.stem}", file)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = module_from_spec(spec)
    with running_code(file):
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    try:
        target = attrgetter(name)(module)
    except AttributeError:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise UsageError(f"the code has no '{name}'", where=file, next=hint(name, known)) from None
    if framework_of(target) is not None:
        next = f"write a function that makes it: def build(): return {name}"
        raise UsageError(
            f"'{name}' is a model, and FILE.py:CALLABLE names what makes one", where=file, next=next
        )
    if not callable(target):
        raise UsageError(
            f"'{name}' cannot be called",
            where=file,
            next="name a class or a function that gives the model",
        )
    make: Callable[[], Any] = target
    return make


def model_of_code(file: Path, name: str) -> Any:
    """Make the model that the callable `name` of a user's code gives, in inference mode.

    Raises:
        UsageError: as `load_maker`, or it makes no model.
        NotInstalled: as `running_code`.
    """
    if not file.exists():
        raise UsageError("there is no such file", where=file, next="check the path")
    make = load_maker(file, name)
    with running_code(file):
        return expect_model(make(), name, file)


def expect_model(model: Any, name: str, where: str | Path) -> Any:
    """Expect that what a callable gave is a model, and put it in inference mode. The model's own code does
    that, and may raise anything.

    Raises:
        UsageError: it is none.
    """
    if expect_framework(model, name, where) != "tf":
        model.eval()
    return model


def expect_framework(model: Any, name: str, where: str | Path) -> str:
    """Return the framework of the model that a callable gave.

    Raises:
        UsageError: it is no model.
    """
    framework = framework_of(model)
    if framework is None:
        expected = "a torch.nn.Module, a keras.Model or an nnx.Module"
        message = f"{name}() gives a {type(model).__name__}, expected {expected}"
        raise UsageError(message, where=where, next="let it return the model")
    return framework
