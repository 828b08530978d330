"""Counts of calls that did not lead to a folded update, by what happened and why."""

from muster.emulator.records.account import Account
from muster.emulator.records.summary import clean

Loss = tuple[str, str, int]
"""What happened, the reason given, and how often."""

_WORDS = {"no update": "accepted, no update arrived"}


def lost_updates(account: Account) -> list[Loss]:
    """Every way in which a call did not lead to a folded update; the most frequent first."""
    calls = account.calls[account.calls["fate"] != "absent"]  # absent devices were not called
    lost = calls[calls["fate"] != "folded"]
    counts = lost.fillna({"reason": ""}).groupby(["fate", "reason"], observed=True).size()
    found = [("no answer", "", unanswered(account))]
    for row in counts.reset_index(name="count").to_dict("records"):
        what = _WORDS.get(row["fate"], row["fate"])
        found.append((what, clean(row["reason"]), int(row["count"])))
    return sorted((loss for loss in found if loss[2] > 0), key=lambda loss: -loss[2])


def unanswered(account: Account) -> int:
    """The number of calls without any answer or update."""
    heard = int((account.calls["fate"] != "absent").sum())
    return max(0, int(account.rounds["called"].sum()) - heard)


def what_counts(account: Account) -> str:
    """What the rows of `Account.calls` are, for shares of them: "calls" if it has no others."""
    known = "answered calls" if unanswered(account) else "calls"
    absent = (account.calls["fate"] == "absent").any()
    return f"{known} and absences" if absent else known
