"""What-if: recorded runs, played with other settings and compared with their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from muster.cli.commands import main
from muster.common.config import validate
from muster.common.errors import ConfigError, LedgerError
from muster.emulator.planning import plan
from muster.emulator.records.inputs import Change
from muster.emulator.records.manifest import intact_folder
from muster.emulator.run_audit.auditing import audit
from muster.emulator.scenario.scenario import Scenario
from muster.laboratory import replay
from muster.laboratory.grades import GRADES
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


def test_faults_that_the_record_replaces_take_what_is_expected_of_them_with_them(
    recorded: Record, tmp_path: Path
) -> None:
    struck: dict[str, Any] = {
        "target": {"names": ["quick-0001"]},
        "when": {"round": 2},
        "for_rounds": 2,
    }
    faults = [{"do": "offline", "name": "away", **struck}, {"do": "nan", "name": "odd", **struck}]
    places: list[dict[str, Any]] = [
        {"after": "away"}, {"during": "odd"}, {"always": True}, {"within": {"rounds": 2}}
    ]  # fmt: skip
    expect = [{"that": "folded >= 1", **place} for place in places]
    run = recorded(3, faults=faults, expect=expect)
    assert what_if([run], out=tmp_path / "out").same_model


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


@pytest.mark.parametrize("grade", GRADES)
def test_no_grade_plays_another_seed(recorded: Record, grade: str) -> None:
    with pytest.raises(ConfigError, match=r"seed: every grade keeps .*expected 3, found 9"):
        what_if([recorded(3)], grade=grade, settings=["seed=9"])


def test_runs_of_different_scenarios_are_refused(recorded: Record) -> None:
    runs = [recorded(3), recorded(4, training={"local_steps": 3})]
    with pytest.raises(ConfigError, match="seed4 has other settings of training than"):
        what_if(runs)


def test_another_number_of_devices_can_be_simulated_again(recorded: Record, tmp_path: Path) -> None:
    run, more = recorded(3), ["groups.0.count=4"]
    with pytest.raises(ConfigError, match=r"or play it with .*--grade resimulated"):
        what_if([run], settings=more)
    found = what_if([run], settings=more, grade="resimulated", out=tmp_path / "out")
    assert not found.same_model


def test_code_that_has_changed_since_the_run_is_named(
    recorded: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded(3)
    code = Change("module", "my_rules.py", "old", "new")
    monkeypatch.setattr(replay, "changes", lambda *_: iter([code]))
    assert replay.changed_code(run) == ["my_rules.py"]
    found = what_if([run], settings=["training.learning_rate=0.1"], out=tmp_path / "out")
    assert numbers_of(found)["changed_code"] == ["my_rules.py"]
    assert "my_rules.py has changed since the run was recorded" in describe(found)


@pytest.mark.parametrize("command", ["status", "report", "audit", "what-if"])
def test_a_run_without_its_ledger_is_refused(recorded: Record, command: str) -> None:
    run = recorded(3)
    (run / "ledger.sqlite").unlink()
    refused = CliRunner().invoke(main, [command, str(run)])
    assert refused.exit_code == 2
    assert "expected the ledger of a run, found no such file" in refused.output
    with pytest.raises(LedgerError):  # as all other readers do
        intact_folder(run)


def test_data_that_have_changed_since_the_run_are_refused(recorded: Record, tmp_path: Path) -> None:
    def write(shift: float) -> None:
        random = np.random.default_rng(1)
        x, y = random.normal(size=(60, 3)).astype(np.float32) + shift, np.arange(60) % 3
        np.savez(tmp_path / "mine.npz", x=x, y=y)

    write(0.0)
    source = {"kind": "npz", "path": str(tmp_path / "mine.npz")}
    run = recorded(3, task={"name": "own", "source": source, "model": "softmax"})
    assert what_if([run], out=tmp_path / "same").same_model
    write(1.0)
    with pytest.raises(ConfigError, match=r"mine\.npz, a file that .* has changed"):
        what_if([run], out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_there_is_nothing_to_plan_of_a_record(recorded: Record, tmp_path: Path) -> None:
    what_if([recorded(1)], out=tmp_path / "out")
    with pytest.raises(ConfigError, match="muster life show"):
        plan(tmp_path / "out" / f"{UNCHANGED}-seed1" / "scenario.toml")


@pytest.mark.parametrize(
    "server",
    [
        {"deadline_s": 5.0},
        {"deadline_s": 5.0, "goal": 3},
        {"mode": {"kind": "opportunistic"}},
        {"mode": {"kind": "buffered", "k": 2, "concurrency": 3}},
        {"selection": {"kind": "uniform", "k": 4}, "goal": 2},
    ],
    ids=["deadline", "goal", "opportunistic", "buffered", "selection"],
)
def test_the_server_decides_the_same_from_recorded_answers(
    recorded: Record, tmp_path: Path, server: dict[str, Any]
) -> None:
    server = {"rounds": 6, "aggregator": "fedavg", **server}
    run = recorded(5, server=server)
    for grade in ("life", "resimulated"):
        found = what_if([run], grade=grade, out=tmp_path / grade)
        assert found.same_model, grade
        assert not found.unknown
        assert audit(tmp_path / grade / f"{UNCHANGED}-seed5").agrees


def test_another_deadline_mode_or_selection_needs_a_lower_grade(
    recorded: Record, tmp_path: Path
) -> None:
    run = recorded(4)
    changes = ["server.deadline_s=0.1", "server.mode=opportunistic", "server.goal=2"]
    for change in changes:
        with pytest.raises(ConfigError, match="would have no effect; use --grade life"):
            what_if([run], settings=[change], out=tmp_path / "out")
    faster = "groups.1.device.examples_per_s=2000"
    with pytest.raises(ConfigError, match="use --grade resimulated"):
        what_if([run], settings=[faster], grade="life", out=tmp_path / "out")
    with pytest.raises(ConfigError, match="expected arrivals, life, resimulated, found exact"):
        what_if([run], grade="exact", out=tmp_path / "out")

    # Nobody of the slow group meets so short a deadline, whatever decides their durations.
    found = what_if(
        [run], grade="life", vary={"server.deadline_s": [0.1, 5.0]}, out=tmp_path / "life"
    )
    shares = found.represented.set_index(["variant", "group"])["share"]
    assert shares["deadline_s=0.1"].get("away", 0.0) == 0.0
    assert shares["deadline_s=5.0", "away"] > 0.0
    assert found.pairs.set_index("variant")["same_model"].tolist() == [False, True]
    assert "Not kept: who is selected, whose updates count" in describe(found)
    assert numbers_of(found)["grade"] == "life"


def test_a_run_that_was_interrupted_has_no_model_to_compare(
    recorded: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(scenario: Scenario, folder: Path) -> str:
        raise KeyboardInterrupt

    run = recorded(3)
    monkeypatch.setattr("muster.laboratory.what_if.simulate_run", interrupted)
    found = what_if([run], out=tmp_path / "out")
    assert f"{UNCHANGED}: the same model in 0 of 0 runs; 1 of 1 runs have no model" in describe(
        found
    )
    assert not found.same_model
    assert [pair["same_model"] for pair in numbers_of(found)["pairs"]] == [None]


def test_devices_that_were_not_called_decline_and_are_counted(
    recorded: Record, tmp_path: Path
) -> None:
    run = recorded(6, server={"rounds": 6, "selection": {"kind": "uniform", "k": 2}})
    changes = {"settings": ["server.selection=all"], "grade": "life"}
    found = what_if([run], **changes, out=tmp_path / "out")  # type: ignore[arg-type]
    assert found.unknown == {"selection=all": 6 * (6 - 2)}
    assert "24 calls were to devices of which the record knows nothing" in describe(found)
    assert audit(tmp_path / "out" / "selection=all-seed6").agrees


def test_devices_react_to_a_change_only_if_they_are_simulated_again(
    recorded: Record, tmp_path: Path
) -> None:
    faster = ["groups.1.device.examples_per_s=2000", "server.deadline_s=0.5"]
    found = what_if([recorded(2)], settings=faster, grade="resimulated", out=tmp_path / "out")
    rates = found.comparison.runs.set_index("variant")["participation_rate"]
    shares = found.represented.set_index(["variant", "group"])["share"]
    assert rates.notna().all()
    assert shares.xs("away", level="group").drop("recorded").iloc[0] > 0.0
    assert not (tmp_path / "out" / "seed2.life.csv.gz").exists()
