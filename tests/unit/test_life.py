"""The lives of devices: the same alone and together, exact where there is a formula."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.client.availability.bernoulli import BernoulliAvailability
from muster.client.availability.logistic import Logit
from muster.client.life.battery import charge_after, work_drain
from muster.client.life.connectivity import NETWORKS, WIFI, Connectivity
from muster.client.life.covariates import Covariates
from muster.client.life.device_settings import Battery, Charging, DeviceSettings, Use
from muster.client.life.effort import Effort, effort_of
from muster.client.life.participation import ParticipationSettings
from muster.client.life.settings import Life, SimulatedDevice
from muster.client.life.simulation import DeviceSimulation
from muster.client.life.surroundings import DeviceSurroundings
from muster.common.exchange import Reason
from muster.common.lines import LinkModel
from muster.common.seeds import BoolArray, FloatArray

SEED = 11
PHONE = DeviceSettings(profile="phone", time_zone=-5.0)
TRAFFIC = 40_000.0, 40_000.0


def life(**parts: object) -> Life:
    return Life.model_validate({"group": "g", "size": 12, "step_s": 900.0, **parts})


def beings(*positions: int) -> list[SimulatedDevice]:
    return [SimulatedDevice(f"g-{p:04d}", p, -5.0, {}) for p in positions]


def work(n: int, train_s: float = 0.0) -> Effort:
    """A round's work for devices without links."""
    return effort_of(np.full(n, train_s), [LinkModel()] * n, *TRAFFIC)


def played(lives: DeviceSimulation, steps: int, work_s: float) -> list[list[tuple[object, ...]]]:
    """What becomes of every device, called in every step."""
    n = len(lives.cast.clients)
    seen: list[list[tuple[object, ...]]] = [[] for _ in range(n)]
    effort = work(n, work_s)
    for step in range(steps):
        look, verdict = lives.look(step), lives.decide(step, effort)
        lives.take_part(np.flatnonzero(verdict.accepted), verdict, effort)
        for i in range(n):
            fate = verdict.reason(i), float(verdict.share[i])
            seen[i].append((*fate, look.state(i), look.covariates(i), lives.row(i)))
    return seen


LIVELY = life(
    device=PHONE,
    availability=BernoulliAvailability(kind="bernoulli", probability=0.7),
    covariates=Covariates.model_validate(
        {"x": {"load": {"kind": "normal", "mean": 0, "sd": 1}, "charge": "battery"}}
    ),
    participation=ParticipationSettings(
        require=["unmetered"], willing=Logit(intercept=1.0, x={"load": 1.0}), drop_out=0.1
    ),
)


def test_a_device_lives_the_same_life_alone_and_among_others() -> None:
    steps = 150
    together = played(DeviceSimulation(LIVELY, SEED, beings(*range(12))), steps, work_s=300.0)
    fates = {fate for device in together for fate, *_ in device}
    assert {None, Reason.OFFLINE, Reason.METERED, Reason.UNWILLING, Reason.DROP_OUT} <= fates
    for position in (0, 5, 11):
        alone = played(
            DeviceSimulation(LIVELY, SEED, beings(position), ahead=200), steps, work_s=300.0
        )
        assert alone[0] == together[position]


def test_a_device_that_comes_back_lives_on_as_if_it_had_never_gone() -> None:
    first = DeviceSimulation(LIVELY, SEED, beings(*range(12)))
    played(first, 40, work_s=300.0)
    again = DeviceSimulation(LIVELY, SEED, beings(3))
    again.settle(0, first.row(3))
    for step in range(40, 80):
        assert again.look(step).state(0) == first.look(step).state(3)


def test_a_speed_varies_from_step_to_step_as_its_sigma_says() -> None:
    steps = 400
    device = DeviceSettings(examples_per_s=4, speed_sigma=0.3)
    assert life(device=device).eventful
    lives = DeviceSimulation(life(device=device), SEED, beings(*range(12)))
    factors = np.array([lives.slowdown(step) for step in range(steps)])
    assert np.median(factors) == pytest.approx(1.0, rel=0.03)
    assert np.log(factors).std() == pytest.approx(0.3, rel=0.05)
    assert abs(np.corrcoef(factors[:-1].ravel(), factors[1:].ravel())[0, 1]) < 0.05
    alone = DeviceSimulation(life(device=device), SEED, beings(7))
    assert [float(alone.slowdown(step)[0]) for step in range(steps)] == factors[:, 7].tolist()  # type: ignore[index]
    assert lives.effort_at(3, work(12, 10.0)).train_s.tolist() == (10.0 * factors[3]).tolist()


