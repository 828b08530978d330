"""Who took part, as rows: from a round that is open, and from the ledger."""

import json

import numpy as np
import pytest

from muster.common.clock import WallClock
from muster.common.exchange import Answer, Decision, DeviceState, Observation
from muster.common.testing import ManualClock
from muster.server.account.ledger_reader import ParticipationRow, ReportRow
from muster.server.account.pending_rows import PendingRows
from muster.server.fleet.devices import EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.knowledge.participation import ParticipationHistory, Seen
from muster.server.knowledge.population import Oracle, Population
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules

NAMES = {"phones": ["load", "charge"], "silos": []}


def books_of(*devices: EnrolledDevice) -> PendingRows:
    return PendingRows(0, Fleet(devices), NAMES, WallClock(), scale=1.0)


def test_rows_are_in_the_order_of_the_population_and_lack_what_was_never_heard_of() -> None:
    found = ParticipationHistory(["load", "charge"])
    found.enter([Seen(2, True, {"charge": 0.5}, 0.0), Seen(0, False, {"load": 1.0}, 3.0)])
    found.enter([Seen(1, True, None, 0.0), Seen(0, True, {"load": 2.0, "charge": 1.0}, 0.0)])
    assert found.unknown == 1
    np.testing.assert_array_equal(found.latest.x, [[2.0, 1.0]])
    rows = found.pooled()
    np.testing.assert_array_equal(rows.places, [0, 2, 0])
    np.testing.assert_array_equal(rows.took_part, [False, True, True])
    np.testing.assert_array_equal(rows.x, [[1.0, 0.0], [0.0, 0.5], [2.0, 1.0]])
    np.testing.assert_array_equal(rows.age_s, [3.0, 0.0, 0.0])
    found.enter([Seen(1, False, {}, 0.0)])
    assert len(found.pooled().places) == 4


def test_without_rounds_there_are_no_rows() -> None:
    assert ParticipationHistory(["load"]).pooled().x.shape == (0, 1)


@pytest.mark.parametrize("pooled_before", [False, True])
def test_in_a_round_that_folded_nothing_nobody_took_part(pooled_before: bool) -> None:
    found = ParticipationHistory(["load"])
    found.enter([Seen(0, True, {"load": 1.0}, 0.0)])
    found.enter([Seen(0, True, {"load": 2.0}, 0.0), Seen(1, False, {"load": 2.0}, 0.0)])
    if pooled_before:
        found.pooled()
    found.nobody()
    np.testing.assert_array_equal(found.latest.took_part, [False, False])
    np.testing.assert_array_equal(found.pooled().took_part, [True, False, False])
    found.enter([])
    found.nobody()
    np.testing.assert_array_equal(found.pooled().took_part, [True, False, False])


@pytest.mark.parametrize("pooled_before", [False, True])
def test_a_device_whose_update_is_left_out_did_not_take_part(pooled_before: bool) -> None:
    found = ParticipationHistory(["load"])
    found.enter([Seen(1, True, {"load": 1.0}, 0.0)])
    found.enter([Seen(place, True, {"load": 2.0}, 0.0) for place in (0, 1, 3)])
    if pooled_before:
        found.pooled()
    found.leave_out(np.array([1, 2]))
    np.testing.assert_array_equal(found.latest.took_part, [True, False, True])
    np.testing.assert_array_equal(found.pooled().took_part, [True, True, False, True])


def test_what_an_open_round_says_of_everybody() -> None:
    a, b = EnrolledDevice("a", "phones", 0, 5), EnrolledDevice("b", "phones", 1, 5)
    c, d = EnrolledDevice("c", "silos", 2, 5), EnrolledDevice("d", "phones", 3, 5)
    books = books_of(a, b, c, d)
    round = Round(1, 0, Rules(lockstep=False))
    round.select(["a", "c"])
    round.answer(Answer(round.call("a"), Decision.ACCEPT, x=(0.25, 1.0)))
    b.see(Observation("b", None, (0.5, 0.0)), 0.0)
    answers = [
        *books.answers(round, {}, 0.0),
        *books.unheard(round, "absent", ["b", "c", "d"], 0.0),
    ]
    rows = [ParticipationRow(1, r.client, r.client == "a", r.x, r.x_age_s) for r in answers]
    seen = list(books.participation(rows))
    assert seen[0] == Seen(0, True, {"load": 0.25, "charge": 1.0}, 0.0)
    assert seen[1][:3] == (1, False, {"load": 0.5, "charge": 0.0})
    assert seen[1].age_s > 0
    assert seen[2] == Seen(2, False, {}, 0.0)  # of its group there is nothing to know
    assert seen[3] == Seen(3, False, None, 0.0)


def test_an_answer_that_tells_no_covariates_has_those_that_were_last_known() -> None:
    a, b = EnrolledDevice("a", "phones", 0, 5), EnrolledDevice("b", "phones", 1, 5)
    books = books_of(a, b)
    round = Round(1, 0, Rules(lockstep=False))
    round.select(["a", "b"])
    a.see(Observation("a", None, (0.5, 1.0)), 0.0)
    for client in "ab":
        round.answer(Answer(round.call(client), Decision.ACCEPT))
    known, unknown = books.answers(round, {}, 0.0)
    assert known.x == '{"load":0.5,"charge":1.0}'
    assert known.x_age_s is not None
    assert known.x_age_s > 0
    assert (unknown.x, unknown.x_age_s) == (None, None)
    [seen] = books.participation([ParticipationRow(1, "b", True, None, None)])
    assert seen.x is None


def test_what_devices_told_is_known_to_the_next_incarnation() -> None:
    clock = ManualClock()
    a, b = EnrolledDevice("a", "phones", 0, 5), EnrolledDevice("b", "silos", 1, 5)
    books = PendingRows(0, Fleet([a, b]), NAMES, clock, scale=60.0)
    state = DeviceState(0.5, False, True, "wifi", True, 12.0)
    told = ReportRow(
        "a", json.dumps(state._asdict()), '{"load":0.5,"charge":1.0}', 30.0, clock.now() - 2.0
    )
    books.restore([("a", '{"age": 4.0}'), ("gone", "{}")], [told])
    assert a.z == {"age": 4.0}
    assert b.z is None
    assert a.seen == Observation("a", state, (0.5, 1.0))
    clock.advance(1.0)
    [row] = books.unheard(Round(1, 0, Rules(lockstep=False)), "absent", ["a"], 0.0)
    assert row.x == told.x
    assert row.x_age_s == pytest.approx(30 + 60 * (2 + 1), rel=1e-6)


def test_covariates_of_devices_become_known_when_they_enroll() -> None:
    devices = {"a": EnrolledDevice("a", "g", 0, 1), "b": EnrolledDevice("b", "g", 1, 1)}
    known = Population(["a", "b", "c"], ["age"], [None] * 3, devices, {"age": 1.0}, Oracle())
    assert np.isnan(known.z()).all()
    devices["b"].z = {"age": 4.0}
    np.testing.assert_array_equal(known.z(), [[np.nan], [4.0], [np.nan]])
    devices["a"].z = {}  # it has come, and has none
    np.testing.assert_array_equal(known.z(), [[0.0], [4.0], [np.nan]])
    np.testing.assert_array_equal(known.enrolled, [True, True, False])
