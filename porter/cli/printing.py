"""The output of the commands for people: plain text as lines, which the command line escapes and joins."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from porter.base.commands import VERIFY
from porter.base.errors import LISTED, some
from porter.base.options import LAYERS
from porter.comparison.transfer import RECORD, SOURCE_FILE
from porter.frameworks import DESTINATION_NAMES

if TYPE_CHECKING:
    from porter.api.port import Ported
    from porter.authoring.check.recipe_check import Checked
    from porter.authoring.drafting import NewRecipe
    from porter.authoring.trial import WeightsTrial
    from porter.base.left_out import LeftOut
    from porter.batch.batch import BatchOutcome
    from porter.comparison.compare import Comparison
    from porter.comparison.transfer.fill import Filling
    from porter.conversion.convert import Conversion
    from porter.conversion.pad_table import PadTable
    from porter.evaluation.prediction import Prediction
    from porter.graph import Graph
    from porter.graph.pads import PadDecision
    from porter.port import Origin, Record, TensorLists
    from porter.recipe import Member, Proof, Recipe, Zoo
    from porter.recipe.declared import Declared
    from porter.reporting.write_page import Report
    from porter.source.inspection import Inspection
    from porter.verification.results import Parity
    from porter.verification.verdict import Verdict


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: a header and rows of as many cells, in left-aligned columns, two spaces
    apart.
    """
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def first_lines(label: str, items: Sequence[str]) -> list[str]:
    """Return a line for each of the first items, after a label, and one that says how many more there are:
    `failed  a.jpg: ...`.
    """
    lines = [f"{label}{item}" for item in items[:LISTED]]
    if len(items) > LISTED:
        indent = " " * len(label)
        lines.append(f"{indent}and {len(items) - LISTED:,} more (--json names all)")
    return lines


_REASONS = 20
"""So many ports that do not stand are named."""


def batch(made: BatchOutcome) -> list[str]:
    """Return the lines on what became of a list of ports: how many there are of each state, and why some do
    not stand.
    """
    counts = ", ".join(f"{count} {state}" for state, count in made.counts.items() if count)
    skipped = f"; {made.skipped} of them had ended before" if made.skipped else ""
    reasons = [
        f"  {result.state}  {result.name}: {result.message}"
        for result in made.results
        if result.message is not None
    ]
    more = [f"  and {len(reasons) - _REASONS} more"] if len(reasons) > _REASONS else []
    return [f"{counts}{skipped}", *reasons[:_REASONS], *more, f"table: {made.table}"]


def conversion(made: Conversion | Ported) -> list[str]:
    """Return the lines of `porter convert`: what was ported to where, facts about it, how its check ended,
    and warnings.
    """
    record = made.port.record
    source = "; ".join((f"{record.source.file}, {record.source.format}", *record.source.notes))
    padding = f"{_pads_summary(record.pads)}; {_size(record)}"
    if record.padding == "trained":
        padding += "; as trained, not as shipped"
    lines = [
        f"{record.name} to {record.framework}: {made.port.folder}",
        f"  file     {source}",
        f"  tensors  {_tensors(record.tensors)}",
        f"  classes  {_classes(record)}",
        f"  licence  {record.licence or 'unknown'}",
        *([f"  origin   {record.origin.words}"] if _tells(record.origin) else []),
        *first_lines("  assumed  ", record.assumed),
        *_left_out(record.left_out),
        f"  padding  {padding}",
    ]
    if record.folded is not None:
        norms = "none to fold: the source has no batch norms"
        if record.folded or record.norms:
            kept = f"{len(record.norms)} stay, such as {record.norms[0]}" if record.norms else "none stay"
            norms = f"{len(record.folded)} folded into the layers before them; {kept}"
        lines.append(f"  norms    {norms}")
    if record.stock_class:
        arguments = ", ".join(f"{key}={value!r}" for key, value in record.stock_arguments.items())
        absorbed = (
            f"; {len(record.absorbed)} biases absorbed into the means of the norms after them"
            if record.absorbed
            else ""
        )
        lines.append(f"  stock    {record.stock_class}({arguments}){absorbed}")
    if made.verdict is None:
        lines.append(f"  check    {record.check}")
    else:
        lines += [f"  check    {line}" for line in _check_lines(made.verdict)]
    # Why a check was skipped stands in its line already.
    return [
        *lines,
        *(f"  warning  {warning}" for warning in made.warnings if record.check != f"skipped: {warning}"),
    ]