def test_a_device_without_a_life_costs_nothing_and_obeys() -> None:
    assert not life().eventful
    assert not life(device=DeviceSettings(profile="gateway")).eventful
    assert life(device=PHONE).eventful
    assert life(participation=ParticipationSettings(drop_out=0.1)).eventful


def test_what_a_device_foretells_of_its_absence_comes_true() -> None:
    plain = life(availability=BernoulliAvailability(kind="bernoulli", probability=0.2))
    lives, again = (DeviceSimulation(plain, SEED, beings(*range(12))) for _ in range(2))
    on = np.array([again.look(step).available for step in range(200)])
    foretold = 0
    for step in range(100):
        away = lives.away_steps(step)
        assert away is not None
        for i, steps in enumerate(away):
            assert not on[step + 1 : step + 1 + steps, i].any()
            foretold += steps
    assert foretold > 0
    assert DeviceSimulation(LIVELY, SEED, beings(0)).away_steps(0) is None, (
        "there is a state to tell each time"
    )


# --- the battery ---------------------------------------------------------------------------------

BATTERY, CAPACITY_MAH = Battery(), np.array([4400.0])


def integrated(charge: float, seconds: float, *, plugged: bool, idle: bool) -> float:
    """The same by ten thousand small steps of Euler."""
    dt, b = seconds / 10_000, BATTERY
    load = (b.idle_ma if idle else b.use_ma) / (3600 * CAPACITY_MAH[0])
    feed = b.charger_ma / (3600 * CAPACITY_MAH[0])
    for _ in range(10_000):
        taper = math.exp(-max(charge - b.taper_from, 0) / b.taper)
        charge = min(1.0, max(0.0, charge + dt * (plugged * feed * taper - load)))
    return charge


@pytest.mark.slow
@given(st.floats(0, 1), st.floats(1, 20_000), st.booleans(), st.booleans())
def test_the_charge_solves_its_equation(
    charge: float, seconds: float, plugged: bool, idle: bool
) -> None:
    found = charge_after(
        BATTERY, CAPACITY_MAH, np.array([charge]), seconds, np.array([plugged]), np.array([idle])
    )
    assert found[0] == pytest.approx(
        integrated(charge, seconds, plugged=plugged, idle=idle), abs=2e-3
    )


def test_a_phone_in_use_loses_a_tenth_of_its_charge_in_an_hour() -> None:
    # 450 mA of 4400 mAh.
    neither = np.array([False])
    found = charge_after(BATTERY, CAPACITY_MAH, np.array([0.5]), 3600.0, neither, neither)
    assert found[0] == pytest.approx(0.5 - 450 / 4400)


def test_work_drains_by_current_and_time() -> None:
    cellular = np.array([[n.name for n in NETWORKS].index("cellular")])
    mebi = 20e6  # bytes each way
    drained = work_drain(
        BATTERY, CAPACITY_MAH, cellular, effort_of(np.array([3600.0]), [LinkModel()], mebi, mebi)
    )
    down_s, up_s = mebi * 8 / 12e6, mebi * 8 / 6e6
    expected = (400 * 3600 + 145 * down_s + 292 * up_s) / 3600 / 4400
    assert drained[0] == pytest.approx(expected)


def test_a_slow_link_keeps_the_radio_busy_longer() -> None:
    size, wifi = 1 << 20, np.array([WIFI])
    slow, half = LinkModel(up_bps=100_000.0), LinkModel(up_bps=50_000.0)
    nominal, once, twice = (
        work_drain(BATTERY, CAPACITY_MAH, wifi, effort_of(np.zeros(1), [line], 0, size))[0]
        for line in (LinkModel(), slow, half)
    )
    assert twice == pytest.approx(2 * once)
    assert once == pytest.approx(BATTERY.wifi_tx_ma * 8 * size / 1e5 / (3600 * CAPACITY_MAH[0]))
    assert nominal == pytest.approx(once * 1e5 / 27e6)


