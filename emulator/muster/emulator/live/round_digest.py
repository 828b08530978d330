"""What the ledger says about one committed round, added up by group.

Everything is computed from the rows of one round, each of which is looked at once.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

_WORKED = ("accept", "abort")
"""Decisions of devices that worked on a call."""


class DeviceAnswer(NamedTuple):
    """A row of the ledger's table `answers`; `state` is JSON."""

    round: int
    client: str
    decision: str
    reason: str | None
    state: bytes | str | None
    modelled_s: float | None


class Arrival(NamedTuple):
    """The arrival of an update, in UNIX seconds."""

    client: str
    at: float


class DeviceUpdate(NamedTuple):
    """A row of the ledger's table `contributions`."""

    round: int
    client: str
    staleness: int
    weight: float | None
    outcome: str
    train_s: float | None
    transfer_s: float | None
    reason: str | None = None


@dataclass(slots=True)
class SlowestDevice:
    """The device of a group for which a round waits longest. All values are of this device.

    Attributes:
        after_s: in lockstep, the modelled seconds of its work; on the other clocks, wall seconds
            from the opening of the round until its update had arrived.
        train_s, transfer_s: the parts of the wall seconds in which it trained, and in which the
            model and the update travelled; 0 in lockstep.
        wait_s: the part in which a transfer waited for its turn; 0 in lockstep.
    """

    client: str
    after_s: float
    train_s: float = 0.0
    transfer_s: float = 0.0
    wait_s: float = 0.0


@dataclass(slots=True)
class GroupDigest:
    """A group in one round, or in several that were added up.

    Attributes:
        reasons: why devices declined or were absent, with the number of devices.
        uncounted: updates that do not count, also those that devices gave up, by the reason.
        weight_share: of the weight of all updates that counted.
        staleness: the number of updates that counted, by staleness.
        slowest: None if no device of the group worked in lockstep, or no update of it arrived on
            the other clocks.
    """

    called: int = 0
    accepted: int = 0
    folded: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    uncounted: Counter[str] = field(default_factory=Counter)
    weight_share: float = 0.0
    staleness: Counter[int] = field(default_factory=Counter)
    slowest: SlowestDevice | None = None


@dataclass(slots=True)
class RoundDigest:
    """A committed round by group."""

    round: int
    groups: dict[str, GroupDigest]


def digest_of(
    round: int,
    opened_at: float,
    answers: Sequence[DeviceAnswer],
    updates: Sequence[DeviceUpdate],
    waits: Mapping[str, float],
    last_arrivals: Mapping[str, Arrival],
    group_of: Mapping[str, str],
    lockstep: bool,
) -> RoundDigest:
    """Add up the rows of a round.

    Args:
        opened_at: when the round was opened, in UNIX seconds.
        updates: those that were entered in this round.
        last_arrivals: the last update that arrived from each group in this round.
        waits: seconds for which the transfers of a device waited for their turn in this round.
        group_of: the group of every device; rows of other devices are left out.
        lockstep: whether the durations of devices are those that they model.
    """
    groups: dict[str, GroupDigest] = {}
    for answer in answers:
        if (group := group_of.get(answer.client)) is not None:
            _answer(groups.setdefault(group, GroupDigest()), answer)
    total = math.fsum(update.weight or 0.0 for update in updates if update.outcome == "folded")
    for update in updates:
        if (group := group_of.get(update.client)) is not None:
            found = groups.setdefault(group, GroupDigest())
            if update.outcome == "folded":
                found.folded += 1
                found.staleness[update.staleness] += 1
                found.weight_share += (update.weight or 0.0) / total if total > 0 else 0.0
            else:
                found.uncounted[update.reason or update.outcome] += 1
    slowest = (
        _longest_work(answers, group_of)
        if lockstep
        else _last_arrivals(last_arrivals, opened_at, updates, waits)
    )
    for group, device in slowest.items():
        groups[group].slowest = device
    return RoundDigest(round, groups)


