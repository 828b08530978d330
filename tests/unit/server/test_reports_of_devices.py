"""The evaluations that follow from what devices report."""

import json
import math

import pytest

from muster.common.facts import NO_FACTS
from muster.server.account.rows import ContributionRow
from muster.server.account.run_rows import DeviceEvaluationRow, EvaluationRow, GroupEvaluationRow
from muster.server.evaluation.on_devices import evaluations_of

GROUPS = {"a-0": "a", "a-1": "a", "b-0": "b"}


def row(
    client: str,
    examples: float | None,
    loss: float | None,
    accuracy: float | None = None,
    version: int = 1,
    outcome: str = "folded",
    metrics: dict[str, float] | None = None,
) -> ContributionRow:
    facts = NO_FACTS._replace(
        received_examples=examples, received_loss=loss, received_accuracy=accuracy
    )
    return ContributionRow(
        2, client, 2, 1, version, 0, 1.0, 5, 1.0, 0, 0, 0, 0.0, 0.0, 1.0, outcome, None, 0.0,
        received_metrics=json.dumps(metrics) if metrics else None, facts=facts,
    )  # fmt: skip


def found(*rows: ContributionRow) -> list[EvaluationRow]:
    return [*evaluations_of(rows, GROUPS, {0: 0, 1: 1, 3: 4}, {0}, 9.0)]


def test_means_are_weighted_by_examples_in_groups_and_over_all() -> None:
    (whole,) = found(
        row("b-0", 4, 5.0, 1.0), row("a-1", 3, 2.0, 0.5, outcome="late"), row("a-0", 1, 6.0, 0.25)
    )
    assert (whole.version, whole.round, whole.loss) == (1, 1, 4.0)
    assert whole.accuracy == pytest.approx((4 + 1.5 + 0.25) / 8)
    assert whole.metrics == {"devices": 3.0}
    assert whole.groups == [
        GroupEvaluationRow(1, 1, "a", 4, 3.0, 0.4375, {}),
        GroupEvaluationRow(1, 1, "b", 4, 5.0, 1.0, {}),
    ]
    assert whole.devices == [
        DeviceEvaluationRow(1, "a-0", 1, 6.0, 0.25, {}),
        DeviceEvaluationRow(1, "a-1", 3, 2.0, 0.5, {}),
        DeviceEvaluationRow(1, "b-0", 4, 5.0, 1.0, {}),
    ]


def test_other_metrics_are_those_that_all_devices_of_a_part_have() -> None:
    (whole,) = found(
        row("a-0", 1, 1.0, metrics={"f1": 0.5, "auc": 0.2}),
        row("a-1", 3, 1.0, metrics={"f1": 0.9, "devices": 70.0}),
        row("b-0", 4, 1.0),
    )
    assert whole.metrics == {"devices": 3.0}
    assert [part.metrics for part in whole.groups] == [{"f1": pytest.approx(0.8)}, {}]
    assert [part.metrics for part in whole.devices] == [
        {"f1": 0.5, "auc": 0.2}, {"f1": 0.9, "devices": 70.0}, {},
    ]  # fmt: skip


def test_versions_are_measured_each_by_itself_and_without_an_accuracy_if_one_has_none() -> None:
    first, second = found(row("a-0", 2, 1.0, 0.5, 3), row("a-1", 2, 3.0), row("b-0", 2, 5.0, 0.5))
    assert (first.version, first.round, first.loss, first.accuracy) == (1, 1, 4.0, None)
    assert (second.version, second.round, second.loss, second.accuracy) == (3, 4, 1.0, 0.5)


@pytest.mark.parametrize(
    "other",
    [
        row("b-0", None, None),
        row("b-0", 3, None),
        row("b-0", 0, 1.0),
        row("b-0", -1, 1.0),
        row("b-0", 1e300, 1.0),
        row("b-0", 3, 1e300),
        row("b-0", 3, math.nan),
        row("b-0", 3, 1.0, outcome="refused"),
        row("b-0", 3, 1.0, outcome="duplicate"),
        row("b-0", 3, 1.0, outcome="dropped"),
        row("b-0", 3, 1.0, version=0),
        row("b-0", 3, 1.0, version=2),
        row("a-0", 9, 7.0),
    ],
)
def test_what_does_not_count_is_left_out(other: ContributionRow) -> None:
    mine = row("a-0", 1, 6.0, 0.1)
    assert found(mine, other) == found(mine)
