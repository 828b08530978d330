"""Traffic, durations and losses of a study's runs: what real networking adds over a simulation.

In a simulation, a model is a pointer, so of all this only declined calls exist. All numbers are
read from the accounts.
"""

from collections import Counter

import pandas as pd

from muster.emulator.records.account import Account
from muster.emulator.report.losses import lost_updates
from muster.studies.results import Result, Results

_COUNTED = ["rounds", "calls", "folded", "declined", "lost", "bytes_up", "bytes_down"]
_SECONDS = ["seconds", "wall_s"]
_DECLINED, _LOST = "declined", "lost"


def network_table(results: Results) -> pd.DataFrame:
    """One row for every run: its traffic, its seconds, and a column for every reason why a call did
    not lead to a folded update, called "declined: REASON" or "lost: WHAT (REASON)"."""
    rows = pd.DataFrame([_row(result) for result in results])
    counted = [*_COUNTED, *_ways(rows)]
    rows[[*counted, *_SECONDS]] = rows[[*counted, *_SECONDS]].fillna(0)
    return rows.astype(dict.fromkeys(counted, "int64"))


def by_part(runs: pd.DataFrame) -> pd.DataFrame:
    """The sums of each part, and of all parts."""
    sums = runs.assign(runs=1).groupby("part", sort=False)[["runs", *_COUNTED, *_SECONDS]].sum()
    if len(sums) > 1:
        total = sums.sum().to_frame("all").T
        sums = pd.concat([sums, total]).astype(sums.dtypes)
    return sums.rename_axis("part")


def reasons(runs: pd.DataFrame) -> dict[str, int]:
    """The reasons why calls led to no folded update, with counts; the most frequent first."""
    counts = {way: int(runs[way].sum()) for way in _ways(runs)}
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _ways(runs: pd.DataFrame) -> list[str]:
    return [column for column in map(str, runs) if ": " in column]


def _row(result: Result) -> dict[str, object]:
    row: dict[str, object] = {
        "part": result.part,
        "labels": " ".join(f"{name}={value}" for name, value in result.labels.items()),
        "seed": result.seed,
        "folder": result.folder.name,
        "status": result.status,
    }
    return row | (_counts(result) if result.ended else dict.fromkeys([*_COUNTED, *_SECONDS], 0))


def _counts(result: Result) -> dict[str, object]:
    account, summary = result.account, result.summary
    ways = _ways_of(account)
    declined = sum(count for way, count in ways.items() if way.startswith(_DECLINED))
    counts: dict[str, object] = {
        "rounds": summary["rounds"],
        "calls": int(account.rounds["called"].sum()),
        "folded": summary["updates_folded"],
        "declined": declined,
        "lost": sum(ways.values()) - declined,
        "bytes_up": summary["bytes_up"],
        "bytes_down": summary["bytes_down"],
        "seconds": summary["seconds"],
        "wall_s": (account.run.ended_at or account.run.started_at) - account.run.started_at,
    }
    result.close()
    return counts | ways


def _ways_of(account: Account) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for what, reason, count in lost_updates(account):
        if what == _DECLINED:
            way = f"{_DECLINED}: {reason or 'without a reason'}"
        else:
            way = f"{_LOST}: {what} ({reason})" if reason else f"{_LOST}: {what}"
        counts[way] += count
    return dict(counts)