def _tells(origin: Origin | None) -> TypeGuard[Origin]:
    """Return whether an origin says more than that the file carries its graph."""
    return origin is not None and origin.by != "graph"


def _left_out(layers: Sequence[LeftOut]) -> list[str]:
    """Return one line for the layers that act in training only, such as dropouts, and that the port lacks;
    none if it lacks none.
    """
    if not layers:
        return []
    shown = [
        f"{layer.words} '{layer.name}'" + (f" behind {layer.after}" if layer.after else "")
        for layer in layers[:LISTED]
    ]
    more = f" and {len(layers) - LISTED} more (--json names all)" if len(layers) > LISTED else ""
    act = "it acts" if len(layers) == 1 else "they act"
    return [f"  left out {', '.join(shown)}{more}: {act} in training only"]


def _size(record: Record) -> str:
    """Say which sizes of its inputs the port takes: `any input size, native 224x224`, or the axes of an input
    that is no image.
    """
    from porter.graph import axes_text, further_text
    from porter.graph.record import from_record

    graph = from_record(record.graph)
    if graph.axes:
        first_input = f"input {axes_text(graph.axes)}"
    elif record.input.size is not None:
        first_input = "input {}x{} only".format(*record.input.size)
    else:
        first_input = "any input size, native {}x{}".format(*record.input.native_size)
    return first_input + further_text(graph)


def _tensors(lists: TensorLists) -> str:
    """Say how many tensors of the file are used, and how many are not, by the reason."""
    ignored = [f"{count} ignored: {reason}" for reason, count in lists.reasons.items()]
    return "; ".join((f"{len(lists.used)} used", *ignored))


def _classes(facts: Record | Inspection) -> str:
    """Return the number of classes, and of the file's where it differs. One class is one number for each
    image, as under a sigmoid.
    """
    count = "1 (one number for each image)" if facts.classes == 1 else str(facts.classes or "none")
    if facts.classes == facts.source_classes:
        return count
    return f"{count} of the file's {facts.source_classes}"


_PADDED = {
    "pad layer": ("needs a pad layer", "need a pad layer"),
    "dynamic pad layer": (
        "needs a pad layer that works out its padding for each input size",
        "need a pad layer that works out its padding for each input size",
    ),
    "composition": ("needs a composition of layers", "need a composition of layers"),
    "larger kernel": ("needs a larger kernel", "need a larger kernel"),
    "native": ("uses the layer's own padding", "use the layer's own padding"),
}
"""What is said of one site and of several with this kind of pad."""


def _pads_summary(pads: Sequence[PadDecision]) -> str:
    """Say how many sites (nodes with a window) have each kind of pad: `1 site needs a pad layer; 52 use the
    layer's own padding`.
    """
    counts = Counter(pad.kind for pad in pads)
    clauses = list[str]()
    for kind, (said_of_one, said_of_several) in _PADDED.items():
        count = counts[kind]
        if not count:
            continue
        site, words = ("site", said_of_one) if count == 1 else ("sites", said_of_several)
        # The first clause has the noun.
        clauses.append(f"{count} {words}" if clauses else f"{count} {site} {words}")
    return "; ".join(clauses) or "no site"


