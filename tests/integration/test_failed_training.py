"""Training that raises an error: the device gives up the round, with the reason, and lives on."""

import json
import re
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from muster.client.training.local import train as muster_train
from muster.client.training.together import train_together
from muster.client.training.trainer import Trained
from muster.common.config import validate
from muster.common.errors import ConfigError, RunFailed
from muster.emulator.records.account import Account
from muster.emulator.records.summary import describe, summarise
from muster.emulator.report.page import write_report
from muster.emulator.run_audit import audit
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.faults import KillAt
from muster.simulation.whole_run import simulate_run

ROUNDS = 4


def trains_badly(
    task: Any, module: Any, received: Any, examples: Any, settings: Any, *,
    how: str = "raises", always: bool = False, first: bool = False, rounds: Any = (2,),
    who: str = "dev-0001", **named: Any,
) -> Trained:  # fmt: skip
    """Train; but one device fails in some rounds, or all do in the first round, or in all."""
    trained = muster_train(task, module, received, examples, settings, **named)
    fails = named["round"] == 1 if first else named["client"].startswith(who)
    fails = fails and (first or named["round"] in rounds)
    if not always and not fails:
        return trained
    if how == "none":
        return None  # type: ignore[return-value]
    if how == "exits":
        sys.exit(3)
    if how == "long":
        raise ValueError("x" * 10_000)
    raise RuntimeError("CUDA out\nof memory")


def run(folder: Path, kills: Sequence[KillAt] = (), **more: Any) -> list[dict[str, Any]]:
    """Run a scenario in virtual time; return the events of its journal."""
    values: dict[str, Any] = {
        "name": "failing",
        "seed": 2,
        "task": {"name": "digits", "model": {"kind": "mlp", "hidden": [more.pop("hidden", 4)]}},
        "training": {"trainer": {"kind": f"{__name__}:trains_badly", **more.pop("trainer", {})}},
        "server": {"rounds": ROUNDS, "deadline_s": 30.0, **more.pop("server", {})},
        "groups": [{"name": "dev", "count": 4, **more.pop("group", {})}],
    }
    simulate_run(validate(Scenario, {**values, **more}, "test"), folder, kills)
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
        ("exits", "SystemExit: 3 "),
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


def called(folder: Path, client: str = "dev-0001") -> list[int]:
    """The rounds whose calls a device has answered."""
    return [r for (r,) in rows(folder, f"SELECT round FROM answers WHERE client = '{client}'")]


@pytest.mark.parametrize(
    ("fails_in", "answers"),
    [((1, 2), [1, 2]), ((1, 3), [1, 2, 3, 4])],
)
def test_a_device_is_left_out_after_errors_in_a_row(
    tmp_path: Path, fails_in: tuple[int, ...], answers: list[int]
) -> None:
    folder = tmp_path / "run"
    group = {"errors_in_a_row": 2}
    events = run(folder, trainer={"rounds": list(fails_in)}, group=group)
    assert called(folder) == answers
    assert called(folder, "dev-0000") == [1, 2, 3, 4]
    left_out = [(e["client"], e["round"], e["errors"]) for e in events if e["event"] == "left_out"]
    assert left_out == ([("dev-0001", answers[-1], 2)] if len(answers) < 4 else [])
    assert (result := audit(folder)).agrees, result.first
    report = write_report(folder).read_text()
    assert "Training that failed" in report
    assert ("Left out of later rounds: dev-0001" in report) == (len(answers) < 4)


AFTER = KillAt("server", "round_opened", 3)


def test_a_killed_server_leaves_out_the_same_devices(tmp_path: Path) -> None:
    models = []
    for name, kills in (("whole", []), ("killed", [KillAt("server", "received", 2), AFTER])):
        folder = tmp_path / name
        run(folder, kills, trainer={"rounds": [1, 2]}, group={"errors_in_a_row": 2})
        assert called(folder) == [1, 2]
        models.append((folder / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def test_the_summary_lists_who_raised_what(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(folder, trainer={"rounds": [2, 4]})
    with Account(folder) as account:
        summary = summarise(account)
    failed = summary["training_failed"]
    assert (failed["calls"], failed["devices"], failed["left_out"]) == (2, 1, [])
    (error,) = failed["errors"]
    assert error["error"].startswith("RuntimeError: CUDA out of memory (")
    assert (error["first_round"], error["last_round"], error["clients"]) == (2, 4, ["dev-0001"])
    assert "training failed in 2 calls of 1 device; RuntimeError: CUDA" in describe(summary, folder)


def test_an_error_ends_the_run_if_the_scenario_says_so(tmp_path: Path) -> None:
    why = r'round 2: training failed on dev-0001: RuntimeError: CUDA .* on_error = "fail"'
    with pytest.raises(RunFailed, match=why):
        run(tmp_path / "run", group={"on_error": "fail"})


def test_a_run_in_which_everybody_is_left_out_fails(tmp_path: Path) -> None:
    groups = [{"name": "dev", "count": 2, "errors_in_a_row": 1}]
    with pytest.raises(RunFailed, match="training failed on all 2 devices"):
        run(tmp_path / "first", trainer={"always": True}, groups=groups)
    trainer = {"rounds": [2], "who": "dev"}
    with pytest.raises(RunFailed, match="after round 2 every device is left out"):
        run(tmp_path / "later", trainer=trainer, groups=groups)


def test_a_limit_beside_fail_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"errors_in_a_row = 3 leaves a device out, but on_err"):
        run(tmp_path / "run", group={"on_error": "fail", "errors_in_a_row": 3})


def test_together_one_device_that_fails_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any, **named: Any) -> list[Trained]:
        if "dev-0001" in [job.client for job in given[3]]:
            raise IndexError("label 10 of 10")
        return train_together(*given, **named)

    group = {"devices_per_process": 4}
    monkeypatch.setattr("muster.client.calls.training_ahead.train_together", fails)
    events = run(tmp_path / "run", training={"together": 4}, group=group)
    failed = [event["client"] for event in events if event["event"] == "training_failed"]
    assert failed == ["dev-0001"] * ROUNDS
    folded = "SELECT count(*) FROM contributions WHERE outcome = 'folded'"
    assert rows(tmp_path / "run", folded) == [(3 * ROUNDS,)]
