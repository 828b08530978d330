"""What the events of a run do to its metrics."""

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from muster.common.events import (
    Answered,
    Attended,
    Declined,
    DiskHasRoom,
    DiskRanFull,
    Ended,
    Evaluated,
    Event,
    Late,
    Left,
    Received,
    Refused,
    Revoked,
    RoundCommitted,
    RoundOpened,
    ServerStarted,
    Warned,
    event_kinds,
)
from muster.common.testing import ManualClock
from muster.server.fleet.devices import EnrolledDevice
from muster.server.metrics.measures import MEASURES, Kind
from muster.server.metrics.run_metrics import RunMetrics

DEVICES = [
    EnrolledDevice("a-0", "a", 0, 5),
    EnrolledDevice("a-1", "a", 1, 5),
    EnrolledDevice("b-0", "b", 2, 5),
]

Values = Mapping[str, float]


def started(rounds: int = 10, counts: str = "rounds") -> ServerStarted:
    return ServerStarted("run", 0, 0, 3, rounds, counts, 0, 0)


def committed(round: int = 1, version: int = 1, **fields: object) -> RoundCommitted:
    values: dict[str, object] = {
        "outcome": "aggregated", "called": 3, "accepted": 2, "folded": 2, "bytes_up": 100,
        "bytes_down": 300, "seconds": 0.5, "epsilon": None, "staleness": {"0": 2},
    }  # fmt: skip
    return RoundCommitted(round=round, version=version, **{**values, **fields})  # type: ignore[arg-type]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics(clock: ManualClock) -> RunMetrics:
    return RunMetrics(DEVICES, clock)


