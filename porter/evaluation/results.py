"""The results of evaluations, and their JSON. Accuracies are percentages of all images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal

from porter.base.ways_to_run import Precision
from porter.data.photos import Failure
from porter.evaluation.speed import Tried

Crops = Literal[1, 10]
NAMED = 100
"""The most photos of one kind that port.json names."""


@dataclass(frozen=True)
class Accuracy:
    """Top-1 and top-5 over `images`; photos that failed are included and count as not recognised.

    Attributes:
        ci95: of top-1: Wilson's interval at 95 %.
        loss: the mean cross-entropy in nats, of the photos that have one: failed ones do not
            (porter.evaluation.losses.log_losses). None if no photo has one, and in records of older porters.
    """

    images: int
    top1: float
    top5: float
    ci95: tuple[float, float]
    loss: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Differing:
    """A photo in which source and port see different classes: rows of the port's logits. `labels` are without
    a background row.
    """

    name: str
    labels: tuple[int, ...]
    source: int
    port: int


@dataclass(frozen=True)
class Agreement:
    """The source in its own framework beside the port, photo by photo.

    Attributes:
        reference: the model that computed the source's logits: the file's own graph, the zoo's
            implementation, or `self`.
        compared: photos for which both gave logits.
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
    """The verdict: `reproduced`, `off by +0.31`, `not comparable`, or `no published figure`, and the sentence
    that explains it.
    """

    verdict: str
    why: str


@dataclass(frozen=True)
class Evaluation(Judgement, Accuracy):
    """A port over a data set: its accuracy, how that is judged, and how it was measured. The fields of all
    three stand side by side in the record that scripts read, so the first two are inherited.

    Attributes:
        photos: the data set's path, and its layout.
        classes_present: the number of the port's classes that the photos show.
        protocol: the preprocessing, in words.
        preprocess: the same as port.json has one; None in records of older porters.
        fed: the size of the input, and the steps from a photo to it.
        published: the recipe's figure for this variant and zoo, with its source, or None.
        expected: the values of `--expect-top1` and `--tolerance`.
        ok: whether these were met; True if they were not given.
        complete: False if it was interrupted; the figures are then of the photos so far.
        per_second: photos from first to last, over the wall clock.
        limit: the number of photos that `--limit` took of a larger data set; None if all were to be scored.
        split: what `--split` chose; None for the validation set, or all there is.
        labels: the file of `--labels`, which replaced the data set's own labels.
        class_names: the file of `--class-names`, which replaced the port's own.
        unnamed: for `failed`, `excluded` and `differing`, the number of photos that the list does not name.
        classes: of the port; None in records of older porters.
        run: how the port ran, in words.
        tried: the ways of running it that `run` was chosen from, the fastest first.
        fp32: the accuracy of the port in fp32 over the same photos, beside a faster run.
        real: the accuracy by ReaL's labels.
        real_labels: the file of `--real-labels`, which has them.
        waited: the part of the time in which the network waited for photos.
        network: images a second that the network takes by itself; None if the run was short.
    """

    photos: tuple[str, str]
    failed: tuple[Failure, ...] = field(repr=False)
    excluded: tuple[Failure, ...] = field(repr=False)
    classes_present: int
    protocol: str
    crops: Crops
    precision: Precision
    device: str
    source: Agreement | None
    published: Mapping[str, Any] | None
    expected: tuple[float, float] | None
    ok: bool
    complete: bool
    per_second: float
    fed: str = ""
    preprocess: Mapping[str, Any] | None = None
    limit: int | None = None
    split: str | None = None
    labels: str | None = None
    class_names: str | None = None
    warnings: tuple[str, ...] = ()
    unnamed: Mapping[str, int] = field(default_factory=dict)
    classes: int | None = None
    run: str = ""
    tried: tuple[Tried, ...] = ()
    fp32: Accuracy | None = None
    real: Accuracy | None = None
    real_labels: str | None = None
    waited: float | None = None
    network: float | None = None

    def record(self) -> dict[str, Any]:
        """Return the record that `porter eval --json` prints."""
        record = {"ok": self.ok, **asdict(self)}
        for kind in ("failed", "excluded"):
            record[kind] = [{"file": photo["name"], "why": photo["why"]} for photo in record[kind]]
        return record

    def line(self) -> dict[str, Any]:
        """Return the line of this evaluation in port.json, which lists all of them: what was measured, on
        what and when.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        names = (each.name for each in fields(RunLine) if each.name != "date")
        return {"date": now, **{name: getattr(self, name) for name in names}}

    @property
    def has_top5(self) -> bool:
        """Whether top-5 says anything: among five classes or fewer every photo's is."""
        return self.classes is None or self.classes > 5

    def summary(self) -> dict[str, Any]:
        """Return the record that port.json keeps, with the names of the fields here. Of each list of photos
        it has the first `NAMED`, and `unnamed` says how many more there are.
        """
        lists = {
            "failed": self.failed,
            "excluded": self.excluded,
            "differing": self.source.differing if self.source else (),
        }
        shortened = replace(
            self,
            failed=self.failed[:NAMED],
            excluded=self.excluded[:NAMED],
            source=self.source and replace(self.source, differing=self.source.differing[:NAMED]),
            unnamed={name: len(photos) - NAMED for name, photos in lists.items() if len(photos) > NAMED},
        )
        return {"ok": shortened.ok, **asdict(shortened)}


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """What a port's list of evaluations has of one of them (`Evaluation.line`), in this order."""

    date: str
    images: int
    top1: float
    top5: float
    loss: float | None = None
    photos: tuple[str, str]
    split: str | None = None
    limit: int | None = None
    labels: str | None = None
    class_names: str | None = None
    protocol: str
    crops: int = 1
    precision: str = ""
    run: str = ""
    device: str = ""


@dataclass(frozen=True)
class OfPort:
    """An evaluation of one of several ports.

    Attributes:
        port: its folder.
        name: of what it is a port of.
        parameters: how many numbers training changes.
    """

    port: str
    name: str
    framework: str
    evaluation: Evaluation
    parameters: int

    def record(self) -> dict[str, Any]:
        """Return the record that `porter eval PORT PORT --json` prints."""
        return {"port": self.port, "name": self.name, "framework": self.framework, **self.evaluation.record()}