def _parity_line(parity: Parity) -> str:
    """Write one comparison in a line: `float64: same function as ... at 128x97; 122 nodes, the worst 1.0e-14;
    ...`.
    """
    sizes = ", ".join(f"{rows}x{columns}" for rows, columns in parity.sizes)
    worst = parity.worst.rel_l2
    nodes = f"{len(parity.nodes)} nodes" if parity.uncompared or len(parity.nodes) > 1 else "the output only"
    top = f", argmax {parity.argmax}" if parity.argmax else ""
    return (
        f"{parity.dtype}: {parity.outcome} at {sizes}; {nodes}, the worst {worst:.1e}; logits "
        f"{parity.logits.rel_l2:.1e} (limit {parity.limit:.1e}), max {parity.logits.max_abs:.1e}{top}"
    )


def _check_lines(result: Verdict) -> list[str]:
    """Return the lines of a check, without its verdict: each comparison, what was compared at cut points,
    what was never reached, and for training pads the proof of the shipped ones.
    """
    lines = [*map(_parity_line, result.parities)]
    if result.given:
        lines += [*map(_parity_line, result.given.parities), *result.given.notes]
    if result.rounding:
        lines.append(result.rounding)
    for parity in result.parities:
        if parity.cut is not None:
            in_type = "" if parity.dtype == "float64" else f" in {parity.dtype}"
            lines.append(f"layers{in_type}: {parity.cut}")
    if count := len(result.proof.unreached):
        said = "1 bound, pad or epsilon was" if count == 1 else f"{count} bounds, pads or epsilons were"
        lines.append(
            f"{said} never reached in the test, so not checked ({VERIFY.name} with {LAYERS} lists them)"
        )
    if result.shipped is None:
        return lines
    shipped = result.shipped
    proved = [f"shipped pads, {_parity_line(parity)}" for parity in result.shipped.parities]
    effect = (
        f"training pads change the logits by {shipped.rel_l2:.1e} (relative L2) "
        f"and the argmax on {shipped.argmax_differ} of {shipped.images} images"
    )
    return [*proved, *lines, effect]


def _reference_line(result: Verdict) -> str:
    """Say what ran beside the port, and on what: `reference: the file's own graph, run by TensorFlow; images,
    26 in float32 and 1 in float64: -1 to 1`.
    """
    parities = result.parities or (result.given.parities if result.given else ())
    images = " and ".join(f"{parity.inputs} in {parity.dtype}" for parity in parities)
    fed = f"images, {images}: {result.fed.words}"
    return f"reference: {parities[0].reference}, run by {parities[0].run_by}; {fed}"


def verdict(result: Verdict, layers: bool) -> list[str]:
    """Return the lines that `porter verify` prints: the checks, the reason if one fails, the notes, the
    reference, and the nodes that were not compared.

    Args:
        layers: add a table of all nodes, and the nodes whose bounds, pads or epsilons no value reached.
    """
    lines = _check_lines(result)
    if not result.ok:
        lines.append(result.failure())
    if layers:
        rows = [
            (node.path, f"{node.rel_l2:.1e}", f"{node.max_abs:.1e}", "" if node.ok else "<-- above the limit")
            for node in result.proof.nodes
        ]
        lines += ["", *table(("node", "relative L2", "max abs", ""), rows)]
        lines += [f"never reached: {path}" for path in result.proof.unreached]
        inside = result.proof.cut.inside if result.proof.cut is not None else ()
        lines += [f"inside the network only: {path}" for path in inside]
    lines += [f"note: {note}" for note in result.notes]
    lines += [_reference_line(result), *result.held]
    if result.proof.uncompared:
        lines.append(
            f"not compared, because the reference has no value for them: {some(result.proof.uncompared)}"
        )
    return lines