def test_a_battery_that_runs_out_takes_the_device_away_until_it_is_charged() -> None:
    device = DeviceSettings(
        profile="phone",
        battery=Battery(initial=0.02, revives_at=0.05),
        use=Use(idle_by_day=0.0, idle_at_night=0.0),
        charging=Charging(night_probability=1.0, top_ups_per_day=0.0, forced_probability=0.0),
    )
    lives = DeviceSimulation(life(device=device), SEED, beings(0))
    dead = [bool(lives.look(step).dead[0]) for step in range(96)]
    assert not dead[0]
    assert any(dead), "2 % last a tenth of an hour"
    assert not dead[44], "at 6:00 local time it was charged for a night"
    revived = next(s for s in range(1, 96) if dead[s - 1] and not dead[s])
    again = DeviceSimulation(life(device=device), SEED, beings(0))
    assert again.look(revived).charge[0] >= 0.05


def test_a_battery_of_twice_the_capacity_lasts_twice_as_long() -> None:
    device = DeviceSettings(
        profile="phone",
        battery=Battery(initial=1.0),
        charging=Charging(night_probability=0.0, top_ups_per_day=0.0, forced_probability=0.0),
    )
    members = [
        SimulatedDevice(f"g-{number}", number, 0.0, {}, charge=1.0, battery_mah=mah)
        for number, mah in enumerate((2000.0, 4400.0, None))
    ]
    one, two, usual = (
        DeviceSimulation(life(device=device), SEED, [each._replace(client="g-0", position=0)])
        .look(8)
        .charge[0]
        for each in members
    )
    assert two == usual
    assert (1 - one) == pytest.approx((1 - two) * 4400 / 2000)


# --- habits --------------------------------------------------------------------------------------


def surroundings(device: DeviceSettings, n: int) -> DeviceSurroundings:
    lives = DeviceSimulation(
        life(device=device, size=n), SEED, [SimulatedDevice(f"g-{i}", i, 0.0, {}) for i in range(n)]
    )
    return DeviceSurroundings(lives.cast, device)


def at(hour: float, n: int, day: int = 3) -> FloatArray:
    return np.full(n, (24 * day + hour) * 3600)


def share(of: BoolArray) -> float:
    return float(np.mean(of))


@pytest.mark.slow
def test_people_charge_at_night_as_often_as_the_scenario_says() -> None:
    n, nightly = 20_000, Charging(top_ups_per_day=0.0)
    found = surroundings(DeviceSettings(profile="phone", charging=nightly), n)
    # At 3:00 a session N(23, 1.2) + N(7, 1.2) is on unless it has ended (P(end < 3) = P(z < -1.77))
    # or not begun (P(z > 3.3)).
    expected = 0.85 * (1 - 0.0384 - 0.0004)
    assert share(found.plugged(at(3, n))) == pytest.approx(expected, abs=4 * 0.5 / math.sqrt(n))
    assert share(found.plugged(at(15, n))) == 0


@pytest.mark.slow
def test_top_ups_come_as_often_and_last_as_long_as_the_scenario_says() -> None:
    n, rate = 4000, 0.8
    charging = Charging(
        night_probability=0.0, top_ups_per_day=rate, top_up_s=1500, top_up_sigma=0.5
    )
    found = surroundings(DeviceSettings(profile="phone", charging=charging), n)
    minutes = [found.plugged(at(hour, n)) for hour in np.arange(0, 24, 1 / 60)]
    # Mean plugged time of a day: rate x mean of the log-normal; overlaps are rare and ignored.
    mean_s = rate * 1500 * math.exp(0.5**2 / 2)
    assert np.sum(minutes) * 60 / n == pytest.approx(mean_s, rel=0.06)
    assert not np.any(minutes[: 7 * 60]), "nobody tops up before waking"


def test_the_night_follows_local_time() -> None:
    lives = DeviceSimulation(
        life(
            device=DeviceSettings(profile="phone", charging=Charging(top_ups_per_day=0.0)), size=2
        ),
        SEED,
        [SimulatedDevice("g-0", 0, 0.0, {}), SimulatedDevice("g-1", 1, 9.0, {})],
    )
    assert list(lives.look(0).hour) == [0.0, 9.0]


