"""Training that raises an error: the device gives up the round, with the reason, and lives on."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from muster.client.training.local import train as muster_train
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.common.errors import RunFailed
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run

ROUNDS = 4


def trains_badly(
    task: Any, module: Any, received: Any, examples: Any, settings: Any, *,
    how: str = "raises", always: bool = False, first: bool = False, **named: Any,
) -> Trained:  # fmt: skip
    """Train; but one device fails in one round, or all do in the first round, or in all."""
    trained = muster_train(task, module, received, examples, settings, **named)
    fails = named["round"] == 1 if first else (named["client"], named["round"]) == ("dev-0001", 2)
    if not always and not fails:
        return trained
    if how == "none":
        return None  # type: ignore[return-value]
    if how == "long":
        raise ValueError("x" * 10_000)
    raise RuntimeError("CUDA out\nof memory")


def run(folder: Path, **more: Any) -> list[dict[str, Any]]:
    """Run a scenario in virtual time; return the events of its journal."""
    values: dict[str, Any] = {
        "name": "failing",
        "seed": 2,
        "task": {"name": "digits", "model": {"kind": "mlp", "hidden": [more.pop("hidden", 4)]}},
        "training": {"trainer": {"kind": f"{__name__}:trains_badly", **more.pop("trainer", {})}},
        "server": {"rounds": ROUNDS, "deadline_s": 30.0, **more.pop("server", {})},
        "groups": [{"name": "dev", "count": 4, **more.pop("group", {})}],
    }
    simulate_run(validate(Scenario, {**values, **more}, "test"), folder)
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as ledger:
        return ledger.execute(query).fetchall()


CASES: dict[str, dict[str, Any]] = {
    "in messages": {},
    "in bulk": {"hidden": 400},
    "partial sums": {"group": {"devices_per_process": 4, "partial_sums": True}},
    "buffered": {"server": {"mode": {"kind": "buffered", "k": 2, "concurrency": 4}}},
}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())
def test_a_device_whose_training_fails_gives_up_the_round(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    events = run(tmp_path / "run", **values)
    (failed,) = [event for event in events if event["event"] == "training_failed"]
    assert (failed["round"], failed["client"]) == (2, "dev-0001")
    assert failed["error"].startswith(f"RuntimeError: CUDA out of memory ({__file__}, line ")
    told = [e for e in events if e["event"] == "answered" and e["decision"] == "abort"]
    assert [(e["round"], e["client"], e["reason"]) for e in told] == [
        (2, "dev-0001", "training failed")
    ]
    lost = "SELECT outcome, reason FROM contributions WHERE client = 'dev-0001' AND round = 2"
    assert rows(tmp_path / "run", lost) == [("dropped", "training failed")]
    later = "SELECT max(round) FROM contributions WHERE client = 'dev-0001' AND outcome = 'folded'"
    assert rows(tmp_path / "run", later)[0][0] > 2
    assert not any(event["event"] == "died" for event in events)
    assert [e["status"] for e in events if e["event"] == "ended"] == ["completed"]
    result = audit(tmp_path / "run")
    assert result.agrees, result.first


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("none", "training.trainer: .* returned None, expected a Trained"),
        ("long", "ValueError: x{488}$"),
    ],
)
def test_the_reason_is_a_short_line(tmp_path: Path, how: str, error: str) -> None:
    events = run(tmp_path / "run", trainer={"how": how})
    (failed,) = [event for event in events if event["event"] == "training_failed"]
    assert len(failed["error"]) <= 500
    assert re.match(error, failed["error"])


def test_a_run_in_which_nobody_can_train_fails(tmp_path: Path) -> None:
    with pytest.raises(
        RunFailed, match=r"training failed on all 4 devices.* dev-0000: RuntimeError"
    ):
        run(tmp_path / "run", trainer={"always": True})


ONE = {"selection": {"kind": "uniform", "k": 1}}


def test_one_device_that_says_that_it_cannot_train_does_not_end_the_run(tmp_path: Path) -> None:
    events = run(tmp_path / "run", trainer={"first": True}, server=ONE)
    assert [e["status"] for e in events if e["event"] == "ended"] == ["completed"]


def test_a_second_device_that_cannot_train_ends_it(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"round [23]: training failed on all 1 devices that were"):
        run(tmp_path / "run", trainer={"always": True}, server=ONE)


def test_an_only_device_that_cannot_train_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="round 1: training failed"):
        run(tmp_path / "run", trainer={"always": True}, groups=[{"name": "dev", "count": 1}])