def values(metrics: RunMetrics) -> Values:
    """The values as Prometheus reads them, by name and labels."""
    _, text = metrics.render("")
    return {
        sample.name + "".join(f"[{value}]" for _, value in sorted(sample.labels.items())): (
            sample.value
        )
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def shown(metrics: RunMetrics, *events: Event) -> Values:
    for event in events:
        metrics.show(event)
    return values(metrics)


def test_what_is_known_before_any_event_is_exported_and_nothing_else(metrics: RunMetrics) -> None:
    found = values(metrics)
    assert found["muster_devices[a]"] == 2
    assert found["muster_devices[b]"] == 1
    assert found["muster_devices_present[b]"] == 0
    assert found["muster_updates_folded_total"] == 0
    assert found["muster_update_seconds_count[a]"] == 0
    assert found["muster_disk_full"] == 0
    assert not found.keys() & {"muster_accuracy_ratio", "muster_loss", "muster_privacy_epsilon"}


def test_the_memory_of_the_process_is_exported(metrics: RunMetrics) -> None:
    assert values(metrics)["process_resident_memory_bytes"] > 1_000_000


def test_rounds_are_counted_by_outcome_and_timed(metrics: RunMetrics) -> None:
    found = shown(
        metrics,
        started(),
        committed(1, 1, seconds=0.5),
        committed(2, 1, outcome="empty", folded=0, staleness={}, seconds=2.0, epsilon=0.25),
    )
    assert found["muster_rounds_total[aggregated]"] == 1
    assert found["muster_rounds_total[empty]"] == 1
    assert (found["muster_round"], found["muster_model_version"]) == (2, 1)
    assert found["muster_progress_ratio"] == 2 / 10
    assert found["muster_round_seconds_sum"] == 2.5
    assert found["muster_round_seconds_bucket[1.0]"] == 1
    assert found["muster_privacy_epsilon"] == 0.25
    assert found["muster_traffic_bytes_total[up]"] == 200
    assert found["muster_traffic_bytes_total[down]"] == 600
    assert found["muster_calls_accepted_total"] == 4
    assert found["muster_updates_folded_total"] == 2


def test_in_the_buffered_mode_versions_are_the_progress(metrics: RunMetrics) -> None:
    found = shown(metrics, started(counts="versions"), committed(5, 3))
    assert found["muster_progress_ratio"] == 3 / 10


def test_staleness_is_that_of_the_updates_that_count(metrics: RunMetrics) -> None:
    found = shown(metrics, committed(folded=6, staleness={"0": 3, "2": 2, "40": 1}))
    assert found["muster_update_staleness_versions_count"] == 6
    assert found["muster_update_staleness_versions_sum"] == 44
    assert found["muster_update_staleness_versions_bucket[0.0]"] == 3
    assert found["muster_update_staleness_versions_bucket[2.0]"] == 5
    assert found["muster_update_staleness_versions_bucket[34.0]"] == 5


def test_updates_are_timed_from_the_opening_of_the_round_of_their_call(
    metrics: RunMetrics, clock: ManualClock
) -> None:
    metrics.show(RoundOpened(1, 0, 3, 0.0))
    clock.advance(2.0)
    metrics.show(Received(1, "a-0", 1, 1000))
    metrics.show(RoundOpened(2, 0, 3, 60.0))
    clock.advance(3.0)
    found = shown(metrics, Received(1, "b-0", 1, 3000), Received(2, "a-0", 1, 1000))
    assert found["muster_update_seconds_sum[a]"] == 2.0 + 3.0
    assert found["muster_update_seconds_sum[b]"] == 5.0
    assert found["muster_updates_received_total[a]"] == 2
    assert found["muster_update_bytes_sum"] == 5000
    assert found["muster_calls_total"] == 6
    assert found["muster_scenario_seconds"] == 60.0


def test_an_update_of_a_round_that_is_long_gone_is_counted_and_not_timed(
    metrics: RunMetrics,
) -> None:
    for round in range(1, 1_002):
        metrics.show(RoundOpened(round, 0, 1, None))
    found = shown(metrics, Received(1, "a-0", 1, 8), Received(2, "a-0", 1, 8))
    assert found["muster_updates_received_total[a]"] == 2
    assert found["muster_update_seconds_count[a]"] == 1


def test_devices_count_as_present_until_they_leave(metrics: RunMetrics) -> None:
    found = shown(
        metrics, Attended("a-0"), Attended("a-1"), Attended("b-0"), Attended("a-0"),
        Left("a-1", "gone"), Left("a-1", "gone"),
    )  # fmt: skip
    assert found["muster_devices_present[a]"] == 1
    assert found["muster_devices_present[b]"] == 1
    assert found["muster_device_connections_total[a]"] == 3


def test_calls_that_came_to_nothing_are_counted_by_reason(metrics: RunMetrics) -> None:
    found = shown(
        metrics,
        Declined(1, {"offline": 3, "battery": 1}),
        Declined(1, {"offline": 2}),
        Answered(1, "a-0", "accept", None),
        Answered(1, "a-0", "abort", "drop-out"),
    )
    assert found["muster_calls_declined_total[offline]"] == 5
    assert found["muster_calls_declined_total[battery]"] == 1
    assert found["muster_calls_aborted_total[drop-out]"] == 1
    assert "muster_calls_aborted_total[]" not in found


def test_updates_that_do_not_count_are_told_apart(metrics: RunMetrics) -> None:
    found = shown(
        metrics,
        Late(1, "a-0", "round closed"),
        Refused(1, "a-0", "norm"),
        Refused(1, "b-0", "norm"),
    )
    assert found["muster_updates_uncounted_total[late][round closed]"] == 1
    assert found["muster_updates_uncounted_total[refused][norm]"] == 2


def test_what_goes_wrong_is_exported(metrics: RunMetrics) -> None:
    full = shown(metrics, DiskRanFull("round 1", "full"), Warned(1, "fedavg", "few"))
    assert full["muster_disk_full"] == 1
    found = shown(metrics, DiskHasRoom("round 1", 1.5), Revoked("a-0..a-1", ["a-0", "a-1"]))
    assert found["muster_disk_full"] == 0
    assert found["muster_disk_wait_seconds_total"] == 1.5
    assert found["muster_warnings_total"] == 1
    assert found["muster_devices_revoked_total"] == 2


def test_the_newest_evaluation_and_the_bytes_after_the_last_commit_are_exported(
    metrics: RunMetrics,
) -> None:
    found = shown(
        metrics, Evaluated(1, 1, 0.7, None, 0.5), Evaluated(2, 2, 0.6, 0.9, 0.5),
        Ended("completed", "", 5, 7, 50.0),
    )  # fmt: skip
    assert (found["muster_loss"], found["muster_accuracy_ratio"]) == (0.6, 0.9)
    assert found["muster_evaluation_seconds_count"] == 2
    assert found["muster_traffic_bytes_total[down]"] == 7


def test_no_label_has_a_value_for_every_device() -> None:
    """A thousand devices make no more series than one."""

    def series(devices: int) -> int:
        fleet = [EnrolledDevice(f"a-{i}", "a", i, 5) for i in range(devices)]
        metrics = RunMetrics(fleet, ManualClock())
        metrics.show(RoundOpened(1, 0, devices, 0.0))
        for device in fleet:
            metrics.show(Attended(device.client))
            metrics.show(Received(1, device.client, 1, 8))
            metrics.show(Refused(1, device.client, "norm"))
            metrics.show(Left(device.client, f"{device.client} is gone"))
        return len(values(metrics))

    assert series(1_000) == series(1)


def test_every_measure_follows_the_rules_of_prometheus() -> None:
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)
    for measure in MEASURES:
        assert measure.name.endswith("_total") == (measure.kind is Kind.COUNTER)
        assert bool(measure.buckets) == (measure.kind is Kind.HISTOGRAM)
        assert list(measure.buckets) == sorted(set(measure.buckets))


def test_every_measure_gets_a_value_from_some_event(metrics: RunMetrics) -> None:
    found = shown(
        metrics, started(), RoundOpened(1, 0, 3, 0.0), Declined(1, {"offline": 1}),
        Answered(1, "a-0", "abort", "drop-out"), Refused(1, "a-0", "norm"),
        committed(epsilon=1.0), Evaluated(1, 1, 0.7, 0.5, 0.5),
    )  # fmt: skip
    exported = {name.partition("[")[0] for name in found}
    for measure in MEASURES:
        suffix = "_count" if measure.kind is Kind.HISTOGRAM else ""
        assert measure.name + suffix in exported


def test_events_without_a_metric_change_nothing(metrics: RunMetrics) -> None:
    before = {k: v for k, v in values(metrics).items() if k.startswith("muster")}
    other = next(kind for kind in event_kinds() if kind.name == "enrolled")
    after = shown(metrics, other(client="a-0"))  # type: ignore[call-arg]
    assert {k: v for k, v in after.items() if k.startswith("muster")} == before
