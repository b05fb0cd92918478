"""The port: a folder with the destination model and port.json, the record of how it was made and of its input
and output.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, ValidationError

from porter.base.calls import takes
from porter.base.commands import CONVERT, EVALUATE, FRAMEWORK, PHOTOS, PORT, VARIANT, ZOO, LoadOptions
from porter.base.dtypes import Dtype
from porter.base.errors import FileError, GraphError, UsageError
from porter.base.left_out import LeftOut
from porter.data.labels import LABEL_MAPS, MAX_BYTES, MAX_LABEL, Label, Labels, class_label
from porter.data.preprocess import Preprocess, ProtocolError
from porter.files import expect_plain, is_plain, recover_folder, write_whole
from porter.formats.limits import read_json
from porter.frameworks import CONVERTED, Destination, OwnTensors, Tensors, get_destination
from porter.graph import OF_LOGITS, Graph, tensor_shapes
from porter.graph.left_out import notes_on
from porter.graph.memory_bounds import expect_bounded
from porter.graph.pads import PadDecision
from porter.graph.plan import Plan, make_plan
from porter.graph.record import from_record
from porter.padding import ANY
from porter.padding.sizes import MAX_SIDE, InputSizes
from porter.port.holding import AGAIN, expect_digest, where_trained
from porter.port.origin import Origin
from porter.port.recorded_files import GivenFile, Sha256, SourceFile, Strict
from porter.recipe.twins import Twin

RECORD = "port.json"
MAX_RECORD_BYTES = 64 << 20
MOST_LEFT_OUT = 10_000
MOST_LINES = 200
"""The most evaluations that port.json lists."""

OWN_BUILD = "self"
"""The reference of a comparison with porter's own build of the source, which is no proof."""
PASSED, AGREES, UNHELD, NOT_MADE = (
    "passed",
    "agrees with porter's own build, which is no proof",
    "agrees; not held to",
    "not made: --no-check",
)
ROUNDED = "the same before its weights were rounded to 8 bits, which is no proof of the port"
"""What `check` says of a comparison; of one that could not be made, it says `skipped` and why."""


ImageSide = Annotated[int, Field(ge=1, le=MAX_SIDE)]
NonNegative = Annotated[int, Field(ge=0, lt=2**63)]
FileName = Annotated[str, Field(pattern=r"^\w[\w.-]*$", max_length=255)]
StoredClassNames = Annotated[
    tuple[Annotated[str, Field(max_length=MAX_LABEL)], ...], Field(max_length=MAX_BYTES)
]
Padding = Literal["shipped", "trained"]
"""The pads of a port: the source's own, or the training pads at the sites where the recipe says that they
differ.
"""
ProtocolBy = Literal["published", "recipe", "file", "user"]
"""Who states the protocol: the zoo that publishes this file, a recipe for a file that its zoo does not
publish, what stands beside the file, or the user.
"""
Gives = Literal["logits", "probabilities", "features"]
"""What a model's output is: probabilities if the source's last softmax or sigmoid is kept, features if there
are no classes.
"""


Layout = Literal["NCHW", "NHWC", "NC", "file"]
"""The layout of a map in its destination (NCHW, NHWC), of features (NC), and of an array (file), which has
the axes of the file in every destination.
"""


Quantize = Literal["dynamic"]
"""How weights are rounded to whole numbers: by the largest of each filter, which the runtime multiplies with
again.
"""


class Input(Strict):
    """The model's input.

    Attributes:
        size: the only size (rows, columns) at which the model is right; None if it is right at every size.
        native_size: the size that the source was built for: the file's own, otherwise the recipe's.
        traced: whether `size` is the source's own too, because numbers in its file were computed from that
            size. Otherwise a port of this port may take other sizes.
    """

    layout: Layout
    size: tuple[ImageSide, ImageSide] | None
    native_size: tuple[ImageSide, ImageSide]
    channels: int = Field(ge=1, le=4096)
    traced: bool = False

    @property
    def sizes(self) -> InputSizes:
        """The input sizes at which a port of this port is proved."""
        return InputSizes(self.size or self.native_size, self.size if self.traced else None)


