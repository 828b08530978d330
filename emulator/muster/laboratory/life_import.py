"""Life records from the logs of others, which say when devices were available.

Such a log says nothing about training. In the record, a device that is available for a whole round
trains, and its update counts; one that leaves within the round gives up; any other one declines.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from muster.client.availability.traces import AvailabilityTrace, read_traces
from muster.client.life.state_logs import read_state_logs
from muster.common.errors import ConfigError, reason_of
from muster.common.exchange import Decision, Reason
from muster.common.life_record import LifeDevice, LifeRecord, LifeRound, LifeRow, life_record
from muster.emulator.fleet.fedscale import import_fedscale

Traces = Sequence[AvailabilityTrace]
"""The traces of a device. It is available while all of them are on."""


class LogFormat(NamedTuple):
    """A format of logs of availability.

    Attributes:
        shown: what it is, for messages and for the source of a record.
        recognises: whether a file with this name and content has the format.
        read: reads the traces by device. It raises a ValueError or a ConfigError that says what is
            wrong.
    """

    shown: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Path], Mapping[str, Traces]]


def _one(traces: Mapping[str, AvailabilityTrace]) -> Mapping[str, Traces]:
    return {device: [trace] for device, trace in traces.items()}


def _eligible(path: Path) -> Mapping[str, Traces]:
    """A device is available when it charges, in a Wi-Fi network, with its screen off or locked."""
    logs = read_state_logs(path)
    return {device: [log.charging, log.wifi, log.idle] for device, log in logs.items()}


FORMATS: Mapping[str, LogFormat] = {
    "fedscale": LogFormat(
        "FedScale's client_behave_trace",
        lambda path, content: content[:1] in (b"\x80", b"(", b"}"),
        lambda path: _one(import_fedscale(path)),
    ),
    "flash": LogFormat(
        "FLASH's state logs (charging, in a Wi-Fi network, screen off)",
        lambda path, content: content.lstrip()[:1] == b"{" and b'"messages"' in content,
        _eligible,
    ),
    "trace": LogFormat(
        "a table of availability",
        lambda path, content: path.name.removesuffix(".gz").endswith((".csv", ".json")),
        lambda path: _one(read_traces(path)),
    ),
}


def import_life(
    path: Path,
    *,
    rounds: int,
    round_s: float,
    form: str | None = None,
    devices: int | None = None,
    group: str = "devices",
) -> LifeRecord:
    """The life record of the devices of a log.

    Args:
        rounds, round_s: how many rounds the record has, and how many seconds each lasts. The first
            one opens at the beginning of the log.
        form: the name of the format; None: it is recognised.
        devices: so many devices from the beginning of the file; None: all.
        group: the group of the devices. They are named after it, as those of a scenario.

    Raises:
        ConfigError: the file cannot be read, or has too few devices.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"expected a log of availability: {reason_of(error)}") from None
    name = _recognised(path, content) if form is None else form
    if name not in FORMATS:
        raise ConfigError(f"--format: expected one of {', '.join(FORMATS)}, found {name!r}")
    try:
        traces = FORMATS[name].read(path)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if devices is not None and not 1 <= devices <= len(traces):
        raise ConfigError(f"--devices: expected 1 to {len(traces)} of {path}, found {devices}")
    chosen = list(traces.values())[:devices]
    clients = [f"{group}-{number:04d}" for number in range(len(chosen))]
    digest = hashlib.sha256(content).hexdigest()
    return life_record(
        f"{FORMATS[name].shown}, {path.name} with SHA-256 {digest[:16]}, its first {len(chosen)} "
        f"devices in the order of the file; whoever is there for a round of {round_s:g} s counts",
        "rounds",
        [LifeDevice(client=client, group=group) for client in clients],
        [
            LifeRound(opened_s=i * round_s, ended_s=(i + 1) * round_s, step=i, version=i + 1)
            for i in range(rounds)
        ],
        list(_rows(dict(zip(clients, chosen, strict=True)), rounds, round_s)),
    )


def _recognised(path: Path, content: bytes) -> str:
    found = [name for name, form in FORMATS.items() if form.recognises(path, content)]
    if not found:
        known = "; ".join(f"{name}: {form.shown}" for name, form in FORMATS.items())
        raise ConfigError(f"{path}: expected a known log of availability ({known}); name --format")
    return found[0]


def _rows(traces: Mapping[str, Traces], rounds: int, round_s: float) -> Iterator[LifeRow]:
    for number in range(1, rounds + 1):
        opened_s = (number - 1) * round_s
        for client, of_device in traces.items():
            yield _row(number, client, of_device, opened_s, opened_s + round_s)


def _row(round: int, client: str, traces: Traces, opened_s: float, ended_s: float) -> LifeRow:
    fate = LifeRow(round, client, Decision.ACCEPT.value, called_s=opened_s)
    if not all(trace.on(opened_s) for trace in traces):
        return fate._replace(answer=Decision.DECLINE.value, reason=Reason.OFFLINE.value)
    if any(leaves(trace, opened_s, ended_s) for trace in traces):
        return fate._replace(answer=Decision.ABORT.value, reason=Reason.INTERRUPTED.value)
    # The number of examples is not known; 1 says that training is behind the update.
    return fate._replace(
        base_version=round - 1, outcome="folded", counted=round, staleness=0, examples=1
    )


def leaves(trace: AvailabilityTrace, opened_s: float, ended_s: float) -> bool:
    """Whether a trace that is on when a round opens goes off before it ends."""
    toggles, period_s = list(trace.toggles), trace.period_s
    if period_s is None:
        return any(opened_s < toggle < ended_s for toggle in toggles)
    if len(toggles) % 2:  # it begins again in another state than that in which it ends
        toggles.append(period_s)
    waits_s = ((toggle - opened_s) % period_s or period_s for toggle in toggles)
    return min(waits_s, default=math.inf) < ended_s - opened_s
