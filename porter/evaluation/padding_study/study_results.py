"""The results of a padding study, and their JSON. Errors are percentages of all images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from porter.data.photos import Failure


@dataclass(frozen=True)
class Case:
    """The same weights under one padding convention.

    Attributes:
        sites: the differences from the zoo's own pads: path to convention, in words.
        top1_error, top5_error: of the centre crop; None if the photos have no labels, as are the next two.
        ten_crop_top5_error: also None without ten crops.
        log_loss: of the true classes, in nats, over each photo and its mirror image; also None if some logits
            are not finite.
        entropy: of the answers, likewise.
        p: the probability that a case that is truly no worse than the best looks at least so much worse, by
            the study's measure; 1 for the best.
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
class StudyAnswer:
    """The padding that some weights were trained with.

    Attributes:
        name: of the simplest case that is not significantly worse than the best.
        certain: whether it is the only such case, and no case is missing.
        also: the other such cases, the simplest first.
        why: the reason in a sentence.
        in_short: what is certain, at which sites the photos are too few, and about how many would decide;
            empty in records of older porters.
    """

    name: str
    certain: bool
    also: tuple[str, ...]
    why: str
    in_short: str = ""


@dataclass(frozen=True)
class Study:
    """The result of `porter study padding`: the cases, and the case that the weights were trained with.

    Attributes:
        sites: by path, the conventions tried there, in words, the shipped one first.
        judged_by: `log_loss` if the photos have labels, otherwise `entropy`.
        by_entropy: the result by entropy; None if the study is judged by it, or not at all.
        unlabelled: why the photos have no classes; None if they have classes.
        protocol: the preprocessing, in words.
        preprocess, limit, split, labels, class_names: see Evaluation.
        skipped: by name, why a case was not run.
        complete: False if Ctrl-C ended it; cases that were not measured on all photos are then left out.
        chance: why nothing is judged: the answers of all cases are no better than chance. `trained` then has
            all cases. None where a case says something.
        between: the two zoos that it decides between; empty if it is about pads. `trained` then names one of
            them.
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
    trained: StudyAnswer
    by_entropy: StudyAnswer | None = None
    unlabelled: str | None = None
    protocol: str = ""
    preprocess: Mapping[str, Any] | None = None
    limit: int | None = None
    split: str | None = None
    labels: str | None = None
    class_names: str | None = None
    skipped: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True
    chance: str | None = None
    between: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def note_beside(self, case: Case, answer: StudyAnswer | None = None) -> str:
        """Return the words beside a case in a table: `trained with` if it is the one that an answer names for
        certain, `may be it` if the answer allows it among others. Empty where it does not, or nothing is
        judged.

        Args:
            answer: by default `trained`.
        """
        answer = answer or self.trained
        if self.chance is not None or case.name not in (answer.name, *answer.also):
            return ""
        return "trained with" if answer.certain else "may be it"

    def record(self) -> dict[str, Any]:
        """Return the record that `porter study padding --json` prints."""
        return asdict(self)
