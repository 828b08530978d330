"""What the server is told of a population, what an oracle is, and which populations are refused."""

from typing import Any

import numpy as np
import pytest

from muster.client.life.settings import SimulatedDevice
from muster.client.life.simulation import DeviceSimulation
from muster.common.config import validate
from muster.common.distributions import UniformDistribution
from muster.common.errors import ConfigError
from muster.common.exchange import PROPENSITY
from muster.common.seeds import FloatArray
from muster.emulator.fleet.group_shares import EventGroup, shares_of_groups
from muster.emulator.fleet.lives import life_of, members_of
from muster.emulator.planning.oracle import oracle_of, shares_of
from muster.emulator.planning.server_view import moments_of, population_of, require
from muster.emulator.scenario.population import population
from muster.emulator.scenario.scenario import Scenario
from muster.studies.agnostic.known import shares_by_enumeration

LOGISTIC = {"kind": "logistic", "intercept": 0.0, "z": {"age": 1.0}}
Z_AND_X = {"z": {"age": {"kind": "normal"}}, "x": {"load": {"kind": "uniform"}}}


def scenario(
    group: dict[str, Any] | None = None,
    *more: dict[str, Any],
    server: dict[str, Any] | None = None,
    **sections: Any,
) -> Scenario:
    first = {"name": "dev", "count": 40, "covariates": Z_AND_X, **(group or {})}
    values = {
        "name": "test",
        "seed": 3,
        "task": {"name": "linear", "dimension": 2},
        "server": {"rounds": 5, **(server or {})},
        "groups": [first, *more],
        **sections,
    }
    return validate(Scenario, values, "test")


def test_the_server_is_told_means_of_columns_and_of_the_features_a_rule_asks_for() -> None:
    rule = {"kind": "calibrated", "on": ["age > 0", "age ^ 2"]}
    read = scenario(server={"aggregator": rule})
    residents = population(read)
    age = np.array([resident.z["age"] for resident in residents], float)
    told = moments_of(read, residents)
    assert told == pytest.approx(
        {"age": age.mean(), "age > 0": (age > 0).mean(), "age ^ 2": (age**2).mean()}
    )


def words(*values: str, weights: list[float] | None = None) -> dict[str, Any]:
    os = {"kind": "categorical", "values": list(values), "weights": weights}
    return {"z": {"age": {"kind": "normal"}, "os": os}}


def test_the_means_are_over_all_devices_and_of_all_levels() -> None:
    first = {"covariates": words("a", "b", "rare", weights=[0.25, 0.75, 1e-9])}
    read = scenario(first, {"name": "other", "count": 10, "covariates": {"z": {"age": 5.0}}})
    residents = population(read)
    told = moments_of(read, residents)
    # Of a device without the covariate no level holds; of a level that nobody has the mean is 0.
    drawn = [resident.z.get("os") for resident in residents]
    assert told["os=a"] == pytest.approx(drawn.count("a") / 50)
    assert told["os=a"] + told["os=b"] == pytest.approx(40 / 50)
    assert told["os=rare"] == 0
    assert told["age"] == pytest.approx(np.mean([float(r.z["age"]) for r in residents]))


@pytest.mark.parametrize(
    "level", ["rare", "x > 1", "x < y", "x ^ 2", "x * y", "a  b", " lead", "trail ", "a > 5"]
)
@pytest.mark.parametrize("named", [False, True])
def test_a_level_is_a_column_whatever_is_in_the_word(level: str, named: bool) -> None:
    weights = [0.5, 1e-9 if level == "rare" else 0.5]
    column = f"os={level}"
    rule = {"kind": "calibrated", "on": ["age", column] if named else None}
    covariates = words("a", level, weights=weights)
    read = scenario({"covariates": covariates}, server={"aggregator": rule})
    residents = population(read)
    told = moments_of(read, residents)
    assert told[column] == pytest.approx(np.mean([r.z["os"] == level for r in residents]))
    require(read)


