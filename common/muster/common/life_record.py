"""A life record: for every round and device of a run what happened, and nothing about the model.

A record is a CSV file, which may be compressed by gzip. Its first line is a comment with the header
as JSON, its second line has the names of the columns, and every other line is a row. The header has
the SHA-256 of everything after it. As a Parquet file, a record has the same columns, and the same
header in its metadata.
"""

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from pydantic import Field

from muster.common.config import Section
from muster.common.errors import ConfigError, reason_of
from muster.common.files import write_atomic
from muster.common.life_parquet import read_parquet, write_parquet

VERSION = 1
"""The version of the format."""

RECORD = "setup/life.csv.gz"
"""The file of a run folder with the record from which the run is played."""

_MARK = "# muster life record "


Report = tuple[str | None, str | None, float | None]
"""A device's report about itself: JSON of its state, JSON of its covariates X, and the scenario
seconds since then. None: not known."""


class LifeDevice(Section):
    """A device of the recorded population."""

    client: str
    group: str


class LifeRound(Section):
    """A recorded round.

    The rounds of a record have the numbers 1, 2, 3 and so on.
    """

    opened_s: float = 0.0
    """Scenario seconds at which it opened."""

    ended_s: float = 0.0
    """Scenario seconds at which the next round could open."""

    step: int = 0
    """The step of device life at which it opened."""

    version: int = 0
    """The newest version of the model after it."""


class LifeHeader(Section):
    """What a record says about itself."""

    version: int = VERSION
    """The version of the format."""

    source: str
    """Where the record comes from, a sentence."""

    clock: str
    """The clock of the recorded run."""

    sha256: str
    """The SHA-256 of everything after the first line."""

    devices: list[LifeDevice] = Field(min_length=1)
    """The population, by position."""

    rounds: list[LifeRound]

    unanswered: int = 0
    """Calls of servers that were killed before an answer was recorded. A mode in which rounds end
    before their updates come never makes them again."""


class LifeRow(NamedTuple):
    """What happened to a device in a round in which it was called or known to be away.

    Attributes:
        round, client: the round, and the device.
        answer: what it answered: `accept`, `decline` or `abort`; `silent`: nothing; `absent`: it
            was not called, because it was not connected.
        reason: why it declined or gave up, or why its update did not count; otherwise None.
        base_version: the version from which it trained; None: it sent no update.
        outcome: what became of its update (`folded`, `late`, `dropped`, `refused`); None: it sent
            none.
        counted: the round in which its update counted; None: it did not count.
        staleness: the number of versions between the one from which it trained and the one to which
            the update was added.
        called_s, answered_s, ended_s: scenario seconds at which it was called and answered, and at
            which the outcome of its update was decided.
        modelled_s: seconds of its work in the scenario's model of the device.
        train_s, transfer_s: measured seconds of its training and of its transfers.
        examples: training examples behind its update; 0: no training is behind it.
        bytes_up, bytes_down: bytes of its update, and of the model for it.
        state, x: JSON of its state and of its covariates X, as in the table `answers`.
        x_age_s: age of `state` and `x` in scenario seconds.
        faults: the names of the faults that acted on it, separated by spaces.
    """

    round: int
    client: str
    answer: str
    reason: str | None = None
    base_version: int | None = None
    outcome: str | None = None
    counted: int | None = None
    staleness: int | None = None
    called_s: float | None = None
    answered_s: float | None = None
    ended_s: float | None = None
    modelled_s: float | None = None
    train_s: float | None = None
    transfer_s: float | None = None
    examples: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    state: str | None = None
    x: str | None = None
    x_age_s: float | None = None
    faults: str | None = None

    @property
    def report(self) -> Report:
        """Its state, its covariates X and their age."""
        return self.state, self.x, self.x_age_s

    @property
    def trained(self) -> bool:
        """Whether the device has sent an update that it had trained."""
        return self.outcome is not None and bool(self.examples)

    @property
    def work_s(self) -> float:
        """Scenario seconds from its call until its update is there. On clocks that run they are
        measured, and by the model otherwise."""
        if self.called_s is None or self.answered_s is None or self.ended_s is None:
            return self.modelled_s or 0.0
        done_s = self.answered_s + (self.train_s or 0.0) + (self.transfer_s or 0.0)
        return max(0.0, min(done_s, self.ended_s) - self.called_s)


class LifeRecord(NamedTuple):
    """The recorded life of a fleet.

    Attributes:
        rows: in the order of rounds, and of devices in each.
    """

    header: LifeHeader
    rows: Sequence[LifeRow]


