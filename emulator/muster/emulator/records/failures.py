"""Training that raised an error: what it was, on which devices, and who was left out for it."""

from typing import TYPE_CHECKING, Any

from muster.common.exchange import Reason

if TYPE_CHECKING:
    import pandas as pd

    from muster.emulator.records.account import Account

_MOST = 20
"""The most errors, and the most devices of an error, that a summary names."""


def failures_of(account: "Account") -> dict[str, Any]:
    """The errors of training, the most frequent first, as `summary.json` has them; empty if there
    were none."""
    sent = account.contributions
    failed = sent[sent["reason"] == Reason.TRAINING_FAILED].fillna({"error": ""})
    if failed.empty:
        return {}
    by_error = sorted(failed.groupby("error", sort=False), key=lambda found: -len(found[1]))
    return {
        "calls": len(failed),
        "devices": int(failed["client"].nunique()),
        "left_out": [event["client"] for event in account.events("left_out")],
        "errors": [_error(str(text), rows) for text, rows in by_error[:_MOST]],
    }


def _error(text: str, rows: "pd.DataFrame") -> dict[str, Any]:
    clients = list(dict.fromkeys(rows["client"]))
    return {
        "error": text,
        "calls": len(rows),
        "first_round": int(rows["call_round"].min()),
        "last_round": int(rows["call_round"].max()),
        "devices": len(clients),
        "clients": clients[:_MOST],
    }


def failures_text(failures: dict[str, Any]) -> str:
    """For example "3 calls of 1 device; ValueError: no data (trainers.py, line 7, in train)"."""
    calls, devices, left_out = failures["calls"], failures["devices"], len(failures["left_out"])
    text = f"{_counted(calls, 'call')} of {_counted(devices, 'device')}"
    text += f", {left_out:,} left out" if left_out else ""
    return f"{text}; {failures['errors'][0]['error']}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
