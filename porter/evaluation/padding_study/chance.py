"""Whether the answers of a study's cases say anything: those of weights that were not trained are no better
than chance, and then no case is better than another.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, lgamma, log

from porter.evaluation.padding_study.best_case import error, mean, significance_limit
from porter.evaluation.padding_study.rounds import Outcome

_NEAR = 0.9
"""A mean log-loss or entropy above this share of that of chance says nothing. ImageNet's networks have 1 to 2
nats of 6.9, and MobileNetV2 with the pads of another zoo at all sites 1.4.
"""
_TELLS, _SURE, _TELLS_IF_SURE = 0.05, 0.01, 0.25
"""Answers that tell less than the first share of what they could tell of photos hardly depend on them; those
of random ResNets whose entropy is below the second share of that of chance, for any photo, tell up to the
third. Measured on 32 photos: random weights of 20 networks 0 to 0.04, and 0.2 where they are so sure.
"""


def at_chance(
    outcomes: Sequence[Outcome], classes: int, right: float = 1.0, activation: str | None = None
) -> str | None:
    """Say why nothing can be judged: none of the cases says anything. None where one does.

    With labels, a case says something if significantly more answers are right than chance gives, or the mean
    log-loss is far below that of chance. Without, if the answers have less than the entropy of chance, and
    depend on the photo.

    Args:
        classes: that the answers choose from.
        right: classes of a photo, in the mean.
        activation: see porter.evaluation.losses.
    """
    # the loss and the entropy, in nats, of answers by chance; after a sigmoid each class is a yes or no
    loss = classes * log(2) if activation == "sigmoid" else log(classes)
    if outcomes[0].log_loss is None:
        return _without_labels(outcomes, loss)
    least = min(mean(outcome.judged) for outcome in outcomes)
    share = min(right / classes, 1.0)
    if least < _NEAR * loss:
        return None
    # The limit is divided by the number of cases, because each is one more chance to be right by luck.
    limit = significance_limit(len(outcomes) + 1)
    for outcome in outcomes:
        hits = int((outcome.single == 0).sum())
        if probability_of_at_least(hits, len(outcome.single), share) < limit:
            return None
    errors = min(error(outcome.single, 1) for outcome in outcomes)
    return (
        f"the least top-1 error is {errors:.3f} % and the least log-loss {least:.4f}, and answers by chance "
        f"have {100 * (1 - share):.3f} % and {loss:.4f}"
    )


def _without_labels(outcomes: Sequence[Outcome], loss: float) -> str | None:
    """Say why answers are as good as chance, judged by their entropy and by how much they depend on the
    photo; None if they are not.

    Args:
        loss: the entropy of answers by chance, in nats.
    """
    least = min(mean(outcome.entropy) for outcome in outcomes)
    if least > _NEAR * loss:
        return f"the least entropy is {least:.4f}, and answers by chance have {loss:.4f}"
    # Answers can tell no more of photos than which of them, or which class, it is.
    most = min(loss, log(max(len(outcomes[0].entropy), 1)))
    if not most or any(_tells(outcome, loss, most) for outcome in outcomes):
        return None
    nats = max(outcome.mean_answer - mean(outcome.entropy) for outcome in outcomes)
    return f"the answers are nearly the same for all photos: they tell {nats:.4f} of {most:.4f} nats of them"


def _tells(outcome: Outcome, loss: float, most: float) -> bool:
    """Return whether the answers depend on the photo. They tell of it by how much the entropy of their mean
    exceeds the mean of their entropies.

    Args:
        loss: the entropy of answers by chance, in nats.
        most: what answers could tell of the photo, in nats.
    """
    entropy = mean(outcome.entropy)
    share = (outcome.mean_answer - entropy) / most
    is_sure = entropy < _SURE * loss
    return share >= (_TELLS_IF_SURE if is_sure else _TELLS)


def probability_of_at_least(hits: int, photos: int, share: float) -> float:
    """Return the probability of at least so many hits in so many photos, each of which is a hit with
    probability `share`: the upper tail of the binomial distribution.
    """
    if hits <= 0 or share >= 1:
        return 1.0
    counts = range(hits, photos + 1)
    # The logarithm of the number of ways to choose so many photos.
    log_ways = (lgamma(photos + 1) - lgamma(count + 1) - lgamma(photos - count + 1) for count in counts)
    chances = (
        exp(ways + count * log(share) + (photos - count) * log(1 - share))
        for count, ways in zip(counts, log_ways, strict=True)
    )
    return min(1.0, sum(chances))