@pytest.mark.slow
def test_use_and_networks_follow_their_probabilities() -> None:
    n = 20_000
    device = DeviceSettings(
        profile="phone",
        use=Use(idle_by_day=0.6, idle_at_night=0.9),
        connectivity=Connectivity(kind="mobile", wifi_at_home=0.8, wifi_away=0.3),
    )
    found, within = surroundings(device, n), 4 * 0.5 / math.sqrt(n)
    assert share(found.idle(at(14, n))) == pytest.approx(0.6, abs=within)
    assert share(found.idle(at(2, n))) == pytest.approx(0.9, abs=within)
    wifi = [share(found.unmetered(found.network(at(hour, n)))) for hour in (21, 12)]
    assert wifi == pytest.approx([0.8, 0.3], abs=within)


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "participation", "reason"),
    [
        ({"battery": {"initial": 0.29}}, {}, Reason.BATTERY),
        ({"battery": {"initial": 0.0}}, {}, Reason.POWERED_OFF),
        ({"battery": {"initial": 0.9}}, {"require": ["charging"]}, Reason.NOT_CHARGING),
        (
            {"connectivity": {"kind": "mobile", "wifi_at_home": 0.0, "wifi_away": 0.0}},
            {"require": ["unmetered"]},
            Reason.METERED,
        ),
        (
            {"use": {"idle_by_day": 0.0, "idle_at_night": 0.0}},
            {"require": ["idle"]},
            Reason.BUSY,
        ),
        ({}, {"willing": 0.0}, Reason.UNWILLING),
        ({}, {"drop_out": 1.0}, Reason.DROP_OUT),
    ],
)
def test_a_device_says_why_it_does_not_take_part(
    device: dict[str, object], participation: dict[str, object], reason: Reason
) -> None:
    never_charged = {"night_probability": 0.0, "top_ups_per_day": 0.0, "forced_probability": 0.0}
    lively = life(
        device=DeviceSettings.model_validate({"charging": never_charged, **device}),
        participation=ParticipationSettings.model_validate(participation),
    )
    verdict = DeviceSimulation(lively, SEED, beings(0)).decide(0, work(1))
    assert verdict.reason(0) is reason
    assert bool(verdict.accepted[0]) is (reason is Reason.DROP_OUT)


@pytest.mark.slow
def test_a_device_drops_out_as_often_as_its_profile_says() -> None:
    n = 20_000
    lively = life(
        device=DeviceSettings(profile="phone"),
        size=n,
        participation=ParticipationSettings(battery_min=0),
    )
    lives = DeviceSimulation(
        lively, SEED, [SimulatedDevice(f"g-{i}", i, 0.0, {}) for i in range(n)]
    )
    verdict = lives.decide(0, work(n))
    lost = [verdict.reason(i) is Reason.DROP_OUT for i in range(n)]
    assert np.mean(lost) == pytest.approx(0.08, abs=4 * math.sqrt(0.08 * 0.92 / n))


def test_work_that_outlasts_the_plug_is_interrupted() -> None:
    nights = Charging(
        night_probability=1.0, night_start_sd_h=0.0, night_hours_sd=0.0, top_ups_per_day=0.0,
        forced_probability=0.0,
    )  # fmt: skip
    lively = life(
        device=DeviceSettings(profile="phone", charging=nights, battery=Battery(initial=1.0)),
        participation=ParticipationSettings(require=["charging"], drop_out=0.0),
        start_h=23.0,
        step_s=3600.0,
    )
    lives = DeviceSimulation(lively, SEED, [SimulatedDevice("g-0", 0, 0.0, {})])
    # Plugged in from 23 to 6: at 5 there is an hour left.
    short, long = (lives.decide(6, work(1, s)) for s in (3000.0, 4000.0))
    assert short.reason(0) is None
    assert long.reason(0) is Reason.INTERRUPTED
    assert long.accepted[0]
    assert 0 <= long.share[0] < 1


def test_work_that_the_battery_cannot_pay_ends_with_it() -> None:
    lively = life(
        device=DeviceSettings(
            profile="phone", battery=Battery(initial=0.4), charging=Charging(top_ups_per_day=0.0)
        ),
        participation=ParticipationSettings(drop_out=0.0),
        start_h=12.0,
    )
    lives, effort = DeviceSimulation(lively, SEED, beings(0)), work(1, 36_000.0)
    verdict = lives.decide(0, effort)
    assert verdict.reason(0) is Reason.POWERED_OFF
    # Ten hours at 400 mA are 91 % of the battery; it has 40 %.
    assert verdict.share[0] == pytest.approx(0.4 / (4000 / 4400), rel=1e-3)
    lives.take_part(np.array([0]), verdict, effort)
    assert lives.look(0).charge[0] == pytest.approx(0, abs=1e-12)
    assert lives.look(0).dead[0]
