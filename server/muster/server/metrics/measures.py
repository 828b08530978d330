"""The metrics that the server exports.

Labels have few values: groups of the scenario, and names that muster itself chooses. No label names
a device, because every value of a label costs the server and Prometheus memory for good.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """How the values of a metric change."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, eq=False, slots=True)
class Measure:
    """One metric. A gauge is exported as soon as its value is known.

    Attributes:
        name: its name in Prometheus. That of a histogram is followed by `_bucket`, `_sum` and
            `_count` there.
        meaning: what its value says, for people.
        labels: the names of its labels.
        buckets: of a histogram, the largest value of each bucket.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)
"""Rounds take milliseconds with small models and minutes over emulated links."""

_BYTES: Final = tuple(float(4**power) for power in range(4, 15))
"""From 256 bytes to 256 MiB."""

_VERSIONS: Final = (0, 1, 2, 3, 5, 8, 13, 21, 34)


RUN = Measure(
    "muster_run_info", Kind.GAUGE, "Always 1. The label is the identity of the run.", ("run",)
)
PROGRESS = Measure(
    "muster_progress_ratio",
    Kind.GAUGE,
    "The share of the rounds of the scenario that is done; in the buffered mode, of the versions.",
)
ROUND = Measure("muster_round", Kind.GAUGE, "The newest committed round.")
VERSION = Measure("muster_model_version", Kind.GAUGE, "The newest version of the model.")
SCENARIO = Measure(
    "muster_scenario_seconds", Kind.GAUGE, "Scenario time at which the newest round opened."
)
ROUNDS = Measure(
    "muster_rounds_total",
    Kind.COUNTER,
    "Committed rounds. The outcome is `aggregated`, or `empty` if the round made no version.",
    ("outcome",),
)
ROUND_SECONDS = Measure(
    "muster_round_seconds",
    Kind.HISTOGRAM,
    "How long rounds took, from opening to close.",
    buckets=_SECONDS,
)

DEVICES = Measure(
    "muster_devices",
    Kind.GAUGE,
    "Devices that are enrolled in the experiment. Revoked ones still count.",
    ("group",),
)
PRESENT = Measure(
    "muster_devices_present", Kind.GAUGE, "Devices that are connected now.", ("group",)
)
CONNECTIONS = Measure(
    "muster_device_connections_total",
    Kind.COUNTER,
    "How often devices have connected. The first time counts too.",
    ("group",),
)
REVOKED = Measure(
    "muster_devices_revoked_total", Kind.COUNTER, "Devices that the operator has cut off."
)

CALLS = Measure("muster_calls_total", Kind.COUNTER, "Calls to devices for a round.")
ACCEPTED = Measure(
    "muster_calls_accepted_total", Kind.COUNTER, "Calls that devices accepted, in committed rounds."
)
DECLINED = Measure(
    "muster_calls_declined_total", Kind.COUNTER, "Calls that devices declined.", ("reason",)
)
ABORTED = Measure(
    "muster_calls_aborted_total",
    Kind.COUNTER,
    "Calls that devices accepted and then gave up.",
    ("reason",),
)

RECEIVED = Measure(
    "muster_updates_received_total",
    Kind.COUNTER,
    "Updates that arrived whole and were accepted.",
    ("group",),
)
FOLDED = Measure(
    "muster_updates_folded_total", Kind.COUNTER, "Updates that count in a version of the model."
)
UNCOUNTED = Measure(
    "muster_updates_uncounted_total",
    Kind.COUNTER,
    "Updates that were refused when they arrived, or came late or twice.",
    ("outcome", "reason"),
)
UPDATE_SECONDS = Measure(
    "muster_update_seconds",
    Kind.HISTOGRAM,
    "From the opening of the round of a call to the arrival of its update, in wall time. Updates "
    "that arrive while the round before is being committed are left out.",
    ("group",),
    _SECONDS,
)
UPDATE_BYTES = Measure(
    "muster_update_bytes",
    Kind.HISTOGRAM,
    "Sizes of the updates that were accepted.",
    buckets=_BYTES,
)
STALENESS = Measure(
    "muster_update_staleness_versions",
    Kind.HISTOGRAM,
    "Staleness of the updates that count.",
    buckets=_VERSIONS,
)
TRAFFIC = Measure(
    "muster_traffic_bytes_total",
    Kind.COUNTER,
    "Bytes of models and updates. The direction is `up` from devices, or `down` to them.",
    ("direction",),
)

LOSS = Measure("muster_loss", Kind.GAUGE, "Loss of the version that was evaluated last.")
ACCURACY = Measure(
    "muster_accuracy_ratio", Kind.GAUGE, "Accuracy of that version, if the task has one."
)
EVALUATION_SECONDS = Measure(
    "muster_evaluation_seconds",
    Kind.HISTOGRAM,
    "How long evaluations took.",
    buckets=_SECONDS,
)
EPSILON = Measure(
    "muster_privacy_epsilon",
    Kind.GAUGE,
    "ε of differential privacy spent so far, with `server.privacy`.",
)

DISK_FULL = Measure("muster_disk_full", Kind.GAUGE, "1 while the server waits for room on disk.")
DISK_WAIT_SECONDS = Measure(
    "muster_disk_wait_seconds_total", Kind.COUNTER, "How long the server has waited for room."
)
WARNINGS = Measure("muster_warnings_total", Kind.COUNTER, "Warnings of the aggregator.")

MEASURES: Final = (
    RUN, PROGRESS, ROUND, VERSION, SCENARIO, ROUNDS, ROUND_SECONDS,
    DEVICES, PRESENT, CONNECTIONS, REVOKED,
    CALLS, ACCEPTED, DECLINED, ABORTED,
    RECEIVED, FOLDED, UNCOUNTED, UPDATE_SECONDS, UPDATE_BYTES, STALENESS, TRAFFIC,
    LOSS, ACCURACY, EVALUATION_SECONDS, EPSILON,
    DISK_FULL, DISK_WAIT_SECONDS, WARNINGS,
)  # fmt: skip
