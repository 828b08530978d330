"""Reads logs of what phones did: charging, Wi-Fi, screen.

FLASH publishes them as JSON by user (Yang et al., Characterizing impacts of heterogeneity in
federated learning upon large-scale smartphone data, WWW 2021). `messages` has a line for each
event, "2020-01-02 07:00:00 TAB battery_charged_on". A state lasts until the next event of its kind.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import NamedTuple

from muster.client.availability.traces import AvailabilityTrace
from muster.common.recorded_lines import content_of

_DAY_S = 86400.0
_FORM = "%Y-%m-%d %H:%M:%S"

_EVENTS: Mapping[str, tuple[str, bool]] = {
    "battery_charged_on": ("charging", True), "battery_charged_off": ("charging", False),
    "wifi": ("wifi", True), "unknown": ("wifi", False), "2g": ("wifi", False),
    "3g": ("wifi", False), "4g": ("wifi", False), "5g": ("wifi", False),
    "screen_on": ("idle", False), "screen_unlock": ("idle", False),
    "screen_off": ("idle", True), "screen_lock": ("idle", True),
}  # fmt: skip
_OTHERS = ("battery_low", "battery_okay", "phone_on", "phone_off")
"""Events that say nothing of these states; so do charges, as "85.0%"."""


class StateLog(NamedTuple):
    """What a device did. The traces begin at the midnight before its first event, and repeat after
    whole days.

    Attributes:
        charging: whether it was plugged in.
        wifi: whether it was in a Wi-Fi network.
        idle: whether its screen was off or locked.
    """

    charging: AvailabilityTrace
    wifi: AvailabilityTrace
    idle: AvailabilityTrace


def read_state_logs(path: Path) -> dict[str, StateLog]:
    """Read the logs of a file, by device.

    Raises:
        ValueError: the file cannot be read or has a mistake; the message names device and line.
    """
    try:
        found = json.loads(content_of(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: expected JSON, found {error.msg}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, found {error}") from None
    if not isinstance(found, dict) or not found:
        raise ValueError(f"{path}: expected logs by device, found {type(found).__name__}")
    return {device: _log(f"{path}, device {device!r}", entry) for device, entry in found.items()}


@lru_cache(maxsize=4)
def state_logs(file: str, changed_ns: int) -> Mapping[str, StateLog]:
    """The logs of a file, read once for all devices of a process.

    Args:
        changed_ns: when the file changed last.
    """
    return read_state_logs(Path(file))


def _log(where: str, entry: object) -> StateLog:
    messages = entry.get("messages") if isinstance(entry, dict) else None
    if isinstance(messages, list):
        messages = "".join(map(str, messages))
    if not isinstance(messages, str):
        raise ValueError(f"{where}: expected messages, lines of text, found {messages!r:.40}")
    changes: dict[str, list[tuple[datetime, bool]]] = {"charging": [], "wifi": [], "idle": []}
    first = last = None
    for number, line in enumerate(messages.splitlines(), start=1):
        if not line.strip():
            continue
        at, event = _event(f"{where}, message {number}", line)
        if last is not None and at < last:
            raise ValueError(
                f"{where}, message {number}: expected an instant that is not before {last}, found "
                f"{at}; sort the messages"
            )
        first, last = first or at, at
        if event in _EVENTS:
            state, on = _EVENTS[event]
            changes[state].append((at, on))
        elif event not in _OTHERS and not event.endswith("%"):
            known = ", ".join([*_EVENTS, *_OTHERS])
            raise ValueError(f"{where}, message {number}: expected one of {known}, found {event!r}")
    if first is None or last is None:
        raise ValueError(f"{where}: expected at least one message, found none")
    midnight = first.replace(hour=0, minute=0, second=0)
    days = ceil((last - midnight).total_seconds() / _DAY_S + 1e-9)
    return StateLog(
        **{state: _trace(of_state, midnight, days * _DAY_S) for state, of_state in changes.items()}
    )


def _event(where: str, line: str) -> tuple[datetime, str]:
    stamp, _, event = line.strip().partition("\t")
    try:
        return datetime.strptime(stamp.strip(), _FORM), event.strip().lower()
    except ValueError:
        raise ValueError(
            f"{where}: expected a date and time, a tab and an event, found {line.strip()[:40]!r}"
        ) from None


def _trace(
    changes: list[tuple[datetime, bool]], midnight: datetime, period_s: float
) -> AvailabilityTrace:
    """The trace of a state. Before its first event it is the opposite of what that event says."""
    on = start = bool(changes) and not changes[0][1]
    toggles: list[float] = []
    for at, now_on in changes:
        if now_on != on:
            on, at_s = now_on, (at - midnight).total_seconds()
            if at_s == 0:
                start = now_on
            elif toggles and toggles[-1] == at_s:  # twice in a second: as if nothing had happened
                toggles.pop()
            else:
                toggles.append(at_s)
    return AvailabilityTrace(start, tuple(toggles), period_s)
