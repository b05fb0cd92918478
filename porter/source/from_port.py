"""A port as the source of another one."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np

from porter.base.commands import CONVERT, FRAMEWORK
from porter.base.errors import UsageError
from porter.base.options import KEEP_ACTIVATION, MAP, ORIGIN, OUTPUTS, RECIPES
from porter.frameworks import is_converted, other_than
from porter.padding.sizes import size_text
from porter.port import Facts, Record, SourceFile, StoredPort, TensorLists
from porter.recipe import Member, find_member
from porter.source.opened import Opened
from porter.source.wishes import Wishes, expect_no_options


def open_port(port: StoredPort, member: Member | None) -> Opened:
    """Open a port as the source of another port, with the tensors, the graph and the facts that it records.

    Args:
        member: what it is a port of; None for a port without a recipe, and where the recipe is not needed.

    Raises:
        UsageError: it is not a port of `member`, or its file does not keep the source's tensors.
    """
    folder, record = port.folder, port.record
    if member is not None and (record.variant, record.zoo) != member.is_a:
        raise UsageError(
            f"this is a port of {record.name}, not of {member.name}",
            where=str(folder),
            next=CONVERT.advise(
                subject=record.variant or folder,
                source=record.zoo,
                to=FRAMEWORK,
                weights=folder if record.variant else None,
            ),
        )
    if is_converted(port.destination):
        raise UsageError(
            f"this port does not keep the source's tensors: {port.destination.MODEL_FILE} holds what the "
            "converter computed from them",
            where=str(folder),
            next=convert_model_file(port),
        )
    tensors = port.tensors()
    for path, seen in record.batches.items():
        # port.json has the batches that a norm has seen, which the model's file lacks.
        tensors.get(path, {})["batches"] = np.array(seen, np.int64)
    used = {f"{path}:{role}": f"{path}:{role}" for path in port.graph.calls for role in tensors.get(path, {})}
    return Opened(
        member=member,
        framework=member.zoo.framework if member else record.framework,
        graph=port.graph,
        facts=Facts(**{**record.by_name(), "source_classes": record.classes, "evaluated": ()}),
        sizes=record.input.sizes,
        tensors=tensors,
        lists=TensorLists(used=used, ignored={}, filled={}),
        file=SourceFile(
            file=port.destination.MODEL_FILE,
            format="port",
            sha256=record.model[port.destination.MODEL_FILE],
            published=False,
        ),
    )


def expect_wishes_of_port(port: StoredPort, wishes: Wishes) -> None:
    """Refuse wishes that only the file that the port was made from can grant.

    Raises:
        UsageError: with what was wished.
    """
    expect_no_options(wishes, str(port.folder), "a port's graph is in its port.json")
    if wishes.origin not in (None, port.record.zoo):
        message = f"the port is of {port.record.name}, and {ORIGIN} says {wishes.origin}"
        raise UsageError(
            message, where=str(ORIGIN), next="leave it out, or give the file that the port was made from"
        )
    taken_off = port.record.activation if wishes.keep_activation else None
    if wishes.map or wishes.outputs or taken_off:
        option = str(OUTPUTS if wishes.outputs else KEEP_ACTIVATION)
        # The mapping is named first, if several of them are asked for.
        if wishes.map:
            option = str(MAP)
        reason = (
            f"the port was made without the {taken_off} of its source"
            if taken_off
            else "a port has the layers that it was made with"
        )
        next = f"leave out {option}, or convert {port.record.source.file}, which the port was made from"
        raise UsageError(reason, where=option, next=next)


def convert_model_file(port: StoredPort, write_command: Callable[..., str] = CONVERT.advise) -> str:
    """Return the command that ports the model's file of a port, such as its .onnx, instead of the port: that
    file is all that a converted port has. A file that may state no size gets the port's own.

    Args:
        write_command: CONVERT.advise inside a sentence, CONVERT.line if the command is printed to be typed.
    """
    record, file = port.record, port.folder / port.destination.MODEL_FILE
    size = size_text(record.input.native_size) if record.input.size is None else None
    return write_command(subject=file, to=other_than(record.framework), input_size=size)


def find_member_of(record: Record, recipes: Path | None) -> Member | None:
    """Return the variant and zoo that a port was made of; None for a port without a recipe.

    Args:
        recipes: the folder that `--recipes` names.

    Raises:
        UsageError: there is no such variant, or it was in the folder of `--recipes`, which may have a name of
            porter's own recipes.
    """
    if record.variant is None or record.zoo is None:
        return None
    if record.recipes is not None and recipes is None:
        next = f"add {RECIPES(shlex.quote(record.recipes))}"
        raise UsageError(f"the recipe of '{record.variant}' was found in {record.recipes}", next=next)
    return find_member(record.variant, record.zoo, recipes)
