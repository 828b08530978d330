"""The sections on weights and what they rest on; runs whose updates all weigh the same, and of
which nothing was estimated, have none of them."""

import pandas as pd

from muster.emulator.results.account import Account
from muster.emulator.results.report.section import ReportSection, Summary, Table
from muster.emulator.results.report.shares import FLOOR, SHARES, finding, floor_of, shares_of
from muster.emulator.results.report.weights import ratio_text, weighed, weights_differ
from muster.emulator.results.summary import clean, number_text, percent_text, seconds_text

PROPENSITIES = ("enrollment", "participation")
OVERLAP, CLIPPED = "overlap_", "clipped"
CALIBRATION, RESIDUALS, STALE = "calibration", "calibration_residuals", "stale"

MOST_ROWS = 200

_LABELS = {"residual": "norm of all residuals", "of": "devices"}

_QUANTILES = {"min": "least", "p05": "5th percentile", "median": "median", "max": "largest"}


def weights(account: Account, summary: Summary) -> ReportSection | None:
    rounds, warnings = weighed(account), _warnings(account)
    if account.estimates.empty and not weights_differ(account) and warnings is None:
        return None
    text = (
        "A few large weights make a model of few updates: the effective size is how many equal "
        "updates would have weighed as much."
    )
    facts = [
        ("effective size", f"{percent_text(rounds['share'].median())} of the updates"),
        ("largest weight", f"{ratio_text(rounds['largest'].max())} × the mean"),
    ]
    shown = facts if len(rounds) else ()
    return ReportSection("Weights", text, facts=shown, figure="weights", table=warnings)


def propensities(account: Account, summary: Summary) -> ReportSection | None:
    tables = {name: _newest(account, name) for name in PROPENSITIES}
    found = {name: table for name, table in tables.items() if table}
    stale = _stale(account)
    if not found and not stale:
        return None
    text = (
        "What the server learned of who enrolls and who takes part: log-odds by covariate. A large "
        "coefficient is a covariate that decides who is in the model, and so gets corrected."
    )
    if stale:
        text += " Old X is that of devices that could not be asked, as it was last known."
    columns = dict.fromkeys(column for table in found.values() for column in table)
    rows = [
        [clean(column), *(number_text(table.get(column)) for table in found.values())]
        for column in columns
    ]
    note = "As they were in the newest round."
    table = Table(["covariate", *found], rows, note) if rows else None
    return ReportSection("Fitted propensities", text, facts=stale, table=table)


def overlap(account: Account, summary: Summary) -> ReportSection | None:
    clipped, rows = _clipped(account), []
    for name in PROPENSITIES:
        quantiles = _newest(account, f"{OVERLAP}{name}")
        if quantiles or name in clipped:
            told = [number_text(quantiles.get(quantile)) for quantile in _QUANTILES]
            rows.append([name, *told, clipped.get(name, "–")])
    if not rows:
        return None
    text = (
        "A device that hardly ever comes stands for many others when it does. Propensities near 0 "
        "make weights large and the model noisy; those below the floor count as the floor, which "
        "leaves some bias."
    )
    columns = ["propensity", *_QUANTILES.values(), "below the floor"]
    note = "As they were in the newest round; at most: in any round."
    return ReportSection("Overlap", text, table=Table(columns, rows, note))


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
        "Weights of the enrolled under which their means are those of the population. A residual "
        "is by how much a mean is still off."
    )
    rows = [[clean(feature), number_text(residual)] for feature, residual in residuals.items()]
    table = Table(["feature", "residual"], rows) if rows else None
    return ReportSection("Calibration", text, facts=facts, table=table)


def shares(account: Account, summary: Summary) -> ReportSection | None:
    table = shares_of(account)
    if table.empty:
        return None
    text = (
        f"{finding(table, floor_of(account))} in the newest round. ĉ is what part of a round's "
        f"mean a device is, {_averaged(account)}; of M enrolled its updates weigh 1/(M·ĉ). Below "
        f"the floor it weighs no more than at the floor, and counts for less than it should."
    )
    below = _clipped(account).get(SHARES)
    facts = [("updates below the floor in a round", below)] if below else []
    return ReportSection("Shares", text, facts=facts, figure="shares")