def comparison(found: Comparison, layers: bool) -> list[str]:
    """Return the lines of `porter compare`: the verdict and what differs, how far the outputs are apart, how
    many layers are paired, and notes. With `layers`, add a table of the layers.
    """
    lines = found.lines()
    if found.parity is not None:
        top = {None: "", True: ", argmax equal", False: ", argmax differs"}[found.parity.argmax_equal]
        lines.append(f"outputs: relative L2 {found.parity.rel_l2:.1e} at {found.size}{top}")
    if found.layers:
        paired = sum(layer.a is not None and layer.b is not None for layer in found.layers)
        unpaired = ""
        if found.only_a or found.only_b:
            unpaired = f", {len(found.only_a)} only in A, {len(found.only_b)} only in B"
        lines.append(f"layers: {paired} paired{unpaired}")
    # There may be no proofs.
    proofs = zip(("A", "B"), (found.a, found.b), found.proofs, strict=False)
    lines += [f"{side}: {name}: {proof.words}" for side, name, proof in proofs]
    lines += [f"note: {note}" for note in found.notes]
    if layers:
        rows = [
            (layer.a or "-", layer.b or "-", layer.kind, "" if layer.apart is None else f"{layer.apart:.1e}")
            for layer in found.layers
        ]
        lines += ["", *table(("A", "B", "kind", "apart for the same numbers"), rows)]
    return lines


def filling(made: Filling) -> list[str]:
    """Return the lines of `porter convert --into`: the class of the user's that was filled, the files that
    were written, and how its comparison with the source ended.
    """
    counts, found = made.counts, made.comparison
    filled = f", {counts['filled']} of the class filled with a number" if counts["filled"] else ""
    unused = f", {counts['ignored']} not used" if counts["ignored"] else ""
    kept = [f"  kept     {some(made.kept)}: the class's own, which no output reads"] if made.kept else []
    apart = "" if found.parity is None else f"; outputs {found.parity.rel_l2:.1e} apart (relative L2)"
    source = [] if made.own_file else [f"  source   {SOURCE_FILE}: the source's tensors, for the converter"]
    return [
        f"{made.source} into {made.target}: {made.folder}",
        f"  tensors  {counts['used']} used{unused}{filled}; {RECORD} says how each is made",
        f"  model    {made.file}",
        f"  convert  {made.module}.py, and test_{made.module}.py",
        *source,
        *kept,
        f"  check    {found.summary}{apart}",
        *(f"  note     {note}" for note in found.notes),
        *(f"  warning  {warning}" for warning in made.opened.warnings),
    ]


def predictions(results: Sequence[Prediction]) -> list[str]:
    """Return the lines of `porter predict`: for each photo the likeliest classes, or the one number that the
    port gives.
    """
    lines = []
    for prediction in results:
        lines.append(f"{prediction.image}, fed {prediction.fed}")
        if len(prediction.top5) == 1:
            (only,) = prediction.top5
            sigmoid = "" if only.probability is None else f", sigmoid {only.probability:.4f}"
            lines.append(f"  output {only.logit:.4f}{sigmoid}")
            continue
        lines += [
            f"  {guess.probability:7.2%}  logit {guess.logit:8.4f}  {guess.name or f'class {guess.index}'}"
            for guess in prediction.top5
        ]
    return lines


def new_recipe(drafted: NewRecipe) -> list[str]:
    """Return the lines of `porter recipe new`: the file that was drafted, what it has, and the command to
    type next.
    """
    names = ", ".join(f"{name} ({uses} times)" for name, uses in drafted.draft.blocks.items())
    blocks = f"blocks: {names}" if names else "no blocks"
    lines = [
        f"{drafted.path}: {drafted.variant} from {drafted.zoo}, {drafted.lines} lines",
        f"  graph    {len(drafted.draft.graph.nodes)} nodes; {blocks}",
    ]
    if drafted.tensors is not None:
        lines.append(f"  tensors  {_tensors(drafted.tensors)}")
    if drafted.problem is not None:
        lines.append(f"  problem  {drafted.problem}")
    if drafted.to_do:
        lines.append(f"  to do    {drafted.to_do} lines are marked # TODO")
    return [*lines, f"  next     {drafted.command}"]


def _of_bytes(bytes: int) -> str:
    """Return a number of bytes in GB, MB or kB, the largest that fits into it: `97.8 MB`."""
    unit = next((unit for unit in ("GB", "MB") if bytes >= _UNITS[unit]), "kB")
    return f"{bytes / _UNITS[unit]:.1f} {unit}"


_UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}


