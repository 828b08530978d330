"""What went wrong in a run, in a few sentences that the first screen of the report shows."""

from collections.abc import Sequence

from muster.common.exchange import Reason
from muster.emulator.records.account import Account
from muster.emulator.records.judging import measured_text
from muster.emulator.records.summary import clean, percent_text
from muster.emulator.report.losses import Loss, lost_updates
from muster.emulator.report.section import ReportSection, Summary

TITLE = "What went wrong"

_MOST_NAMES = 3


def went_wrong(account: Account, summary: Summary) -> ReportSection:
    """The sentences, or one that says that there is nothing."""
    lost = lost_updates(account)
    # More calls than the goal needs are meant to be spare.
    unmeant = [each for each in lost if each[1] != Reason.GOAL_REACHED]
    points = [
        *_expectations(summary),
        *_faults(summary),
        *_deaths(account),
        *_lost(unmeant, int(account.rounds["called"].sum())),
        *_empty(summary),
        *_warnings(account),
    ]
    spare = "; some came when the goal was reached without them" if lost else ""
    text = "" if points else f"Nothing: every call led to an update that counted{spare}."
    return ReportSection(TITLE, text, points=points)


def _expectations(summary: Summary) -> list[str]:
    return [
        f"An expectation fails: {clean(one['that'])} {clean(one['where'])}; "
        f"measured: {clean(measured_text(one))}."
        for one in summary.get("expectations", [])
        if not one["holds"]
    ]


def _faults(summary: Summary) -> list[str]:
    """The faults that acted, and those that were never observed."""
    never = set(summary.get("vacuous", []))
    acted = [clean(each["fault"]) for each in summary.get("faults", [])
             if each["applied"] and each["fault"] not in never]  # fmt: skip
    points = [f"Faults of the scenario acted: {_named(acted)}."] if acted else []
    if never:
        points.append(f"Never observed, so that the run proves nothing: {_named(sorted(never))}.")
    return points


def _deaths(account: Account) -> list[str]:
    died = [clean(event["process"]) for event in account.events("died")]
    if not died:
        return []
    return [f"Processes died, {len(died):,} in all: {_named(list(dict.fromkeys(died)))}."]


def _lost(lost: Sequence[Loss], called: int) -> list[str]:
    """The calls that led to no folded update, and the most frequent reasons."""
    if not lost:
        return []
    count = sum(times for _, _, times in lost)
    why = [f"{times:,} {what}{f', {reason}' if reason else ''}" for what, reason, times in lost]
    more = "; and others" if len(lost) > _MOST_NAMES else ""
    text = f"{percent_text(count / called)} of the {called:,} calls led to no update that counted"
    return [f"{text}: {'; '.join(why[:_MOST_NAMES])}{more}."]


def _empty(summary: Summary) -> list[str]:
    empty, rounds = summary["empty_rounds"], summary["rounds"]
    return [f"{empty:,} of {rounds:,} rounds made no version."] if empty else []


def _warnings(account: Account) -> list[str]:
    warnings = account.warnings.drop_duplicates(["by", "warning"])
    if warnings.empty:
        return []
    first = clean(warnings["warning"].iloc[0])
    more = f", and {len(warnings) - 1:,} more" if len(warnings) > 1 else ""
    return [f"The aggregator warned: {first}{more}."]


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"
