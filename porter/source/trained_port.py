"""What was trained on from a port's own model: the port's graph and facts, with the tensors of another file.
And the ports that a file may be of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from porter.base.commands import CONVERT
from porter.base.errors import MappingError, UsageError, some
from porter.base.options import CLASS_NAMES
from porter.base.package import page
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import get_destination, other_than
from porter.frameworks.dialects import get_port_dialect
from porter.graph import Conv, Dense, Graph, head_of, tensor_shapes
from porter.graph.plan import make_plan
from porter.padding import ANY
from porter.padding.sizes import size_text
from porter.port import Facts, GraphFile, Origin, StoredPort
from porter.port.digests import expect_digest
from porter.port.layer_names import layers_in
from porter.recipe import Member
from porter.source.fitting.fit import Fit, InFile, TensorKey
from porter.source.opened import Opened, open_fit
from porter.source.own_graph import translate
from porter.source.wishes import Wishes

_NORM_TENSORS: Mapping[str, tuple[str, int]] = {"gamma": ("scale", 1), "beta": ("center", 0)}
"""A tensor that a norm's layer has and its node may lack, by its role: the attribute that gives the node one,
and the number that the layer has in its place.
"""

_SAVING: Mapping[str, str] = {
    "torch": "save the state_dict of the port's own model: torch.save(model.state_dict(), FILE)",
    "flax": "save the state of the port's own model by orbax: StandardCheckpointer().save(FOLDER, "
    "nnx.state(model))",
    "mlx": "save the weights of the port's own model: model.save_weights('FILE.safetensors')",
}
"""How the tensors of a port's own model are saved, by its framework."""


def open_trained(port: StoredPort, checkpoint: Checkpoint, member: Member | None) -> Opened:
    """Open a port with the tensors of a file that was saved from its model after further training: the graph
    and the preprocessing are the port's, and all tensors the file's. The head may have another number of
    rows: then the names of the classes are not known, and a warning says so.

    Args:
        port: its own tensors are not read, and may be others than porter wrote.
        member: what it is a port of; None for a port without a recipe.

    Raises:
        FileError, ChecksumError: the port's code is not what porter wrote, so that the tensors may be another
            function's.
        MappingError: the file and the port's model do not cover each other.
        UsageError: the file's own graph has other outputs than the port.
    """
    matched = _match(port, checkpoint, member)
    _expect_code(port, checkpoint, matched)
    _expect_cover(port, checkpoint, matched)
    rows, record = _head_rows(port, checkpoint, matched), port.record
    fit = Fit(
        graph=_graph_as_trained(port, matched, rows),
        tensors=matched.tensors,
        ignored=matched.ignored,
        source_classes=rows,
        head=None,
        in_file=InFile(_taps(port, checkpoint, matched)),
    )
    opened = open_fit(
        fit, checkpoint, matched.framework, record.input.native_size, get_port_dialect(matched.framework)
    )
    note = f"the graph and what is known of photos and classes are those of {_folder_name(port)}"
    head_warning = (
        f"the head has {rows} classes, and that of {_folder_name(port)} {record.classes}: what they are "
        "called is not known"
    )
    own_model = f"{_folder_name(port)}'s own model in {matched.framework}"
    return replace(
        opened,
        member=member,
        facts=_facts(port, rows),
        sizes=record.input.sizes,
        file=opened.file.model_copy(update={"graph": graph_file(port), "notes": (*checkpoint.notes, note)}),
        warnings=() if rows == record.classes else (f"{head_warning}; {CLASS_NAMES.placeholder} names them",),
        own_model=own_model if matched.framework == record.framework else None,
    )


def graph_file(port: StoredPort) -> GraphFile:
    """Return the record of a port as the one whose graph was taken."""
    return GraphFile(
        file=_folder_name(port), format="port", sha256=port.record.model[port.destination.MODEL_FILE]
    )


def has_tensors_of_port(port: StoredPort, checkpoint: Checkpoint, member: Member | None) -> bool:
    """Return whether a file has all tensors of a port's model, of their shapes, and no others. The head may
    have another number of rows.

    Raises:
        MappingError: a tensor has another rank.
    """
    matched = _match(port, checkpoint, member)
    if not matched.tensors or matched.missing or matched.unexpected:
        return False
    graph = _graph_as_trained(port, matched, _head_rows(port, checkpoint, matched))
    dialect = get_port_dialect(matched.framework)
    for path, shapes in tensor_shapes(graph).items():
        for role, shape in shapes.items():
            stored = checkpoint.tensors[matched.tensors[path, role]]
            if dialect.to_canonical(graph, graph.by_path[path], role, stored).shape != shape:
                return False
    return True


