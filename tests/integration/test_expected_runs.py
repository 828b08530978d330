"""Whole runs with expectations, judged from their folders."""

from pathlib import Path
from typing import Any

from muster.common.config import validate
from muster.emulator.records.summary import read_summary
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.whole_run import simulate_run


def judged(folder: Path, *expect: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    scenario = validate(
        Scenario,
        {
            "name": "expected",
            "seed": 5,
            "clock": {"round_s": 4.0},
            "task": {"name": "logistic", "dimension": 5},
            "training": {"learning_rate": 0.5, "local_steps": 3, "batch_size": 8},
            "server": {"rounds": 6, "deadline_s": 3.0, "evaluate_groups": True},
            "groups": [
                {"name": "phones", "count": 3, "device": {"examples_per_s": 100}},
                {"name": "slow", "count": 2, "device": {"examples_per_s": 1}},
            ],
            "expect": list(expect),
            **more,
        },
        "test",
    )
    assert simulate_run(scenario, folder) == "completed"
    found = read_summary(folder)["expectations"]
    assert isinstance(found, list)
    return found


def test_a_run_is_judged_by_what_its_devices_did(tmp_path: Path) -> None:
    # The slow devices need 24 s for their 24 examples and have 3.
    learns, in_time, fair, late, kept = judged(
        tmp_path / "run",
        {"that": "rounds_until(accuracy > 0.6) <= 6", "always": True},
        {"that": "participation == 3 / 5", "always": True},
        {"that": 'share("slow") > 0', "always": True},
        {"that": 'total(late) == 2 * total(folded("phones")) / 3', "always": True},
        {"that": 'loss("phones") < 0.69', "always": True},
    )
    assert learns["holds"]
    assert (in_time["holds"], in_time["judged"]) == (True, 6)
    assert (fair["holds"], fair["round"], fair["failed"]) == (False, 1, 6)
    assert fair["values"] == {'share("slow")': 0.0}
    assert late["values"] == {"total(late)": 12.0, 'total(folded("phones"))': 18.0}
    assert kept["judged"] == 6


def test_what_holds_after_a_fault_is_judged_in_the_rounds_after_it(tmp_path: Path) -> None:
    away = {"do": "offline", "name": "away", "target": {"names": ["phones-0001"]},
            "when": {"round": 2}, "for_rounds": 2}  # fmt: skip
    gone = {**away, "name": "gone", "when": {"round": 6}, "target": {"names": ["phones-0002"]}}
    del gone["for_rounds"]
    during, after, within, at_end = judged(
        tmp_path / "run",
        {"that": "folded == 2", "during": "away"},
        {"that": "folded >= 2", "after": "away"},
        {"that": "folded == before", "within": {"rounds": 1, "fault": "away"}},
        {"that": "folded == 2", "during": "gone"},
        faults=[away, gone],
    )
    assert (during["holds"], during["judged"]) == (True, 2)
    assert (after["holds"], after["judged"], after["round"]) == (True, 3, 6)
    assert (within["holds"], within["round"]) == (True, 4)
    assert (at_end["holds"], at_end["judged"]) == (True, 1)
