"""What is declared of a fact goes with it from the device to the ledger and its pages."""

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from muster.client.device.memory import Memory, RoundRecord, State
from muster.common.clock import WallClock
from muster.common.exchange import Key, Reason, Update
from muster.common.facts import FACTS, LARGEST_FLOAT32, NO_FACTS, Facts
from muster.server.account.ledger import Ledger
from muster.server.account.pending_rows import PendingRows
from muster.server.account.traffic import TransferCost
from muster.server.fleet.fleet import Fleet
from muster.v1 import fleet_pb2 as pb
from muster.wire.messages import decode_submit, encode_submit

MEASURED = Facts(*(place + 0.5 for place in range(len(Facts._fields))))
KEY = Key("a", 1, 1)
SENT = [
    *(NO_FACTS._replace(**{name: value}) for name, value in MEASURED._asdict().items()),
    NO_FACTS,
    MEASURED,
]


def update(facts: Facts) -> Update:
    return Update(KEY, 5, bytes(16), 4, 0.25, 0.5, 1.5, steps=3, facts=facts)


def test_the_message_has_the_fields_of_an_update_and_an_optional_number_for_each_fact() -> None:
    there = dict(pb.Update.DESCRIPTOR.fields_by_name)
    plain = {"client", "round", "attempt", *Update._fields} - {"key", "facts"}
    assert there.keys() == plain | set(Facts._fields)
    for name in Facts._fields:
        assert there[name].has_presence
        assert there[name].type == there[name].TYPE_DOUBLE


@pytest.mark.parametrize("facts", SENT, ids=str)
def test_a_fact_travels_whether_it_was_measured_or_not(facts: Facts) -> None:
    assert decode_submit(encode_submit(update(facts), 0)) == (update(facts), 0)


@pytest.mark.parametrize("facts", SENT, ids=str)
def test_a_device_that_comes_back_remembers_the_facts_of_its_update(
    tmp_path: Path, facts: Facts
) -> None:
    record = RoundRecord(1, bytes(16), State(0), State(1), update(facts))
    Memory(tmp_path).hold(record)
    assert Memory(tmp_path).held == (record,)


@pytest.mark.parametrize("facts", [*SENT, Facts(*[math.inf] * len(Facts._fields))], ids=str)
def test_a_fact_is_stored_unless_it_is_no_finite_number(tmp_path: Path, facts: Facts) -> None:
    rows = PendingRows(4, Fleet([]), {}, WallClock(), scale=1.0)
    rows.contribution(update(facts), 0, "folded", None, 9.0, TransferCost())
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.note(rows.take(1))
    ledger.close()
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as db:
        columns = ", ".join(Facts._fields)
        [found] = db.execute(f"SELECT {columns} FROM contributions").fetchall()
    assert found == tuple(None if value == math.inf else value for value in facts)


def test_a_fact_that_is_needed_must_be_a_number_within_its_bounds() -> None:
    for said in FACTS.values():
        assert said.allows(said.least)
        assert said.allows(said.most)
        outside = math.nextafter(said.least, -math.inf), math.nextafter(said.most, math.inf)
        assert not any(map(said.allows, (*outside, math.nan, None)))
        assert Reason(said.reason)
    assert np.finfo(np.float32).max == LARGEST_FLOAT32
