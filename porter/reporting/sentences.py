"""The sentences of a report."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from porter.base.errors import UsageError, some
from porter.data.protocol_words import steps_in_words
from porter.evaluation.protocol import fit_protocol
from porter.graph import MaxPool, axes_text, further_text
from porter.graph.record import from_record
from porter.port import OWN_BUILD, Record
from porter.recipe.published import is_non_commercial
from porter.reporting.records import Contents
from porter.verification.results import VerdictRecord, rounds_more

Standing = Literal["proved", "unproved", "differs"]


@dataclass(frozen=True)
class Fact:
    """A term and its text, which is `literal` if people copy it."""

    term: str
    text: str
    literal: bool = False


@dataclass(frozen=True)
class Conclusion:
    """The verdict of a report, in a word and in a sentence."""

    standing: Standing
    word: str
    sentence: str


def distance_text(value: float) -> str:
    """Write a distance as the command line prints it."""
    if not isfinite(value):
        return "not finite"
    return "0" if value == 0 else f"{value:.1e}"


def conclude(contents: Contents) -> Conclusion:
    """Return the verdict of a report, from the comparison in port.json: proved, differs, or not proved, which
    is so without a comparison, for rounded weights, for porter's own build and where nothing else read the
    file.
    """
    record, verdict = contents.record, contents.comparison
    if verdict is None:
        return _unproved(f"Port and source were not compared ({record.check}).")
    figures = _figures_of_proof(verdict)
    if not verdict.holds:
        path = next((node.path for node in verdict.nodes if not node.ok), None)
        if verdict.first_bad:
            path = verdict.first_bad.path
        first_difference = "" if path is None else f" {path} is the first node that differs."
        return Conclusion(
            "differs",
            "Differs",
            f"The port does not compute the function of {verdict.reference}.{first_difference} {figures}",
        )
    if record.quantize is not None:
        sentence = (
            "The weights are rounded to 8 bits; before, the port computed the function of "
            f"{verdict.reference}. {figures}"
        )
        return _unproved(sentence)
    if verdict.unheld is not None and not record.proved:
        sentence = f"The port agrees with {verdict.reference}, not held to {verdict.unheld}. {figures}"
        return _unproved(sentence)
    if verdict.reference == OWN_BUILD or not record.proved:
        return _unproved(f"The port agrees only with porter’s own build of the source. {figures}")
    shipped = ""
    if verdict.shipped:
        shipped = f"The shipped pads were proved against {verdict.shipped.reference}. "
    references = verdict.reference
    if verdict.given is not None and verdict.given.reference != verdict.reference:
        references = f"{verdict.reference} and as {verdict.given.reference}"
    return Conclusion(
        "proved", "Proved", f"{shipped}The port computes the same function as {references}. {figures}"
    )


def _unproved(sentence: str) -> Conclusion:
    return Conclusion("unproved", "Not proved", sentence)


def _figures_of_proof(verdict: VerdictRecord) -> str:
    """Write the figures of a proof in one sentence, the cut points (where values inside are replaced) and
    what the reading was compared with in further ones.
    """
    sizes = " and ".join(f"{rows}×{columns}" for rows, columns in verdict.sizes)
    top = f", argmax {verdict.argmax}" if verdict.argmax else ""
    worst = (
        f"the worst {verdict.worst.path} at a relative L2 distance of {distance_text(verdict.worst.rel_l2)}"
    )
    nodes = "all equal bit for bit" if verdict.worst.rel_l2 == 0 else worst
    images = "1 input" if verdict.inputs == 1 else f"{verdict.inputs} inputs"
    run = f" with {verdict.reference}, run by {verdict.run_by}" if verdict.run_by else ""
    layers = "" if verdict.cut is None else f" At cut points: {verdict.cut}."
    witnesses = "".join(f" {line[0].upper()}{line[1:]}." for line in verdict.held)
    return (
        f"Compared in {verdict.dtype} on {images}, at {sizes}{run}: "
        f"{len(verdict.nodes)} nodes, {nodes}; "
        f"the logits at {distance_text(verdict.logits.rel_l2)}{top}.{layers}{witnesses}"
    )


def warn(contents: Contents) -> list[str]:
    """Return the sentences that a reader has to know before using the port: limits of the proof, sizes, pads,
    twins (other zoos' models with the same tensors), background and licence.
    """
    record, verdict = contents.record, contents.comparison
    sentences = [] if verdict is None else _warnings_of_proof(verdict, record)
    if record.input.size is not None:
        rows, columns = record.input.size
        sentences.append(
            f"The pads are right only at an input of {rows}×{columns}; the port refuses other sizes."
        )
    if record.padding == "trained":
        sentences.append(
            "The pads are those that the weights were trained with, not those that the zoo ships."
        )
    if verdict is not None and verdict.shipped is not None:
        shipped = verdict.shipped
        sentences.append(
            f"The pads of training move the logits of {shipped.reference} by "
            f"{distance_text(shipped.rel_l2)} (relative L2), "
            f"and change the argmax on {shipped.argmax_differ} of {shipped.images} inputs."
        )
    zeros = _zeros_before_pools(record) if record.framework == "torch" else []
    if zeros:
        sentences.append(
            f"By default, onnxruntime drops zeros before a max pool, as before {some(zeros)}, from a "
            "model exported to ONNX. "
            "model.py pads with -0.0, which it keeps; for onnxruntime, convert the source to onnx."
        )
    if record.twins and record.origin is None:
        others = ", ".join(twin.name for twin in record.twins)
        sentences.append(
            f"Nothing states whether the weights are {record.name} or {others}, which take the same tensors."
        )
    if record.background:
        sentences.append("Row 0 of the logits is the background class, so every label is one row later.")
    if is_non_commercial(record.licence):
        sentences.append(f"The weights are licensed {record.licence}: not for commercial use.")
    return sentences


def _warnings_of_proof(verdict: VerdictRecord, record: Record) -> list[str]:
    """Return sentences on what limits the comparison with the source: notes on the user's reference,
    references that were not run, and rounding.
    """
    clauses = [note for note in verdict.given.notes if note] if verdict.given is not None else []
    clauses += verdict.not_run
    clauses += [
        f"{rounds_more(dtype, result.rounds_from)}: the logits at "
        f"{distance_text(result.logits.rel_l2)}, and the source’s own rounding is "
        f"{distance_text(result.source_rounding)}"
        for dtype, result in verdict.dtypes.items()
        if result.rounds_from is not None
    ]
    rounding = verdict.rounding or record.rounding
    if rounding is not None:
        clauses.append(rounding)
    return [f"{clause[0].upper()}{clause[1:]}." for clause in clauses]


def _zeros_before_pools(record: Record) -> list[str]:
    """Return the paths of the max pools before which the port has a layer that pads with zeros, which take
    part in the maximum.
    """
    padded = {pad.site for pad in record.pads if pad.kind == "pad layer"}
    nodes = from_record(record.graph).nodes
    return [
        node.path
        for node in nodes
        if node.path in padded and isinstance(node.op, MaxPool) and node.op.convention.fill == 0
    ]


def facts(record: Record) -> list[Fact]:
    """List the facts about the source and the port for a table: where the weights come from, what they are
    licensed, and what the port takes and gives. What is not known has no row.
    """
    rows, columns = record.input.native_size
    taken = "any size" if record.input.size is None else "{}×{} only".format(*record.input.size)
    shape = (
        f"N×{record.input.channels}×H×W"
        if record.input.layout == "NCHW"
        else f"N×H×W×{record.input.channels}"
    )
    graph = from_record(record.graph)
    if graph.axes:
        shape = axes_text(graph.axes).replace(" x ", "×")
    shape += further_text(graph).replace(" x ", "×")
    tensors = record.tensors
    counted = {"used": tensors.used, "ignored": tensors.ignored, "filled with a constant": tensors.filled}
    entries = [
        *([Fact("Variant", f"{record.variant}, of {record.architecture}")] if record.variant else []),
        Fact("From", record.zoo or "the file’s own graph and names, without a recipe"),
        Fact("To", f"{record.framework}, stored as {record.dtype}"),
        Fact("Weights file", f"{record.source.file}, {record.source.format}"),
        Fact("Its sha256", record.source.sha256, literal=True),
        *(Fact("Note", note) for note in record.source.notes),
        Fact("Licence", record.licence or "unknown"),
        *([Fact("Origin", record.origin.words)] if record.origin is not None else []),
        *(
            Fact("Twin", f"{twin.name} takes the same tensors: {'; '.join(twin.differs)}")
            for twin in record.twins
        ),
        *(Fact("Assumed", line) for line in record.assumed),
        *(Fact(f"sha256 of {name}", digest, literal=True) for name, digest in record.model.items()),
        Fact("Input", f"{shape}, {taken}; designed for {rows}×{columns}"),
        Fact("Output", _output_words(record)),
        Fact("Classes", _classes_words(record)),
        Fact("Tensors", ", ".join(f"{len(names)} {what}" for what, names in counted.items() if names)),
        Fact("Pads", "as the zoo ships them" if record.padding == "shipped" else "as trained"),
    ]
    if record.reference is not None:
        is_code = bool(record.reference.maker)
        kind = "code of the user’s own, which was run" if is_code else "another file of the user’s"
        entries.append(Fact("Reference given", f"{record.reference.file}, {kind}"))
        entries.append(Fact("sha256 of the reference", record.reference.sha256, literal=True))
    if record.folded is not None:
        entries.append(Fact("Batch norms", f"{len(record.folded)} folded into the layers before them"))
    if record.stock_words:
        entries.append(Fact("Stock class", record.stock_words))
    return [
        *entries,
        Fact("Versions", ", ".join(f"{name} {version}" for name, version in record.versions.items())),
    ]


def _output_words(record: Record) -> str:
    """Say what a port gives: `N×1000 logits; the source’s softmax is taken off`."""
    if not record.classes:
        return "N×features" if record.variant else "what the file gives: features, maps or several of them"
    shape = f"N×{record.classes} {record.output}"
    return shape if record.activation is None else f"{shape}; the source’s {record.activation} is taken off"


def _classes_words(record: Record) -> str:
    """Say how many classes a port has, of how many of the file's, and by which labels."""
    if not record.classes:
        return "none"
    of_file = f" of the file’s {record.source_classes}" if record.classes != record.source_classes else ""
    return f"{record.classes}{of_file}, {record.labels or 'without a known label map'}"


def steps(record: Record) -> list[str]:
    """List the steps from a photo to the port's input, as predict and eval follow them, or as the protocol
    states them where these refuse the port's size; [] if the port has no protocol.
    """
    if record.preprocess is None:
        return []
    try:
        return steps_in_words(fit_protocol(record.preprocess, record.input, ""))
    except UsageError:
        return steps_in_words(record.preprocess)
