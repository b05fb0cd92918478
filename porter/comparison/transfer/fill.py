"""`convert` into a class that exists: finds which tensors go where, fills the class, and proves it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.calls import takes
from porter.base.commands import CONVERT, ConvertOptions
from porter.base.dtypes import Array, NamedArrays, is_floating
from porter.base.errors import CheckFailed, UsageError
from porter.base.options import INTO
from porter.base.package import __version__
from porter.comparison.aligning import align
from porter.comparison.comparison_result import Comparison
from porter.comparison.judging import compare_graphs
from porter.comparison.normal_form import normal_form
from porter.comparison.sides import Side, proved
from porter.comparison.transfer import converter_functions
from porter.comparison.transfer.assigning import assign
from porter.comparison.transfer.converter import About, converter_text, text_of_test
from porter.comparison.transfer.own_class import module_name, name_of, own_model
from porter.comparison.transfer.variable_table import Row, SourceTensors, Tabling, located
from porter.conversion.asked import Wanted, read_asked
from porter.files import new_folder
from porter.formats.safetensors.tensors import read_safetensors, write_safetensors
from porter.frameworks.in_memory import is_model
from porter.frameworks.own_state import OwnState, own_state
from porter.frameworks.reference_models import framework_of
from porter.padding import KnownSize
from porter.port import INTO_RECORD, INTO_SOURCE, OWN_FOLDERS, PASSED, port_at
from porter.port.folder import StoredPort
from porter.source.opened import Opened
from porter.source.place import InMemory


@dataclass(frozen=True)
class Filling:
    """A class with the tensors of a source in it.

    Attributes:
        folder: with its state, the table, the converter and its test.
        model: the user's own.
        source, target: what messages call both.
        file: of the class's state. module: the name of the converter's.
        arrays: the source's tensors that are used. own_file: how numpy reads the file that has them, and the
            file; None where it needs a framework to be read.
        rows: how each variable is made.
        kept: variables that are the class's own: the source has none for them, and no output depends on them.
        comparison: of the source, which is A, and the class.
        converter: the text of convert_NAME.py.
    """

    folder: Path
    model: Any
    source: str
    target: str
    framework: str
    file: str
    module: str
    opened: Opened
    arrays: NamedArrays
    own_file: tuple[str, Path] | None
    rows: tuple[Row, ...]
    kept: tuple[str, ...]
    comparison: Comparison
    converter: str

    @property
    def counts(self) -> dict[str, int]:
        """How many of the source's tensors are used and how many are not (`ignored`), and how many of the
        class's variables are filled with a number.
        """
        used = {name for row in self.rows for name in row.sources}
        fitted = self.opened.fitted
        source_tensors = set() if fitted is None else {*fitted.checkpoint.tensors}
        filled = sum(not row.sources for row in self.rows)
        return {"used": len(used), "ignored": len(source_tensors - used), "filled": filled}

    def record(self) -> dict[str, Any]:
        """Return the record that `porter convert --into --json` prints: the keys that every conversion has,
        then, from `into`, those of a transfer into a class of the user's. Its parity is that of the
        comparison.
        """
        member, facts, comparison = self.opened.member, self.opened.facts, self.comparison.record()
        return {
            "port": str(self.folder),
            "variant": member.variant if member else None,
            "zoo": member.zoo.name if member else None,
            "framework": self.framework,
            "classes": facts.classes,
            "source_classes": facts.source_classes,
            "tensors": self.counts,
            "pads": [],
            "parity": comparison["parity"],
            "check": PASSED,
            "assumed": [*facts.assumed],
            "warnings": [*self.opened.warnings],
            "into": self.target,
            "model": self.file,
            "converter": f"{self.module}.py",
            "kept": [*self.kept],
            "comparison": comparison,
        }


def fill_class(asked: ConvertOptions) -> Filling:
    """Put the tensors of a source into a class that exists, prove it by a comparison, write the folder, and
    return what was done.

    Raises:
        CheckFailed: the class computes something else than the source, with what differs.
        PorterError: as `convert`. After any error the class has its own tensors again, and nothing is
            written.
    """
    _refuse_options_of_ports(asked)
    wanted = read_asked(asked)
    model = own_model(asked.into)
    name = name_of(model)
    folder = Path(asked.out or f"{wanted.name}-{module_name(name)}")
    subject = asked.subject
    source = fspath(subject) if isinstance(subject, str | PathLike) else type(subject).__name__
    target = _target_of(name, model, None if is_model(subject) else asked.example)
    try:
        with new_folder(folder, OWN_FOLDERS if asked.overwrite else None) as building:
            opened = wanted.open()
            filling = _filled(folder, opened, source, target, wanted, _port_of(asked))
            _write(building, filling, target.state)
    except BaseException:
        target.put({})
        raise
    return filling


fill = takes(ConvertOptions)(fill_class)


def _refuse_options_of_ports(asked: ConvertOptions) -> None:
    """Refuse options of a port's own files, which a class of the user's has not."""
    for name in (
        "to",
        "padding",
        "dtype",
        "quantize",
        "allow_overflow",
        "keep_dropout",
        "preprocess",
        "class_names",
        "fold_bn",
        "stock",
        "check",
        "reference",
    ):
        if getattr(asked, name) != CONVERT.default(name):
            option = CONVERT.options[name]
            message = f"{INTO} takes the class as it is, and always compares it with the source"
            raise UsageError(message, where=str(option), next=f"leave out {option} or {INTO}")


def _port_of(asked: ConvertOptions) -> StoredPort | None:
    """Return the port that is the source, if it is one."""
    if asked.source is not None or asked.weights is not None or not isinstance(asked.subject, str | PathLike):
        return None
    return port_at(Path(asked.subject))


@dataclass(frozen=True)
class _OwnModel:
    """The user's model that is filled.

    Attributes:
        side: what messages call it, and where it is.
        state: reads and replaces its variables.
        initial: its variables as they were.
    """

    side: Side
    model: Any
    framework: str
    state: OwnState
    initial: NamedArrays

    def put(self, arrays: NamedArrays) -> None:
        """Give the model these variables, and to the others what they were."""
        self.state.put(self.model, {**self.initial, **arrays})


def _target_of(name: str, model: Any, example: Any) -> _OwnModel:
    """Return a model as one that is filled."""
    framework = str(framework_of(model))
    state = own_state(framework)
    return _OwnModel(Side(name, InMemory(model, example)), model, framework, state, state.variables(model))


def _filled(
    folder: Path, opened: Opened, source_name: str, target: _OwnModel, wanted: Wanted, port: StoredPort | None
) -> Filling:
    """Put the source's tensors into a class, and return it with the comparison of both.

    Args:
        folder: where the class will be written.
        source_name: what messages call the source.
        wanted: what the user asks of the source.
        port: the source, if it is a port.

    Raises:
        CheckFailed: it computes something else.
    """
    input_rows, columns = wanted.size if wanted.size and None not in wanted.size else opened.sizes.built
    assert input_rows is not None and columns is not None
    size = input_rows, columns
    source = SourceTensors(opened)
    rows = _rows(source, target, size, wanted.recipes)
    target.put({row.name: row.made(source.arrays) for row in rows})
    filled = target.side.open(size, wanted.recipes)
    proofs = proved(opened, size, port), proved(filled, size)
    names = source_name, target.side.name
    comparison = compare_graphs(names, (opened, filled), proofs, size)
    if not comparison.ok:
        raise _refusal(comparison)
    made_names = {row.name for row in rows}
    module = f"convert_{module_name(target.side.name)}"
    own_file = _own_file(source)
    about = About(module, *names, own_file[0] if own_file else "safetensors", target.state.LOADING)
    return Filling(
        folder=folder,
        model=target.model,
        source=source_name,
        target=target.side.name,
        framework=target.framework,
        file=target.state.FILE,
        module=module,
        opened=opened,
        arrays=source.arrays,
        own_file=own_file,
        rows=tuple(rows),
        kept=tuple(name for name in target.initial if name not in made_names),
        comparison=comparison,
        converter=converter_text(rows, about),
    )


def _rows(source: SourceTensors, target: _OwnModel, size: KnownSize, recipes: Path | None) -> list[Row]:
    """Return how each of the model's variables is made, in their order: those whose layers are paired with
    the source's, and those that have one number in all cells. Other variables are left out. The model has
    random numbers afterwards, by which its variables were found.
    """
    target.put(dict(_random(target.initial)))
    variables = target.state.variables(target.model)
    opened_target = target.side.open(size, recipes)
    form_a, form_b = (
        normal_form(opened_model.graph, opened_model.tensors, size)
        for opened_model in (source.opened, opened_target)
    )
    values = assign(align(form_a, form_b), size)
    kinds = {node.holder: node.op.name for node in opened_target.graph.nodes}
    tabling = Tabling(source, located(variables, opened_target.tensors), variables, kinds)
    rows = {row.name: row for row in tabling.rows(values)}
    used = {name for name, _ in tabling.places.values()}
    for name, array in target.initial.items():
        if name in rows or name in used or not array.size:
            continue
        number = array.reshape(-1)[0]
        if (array == number).all():
            rows[name] = Row(name, {"": float(number)}, array.shape, array.dtype.name)
    return [rows[name] for name in target.initial if name in rows]


def _random(initial: NamedArrays) -> Iterator[tuple[str, Array]]:
    """Yield by name numbers that tell variables and their axes apart; those of a class that was just built
    may be all the same. All are above 0, as variances are.
    """
    rng = np.random.default_rng(0)
    for name, array in initial.items():
        if is_floating(array) and array.size:
            share = max(array.shape, default=1) / array.size  # so that values stay small behind many layers
            yield name, (rng.uniform(0.5, 1.5, array.shape) * share).astype(array.dtype)


def _refusal(comparison: Comparison) -> CheckFailed:
    """Return the error that the class is not filled, with what the comparison found."""
    lines = [" ".join(line.split()) for line in comparison.lines()[1:]]
    end = f"A is {comparison.a}, B is {comparison.b}: let B compute what A does; no file was written"
    return CheckFailed(comparison.summary, where=comparison.b, next="\n".join([*lines, end]))


def _own_file(source: SourceTensors) -> tuple[str, Path] | None:
    """Return how numpy reads the source's own file so that it has these tensors, `safetensors` or `h5`, and
    the file; None where it needs a framework to be read, or has other tensors.
    """
    fitted = source.opened.fitted
    if fitted is None or source.own or source.opened.in_memory is not None:
        return None
    path = fitted.checkpoint.path
    tensors: NamedArrays = {}
    if not path.is_file():
        return None
    reader = "safetensors" if fitted.checkpoint.format == "safetensors" else "h5"
    if reader == "safetensors":
        tensors = read_safetensors(path).tensors
    elif path.suffix in (".h5", ".hdf5") and find_spec("h5py") is not None:
        tensors = converter_functions.read_h5(path)
    has_tensors = all(
        name in tensors and np.array_equal(tensors[name], array) for name, array in source.arrays.items()
    )
    return (reader, path) if has_tensors else None


def _write(folder: Path, filling: Filling, state: OwnState) -> None:
    """Write into the folder the class's state, the table (into.json), the converter and its test; and the
    source's tensors, where its own file needs a framework to be read.
    """
    state.save(filling.model, folder)
    if filling.own_file is None:
        write_safetensors(folder / INTO_SOURCE, filling.arrays)
    variables = state.variables(filling.model)
    table = [
        {**row.record(), "sha256": sha256(np.ascontiguousarray(variables[row.name]).tobytes()).hexdigest()}
        for row in filling.rows
    ]
    record = {"porter": __version__, **filling.record(), "tensors": table}
    # The folder may be moved.
    del record["port"]
    (folder / INTO_RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (folder / f"{filling.module}.py").write_text(filling.converter, encoding="utf-8")
    source = (
        f'HERE / "{INTO_SOURCE}"' if filling.own_file is None else repr(str(filling.own_file[1].resolve()))
    )
    (folder / f"test_{filling.module}.py").write_text(text_of_test(filling.module, source), encoding="utf-8")
