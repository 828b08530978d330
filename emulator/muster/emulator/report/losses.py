"""Where updates were lost on the way from the call to the model, and why."""

import pandas as pd

from muster.emulator.account import Account
from muster.emulator.summary import clean

Loss = tuple[str, str, int]
"""What happened, the reason given, and how often."""


def lost_updates(account: Account) -> list[Loss]:
    """Every way in which a call did not lead to a folded update; the most frequent first."""
    answers, sent = account.answers, account.contributions
    accepted = answers[answers["decision"] == "accept"][["round", "client"]]
    arrived = accepted.merge(sent[["round", "client"]].drop_duplicates())
    declined = answers[answers["decision"] == "decline"]
    found = [
        ("no answer", "", int(account.rounds["called"].sum()) - len(answers)),
        ("accepted, no update arrived", "", len(accepted) - len(arrived)),
        *_by_reason(declined.assign(what="declined")),
        *_by_reason(sent[sent["outcome"] != "folded"].rename(columns={"outcome": "what"})),
    ]
    return sorted((loss for loss in found if loss[2] > 0), key=lambda loss: -loss[2])


def _by_reason(rows: pd.DataFrame) -> list[Loss]:
    known = rows.assign(reason=rows["reason"].fillna(""))
    counts = known.groupby(["what", "reason"]).size().reset_index(name="count")
    return [
        (clean(row["what"]), clean(row["reason"]), int(row["count"]))
        for row in counts.to_dict("records")
    ]