def _answer(group: GroupDigest, answer: DeviceAnswer) -> None:
    group.called += answer.decision != "absent"
    group.accepted += answer.decision in _WORKED
    if answer.decision not in _WORKED:  # what was given up has a row of its own
        group.reasons[answer.reason or answer.decision] += 1


def _longest_work(
    answers: Iterable[DeviceAnswer], group_of: Mapping[str, str]
) -> dict[str, SlowestDevice]:
    """The device of each group with the longest modelled work."""
    found: dict[str, SlowestDevice] = {}
    for answer in answers:
        seconds, group = answer.modelled_s, group_of.get(answer.client)
        worked = answer.decision in _WORKED and seconds is not None and math.isfinite(seconds)
        if group is None or seconds is None or not worked:
            continue
        if group not in found or seconds > found[group].after_s:
            found[group] = SlowestDevice(answer.client, seconds)
    return found


def _last_arrivals(
    arrivals: Mapping[str, Arrival],
    opened_at: float,
    updates: Iterable[DeviceUpdate],
    waits: Mapping[str, float],
) -> dict[str, SlowestDevice]:
    """The device of each group whose update arrived last."""
    of_client = {each.client: each for each in updates if each.outcome != "duplicate"}
    found: dict[str, SlowestDevice] = {}
    for group, (client, at) in arrivals.items():
        if (last := of_client.get(client)) is not None:
            wait_s = waits.get(client, 0.0)
            moved_s = max((last.transfer_s or 0.0) - wait_s, 0.0)
            found[group] = SlowestDevice(
                client, at - opened_at, last.train_s or 0.0, moved_s, wait_s
            )
    return found


@dataclass(frozen=True)
class HoldUp:
    """The group for which the rounds wait.

    Attributes:
        last: in how many rounds its slowest device was slower than those of all other groups.
        of: the number of rounds that were looked at.
        lead_s: for how long the others waited for it then: the median, in seconds as
            `SlowestDevice.after_s`.
        after_s, train_s, transfer_s, wait_s: medians of its slowest devices, as `SlowestDevice`.
    """

    group: str
    last: int
    of: int
    lead_s: float
    after_s: float
    train_s: float
    transfer_s: float
    wait_s: float


def hold_ups(digests: Iterable[RoundDigest]) -> list[HoldUp]:
    """The groups for which rounds waited, the most frequent first."""
    slowest: dict[str, list[tuple[float, SlowestDevice]]] = {}
    rounds = 0
    for digest in digests:
        came = {name: group.slowest for name, group in digest.groups.items() if group.slowest}
        if not came:
            continue
        rounds += 1
        order = sorted(came, key=lambda name: came[name].after_s)
        holder = came[order[-1]]
        before = came[order[-2]].after_s if len(order) > 1 else 0.0
        slowest.setdefault(order[-1], []).append((holder.after_s - before, holder))
    found = [
        HoldUp(
            group,
            len(cases),
            rounds,
            median(lead for lead, _ in cases),
            median(device.after_s for _, device in cases),
            median(device.train_s for _, device in cases),
            median(device.transfer_s for _, device in cases),
            median(device.wait_s for _, device in cases),
        )
        for group, cases in slowest.items()
    ]
    return sorted(found, key=lambda each: -each.last)


def sum_of(digests: Sequence[RoundDigest]) -> dict[str, GroupDigest]:
    """The groups of several rounds, added up.

    `weight_share` is the mean over the rounds in which any update counted, and `slowest` that of
    the newest round that has one.
    """
    total: dict[str, GroupDigest] = {}
    counted = 0
    for digest in digests:
        counted += any(group.folded for group in digest.groups.values())
        for name, group in digest.groups.items():
            into = total.setdefault(name, GroupDigest())
            into.called += group.called
            into.accepted += group.accepted
            into.folded += group.folded
            into.reasons += group.reasons
            into.uncounted += group.uncounted
            into.staleness += group.staleness
            into.weight_share += group.weight_share
            into.slowest = group.slowest or into.slowest
    for group in total.values():
        group.weight_share /= max(counted, 1)
    return total
