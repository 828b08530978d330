"""Whether a run may go on with another number of rounds than it began with."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.records.inputs import scenario_digest
from muster.emulator.runs.more_rounds import require_rounds, write_rounds
from muster.emulator.scenario.scenario import Scenario


def folder_of(folder: Path, began: int = 10, now: int = 60, **more: Any) -> tuple[Path, Scenario]:
    """The folder of a run that began with some rounds, and its scenario of today."""
    server = {"rounds": now, **more.pop("server", {})}
    values: dict[str, Any] = {
        "name": "longer",
        "seed": 1,
        "task": "digits",
        "server": server,
        "groups": [{"name": "dev", "count": 2}],
    }
    scenario = validate(Scenario, {**values, **more}, "test")
    (folder / "setup").mkdir()
    (folder / "setup" / "server.json").write_text(json.dumps({"server": {"rounds": began}}))
    (folder / "scenario.toml").write_text(scenario.to_toml())
    return folder, scenario


FAULT = {"do": "offline", "when": {"round": 2}, "for_rounds": 1, "target": {"count": 1}}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"server": {"mode": "opportunistic", "deadline_s": 9.0}}, "drops the updates that were"),
        ({"faults": [FAULT]}, "from which the times of its faults follow"),
        (
            {"server": {"aggregator": "oracle-ipw"}},
            "over which the true values of oracle-ipw are means",
        ),
    ],
)
def test_other_rounds_are_refused_where_their_number_decides_earlier_ones(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=f"rounds = 60, but the run began with 10.* {why}"):
        require_rounds(*folder_of(tmp_path, **more))


def test_the_same_rounds_are_always_allowed(tmp_path: Path) -> None:
    require_rounds(*folder_of(tmp_path, now=10, faults=[FAULT]))


@pytest.mark.parametrize("now", [60, 5])
def test_other_rounds_are_allowed_where_they_decide_nothing(tmp_path: Path, now: int) -> None:
    require_rounds(*folder_of(tmp_path, now=now, server={"aggregator": "fedadam"}))


def test_a_run_that_never_began_may_have_any(tmp_path: Path) -> None:
    folder, scenario = folder_of(tmp_path, faults=[FAULT])
    (folder / "setup" / "server.json").unlink()
    require_rounds(folder, scenario)


def test_the_hash_stays_that_with_which_the_run_began(tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path, now=10)
    before = scenario_digest(folder)
    for rounds in (90, 120, 10):
        write_rounds(folder, rounds)
        assert f"rounds = {rounds}" in (folder / "scenario.toml").read_text()
        assert scenario_digest(folder) == before


def test_an_interrupted_change_leaves_the_scenario_of_before(tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path, now=10)
    before = scenario_digest(folder)
    for rounds in (90, 120):
        text = (folder / "scenario.toml").read_text()
        write_rounds(folder, rounds)
        (folder / "scenario.toml").write_text(text)
        assert scenario_digest(folder) == before
        write_rounds(folder, rounds)


def test_rounds_that_somebody_edits_are_noticed(tmp_path: Path) -> None:
    folder, _ = folder_of(tmp_path, now=10)
    before = scenario_digest(folder)
    write_rounds(folder, 90)
    scenario = folder / "scenario.toml"
    scenario.write_text(scenario.read_text().replace("rounds = 90", "rounds = 91"))
    assert scenario_digest(folder) != before
