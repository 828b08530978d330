"""The life record: its file, and the arrivals that a server takes from it."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from muster.common.errors import ConfigError
from muster.common.life_record import (
    LifeDevice,
    LifeRecord,
    LifeRound,
    LifeRow,
    life_record,
    read_life,
    write_life,
)
from muster.laboratory.life_view import describe, draw
from muster.server.rounds.arrivals import RecordedArrivals, uncertain_calls

if TYPE_CHECKING:
    from pathlib import Path

SENT = LifeRow(1, "b", "accept", None, 0, "folded", 2, 1, examples=7)
ROWS = (
    LifeRow(1, "a", "accept", None, 0, "folded", 1, 0, 0.0, 0.25, 1.5, 1 / 3, examples=3),
    SENT,
    LifeRow(1, "c", "decline", "busy", state='{"battery":0.5,"hour":1}', x='{"load":1e-300}'),
    LifeRow(2, "a", "accept", "deadline", 1, "late", examples=3, faults="slow wrong"),
    LifeRow(2, "c", "absent", x_age_s=3.5),
)


def record(*rows: LifeRow, rounds: int = 2) -> LifeRecord:
    devices = [LifeDevice(client=client, group="phone") for client in "abc"]
    opened = [LifeRound(opened_s=60.0 * n, ended_s=60.0 * n + 60, step=n) for n in range(rounds)]
    return life_record("a test", "wall", devices, opened, rows or ROWS)


@pytest.mark.parametrize("name", ["life.csv", "life.csv.gz"])
def test_a_record_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    write_life(tmp_path / name, record())
    found = read_life(tmp_path / name)
    assert found.header == record().header
    assert list(found.rows) == list(ROWS)
    assert write_twice(tmp_path, name), "the same record has the same bytes"


def write_twice(folder: Path, name: str) -> bool:
    again = folder / f"again-{name}"
    write_life(again, record())
    return again.read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"# muster life record", b"# another", "whose first line begins with"),
        (b"accept", b"acCept", "the record is damaged"),
        (b'"version":1', b'"version":2', "expected a life record of version 1, found 2"),
        (b'{"version"', b'["version"', "expected a header in JSON"),
        (b'"clock":"wall",', b"", "clock: required, but missing"),
    ],
)
def test_a_record_that_was_changed_is_refused(
    tmp_path: Path, old: bytes, new: bytes, message: str
) -> None:
    path = tmp_path / "life.csv"
    write_life(path, record())
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        read_life(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (LifeRow(3, "a", "accept"), "a round from 1 to 2, found 'a' in round 3"),
        (LifeRow(1, "z", "accept"), "a device of the header"),
        (LifeRow(1, "a", ""), "expected a round, a client and an answer"),
        (LifeRow(1, "a", "accept", modelled_s="soon"), "expected float in column modelled_s"),  # type: ignore[arg-type]
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_line(
    tmp_path: Path, row: LifeRow, message: str
) -> None:
    write_life(tmp_path / "life.csv", record(SENT, row))
    with pytest.raises(ConfigError, match=rf"line 4: .*{message}"):
        read_life(tmp_path / "life.csv")


def test_a_file_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "life.csv.gz"
    write_life(whole, record())
    whole.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(ConfigError, match=r"life.csv.gz: expected .* a file that is cut off"):
        read_life(whole)
    (tmp_path / "text.csv").write_bytes(gzip.compress(b"time,rate\n"))
    with pytest.raises(ConfigError, match="found 'time,rate'"):
        read_life(tmp_path / "text.csv")


def test_those_are_called_that_trained_and_counted_in_their_rounds() -> None:
    arrivals = RecordedArrivals(record(), outlives_round=True)
    first, second = arrivals.round(1), arrivals.round(2)
    assert arrivals.rounds == 2
    assert arrivals.to_call(1) == ["a", "b"]
    assert first.counted == {"a"}
    assert second.counted == {"b"}, "it was called in round 1"
    assert (first.called, first.accepted) == (3, 2)
    assert (second.called, second.accepted) == (1, 1), "the absent device was not called"
    assert (second.opened_s, second.ended_s, second.step) == (60.0, 120.0, 1)
    assert arrivals.to_call(2) == [], "it would still work when it is called again"
    assert RecordedArrivals(record(), outlives_round=False).to_call(2) == ["a"]


def test_training_that_nobody_knows_of_is_counted() -> None:
    silent = LifeRow(1, "a", "accept"), LifeRow(2, "b", "silent")
    assert uncertain_calls(record(*silent, SENT), outlives_round=False) == 2
    assert uncertain_calls(record(), outlives_round=False) == 0
    assert uncertain_calls(record(), outlives_round=True) == 1, "the late one is not called"
    killed = record()
    killed = killed._replace(header=killed.header.model_copy(update={"unanswered": 2}))
    assert uncertain_calls(killed, outlives_round=True) == 3
    assert uncertain_calls(killed, outlives_round=False) == 0, "the calls were made again"


def test_a_record_is_described_and_drawn(tmp_path: Path) -> None:
    text = describe(record())
    assert "3 phone" in text
    assert "2 of 5" in text
    draw(record(), tmp_path / "life.png")
    assert (tmp_path / "life.png").read_bytes()[:4] == b"\x89PNG"


def test_a_file_of_another_kind_is_neither_written_nor_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"life\.doc: expected a name that ends with \.csv"):
        write_life(tmp_path / "life.doc", record())
    junk = tmp_path / "junk.csv.gz"
    junk.write_bytes(bytes(range(128, 256)))
    with pytest.raises(ConfigError, match="expected a life record, whose first line begins with"):
        read_life(junk)
