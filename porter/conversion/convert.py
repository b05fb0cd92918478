"""The steps of every conversion: read, match names, change layout, realise padding, write, check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from porter.base.calls import takes
from porter.base.commands import ConvertOptions
from porter.base.dtypes import Dtype
from porter.base.errors import (
    CannotRun,
    CheckFailed,
    Contradiction,
    GraphError,
    NotInstalled,
    PaddingError,
)
from porter.base.options import INPUT_SIZE
from porter.base.package import __version__, page, version_of
from porter.base.plugins import plugin_of
from porter.conversion.asked import read_asked
from porter.conversion.writing import Target, Written, write_plain, write_stock
from porter.files import new_folder
from porter.formats.recognition import FORMATS
from porter.frameworks import DESTINATION_NAMES, Destination, get_destination
from porter.graph import Graph, shapes
from porter.graph.ops import Shape, is_map
from porter.graph.pads import pads_of
from porter.graph.plan import Plan, make_plan
from porter.graph.record import from_record, to_record
from porter.padding import ANY, Size
from porter.padding.sizes import size_text
from porter.port import (
    NOT_MADE,
    OWN_FOLDERS,
    ROUNDED,
    Input,
    Layout,
    Record,
    StoredPort,
    not_possible,
    read_port,
    write_record,
)
from porter.recipe import folder_to_name, replaced_recipe
from porter.recipe.published import is_non_commercial
from porter.source.dropouts import with_dropouts
from porter.source.opened import Opened
from porter.source.photo_protocol import protocol_doubt
from porter.source.wishes import NONE, Wishes

if TYPE_CHECKING:
    from porter.verification.references.user_reference import ReferenceName
    from porter.verification.verdict import Verdict


@dataclass(frozen=True)
class Conversion:
    """A finished port, and the comparison with its source, if one was made."""

    port: StoredPort
    verdict: Verdict | None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user of this port has to know."""
        return self.port.record.warnings

    def record(self) -> dict[str, Any]:
        """Return the record that `porter convert --json` prints."""
        return {"port": str(self.port.folder), **self.port.record.summary()}


def make_port(asked: ConvertOptions) -> Conversion:
    """Port a variant from a zoo, or a file that carries its own graph, to a framework, and prove the port
    against its source. docs/api.md and porter.convert say what each option does.

    Raises:
        PorterError: the input is bad, or the port does not compute its source's function (CheckFailed).
    """
    assert asked.into is None, "porter.comparison.transfer fills classes"
    wanted = read_asked(asked)
    with new_folder(wanted.out, OWN_FOLDERS if asked.overwrite else None) as building:
        opened = with_dropouts(wanted.open()) if asked.keep_dropout else wanted.open()
        facts_file = asked.subject if isinstance(asked.subject, str | PathLike) else opened.file.file
        facts = wanted.photos.override(opened.facts, fspath(facts_file), opened.graph.channels)
        assumed = facts.assumed + (opened.assumed_size if wanted.size is None else ())
        opened = replace(opened, facts=facts.model_copy(update={"assumed": assumed}))
        size = wanted.size or opened.sizes.built
        opened.sizes.expect(size)
        target = Target(wanted.framework, size, wanted.dtype, asked.allow_overflow, wanted.quantize)
        written = _write(building, opened, target, asked.stock, asked.fold_bn)
        unchecked = _record(opened, written, target, wanted.wishes, wanted.recipes)
        verdict: Verdict | None = None
        checked: dict[str, Any] = {}
        check_warnings: tuple[str, ...] = ()
        if asked.check is not False:
            # What is compared is what a reader of the folder gets.
            write_record(building, unchecked)
            on_disk = read_port(building, verify_digests=False)
            verdict, checked, check_warnings = _check(
                on_disk, opened, wanted.reference, asked.check is True, size
            )
        record_warnings = _record_warnings(unchecked, opened, wanted.framework, wanted.wishes.size)
        warnings = (*opened.warnings, *written.warnings, *record_warnings, *check_warnings)
        record = unchecked.model_copy(update={**checked, "warnings": warnings})
        port = _port(wanted.out, record, written.plan, wanted.framework)
        write_record(building, record)
    return Conversion(port, verdict)


