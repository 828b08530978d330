"""Evaluations by devices: what they have measured of the models that they received.

A device evaluates before it trains, and reports the result with its update. The updates from a
version that end in the same round make its evaluation; what comes later of the version is left out.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from muster.common.facts import FACTS
from muster.server.account.rows import ContributionRow
from muster.server.account.run_rows import DeviceEvaluationRow, EvaluationRow, GroupEvaluationRow

_COUNTED = "folded", "late"
"""Outcomes of updates that came whole and in order, whose reports count."""


class _Measured(NamedTuple):
    client: str
    examples: int
    loss: float
    accuracy: float | None


def evaluations_of(
    contributions: Iterable[ContributionRow],
    groups: Mapping[str, str],
    made: Mapping[int, int],
    known: Container[int],
    at: float,
) -> Iterator[EvaluationRow]:
    """Yield the evaluations that follow from the updates of a round.

    Args:
        groups: the group of every device.
        made: the round that made each version.
        known: the versions that have an evaluation.
    """
    by_version: dict[int, dict[str, _Measured]] = {}
    for row in contributions:
        version = row.base_version
        if row.outcome in _COUNTED and version in made and version not in known:
            if (found := _measured(row)) is not None:
                by_version.setdefault(version, {}).setdefault(row.client, found)
    for version, devices in sorted(by_version.items()):
        ordered = [devices[client] for client in sorted(devices)]
        yield _evaluation(version, made[version], ordered, groups, at)


def _measured(row: ContributionRow) -> _Measured | None:
    """What a device has measured; None if it has not, or reports what cannot be."""
    facts = row.facts
    if not all(FACTS[name].allows(getattr(facts, name)) for name in _REQUIRED):
        return None
    assert facts.received_examples is not None
    assert facts.received_loss is not None
    return _Measured(
        row.client, int(facts.received_examples), facts.received_loss, facts.received_accuracy
    )


_REQUIRED = "received_examples", "received_loss"


def _evaluation(
    version: int, round: int, devices: Sequence[_Measured], groups: Mapping[str, str], at: float
) -> EvaluationRow:
    by_group: dict[str, list[_Measured]] = {}
    for each in devices:
        by_group.setdefault(groups[each.client], []).append(each)
    of_groups = [
        GroupEvaluationRow(version, round, name, *_part(parts), {})
        for name, parts in sorted(by_group.items())
    ]
    of_devices = [DeviceEvaluationRow(version, *each, {}) for each in devices]
    _, loss, accuracy = _part(devices)
    metrics = {"devices": float(len(devices))}
    return EvaluationRow(version, round, loss, accuracy, metrics, 0.0, at, of_groups, of_devices)


def _part(devices: Sequence[_Measured]) -> tuple[int, float, float | None]:
    """The number of examples of devices, and their mean loss and accuracy, weighted by examples."""
    total = sum(each.examples for each in devices)

    def mean(value: Callable[[_Measured], float]) -> float:
        return math.fsum(each.examples * value(each) for each in devices) / total

    if any(each.accuracy is None for each in devices):
        return total, mean(lambda each: each.loss), None
    return total, mean(lambda each: each.loss), mean(lambda each: each.accuracy or 0.0)
