"""The rows of the tables about a run as a whole: its devices, its models and their quality."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from muster.server.account.columns import LedgerTable, Stored

Blob = bytes
"""The type, where a column has its name."""


class RunRow(NamedTuple):
    """The row of `run`.

    Attributes:
        id, incarnation: identity of the run; how often a server has opened it.
        status, detail: as in `summary.json`; NULL while the run goes on, or after its server was
            killed.
        started_at, ended_at: of the first incarnation; of the last.
        began_at: on the wall and scaled clocks, the moment of scenario time 0, at which the fleet
            had assembled; NULL in lockstep.
        bytes_up, bytes_down: bytes of bodies that travelled after the last commit: they are in no
            row of `rounds`.
        population, moments: devices of the scenario, known to the server or not; JSON of the
            population's means of the covariates Z, by column. A covariate that a device does not
            have counts as 0.
    """

    id: str
    incarnation: int
    status: str | None
    detail: str | None
    started_at: float
    ended_at: float | None
    began_at: float | None
    population: int
    moments: str
    bytes_up: int = 0
    bytes_down: int = 0


RUN = LedgerTable("run", RunRow, private=True)


class InputRow(NamedTuple):
    """A row of `inputs`: what the run began with.

    Attributes:
        kind, name: `scenario` and `scenario.toml`; `module` and the path of a file of your own
            code below its folder; `file` and the path of a file that the scenario names;
            `timeline` and `faults.json`; `model` and the file of the initial model; `data` and the
            number of devices; `package` and its name; `platform` and what it is.
        sha256: of the file; of the scenario, of all settings that may change a result; of data, of
            every device's number of examples and of the examples of eight devices. Packages and
            the platform have their version or name instead.
    """

    kind: str
    name: str
    sha256: str


INPUTS = LedgerTable("inputs", InputRow, ["kind", "name"], private=True)


class MemberRow(NamedTuple):
    """A row of `clients`: a device, which may not have enrolled yet.

    Attributes:
        client, group, position: name, group of the scenario, place in the population from 0
            (`group` is a word of SQL: quote it).
        examples: training examples it holds.
        enrolled: 1: it may train, and has a process; 0: it may not. With `server.information =
            "limited"` devices that may not train have no row.
        z: JSON of its covariates Z as numbers, a word as `name=level` with 0 or 1; with limited
            information NULL until it has connected, and if it reported some that it cannot have.
        capacity: share of the model that it can train; NULL until it has connected.
        enrolled_at: when it first connected; NULL: never.
        sessions: how often it connected; more than 1: it or the server was restarted or
            reconnected.
        fingerprint: JSON: torch, CPU capability, device, threads of its last session.
    """

    client: str
    group: str
    position: Annotated[int, Stored(unique=True)]
    examples: int
    enrolled: bool
    z: str | None
    capacity: float | None = None
    enrolled_at: float | None = None
    sessions: int = 0
    fingerprint: str | None = None


CLIENTS = LedgerTable("clients", MemberRow, ["client"], numbered=True)


_Metrics = Annotated[dict[str, float], Stored(since=15, older="'{}'")]


class GroupEvaluationRow(NamedTuple):
    """A row of `group_evaluations`.

    Attributes:
        version, round: the version, and the round that made it.
        group: the group that was evaluated.
        examples: the number of examples of its devices that were used.
        loss, accuracy: mean over these examples; NULL as in `evaluations`.
        metrics: JSON of the task's other metrics, if it measures examples of any device.
    """

    version: int
    round: int
    group: str
    examples: int
    loss: Annotated[float, Stored(null=True)]
    accuracy: float | None
    metrics: _Metrics


GROUP_EVALUATIONS = LedgerTable("group_evaluations", GroupEvaluationRow, ["version", "group"])


class DeviceEvaluationRow(NamedTuple):
    """A row of `device_evaluations`.

    Attributes:
        version: the version; `evaluations` has the round that made it.
        client: the device that was evaluated.
        examples: the number of its examples that were used.
        loss, accuracy: mean over these examples; NULL as in `evaluations`.
        metrics: as in `group_evaluations`.
    """

    version: int
    client: str
    examples: int
    loss: Annotated[float, Stored(null=True)]
    accuracy: float | None
    metrics: _Metrics


DEVICE_EVALUATIONS = LedgerTable("device_evaluations", DeviceEvaluationRow, ["version", "client"])


class EvaluationRow(NamedTuple):
    """A row of `evaluations`, with its rows of the tables for groups and devices.

    Attributes:
        version, round: the version, and the round that made it; 0: the initial model.
        loss, accuracy: on the task's test data; with `server.evaluate_on = "devices"` the mean of
            what devices reported, weighted by their examples; accuracy is NULL if the task has
            none, loss if it was not a number.
        metrics: JSON of the task's other metrics, for example a distance to the optimum; of an
            evaluation by devices, their number.
        seconds, at: how long the evaluation took, and when it was done.
    """

    version: int
    round: int
    loss: Annotated[float, Stored(null=True)]
    accuracy: float | None
    metrics: dict[str, float]
    seconds: float
    at: float
    groups: Sequence[GroupEvaluationRow] = ()
    devices: Sequence[DeviceEvaluationRow] = ()


def all_metrics(
    loss: float, accuracy: float | None, metrics: Mapping[str, float | None]
) -> dict[str, float]:
    """The metrics of an evaluation by name, with its loss and accuracy; NaN for what is no
    number."""
    others = {name: math.nan if value is None else value for name, value in metrics.items()}
    known = {"loss": loss} | ({} if accuracy is None else {"accuracy": accuracy})
    return others | known


EVALUATIONS = LedgerTable("evaluations", EvaluationRow, ["version"])


class StoredVector(NamedTuple):
    """A stored model or aggregator state.

    Attributes:
        sha256: hexadecimal SHA-256 of the safetensors file.
        size: length of the file in bytes.
        body: content of the file if it is small; None if it is a file in the folder of models.
    """

    sha256: str
    size: int
    body: bytes | None


class VersionRow(NamedTuple):
    """A row of `versions`.

    Attributes:
        version, round: a version of the model, and the round that made it.
        sha256, bytes: of its safetensors file.
        body, kept: the file itself if it is small, otherwise it is `models/<version>.safetensors`;
            0: the bytes were removed.
    """

    version: int
    round: int
    sha256: str
    bytes: int
    body: Blob | None
    kept: int = 1


VERSIONS = LedgerTable("versions", VersionRow, ["version"], private=True)


class StateRow(NamedTuple):
    """A row of `aggregator_state`.

    Attributes:
        version, sha256, bytes, body: the state of the aggregator at a version, as for `versions`.
            The file of a large state is `models/<version>.state.safetensors`.
    """

    version: int
    sha256: str
    bytes: int
    body: Blob | None


AGGREGATOR_STATE = LedgerTable("aggregator_state", StateRow, ["version"], private=True)


class MemoryRow(NamedTuple):
    """A row of `memory`: where the last update of a client is.

    Attributes:
        client: a client whose update has counted at least once.
        round: the round in which its last update counted.
        slot: 0 or 1: which of the client's two slots of `memory.bin` has the update.
        checksum: XXH3-128 of the update as float32, hexadecimal.
    """

    client: str
    round: int
    slot: int
    checksum: str


MEMORY = LedgerTable("memory", MemoryRow, ["client"], private=True)


class SharedWorkRow(NamedTuple):
    """A row of `shared_work`: how far work over shared links is.

    Attributes:
        client, round: the client, and the round in which it was called.
        train_s: modelled seconds of training.
        stage: 0 before the download, 1 download, 2 training, 3 upload, 4 after the upload, 5 ended.
        at_s: scenario seconds: during a transfer, the moment to which `left_bits` refers; otherwise
            the end of the stage, or of the work.
        left_bits: bits that are left of the transfer.
    """

    client: str
    round: int
    train_s: float
    stage: int
    at_s: float
    left_bits: float


SHARED_WORK = LedgerTable("shared_work", SharedWorkRow, ["client"], private=True)


class FaultRow(NamedTuple):
    """A row of `faults`, which nothing writes. docs/results.md says why the table stays.

    Attributes:
        at, round: when, and the round that was open.
        fault, target: its name, and the device or group that it hit.
        status, detail: `applied`, `healed` or `failed`, and more about it.
    """

    at: float
    round: int | None
    fault: str
    target: str
    status: str
    detail: str | None


FAULTS = LedgerTable("faults", FaultRow)