def inspection(result: Inspection, tensors: bool = False) -> list[str]:
    """Return the lines of `porter inspect`: what a file is and how far porter knows it, and the commands that
    port it.

    Args:
        tensors: add a table of its tensors.
    """
    checkpoint, match = result.checkpoint, result.match
    types = Counter(str(array.dtype) for array in checkpoint.tensors.values())
    of_types = f" of {' and '.join(name for name, _ in types.most_common())}" if types else ""
    tensor_count = f"{len(checkpoint.tensors)} tensors{of_types}"
    content = "; ".join(
        (f"{checkpoint.format}, {tensor_count}, {_of_bytes(result.bytes)}", *checkpoint.notes)
    )
    lines = [str(checkpoint.path), f"  format     {content}", f"  framework  {result.framework or 'any'}"]
    lines += _identity_lines(result, _input_words(result))
    if result.classes is not None:
        activation = f", then {result.activation}" if result.activation else ""
        lines.append(f"  classes    {_classes(result)}")
        lines.append(f"  head       {result.head or 'none'}{activation}")
    if _tells(result.origin):
        lines.append(f"  origin     {result.origin.words}")
    lines += [f"  twin       {twin.name}: {'; '.join(twin.differs)}" for twin in result.twins]
    lines += [f"  differs    {line}" for line in result.differs]
    lines += [f"  assumed    {line}" for line in result.assumed]
    if result.problem is not None:
        lines.append(f"  problem    {result.problem}")
    lines += [f"  left out   {fault}" for fault in result.left_out]
    if match is not None and not result.commands:
        lines += [f"  missing    {name}, or it has another shape" for name in match.missing[:LISTED]]
        lines += [f"  unexpected {name}" for name in match.unexpected[:LISTED]]
    if result.commands:
        lines += [
            "to port it, one of:" if len(result.commands) > 1 else "to port it:",
            *(f"  {line}" for line in result.commands),
        ]
    if not tensors:
        return lines
    listed = [
        (name, "x".join(map(str, array.shape)) or "scalar", str(array.dtype))
        for name, array in checkpoint.tensors.items()
    ]
    return [*lines, "", *table(("tensor", "shape", "type"), listed)]


def _input_words(result: Inspection) -> str:
    """Say which inputs a file's network takes: `224x224`, `any size`, or the axes of an input that is no
    image, and those of further inputs.
    """
    from porter.graph import axes_text, further_text
    from porter.graph.record import from_record

    size = "any size" if result.size is None else "{}x{}".format(*result.size)
    graph = from_record(result.port.graph) if result.port else result.checkpoint.graph
    if graph is None:
        return size
    return (axes_text(graph.axes) if graph.axes else size) + further_text(graph)


def _identity_lines(result: Inspection, input_words: str) -> list[str]:
    """Say what a file is: a variant of a recipe, a port, weights trained further, or a graph of its own;
    nothing where porter cannot tell.
    """
    checkpoint, match = result.checkpoint, result.match
    if match is not None:
        fits = f"{match.score:.1%}"
        identity = f"  is         {match.member.name} (fits {fits})"
        if result.states_another_network:
            identity = f"  fits       {match.member.name} ({fits})"
        return [
            identity,
            *(f"  also fits  {other.member.name} ({other.score:.1%})" for other in result.close[:LISTED]),
            f"  input      {input_words}" + ("" if checkpoint.graph else ", as the recipe has it"),
        ]
    if result.port is not None and result.port.variant is not None:
        return [f"  is         a port of {result.port.name}", f"  input      {input_words}"]
    if result.tuned is not None:
        return [f"  is         the model of {result.tuned}, with tensors of its own"]
    if not result.commands:
        return []
    if checkpoint.graph is not None or result.port is not None:
        return [f"  is         a graph that no recipe has; none is needed; input {input_words}"]
    if result.problem is not None:
        return ["  is         the model of a port, with tensors of its own"]
    return [
        "  is         a network that no recipe has; its library, which has to be installed, builds "
        "it from the folder"
    ]


