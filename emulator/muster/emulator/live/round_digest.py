"""What the ledger says about one committed round, added up by group.

Everything is computed from the rows of one round, each of which is looked at once.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple


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
    """The device of a group whose update arrived last in a round.

    Attributes:
        after_s: wall seconds from the opening of the round until its update had arrived.
        train_s, transfer_s: the parts of them in which it trained, and in which the model and the
            update travelled.
        wait_s: the part in which a transfer waited for its turn.
    """

    client: str
    after_s: float
    train_s: float
    transfer_s: float
    wait_s: float


@dataclass(slots=True)
class GroupDigest:
    """A group in one round, or in several that were added up.

    Attributes:
        reasons: why devices declined or were absent, with the number of devices.
        uncounted: updates that do not count, also those that devices gave up, by the reason.
        weight_share: of the weight of all updates that counted.
        staleness: the number of updates that counted, by staleness.
        modelled_s: the longest modelled duration of an accepted call; None without a model.
        slowest: None if no update of the group arrived.
    """

    called: int = 0
    accepted: int = 0
    folded: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    uncounted: Counter[str] = field(default_factory=Counter)
    weight_share: float = 0.0
    staleness: Counter[int] = field(default_factory=Counter)
    modelled_s: float | None = None
    slowest: SlowestDevice | None = None


@dataclass(slots=True)
class RoundDigest:
    """A committed round by group."""

    round: int
    groups: dict[str, GroupDigest]


def digest_of(
    round: int,
    opened_at: float,
    answers: Iterable[DeviceAnswer],
    updates: Sequence[DeviceUpdate],
    waits: Mapping[str, float],
    last_arrivals: Mapping[str, Arrival],
    group_of: Mapping[str, str],
) -> RoundDigest:
    """Add up the rows of a round.

    Args:
        opened_at: when the round was opened, in UNIX seconds.
        updates: those that were entered in this round.
        last_arrivals: the last update that arrived from each group in this round.
        waits: seconds for which the transfers of a device waited for their turn in this round.
        group_of: the group of every device; rows of other devices are left out.
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
    of_client = {update.client: update for update in updates}
    for group, (client, at) in last_arrivals.items():
        if (last := of_client.get(client)) is not None:
            wait_s = waits.get(client, 0.0)
            moved_s = max((last.transfer_s or 0.0) - wait_s, 0.0)
            groups[group].slowest = SlowestDevice(
                client, at - opened_at, last.train_s or 0.0, moved_s, wait_s
            )
    return RoundDigest(round, groups)


def _answer(group: GroupDigest, answer: DeviceAnswer) -> None:
    group.called += answer.decision != "absent"
    group.accepted += answer.decision in ("accept", "abort")
    if answer.decision not in ("accept", "abort"):  # what was given up has a row of its own
        group.reasons[answer.reason or answer.decision] += 1
    if answer.modelled_s is not None and math.isfinite(answer.modelled_s):
        group.modelled_s = max(group.modelled_s or 0.0, answer.modelled_s)


@dataclass(frozen=True)
class HoldUp:
    """The group for which the rounds wait.

    Attributes:
        last: in how many rounds its last update arrived after those of all other groups.
        of: the number of rounds that were looked at.
        lead_s: for how long the others waited for it then: the median, in wall seconds.
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

    `weight_share` is the mean over the rounds in which any update counted, `modelled_s` the median,
    and `slowest` that of the newest round in which an update of the group arrived.
    """
    total: dict[str, GroupDigest] = {}
    modelled: dict[str, list[float]] = {}
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
            if group.modelled_s is not None:
                modelled.setdefault(name, []).append(group.modelled_s)
    for name, group in total.items():
        group.weight_share /= max(counted, 1)
        group.modelled_s = median(modelled[name]) if name in modelled else None
    return total
