"""A round that is called while the one before is written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from muster.common.exchange import Answer, Body, ToDevice
from muster.server.account.ledger import Ledger
from muster.server.account.rows import RoundRow
from muster.server.fleet.devices import ConnectedPack
from muster.wire import messages

if TYPE_CHECKING:
    from tests.integration.conftest import MakeWorld, World

ROUNDS = 4
MODES = [{"kind": "synchronous"}, {"kind": "buffered", "k": 2, "concurrency": 2}]


async def deliver(w: World, rounds: range) -> None:
    """Two devices come, and answer calls for these rounds."""
    peers = await w.both()
    for round in rounds:
        for peer, value in zip(peers, (1.0, 0.1), strict=True):
            call = await peer.called()
            assert call.round == round
            await peer.send(peer.update(value * round, round, call.attempt))


async def model_of(w: World) -> bytes:
    status, detail = await w.finish()
    assert status == "completed"
    assert detail.endswith(f"{ROUNDS} rounds")
    model: bytes = (w.folder / "model.safetensors").read_bytes()
    return model


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is called and what is committed, in the order in which it happens."""
    order: list[str] = []
    encode, commit = messages.encode_to_device, Ledger.commit

    def encoded(message: ToDevice) -> bytes:
        order.extend(f"call {call.key.round}" for call in message.calls)
        return encode(message)

    def committed(self: Ledger, row: RoundRow, *args: Any) -> None:
        commit(self, row, *args)
        order.append(f"commit {row.round}")

    monkeypatch.setattr(messages, "encode_to_device", encoded)
    monkeypatch.setattr(Ledger, "commit", committed)
    return order


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_devices_work_while_a_round_is_written(
    world: MakeWorld, mode: dict[str, Any], said: list[str]
) -> None:
    w = await world(rounds=ROUNDS, mode=mode, calls_ahead=True)
    await deliver(w, range(1, ROUNDS + 1))
    await w.finish()
    calls = [[f"call {round}"] * 2 for round in range(1, ROUNDS + 1)]
    commits = [f"commit {round}" for round in range(1, ROUNDS + 1)]
    assert said == [
        *calls[0],
        *calls[1],
        commits[0],
        *calls[2],
        commits[1],
        *calls[3],
        *commits[2:],
    ]
    events = [(e["event"], e["round"]) for e in w.events if e["event"].startswith("round_")]
    assert events == [(e, r) for r in range(1, 5) for e in ("round_opened", "round_committed")]


async def test_where_a_target_may_end_the_run_a_round_is_written_before_the_next_is_called(
    world: MakeWorld, said: list[str]
) -> None:
    w = await world(rounds=2, calls_ahead=True, target={"loss": 0.1})
    await deliver(w, range(1, 3))
    await w.finish()
    assert said == ["call 1", "call 1", "commit 1", "call 2", "call 2", "commit 2"]


async def test_nothing_is_heard_of_a_round_before_the_one_before_is_durable(
    world: MakeWorld, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = await world(rounds=ROUNDS, calls_ahead=True)
    heard = w.coordinator.receiver.answered

    def answered(pack: ConnectedPack, answers: Sequence[tuple[Answer, Body]]) -> bool:
        said.extend(f"answer {answer.key.round}" for answer, _ in answers)
        return heard(pack, answers)

    monkeypatch.setattr(w.coordinator.receiver, "answered", answered)
    await deliver(w, range(1, ROUNDS + 1))
    await w.finish()
    for round in range(2, ROUNDS + 1):
        assert said.index(f"commit {round - 1}") < said.index(f"answer {round}")


@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_round_that_was_lost_while_it_was_written_is_run_again_and_the_next(
    world: MakeWorld,
    tmp_path: Path,
    mode: dict[str, Any],
    lost: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead = {"rounds": ROUNDS, "mode": mode, "calls_ahead": True}
    smooth = await world(**ahead, folder=folder(tmp_path / "smooth"))
    await deliver(smooth, range(1, ROUNDS + 1))
    expected = await model_of(smooth)

    commit, where = Ledger.commit, folder(tmp_path / "lost")

    def fails(self: Ledger, row: RoundRow, *args: Any) -> None:
        if row.round == lost:
            raise OSError("no space left on the device")
        commit(self, row, *args)

    monkeypatch.setattr(Ledger, "commit", fails)
    w = await world(**ahead, folder=where)
    peers = await w.both()
    for round in range(1, lost + 1):
        for peer, value in zip(peers, (1.0, 0.1), strict=True):
            call = await peer.called()
            await peer.send(peer.update(value * round, round, call.attempt))
    assert [(await peer.called()).round for peer in peers] == [lost + 1] * 2
    with pytest.raises(OSError, match="no space left"):
        await w.finish()

    monkeypatch.setattr(Ledger, "commit", commit)
    again = await world(**ahead, folder=where)
    await deliver(again, range(lost, ROUNDS + 1))
    assert await model_of(again) == expected
    assert len(again.outcomes()) == 2 * ROUNDS
    assert {outcome for _, outcome, _ in again.outcomes()} == {"folded"}


@pytest.mark.parametrize("calls_ahead", [False, True])
@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_the_model_is_the_same_whether_rounds_are_called_ahead(
    world: MakeWorld, mode: dict[str, Any], calls_ahead: bool
) -> None:
    w = await world(rounds=ROUNDS, mode=mode, calls_ahead=calls_ahead)
    await deliver(w, range(1, ROUNDS + 1))
    model = np.frombuffer((await model_of(w))[-16:], np.float32)
    np.testing.assert_allclose(model, np.full(4, (1 + 2 + 3 + 4) * 0.55), rtol=1e-6)


async def test_a_run_that_is_stopped_has_written_what_was_closed(world: MakeWorld) -> None:
    w = await world(rounds=ROUNDS, calls_ahead=True)
    await deliver(w, range(1, 3))
    await w.until("round_opened", round=3)
    w.coordinator.stop("stopped", "by a test")
    assert await w.finish() == ("stopped", "by a test")
    assert w.coordinator.committed.round == 2
    assert len(w.outcomes()) == 4


def folder(path: Path) -> Path:
    path.mkdir()
    return path