def pads(found: PadTable, all_sites: bool) -> list[str]:
    """Return the lines of `porter pads`: a table of the sites, with a row for training pads below a site's
    own, then what the destination refuses, and what is known of the port.

    Args:
        all_sites: the sites without padding are shown too.
    """
    shown = [site for site in found.sites if all_sites or site.telling]
    rows = []
    for site in shown:
        rows.append((site.shipped.site, site.shipped.source, site.shipped.realised, site.shipped.why))
        if site.trained is not None:
            rows.append(("  as trained", site.trained.source, site.trained.realised, site.trained.why))
    hidden = len(found.sites) - len(shown)
    more = [f"{hidden} more, without padding: --all shows them"] if hidden else []
    known = [] if found.proof is None or found.refused else [f"this port: {_proof(found.proof)}"]
    return [*table(("site", "source", "destination", "why"), rows), *more, *_refused(found), *known]


def _refused(found: PadTable) -> list[str]:
    """Return a table of the ops that the destination refuses, and a line for each thing to do about them;
    nothing if it refuses none.
    """
    if not found.refused:
        return []
    lines = table(("refused", "why"), [(error.where or "", error.message) for error in found.refused])
    return [
        "",
        *lines,
        *(f"next: {next}" for next in dict.fromkeys(error.next for error in found.refused if error.next)),
    ]


def _proof(proof: Proof) -> str:
    """Say what is known of a port from porter's own measurements: `exact (...)`, `refused (...)` or that it
    is unproven; see porter.recipe.proofs.
    """
    match proof.outcome:
        case "exact":
            worst = "bit for bit" if proof.float64 == 0 else f"worst node {proof.float64:.1e}"
            return f"{_of(proof.of)}exact ({worst} in float64 beside {proof.reference}, {proof.date})"
        case "refused":
            return f"refused ({proof.reason})"
        case _:
            return "unproven until porter convert compares it"


def report(written: Report) -> list[str]:
    """Return the lines of `porter report`: where the page is, and which sections it lacks, with the commands
    that make them.
    """
    missing = [f"  not in it  {section}: {command}" for section, command in written.missing.items()]
    return [str(written.path), *missing]


def declared_record(file: Recipe | Declared) -> dict[str, Any]:
    """Return the record of a recipe that `porter recipe list --json` prints."""
    return {
        "architecture": file.architecture,
        "variants": list(file.variants),
        "zoos": list(file.zoos),
        "file": str(file.path),
    }


def recipe_list(recipes: Sequence[Declared], own: Path) -> list[str]:
    """Return the lines of `porter recipe list`; `own` is the folder of porter's own recipes, and the others
    show their files.
    """
    lines = []
    for recipe in recipes:
        file = "" if recipe.path.parent == own else f"  {recipe.path}"
        lines.append(recipe.architecture + file)
        lines += _wrapped("  variants  ", ", ".join(recipe.variants))
        lines += _wrapped("  zoos      ", ", ".join(recipe.zoos))
    return lines


def _wrapped(label: str, text: str) -> list[str]:
    """Wrap a text into lines of at most 100 columns, behind a label that stands once."""
    return textwrap.wrap(
        text, 100, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    )


def recipe_check(result: Checked, trial: WeightsTrial | None = None) -> list[str]:
    """Return the lines of `porter recipe check`: errors and warnings, each with its place, and what was
    checked; then the result of a trial on a file of weights, if there was one.
    """
    lines = [f"error: {error}" for error in result.errors]
    lines += [f"warning: {warning}" for warning in result.warnings]
    counts = (
        (result.variants, "variant"),
        (result.zoos, "zoo"),
        (result.sites, "padding site"),
        (result.nodes, "node"),
    )
    checked = ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count)
    if result.nodes:
        lines.append(f"checked: {checked} named")
    if trial is None:
        return lines
    if trial.opened is not None and trial.opened.member is not None:
        lines.append(f"weights: {trial.opened.member.name}; {_tensors(trial.opened.lists)}")
        comparison_lines = _check_lines(trial.verdict) if trial.verdict else [f"skipped: {trial.skipped}"]
        lines += [f"numbers: {line}" for line in comparison_lines]
    if trial.error is not None:
        lines.append(f"error: {trial.error}")
    return lines


