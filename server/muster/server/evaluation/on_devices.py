"""Evaluations by devices: what they have measured of the models that they received.

A device evaluates before it trains, and reports the result with its update. The updates from a
version that end in the same round make its evaluation; what comes later of the version is left out.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping

from muster.common.facts import FACTS
from muster.server.account.rows import ContributionRow
from muster.server.account.run_rows import DeviceEvaluationRow, EvaluationRow, GroupEvaluationRow
from muster.server.evaluation.messages import Part
from muster.server.evaluation.parts import by_group, joined

_COUNTED = "folded", "late"
"""Outcomes of updates that came whole and in order, whose reports count."""


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
    by_version: dict[int, dict[str, Part]] = {}
    for row in contributions:
        version = row.base_version
        if row.outcome in _COUNTED and version in made and version not in known:
            if (part := _measured(row)) is not None:
                by_version.setdefault(version, {}).setdefault(row.client, part)
    for version, devices in sorted(by_version.items()):
        yield _evaluation(version, made[version], dict(sorted(devices.items())), groups, at)


def _measured(row: ContributionRow) -> Part | None:
    """What a device has measured; None if it has not, or reports what cannot be."""
    facts = row.facts
    if not all(FACTS[name].allows(getattr(facts, name)) for name in _REQUIRED):
        return None
    assert facts.received_examples is not None
    assert facts.received_loss is not None
    metrics = json.loads(row.received_metrics or "{}")
    return Part(int(facts.received_examples), facts.received_loss, facts.received_accuracy, metrics)


_REQUIRED = "received_examples", "received_loss"


def _evaluation(
    version: int, round: int, devices: Mapping[str, Part], groups: Mapping[str, str], at: float
) -> EvaluationRow:
    of_groups = [
        GroupEvaluationRow(version, round, name, *part)
        for name, part in sorted(by_group(devices, groups).items())
    ]
    of_devices = [DeviceEvaluationRow(version, name, *part) for name, part in devices.items()]
    _, loss, accuracy, metrics = joined([*devices.values()])
    metrics = metrics | {"devices": float(len(devices))}
    return EvaluationRow(version, round, loss, accuracy, metrics, 0.0, at, of_groups, of_devices)
