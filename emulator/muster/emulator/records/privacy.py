"""The differential privacy of a run: what `summary.json` has of it, and the same as text."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.server.settings.privacy import Where

if TYPE_CHECKING:
    from muster.emulator.records.account import Account

ADDED_BY: Mapping[Where, str] = {
    "server": "the server",
    "device": "each device",
    "sum": "all devices together",
}
"""Who adds the noise."""


def privacy_of(account: "Account") -> dict[str, Any]:
    """ε after the newest round, with δ and where the noise was added; empty if nothing is known
    to be private."""
    spent = account.rounds["epsilon"].dropna()
    settings = account.scenario.get("server", {}).get("privacy")
    if spent.empty or not isinstance(settings, Mapping):
        return {}
    where = str(settings.get("where", "server"))
    return {"epsilon": float(spent.iloc[-1]), "delta": settings.get("delta"), "where": where}


def privacy_text(privacy: Mapping[str, Any]) -> str:
    """For example "ε = 3.21 for δ = 1e-05, noise added by the server"."""
    by = ADDED_BY[privacy["where"]]
    return f"ε = {privacy['epsilon']:.4g} for δ = {privacy['delta']:g}, noise added by {by}"