def _folder_name(port: StoredPort) -> str:
    return port.folder.resolve().name


@dataclass(frozen=True)
class _MatchedTensors:
    """The tensors of a file, each with the tensor of a port that it is.

    Attributes:
        framework: whose names the file has.
        tensors: by place, the tensor's name; also of tensors of norms that the port's graph lacks and
            training has changed.
        ignored: names to the reason.
        missing: names that the file lacks.
        unexpected: names that the port's model lacks.
    """

    framework: str
    tensors: Mapping[TensorKey, str]
    ignored: Mapping[str, str]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


def _expect_code(port: StoredPort, checkpoint: Checkpoint, matched: _MatchedTensors) -> None:
    """Expect that the computing file is what porter wrote: the port's code, or its model file if that has the
    graph and the file of tensors has none.
    """
    by_torch_export = (
        "restore the file; to port a model of other code, save its own graph by torch.export "
        f"({page('files.md')})"
    )
    code = port.destination.code_files(port.plan, port.record.layers)
    for name in code:
        if name in port.record.model:
            expect_digest(port.folder / name, port.record.model[name], by_torch_export)
    if not code and checkpoint.graph is None and matched.framework == port.record.framework:
        by_whole_model = (
            "restore the file, or give the whole model, which has its graph: model.save('FILE.keras')"
        )
        expect_digest(
            port.folder / port.destination.MODEL_FILE,
            port.record.model[port.destination.MODEL_FILE],
            by_whole_model,
        )


def _framework(port: StoredPort, checkpoint: Checkpoint) -> str:
    """Return the framework whose names the file's tensors have. Most formats say it; a file of safetensors
    or an .npz does not: it is of the port's own framework (Flax or MLX), or of torch if more of its names
    are.
    """
    framework_of_port = port.record.framework
    stated = {"tf": "tf", "jax": "flax"}.get(checkpoint.dialect or "")
    if stated is not None or framework_of_port not in ("flax", "mlx"):
        return stated or "torch"

    def count_names(framework: str) -> int:
        """Count the names of the file that are those of a port to a framework."""
        keys = get_port_dialect(framework).port_keys(port.plan, {})
        return len(checkpoint.tensors.keys() & {name for names in keys.values() for name in names})

    return framework_of_port if count_names(framework_of_port) >= count_names("torch") else "torch"


def _match(port: StoredPort, checkpoint: Checkpoint, member: Member | None) -> _MatchedTensors:
    """Match the file's tensors by the names that the port's model gives them, and return those that are
    found, ignored, missing and unexpected. A file of another framework has the names of a port to that
    framework. A norm's scale or offset that the port's graph lacks is ignored if it changes nothing.
    """
    graph, record = port.graph, port.record
    framework = _framework(port, checkpoint)
    plan, layers = port.plan, cast(Mapping[str, str], record.layers)
    if framework != record.framework:
        destination = get_destination(framework)
        layers = layers_in(framework, member, record, graph) if destination.NAMES_LAYERS else {}
        plan = make_plan(graph, record.input.size or ANY, destination.CAPABILITIES)
    keys = get_port_dialect(framework).port_keys(plan, layers)
    unmatched = checkpoint.stored_tensors
    names_of_tensors = dict[TensorKey, str]()
    ignored = dict[str, str]()
    missing = list[str]()
    for (path, role), names in keys.items():
        # a further call of a layer, which has the tensors of the first
        if graph.by_path[path].shares is not None:
            continue
        node = graph.by_path[path]
        name = next((name for name in names if name in unmatched), None)
        needed = role in node.op.tensors(graph.channels_by_path[node.inputs[0]])
        if name is None:
            missing += [names[0]] if needed else []
            continue
        # A scale of 1 or an offset of 0 that the graph lacks changes nothing.
        array = unmatched.pop(name)
        if needed or role == "batches" or np.any(array != _NORM_TENSORS[role][1]):
            names_of_tensors[path, role] = name
        else:
            ignored[name] = f"it is {_NORM_TENSORS[role][1]}, and the port's graph has no {role} there"
    # Further calls of a layer have the tensors of its holder, the first call.
    shared = {(path, role): (graph.by_path[path].holder, role) for path, role in keys}
    names_of_tensors = {
        place: names_of_tensors[holder] for place, holder in shared.items() if holder in names_of_tensors
    }
    return _MatchedTensors(framework, names_of_tensors, ignored, tuple(missing), tuple(unmatched))


