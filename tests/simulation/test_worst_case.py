"""Worst cases of whole runs, in virtual time."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from muster.cli.commands import main
from muster.common.life_record import LifeRecord
from muster.emulator.run_audit.auditing import audit
from muster.laboratory.worst_case import finding
from muster.testing import worst_case

EXAMPLE = Path(__file__).parents[2] / "examples/unavailable.toml"
SHORT = ("server.rounds=20", "server.evaluate_every=20")


def worst(out: Path, *arguments: str, scenario: Path = EXAMPLE) -> Result:
    settings = [part for each in SHORT for part in ("--set", each)]
    always = ["--processes", "1", "--runs", "20", "--out", str(out)]
    return CliRunner().invoke(main, ["worst", str(scenario), *always, *settings, *arguments])


def test_a_search_finds_an_outage_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    command = "--budget", "0.2", "--set", "server.aggregator=fedavg", "--json"
    result = worst(out, *command)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["harm"] > found["random_max"]
    assert found["harm"] >= 0.9 * found["searched_harm"]
    assert found["worst"] == pytest.approx(found["without"] + found["harm"])
    assert found["struck"] <= found["limit"]
    assert found["words"].startswith("without ")
    assert audit(out / "worst").agrees
    assert (out / "worst.png").stat().st_size > 1000
    # The library has every schedule, so nothing is played again, with the same result.
    played = (out / "played.jsonl").read_bytes()
    assert len(played.splitlines()) == found["runs"]
    monkeypatch.chdir(tmp_path)  # as most people name a folder, beside another record
    (tmp_path / "life.csv.gz").write_bytes((out / "undisturbed.csv.gz").read_bytes())
    repeated = worst(Path("out"), *command)
    assert repeated.exit_code == 0, repeated.output
    assert json.loads(repeated.stdout) == found
    assert (out / "played.jsonl").read_bytes() == played
    other = worst(out, "--budget", "0.3")
    assert other.exit_code == 2
    assert "has the search for another scenario or with other options" in other.stderr


def test_a_test_can_ask_for_the_worst_case() -> None:
    found = worst_case(
        EXAMPLE, against="group:seldom", family="participation", runs=20, settings=SHORT
    )
    assert found.family == "participation"
    assert found.harm >= found.random_max or found.harm >= 0.9 * found.searched_harm


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "0.001"), "allows nothing to go wrong; expected at least"),
        (("--family", "moon"), "expected one of independent, groups"),
        (("--family", "late"), "expected a mode in which an update may count in a later round"),
        (
            ("--family", "classes"),
            "expected a task of classification whose devices differ",
        ),
        (("--against", "speed"), "expected accuracy, loss or group:NAME"),
        (("--against", "group:moon"), "expected a group of the scenario (often, seldom)"),
        (("--against", "accuracy"), "found no accuracy of its last version"),
        (
            ("--set", "clock.kind=wall", "--set", "server.deadline_s=5"),
            "whole runs are played in lockstep",
        ),
        (("--set", "server.aggregator=feduca"), "server.aggregator"),
    ],
)
def test_questions_without_an_answer_are_refused_before_anything_is_played(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("something was made or played")

    monkeypatch.setattr(finding, "simulate_run", never)
    monkeypatch.setattr(finding, "new_folder", never)
    result = worst(tmp_path / "out", *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_scenario_that_does_not_play_the_worst_schedule_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def undisturbed(record: LifeRecord, schedule: object) -> LifeRecord:
        return record

    monkeypatch.setattr(finding, "struck", undisturbed)
    refused = worst(tmp_path / "out", "--set", "server.aggregator=fedavg")
    assert refused.exit_code == 1
    assert "does not play the schedule that was found" in refused.stderr


@pytest.mark.parametrize("fault", ['do = "scaled", factor = -5.0', 'do = "replay"'])
def test_a_worst_case_keeps_the_faults_that_change_updates(tmp_path: Path, fault: str) -> None:
    struck = 'target = { group = "often" }, when = { round = 6 }'
    faults = f'faults=[{{ name = "bad", {fault}, {struck} }}]'
    result = worst(tmp_path / "out", "--set", "server.aggregator=fedavg", "--set", faults)
    assert result.exit_code == 0, result.output  # so the scenario played what the search measured
    played = tomllib.loads((tmp_path / "out/worst.toml").read_text())
    assert [each["name"] for each in played["faults"]] == ["bad"]
