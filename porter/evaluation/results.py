"""What evaluations and studies find, and how --json prints it. Accuracies and errors are percentages of all images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from porter.data.photos import Failure
from porter.dtypes import Precision

Crops = Literal[1, 10]
NAMED = 100
"""How many photos of one kind port.json names."""


@dataclass(frozen=True)
class Accuracy:
    """Top-1 and top-5 over `images`, those that failed included as not recognised."""

    images: int
    top1: float
    top5: float
    ci95: tuple[float, float]
    """Of top-1: Wilson's interval at 95 %."""


@dataclass(frozen=True)
class Differing:
    """A photo in which source and port see different classes: rows of the port's logits. `labels` are without a background row."""

    name: str
    labels: tuple[int, ...]
    source: int
    port: int


@dataclass(frozen=True)
class Agreement:
    """The source in its own framework beside the port, photo by photo.

    Attributes:
        reference: what computed the source: the file's own graph, an implementation porter did not write, or `self`.
        compared: photos of which both gave logits.
        agreeing: of these, photos with the same likeliest class.
        max_abs: largest distance between two logits.
        rel_l2: largest relative L2 distance between two photos' logits.
    """

    reference: str
    accuracy: Accuracy
    compared: int
    agreeing: int
    max_abs: float
    rel_l2: float
    differing: tuple[Differing, ...] = field(repr=False)


@dataclass(frozen=True)
class Judgement:
    """The verdict: `reproduced`, `off by +0.31`, `not comparable`, or `no published figure`, and the sentence that explains it."""

    verdict: str
    why: str


@dataclass(frozen=True)
class Evaluation:
    """A port over a data set.

    Attributes:
        photos: the data set's path, and its layout.
        classes_present: of those that the port tells apart.
        protocol: the preprocessing, in words.
        fed: the size of the input, and how it comes from a photo.
        published: the recipe's figure for this variant and zoo, with its source, or None.
        expected: what `--expect-top1` and `--tolerance` asked for.
        ok: whether that was met; True where nothing was asked.
        complete: False where it was interrupted: the figures are of the photos until then.
        per_second: photos from first to last, over the wall clock.
        limit: how many photos `--limit` took of a larger data set; None where all were to be scored.
        labels: what `--labels` gave in place of the data set's own.
        warnings: what else has to be said.
        unnamed: of `failed`, `excluded` and `differing`, how many more photos there are than the list names.
    """

    photos: tuple[str, str]
    accuracy: Accuracy
    failed: tuple[Failure, ...] = field(repr=False)
    excluded: tuple[Failure, ...] = field(repr=False)
    classes_present: int
    protocol: str
    crops: Crops
    precision: Precision
    device: str
    source: Agreement | None
    published: Mapping[str, Any] | None
    judgement: Judgement
    expected: tuple[float, float] | None
    ok: bool
    complete: bool
    per_second: float
    fed: str = ""
    limit: int | None = None
    labels: str | None = None
    warnings: tuple[str, ...] = ()
    unnamed: Mapping[str, int] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As `porter eval --json` prints it."""
        fields = self._flat()
        for kind in ("failed", "excluded"):
            fields[kind] = [{"file": photo["name"], "why": photo["why"]} for photo in fields[kind]]
        return fields

    def summary(self) -> dict[str, Any]:
        """As port.json keeps it: with the first `NAMED` of each list of photos, and names as the fields here have them."""
        lists = {"failed": self.failed, "excluded": self.excluded, "differing": self.source.differing if self.source else ()}
        cut = replace(
            self,
            failed=self.failed[:NAMED],
            excluded=self.excluded[:NAMED],
            source=self.source and replace(self.source, differing=self.source.differing[:NAMED]),
            unnamed={name: len(photos) - NAMED for name, photos in lists.items() if len(photos) > NAMED},
        )
        return cut._flat()

    def _flat(self) -> dict[str, Any]:
        fields = asdict(self)
        return {"ok": fields.pop("ok"), **fields.pop("accuracy"), **fields.pop("judgement"), **fields}


@dataclass(frozen=True)
class Case:
    """The same weights under one padding convention.

    Attributes:
        sites: what differs from the zoo's own pads: path to convention, in words.
        top1_error, top5_error: of the centre crop; None where the photos have no labels, as are the next two.
        ten_crop_top5_error: None too unless ten crops were asked for.
        log_loss: of the true classes, in nats, over each photo and its mirror image; None too where some logits are not finite.
        entropy: of the answers, likewise.
        p: how likely the case would look so much worse than the best were it truly no worse, by what the study is judged by; 1 for
            the best.
    """

    name: str
    convention: str
    sites: Mapping[str, str]
    top1_error: float | None
    top5_error: float | None
    ten_crop_top5_error: float | None
    log_loss: float | None
    entropy: float | None
    p: float


@dataclass(frozen=True)
class Trained:
    """What some weights were trained with.

    Attributes:
        name: of the simplest case that is not significantly worse than the best.
        certain: whether it is the only one of these, and no case is missing.
        also: the others, from the simplest on.
        why: all that in a sentence.
    """

    name: str
    certain: bool
    also: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Study:
    """`porter study padding`: what the weights were trained with, of the cases tried.

    Attributes:
        sites: by path, the conventions tried there, in words, the shipped one first.
        judged_by: `log_loss` where the photos have labels, otherwise `entropy`.
        by_entropy: what the entropy says; None where the study is judged by it.
        unlabelled: why the photos are taken without classes; None where they have classes.
        protocol: the preprocessing, in words.
        limit, labels: see Evaluation.
        skipped: by name, why a case was not run.
        complete: False where Ctrl-C ended it: what was not measured on all photos is left out.
    """

    variant: str
    zoo: str
    weights: str
    photos: tuple[str, str]
    images: int
    failed: tuple[Failure, ...] = field(repr=False)
    sites: Mapping[str, tuple[str, ...]] = field(repr=False)
    cases: tuple[Case, ...] = field(repr=False)
    judged_by: Literal["log_loss", "entropy"]
    trained: Trained
    by_entropy: Trained | None = None
    unlabelled: str | None = None
    protocol: str = ""
    limit: int | None = None
    labels: str | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True
    warnings: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As `porter study padding --json` prints it."""
        return asdict(self)
