"""The sections on weights and on the estimates behind them.

A run has none of them if all its updates weigh the same and its aggregator estimated nothing.
"""

import pandas as pd

from muster.common.events import BY_MUSTER, AppMeasured
from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean, number_text, percent_text, seconds_text
from muster.emulator.report.coverage import COVERAGE
from muster.emulator.report.privacy import PRIVACY
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.emulator.report.shares import FLOOR, SHARES, finding, floor_of, shares_of
from muster.emulator.report.weights import (
    panels_of,
    ratio_text,
    single_values,
    weighed,
    weights_differ,
)

PROPENSITIES = ("enrollment", "participation")
OVERLAP, CLIPPED = "overlap_", "clipped"
CALIBRATION, RESIDUALS, STALE = "calibration", "calibration_residuals", "stale"

MOST_ROWS = 200

_LABELS = {"residual": "norm of all residuals", "of": "devices"}

_QUANTILES = {"min": "least", "p05": "5th percentile", "median": "median", "max": "largest"}


def weights(account: Account, summary: Summary) -> ReportSection | None:
    rounds, warnings = weighed(account), _warnings(account)
    estimated = (~account.estimates["name"].isin([COVERAGE, AppMeasured.name])).any()
    if not estimated and not weights_differ(account) and warnings is None:
        return None
    text = (
        "If a few weights are large, the model rests on few updates. The effective size is the "
        "number of equally weighted updates that would average out noise as well."
    )
    facts = [
        ("effective size", f"{percent_text(rounds['share'].median())} of the updates"),
        ("largest weight", f"{ratio_text(rounds['largest'].max())} × the mean"),
    ]
    shown = facts if len(rounds) else ()
    figure, points = "weights" if panels_of(rounds) else "", single_values(rounds)
    return ReportSection("Weights", text, shown, figure, table=warnings, points=points)


def propensities(account: Account, summary: Summary) -> ReportSection | None:
    tables = {name: _newest(account, name) for name in PROPENSITIES}
    found = {name: table for name, table in tables.items() if table}
    stale = _stale(account)
    if not found and not stale:
        return None
    text = (
        "The models that the server fitted of which devices enroll and which take part: log-odds "
        "for each covariate. A covariate with a large coefficient strongly decides which devices "
        "contribute; the weights correct for it."
    )
    if stale:
        text += (
            " Old X: if a device could not be reached, the server uses its last known covariates X."
        )
    columns = dict.fromkeys(column for table in found.values() for column in table)
    rows = [
        [clean(column), *(number_text(table.get(column)) for table in found.values())]
        for column in columns
    ]
    note = "Coefficients in the newest round."
    table = ReportTable(["covariate", *found], rows, note) if rows else None
    return ReportSection("Fitted propensities", text, facts=stale, table=table)


def overlap(account: Account, summary: Summary) -> ReportSection | None:
    clipped, rows = _clipped(account), []
    for name in PROPENSITIES:
        quantiles = _newest(account, f"{OVERLAP}{name}")
        if quantiles or name in clipped:
            numbers = [number_text(quantiles.get(quantile)) for quantile in _QUANTILES]
            rows.append([name, *numbers, clipped.get(name, "–")])
    if not rows:
        return None
    text = (
        "A device that rarely takes part stands for many others when it does. Propensities near 0 "
        "therefore make weights large and the model noisy. A propensity below the floor is raised "
        "to the floor, which leaves some bias."
    )
    columns = ["propensity", *_QUANTILES.values(), "below the floor"]
    note = "Values in the newest round; at most: the largest value in any round."
    return ReportSection("Overlap", text, table=ReportTable(columns, rows, note))


def calibration(account: Account, summary: Summary) -> ReportSection | None:
    numbers, words = _newest(account, CALIBRATION), _words(account, CALIBRATION)
    residuals = _newest(account, RESIDUALS)
    if not numbers and not words and not residuals:
        return None
    method, fallen_back = words.pop("method", ""), words.pop("fallen_back", "")
    facts = [("method", clean(method))] if method else []
    facts += [("fallen back from", clean(fallen_back))] if fallen_back else []
    facts += [(_LABELS.get(name, clean(name)), number_text(n)) for name, n in numbers.items()]
    facts += [(clean(name), clean(word)) for name, word in words.items()]
    text = (
        "The enrolled devices get weights under which their feature means equal those of the "
        "population. A residual is the difference that remains."
    )
    rows = [[clean(feature), number_text(residual)] for feature, residual in residuals.items()]
    table = ReportTable(["feature", "residual"], rows) if rows else None
    return ReportSection("Calibration", text, facts=facts, table=table)


def shares(account: Account, summary: Summary) -> ReportSection | None:
    table = shares_of(account)
    if table.empty:
        return None
    text = (
        f"{finding(table, floor_of(account))} in the newest round. ĉ is the share of a device in a "
        f"round's mean, {_averaged(account)}. With M enrolled devices, its updates weigh 1/(M·ĉ). "
        f"A device below the floor weighs as much as one at the floor, so it counts for less than "
        f"it should."
    )
    below = _clipped(account).get(SHARES)
    facts = [("updates below the floor in a round", below)] if below else []
    figure = "shares" if table.stack().nunique() > 1 else ""
    return ReportSection("Shares", text, facts=facts, figure=figure)


