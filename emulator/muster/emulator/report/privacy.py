"""The section on differential privacy."""

from collections.abc import Mapping

from muster.emulator.records.account import Account
from muster.emulator.report.section import ReportSection, ReportTable, Summary
from muster.server.settings.privacy import Where

PRIVACY = "privacy"
"""Name of the estimates of a round in which updates were clipped by their weights."""

_MOST_ROWS = 12

TEXTS: Mapping[Where, str] = {
    "server": (
        "The server clipped every update to the norm C and added Gaussian noise of standard "
        "deviation z·C to their sum. ε bounds what the models of all rounds together tell about "
        "the updates of one device. Which devices took part is not hidden."
    ),
    "device": (
        "Every device clipped its update to the norm C and added Gaussian noise of standard "
        "deviation z·C before sending it. ε bounds what all updates of a device together tell "
        "about its data."
    ),
    "sum": (
        "Every device clipped its weighted update to the norm C and added a part of the noise, so "
        "that every sum that was opened has Gaussian noise of standard deviation z·C or more. ε "
        "bounds what the sums of all rounds together tell about the updates of one device. Which "
        "devices took part is not hidden."
    ),
}
"""What noise in each place means."""

_REPEATABLE = (
    "The noise follows from the scenario's seed, so that the run can be repeated: it protects "
    "nobody from a reader who knows the seed. The rest of this report is not private either."
)


def section(account: Account, summary: Summary) -> ReportSection | None:
    """What the run has spent, and the course of it; None for a run without privacy."""
    settings = account.scenario.get("server", {}).get("privacy")
    if not isinstance(settings, dict):
        return None
    where: Where = settings.get("where", "server")
    clipped = _measured(account)
    facts = [("clip, C", f"{settings['clip']:g}"), ("noise, z", f"{settings['noise']:g}")]
    if spent := summary.get("privacy"):
        facts = [("ε", f"{spent['epsilon']:.4g}"), ("δ", f"{spent['delta']:g}"), *facts]
    if clipped:
        updates = int(account.rounds["folded"].sum())
        facts.append(("clipped", f"{int(sum(clipped.values())):,} of {updates:,} updates"))
    return ReportSection(
        "Privacy", TEXTS[where], facts, table=_course(account, clipped), points=[_REPEATABLE]
    )


def _measured(account: Account) -> dict[int, float]:
    """The number of clipped updates by round; empty if devices clipped them."""
    rows = account.estimates
    rows = rows[(rows["name"] == PRIVACY) & (rows["key"] == "clipped")]
    return {int(round): value for round, value in zip(rows["round"], rows["value"], strict=True)}


def _course(account: Account, clipped: dict[int, float]) -> ReportTable | None:
    """ε after some rounds, evenly spread, and the clipped updates in them."""
    rounds = account.rounds[["round", "folded", "epsilon"]].dropna()
    if rounds.empty:
        return None
    step = -(-len(rounds) // _MOST_ROWS)
    shown = rounds.iloc[::-step].iloc[::-1]  # the newest is among them
    rows = [
        [
            f"{row['round']}",
            f"{row['folded']}",
            f"{clipped[row['round']]:.0f}" if row["round"] in clipped else "–",
            f"{row['epsilon']:.4g}",
        ]
        for row in shown.to_dict("records")
    ]
    return ReportTable(["round", "updates", "clipped", "ε so far"], rows)