def life_record(
    source: str,
    clock: str,
    devices: Sequence[LifeDevice],
    rounds: Sequence[LifeRound],
    rows: Sequence[LifeRow],
    unanswered: int = 0,
) -> LifeRecord:
    """Make a record; the arguments are those of `LifeHeader` and `LifeRecord`."""
    header = LifeHeader(
        source=source,
        clock=clock,
        sha256=hashlib.sha256(_body(rows)).hexdigest(),
        devices=list(devices),
        rounds=list(rounds),
        unanswered=unanswered,
    )
    return LifeRecord(header, rows)


def write_life(path: Path, record: LifeRecord) -> None:
    """Write a record; it is compressed if the name of the file ends with `.gz`.

    Raises:
        ConfigError: its name has another ending; or it is to be Parquet, and pyarrow is not
            installed.
    """
    if not path.name.endswith((".csv", ".csv.gz", ".parquet")):
        raise ConfigError(f"{path}: expected a name that ends with .csv, .csv.gz or .parquet")
    if path.suffix == ".parquet":
        return write_parquet(path, record.header.to_json(), LifeRow._fields, record.rows, _TYPES)
    head = f"{_MARK}{record.header.to_json()}\n".encode()
    content = head + _body(record.rows)
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    write_atomic(path, content)


def read_life(path: Path) -> LifeRecord:
    """Read a record.

    Raises:
        ConfigError: it cannot be read, is damaged, or has a format that is not known.
    """
    if path.suffix == ".parquet":
        text, rows = read_parquet(path, LifeRow._fields)
        body = _body([LifeRow(*row) for row in rows])
        return _record(path, text, body)
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        first, _, body = content.partition(b"\n")
        head = first.decode(errors="replace")
    except EOFError:
        raise ConfigError(f"{path}: expected a life record, found a file that is cut off") from None
    except (OSError, zlib.error) as error:
        raise ConfigError(f"{path}: expected a life record: {reason_of(error)}") from None
    if not head.startswith(_MARK):
        raise ConfigError(
            f"{path}: expected a life record, whose first line begins with {_MARK.strip()!r}, "
            f"found {head[:40]!r}; muster life export writes one"
        )
    return _record(path, head.removeprefix(_MARK), body)


def _record(path: Path, head: str, body: bytes) -> LifeRecord:
    """The record of a file.

    Args:
        head: the header in JSON.
        body: what the header has the SHA-256 of.
    """
    header = _header(path, head)
    if (found := hashlib.sha256(body).hexdigest()) != header.sha256:
        raise ConfigError(
            f"{path}: the record is damaged: expected rows with SHA-256 {header.sha256}, found "
            f"{found}; write it again with muster life export"
        )
    return LifeRecord(header, list(_rows(path, body, header)))


def _header(path: Path, text: str) -> LifeHeader:
    try:
        version = json.loads(text).get("version")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: expected a header in JSON, found {error}") from None
    if version != VERSION:
        raise ConfigError(
            f"{path}: expected a life record of version {VERSION}, found {version!r}; read it with "
            f"the version of muster that wrote it"
        )
    try:
        return LifeHeader.from_json(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _body(rows: Sequence[LifeRow]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(LifeRow._fields)
    writer.writerows(rows)  # None becomes an empty cell
    return text.getvalue().encode()


_TYPES: dict[str, type] = {
    name: next(kind for kind in (get_args(hint) or (hint,)) if kind is not type(None))
    for name, hint in get_type_hints(LifeRow).items()
}


def _rows(path: Path, body: bytes, header: LifeHeader) -> Iterator[LifeRow]:
    reader = csv.DictReader(io.StringIO(body.decode(), newline=""))
    clients, rounds = {device.client for device in header.devices}, len(header.rounds)
    if tuple(reader.fieldnames or ()) != LifeRow._fields:
        raise ConfigError(
            f"{path}: expected the columns {', '.join(LifeRow._fields)}, found "
            f"{', '.join(reader.fieldnames or ())}"
        )
    for number, cells in enumerate(reader, start=3):
        row = _row(f"{path}, line {number}", cells)
        if row.client not in clients or not 1 <= row.round <= rounds:
            raise ConfigError(
                f"{path}, line {number}: expected a device of the header and a round from 1 to "
                f"{rounds}, found {row.client!r} in round {row.round}"
            )
        yield row


def _row(place: str, cells: dict[str, Any]) -> LifeRow:
    values: dict[str, Any] = {}
    for name, kind in _TYPES.items():
        text = cells[name]
        try:
            values[name] = kind(text) if text else None
        except (TypeError, ValueError):
            raise ConfigError(
                f"{place}: expected {kind.__name__} in column {name}, found {text!r}"
            ) from None
    if None in (values["round"], values["client"], values["answer"]):
        raise ConfigError(f"{place}: expected a round, a client and an answer")
    return LifeRow(**values)
