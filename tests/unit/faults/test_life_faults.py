"""Faults of device life, against the same lives without them and against arithmetic."""

from typing import Any

import numpy as np
import pytest

from muster.client.availability.markov import Markov
from muster.client.faults import DEVICE_FAULTS
from muster.client.faults.scheduled import DeviceFault, Window
from muster.client.life.device_settings import DeviceSettings
from muster.client.life.effort import Effort
from muster.client.life.participation import ParticipationSettings
from muster.client.life.settings import Life, SimulatedDevice
from muster.client.life.simulation import DeviceSimulation

PHONE = DeviceSettings.model_validate({"profile": "phone"})
CLIENTS = ("a", "b", "c")
STEP_S = 600.0


def fault(kind: str, first: int, end: int, clients: tuple[str, ...], **more: Any) -> DeviceFault:
    do = DEVICE_FAULTS.parse({"kind": kind, **more})
    windows = {client: [Window(unit="step", first=first, end=end)] for client in clients}
    return DeviceFault.on(f"{kind}-1", do, windows)  # type: ignore[arg-type]


def lives(*faults: DeviceFault, require: tuple[str, ...] = (), **more: Any) -> DeviceSimulation:
    life = Life(
        group="g",
        size=3,
        step_s=STEP_S,
        faults=list(faults),
        participation=ParticipationSettings(require=list(require), drop_out=0.0),  # type: ignore[arg-type]
        **{"device": PHONE, **more},
    )
    devices = [SimulatedDevice(client, k, 0.0, {}) for k, client in enumerate(CLIENTS)]
    return DeviceSimulation(life, 3, devices)


NOTHING = Effort(np.zeros(3), np.zeros(3), np.full(3, np.nan), np.full(3, np.nan), 0.0, 0.0)


def test_an_offline_device_declines_and_the_others_do_not_notice() -> None:
    usual, disturbed = lives(), lives(fault("offline", 2, 4, ("b",)))
    for step in range(6):
        before, after = usual.decide(step, NOTHING), disturbed.decide(step, NOTHING)
        acts = 2 <= step < 4
        assert [after.reason(k) for k in (0, 2)] == [before.reason(k) for k in (0, 2)]
        assert (after.reason(1) == "offline") == acts or before.reason(1) == "offline"
        if not acts:
            assert after.reason(1) == before.reason(1)


def test_an_offline_device_is_foreseen_as_away() -> None:
    silo = DeviceSettings.model_validate({"profile": "always-on"})
    life = lives(fault("offline", 2, 5, ("b",)), device=silo)
    assert life.unreachable(2).tolist() == [False, True, False]  # type: ignore[union-attr]
    assert life.away_steps(2)[1] == 2  # type: ignore[index]
    assert life.chance(3)[1] == 0


def test_availability_goes_on_behind_a_fault() -> None:
    markov = Markov(kind="markov", mean_up_s=1200.0, mean_down_s=1200.0)
    usual, disturbed = (
        lives(*faults, availability=markov) for faults in ((), (fault("offline", 5, 9, CLIENTS),))
    )
    on = np.array([usual.look(step).available for step in range(20)])
    with_fault = np.array([disturbed.look(step).available for step in range(20)])
    assert not with_fault[5:9].any()
    np.testing.assert_array_equal(
        np.delete(on, range(5, 9), 0), np.delete(with_fault, range(5, 9), 0)
    )
    assert on[5:9].any()


def test_a_drain_takes_the_stated_share_in_an_hour() -> None:
    usual, drained = lives(), lives(fault("battery-drain", 3, 9, ("b",), share_per_h=0.1))
    for each in (usual, drained):
        each.advance(3)
    before = usual.look(3).charge.copy()
    lost = [usual.look(step).charge - drained.look(step).charge for step in range(3, 10)]
    # A tenth of the battery in an hour, which is six steps, less what a fuller battery charges
    # more slowly; nothing has charged it here.
    charging = [usual.look(step).charging[1] for step in range(3)]
    assert not any(charging)
    assert before[1] > 0.2
    np.testing.assert_allclose([row[1] for row in lost][:6], 0.1 * np.arange(6) / 6, atol=1e-6)
    assert all(row[0] == row[2] == 0 for row in lost)


def test_a_drained_device_declines_for_its_charge() -> None:
    drained = lives(fault("battery-drain", 0, 400, ("b",), share_per_h=5.0))
    reasons = {drained.decide(step, NOTHING).reason(1) for step in range(12)}
    assert reasons & {"battery", "powered off"}


def test_an_unplugged_device_never_charges() -> None:
    nights = range(100, 160)  # around the second night, local time
    usual = lives()
    charging = np.array([usual.look(step).charging for step in nights])
    cut = lives(fault("unplug", 0, 10_000, ("b",)), require=("charging",))
    without = np.array([cut.look(step).charging for step in nights])
    assert charging.any(axis=0).all()
    assert not without[:, 1].any()
    np.testing.assert_array_equal(without[:, [0, 2]], charging[:, [0, 2]])
    assert cut.look(nights[-1]).charge[1] < usual.look(nights[-1]).charge[1]


def test_a_metered_network_is_reported_and_a_reason_to_decline() -> None:
    usual = lives(require=("unmetered",))
    metered = lives(fault("metered", 0, 50, ("b",)), require=("unmetered",))
    steps = [s for s in range(50) if usual.decide(s, NOTHING).reason(1) is None]
    assert steps
    for step in steps:
        assert metered.decide(step, NOTHING).reason(1) == "metered"
        assert not metered.look(step).unmetered[1]
        assert metered.look(step).network[1] == usual.look(step).network[1]


def test_slowdowns_of_faults_that_overlap_multiply() -> None:
    both = lives(
        fault("slow", 1, 4, ("a", "b"), factor=2.0), fault("slow", 3, 6, ("b",), factor=5.0)
    )
    work = Effort(np.full(3, 7.0), np.ones(3), np.zeros(3), np.zeros(3), 0.0, 0.0)
    trained = [both.effort_at(step, work).train_s.tolist() for step in range(7)]
    assert trained == [
        [7, 7, 7], [14, 14, 7], [14, 14, 7], [14, 70, 7], [7, 35, 7], [7, 35, 7], [7, 7, 7],
    ]  # fmt: skip
    np.testing.assert_array_equal(both.effort_at(3, work).transfer_s, work.transfer_s)


def test_drains_of_faults_that_overlap_add_up() -> None:
    one = lives(fault("battery-drain", 0, 6, ("b",), share_per_h=0.3))
    two = lives(
        fault("battery-drain", 0, 6, ("b",), share_per_h=0.1),
        fault("battery-drain", 0, 6, ("b",), share_per_h=0.2),
    )
    np.testing.assert_allclose(one.look(5).charge, two.look(5).charge, atol=1e-12)


def test_a_device_alone_lives_as_it_does_among_others() -> None:
    faults = fault("unplug", 3, 90, ("b",)), fault("battery-drain", 5, 40, ("b", "c"))
    together = lives(*faults)
    life = together.life.of(["b"])
    assert [set(f.devices) for f in life.faults] == [{"b"}, {"b"}]
    alone = DeviceSimulation(life, 3, [SimulatedDevice("b", 1, 0.0, {})])
    for step in range(0, 100, 7):
        assert alone.look(step).charge[0] == pytest.approx(together.look(step).charge[1], abs=0)
