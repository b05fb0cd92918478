"""`convert` into a class that exists: finds which tensors go where, fills the class, and proves it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from porter.base.commands import ConvertOptions, takes
from porter.base.dtypes import Array, NamedArrays, is_floating
from porter.base.errors import CheckFailed, UsageError
from porter.base.options import INTO
from porter.base.package import __version__
from porter.comparison.aligning import align
from porter.comparison.compare import Comparison, judged
from porter.comparison.normal_form import normal_form
from porter.comparison.sides import Side, proved
from porter.comparison.transfer import RECORD, SOURCE_FILE, converter_functions
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
from porter.port import port_at
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
        """Return how many of the source's tensors are used and not, and how many variables are filled with a
        number.
        """
        used = {name for row in self.rows for name in row.sources}
        fitted = self.opened.fitted
        own = set() if fitted is None else {*fitted.checkpoint.tensors}
        filled = sum(not row.sources for row in self.rows)
        return {"used": len(used), "ignored": len(own - used), "filled": filled}

    def record(self) -> dict[str, Any]:
        """Return the record that `porter convert --into --json` prints: the keys that every conversion has,
        then, from `into`, those of a transfer into a class of the user's. Its parity is that of the
        comparison.
        """
        member, facts, found = self.opened.member, self.opened.facts, self.comparison.record()
        return {
            "port": str(self.folder),
            "variant": member.variant if member else None,
            "zoo": member.zoo.name if member else None,
            "framework": self.framework,
            "classes": facts.classes,
            "source_classes": facts.source_classes,
            "tensors": self.counts,
            "pads": [],
            "parity": found["parity"],
            "check": "passed",
            "assumed": [*facts.assumed],
            "warnings": [*self.opened.warnings],
            "into": self.target,
            "model": self.file,
            "converter": f"{self.module}.py",
            "kept": [*self.kept],
            "comparison": found,
        }


@takes(ConvertOptions)
def fill(asked: ConvertOptions) -> Filling:
    """Put the tensors of a source into a class that exists, prove it by a comparison, write the folder, and
    return what was done.

    Raises:
        CheckFailed: the class computes something else than the source, with what differs. The class has its
            own tensors again then, and nothing is written.
        PorterError: as `convert`.
    """
    _expect_together(asked)
    wanted = read_asked(asked)
    model = own_model(asked.into)
    target = name_of(model)
    folder = Path(asked.out or f"{wanted.name}-{module_name(target)}")
    with new_folder(folder, asked.overwrite) as building:
        opened = wanted.open()
        named = asked.subject if isinstance(asked.subject, str | PathLike) else type(asked.subject).__name__
        names = fspath(named), target
        example = None if is_model(asked.subject) else asked.example
        filling = _filled(opened, names, InMemory(model, example), wanted, _port_of(asked))
        made = replace(filling, folder=folder)
        _write(building, made, own_state(made.framework))
    return made


def _expect_together(asked: ConvertOptions) -> None:
    """Refuse options of a port's own files, which a class of the user's has not."""
    usual = {each.name: each.default for each in ConvertOptions.__dataclass_fields__.values()}
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
        if getattr(asked, name) != usual[name]:
            option = ConvertOptions.__dataclass_fields__[name].type.__metadata__[0]  # type: ignore[union-attr]
            message = f"{INTO} takes the class as it is, and always compares it with the source"
            raise UsageError(message, where=str(option), next=f"leave out {option} or {INTO}")


def _port_of(asked: ConvertOptions) -> StoredPort | None:
    """Return the port that is the source, if it is one."""
    if asked.source is not None or asked.weights is not None or not isinstance(asked.subject, str | PathLike):
        return None
    return port_at(Path(asked.subject))


def _filled(
    opened: Opened, names: tuple[str, str], place: InMemory, wanted: Wanted, port: StoredPort | None
) -> Filling:
    """Return the class with the source's tensors, which are put into it and compared.

    Raises:
        CheckFailed: it computes something else. Its own tensors are in it then.
    """
    model: Any = place.model
    framework = str(framework_of(model))
    state = own_state(framework)
    side = Side(names[1], place)
    rows_, columns = wanted.size if wanted.size and None not in wanted.size else opened.sizes.built
    assert rows_ is not None and columns is not None
    size = rows_, columns
    initial = state.variables(model)
    try:
        source = SourceTensors(opened)
        rows = _table(source, side, state, model, initial, size, wanted.recipes)
        state.put(model, {**initial, **{row.name: row.made(source.arrays) for row in rows}})
        own = side.open(size, wanted.recipes)
        proofs = proved(opened, size, port), proved(own, size)
        found = judged(names, (opened, own), proofs, size)
        if not found.ok:
            raise _refusal(found)
    except BaseException:
        state.put(model, initial)
        raise
    known = {row.name for row in rows}
    kept = tuple(name for name in initial if name not in known)
    module = f"convert_{module_name(names[1])}"
    own_file = _own_file(source)
    about = About(module, *names, own_file[0] if own_file else "safetensors", state.LOADING)
    return Filling(
        folder=Path(),
        model=model,
        source=names[0],
        target=names[1],
        framework=framework,
        file=state.FILE,
        module=module,
        opened=opened,
        arrays=source.arrays,
        own_file=own_file,
        rows=tuple(rows),
        kept=kept,
        comparison=found,
        converter=converter_text(rows, about),
    )


def _table(
    source: SourceTensors,
    side: Side,
    state: OwnState,
    model: Any,
    initial: NamedArrays,
    size: KnownSize,
    recipes: Path | None,
) -> list[Row]:
    """Return how each of the model's variables is made, in their order: those whose layers are paired with
    the source's, and those that have one number in all cells. Other variables are left out. The model has
    random numbers afterwards, by which its variables were found.
    """
    variables = dict(_random(initial))
    state.put(model, {**initial, **variables})
    variables = state.variables(model)
    own = side.open(size, recipes)
    one, other = (normal_form(each.graph, each.tensors, size) for each in (source.opened, own))
    values = assign(align(one, other), size)
    kinds = {node.holder: node.op.name for node in own.graph.nodes}
    tabling = Tabling(source, located(variables, own.tensors), variables, kinds)
    rows = {row.name: row for row in tabling.rows(values)}
    used = {name for name, _ in tabling.places.values()}
    for name, array in initial.items():
        if name not in rows and name not in used and array.size and (array == array.reshape(-1)[0]).all():
            number = float(array.reshape(-1)[0])
            rows[name] = Row(name, {"": number}, array.shape, array.dtype.name)
    return [rows[name] for name in initial if name in rows]


def _random(initial: NamedArrays) -> Iterator[tuple[str, Array]]:
    """Yield by name numbers that tell variables and their axes apart; those of a class that was just built
    may be all the same. All are above 0, as variances are.
    """
    rng = np.random.default_rng(0)
    for name, array in initial.items():
        if is_floating(array) and array.size:
            share = max(array.shape, default=1) / array.size  # so that values stay small behind many layers
            yield name, (rng.uniform(0.5, 1.5, array.shape) * share).astype(array.dtype)


def _refusal(found: Comparison) -> CheckFailed:
    """Return the error that the class is not filled, with what the comparison found."""
    said = [" ".join(line.split()) for line in found.lines()[1:]]
    end = f"A is {found.a}, B is {found.b}: let B compute what A does; no file was written"
    return CheckFailed(found.summary, where=found.b, next="\n".join([*said, end]))


def _own_file(source: SourceTensors) -> tuple[str, Path] | None:
    """Return how numpy reads the source's own file so that it has these tensors, `safetensors` or `h5`, and
    the file; None where it needs a framework to be read, or has other tensors.
    """
    fitted = source.opened.fitted
    if fitted is None or source.own or source.opened.in_memory is not None:
        return None
    path = fitted.checkpoint.path
    known: NamedArrays = {}
    if not path.is_file():
        return None
    read = "safetensors" if fitted.checkpoint.format == "safetensors" else "h5"
    if read == "safetensors":
        known = read_safetensors(path).tensors
    elif path.suffix in (".h5", ".hdf5") and find_spec("h5py") is not None:
        known = converter_functions.read_h5(path)
    same = all(name in known and np.array_equal(known[name], array) for name, array in source.arrays.items())
    return (read, path) if same else None


def _write(folder: Path, made: Filling, state: OwnState) -> None:
    """Write the class's state, the table, the converter and its test; and the source's tensors, where its own
    file needs a framework to be read.
    """
    state.save(made.model, folder)
    if made.own_file is None:
        write_safetensors(folder / SOURCE_FILE, made.arrays)
    variables = state.variables(made.model)
    table = [
        {**row.record(), "sha256": sha256(np.ascontiguousarray(variables[row.name]).tobytes()).hexdigest()}
        for row in made.rows
    ]
    record = {"porter": __version__, **made.record(), "tensors": table}
    # The folder may be moved.
    del record["port"]
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (folder / f"{made.module}.py").write_text(made.converter, encoding="utf-8")
    at = f'HERE / "{SOURCE_FILE}"' if made.own_file is None else repr(str(made.own_file[1].resolve()))
    (folder / f"test_{made.module}.py").write_text(text_of_test(made.module, at), encoding="utf-8")