def recipe_record(member: Member, graph: Graph) -> dict[str, Any]:
    """Return a recipe, the weights of one of its variants in each zoo, and the variant's graph, for JSON;
    `window` is null of a step without one.
    """
    from porter.graph import shapes, window_words
    from porter.recipe import proof_of

    file, variant, _ = member
    known = shapes(graph, member.native_size())
    nodes = [
        {
            "path": node.path,
            "op": node.op_name,
            "window": window_words(node.op),
            "output": list(known[node.path]),
        }
        for node in graph.nodes
    ]
    return {
        **declared_record(file),
        "paper": file.paper,
        "variant": variant,
        "weights": [_weights(file, variant, zoo) for zoo in file.zoos_of(variant).values()],
        "proofs": {
            of_zoo.zoo.name: {name: proof_of(of_zoo, name).record() for name in DESTINATION_NAMES}
            for of_zoo in file.members(variant)
        },
        "nodes": nodes,
    }


def _weights(file: Recipe, variant: str, zoo: Zoo) -> dict[str, Any]:
    """Return what a zoo publishes of a variant, for JSON: its accuracies, licence and file, with null for
    what it does not.
    """
    figures, published = zoo.published.get(variant), zoo.files.get(variant)
    return {
        "zoo": zoo.name,
        "framework": zoo.framework,
        "top1": figures and figures.top1,
        "top5": figures and figures.top5,
        "licence": zoo.licence_of(variant),
        "file": published and published.name,
        "written_in": _written(file, variant, zoo),
    }


def recipe(record: Mapping[str, Any]) -> list[str]:
    """Return the lines of `porter recipe show`; `record` is that of `recipe_record`."""
    header = ("zoo", "framework", "top-1", "top-5", "licence", "file", "written in")

    def cell(key: str, value: Any) -> str:
        """Return a cell of the table of zoos: figures with three decimals, and no empty name of a file."""
        if isinstance(value, float):
            return f"{value:.3f}"
        return value or ("none" if key == "file" else "")

    zoos = [[cell(key, value) for key, value in row.items()] for row in record["weights"]]
    steps = [
        (node["path"], node["op"], node["window"] or "", "x".join(map(str, node["output"])))
        for node in record["nodes"]
    ]
    known = [(zoo, *(_short(proof) for proof in proofs.values())) for zoo, proofs in record["proofs"].items()]
    return [
        f"{record['architecture']} ({record['paper']}), {record['file']}",
        f"variants: {', '.join(record['variants'])}",
        "",
        *table(header, zoos),
        "",
        *table(("ported to", *DESTINATION_NAMES), known),
        "",
        f"{record['variant']}:",
        *table(("node", "op", "window", "output"), steps),
    ]


def _short(proof: Mapping[str, Any]) -> str:
    """Write a proof as `exact` with the worst node's distance in float64, `refused` or `unproven`:
    docs/parity.md has the rest.
    """
    if proof["outcome"] != "exact":
        return str(proof["outcome"])
    distance = f"{proof['float64']:.0e}" if proof["float64"] else "0"
    return f"{_of(proof['of'])}exact {distance}"


def _of(subject: str | None) -> str:
    """Return what a proof is of, where that is not the port's file, and a space; otherwise nothing."""
    return f"{subject} " if subject else ""


def _written(file: Recipe, variant: str, zoo: Zoo) -> str | None:
    """Return the line of a variant's weights in the zoo's file, otherwise that of the zoo in the recipe; None
    if neither is known.
    """
    keys_of_zoo = ("zoos", zoo.name)
    # a place in a file
    mark = file.source.mark((*keys_of_zoo, "weights", variant), key=True)
    mark = mark or file.source.mark(keys_of_zoo, key=True)
    if mark is None:
        return None
    folder, path = file.path.parent, mark.path
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return f"{path}:{mark.line}"
