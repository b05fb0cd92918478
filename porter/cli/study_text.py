"""The output of `porter study padding` for people."""

from __future__ import annotations

from porter.cli.printing import first_lines, table
from porter.evaluation.padding_study.named_case import in_words
from porter.evaluation.padding_study.study_results import Study, StudyAnswer


def study(result: Study) -> list[str]:
    """Return the lines of `porter study padding`: what was studied, the table of cases, and which case the
    weights were trained with.
    """
    path, layout = result.photos
    lines = [
        f"{result.variant} from {' or '.join(result.between) or result.zoo}: {result.weights}",
        f"  photos    {result.images:,} of {path} ({layout}{', --limit' if result.limit else ''})",
        f"  protocol  {result.protocol}",
        f"  sites     {', '.join(result.sites) or 'none'}",
        *first_lines("  failed    ", [*map(str, result.failed)]),
    ]
    if result.unlabelled is not None:
        lines.append(
            f"  classes   none ({result.unlabelled}), so the cases are judged by the entropy of the answers"
        )
    lines += ["", *_table(result), ""]
    lines += [f"skipped: {name}: {why}" for name, why in result.skipped.items()]
    if not result.complete:
        lines.append("INCOMPLETE: interrupted, so later cases are missing")
    lines += _verdict(result.trained, result.chance)
    if result.by_entropy is not None:
        verdict, why = _verdict(result.by_entropy)
        lines += [f"By entropy: {verdict[:1].lower()}{verdict[1:]}", why]
    return [*lines, *(f"  warning   {warning}" for warning in result.warnings)]


def _verdict(trained: StudyAnswer, chance: str | None = None) -> list[str]:
    """Return two lines: what the study says in short; and the case that it names with the reason. Where the
    answers are as good as chance, the second line says that.

    Args:
        chance: why nothing can be judged; None if it can.
    """
    if chance is not None:
        return [f"{trained.in_short}.", f"  {chance}"]
    certain = "certain" if trained.certain else "not certain"
    return [f"{trained.in_short}.", f"  {in_words(trained)} ({certain}): {trained.why}"]


def _table(result: Study) -> list[str]:
    """Return the lines of the table of cases: errors in percent, losses in nats. Columns that no case fills
    are left out, and so are those that say which cases may be it, where only one may.
    """
    # the answers, by the headings of the columns that say which cases each leaves
    answers = {f"by {result.judged_by.replace('_', '-')}": result.trained}
    if result.by_entropy is not None:
        answers["by entropy"] = result.by_entropy
    columns = {
        "case": [case.name for case in result.cases],
        "computes" if result.between else "pads": [case.convention for case in result.cases],
        "top-1 error %": [_figure(case.top1_error, 3) for case in result.cases],
        "top-5 error %": [_figure(case.top5_error, 3) for case in result.cases],
        "ten-crop top-5 error %": [_figure(case.ten_crop_top5_error, 3) for case in result.cases],
        "log-loss": [_figure(case.log_loss, 4) for case in result.cases],
        "entropy": [_figure(case.entropy, 4) for case in result.cases],
        "p": [f"{case.p:.1e}" if case.p < 1 else "" for case in result.cases],
        **{
            name: [result.note_beside(case, answer) for case in result.cases]
            for name, answer in answers.items()
            if answer.also and not result.between
        },
    }
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    return table(list(filled), [list(row) for row in zip(*filled.values(), strict=True)])


def _figure(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
