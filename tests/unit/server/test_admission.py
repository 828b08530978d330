"""What is decided from the header of an update alone."""

import math
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.exchange import (
    Answer,
    Decision,
    Fingerprint,
    Identity,
    Key,
    Outcome,
    Reason,
    Update,
)
from muster.common.facts import Facts
from muster.server.fleet.devices import ConnectedPack, EnrolledDevice
from muster.server.fleet.fleet import Fleet
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules
from muster.server.settings.server import ServerSettings
from muster.server.updates.admission import Admission
from muster.server.updates.formats import UpdateFormats

BODY = bytes(16)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(EnrolledDevice(client, "g", place, 5) for place, client in enumerate("ab"))


@pytest.fixture
def pack(fleet: Fleet) -> ConnectedPack:
    return fleet.enroll([Identity("a", 5)], Fingerprint("test", "test", "cpu", 1))


@pytest.fixture
def admission(fleet: Fleet) -> Admission:
    return Admission(UpdateFormats({}, {}, 3, None, fleet), fleet)


def admission_for(rule: str, fleet: Fleet, max_loss: float = math.inf) -> Admission:
    settings = validate(ServerSettings, {"rounds": 5, "aggregator": rule}, "test")
    needs = settings.aggregator.needs()
    return Admission(UpdateFormats({}, {}, 3, None, fleet), fleet, needs, max_loss)


def round_of(number: int) -> Round:
    made = Round(number, number - 1, Rules(lockstep=True))
    made.select(["a", "b"])
    made.call("a")
    return made


def update(number: int = 1, **changes: Any) -> Update:
    right = Update(Key("a", number, 1), 5, BODY, 12, 0.0, 0.0, 0.0)
    return right._replace(**changes)


def test_an_update_that_was_called_for_is_to_be_sent(
    admission: Admission, pack: ConnectedPack
) -> None:
    admission.open(round_of(1))
    assert admission.known_receipt(pack, update()) is None
    assert admission.formats.of(Key("a", 1, 1)).length == 12


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": Key("b", 1, 1)}, Reason.UNKNOWN_CLIENT),  # of another session
        ({"length": 13}, Reason.LENGTH),
        ({"examples": 6}, Reason.EXAMPLES),  # more than it holds
        ({"examples": 0}, Reason.EXAMPLES),
    ],
    ids=["client", "length", "too-many", "none"],
)
def test_an_update_that_cannot_count_is_refused(
    admission: Admission, pack: ConnectedPack, changes: dict[str, Any], reason: Reason
) -> None:
    admission.open(round_of(1))
    receipt = admission.known_receipt(pack, update(**changes))
    assert receipt is not None
    assert (receipt.outcome, receipt.reason) == (Outcome.REFUSED, reason)


@pytest.mark.parametrize("changes", [{"length": 13}, {"examples": 6}], ids=["length", "examples"])
def test_a_round_in_lockstep_waits_no_longer_for_a_device_whose_header_is_refused(
    admission: Admission, pack: ConnectedPack, changes: dict[str, Any]
) -> None:
    round = round_of(1)
    round.answer(Answer(Key("a", 1, 1), Decision.ACCEPT))
    admission.open(round)
    assert round.expects("a")
    wrong = admission.known_receipt(pack, update(**changes))
    assert not round.expects("a")
    assert admission.known_receipt(pack, update(**changes)) == wrong, "the same receipt again"


def test_the_update_of_another_session_says_nothing_about_a_device(
    admission: Admission, pack: ConnectedPack
) -> None:
    round = round_of(1)
    round.call("b")
    admission.open(round)
    admission.known_receipt(pack, update(key=Key("b", 1, 1), length=13))
    assert round.expects("b")