convert = takes(ConvertOptions)(make_port)


def _port(folder: Path, record: Record, plan: Plan, framework: Destination) -> StoredPort:
    """Make the port, with the graph as its record has it."""
    graph = from_record(record.graph)
    return StoredPort(
        folder, record, graph, replace(plan, graph=graph, usual_size=record.input.native_size), framework
    )


def _write(folder: Path, opened: Opened, target: Target, stock: bool | str, fold_bn: bool) -> Written:
    """Write the model's files, and return what went into them.

    Args:
        stock: True or the library's name for the names of a stock class; False for porter's own.
    """
    if not stock:
        return write_plain(folder, opened, target, fold_bn)
    return write_stock(folder, opened, target, stock if isinstance(stock, str) else None)


def write_trial(
    folder: Path, opened: Opened, to: str | None = None, size: Size | None = None, dtype: Dtype = "float32"
) -> StoredPort:
    """Write the model of a plain port of a source, for a comparison only, and return the port.

    Args:
        to: the framework; None for the source's own.
        size: rows and columns of the input; None for the source's own.
    """
    target = Target(get_destination(to or opened.framework), size or opened.sizes.built, dtype)
    written = write_plain(folder, opened, target)
    return _port(folder, _record(opened, written, target, NONE, None), written.plan, target.framework)


def _record(opened: Opened, written: Written, target: Target, wishes: Wishes, recipes: Path | None) -> Record:
    """Make the record of a port that was written and is not checked yet."""
    member, plan, stock, framework = opened.member, written.plan, written.stock, target.framework
    inputs = _layouts(plan.graph, plan.graph.inputs, opened.sizes.built, framework)
    return Record(
        **opened.facts.by_name(),
        format=1,
        architecture=member.recipe.architecture if member else None,
        variant=member.variant if member else None,
        zoo=member.zoo.name if member else None,
        framework=framework.NAME,
        graph=to_record(plan.graph),
        input=Input(
            layout=inputs[0],
            size=plan.only_size,
            native_size=opened.sizes.built,
            channels=plan.graph.channels,
            traced=opened.sizes.only is not None,
        ),
        source=opened.file,
        model=dict(sorted(written.model.items())),
        pads=pads_of(plan),
        chosen=dict(opened.chosen),
        recipes=folder_to_name(member.recipe, recipes) if member else None,
        layers=dict(written.layers),
        batches={
            path: int(roles["batches"]) for path, roles in written.tensors.items() if "batches" in roles
        },
        tensors=opened.lists.model_copy(
            update={"filled": {name: str(number) for name, number in written.filled.items()}}
        ),
        mapped=wishes.map,
        ended_at=wishes.outputs,
        dtype=target.dtype,
        quantize=target.quantize,
        folded=written.folded,
        absorbed=written.absorbed,
        stock_class=stock.name if stock else None,
        stock_arguments=stock.arguments if stock else {},
        parity=None,
        check=NOT_MADE,
        versions=_versions(framework, opened.file.format),
        input_layouts=inputs if len(inputs) > 1 else (),
        output_layouts=_layouts(plan.graph, plan.graph.outputs, opened.sizes.built, framework),
    )


def _layouts(graph: Graph, paths: Iterable[str], size: Size, framework: Destination) -> tuple[Layout, ...]:
    """Return the layouts of values in the destination: NCHW or NHWC for a map, NC for features, `file` for
    arrays, whose axes stay as in the file.
    """
    shape_of = shapes(graph, size)

    def layout(shape: Shape) -> Layout:
        """Return the layout of a value of this shape, which is without the batch."""
        if is_map(shape):
            return framework.INPUT_LAYOUT
        return "NC" if len(shape) == 1 else "file"

    return tuple(layout(shape_of[path]) for path in paths)


