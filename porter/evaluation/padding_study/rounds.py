"""The rounds of a padding study: both conventions at all strided sites, then one site at a time, then all
significant changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from porter.base.errors import PaddingError
from porter.evaluation.losses import Losses
from porter.evaluation.padding_study.best_case import Ranks, best_of, mean, p_no_worse, significance_limit
from porter.evaluation.padding_study.cases import (
    Change,
    Setting,
    Trial,
    TwinRule,
    first_round,
    select_trials,
    single_changes,
    with_changes,
)
from porter.padding import Convention


@dataclass(frozen=True)
class Outcome:
    """The results of a trial for every photo (porter.evaluation.padding_study.best_case).

    Attributes:
        single: ranks by the centre crop.
        ten: ranks by ten crops, if they were run.
        entropy: of the answers, by the centre crop and its mirror image.
        log_loss: likewise; None if the photos have no labels.
        mean_answer: the entropy of the mean of the answers: by so much more than the mean of `entropy`, in
            nats, they depend on the photo.
    """

    single: Ranks
    ten: Ranks | None
    entropy: Losses
    log_loss: Losses | None
    mean_answer: float = inf

    @property
    def judged(self) -> Losses:
        """The losses that the trial is judged by."""
        return self.entropy if self.log_loss is None else self.log_loss


RunTrials = Callable[[Sequence[Trial]], Sequence[Outcome]]
"""Runs trials over the photos, unless KeyboardInterrupt ends it."""


@dataclass(frozen=True)
class Rounds:
    """Trials with their outcomes, in the order in which they were run.

    Attributes:
        skipped: by name, why a trial was not run.
        complete: False if Ctrl-C ended a later round, which is then left out.
        base: the position of the trial of the first round whose sites the later ones change.
    """

    trials: tuple[Trial, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True
    base: int = 0

    def best(self) -> int:
        """Return the position of the trial with the least loss."""
        return best_of([outcome.judged for outcome in self.outcomes])


def run_rounds(
    setting: Setting, trained: Mapping[str, Convention], asked: Sequence[Change], run: RunTrials
) -> Rounds:
    """Run all rounds (groups of trials, each built on the best of those before) and return the trials with
    their outcomes: all strided sites together, then one at a time, then the helpful changes together. Ctrl-C
    in a later round ends them, and the result is not `complete`.

    Args:
        trained: the recipe's conventions of training; empty if it states none.
        asked: the changes of the second round; without any, the other conventions of every strided site.
        run: runs trials over the photos.

    Raises:
        PaddingError: the shipped pads compute nothing at this size.
        KeyboardInterrupt: in the first round.
    """
    shipped, *others = first_round(setting.graph, trained)
    why = setting.misfit(shipped)
    if why is not None:
        raise PaddingError(why)
    rounds = _run_new(Rounds(), setting, [shipped, *others], "name", run)
    rounds = replace(rounds, base=rounds.best())
    base = rounds.trials[rounds.base]
    try:
        changes = list(asked or single_changes(setting.graph, base))
        # What the user asked for is listed as skipped where it changes nothing; what porter tries is not.
        twins: TwinRule = "tell" if asked else "drop"
        rounds = _run_new(rounds, setting, [with_changes(base, [change]) for change in changes], twins, run)
        together = helpful_changes(rounds, base, changes)
        if len(together) > 1:
            rounds = _run_new(rounds, setting, [with_changes(base, together)], "drop", run)
    except KeyboardInterrupt:
        return replace(rounds, complete=False)
    return rounds


def _run_new(
    rounds: Rounds, setting: Setting, candidates: Iterable[Trial], twins: TwinRule, run: RunTrials
) -> Rounds:
    """Run those candidates that compute something new, and return the rounds with them.

    Args:
        twins: what becomes of those that compute the same as a trial, see `select_trials`.
    """
    selected = select_trials(setting, rounds.trials, candidates, twins)
    fresh = selected.trials[len(rounds.trials) :]
    outcomes = run(fresh) if fresh else ()
    skipped = {**rounds.skipped, **selected.skipped}
    return replace(rounds, trials=selected.trials, outcomes=(*rounds.outcomes, *outcomes), skipped=skipped)


def helpful_changes(rounds: Rounds, base: Trial, changes: Iterable[Change]) -> list[Change]:
    """Return the single changes that are significantly better than `base`, the best of each site.

    Changes that look better by chance look better still together: with them, the last round would drop the
    truly best case more often than LEVEL says.
    """
    base_losses = rounds.outcomes[rounds.trials.index(base)].judged
    limit = significance_limit(len(rounds.trials))
    best: dict[str, tuple[float, Change]] = {}
    for change in changes:
        trial = with_changes(base, [change])
        if trial not in rounds.trials:
            continue
        losses = rounds.outcomes[rounds.trials.index(trial)].judged
        loss = mean(losses)
        least_loss = best[change.path][0] if change.path in best else inf
        if p_no_worse(base_losses, losses) < limit and loss < least_loss:
            best[change.path] = (loss, change)
    return [change for _, change in best.values()]
