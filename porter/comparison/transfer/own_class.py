"""The model that a user names by `into`: one in memory, or what a class or a function of theirs gives."""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module
from os import PathLike, fspath
from typing import Any

from porter.base.errors import UsageError, first_line
from porter.base.options import INTO
from porter.frameworks.in_memory import is_model
from porter.recipe.spelling import hint
from porter.verification.references.user_code import (
    expect_model,
    model_of_code,
    parse_code,
    running_own_code,
)

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def own_model(into: object) -> Any:
    """Return the model of a user's class, in inference mode; one in memory as it is.

    Args:
        into: a model, a class or a function that is called without arguments, or the text of one:
            `FILE.py:CALLABLE`, whose file is run, or `package.module.Class`, which is imported.

    Raises:
        UsageError: it is none of these, or its code raises an exception.
        NotInstalled: it imports a framework that is not installed.
    """
    if is_model(into):
        return into
    if isinstance(into, str | PathLike):
        text = fspath(into)
        code = parse_code(text)
        if code is not None:
            return model_of_code(*code)
        into = _imported(text)
    if not callable(into):
        message = f"got an object of {type(into).__name__}, expected a model, a class or a function"
        raise UsageError(message, where=str(INTO), next=f"give {INTO.metavar}")
    name = getattr(into, "__name__", "it")
    next_step = "write a function that makes the model without arguments, and name it as FILE.py:CALLABLE"
    with running_own_code(partial(_refusal, f"{name}() raises", next_step)):
        return expect_model(into(), name, str(INTO))


def _imported(import_path: str) -> object:
    """Return the class or function at an import path such as `package.module.Class`.

    Raises:
        UsageError: it is no such path, or the import fails.
    """
    if not _DOTTED.fullmatch(import_path):
        message = f"'{import_path}' names no class"
        raise UsageError(message, where=str(INTO), next=f"give {INTO.metavar}")
    module, _, name = import_path.rpartition(".")
    next_step = "install its package, or give FILE.py:CALLABLE"
    with running_own_code(partial(_refusal, f"'{module}' cannot be imported:", next_step)):
        imported = import_module(module)
        if not hasattr(imported, name):
            raise UsageError(f"{module} has no '{name}'", where=str(INTO), next=hint(name, dir(imported)))
        return getattr(imported, name)


def _refusal(failed: str, next_step: str, error: BaseException) -> UsageError:
    """Return the error that the user's code `failed`, with the exception that it raised."""
    return UsageError(
        f"{failed} {type(error).__name__}: {first_line(error)}", where=str(INTO), next=next_step
    )


def name_of(model: Any) -> str:
    """Return what messages call a model: its class, or where that is one of a library's for all models, its
    name.
    """
    wrapped = getattr(model, "to_nnx__module", model)  # linen's, in nnx.bridge.ToNNX
    kind = type(wrapped).__name__
    return str(getattr(model, "name", kind)) if kind in ("Functional", "Sequential", "Model") else kind


def module_name(name: str) -> str:
    """Return a name as that of a module of Python: `ResNetBackbone` is `resnet_backbone`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z]{3})", "_", name)
    words = re.sub(r"\W+", "_", words).strip("_").lower()
    return words or "model"
