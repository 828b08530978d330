"""The fixture `fleet` and the assertions of the kit for testing aggregators."""

from pathlib import Path
from typing import Any

import pytest

from muster.common.errors import ConfigError, RunFailed
from muster.testing import (
    KillAt,
    SimulatedFleet,
    assert_golden,
    assert_never_counted_twice,
    assert_participation,
    assert_recovers,
    assert_same_model,
    twenty_devices,
)


@pytest.fixture
def fleet(tmp_path: Path) -> SimulatedFleet:
    return SimulatedFleet(tmp_path, tmp_path)


@pytest.mark.parametrize("event", ["round_opened", "received", "round_committed"])
def test_a_server_that_dies_at_a_named_point_leaves_the_same_model(
    fleet: SimulatedFleet, event: Any
) -> None:
    undisturbed = fleet.run(twenty_devices("fedavg"))
    killed = fleet.run(twenty_devices("fedavg"), KillAt("server", event, 3))
    assert_same_model(killed, undisturbed)
    started = [each["incarnation"] for each in killed.ledger.events("server_started")]
    assert started == [1, 2]
    # Between its death and the next start, the newest event is the one that it died of.
    before = [e for e in killed.ledger.events(event) if e["round"] == 3]
    assert before[0]["incarnation"] == 1


def test_a_pack_that_dies_changes_no_bit(fleet: SimulatedFleet) -> None:
    undisturbed = fleet.run(twenty_devices("median"))
    killed = fleet.run(twenty_devices("median"), KillAt("phones-0003", "received", 2))
    assert_same_model(killed, undisturbed)
    assert_never_counted_twice(killed)


def test_a_kill_without_its_process_or_event_is_told(fleet: SimulatedFleet) -> None:
    with pytest.raises(ConfigError, match="no process 'phone' could be killed; there are: server"):
        fleet.run(twenty_devices("fedavg"), KillAt("phone", "received", 2))
    with pytest.raises(RunFailed, match="server was to die at round_opened of round 9, but"):
        fleet.run(twenty_devices("fedavg"), KillAt("server", "round_opened", 9))


def test_a_kill_of_a_process_that_is_dead_already_is_told(fleet: SimulatedFleet) -> None:
    kills = [KillAt("phones-0003", event, 2) for event in ("round_opened", "received")]
    with pytest.raises(RunFailed, match=r"phones-0003 was to die at received .* did not run then"):
        fleet.run(twenty_devices("fedavg"), *kills)


def test_runs_of_different_rules_have_different_models(fleet: SimulatedFleet) -> None:
    one, other = (fleet.run(twenty_devices(rule)) for rule in ("fedavg", "fedavgm"))
    with pytest.raises(AssertionError, match=r"expected the same model, found \w{12} .*in round 2"):
        assert_same_model(one, other)


def test_participation_is_that_of_the_outage(fleet: SimulatedFleet) -> None:
    groups = [{"name": "gateways", "count": 8, "devices_per_process": 8}]
    run = fleet.run(twenty_devices("fedavg", groups=groups))
    # 8 rounds of 8 devices, of which 4 are away in two rounds: 56/64.
    assert_participation(run, at_least=0.875, at_most=0.875, group="gateways")
    with pytest.raises(AssertionError, match=r"participation.* >= 0.9 .*= 0.875"):
        assert_participation(run, at_least=0.9)
    with pytest.raises(AssertionError, match=r"participation.* <= 0.8 .*= 0.875"):
        assert_participation(run, at_most=0.8)


def test_a_run_recovers_within_the_rounds_that_are_given(fleet: SimulatedFleet) -> None:
    run = fleet.run(twenty_devices("fedavg"))
    assert_recovers(run, within=2, fault="outage")
    with pytest.raises(AssertionError, match=r"expected loss <= before / 100 .*: loss = "):
        assert_recovers(run, within=2, that="loss <= before / 100")


def test_a_recovery_from_no_fault_is_none(fleet: SimulatedFleet) -> None:
    run = fleet.run(twenty_devices("fedavg", faults=[]))
    with pytest.raises(AssertionError, match="no fault was ever applied"):
        assert_recovers(run, within=2)


def test_a_rule_of_the_users_own_is_imported_from_home(tmp_path: Path) -> None:
    code = "from muster.server.aggregators.fedavg import FedAvg\nclass Mine(FedAvg): pass\n"
    (tmp_path / "my_rule_at_home.py").write_text(code, encoding="utf-8")
    fleet = SimulatedFleet(tmp_path / "runs", tmp_path)
    mine = fleet.run(twenty_devices("my_rule_at_home:Mine"))
    assert_same_model(mine, fleet.run(twenty_devices("fedavg")))


def test_masks_work_in_a_fleet_of_twenty(fleet: SimulatedFleet) -> None:
    masked = {"mask": {"kind": "random", "schedule": "rotating"}, "device": {"capacity": 0.5}}
    groups = [{"name": "halves", "count": 20, "devices_per_process": 5, **masked}]
    run = fleet.run(twenty_devices("fedplt", groups=groups, faults=[]))
    assert run.ledger.contributions["mask_ratio"].max() < 1
    assert_participation(run, at_least=1.0)


def test_a_golden_run_is_written_once_and_compared_then(
    fleet: SimulatedFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = tmp_path / "fedavg.json"
    run = fleet.run(twenty_devices("fedavg"))
    with pytest.raises(AssertionError, match=r"there is no golden run .* MUSTER_WRITE_GOLDEN=1"):
        assert_golden(run, golden)
    with monkeypatch.context() as writing:
        writing.setenv("MUSTER_WRITE_GOLDEN", "1")
        assert_golden(run, golden)
    assert_golden(fleet.run(twenty_devices("fedavg")), golden)
    with pytest.raises(AssertionError, match="model_sha256 of the run is not that of the golden"):
        assert_golden(fleet.run(twenty_devices("fedavgm")), golden)
    # The model is not compared with one that was trained with other numerics; the weights are.
    other = golden.read_text(encoding="utf-8").replace(
        '"fingerprint": {', '"fingerprint": {"x": 1, '
    )
    golden.write_text(other, encoding="utf-8")
    assert_golden(fleet.run(twenty_devices("fedavgm")), golden)
    with pytest.raises(AssertionError, match="weight_sum of the run is not"):
        assert_golden(fleet.run(twenty_devices("median")), golden)