def _versions(framework: Destination, format: str) -> dict[str, str]:
    """Return the versions of what made a port: of porter, the packages that it needs, and plug-ins."""
    versions = {"porter": __version__}
    # what is not porter's own is a plug-in's
    added = (
        None if framework.NAME in DESTINATION_NAMES else plugin_of("destinations", framework.NAME),
        None if format in FORMATS else plugin_of("formats", format),
    )
    versions |= {plugin.package: plugin.version for plugin in added if plugin is not None}
    for name in ("numpy", framework.PACKAGE):
        if version := version_of(name):
            versions[name] = version
    return versions


def _check(
    port: StoredPort, opened: Opened, user_reference: ReferenceName | None, required: bool, size: Size
) -> tuple[Verdict | None, dict[str, Any], tuple[str, ...]]:
    """Compare a port with its source; return the verdict (None if nothing to compare with runs here), what
    port.json has of it, and warnings.

    Args:
        user_reference: the user's own reference, if there is one.
        required: the user asks for the comparison.

    Raises:
        NotInstalled, CannotRun: nothing that the port can be compared with runs here, and the comparison is
            `required`, or a reference is `user_reference`.
        Contradiction: what porter reads of the source differs from itself.
        CheckFailed: the port is not the source's function, or nothing shows that it is.
    """
    from porter.verification.check import Check
    from porter.verification.proving import prove_against

    try:
        verdict, warnings = prove_against(Check(port), opened, user_reference, size)
    except (NotInstalled, CannotRun) as error:
        if required or user_reference is not None:
            raise
        Check(port).expect_runs()
        return None, {"check": not_possible(error)}, (str(error),)
    if not verdict.ok:
        advice = verdict.advice or f"{page('outputs-differ.md')} lists likely causes"
        failure = CheckFailed if verdict.disagreement is None else Contradiction
        raise failure(verdict.failure(), where=port.record.name, next=f"no port was written; {advice}")
    outcome = ROUNDED if port.record.quantize else verdict.check
    reference_file = verdict.user_proof.file if verdict.user_proof else None
    return verdict, {"check": outcome, "parity": verdict.record(), "reference": reference_file}, warnings


def _record_warnings(
    record: Record, opened: Opened, framework: Destination, asked: Size | None
) -> tuple[str, ...]:
    """Return warnings of what a user of the port has to know, besides its check: a recipe in place of
    porter's own, a licence, an input that is no square, photos that nothing describes.
    """
    warnings, member = [], opened.member
    shipped = replaced_recipe(member.recipe) if member is not None and record.recipes is None else None
    if member is not None and shipped is not None:
        warnings.append(f"{member.recipe.path} stands in place of porter's own recipe {shipped.name}")
    # the licence of these weights, otherwise that of the zoo's own, from which they may have been trained
    licence = record.licence or (member.zoo.licence_of(member.variant) if member else None) or ""
    if member and is_non_commercial(licence) and record.licence is None:
        warnings.append(
            f"{member.zoo.name}'s own weights are licensed {licence}: weights trained from them are not "
            "for commercial use"
        )
    elif is_non_commercial(licence):
        warnings.append(f"the weights are licensed {licence}: not for commercial use")
    size = record.input.size
    # A graph with `axes` takes no photos, and neither does one of a single row.
    takes_photos = size is not None and size[0] > 1 and not record.graph.get("axes")
    if takes_photos and size is not None and size[0] != size[1]:
        fixed_size = size_text(size)
        advice = _for_squares(opened, framework, asked)
        warnings.append(f"the port accepts only {fixed_size}, and predict and eval feed squares: {advice}")
    return (*warnings, *protocol_doubt(record, record.zoo, record.input.size))


def _for_squares(opened: Opened, framework: Destination, asked: Size | None) -> str:
    """Return the advice on how to get a port that takes squares, for one that takes another size only.

    Args:
        asked: the size that the user gave, at which a file without one was read.
    """
    has_one_size = opened.sizes.only is not None
    if has_one_size and asked is not None:
        return f"convert again with {INPUT_SIZE.placeholder}"
    or_any = " or any"
    try:
        make_plan(opened.graph, ANY, framework.CAPABILITIES)
    except PaddingError:
        or_any = ""
    except GraphError:
        return "the model's own layers take no other size"
    if has_one_size:
        return "export the model with open sizes"
    return f"convert again with {INPUT_SIZE.placeholder}{or_any}"