def _averaged(account: Account) -> str:
    rule = account.scenario.get("server", {}).get("aggregator", {})
    if rule.get("shares") == "exact":
        return "here the true c, which the emulator worked out and no round changes"
    return "on average over the rounds so far"


def estimates(account: Account, summary: Summary) -> ReportSection | None:
    told = account.estimates
    others = told[~told["name"].isin(filter(_known, told["name"].cat.categories))]
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
    text = "What else the aggregator told of its weights."
    table = Table(columns, rows[:MOST_ROWS], note, words=2)
    return ReportSection("Further estimates", text, table=table)


def _known(name: str) -> bool:
    """Whether another section shows estimates of this name."""
    shown = {*PROPENSITIES, CALIBRATION, RESIDUALS, STALE, SHARES, FLOOR}
    return name in shown or name.startswith(OVERLAP) or _is_clipped(name)


def _is_clipped(name: str) -> bool:
    return name.partition("_")[0] == CLIPPED


def _last(account: Account, name: str) -> pd.DataFrame:
    """The newest table of that name."""
    told = account.estimates
    rows = told[(told["name"] == name) & (told["key"] != "")]
    newest: pd.DataFrame = rows[rows["round"] == rows["round"].max()]
    return newest.astype({"key": str})


def _newest(account: Account, name: str) -> dict[str, float]:
    """The numbers of the newest table of that name, by key."""
    rows = _last(account, name).dropna(subset="value")
    return dict(zip(rows["key"], rows["value"], strict=True))


def _words(account: Account, name: str) -> dict[str, str]:
    """Its words."""
    rows = _last(account, name).dropna(subset="word")
    return dict(zip(rows["key"], rows["word"], strict=True))


def _clipped(account: Account) -> dict[str, str]:
    """How many propensities or shares of each sort were below the floor: `clipped` is a table of
    them, `clipped_participation` one alone."""
    told = account.estimates
    names = [name for name in told["name"].cat.categories if _is_clipped(name)]
    rows = told[told["name"].isin(names)].dropna(subset="value")
    found = {}
    for (name, key), counts in rows.groupby(["name", "key"], observed=True, sort=False)["value"]:
        sort = str(key) or str(name).partition("_")[2]
        most = f" (at most {counts.max():,.0f})" if counts.max() else ""
        found[sort] = f"{counts.iloc[-1]:,.0f}{most}"
    return found


def _stale(account: Account) -> list[tuple[str, str]]:
    """How much the participation was learned from what was known before the round."""
    told = account.estimates
    rows = told[told["name"] == STALE]
    if rows.empty:
        return []
    by_key = rows.pivot(index="round", columns="key", values="value")
    facts = []
    if "share" in by_key:  # told only of rounds in which there was any
        share = by_key["share"].sum() / told["round"].nunique()
        facts.append(("rows with old X", percent_text(share)))
    if "mean_age_s" in by_key:
        facts.append(("mean age of those", seconds_text(by_key["mean_age_s"].mean())))
    if "unknown" in by_key:
        facts.append(("never heard of, at most", f"{by_key['unknown'].max():,.0f}"))
    return facts


def _warnings(account: Account) -> Table | None:
    """What aggregators warned of, each once, though a server that came back says it again."""
    rows = [
        [clean(row["round"]), clean(row["by"]), clean(row["warning"])]
        for row in account.warnings.drop_duplicates(["by", "warning"]).to_dict("records")
    ]
    left_out = len(rows) - MOST_ROWS
    note = f"{left_out:,} more are in journal.jsonl." if left_out > 0 else ""
    columns = ["round", "by", "warning"]
    return Table(columns, rows[:MOST_ROWS], note, words=3) if rows else None