def test_an_update_is_judged_by_the_round_that_called_for_it(
    admission: Admission, pack: ConnectedPack
) -> None:
    before_the_first = admission.known_receipt(pack, update())
    assert before_the_first is not None
    assert before_the_first.outcome is Outcome.LATE
    first, second = round_of(1), round_of(2)
    admission.open(first)
    assert first.admit(update()).outcome is Outcome.ACCEPTED
    admission.close()
    admission.open(second)
    assert admission.round_of(Key("a", 1, 1)) is first
    assert admission.round_of(Key("a", 2, 1)) is second
    # A device that did not hear its receipt gets the same one again.
    again = admission.known_receipt(pack, update())
    assert again is not None
    assert again.outcome is Outcome.ACCEPTED
    assert admission.known_receipt(pack, update(2)) is None
    assert admission.member_of(Key("a", 2, 1)) is second.cohort["a"]
    assert admission.member_of(Key("a", 9, 1)) is None


def test_the_newest_call_of_a_pack_is_one_that_still_counts(
    admission: Admission, pack: ConnectedPack
) -> None:
    assert admission.newest_call(pack) == Key("a", 0, 0)
    admission.open(round_of(1))
    assert admission.newest_call(pack) == Key("a", 1, 1)
    admission.close()
    assert admission.newest_call(pack) == Key("a", 1, 1), "its update may still be on its way"
    second = Round(2, 1, Rules(lockstep=True))
    second.select(["b"])
    admission.open(second)
    assert admission.newest_call(pack) == Key("a", 1, 1), "the open round has not called it"


@pytest.fixture
def worker(fleet: Fleet) -> ConnectedPack:
    """A pack of a device that takes at most 8 local steps."""
    fleet.devices["a"].most_steps = 8
    return fleet.enroll([Identity("a", 5)], Fingerprint("test", "test", "cpu", 1))


@pytest.mark.parametrize(
    ("rule", "changes", "reason"),
    [
        ("fedavg", {"steps": 8}, None),
        ("fedavg", {"steps": 9}, Reason.STEPS),
        ("fedavg", {"steps": 2**40}, Reason.STEPS),
        ("fedavg", {}, None),  # nobody needs its steps
        ("fednova", {"steps": 8}, None),
        ("fednova", {"steps": 1}, None),
        ("fednova", {"steps": 0}, Reason.STEPS),
        ("fedavg", {"facts": Facts(-1.0)}, None),
        ("q-fedavg", {"facts": Facts(0.0)}, None),
        ("q-fedavg", {"facts": Facts(3.4e38)}, None),
        ("q-fedavg", {"facts": Facts(3.5e38)}, Reason.LOSS),  # beyond float32
        ("q-fedavg", {"facts": Facts(-1e-9)}, Reason.LOSS),
        ("q-fedavg", {"facts": Facts(math.inf)}, Reason.LOSS),
        ("q-fedavg", {"facts": Facts(math.nan)}, Reason.LOSS),
        ("q-fedavg", {}, Reason.LOSS),
    ],
)
def test_steps_and_losses_that_cannot_be_are_refused(
    fleet: Fleet, worker: ConnectedPack, rule: str, changes: dict[str, Any], reason: Reason | None
) -> None:
    admission = admission_for(rule, fleet)
    admission.open(round_of(1))
    receipt = admission.known_receipt(worker, update(**changes))
    assert (receipt.reason if receipt else None) == reason
    assert admission.round is not None
    waits = admission.round.expects("a")
    assert waits is (reason is None), "training again would give the same numbers"
    assert admission.known_receipt(worker, update(**changes)) == receipt


def test_the_steps_of_a_function_of_ones_own_are_not_bounded(
    fleet: Fleet, pack: ConnectedPack
) -> None:
    admission = admission_for("fednova", fleet)
    admission.open(round_of(1))
    assert admission.known_receipt(pack, update(steps=2**40)) is None
    refused = admission.known_receipt(pack, update())
    assert refused is not None
    assert refused.detail == "0 local steps; expected at least 1"


@pytest.mark.parametrize(("loss", "refused"), [(2.5, False), (2.6, True), (3.4e38, True)])
def test_a_loss_above_that_of_the_guard_is_refused(
    fleet: Fleet, pack: ConnectedPack, loss: float, refused: bool
) -> None:
    admission = admission_for("q-fedavg", fleet, max_loss=2.5)
    admission.open(round_of(1))
    receipt = admission.known_receipt(pack, update(facts=Facts(loss)))
    assert (receipt is not None) == refused
    assert receipt is None or receipt.reason is Reason.LOSS
