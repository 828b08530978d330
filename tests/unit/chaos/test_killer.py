"""When the kills of a plan happen."""

from pathlib import Path
from typing import Any

from muster.chaos.killer import PlannedKill, ProcessKiller


def opened(round: int) -> dict[str, Any]:
    return {"event": "round_opened", "round": round}


OTHER = {"event": "attended"}


def test_a_kill_waits_for_its_round_and_then_for_its_lines(tmp_path: Path) -> None:
    killer = ProcessKiller(tmp_path, [PlannedKill("supervisor", 3, 2)], seed=0)
    lines = [opened(1), OTHER, OTHER, OTHER, opened(3), OTHER]
    assert not any(killer.happen(line) for line in lines)
    assert killer.happen(OTHER)
    assert (killer.left, killer.done) == ([], {"supervisor": 1})
    assert not killer.happen(OTHER)


def test_kills_happen_one_after_the_other(tmp_path: Path) -> None:
    kills = [PlannedKill("supervisor", 1, 0), PlannedKill("supervisor", 1, 1)]
    killer = ProcessKiller(tmp_path, kills, seed=0)
    assert [killer.happen(line) for line in (opened(2), OTHER, OTHER)] == [True, False, True]


def test_a_kill_without_a_victim_is_tried_again(tmp_path: Path) -> None:
    killer = ProcessKiller(tmp_path, [PlannedKill("server", 1, 0)], seed=0)
    assert not any(killer.happen(opened(round)) for round in (1, 2, 3))
    assert (len(killer.left), killer.done) == (1, {})


def test_after_the_end_of_the_run_nothing_is_killed(tmp_path: Path) -> None:
    killer = ProcessKiller(tmp_path, [PlannedKill("supervisor", 1, 0)], seed=0)
    assert not killer.happen({"event": "ended"})
    assert not killer.happen(opened(1))
