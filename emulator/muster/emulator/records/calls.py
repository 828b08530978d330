"""The calls of a run, made of its answers and updates."""

import numpy as np
import pandas as pd

from muster.common.exchange import Reason

OUTCOMES = ("folded", "late", "dropped", "refused", "duplicate")
"""The outcomes of an update; every contribution has exactly one."""

FATES = ("folded", "late", "dropped", "refused", "no update", "gave up", "declined", "absent")
"""The outcomes of a call. No update: the device accepted, but no update arrived. Gave up: it
accepted and then reported that it gave up. Absent: it was offline and was not called."""

_SAID = {"decline": "declined", "abort": "gave up", "absent": "absent"}


_NO_CALL = (Reason.NOT_CALLED, Reason.WRONG_ROUND, Reason.UNKNOWN_CLIENT)


def calls_of(answers: pd.DataFrame, sent: pd.DataFrame, clients: pd.DataFrame) -> pd.DataFrame:
    """Make `Account.calls` from the answers and updates of the same rounds."""
    names = pd.Index(clients["client"])
    # If there are several updates for a call, take the folded one, or else the newest.
    rank = sent["outcome"].map({"duplicate": 0.0, "folded": 2.0}).fillna(1.0)
    # An update may count in a later round than that of its call.
    updates = sent[["call_round", "client", "outcome", "reason"]]
    updates = updates.rename(columns={"call_round": "round", "reason": "why"})
    updates = _by_call(updates.iloc[rank.argsort(kind="stable")], names)
    updates = updates[~updates.index.duplicated(keep="last")]
    answered = _by_call(answers, names)
    stray = updates["why"].isin(_NO_CALL) & ~updates.index.isin(answered.index)
    both = answered.join(updates[~stray], how="outer")
    came = both["outcome"].fillna("no update").to_numpy(object)
    said = both["decision"].map(_SAID).to_numpy(object)
    own_word = (came != "folded") & pd.notna(said)
    places = both.index.to_numpy() % max(1, len(names))
    groups, group_names = pd.factorize(clients["group"])
    return pd.DataFrame(
        {
            "round": both.index.to_numpy() // max(1, len(names)),
            "client": pd.Categorical.from_codes(places, names),
            "group": pd.Categorical.from_codes(groups[places], group_names),
            "fate": pd.Categorical(np.where(own_word, said, came), FATES),
            "reason": both["reason"].where(own_word, both["why"]),
            "battery": both["battery"],
        }
    ).reset_index(drop=True)


def _by_call(rows: pd.DataFrame, names: "pd.Index[str]") -> pd.DataFrame:
    """Index `rows` by one number for round and client, which is faster than a pair."""
    places = names.get_indexer(pd.Index(rows["client"]))
    numbers = pd.Index(rows["round"].to_numpy() * len(names) + places, dtype="int64")
    return rows.drop(columns=["round", "client"]).set_index(numbers)[places >= 0]
