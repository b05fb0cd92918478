"""The steps of every conversion: read, match names, change layout, realise padding, write, check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from porter.conversion.writing import Target, Written, write_plain, write_stock
from porter.dtypes import DTYPES, Dtype
from porter.errors import CheckFailed, MissingFramework, UsageError
from porter.files import new_folder
from porter.fitting.wishes import NONE, Wishes
from porter.frameworks import Framework, get_framework
from porter.graph import BatchNorm
from porter.graph.pads import pads_of
from porter.graph.record import to_record
from porter.identify.doors import open_file, open_member
from porter.package import __version__
from porter.padding import Size
from porter.padding.sizes import parse_size
from porter.port import AGREES, NOT_MADE, PASSED, Input, Padding, Port, Record, read_port, write_record
from porter.recipe import Member, choose_options, find_member, recipes_option
from porter.recipe.expressions import Value
from porter.recipe.published import is_non_commercial
from porter.source.opened import Opened
from porter.source.trained import parse_padding, with_padding

if TYPE_CHECKING:
    from porter.verification.given import Given
    from porter.verification.verdict import Verdict


@dataclass(frozen=True)
class Conversion:
    """A finished port, the warnings about it, and the comparison with its source, if one was made."""

    port: Port
    verdict: Verdict | None
    warnings: tuple[str, ...]

    @property
    def norms(self) -> tuple[str, ...]:
        """The batch norms of the port: after folding, those that stay."""
        return tuple(node.path for node in self.port.graph.nodes if isinstance(node.op, BatchNorm))

    def record(self) -> dict[str, Any]:
        """As `porter convert --json` prints it."""
        record = self.port.record
        lists = record.tensors
        return {
            "port": str(self.port.folder),
            "variant": record.variant,
            "zoo": record.zoo,
            "framework": record.framework,
            "classes": record.classes,
            "source_classes": record.source_classes,
            "output": record.output,
            "activation": record.activation,
            "tensors": {"used": len(lists.used), "ignored": len(lists.ignored), "filled": len(lists.filled)},
            "pads": [pad.model_dump() for pad in record.pads],
            "folded": None if record.folded is None else {"norms": len(record.folded), "kept": list(self.norms)},
            "stock_class": record.stock_class,
            "parity": record.parity,
            "check": record.check,
            "assumed": list(record.assumed),
            "warnings": list(self.warnings),
        }


def convert(
    subject: str,
    source: str | None,
    destination: str,
    *,
    weights: Path | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    padding: str = "shipped",
    input_size: str | None = None,
    dtype: str = "float32",
    allow_overflow: bool = False,
    keep_background: bool = False,
    keep_activation: bool = False,
    mapped: tuple[str, ...] = (),
    options: Mapping[str, Value] | None = None,
    fold_bn: bool = False,
    stock: bool = False,
    checked: bool | None = None,
    reference: str | None = None,
    recipes: Path | None = None,
) -> Conversion:
    """Ports the variant `subject` from the zoo or framework `source`, or without a source the file `subject`, to the framework
    `destination`. See porter.convert.
    """
    framework, stored_as = get_framework(destination), parse_dtype(dtype)
    size = None if input_size is None else parse_size(input_size)
    if fold_bn and stock:
        raise UsageError(
            "stock classes have batch norms, so none can be folded", where="--fold-bn", next="leave out one of the two"
        )
    given: Given | None = None
    if reference is not None:
        from porter.verification.given import parse_reference

        given = parse_reference(reference)
        if checked is False:
            raise UsageError("a reference is compared with the port", where="--no-check", next="leave out one of the two")
    pads: Padding | None = None
    if source is None:
        needing = {"--weights": weights, "--map": mapped, "--option": options, "--padding": padding != "shipped"}
        from porter.identify.doors import expect_file

        file = expect_file(subject, recipes, [name for name, given in needing.items() if given])
        wishes = Wishes(keep_background, mapped, size=size, keep_activation=keep_activation)
        opening = partial(open_file, file, wishes, recipes)
        name = file.name if file.is_dir() else file.stem
    else:
        if keep_activation:
            raise UsageError("a recipe's port gives logits", where="--keep-activation", next="porter convert FILE --to FRAMEWORK")
        member = find_member(subject, source, recipes)
        wishes = Wishes(keep_background, mapped, choose_options(member.recipe, options or {}))
        pads = parse_padding(padding, member)
        opening = partial(open_member, member, weights, wishes)
        name = f"{subject}-{member.zoo.name}"
    folder = out or Path(f"{name}-{framework.NAME}")
    with new_folder(folder, overwrite) as building:
        opened = opening() if pads is None else with_padding(opening(), pads)
        if size is None:
            opened = replace(opened, facts=opened.stating(assumed=(*opened.facts.assumed, *opened.assumed_size)))
        size = size or opened.sizes.built
        if not opened.sizes.takes(size):
            message = "the file holds for {}x{} only: numbers in it were computed from that size".format(*opened.sizes.built)
            raise UsageError(message, where="--input-size", next="leave it out, or export the model with open sizes")
        target = Target(framework, size, stored_as, allow_overflow)
        written = write_stock(building, opened, target) if stock else write_plain(building, opened, target, fold_bn)
        record = _record(opened, written, target, wishes, recipes)
        verdict: Verdict | None = None
        warnings: tuple[str, ...] = ()
        if checked is not False:
            write_record(building, record)
            verdict, found, warnings = _check(read_port(building, held=False), opened, given, checked is True, size)
            record = record.model_copy(update=found)
        write_record(building, record)
    warnings = (*opened.warnings, *written.warnings, *_record_warnings(record, opened.member), *warnings)
    return Conversion(read_port(folder, held=False), verdict, warnings)


def write_trial(folder: Path, opened: Opened) -> Port:
    """Writes a plain port of a source to its own framework, for a comparison only."""
    target = Target(get_framework(opened.framework.NAME), opened.sizes.built)
    write_record(folder, _record(opened, write_plain(folder, opened, target), target, NONE, None))
    return read_port(folder, held=False)


def parse_dtype(text: str) -> Dtype:
    """One of porter.dtypes.DTYPES."""
    for dtype in DTYPES:
        if dtype == text:
            return dtype
    raise UsageError(f"'{text}' is no storage type", where="--dtype", next=f"write one of {', '.join(DTYPES)}")


def _record(opened: Opened, written: Written, target: Target, wishes: Wishes, recipes: Path | None) -> Record:
    member, plan, stock, framework = opened.member, written.plan, written.stock, target.framework
    return Record(
        **opened.facts.facts,
        format=1,
        architecture=member.recipe.architecture if member else None,
        variant=member.variant if member else None,
        zoo=member.zoo.name if member else None,
        framework=framework.NAME,
        graph=to_record(plan.graph),
        input=Input(
            layout=framework.INPUT_LAYOUT,
            size=plan.only_size,
            native_size=opened.sizes.built,
            channels=plan.graph.channels,
            traced=opened.sizes.only is not None,
        ),
        source=opened.file,
        model=dict(sorted(written.model.items())),
        pads=pads_of(plan),
        chosen=dict(wishes.options),
        recipes=str(recipes) if member and recipes_option(member.recipe, recipes) else None,
        layers=dict(written.layers),
        batches={path: int(roles["batches"]) for path, roles in written.tensors.items() if "batches" in roles},
        tensors=opened.lists.model_copy(update={"filled": {name: str(number) for name, number in written.filled.items()}}),
        mapped=wishes.map,
        dtype=target.dtype,
        folded=written.folded,
        absorbed=written.absorbed,
        stock_class=stock.name if stock else None,
        stock_arguments=stock.arguments if stock else {},
        parity=None,
        check=NOT_MADE,
        versions=_versions(framework),
    )


def _versions(framework: Framework) -> dict[str, str]:
    found = {"porter": __version__}
    for name in ("numpy", framework.PACKAGE):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _check(
    port: Port, opened: Opened, given: Given | None, required: bool, size: Size
) -> tuple[Verdict | None, dict[str, Any], tuple[str, ...]]:
    """The comparison, what port.json has of it, and warnings.

    Raises:
        MissingFramework: a framework that it needs is not installed, and it is `required`, or a reference is `given`.
    """
    from porter.verification.check import CHECKED_DTYPES
    from porter.verification.reverify import check_against

    try:
        verdict, warnings = check_against(port, opened, CHECKED_DTYPES, given=given, size=size)
    except MissingFramework as error:
        if required or given is not None:
            raise
        return None, {"check": f"skipped: {error}"}, (str(error),)
    if not verdict.ok:
        advice = f"; {verdict.advice}" if verdict.advice else ""
        raise CheckFailed(verdict.failure(), where=port.record.name, next=f"no port was written{advice}")
    outcome = PASSED if verdict.proof.proves else AGREES
    reference = verdict.given.file if verdict.given else None
    return verdict, {"check": outcome, "parity": verdict.record(), "reference": reference}, warnings


def _record_warnings(record: Record, member: Member | None) -> tuple[str, ...]:
    warnings = []
    stated = record.licence or (member.zoo.licence_of(member.variant) if member else None) or ""
    if member and is_non_commercial(stated) and record.licence is None:
        warnings.append(
            f"{member.zoo.name}'s own weights are licensed {stated}: weights trained from them are not for commercial use"
        )
    elif is_non_commercial(stated):
        warnings.append(f"the weights are licensed {stated}: not for commercial use")
    taken = record.input.size
    if taken is not None and taken[0] != taken[1]:
        only = "{}x{}".format(*taken)
        warnings.append(
            f"the port accepts only {only}, and predict and eval feed squares: convert again with --input-size N or any"
        )
    return tuple(warnings)
