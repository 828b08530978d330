"""`watch`: the events of a run whose server ends while they are sent."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.emulator.test_progress import committed, waiting

from muster.common.errors import Unreachable
from muster.emulator.following.following import status_of, watch
from muster.emulator.run_folder import control
from muster.v1 import operator_pb2 as pb


def event(name: str, number: int, role: str = "server", **more: Any) -> dict[str, Any]:
    return {"event": name, "role": role, "at": number, **more}


STARTED = event("phase", 1)
COMMITTED = event("phase", 2)
DIED = event("died", 3, role="supervisor", process="dev-0001", status="signal 9")
ENDED = event("ended", 4, status="stopped", detail="", bytes_up=0, bytes_down=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scenario.toml").touch()
    return tmp_path


def write(folder: Path, *events: dict[str, Any]) -> None:
    with open(folder / "journal.jsonl", "a") as journal:
        journal.writelines(json.dumps(each) + "\n" for each in events)


def sends(monkeypatch: pytest.MonkeyPatch, lines: Callable[[], Iterator[dict[str, Any]]]) -> None:
    """Let the server of the run send what `lines` yields."""

    @contextmanager
    def watching(_: Path) -> Iterator[Iterator[str]]:
        yield map(json.dumps, lines())

    monkeypatch.setattr(control, "watching", watching)


@pytest.mark.parametrize("sent", [[], [COMMITTED], [COMMITTED, ENDED]])
def test_the_events_that_the_server_could_not_send_any_more_are_those_of_the_journal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sent: list[dict[str, Any]]
) -> None:
    def lines() -> Iterator[dict[str, Any]]:
        yield from sent
        write(folder, COMMITTED, DIED, ENDED)
        raise Unreachable("gone")

    write(folder, STARTED)
    sends(monkeypatch, lines)
    seen = list(watch(folder))
    assert [each for each in seen if each["role"] == "server"] == [STARTED, COMMITTED, ENDED]
    assert seen.count(DIED) == 1


def test_a_server_that_is_gone_before_the_run_has_ended_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines() -> Iterator[dict[str, Any]]:
        yield COMMITTED
        raise Unreachable("gone")

    write(folder, STARTED)
    sends(monkeypatch, lines)
    with pytest.raises(Unreachable, match="gone"):
        list(watch(folder))


APPLIED = {**event("fault_applied", 5, fault="partition-1", targets=["town-0001"]), "number": 1}


@pytest.mark.parametrize(
    ("events", "advice"),
    [
        ([], "`muster revoke {} town-0001` lets the run go on without it"),
        ([APPLIED], "`muster heal {}` ends the faults that act"),
    ],
    ids=["no fault", "a fault"],
)
def test_the_status_of_a_round_that_waits_says_for_whom_and_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch, events: list[dict[str, Any]], advice: str
) -> None:
    reply = pb.StatusReply(run="r", round=9, rounds=30, phase="collecting", called=3)
    monkeypatch.setattr(control, "server_status", lambda _: reply)
    write(folder, committed(8), *events, waiting("town-0001", number=1))
    told = status_of(folder)
    (line,) = (each for each in told.lines if "waits" in each)
    assert line.startswith("round 9 waits for town-0001: ")
    assert line.endswith(advice.format(folder))
    assert told.waits_for == ["town-0001"]
    write(folder, committed(9))
    told = status_of(folder)
    assert told.waits_for == []
    assert not [each for each in told.lines if "waits" in each]
