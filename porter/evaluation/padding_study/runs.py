"""Runs the trials of a padding study over photos: every photo is prepared once for all trials of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array, NamedArrays
from porter.data.photos import Failure, PhotoSet
from porter.data.preprocess import Preprocess
from porter.evaluation.distributed import Process
from porter.evaluation.losses import Losses, entropies, entropy_of, log_losses
from porter.evaluation.measuring import logits_of
from porter.evaluation.padding_study.best_case import UNSCORED, Ranks
from porter.evaluation.padding_study.cases import Setting, Trial
from porter.evaluation.padding_study.rounds import Outcome
from porter.evaluation.photo_options import Options
from porter.evaluation.ranking import probabilities
from porter.evaluation.scoring import Scored, Watching, score
from porter.frameworks import Destination, get_destination
from porter.graph.plan import make_plan
from porter.source.opened import Opened

MOST_BYTES = 4 << 30
"""The most bytes of weights in one pass, counted as if every model had its own; more trials need another
pass.
"""


def running_framework(source_framework: str) -> Destination:
    """Return the destination whose engine runs a study: torch's, whose models share their weights if they
    differ only in pads, or that of the source's framework if torch is not installed.
    """
    torch = get_destination("torch")
    return torch if find_spec(torch.PACKAGE) else get_destination(source_framework)


class AnswerLosses:
    """Collects the losses of one model by the photo's position: of its centre and of the mirror image's,
    averaged; and the sum of its answers.

    Args:
        labels: rows of the logits, by position; None where the photos have none.
        activation: see porter.evaluation.losses.
    """

    def __init__(self, photos: int, labels: Sequence[tuple[int, ...]] | None, activation: str | None) -> None:
        self._labels, self._activation = labels, activation
        self._answers: NDArray[np.float64] | None = None
        self.entropy: Losses = np.full(photos, np.nan)
        self.log_loss: Losses | None = None if labels is None else np.full(photos, np.nan)

    def add(self, positions: Sequence[int], logits: Array) -> None:
        """Add logits N x crops x classes, of two crops or of ten, for the photos at these positions: the mean
        losses of the centre and its mirror image. They are infinite where logits are not finite.
        """
        crops = logits.shape[1]
        # The mirror image of the centre crop is the first of the second half.
        centre_and_mirror = logits[:, [0, crops // 2]].astype(np.float64)
        for position, pair in zip(positions, centre_and_mirror, strict=True):
            if not np.isfinite(pair).all():
                self.entropy[position] = np.inf
                if self.log_loss is not None:
                    self.log_loss[position] = np.inf
                continue
            self.entropy[position] = entropies(pair, self._activation).mean()
            answer = probabilities(pair, self._activation).mean(axis=0)
            self._answers = answer if self._answers is None else self._answers + answer
            if self.log_loss is not None and self._labels is not None:
                labels = [self._labels[position]] * 2
                # each of the two as a photo of one crop
                losses = log_losses(pair[:, np.newaxis], labels, self._activation)
                self.log_loss[position] = losses.mean()

    @property
    def mean_answer(self) -> float:
        """The entropy of the mean of all answers; 0 if there are none."""
        scored = int(np.isfinite(self.entropy).sum())
        return 0.0 if self._answers is None else entropy_of(self._answers / scored, self._activation)


@dataclass
class Bench:
    """A source, and the photos that its trials are run over.

    Attributes:
        failed: by position, the photos that could not be scored so far, without those that the data set
            already names as failed.
    """

    opened: Opened
    setting: Setting
    destination: Destination
    protocol: Preprocess
    photos: PhotoSet
    options: Options
    failed: dict[int, Failure] = field(default_factory=dict)
    _built: Any = None

    @classmethod
    def of(cls, opened: Opened, protocol: Preprocess, photos: PhotoSet, options: Options) -> Bench:
        """Make a bench in a framework that runs here, for the squares that the protocol feeds."""
        destination = running_framework(opened.framework)
        setting = Setting(opened.graph, (protocol.square, protocol.square), destination.CAPABILITIES)
        return cls(opened, setting, destination, protocol, photos, options)

    def run(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Run each trial over all photos, in as many passes as the memory for their models asks for, and
        return their outcomes in the order of the trials.

        Raises:
            KeyboardInterrupt: Ctrl-C ended a pass.
        """
        bytes_of_weights = sum(
            array.nbytes for roles in self.opened.tensors.values() for array in roles.values()
        )
        at_once = max(1, MOST_BYTES // bytes_of_weights)
        passes = [trials[start : start + at_once] for start in range(0, len(trials), at_once)]
        return [outcome for trials_of_pass in passes for outcome in self._pass(trials_of_pass)]

    def _pass(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Run the models of some trials over all photos, each photo prepared once for all of them, and return
        an outcome for each trial.

        Raises:
            KeyboardInterrupt: Ctrl-C ended the pass.
        """
        options, photos = self.options, self.photos.photos
        logits = logits_of(self.opened.facts)
        labels = None
        if not self.photos.unlabelled:
            labels = [tuple(map(logits.row, photo.labels)) for photo in photos]
        losses = {trial.name: AnswerLosses(len(photos), labels, logits.activation) for trial in trials}

        def watch(positions: Sequence[int], by_trial: NamedArrays) -> None:
            """Add the losses of a batch, from each trial's logits."""
            for name, values in by_trial.items():
                losses[name].add(positions, values)

        models = {
            trial.name: self.destination.ENGINE.classifier(
                self._model(trial), self.protocol, options.device, options.run
            )
            for trial in trials
        }
        # The centre and its mirror image are two crops.
        crops = 10 if options.crops == 10 else 2
        feed = options.feed(crops, len(photos), Process())
        scored = score(photos, self.protocol, models, feed, dict.fromkeys(models, logits), Watching(watch))
        if not scored.complete:
            raise KeyboardInterrupt
        return [self._outcome(scored, trial.name, losses[trial.name]) for trial in trials]

    def _model(self, trial: Trial) -> Any:
        """Return the model of a trial: the last built one with other pads, where the engine can let two
        models share weights, otherwise one that is built.
        """
        plan = make_plan(self.setting.padded_graph(trial), self.setting.size, self.destination.CAPABILITIES)
        only_pads = self._built is not None and trial.graph is None  # otherwise, more may differ
        sharing = self.destination.ENGINE.with_other_pads(self._built, plan) if only_pads else None
        if sharing is not None:
            return sharing
        self._built = self.destination.ENGINE.build(
            plan, self.opened.tensors, {}, "float32", self.options.device
        )
        return self._built

    def _outcome(self, scored: Scored, name: str, losses: AnswerLosses) -> Outcome:
        """Make the outcome of a trial from its scores, and note the photos that failed."""
        scores = scored.models[name]
        self.failed |= {**scores.failed, **scored.failed}
        ten = self._ranks(scores.ranks) if self.options.crops == 10 else None
        return Outcome(self._ranks(scores.centre), ten, losses.entropy, losses.log_loss, losses.mean_answer)

    def _ranks(self, scored: Ranks) -> Ranks:
        """Return the ranks of all photos of the data set. Those that failed have UNSCORED, which counts as
        never right: in `scored` they are -1, and those that the data set already names as failed come last.
        """
        never = np.full(len(self.photos.failed), UNSCORED, np.int32)
        return np.concatenate([np.where(scored < 0, UNSCORED, scored).astype(np.int32), never])