def _averaged(account: Account) -> str:
    rule = account.scenario.get("server", {}).get("aggregator", {})
    if rule.get("shares") == "exact":
        return "here the true c, which the emulator computed and which stays the same in all rounds"
    return "on average over the rounds so far"


def estimates(account: Account, summary: Summary) -> ReportSection | None:
    estimates = account.estimates
    names = estimates["name"].cat.categories
    others = estimates[~estimates["name"].isin(filter(_known, names))]
    if others.empty:
        return None
    rows = []
    for (name, key), values in others.groupby(["name", "key"], observed=True, sort=False):
        last, numbers = values.iloc[-1], values["value"].dropna()
        newest = number_text(last["value"]) if pd.isna(last["word"]) else clean(last["word"])
        ends = (number_text(numbers.min()), number_text(numbers.max()))
        rows.append([clean(name), clean(key), f"{len(values):,}", newest, *ends])
    columns = ["estimate", "of", "rounds", "newest", "lowest", "highest"]
    left_out = len(rows) - MOST_ROWS
    note = f"{left_out:,} more are in ledger.sqlite, table estimates." if left_out > 0 else ""
    text = "Other values that the aggregator reported about its weights."
    table = ReportTable(columns, rows[:MOST_ROWS], note, words=2)
    return ReportSection("Further estimates", text, table=table)


def _known(name: str) -> bool:
    """Whether another section shows estimates of this name."""
    shown = {*PROPENSITIES, CALIBRATION, RESIDUALS, STALE, SHARES, FLOOR, PRIVACY, COVERAGE,
             AppMeasured.name}  # fmt: skip
    return name in shown or name.startswith(OVERLAP) or _is_clipped(name)


def _is_clipped(name: str) -> bool:
    return name.partition("_")[0] == CLIPPED


def _last(account: Account, name: str) -> pd.DataFrame:
    """The rows of the newest estimate called `name` that is a table."""
    estimates = account.estimates
    rows = estimates[(estimates["name"] == name) & (estimates["key"] != "")]
    newest: pd.DataFrame = rows[rows["round"] == rows["round"].max()]
    return newest.astype({"key": str})


def _newest(account: Account, name: str) -> dict[str, float]:
    """The numbers of the newest table called `name`, by key."""
    rows = _last(account, name).dropna(subset="value")
    return dict(zip(rows["key"], rows["value"], strict=True))


def _words(account: Account, name: str) -> dict[str, str]:
    """The words of the newest table called `name`, by key."""
    rows = _last(account, name).dropna(subset="word")
    return dict(zip(rows["key"], rows["word"], strict=True))


def _clipped(account: Account) -> dict[str, str]:
    """The number of propensities or shares that were below the floor, as text, by kind.

    An estimate called `clipped` is a table with a key for each kind; one called, for example,
    `clipped_participation` is a single number.
    """
    estimates = account.estimates
    names = [name for name in estimates["name"].cat.categories if _is_clipped(name)]
    rows = estimates[estimates["name"].isin(names)].dropna(subset="value")
    found = {}
    for (name, key), counts in rows.groupby(["name", "key"], observed=True, sort=False)["value"]:
        kind = str(key) or str(name).partition("_")[2]
        most = f" (at most {counts.max():,.0f})" if counts.max() else ""
        found[kind] = f"{counts.iloc[-1]:,.0f}{most}"
    return found


def _stale(account: Account) -> list[tuple[str, str]]:
    """Facts on how far the participation model was fitted to covariates X of earlier rounds."""
    estimates = account.estimates
    rows = estimates[estimates["name"] == STALE]
    if rows.empty:
        return []
    by_key = rows.pivot(index="round", columns="key", values="value")
    facts = []
    if "share" in by_key:  # reported only for rounds with any old X
        share = by_key["share"].sum() / estimates["round"].nunique()
        facts.append(("rows with old X", percent_text(share)))
    if "mean_age_s" in by_key:
        facts.append(("mean age of old X", seconds_text(by_key["mean_age_s"].mean())))
    if "unknown" in by_key:
        facts.append(("devices without any X, at most", f"{by_key['unknown'].max():,.0f}"))
    return facts


def _warnings(account: Account) -> ReportTable | None:
    """The warnings of aggregators, each once: a server that was restarted repeats them."""
    found = account.warnings.drop_duplicates(["by", "warning"])
    rows = [
        [clean(row["round"]), clean(row["by"]), clean(row["warning"])]
        for row in found[found["by"] != BY_MUSTER].to_dict("records")
    ]
    left_out = len(rows) - MOST_ROWS
    note = f"{left_out:,} more are in journal.jsonl." if left_out > 0 else ""
    columns = ["round", "by", "warning"]
    return ReportTable(columns, rows[:MOST_ROWS], note, words=3) if rows else None
