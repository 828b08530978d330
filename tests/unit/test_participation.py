"""Who took part, as rows: from a round that is open, and from the ledger."""

import numpy as np

from muster.common.clock import WallClock
from muster.common.exchange import Answer, Decision, Observation
from muster.common.tensors import Schema
from muster.server.books import Books
from muster.server.fleet import Device, Fleet
from muster.server.ledger import ParticipationRow
from muster.server.participation import Participation, Seen
from muster.server.population import Oracle, Population
from muster.server.rounds import Round, Rules

NAMES = {"phones": ["load", "charge"], "silos": []}


def books_of(*devices: Device) -> Books:
    return Books(Schema(()), Fleet(devices), NAMES, WallClock(), scale=1.0)


def test_rows_are_in_the_order_of_the_population_and_lack_what_was_never_heard_of() -> None:
    found = Participation(["load", "charge"])
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
    assert Participation(["load"]).pooled().x.shape == (0, 1)


def test_an_open_round_and_its_ledger_say_the_same() -> None:
    a, b = Device("a", "phones", 0, 5), Device("b", "phones", 1, 5)
    c, d = Device("c", "silos", 2, 5), Device("d", "phones", 3, 5)
    books = books_of(a, b, c, d)
    round = Round(1, 0, Rules(lockstep=False))
    round.select(["a", "c"])
    round.answer(Answer(round.call("a"), Decision.ACCEPT, x=(0.25, 1.0)))
    b.see(Observation("b", None, (0.5, 0.0)), 0.0)
    seen = list(books.participation(round, [b, c, d], {"a"}))
    assert seen[0] == Seen(0, True, {"load": 0.25, "charge": 1.0}, 0.0)
    assert seen[1][:3] == (1, False, {"load": 0.5, "charge": 0.0})
    assert seen[1].age_s > 0
    assert seen[2] == Seen(2, False, {}, 0.0)  # of its group there is nothing to know
    assert seen[3] == Seen(3, False, None, 0.0)
    assert books.recorded(
        ParticipationRow(1, "a", True, '{"load":0.25,"charge":1.0}', 0.0, True)
    ) == Seen(0, True, {"load": 0.25, "charge": 1.0}, 0.0)
    assert books.recorded(ParticipationRow(1, "c", False, None, None, False)) == seen[2]
    assert books.recorded(ParticipationRow(1, "d", False, None, None, False)) == seen[3]


def test_covariates_of_devices_become_known_when_they_enroll() -> None:
    devices = {"a": Device("a", "g", 0, 1), "b": Device("b", "g", 1, 1)}
    known = Population(["a", "b", "c"], ["age"], [None] * 3, devices, {"age": 1.0}, Oracle())
    assert np.isnan(known.z()).all()
    devices["b"].z = {"age": 4.0}
    np.testing.assert_array_equal(known.z(), [[np.nan], [4.0], [np.nan]])
    np.testing.assert_array_equal(known.enrolled, [True, True, False])
