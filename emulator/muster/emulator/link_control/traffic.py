"""The traffic of a gateway, from two of its statistics."""

from collections.abc import Mapping
from typing import Any

from muster.common.events import Traffic


def traffic_between(group: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Traffic:
    """The traffic of a gateway between two of its statistics."""

    def delivered(direction: str) -> int:
        return sum(
            each[direction]["bytes"] - before["devices"][client][direction]["bytes"]
            for client, each in now["devices"].items()
        )

    def capacity(direction: str) -> float | None:
        since, until = (look["shared"][direction]["capacity"] for look in (before, now))
        return None if since is None or until is None else until - since

    return Traffic(
        group,
        seconds=now["at"] - before["at"],
        bytes_up=delivered("up"),
        bytes_down=delivered("down"),
        capacity_up=capacity("up"),
        capacity_down=capacity("down"),
    )
