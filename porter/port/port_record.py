"""The record of a port, port.json: how it was made, of what, and what was measured of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from porter.base.commands import EVALUATE, PHOTOS, PORT
from porter.base.dtypes import HALVES, Dtype
from porter.base.left_out import LeftOut
from porter.data.classes import Classes
from porter.data.labels import LABEL_MAPS, MAX_BYTES, MAX_LABEL, Label, Labels, class_label
from porter.data.preprocess import Preprocess
from porter.frameworks import get_destination, is_converted
from porter.graph import OF_LOGITS
from porter.graph.pads import PadDecision
from porter.padding.sizes import MAX_SIDE, InputSizes
from porter.port.origin import Origin
from porter.port.recorded_files import ReferenceFile, Sha256, SourceFile, Strict
from porter.recipe.twins import Twin

MOST_LEFT_OUT = 10_000

OWN_BUILD = "self"
"""The reference of a comparison with porter's own build of the source, which is no proof."""
# What `check` says of a comparison. port.json names the flag whoever asked, as it always has.
PASSED = "passed"
AGREES = "agrees with porter's own build, which is no proof"
UNHELD = "agrees; not held to"
ROUNDED = "the same before its weights were rounded to 8 bits, which is no proof of the port"
NOT_MADE = "not made: --no-check"


def not_possible(why: object) -> str:
    """Return what `check` says of a comparison that could not be made."""
    return f"skipped: {why}"


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

    def by_name(self) -> dict[str, Any]:
        """These facts by name, without what a record has besides."""
        return {name: getattr(self, name) for name in Facts.model_fields}

    @property
    def label_count(self) -> int:
        """How many classes a photo can be of: those of the port without a background."""
        return self.classes - self.background

    @property
    def label_map(self) -> Labels | None:
        """What the classes are; None if it is not known."""
        known = self.labels is not None and (self.labels in LABEL_MAPS or self.class_names)
        return Labels(str(self.labels), self.class_names) if known else None

    @property
    def label_classes(self) -> Classes:
        """The classes that a photo can be of."""
        return Classes(self.label_count, self.label_map)

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
        study: the last padding study of these weights
            (porter.evaluation.padding_study.study_results.Study.record); None if none was.
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
    reference: ReferenceFile | None = None
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
    def stock_words(self) -> str | None:
        """The call of the stock class whose names the model file has, and the biases that its norms took in;
        None for porter's own names.
        """
        if self.stock_class is None:
            return None
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.stock_arguments.items())
        count = len(self.absorbed)
        absorbed = f"; {count} biases absorbed into the means of the norms after them" if count else ""
        return f"{self.stock_class}({arguments}){absorbed}"

    @property
    def proved(self) -> bool:
        """Whether the port was compared with something that porter did not write, and is its function."""
        return self.check == PASSED

    @property
    def computed(self) -> bool:
        """Whether the port holds computed numbers, which the source lacks: computed in float64, rounded once
        to the port's type.
        """
        has_own = self.folded or self.absorbed or self.evaluated
        return bool(has_own) or is_converted(get_destination(self.framework))

    @property
    def rounding(self) -> str | None:
        """A sentence on what a check of a port in half precision or of 8 bits leaves out: the rounding of
        its weights, about 1e-3 of the source's or 4e-3. None for other types.
        """
        if self.dtype not in HALVES and self.quantize is None:
            return None
        comparison = "compared with the weights of both sides"
        if self.computed:
            comparison = "compared before the port's weights were"
        to = "8 bits" if self.quantize else self.dtype
        command = EVALUATE.advise(folders=[PORT], data=PHOTOS, source=True, weights=self.source.to_give)
        return f"{comparison} rounded to {to}; {command} measures the effect of the rounding"
