"""The section on whom the model represents; a run without covariates and rational devices has
none."""

import math
from collections.abc import Mapping, Sequence

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, number_text, percent_text
from muster.emulator.report.balance import (
    ENROLLED,
    IMBALANCE,
    PARTICIPATING,
    POPULATION,
    STAGES,
    WEIGHTED,
    Covariate,
    covariates_of,
    signed_text,
)
from muster.emulator.report.balance_charts import left_out_of
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.emulator.report.weights import ratio_text, weights_differ
from muster.emulator.report.willingness import left_behind

_TITLE = "Whom does this model represent?"
_MOST_NAMES = 5
_NOTABLE = 1.05  # times as often


def represented(account: Account, summary: Summary) -> ReportSection | None:
    covariates, points = covariates_of(account), left_behind(account)
    if not covariates:
        return ReportSection(_TITLE, points=points) if points else None
    found = _findings(covariates, weights_differ(account))
    text = " ".join(filter(None, [*found, _reading(covariates), left_out_of(covariates)]))
    columns = ["covariate", "", *STAGES, "SMD", "SMD weighted", f"over {IMBALANCE:g}"]
    table = ReportTable(columns, [_row(covariate) for covariate in covariates], _NOTE, words=2)
    return ReportSection(_TITLE, text, figure="balance", table=table, points=points)


_NOTE = (
    "The table shows means; for a categorical covariate, it shows the share of each level. "
    "Participating: every folded update counts equally. Weighted: every round counts equally, and "
    "within a round each update counts by its weight. SMD: the standardised mean difference, which "
    "is the mean of the updates minus the mean of the population (for X: of the enrolled), divided "
    f"by the standard deviation there. By convention, an SMD over {IMBALANCE:g} is an imbalance "
    "(Austin, Balance diagnostics for comparing the distribution of baseline covariates, "
    "Statistics in Medicine 28, 2009). High means above the median, low means not above it. A "
    "device that lacks a covariate Z counts as 0 in it."
)


def _reading(covariates: Sequence[Covariate]) -> str:
    text = (
        "Where a line of a chart runs above the filled area, devices are over-represented. The "
        "numbers in its title are the standardised mean difference, participating → weighted."
    )
    if any(c.kind == "Z" and c.reference != POPULATION for c in covariates):
        return f"{text} The server knows only the means of the population."
    return text


def _row(covariate: Covariate) -> list[str]:
    text = percent_text if covariate.is_level else number_text
    apart = {stage: covariate.difference(stage) for stage in (PARTICIPATING, WEIGHTED)}
    over = [stage for stage, difference in apart.items() if abs(difference) > IMBALANCE]
    return [
        clean(covariate.name), covariate.kind,
        *(text(covariate.means[stage]) for stage in STAGES),
        *map(signed_text, apart.values()), " and ".join(over),
    ]  # fmt: skip


def _findings(covariates: Sequence[Covariate], weighs: bool) -> list[str]:
    """Sentences on the devices that are over-represented, and on the effect of the weights."""
    compared = [c for c in covariates if not math.isnan(c.difference(PARTICIPATING))]
    if not compared:
        return [
            "No covariate can be compared, because no update was folded yet or no covariate varies."
        ]
    worst = max(compared, key=lambda c: abs(c.difference(PARTICIPATING)))
    over = {stage: _over(compared, stage) for stage in (PARTICIPATING, WEIGHTED)}
    text = f"{_who(worst)} {_apart(worst)}"
    if not over[PARTICIPATING]:
        text = (
            f"The covariates show no over-represented devices: no mean of the updates is more than "
            f"{IMBALANCE:g} standard deviations off."
        )
    if not weighs:
        return [text, "All updates of a round weigh the same, so weights correct nothing."]
    return [text, _weighting(worst, over, len(compared))]


def _over(covariates: Sequence[Covariate], stage: str) -> list[str]:
    return [clean(c.name) for c in covariates if abs(c.difference(stage)) > IMBALANCE]


def _who(worst: Covariate) -> str:
    name, ratio = clean(worst.name), worst.times_as_often()
    many = ratio > 1
    times = ratio if many else 1 / ratio if ratio else math.inf
    # A mean may be far off because of a few devices; then high and low halves hardly differ.
    if not times >= _NOTABLE or many != (worst.difference(PARTICIPATING) > 0):
        target = "population" if worst.kind == "Z" else "enrolled"
        means = number_text(worst.means[PARTICIPATING]), number_text(worst.target)
        return f"The mean of {name} is {means[0]} in the updates, and {means[1]} in the {target}."
    often = "" if math.isinf(times) else f" {ratio_text(times)} times as often"
    high, low = ("high", "low") if many else ("low", "high")
    if worst.kind == "X":
        if not often:
            return f"Devices took part only when {name} was {high}."
        return f"Devices took part{often} when {name} was {high} as when it was {low}."
    if worst.is_level:
        with_it, others = ("with", "others") if many else ("without", "those with it")
        who = f"evices {with_it} {name}"
    else:
        who, others = f"evices with {high} {name}", f"those with {low} {name}"
    return f"D{who} took part{often} as {others}." if often else f"Only d{who} took part."


def _apart(worst: Covariate) -> str:
    """How far a covariate is out of balance, and at which stage that arose."""
    enrolled, took_part = worst.difference(ENROLLED), worst.difference(PARTICIPATING)
    text = f"The standardised mean difference is {signed_text(took_part)}"
    if worst.kind == "X":
        return f"{text}."
    return (
        f"{text}, of which {signed_text(enrolled)} came with enrollment and "
        f"{signed_text(took_part - enrolled)} with participation."
    )


def _weighting(worst: Covariate, over: Mapping[str, Sequence[str]], of: int) -> str:
    raw, weighted = worst.difference(PARTICIPATING), worst.difference(WEIGHTED)
    before, after = len(over[PARTICIPATING]), over[WEIGHTED]
    names = ", ".join(after[:_MOST_NAMES]) + (", …" if len(after) > _MOST_NAMES else "")
    if not before:
        if not after:
            return "This is also true with weights."
        return f"With weights, {len(after)} of {of} means are: {names}."
    verb = "improves" if abs(weighted) <= abs(raw) else "worsens"
    text = f"Weighting {verb} it to {signed_text(weighted)}"
    if of == 1:
        return f"{text}."
    still = f"{len(after)} ({names})" if after else "none"
    return (
        f"{text}. Of {of} means, {before} were over {IMBALANCE:g} without weights and {still} with "
        f"weights."
    )
