"""The totals of a run: small worlds whose sums a person can check."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.emulator.records.account import Account
from muster.emulator.records.summary import (
    bytes_text,
    clean,
    describe,
    number_text,
    outline,
    percent_text,
    read_summary,
    seconds_text,
    summarise,
    write_summary,
)
from muster.emulator.report.sections import headline

if TYPE_CHECKING:
    from tests.unit.emulator.conftest import RunFolder


def summary_of(run: RunFolder, status: str | None = None) -> dict[str, Any]:
    with Account(run.commit()) as account:
        return summarise(account, status)


def learn(run: RunFolder) -> None:
    """Three rounds of two clients, 2 s and 2,000 bytes each way; the second round is empty."""
    run.clients("a", "b")
    run.evaluate(2.0, 0.1)
    run.round({"a": "folded", "b": "folded"})
    run.evaluate(1.0, 0.5, distance=0.25)
    run.round({"a": "late: deadline", "b": "dropped"})
    run.round({"a": "folded", "b": "refused: norm"})
    run.evaluate(0.5, 0.8, distance=0.125)


def test_totals_are_those_of_the_ledger(run: RunFolder) -> None:
    learn(run)
    run.end("completed", "3 rounds")
    (run.path / "model.safetensors").write_bytes(b"model")
    summary = summary_of(run)
    assert summary["status"] == "completed"
    assert (summary["rounds"], summary["empty_rounds"]) == (3, 1)
    assert (summary["bytes_up"], summary["bytes_down"]) == (6000, 6000)
    assert summary["seconds"] == 6.0
    assert summary["updates_folded"] == 3
    assert summary["model_sha256"] == hashlib.sha256(b"model").hexdigest()


def test_participation_is_folded_updates_over_enrolled_clients_times_rounds(run: RunFolder) -> None:
    run.clients("a", "b")
    run.clients("never", enrolled=False)
    run.round({"a": "folded"}, declined={"b": "offline"})
    run.round({"a": "folded", "b": "folded"})
    summary = summary_of(run)
    assert summary["participation_rate"] == 3 / (2 * 2)
    assert (summary["enrolled"], summary["population"]) == (2, 3)


def test_every_outcome_is_counted_also_of_a_round_that_was_never_committed(run: RunFolder) -> None:
    learn(run)
    run.contribute("a", "refused: norm", round=4)
    outcomes = {"folded": 3, "late": 1, "dropped": 1, "refused": 2, "duplicate": 0}
    assert summary_of(run)["outcomes"] == outcomes


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [
        (
            (2.35, 0.1),
            (1.8e11, 0.11),
            "loss 2.35, now 1.8e+11; accuracy 0.1, now 0.11",
        ),
        ((2.0,), (4.1,), "loss 2, now 4.1"),
        ((2.0,), (math.inf,), "loss 2, now not finite"),
        ((0.3, 0.9), (0.4, 0.4), "loss 0.3, now 0.4; accuracy 0.9, now 0.4"),
        ((2.0,), (3.9,), ""),
        ((0.2, 0.5), (0.6, 0.8), ""),  # too sure of itself, but more often right
        ((0.3, 0.1), (0.3, 0.04), ""),  # guessing
    ],
)
def test_a_model_that_ends_far_worse_than_it_began_is_told_of(
    run: RunFolder, first: tuple[float, ...], last: tuple[float, ...], told: str
) -> None:
    run.clients("a")
    run.evaluate(*first)
    run.round({"a": "folded"})
    run.evaluate(*last)
    run.end("completed", "1 round")
    summary = summary_of(run)
    text = f"the model is far worse than the initial one: {told}" if told else ""
    assert ("worse" in summary) == bool(told)
    assert text in describe(summary, run.path)
    with Account(run.path) as account:
        assert (f"Warning: {text}." in headline(account, summary).text) == bool(told)


def test_final_is_the_newest_evaluation_with_its_metrics(run: RunFolder) -> None:
    learn(run)
    final = {"round": 3, "version": 2, "loss": 0.5, "accuracy": 0.8, "distance": 0.125}
    assert summary_of(run)["final"] == final


def test_accuracy_is_left_out_where_the_task_has_none(run: RunFolder) -> None:
    run.evaluate(2.0)
    assert summary_of(run)["final"] == {"round": 0, "version": 0, "loss": 2.0}


def test_final_has_groups_and_the_spread_over_devices_where_they_were_measured(
    run: RunFolder,
) -> None:
    run.evaluate(2.0, 0.1)
    run.measure({"old": (9, 2.0, 0.1)}, {"old": (9, 2.0, 0.1)})
    run.round({"a": "folded"})
    run.evaluate(1.0, 0.5)
    devices = {f"d{i}": (1, 1.0, i / 10) for i in range(11)}
    run.measure({"phones": (30, 1.5, 0.25), "tablets": (10, 0.5, 1.0)}, devices)
    final = summary_of(run)["final"]
    assert final["groups"] == {
        "phones": {"examples": 30, "loss": 1.5, "accuracy": 0.25},
        "tablets": {"examples": 10, "loss": 0.5, "accuracy": 1.0},
    }
    assert final["devices"] == pytest.approx(
        {"measured": 11, "of": "accuracy", "min": 0, "p10": 0.1, "median": 0.5, "p90": 0.9,
         "max": 1}
    )  # fmt: skip
    lines = describe(summary_of(run), run.path).splitlines()
    assert "  groups         phones 25.0 %, tablets 100.0 %" in lines
    assert "  devices        accuracy 0.0 % to 100.0 %, median 50.0 %" in lines


def test_devices_differ_by_loss_where_there_is_no_accuracy(run: RunFolder) -> None:
    run.evaluate(2.0)
    run.measure({"g": (2, None, None)}, {"a": (1, 1.0, None), "b": (1, None, None)})
    summary = summary_of(run)
    assert summary["final"]["groups"] == {"g": {"examples": 2, "loss": None}}
    devices = summary["final"]["devices"]
    assert (devices["of"], devices["min"], devices["max"]) == ("loss", 1.0, None)
    write_summary(run.path, summary)


def test_what_was_not_measured_is_not_in_the_summary(run: RunFolder) -> None:
    learn(run)
    assert not {"groups", "devices"} & summary_of(run)["final"].keys()


def test_a_run_without_rounds_or_evaluations_has_a_summary(run: RunFolder) -> None:
    summary = summary_of(run)
    assert summary["status"] == "unfinished"
    assert summary["final"] == {"loss": None}
    assert summary["participation_rate"] is None
    assert summary["fingerprint"] is None
    assert summary["model_sha256"] is None
    assert "target" not in summary


def test_the_ledger_knows_the_status_better_than_the_caller(run: RunFolder) -> None:
    assert summary_of(run, "failed")["status"] == "failed"
    run.end("diverged", "a sum left its range")
    assert summary_of(run, "failed")["status"] == "diverged"


@pytest.mark.parametrize(
    ("wanted", "reached"),
    [
        ("accuracy = 0.5", {"rounds": 1, "seconds": 2.0, "bytes": 4000}),
        ("accuracy = 0.5\nloss = 0.5", {"rounds": 3, "seconds": 6.0, "bytes": 12000}),
        ("loss = 5.0", {"rounds": 0, "seconds": 0.0, "bytes": 0}),
        ("loss = 0.1", {"rounds": None, "seconds": None, "bytes": None}),
    ],
    ids=["accuracy", "accuracy and loss", "before the first round", "never"],
)
def test_a_target_says_what_it_took_to_reach_it(
    run: RunFolder, wanted: str, reached: dict[str, Any]
) -> None:
    run.scenario(f"[server]\nrounds = 3\n[server.target]\n{wanted}")
    learn(run)
    target = summary_of(run)["target"]
    assert {key: target[key] for key in reached} == reached
    assert target["reached"] is (reached["rounds"] is not None)


def test_the_fingerprint_is_one_when_all_clients_share_it_and_a_list_otherwise(
    run: RunFolder,
) -> None:
    run.clients("a", "b", fingerprint='{"threads": 1}')
    run.clients("away", enrolled=False)
    run.clients("odd", fingerprint="{}")
    assert summary_of(run)["fingerprint"] == {"threads": 1}
    run.clients("c", fingerprint='{"threads": 2}')
    assert summary_of(run)["fingerprint"] == [{"threads": 1}, {"threads": 2}]


def test_what_is_not_finite_becomes_null_in_the_file(run: RunFolder) -> None:
    run.evaluate(float("inf"), 0.1, distance=float("inf"))
    summary = summary_of(run)
    assert read_summary(write_summary(run.path, summary).parent) == summary
    assert summary["final"]["loss"] is summary["final"]["distance"] is None


def test_a_missing_or_broken_summary_reads_as_empty(tmp_path: Path) -> None:
    assert read_summary(tmp_path) == {}
    (tmp_path / "summary.json").write_text("{")
    assert read_summary(tmp_path) == {}


def test_the_outline_reads_no_model(run: RunFolder) -> None:
    (run.path / "model.safetensors").write_bytes(b"model")
    with Account(run.commit()) as account:
        assert outline(account)["model_sha256"] is None


def test_a_summary_is_json_with_the_agreed_keys(run: RunFolder) -> None:
    learn(run)
    written = json.loads(write_summary(run.path, summary_of(run)).read_text())
    assert written.keys() >= {
        "status", "rounds", "final", "participation_rate", "updates_folded", "bytes_up",
        "bytes_down", "seconds", "model_sha256", "fingerprint",
    }  # fmt: skip


def test_the_end_of_a_run_is_told_in_plain_lines_with_the_files_that_exist(run: RunFolder) -> None:
    run.scenario('name = "small"\n[server.target]\naccuracy = 0.5')
    learn(run)
    run.end("stopped", "asked by\x1b[31m a signal")
    write_summary(run.path, summary_of(run))
    lines = describe(summary_of(run), run.path).splitlines()
    assert [line.split() for line in lines] == [
        ["small"],
        ["status", "stopped:", "asked", "by?[31m", "a", "signal"],
        ["rounds", "3", "in", "6", "s,", "1", "of", "them", "empty"],
        ["loss", "0.5"],
        ["accuracy", "80.0", "%"],
        ["metrics", "distance", "0.125"],
        ["target", *"accuracy 50.0 % reached in round 1, after 2 s and 3.9 KiB".split()],
        ["participation", *"50.0 % of 2 enrolled devices × 3 rounds".split()],
        ["updates", *"3 folded, 1 late, 1 dropped, 1 refused".split()],
        ["traffic", *"5.9 KiB up, 5.9 KiB down".split()],
        [],
        ["summary", str(run.path / "summary.json")],
        ["ledger", str(run.path / "ledger.sqlite")],
    ]


def test_a_run_in_lockstep_tells_scenario_time_and_labels_the_seconds_of_this_machine(
    run: RunFolder,
) -> None:
    run.scenario('[clock]\nkind = "rounds"\n[server.target]\naccuracy = 0.5')
    run.clients("a")
    run.evaluate(2.0, 0.1)
    for opens_s, next_s, accuracy in ((0.0, 90.0, 0.2), (90.0, 150.0, 0.5), (150.0, 210.0, 0.6)):
        run.round({"a": "folded"}, times=(opens_s, next_s))
        run.evaluate(1.0, accuracy)
    summary = summary_of(run)
    assert (summary["scenario_s"], summary["target"]["scenario_s"]) == (210.0, 150.0)
    told = [line.split() for line in describe(summary, run.path).splitlines()]
    assert ["rounds", *"3 in 3 min 30 s of scenario time (6 s on this machine)".split()] in told
    reached = "reached in round 2, after 2 min 30 s of scenario time and 3.9 KiB"
    assert ["target", *f"accuracy 50.0 % {reached}".split()] in told


def test_scenario_time_runs_as_fast_as_the_scaled_clock(run: RunFolder) -> None:
    run.scenario('[clock]\nkind = "scaled"\nscale = 60.0')
    learn(run)
    summary = summary_of(run)
    assert (summary["seconds"], summary["scenario_s"]) == (6.0, 360.0)


def test_a_ledger_without_the_openings_of_rounds_has_no_scenario_time(run: RunFolder) -> None:
    run.scenario('[clock]\nkind = "rounds"')
    learn(run)
    summary = summary_of(run)
    assert summary["scenario_s"] is None
    assert "6 s" in describe(summary, run.path)


def test_quantities_are_written_for_people() -> None:
    assert [bytes_text(n) for n in (0, 1023, 1536, 5 * 2**30, 2**51)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "2048.0 TiB",
    ]  # fmt: skip
    assert [seconds_text(s) for s in (0, 0.0004, 0.085, 0.25, 2, 12.34, 125, 12000)] == [
        "0 s", "<1 ms", "85 ms", "0.25 s", "2 s", "12.3 s", "2 min 05 s", "3 h 20 min",
    ]  # fmt: skip
    assert [percent_text(p) for p in (0.934, 0, None, float("nan"))] == [
        "93.4 %",
        "0.0 %",
        "–",
        "–",
    ]
    assert [number_text(x) for x in (2.30258, 1e-7, None, float("nan"))] == [
        "2.303", "1e-07", "–", "–",
    ]  # fmt: skip


def test_control_characters_are_taken_out_of_names() -> None:
    assert clean("a\x1b[2J\n\u202eb") == "a?[2J??b"