def _expect_cover(port: StoredPort, checkpoint: Checkpoint, matched: _MatchedTensors) -> None:
    """Refuse a file that lacks tensors of the port's model, or has others. The error says how to save the
    model.
    """
    if not (matched.missing or matched.unexpected):
        return
    problems = [f"the file lacks {some(list(matched.missing))}"] if matched.missing else []
    problems += [f"the port's model has no {some(list(matched.unexpected))}"] if matched.unexpected else []
    next = _SAVING.get(matched.framework, "save all weights of the port's own model, and only those")
    if checkpoint.graph is not None:
        size = None if checkpoint.graph.built_size else size_text(port.record.input.native_size)
        line = CONVERT.advise(subject=checkpoint.path, to=other_than(matched.framework), input_size=size)
        next = f"{line} ports the file by its own graph"
    elif checkpoint.counted:
        next = "save the whole model, which has the layers' names: model.save('FILE.keras')"
    message = f"these are not the tensors of {_folder_name(port)}: {'; '.join(problems)}"
    raise MappingError(message, where=str(checkpoint.path), next=next)


def _head_rows(port: StoredPort, checkpoint: Checkpoint, matched: _MatchedTensors) -> int:
    """Return the number of rows of the file's head; the port's classes if it has no head, or if the head is
    no layer.
    """
    graph, classes = port.graph, port.record.classes
    head = head_of(graph)
    name = matched.tensors.get((head.path, "kernel"))
    if not classes or name is None or not isinstance(head.op, Conv | Dense):
        return classes
    kernel = get_port_dialect(matched.framework).to_canonical(graph, head, "kernel", checkpoint.tensors[name])
    return int(kernel.shape[0])


def _graph_as_trained(port: StoredPort, matched: _MatchedTensors, rows: int) -> Graph:
    """Return the port's graph with so many classes, and with the scales and offsets that its norms got in
    training.

    Args:
        rows: of the file's head, which are its classes.
    """
    graph, head = port.graph, head_of(port.graph)
    changes: dict[str, dict[str, Any]] = {}
    if rows != port.record.classes:
        changes[head.path] = {"units" if isinstance(head.op, Dense) else "filters": rows}
    for path, role in matched.tensors:
        node = graph.by_path[path]
        # A norm without a scale or an offset got one in training: its op says that it has one.
        if role in _NORM_TENSORS and role not in node.op.tensors(graph.channels_by_path[node.inputs[0]]):
            attribute, _ = _NORM_TENSORS[role]
            changes.setdefault(path, {})[attribute] = True
    nodes = (
        replace(node, op=replace(cast(Any, node.op), **changes[node.path])) if node.path in changes else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def _facts(port: StoredPort, rows: int) -> Facts:
    """Return what is known of the port's model, for port.json. The names of its classes are left out if the
    file has another number of classes than the port.
    """
    record = port.record
    facts = {**record.by_name(), "classes": rows, "source_classes": rows, "licence": None, "evaluated": ()}
    facts |= {"origin": Origin(by="graph", says=f"the graph of {_folder_name(port)}"), "twins": ()}
    if "classes" in record.options:
        facts["options"] = {**record.options, "classes": rows}
    if rows != record.classes:
        facts |= {"labels": None, "class_names": (), "background": False}
    return Facts(**facts)


def _taps(port: StoredPort, checkpoint: Checkpoint, matched: _MatchedTensors) -> dict[str, str]:
    """Return by path the tap (the name under which the file's engine gives a value) of layers with the same
    tensors that are called once, and of the outputs. Return none if the file has no graph.

    Raises:
        UsageError: the file's graph has another number of outputs than the port.
    """
    file = checkpoint.graph
    if file is None:
        return {}
    uses = Counter(stored.name for node in file.nodes for stored in node.tensors.values())
    taps_of_tensors = {
        stored.name: node.tap
        for node in file.nodes
        for stored in node.tensors.values()
        if uses[stored.name] == 1
    }
    taps = {
        path: tap
        for (path, _), name in matched.tensors.items()
        if (tap := taps_of_tensors.get(name)) is not None
    }
    own_graph, _ = translate(checkpoint, Wishes(size=port.record.input.native_size))
    end_taps = [file.by_name[own_graph.names[path]].tap for path in own_graph.graph.outputs]
    if len(end_taps) != len(port.graph.outputs):
        message = (
            f"expected {len(port.graph.outputs)} outputs, as {_folder_name(port)} has, got {len(end_taps)} "
            "from the file's own graph"
        )
        raise UsageError(message, where=str(checkpoint.path), next="save the port's own model")
    return taps | {
        path: tap for path, tap in zip(port.graph.outputs, end_taps, strict=True) if tap is not None
    }