class TensorLists(Strict):
    """Source tensor names: those used, to `path:role`; those ignored, to the reason. And names of destination
    tensors that the source lacks, to the number that fills them.
    """

    used: Mapping[str, str]
    ignored: Mapping[str, str]
    filled: Mapping[str, str]

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many tensors are ignored for each reason."""
        return Counter(self.ignored.values())

    @property
    def fillings(self) -> Mapping[str, int]:
        """How many tensors are filled, by the last word of their names and the number:
        `{'num_batches_tracked = 0': 53}`.
        """
        return Counter(f"{re.split('[./]', name)[-1]} = {number}" for name, number in self.filled.items())

    def counts(self) -> dict[str, Any]:
        """Return how many tensors are used, ignored and filled, as `--json` prints it."""
        used, ignored, filled = len(self.used), len(self.ignored), len(self.filled)
        return {
            "used": used,
            "ignored": ignored,
            "filled": filled,
            "reasons": self.reasons,
            "fillings": self.fillings,
        }


_NOT_PRINTED = {
    "format",
    "graph",
    "layers",
    "names",
    "batches",
    "class_names",
    "evaluation",
    "evaluations",
    "study",
}


class RecordHead(Strict):
    """What a port is and what it was made from.

    Attributes:
        architecture, variant, zoo: None for a file of a graph that no recipe has.
        model: the sha256 of each file that the port's model consists of, by name.
    """

    format: Literal[1]
    architecture: str | None
    variant: str | None
    zoo: str | None
    framework: str
    graph: dict[str, Any]
    input: Input
    source: SourceFile
    model: Annotated[dict[FileName, Sha256], Field(max_length=16)]
    pads: tuple[PadDecision, ...]


class Facts(Strict):
    """What is true of a source and of its port.

    Attributes:
        padding: whether the graph has the shipped or the training pads.
        options: those that the recipe's graph was expanded with; only the number of classes if the file
            carries its own graph; none without a recipe.
        assumed: one line for each fact that neither the file nor the user states and the recipe does.
        names: by path, what the file calls its layers, if no recipe has its graph; empty in ports of older
            porters, whose paths are these names.
        output_names: what the file calls the outputs, in their order, if it names them and no recipe has its
            graph; where the last activation is taken off, this is the name of its value.
        preprocess: the protocol that turns a photo into the input.
        protocol_by: who states it; None where there is none, and in ports of older porters.
        labels: the name of the map of the classes: one that porter has, or the file of a recipe; None if it
            is not known.
        class_names: the names in that file, in the order of the classes; empty for a map that porter has.
        classes: of the port; 0 if it has no head.
        source_classes: rows of the file's head.
        background: row 0 of the port's head is ImageNet's background class.
        activation: the source's own after its output, which the port lacks.
        left_out: layers of the file that act in training only, which the port lacks.
        licence: of the zoo's published file; None for any other file.
        origin: where the weights come from, by what states it; None if nothing does.
        twins: other zoos' variants that take the same tensors and compute something else; none where the file
            carries its graph.
        evaluated: names of source tensors that porter computed, from the file's, such as kernels that the
            model standardises as it runs, or by a rule of the zoo's code.
    """

    padding: Padding = "shipped"
    options: dict[str, Any]
    assumed: tuple[str, ...] = ()
    names: Mapping[str, str] = {}
    output_names: tuple[str, ...] = ()
    preprocess: Preprocess | None
    protocol_by: ProtocolBy | None = None
    labels: str | None
    class_names: StoredClassNames = ()
    classes: int
    source_classes: int
    background: bool
    output: Gives
    activation: Annotated[str, Field(pattern=f"^(?:{'|'.join(op.name for op in OF_LOGITS)})$")] | None
    left_out: Annotated[tuple[LeftOut, ...], Field(max_length=MOST_LEFT_OUT)] = ()
    licence: str | None
    origin: Origin | None = None
    twins: tuple[Twin, ...] = ()
    evaluated: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, Any]:
        """These facts by name, without what a record has besides."""
        return {name: getattr(self, name) for name in Facts.model_fields}

    @property
    def label_map(self) -> Labels | None:
        """What the classes are; None if it is not known."""
        known = self.labels is not None and (self.labels in LABEL_MAPS or self.class_names)
        return Labels(str(self.labels), self.class_names) if known else None

    def label_of(self, row: int) -> Label | None:
        """Return what a row of the port's logits stands for; None if it is not known, or there is no such
        row.
        """
        return class_label(row, self.label_map, self.background)


class Record(Facts, RecordHead):
    """The content of port.json. pydantic has the fields of the last class first.

    Attributes:
        chosen: the options that `--option` set.
        ended_at: the file's names of the values that `--outputs` made the graph's outputs.
        recipes: the folder that `--recipes` named, as it was typed, if only that folder has the recipe;
            otherwise None.
        quantize: how the weights are rounded to 8 bits; None where they are not.
        folded: path of each layer that took in the batch norm after it (porter.graph.folding), to that norm's
            path; None without `--fold-bn`.
        absorbed: path of each batch norm whose mean took in the bias of the layer before it
            (porter.conversion), to that layer's.
        reference: the user's own, if the port was compared with one.
        stock_class: the builder of the class whose names the model file has, called with `stock_arguments`;
            None for porter's own names.
        parity: the comparison with the source (porter.verification.results.VerdictRecord); None if none was
            made.
        warnings: what `convert` warned of; none in ports of older porters.
        evaluation: the accuracy measured over the most photos, the last of these
            (porter.evaluation.results.Evaluation.summary); None if none was.
        evaluations: a line for each accuracy measured, the last MOST_LINES
            (porter.evaluation.results.Evaluation.line).
        study: the last padding study of these weights (porter.evaluation.results.Study.record); None if none
            was.
        input_layouts: of each input, where there are several.
        output_layouts: of each output; none in ports of older porters.
    """

    chosen: Mapping[str, Any] = {}
    recipes: str | None = None
    layers: dict[str, str]
    batches: dict[str, NonNegative]
    tensors: TensorLists
    mapped: tuple[str, ...]
    ended_at: tuple[str, ...] = ()
    dtype: Dtype
    quantize: Quantize | None = None
    input_layouts: tuple[Layout, ...] = ()
    output_layouts: tuple[Layout, ...] = ()
    folded: Mapping[str, str] | None = None
    absorbed: Mapping[str, str] = {}
    stock_class: str | None
    stock_arguments: Mapping[str, Any] = {}
    reference: GivenFile | None = None
    parity: dict[str, Any] | None
    check: str
    warnings: tuple[str, ...] = ()
    versions: dict[str, str]
    evaluation: dict[str, Any] | None = None
    evaluations: tuple[dict[str, Any], ...] = ()
    study: dict[str, Any] | None = None

    def summary(self) -> dict[str, Any]:
        """Return the record that `porter convert --json` prints: it is without figures that are measured
        later, and without lists of nodes and tensors.
        """
        folded = None if self.folded is None else {"norms": len(self.folded), "kept": self.norms}
        return {
            **self.model_dump(mode="json", exclude=_NOT_PRINTED),
            "tensors": self.tensors.counts(),
            "folded": folded,
        }

    @property
    def norms(self) -> list[str]:
        """The batch norms of the port: after folding, those that stay."""
        return [node["path"] for node in self.graph["nodes"] if node["op"] == "batch_norm"]

    @property
    def name(self) -> str:
        """The name of what was ported: a variant of a zoo, or a file."""
        return f"{self.variant} from {self.zoo}" if self.variant else self.source.file

    @property
    def proved(self) -> bool:
        """Whether the port was compared with something that porter did not write, and is its function."""
        return self.check == PASSED

    @property
    def computed(self) -> bool:
        """Whether the port holds computed numbers, which the source lacks: computed in float64, rounded once
        to the port's type.
        """
        return bool(self.folded or self.absorbed or self.evaluated or self.framework in CONVERTED)

    @property
    def rounding(self) -> str | None:
        """A sentence on what a check of a port in half precision or of 8 bits leaves out: the rounding of
        its weights, about 1e-3 of the source's or 4e-3. None for other types.
        """
        if self.dtype not in ("float16", "bfloat16") and self.quantize is None:
            return None
        comparison = "compared with the weights of both sides"
        if self.computed:
            comparison = "compared before the port's weights were"
        to = "8 bits" if self.quantize else self.dtype
        command = EVALUATE.advise(folders=[PORT], data=PHOTOS, source=True, weights=self.source.to_give)
        return f"{comparison} rounded to {to}; {command} measures the effect of the rounding"


@dataclass(frozen=True)
class StoredPort:
    """A port on disk, read and validated."""

    folder: Path
    record: Record = field(repr=False)
    graph: Graph = field(repr=False)
    plan: Plan = field(repr=False)
    destination: Destination = field(repr=False)

    def tensors(self) -> OwnTensors:
        """Read the port's canonical tensors as stored (porter.graph.tensor_shapes)."""
        return self.destination.read_port(self.folder, self.plan, self.record.layers)

    def build(self, dtype: Dtype | None = None, device: str = "cpu", tensors: Tensors | None = None) -> Any:
        """Build the model from port.json's graph (never from model.py), in `dtype` or the port's own type,
        with `tensors` or its own tensors.
        """
        engine, record = self.destination.ENGINE, self.record
        return engine.build(
            self.plan, tensors or self.tensors(), record.layers, dtype or record.dtype, device
        )


