"""What metrics cost the server: processor time of an event, and of a scrape.

python benchmarks/metrics.py
"""

import timeit
from collections.abc import Callable
from functools import partial
from time import process_time

from muster.common.clock import WallClock
from muster.common.events import Enrolled, Event, Received, RoundCommitted, RoundOpened
from muster.server.fleet.devices import EnrolledDevice
from muster.server.metrics.run_metrics import RunMetrics

DEVICES = 1_000
GROUPS = (1, 10, 100, 1_000)

EVENTS: dict[str, Event] = {
    "an update": Received(1, "d-0", 1, 40_000),
    "a round of 10 updates": RoundCommitted(
        1, 1, "aggregated", 10, 10, 10, 400_000, 400_000, 0.1, None, {"0": 10}
    ),
    "an event without a metric": Enrolled("d-0"),
}


def metrics_of(groups: int) -> RunMetrics:
    devices = [EnrolledDevice(f"d-{i}", f"g-{i % groups}", i, 10) for i in range(DEVICES)]
    metrics = RunMetrics(devices, WallClock())
    metrics.show(RoundOpened(1, 0, DEVICES, 0.0))
    for device in devices:
        metrics.show(Received(1, device.client, 1, 40_000))
    return metrics


def seconds(what: Callable[[], object], times: int) -> float:
    """The least processor time of one call, over seven series of calls."""
    return min(timeit.repeat(what, timer=process_time, number=times, repeat=7)) / times


def main() -> None:
    metrics = metrics_of(1)
    for name, event in EVENTS.items():
        took = seconds(partial(metrics.show, event), 10_000)
        print(f"{name}: {1e6 * took:.2f} µs")
    for groups in GROUPS:
        metrics = metrics_of(groups)
        took = seconds(partial(metrics.render, ""), 5)
        size = len(metrics.render("")[1])
        print(f"a scrape with {groups} groups: {1e3 * took:.1f} ms, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