def test_means_that_are_too_large_for_a_number_are_refused() -> None:
    class Huge(UniformDistribution):
        """A distribution of the user's own, whose numbers have no bounds."""

        def draw(self, numbers: FloatArray, *_: object) -> FloatArray:
            return np.full(len(numbers), 1e200)

    wide = {"covariates": {"z": {"age": Huge(kind="huge")}}}
    require(scenario(wide))
    squared = {"kind": "calibrated", "on": ["age ^ 2"]}
    with pytest.raises(ConfigError, match=r"mean of 'age \^ 2' is inf, expected a finite number"):
        require(scenario(wide, server={"aggregator": squared}))


def test_noise_of_the_means_is_drawn_once_for_each_and_scales() -> None:
    exact, small, large = (
        moments_of(read, population(read))["age"]
        for read in (scenario(server={"moments_noise": tau}) for tau in (0.0, 0.1, 1.0))
    )
    assert large - exact == pytest.approx(10 * (small - exact))
    assert large != exact


def test_with_limited_information_the_server_knows_the_enrolled_alone() -> None:
    read = scenario({"enrollment": LOGISTIC}, server={"information": "limited"})
    residents = population(read)
    enrolled = np.array([resident.enrolled for resident in residents])
    known = population_of(read, residents)
    np.testing.assert_array_equal(known.enrolled, enrolled)
    assert known.size == 40


def test_an_oracle_is_told_what_it_asks_for_and_nobody_else_anything() -> None:
    read = scenario({"enrollment": LOGISTIC}, server={"aggregator": "oracle-ipw"})
    residents = population(read)
    oracle = oracle_of(read, residents)
    assert oracle.enrollment == [resident.propensity for resident in residents]
    assert oracle.shares is None
    plain = scenario({"enrollment": LOGISTIC}, server={"aggregator": "fedipw"})
    assert oracle_of(plain, residents).enrollment is None


def test_devices_tell_an_oracle_how_likely_they_were_to_take_part() -> None:
    willing = {"intercept": -0.3, "z": {"age": 1.0}, "x": {"load": 2.0}}
    group = {"participation": {"willing": willing, "drop_out": 0.2}}
    for rule, told in (("oracle-ipw", True), ("fedipw", False)):
        read = scenario(group, server={"aggregator": rule})
        members = members_of(read, read.groups[0], population(read))
        lives = DeviceSimulation(
            life_of(read, read.groups[0]), 3, [member.being() for member in members]
        )
        look = lives.look(2)
        assert (PROPENSITY in look.x) == told
        if told:
            odds = -0.3 + lives.cast.z["age"] + 2 * look.x["load"]
            np.testing.assert_allclose(look.x[PROPENSITY], 0.8 / (1 + np.exp(-odds)))
            np.testing.assert_allclose(look.x[PROPENSITY], lives.chance(2))


def test_an_oracle_changes_nothing_of_a_life() -> None:
    being = SimulatedDevice("dev-0000", 0, 0.0, {"age": 0.5})
    lives = [
        DeviceSimulation(life_of(read, read.groups[0]), 3, [being])
        for read in (scenario(server={"aggregator": rule}) for rule in ("oracle-ipw", "fedavg"))
    ]
    for step in range(4):
        assert lives[0].look(step).x["load"] == lives[1].look(step).x["load"]


def test_exact_shares_are_those_of_the_groups_and_their_slots() -> None:
    events = {"kind": "group-event", "probability": 0.3, "device_probability": 0.9}
    slots = {"slots": 1, "overflow": "collide"}
    read = scenario(
        {"count": 3, "availability": events, "covariates": {}},
        {"name": "steady", "count": 2, "availability": {"kind": "bernoulli", "probability": 0.5}},
        {"name": "narrow", "count": 4, "availability": events, "shared_link": slots},
        {"name": "there", "count": 1},
    )
    expected, _ = shares_of_groups(
        [
            EventGroup(3, 0.3, 0.9),
            EventGroup(2, 1.0, 0.5),
            EventGroup(4, 0.3, 0.9, 1, "collide"),
            EventGroup(1, 1.0, 1.0),
        ]
    )
    np.testing.assert_allclose(shares_of(read, population(read)), np.repeat(expected, [3, 2, 4, 1]))