class LoadedModel(Protocol):
    """torch's `nn.Module` in eval mode, a Keras model, or what runs the port's file on arrays of numpy. It is
    called with a batch of the framework's own kind, and has the attributes that the framework gives it.
    """

    def __call__(self, batch: Any, /) -> Any: ...

    def __getattr__(self, name: str, /) -> Any: ...


@takes(LoadOptions)
def load(asked: LoadOptions) -> LoadedModel:
    """Load the model of a port, built from port.json and never from model.py."""
    model: LoadedModel = read_port(Path(asked.folder)).build(device=asked.device)
    return model


def port_at(path: Path, *, held: bool = True) -> StoredPort | None:
    """Read the port whose folder, record or model file is `path`; None for any other path.

    A port.json beside a file that it does not list has nothing to do with the file, and may be anybody's. A
    file that does not hold the port's tensors is read as others' are.

    Args:
        held: as for `read_port`.
    """
    if (path / RECORD).is_file():
        return read_port(path, held=held)
    # a file inside a port's folder
    record = path.parent / RECORD
    if not is_plain(record) or path.name not in (RECORD, *_model_files(record)):
        return None
    port = read_port(path.parent, held=held)
    holds_tensors = port.record.framework not in CONVERTED
    return port if holds_tensors or path.name == RECORD else None


