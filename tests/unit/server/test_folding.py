"""When updates are folded, and with which weights."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from muster.common.compression import Whole
from muster.common.errors import RemoteProtocolError, RunFailed
from muster.common.exchange import Held, Key, Outcome, Reason, Update
from muster.common.seeds import FloatArray
from muster.common.tensors import WIRE, schema_of
from muster.server.account.traffic import TransferCost
from muster.server.aggregators import Combining, Contribution, Remembering, State
from muster.server.aggregators.values import Matrix
from muster.server.rounds.round import Round
from muster.server.rounds.rules import Rules
from muster.server.testing import PlusOne
from muster.server.updates.folding import Folding
from muster.server.updates.round_updates import PendingUpdate, RoundUpdates
from muster.server.updates.uploads import HeldBody, InlineBody, UpdateFormat
from muster.wire.bodies import checksum

SCHEMA = schema_of({"w": (2,)})
VECTORS = {"a": [1.0, 2.0], "b": [10.0, -20.0]}


@pytest.fixture
def worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as worker:
        yield worker


def arrivals() -> tuple[RoundUpdates, list[PendingUpdate]]:
    """A round in which both devices have sent their updates."""
    round = Round(1, 0, Rules(lockstep=False))
    round.select(list(VECTORS))
    updates = RoundUpdates(round)
    for client, vector in VECTORS.items():
        body = np.array(vector, WIRE).tobytes()
        update = Update(round.call(client), 5, checksum(body), len(body), 0.0, 0.0, 0.0)
        inline = InlineBody(body, UpdateFormat(Whole(kind="none"), 2))
        assert inline.fault(update) is None
        assert round.receive(update).outcome is Outcome.ACCEPTED
        contribution = Contribution(client, "g", 5, 0)
        updates.accepted[client] = PendingUpdate(update, contribution, inline, TransferCost())
    return updates, list(updates.accepted.values())


def arrive(made: Folding, update: PendingUpdate) -> None:
    assert made.fault(update) is None
    made.arrived(update)


class Impossible(PlusOne):
    """Gives the weight that a test chose, which no setting may be."""

    def weight(self, contribution: Contribution, state: State) -> float:
        return {"inf": math.inf, "nan": math.nan, "negative": -1.0}[self.kind]


def folding(
    worker: ThreadPoolExecutor,
    rule: PlusOne,
    on_arrival: bool,
    small: bool,
    keeps_bodies: bool = False,
) -> Folding:
    return Folding(2, rule, on_arrival, small, worker, keeps_bodies)


@pytest.mark.parametrize("small", [True, False], ids=["on the loop", "in the worker"])
@pytest.mark.parametrize("on_arrival", [True, False], ids=["on arrival", "at close"])
async def test_every_way_of_folding_gives_the_same_sum(
    worker: ThreadPoolExecutor, small: bool, on_arrival: bool
) -> None:
    updates, arrived = arrivals()
    made = folding(worker, PlusOne(kind="plus-one", extra=1.0), on_arrival, small)
    made.open({})
    for update in arrived:
        arrive(made, update)
    counted = await made.counted(updates)
    await made.fold(counted, [6.0, 6.0])
    assert [update.weight for update in counted] == [6.0, 6.0]
    assert made.sum.total().tolist() == [66.0, -108.0]
    for update in counted:
        with pytest.raises(RemoteProtocolError, match="a body of 0 bytes"):
            update.body.read(0, 2)  # bodies are let go of


@pytest.mark.parametrize("small", [True, False], ids=["on the loop", "in the worker"])
async def test_updates_that_did_not_count_after_all_are_folded_again(
    worker: ThreadPoolExecutor, small: bool
) -> None:
    updates, arrived = arrivals()
    rule = PlusOne(kind="plus-one", extra=1.0)
    made = folding(worker, rule, on_arrival=True, small=small, keeps_bodies=True)
    made.open({})
    arrive(made, arrived[0])
    await made.counted(updates)
    made.forget()  # the round has closed, and too few updates had arrived
    made.open({})
    arrive(made, arrived[1])
    counted = await made.counted(updates)
    await made.fold(counted, [3.0, 6.0])
    assert [update.weight for update in counted] == [3.0, 6.0]
    assert made.sum.total().tolist() == [
        3.0 * VECTORS["a"][place] + 6.0 * VECTORS["b"][place] for place in range(2)
    ]


@pytest.mark.parametrize("small", [True, False], ids=["on the loop", "in the worker"])
@pytest.mark.parametrize("kind", ["inf", "nan", "negative"])
async def test_an_impossible_weight_ends_the_run_when_the_round_closes(
    worker: ThreadPoolExecutor, small: bool, kind: str
) -> None:
    updates, arrived = arrivals()
    made = folding(worker, Impossible(kind=kind), on_arrival=True, small=small)
    made.open({})
    arrive(made, arrived[0])
    with pytest.raises(RunFailed, match="gave a the weight"):
        await made.counted(updates)
    made.forget()
    assert await made.counted(updates) == arrived, "the failed fold is forgotten"


class RememberingOne(Remembering, PlusOne):
    """The same weights, for updates that are remembered."""


class ChoosingOne(Combining, PlusOne):
    """The same weights, for updates that are combined."""

    def combine(self, updates: Matrix, counted: int) -> FloatArray:
        return np.asarray(updates[0], np.float64)


@pytest.mark.parametrize(
    ("rule", "clip", "largest", "refused"),
    [
        (PlusOne, None, 2.0**30 / 6, True),  # its weight is 5 + 1
        (PlusOne, None, 2.0**30 / 6.1, False),
        (RememberingOne, None, 2.0**30, True),  # memories have no weights
        (RememberingOne, None, 2.0**29, False),
        (ChoosingOne, None, 3e38, False),
        (PlusOne, 1.0, 3e38, False),
    ],
    ids=["half of the range", "less", "remembered", "less of it", "nothing is added up", "clipped"],
)
def test_an_update_that_leaves_others_no_room_in_the_sum_is_refused(
    worker: ThreadPoolExecutor,
    rule: type[PlusOne],
    clip: float | None,
    largest: float,
    refused: bool,
) -> None:
    made = Folding(2, rule(kind="plus-one", extra=1.0), True, True, worker, False, clip)
    contribution = Contribution("a", "g", 5, 0, squared_norm=largest**2)
    sent = Update(Key("a", 1, 1), 5, b"", 8, 0.0, 0.0, 0.0)
    body = HeldBody(Held(largest, largest**2), UpdateFormat(Whole(kind="none"), 2))
    fault = made.fault(PendingUpdate(sent, contribution, body, TransferCost()))
    assert (fault is not None) == refused
    if fault is not None:
        assert fault[0] is Reason.NORM
        assert "is beyond 1.07e+09, half of what the exact sum" in fault[1]