def test_exact_shares_of_a_draw_without_replacement() -> None:
    weights = [5.0, 3.0, 2.0, 1.0, 1.0, 0.5]
    draw = {"kind": "k-of-n", "k": 2, "weights": weights}
    read = scenario({"count": 6, "availability": draw, "covariates": {}})
    shares = shares_of(read, population(read))
    np.testing.assert_allclose(shares, shares_by_enumeration(weights, 2), atol=1e-9)


COIN = {"kind": "bernoulli", "probability": 0.5}
THREE = {"kind": "k-of-n", "k": 3}
SLOW = {"examples_per_s": 0.05}


@pytest.mark.parametrize(
    ("group", "server", "why"),
    [
        (
            {"availability": {"kind": "markov", "mean_up_s": 60, "mean_down_s": 60}},
            {},
            "groups[0].availability: expected always, bernoulli, group-event (form 'event') or",
        ),
        ({"participation": {"willing": 0.5}}, {}, "groups[0].participation.willing: expected 1"),
        (
            {"participation": {"drop_out": 0.5}},
            {},
            "groups[0].participation.drop_out: expected 0, found 0.5",
        ),
        ({"device": {"profile": "tablet"}}, {}, "groups[0].device: expected one whose state never"),
        (
            {
                "device": {"connectivity": {"metered": True}},
                "participation": {"require": ["unmetered"]},
            },
            {},
            "groups[0].participation.require: expected conditions that always hold, found",
        ),
        (
            {"availability": COIN, "device": SLOW},
            {},
            "groups[0].device, link: expected work that ends within a round (clock.round_s = 60)",
        ),
        (
            {"availability": COIN, "link": {"rtt": "30 s"}},
            {},
            "groups[0].device, link: expected work that ends within a round (clock.round_s = 60)",
        ),
        (
            {
                "availability": THREE,
                "shared_link": {"slots": 2, "overflow": "collide"},
            },
            {},
            "groups[0].shared_link.slots: with k-of-n expected at least k = 3, found 2",
        ),
        (
            {"availability": THREE, "enrollment": LOGISTIC},
            {},
            "groups[0].enrollment: with k-of-n expected all 40 devices, found ",
        ),
        ({}, {"selection": {"kind": "uniform", "k": 3}}, "server.selection: expected 'all'"),
        ({}, {"deadline_s": 3.0}, "server.deadline_s: expected none, found 3"),
        ({}, {"goal": 7}, "server.goal: expected none, found 7"),
        ({"availability": COIN}, {"minimum": 3}, "server.minimum: expected 1, found 3"),
        ({}, {"guard": {"max_norm": 2.0}}, "server.guard.max_norm: expected none, found 2"),
    ],
)
@pytest.mark.parametrize(
    "rule", [{"kind": "importance", "shares": "exact"}, {"kind": "weighted-normalised"}]
)
def test_shares_that_are_not_known_exactly_are_refused(
    group: dict[str, Any], server: dict[str, Any], why: str, rule: dict[str, Any]
) -> None:
    read = scenario(group, server={**server, "aggregator": rule})
    with pytest.raises(ConfigError) as refused:
        require(read)
    assert f"participation shares c_i are not known:\n  {why}" in str(refused.value)
    assert "Let the rule estimate them" in str(refused.value)


def test_all_that_makes_shares_unknown_is_named() -> None:
    rule = {"kind": "importance", "shares": "exact"}
    two = {"name": "two", "count": 3, "availability": THREE}
    server = {"minimum": 2, "guard": {"max_norm": 1.0}, "aggregator": rule}
    with pytest.raises(ConfigError) as refused:
        require(scenario({"participation": {"willing": 0.5}}, two, server=server))
    named = [line.split(":")[0].strip() for line in str(refused.value).splitlines()[1:-1]]
    assert named == [
        "server.minimum",
        "server.guard.max_norm",
        "groups[0].participation.willing",
        "groups[1].availability",
    ]


