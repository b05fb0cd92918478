"""Names the case of a study: the simplest of the cases that may be as good as the best, and whether it is
certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from porter.evaluation.padding_study.best_case import LEVEL, CaseRanking
from porter.evaluation.padding_study.cases import SHIPPED, TRAINED, Trial
from porter.evaluation.padding_study.rounds import Rounds
from porter.evaluation.padding_study.study_results import StudyAnswer


def name_case(rounds: Rounds, judged: CaseRanking, measure: str) -> StudyAnswer:
    """Return the answer that names the simplest case that may be as good as the best: the shipped pads are
    simpler than a rule for all sites, and a rule is simpler than changes of single sites; of equally simple
    cases, it is the one that was run first. The others are in `also`.

    Args:
        judged: the trials of `rounds`, by `measure`.
        measure: what the loss is called.
    """
    trials = rounds.trials
    plausible = sorted(
        (trials[position] for position in judged.plausible),
        # fewest changes first, the shipped pads before other rules
        key=lambda trial: (trial.changes, SHIPPED not in trial.names),
    )
    name, *also = (trial.name for trial in plausible)
    limit = f"{LEVEL} / {len(trials) - 1}"
    if len(trials) == 1:
        why = "there is no other case to try"
    elif also:
        best = trials[judged.best]
        others = [f"'{trial.name}'" for trial in plausible if trial is not best]
        than = others[0] if len(others) == 1 else f"{len(others)} other cases"
        why = (
            f"'{best.name}' has the least {measure}, but on these photos it is not clearly better than "
            f"{than}: p is not below {limit}"
        )
    else:
        largest_p, nearest_name = max(
            (p, trial.name)
            for position, (p, trial) in enumerate(zip(judged.p, trials, strict=True))
            if position != judged.best
        )
        why = (
            f"every other case has a larger {measure}: p is below {limit}, at most {largest_p:.1e} "
            f"for '{nearest_name}'"
        )
    return StudyAnswer(name, not also and rounds.complete, tuple(also), why, summarise(rounds, judged))


def summarise(rounds: Rounds, judged: CaseRanking) -> str:
    """Say in a sentence which rule holds for all sites, which does not, and what more photos would decide,
    for instance `Trained with asymmetric pads, but valid at stem/pool (certain)`.

    Args:
        rounds: the trials, in groups that were run one after the other.
        judged: how they compare.
    """
    trials, base = rounds.trials, rounds.trials[rounds.base]
    plausible = [trials[position] for position in judged.plausible]
    if len(trials) == 1:
        return f"Trained with {_name_rule(base)}: there is no other case"
    rules = [trial for trial in plausible if not trial.changes]
    # Another rule may be as good, so sites need not be told apart.
    if any(trial is not base for trial in rules):
        number = judged.decisive(judged.needed)
        known = " or ".join(map(_name_rule, rules)) if len(rules) == 2 else f"one of {len(rules)} rules"
        return (
            f"Trained with {known}: {_say_too_few(judged.photos, {} if number is None else {'it': number})}"
        )
    # by site, its convention in each plausible case
    by_path = {
        path: [trial.conventions.get(path) for trial in plausible]
        for trial in plausible
        for path in trial.conventions
    }
    open_sites = [
        path
        for path, conventions in by_path.items()
        if any(convention != conventions[0] for convention in conventions)
    ]
    agreed = [
        f"{conventions[0]} at {path}"
        for path, conventions in by_path.items()
        if path not in open_sites and conventions[0] != base.conventions.get(path)
    ]
    known = _name_rule(base)
    if agreed:
        known = f"{known}, but {' and '.join(agreed)}"
    certain = "certain" if rounds.complete else "so far"
    if not open_sites:
        return f"Trained with {known} ({certain})"
    few = _say_too_few(judged.photos, _photos_to_decide_sites(trials, judged, open_sites))
    return f"Trained with {known} ({certain} but for {_join_sites(open_sites)}): {few}"


def _name_rule(trial: Trial) -> str:
    """Name the pads of a case without changes of single sites: `symmetric pads, as shipped`."""
    given_by = [name for name in trial.names if name in (SHIPPED, TRAINED)]
    rules = [name for name in trial.names if name not in given_by]
    if rules:
        return ", ".join((f"{rules[0]} pads", *given_by))
    return f"the pads {' and '.join(given_by)}"


def _join_sites(sites: Sequence[str]) -> str:
    """List paths in words: `a, b and c`."""
    return " and ".join((", ".join(sites[:-1]), sites[-1])) if len(sites) > 1 else sites[0]


def _photos_to_decide_sites(
    trials: Sequence[Trial], judged: CaseRanking, sites: Sequence[str]
) -> dict[str, int]:
    """Return by site about how many photos decide it: as many as exclude all cases that pad otherwise there
    than the best. If that is one number for all sites, it stands alone under `it` or `them`, for the
    sentence; a site is left out if no number can be said.
    """
    best = trials[judged.best].conventions
    numbers = {
        site: judged.decisive(
            [
                position
                for position in judged.plausible
                if trials[position].conventions.get(site) != best.get(site)
            ]
        )
        for site in sites
    }
    known = {site: number for site, number in numbers.items() if number is not None}
    is_one_number = len(known) == len(sites) and len(set(known.values())) == 1
    if not is_one_number:
        return known
    return {"them" if len(sites) > 1 else "it": known[sites[0]]}


def _say_too_few(photos: int, decisive: Mapping[str, int]) -> str:
    """Say that so many photos are too few, and how many would decide what: `500 photos are too few, about
    2,000 decide it`.
    """
    enough = [f"about {number:,} decide {subject}" for subject, number in decisive.items()]
    return ", ".join([f"{photos:,} photos are too few", *enough])


def at_chance_level(answer: StudyAnswer, chance: str) -> StudyAnswer:
    """Return the answer of a study that cannot judge its cases.

    Args:
        answer: that names all of them.
        chance: porter.evaluation.padding_study.chance.at_chance.
    """
    short = "Not judged: the answers say nothing of the photos, as those of weights that were not trained"
    return replace(answer, why=chance, in_short=short)


def disagreement(trained: StudyAnswer, by_entropy: StudyAnswer | None) -> tuple[str, ...]:
    """Return a warning if the cases that log-loss and entropy allow have none in common; nothing if they
    have, or the study is judged by entropy alone.
    """
    if by_entropy is None or {trained.name, *trained.also} & {by_entropy.name, *by_entropy.also}:
        return ()
    return (f"the entropy of the answers gives another result: {in_words(by_entropy)}",)


def in_words(trained: StudyAnswer) -> str:
    """Name all cases that may be the right one, or say how many they are."""
    if len(trained.also) > 1:
        return f"one of {len(trained.also) + 1} cases"
    return " or ".join((trained.name, *trained.also))
