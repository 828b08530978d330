"""Faults by hand as tables of a scenario."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.integration.faults.playing import scenario

from muster.common.errors import ConfigError
from muster.emulator.export.faults import exported_faults


def written(folder: Path, *lines: dict[str, Any], **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "scenario.toml").write_text(scenario(**more).to_toml())
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / "journal.jsonl").write_text(text)
    return folder


def course(
    name: str,
    table: dict[str, Any],
    begun: float,
    ended: float,
    lasts: bool = True,
    with_run: bool = False,
) -> list[dict[str, Any]]:
    shared = {"fault": name, "targets": ["dev-0001"], "round": 7, "scenario_s": 400.0}
    found = [
        {"event": "fault_injected", "table": table, "lasts": lasts, **shared, "round": 6},
        {"event": "fault_planned", **shared},
        {"event": "fault_applied", "at": begun, **shared},
    ]
    healed = {"event": "fault_healed", "at": ended, "with_run": with_run, **shared, "round": 9}
    return [*found, healed]


def tables(folder: Path) -> list[dict[str, Any]]:
    return list(tomllib.loads(exported_faults(folder))["faults"])


PAUSE = {"do": "pause", "target": {"count": 1}}
OVER = {"event": "ended", "at": 200.0, "status": "completed"}


def test_in_lockstep_rounds_and_wall_seconds_are_written_and_drawn_devices_named(
    tmp_path: Path,
) -> None:
    restart = {"do": "restart", "target": {"role": "server"}}
    lines = [*course("a", PAUSE, 10.0, 12.5), *course("b", restart, 20.0, 20.1, lasts=False)]
    assert tables(written(tmp_path / "run", *lines, OVER)) == [
        {
            "do": "pause",
            "name": "a",
            "target": {"names": ["dev-0001"]},
            "when": {"round": 7},
            "for_s": 2.5,
        },
        {"do": "restart", "name": "b", "target": {"role": "server"}, "when": {"round": 7}},
    ]


def test_on_a_scaled_clock_scenario_times_are_written(tmp_path: Path) -> None:
    lines = [*course("a", PAUSE, 10.0, 12.5), *course("b", PAUSE, 50.0, 200.1, with_run=True)]
    clock = {"kind": "scaled", "scale": 10.0}
    server = {"rounds": 6, "deadline_s": 60.0}
    first, second = tables(written(tmp_path / "run", *lines, clock=clock, server=server))
    assert (first["when"], first["for_s"]) == ({"at_s": 400.0}, 25.0)
    assert "for_s" not in second  # the end of the run healed it


def test_a_run_without_faults_by_hand_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no fault was injected by hand"):
        exported_faults(written(tmp_path / "run", OVER))