@pytest.mark.parametrize(
    "group",
    [
        {"device": SLOW},  # always there
        {"availability": COIN, "device": {"examples_per_s": 5.0}},
        {"availability": THREE, "shared_link": {"slots": 3, "overflow": "collide"}},
        {"availability": THREE, "shared_link": {"slots": 2}},  # they transfer in turn
        {"participation": {"require": ["unmetered", "idle", "charging"]}},
    ],
)
def test_what_changes_no_share_is_let_through(group: dict[str, Any]) -> None:
    rule = {"kind": "importance", "shares": "exact"}
    require(scenario(group, server={"aggregator": rule}))


def test_a_population_of_which_some_are_never_enrolled_is_refused() -> None:
    rule = {"kind": "rule", "where": {"age": {"min": 0.0}}}
    read = scenario({"enrollment": rule}, server={"aggregator": "fedipw"})
    with pytest.raises(ConfigError, match=r"never be enrolled .propensity 0: dev-") as refused:
        require(read)
    assert "choose 'calibrated' with method = 'soft'" in str(refused.value)
    require(scenario({"enrollment": rule}))
    soft = {"kind": "calibrated", "method": "soft"}
    require(scenario({"enrollment": rule}, server={"aggregator": soft}))


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (
            {"mode": {"kind": "buffered", "k": 30}},
            "server.mode: k: 30 updates, but only {} devices may take part",
        ),
        ({"minimum": 30}, "server.minimum: 30 is more than the {} devices that may take part"),
    ],
)
def test_more_updates_than_devices_are_enrolled_are_refused(
    server: dict[str, Any], said: str
) -> None:
    rule = {"kind": "rule", "where": {"age": {"min": 0.0}}}
    read = scenario({"enrollment": rule}, server=server)
    enrolled = sum(resident.enrolled for resident in population(read))
    assert 0 < enrolled < 30 < read.devices
    with pytest.raises(ConfigError) as refused:
        require(read)
    expected = f"{said.format(enrolled)}; groups.enrollment enrols {enrolled} of {read.devices}"
    assert str(refused.value) == expected
    require(scenario(server=server))


def test_what_a_rule_that_needs_nothing_objects_to_is_refused_too() -> None:
    for p in ([0.5, 0.5], [1 / 50] * 50):
        read = scenario(server={"aggregator": {"kind": "weighted-normalised", "p": p}})
        assert not read.server.aggregator.needs()
        said = f"server.aggregator: p: found {len(p)} numbers, expected one for each device: 40"
        with pytest.raises(ConfigError, match=said):
            require(read)
    require(scenario(server={"aggregator": {"kind": "weighted-normalised", "p": [1 / 40] * 40}}))


def test_means_outside_of_what_the_enrolled_can_have_are_refused() -> None:
    rule = {"kind": "rule", "where": {"age": {"min": 0.0}}}
    server = {"aggregator": "calibrated", "information": "limited"}
    with pytest.raises(ConfigError, match=r"server.aggregator: no weights of the enrolled .* age"):
        require(scenario({"enrollment": rule}, server=server))
    soft = {**server, "aggregator": {"kind": "calibrated", "if_infeasible": "soft"}}
    require(scenario({"enrollment": rule}, server=soft))


@pytest.mark.parametrize(
    ("server", "complaint"),
    [
        ({"aggregator": "fedipw", "information": "limited"}, "server.aggregator: it needs covar"),
        ({"aggregator": "weighted"}, "server.aggregator: weighted"),
        (
            {"aggregator": {"kind": "calibrated", "on": ["hight"]}},
            "server.aggregator: on: 'hight': there is no column 'hight' of Z; there are: age",
        ),
    ],
)
def test_what_a_rule_cannot_have_is_refused_when_the_scenario_is_read(
    server: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        scenario(server=server)
