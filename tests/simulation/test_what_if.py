"""What-if: recorded runs, played with other settings and compared with their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.emulator.planning import plan
from muster.emulator.run_audit.auditing import audit
from muster.emulator.scenario.scenario import Scenario
from muster.laboratory.what_if import UNCHANGED, describe, numbers_of, what_if
from muster.simulation.whole_run import simulate_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Record = Callable[..., Path]


@pytest.fixture
def recorded(tmp_path: Path) -> Record:
    """Records a run in virtual time; the arguments are sections of its scenario."""

    def record(seed: int, **sections: Any) -> Path:
        values: dict[str, Any] = {
            "name": "recorded",
            "seed": seed,
            "task": {"name": "linear", "dimension": 3, "heterogeneity": 1.0},
            "training": {"learning_rate": 0.05, "local_steps": 2, "batch_size": 8},
            "server": {"rounds": 6, "deadline_s": 5.0, "aggregator": "fedavg"},
            "groups": [
                {"name": "quick", "count": 3, "device": {"examples_per_s": 1000}},
                {
                    "name": "away",
                    "count": 3,
                    "device": {"examples_per_s": 20},
                    "availability": {"kind": "bernoulli", "probability": 0.4},
                },
            ],
        }
        folder = tmp_path / f"seed{seed}"
        scenario = validate(Scenario, {**values, **sections}, "recorded")
        assert simulate_run(scenario, folder) == "completed"
        return folder

    return record


def test_without_a_change_the_model_is_the_same(recorded: Record, tmp_path: Path) -> None:
    found = what_if([recorded(3)], out=tmp_path / "out")
    assert found.same_model
    assert found.pairs["variant"].tolist() == [UNCHANGED]
    assert f"{UNCHANGED}: the same model as recorded in 1 of 1 runs" in describe(found)
    # So are its account, and the share of every group.
    runs = found.comparison.runs.set_index("variant")
    for measure in ("rounds", "accuracy", "loss", "participation_rate", "scenario_s"):
        values = runs[measure].tolist()
        assert values[0] == values[1] or measure == "accuracy", measure
    shares = found.represented.pivot_table(index="group", columns="variant", values="share")
    assert (shares["recorded"] == shares[UNCHANGED]).all()
    assert audit(tmp_path / "out" / f"{UNCHANGED}-seed3").agrees


def test_a_change_is_compared_with_the_same_arrivals(recorded: Record, tmp_path: Path) -> None:
    runs = [recorded(1), recorded(2)]
    vary = {"server.aggregator": ["fedavg", "fedadam", "mifa"]}
    found = what_if(runs, vary=vary, out=tmp_path / "out")
    same = found.pairs.groupby("variant")["same_model"].all()
    assert same.to_dict() == {
        "aggregator=fedavg": True,
        "aggregator=fedadam": False,
        "aggregator=mifa": False,
    }
    differences = found.comparison.differences.set_index(["variant", "measure"])
    assert differences.loc[("aggregator=fedavg", "loss"), "mean"] == 0.0
    assert differences.loc[("aggregator=mifa", "participation_rate"), "mean"] == 0.0
    assert differences.loc[("aggregator=mifa", "loss"), "mean"] != 0.0
    assert numbers_of(found)["same_model"] is False


def test_runs_that_cannot_be_played_are_refused(recorded: Record, tmp_path: Path) -> None:
    run = recorded(1)
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="different seeds, found seed 1"):
        what_if([run, run], out=out)
    with pytest.raises(ConfigError, match="is of another population"):
        what_if([run], settings=["groups.1.count=4"], out=out)
    with pytest.raises(ConfigError, match=r"server\.aggregator"):
        what_if([run], settings=["server.aggregator=feduca"], out=out)
    with pytest.raises(ConfigError, match="is not a run folder"):
        what_if([tmp_path / "none"], out=out)
    assert not out.exists()


def test_there_is_nothing_to_plan_of_a_record(recorded: Record, tmp_path: Path) -> None:
    what_if([recorded(1)], out=tmp_path / "out")
    with pytest.raises(ConfigError, match="muster life show"):
        plan(tmp_path / "out" / f"{UNCHANGED}-seed1" / "scenario.toml")