def model_file(path: Path) -> Path:
    """Return the file of weights of a port's folder, which may be another one than porter wrote; every other
    path as it is.
    """
    if not (path / RECORD).is_file():
        return path
    return path / read_port(path, held=False).destination.MODEL_FILE


def _model_files(record: Path) -> tuple[str, ...]:
    """Return the names of a model's files that a port.json lists, which is not validated; none if it is not
    like one of porter's.
    """
    try:
        is_too_large = record.stat().st_size > MAX_RECORD_BYTES
        content = read_json("" if is_too_large else record.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    model = content.get("model") if isinstance(content, dict) else None
    return tuple(model) if isinstance(model, dict) else ()


def _made_by(path: Path) -> str:
    """Return the command that makes a port of a path that is none: of that file or folder, or if nothing is
    there, of a variant.
    """
    is_empty = not any(path.iterdir()) if path.is_dir() else not path.exists()
    # A repository of the Hub is not on this disk.
    if is_empty and not str(path).startswith("hf:"):
        return f"{CONVERT.advise(subject=VARIANT, source=ZOO, to=FRAMEWORK)} makes one"
    return f"{CONVERT.advise(subject=path, to='torch')} makes one: name its folder"


def _destination_of(record: Record, path: Path) -> Destination:
    """Return the destination (a framework that ports are written for) that wrote a port.

    Raises:
        FileError: a plug-in added it, which is not installed.
    """
    try:
        return get_destination(record.framework)
    except UsageError:
        others = [name for name in record.versions if name not in ("porter", "numpy")]
        raise FileError(
            f"the port is written for '{record.framework}', which this porter does not have",
            where=path,
            next=f"install the package that adds it: {' or '.join(others) or 'port.json does not say which'}",
        ) from None


def read_port(folder: Path, *, held: bool = True) -> StoredPort:
    """Read a port's record; its tensors are read when they are needed.

    Args:
        held: whether the digests of its model's files are compared with port.json. Other files in the folder
            are not the port's.

    Raises:
        UsageError: there is no port. FileError, GraphError: the record is damaged, too large or of another
            format.
        ChecksumError: a file's digest is not the one in port.json.
    """
    recover_folder(folder)
    path = folder / RECORD
    if not path.is_file():
        raise UsageError("this is not a port: it has no port.json", where=folder, next=_made_by(folder))
    record = _read_record(path)
    destination = _destination_of(record, path)
    if destination.MODEL_FILE not in record.model:
        raise FileError(f"'model' lacks {destination.MODEL_FILE}", where=path, next="convert again")
    if held:
        for name, sha256 in record.model.items():
            is_model = name == destination.MODEL_FILE
            advice = where_trained(folder, destination) if is_model else AGAIN
            expect_digest(folder / name, sha256, advice)
    try:
        graph = from_record(record.graph)
        expect_bounded(graph, record.input.size or record.input.native_size)
    except GraphError as error:
        raise error.at(f"{path}: {error.where}", error.next or "convert again") from None
    rows, *_ = tensor_shapes(graph).get(graph.output, {}).get("kernel", (record.classes,))
    if record.output == "logits" and rows != record.classes:
        raise FileError(
            f"expected 'classes' to be {rows}, as the graph's head has, got {record.classes}",
            where=path,
            next="convert again",
        )
    plan = make_plan(graph, record.input.size or ANY, destination.CAPABILITIES)
    # A class of keras.applications takes only the size that it was built for, even if its pads are right at
    # every size.
    only_size, native_size = record.input.size, record.input.native_size
    plan = replace(plan, only_size=only_size, usual_size=native_size, notes=notes_on(record.left_out))
    return StoredPort(folder, record, graph, plan, destination)


def _read_record(path: Path) -> Record:
    """Read and validate a port.json, whose graph is not read yet."""
    expect_plain(path)
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise FileError("this record is too large to be porter's", where=path, next="convert again")
    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(map(str, detail["loc"])) or "the top"
        raise FileError(f"{detail['msg']} at {place}", where=path, next="convert again") from None
    except ProtocolError as error:
        raise FileError(f"{error.message} at preprocess", where=path, next="convert again") from None


def write_record(folder: Path, record: Record) -> None:
    """Write port.json into a port's folder; an old one stays until the new one is complete."""
    write_whole(folder / RECORD, json.dumps(record.model_dump(mode="json"), indent=1, allow_nan=False) + "\n")


def update_record(
    folder: Path,
    figures: Literal["evaluation", "study"],
    measured: dict[str, Any],
    line: dict[str, Any] | None = None,
) -> None:
    """Write figures that were measured later into a port's port.json, and a `line` into its list of
    evaluations. It is read again, because it may have changed meanwhile.

    Raises:
        UsageError, FileError: as `read_port`, or the folder cannot be written.
    """
    record = read_port(folder, held=False).record
    lines = record.evaluations if line is None else (*record.evaluations, line)[-MOST_LINES:]
    write_record(folder, record.model_copy(update={figures: measured, "evaluations": lines}))
