"""Rules that correct for who takes part, each against a direct calculation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.exact_sum import ExactSum, apply
from muster.common.exchange import PROPENSITY
from muster.server.aggregators import (
    AGGREGATORS,
    Aggregator,
    Cohort,
    Combining,
    Conditions,
    Contribution,
    Need,
    State,
    Withholder,
)
from muster.server.aggregators.combinations import Required, Withheld, excluded, excludes
from muster.server.fleet.devices import EnrolledDevice
from muster.server.knowledge.participation import ParticipationHistory, Seen
from muster.server.knowledge.population import Oracle, Population
from muster.server.settings.server import ServerSettings

N, ENROLLED = 60, 40
CLIENTS = [f"c{number:02d}" for number in range(N)]
CONDITIONS = Conditions(
    z=frozenset({"age", "wealth"}),
    x=frozenset({"load"}),
    full=True,
    selection="all",
    lockstep=True,
    gradient=False,
)


def rule_of(kind: str, **settings: Any) -> Aggregator:
    rule = AGGREGATORS.parse({"kind": kind, **settings})
    assert isinstance(rule, Aggregator)
    return rule


class World:
    """A population, and rounds of who takes part, drawn by a seed."""

    def __init__(self, seed: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self.z = self.random.standard_normal((N, 2))
        chance = 1 / (1 + np.exp(-self.z @ [1.0, 0.5]))
        self.enrolled = np.sort(
            self.random.choice(N, ENROLLED, replace=False, p=chance / chance.sum())
        )
        self.oracle = Oracle(enrollment=chance.tolist(), shares=self._shares())
        self.participation = ParticipationHistory(["load", PROPENSITY])
        self.rows: list[tuple[int, bool, float, float]] = []

    def _shares(self) -> list[float]:
        shares = np.zeros(N)
        shares[self.enrolled] = self.random.dirichlet(np.ones(ENROLLED)) * 0.9
        return shares.tolist()

    @property
    def population(self) -> Population:
        columns = ["age", "wealth"]
        z = [dict(zip(columns, row, strict=True)) for row in self.z.tolist()]
        devices = {CLIENTS[i]: EnrolledDevice(CLIENTS[i], "g", int(i), 1) for i in self.enrolled}
        moments = dict(zip(columns, self.z[self.enrolled].mean(0) * 0.5, strict=True))
        return Population(CLIENTS, columns, z, devices, moments, self.oracle)

    def round(self, number: int) -> Cohort:
        """One round in which about a third takes part."""
        load = self.random.standard_normal(N)
        true = 1 / (1 + np.exp(0.7 - self.z[:, 0] - load))
        part = self.random.random(N) < true
        seen = [
            Seen(int(i), bool(part[i]), {"load": load[i], PROPENSITY: true[i]}, 0.0)
            for i in self.enrolled
        ]
        self.participation.enter(seen)
        self.rows += [(int(i), bool(part[i]), load[i], true[i]) for i in self.enrolled]
        contributions = [
            Contribution(
                CLIENTS[i],
                "g",
                examples=int(5 + i),
                staleness=0,
                effective_steps=4.0,
                initial_loss=2.0,
                squared_norm=0.5,
                learning_rate=0.1,
            )
            for i in self.enrolled
            if part[i]
        ]
        points = np.random.default_rng(number).standard_normal((len(contributions), 3))
        distances = ((points[:, None] - points) ** 2).sum(axis=2)
        return Cohort(number, contributions, self.population, self.participation, distances)


def places(cohort: Cohort) -> list[int]:
    return [CLIENTS.index(contribution.client) for contribution in cohort.contributions]


def step(rule: Aggregator, cohort: Cohort, updates: np.ndarray, state: State) -> np.ndarray:
    """The contract's loop, for one round, from the model 1, 1, …"""
    weighing = rule.weigh(cohort, state)
    if isinstance(rule, Combining):
        taken = updates[np.array(weighing.weights) != 0]
        return np.asarray(1 + rule.combine(taken, len(updates)), np.float32)
    total = ExactSum(updates.shape[1])
    for update, weight in zip(updates, weighing.weights, strict=True):
        total.add(update, weight)
    keep = 1.0 if rule.weighs == "updates" else sum(weighing.weights) / weighing.normaliser
    start = np.ones(updates.shape[1], np.float32)
    return apply(start, total, keep=keep, scale=1.0, normaliser=weighing.normaliser)


def logistic(features: np.ndarray, y: np.ndarray, ridge: float = 0.01) -> np.ndarray:
    """Newton's method; the intercept comes last. The ridge is per standard deviation."""
    design = np.column_stack([features, np.ones(len(y))])
    penalty = ridge * np.diag([*features.var(0), 0.0])
    beta = np.zeros(design.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ beta))
        hessian = (design.T * (p * (1 - p))) @ design + penalty
        beta -= np.linalg.solve(hessian, design.T @ (p - y) + penalty @ beta)
    return beta


def chance(features: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-(features @ beta[:-1] + beta[-1]))))


def direct_weights(kind: str, world: World, cohort: Cohort) -> np.ndarray:
    """Weights up to a factor, by the papers' equations."""
    here = places(cohort)
    rows = world.rows
    features = np.array([[*world.z[i], load] for i, _, load, _ in rows])
    beta = logistic(features, np.array([part for _, part, _, _ in rows], float))
    newest = {i: (load, true) for i, _, load, true in rows[-ENROLLED:]}
    took_part = chance(np.array([[*world.z[i], newest[i][0]] for i in here]), beta)
    enrolled = np.isin(np.arange(N), world.enrolled).astype(float)
    if kind == "participation-ipw":
        return 1 / took_part
    if kind == "fedipw":
        return np.asarray(1 / (took_part * chance(world.z, logistic(world.z, enrolled))[here]))
    assert kind == "oracle-ipw"
    true = np.array([newest[i][1] for i in here])
    assert world.oracle.enrollment is not None
    return np.asarray(1 / (true * np.array(world.oracle.enrollment)[here]))


@pytest.mark.parametrize("kind", ["participation-ipw", "fedipw", "oracle-ipw"])
@pytest.mark.parametrize("normalise", ["hajek", "horvitz-thompson"])
def test_inverse_propensities_are_those_of_the_equations(kind: str, normalise: str) -> None:
    world = World()
    # classifier columns: the oracle's own is none of them
    model = {"participation": {"x": ["load"]}} if kind != "oracle-ipw" else {}
    rule = rule_of(kind, normalise=normalise, **model)
    state: State = {}
    for number in (1, 2, 3):
        cohort = world.round(number)
        weighing = rule.weigh(cohort, state)
        state = weighing.state
        expected = direct_weights(kind, world, cohort)
        np.testing.assert_allclose(weighing.weights, expected, rtol=2e-5)
        ht = ENROLLED if kind == "participation-ipw" else N
        hajek = normalise == "hajek"
        assert weighing.normaliser == pytest.approx(sum(weighing.weights) if hajek else ht)
        updates = world.random.standard_normal((len(expected), 7)).astype(np.float32)
        stepped = step(rule, cohort, updates, weighing.state)
        direct = 1 + expected @ updates / (expected.sum() if hajek else ht)
        np.testing.assert_allclose(stepped, direct, rtol=1e-4, atol=1e-4)


def test_a_participation_model_learned_on_everybody_would_be_another() -> None:
    world = World()
    rule = rule_of("fedipw", participation={"x": ["load"]})
    weights = rule.weigh(cohort := world.round(1), {}).weights
    here = places(cohort)
    everybody = np.column_stack([world.z, np.zeros(N)])
    for i, _, load, _ in world.rows:
        everybody[i, 2] = load
    took_part = np.zeros(N)
    took_part[here] = 1
    enrolled = np.isin(np.arange(N), world.enrolled).astype(float)
    twice = chance(everybody, logistic(everybody, took_part))[here]
    wrong = 1 / (twice * chance(world.z, logistic(world.z, enrolled))[here])
    assert np.abs(np.log(wrong / wrong.sum()) - np.log(weights / np.sum(weights))).max() > 0.1


RULES_BY_X = ["participation-ipw", "fedipw", "calibrated", "oracle-ipw"]


@pytest.mark.parametrize("kind", RULES_BY_X)
@pytest.mark.parametrize("x", [None, {}])
def test_an_update_whose_propensity_is_not_known_weighs_nothing(
    kind: str, x: Mapping[str, float] | None
) -> None:
    world = World()
    cohort = world.round(1)
    here, rows = places(cohort), world.participation.latest
    told = [dict(zip(world.participation.columns, row, strict=True)) for row in rows.x]
    world.participation = ParticipationHistory(world.participation.columns)
    world.participation.enter(
        Seen(int(place), bool(took_part), x if place in here[:2] else known, 0.0)
        for place, took_part, known in zip(rows.places, rows.took_part, told, strict=True)
    )
    cohort = cohort._replace(participation=world.participation)
    weighing = rule_of(kind).weigh(cohort, {})
    if x is None or kind == "oracle-ipw":
        assert list(weighing.weights[:2]) == [0.0, 0.0]
        assert max(weighing.weights) < 0.5 * sum(weighing.weights)
        [told_so] = [text for text in weighing.warnings if "get weight 0" in text]
        assert told_so.startswith(f"2 of a round's {len(here)} updates")
        assert CLIENTS[here[0]] in told_so
    else:  # of their group there is nothing to know
        assert min(weighing.weights) > 0
        assert not weighing.warnings


@pytest.mark.parametrize("kind", ["participation-ipw", "fedipw", "calibrated"])
@pytest.mark.parametrize("normalise", ["hajek", "horvitz-thompson"])
@pytest.mark.parametrize("x", [None, {"load": np.nan, PROPENSITY: np.nan}])
def test_where_no_x_is_known_there_is_no_fit_yet(
    kind: str, normalise: str, x: Mapping[str, float] | None
) -> None:
    world = World()
    cohort = world.round(1)
    here = places(cohort)
    nothing = ParticipationHistory(world.participation.columns)
    nothing.enter(Seen(int(place), place in here, x, 0.0) for place in world.enrolled)
    rule = rule_of(kind, normalise=normalise)
    weighing = rule.weigh(cohort._replace(participation=nothing), {})
    assert set(weighing.weights) == {0.0}
    assert (weighing.normaliser == 0) == (normalise == "hajek")
    assert all(_plain(value) for value in weighing.estimates.values())
    expected = {"share": 0.0, "unknown": ENROLLED} if x is None else None
    assert weighing.estimates.get("stale") == expected
    # It is learned as soon as there is something to learn from.
    later = rule.weigh(cohort._replace(round=2), weighing.state)
    assert later.estimates["participation"]


def test_what_is_told_of_old_x_is_its_share_and_its_age() -> None:
    world = World()
    cohort = world.round(1)
    rows = world.participation.latest
    rows.age_s[:10] = 60.0
    stale = rule_of("participation-ipw").weigh(cohort, {}).estimates["stale"]
    assert stale == {"share": 10 / ENROLLED, "mean_age_s": 60.0, "unknown": 0}


def test_a_round_of_those_whom_calibration_gives_nothing_is_empty() -> None:
    z = [*np.linspace(-3, 0, 15), *np.linspace(0, 1, 15)]
    clients = CLIENTS[:30]
    devices = {client: EnrolledDevice(client, "g", i, 1) for i, client in enumerate(clients[:15])}
    known = [{"age": value} for value in z]
    population = Population(clients, ["age"], known, devices, {"age": -0.1}, Oracle())
    participation = ParticipationHistory()
    participation.enter(Seen(i, i < 5, {}, 0.0) for i in range(15))
    came = [Contribution(client, "g", 1, 0) for client in clients[:5]]
    weighing = rule_of("calibrated").weigh(Cohort(1, came, population, participation), {})
    assert (set(weighing.weights), weighing.normaliser) == ({0.0}, 0.0)


@pytest.mark.parametrize("method", ["quadratic", "entropy"])
def test_calibrated_weights_have_the_means_of_the_population(method: str) -> None:
    world = World()
    rule = rule_of("calibrated", method=method, participation={"x": ["load"]})
    cohort = world.round(1)
    weighing = rule.weigh(cohort, {})
    q = np.where(weighing.state["q"] >= 0, weighing.state["q"], 0)
    assert q.sum() == pytest.approx(1)
    assert set(np.flatnonzero(weighing.state["q"] >= 0)) == set(world.enrolled)
    np.testing.assert_allclose(q @ world.z, world.z[world.enrolled].mean(0) * 0.5, atol=1e-5)
    expected = ENROLLED * q[places(cohort)] * direct_weights("participation-ipw", world, cohort)
    np.testing.assert_allclose(weighing.weights, expected, rtol=2e-5)
    again = rule.weigh(world.round(2), weighing.state)
    assert "calibration" not in again.estimates
    np.testing.assert_array_equal(again.state["q"], weighing.state["q"])


def test_importance_counts_empty_rounds_and_the_present_one() -> None:
    world = World()
    rule = rule_of("importance", delta=0.001)
    state: State = {}
    sums = np.zeros(N)
    for number in (1, 2, 5):  # 3 and 4 were empty
        cohort = world.round(number)
        weighing = rule.weigh(cohort, state)
        here, state = places(cohort), weighing.state
        sums[here] += 1 / len(here)
        np.testing.assert_allclose(
            weighing.weights, 1 / (ENROLLED * np.maximum(sums[here] / number, 0.001))
        )
        assert weighing.normaliser == len(here)
        updates = world.random.standard_normal((len(here), 3)).astype(np.float32)
        stepped = step(rule, cohort, updates, {"sums": sums - _here(here)})
        direct = 1 + (updates.T / (ENROLLED * sums[here] / number)).T.sum(0) / len(here)
        np.testing.assert_allclose(stepped, direct, rtol=1e-5)


def _here(here: Sequence[int]) -> np.ndarray:
    added = np.zeros(N)
    added[list(here)] = 1 / len(here)
    return added


def test_importance_with_exact_shares_and_a_floor_warns_of_whom_it_caps() -> None:
    world = World()
    assert world.oracle.shares is not None
    cohort = world.round(1)
    here, shares = places(cohort), np.array(world.oracle.shares)
    delta = float(np.sort(shares[here])[2]) + 1e-9
    weighing = rule_of("importance", shares="exact", delta=delta).weigh(cohort, {})
    np.testing.assert_allclose(weighing.weights, 1 / (ENROLLED * np.maximum(shares[here], delta)))
    assert weighing.estimates["clipped_shares"] == 3
    [told] = weighing.warnings
    assert told.startswith(f"3 of a round's {len(here)} devices take part so rarely, for example c")


def test_equation_10_literally_and_normalised() -> None:
    world = World()
    p = world.random.dirichlet(np.ones(N))
    cohort = world.round(1)
    here = places(cohort)
    updates = world.random.standard_normal((len(here), 4)).astype(np.float32)
    theta = 1 + updates.astype(float)
    literal = step(rule_of("weighted", p=p.tolist()), cohort, updates, {})
    np.testing.assert_allclose(literal, ENROLLED / len(here) * p[here] @ theta, rtol=1e-5)
    normalised = step(rule_of("weighted-normalised", p=p.tolist()), cohort, updates, {})
    np.testing.assert_allclose(normalised, p[here] @ theta / p[here].sum(), rtol=1e-5)
    assert world.oracle.shares is not None
    shares = np.array(world.oracle.shares)
    exact = rule_of("weighted").weigh(cohort, {}).weights
    np.testing.assert_allclose(exact, (shares / shares.sum())[here])


def test_equal_p_make_equation_10_the_plain_mean() -> None:
    world = World()
    cohort = world.round(1)
    updates = world.random.standard_normal((len(cohort.contributions), 4)).astype(np.float32)
    p = np.isin(np.arange(N), world.enrolled) / ENROLLED  # of those who can come
    weighted = step(rule_of("weighted", p=p.tolist()), cohort, updates, {})
    np.testing.assert_allclose(weighted, step(rule_of("agnostic"), cohort, updates, {}), rtol=1e-6)


def _plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _plain(item) for name, item in value.items())
    return isinstance(value, str) or (isinstance(value, int | float) and np.isfinite(value))


@pytest.mark.parametrize(
    ("kind", "settings", "conditions", "complaint"),
    [
        ("fedipw", {"enrollment": {"z": ["hight"]}}, {}, "no covariate 'hight'; there are: age"),
        ("participation-ipw", {"participation": {"x": ["lod"]}}, {}, "no covariate 'lod'"),
        ("fedipw", {"enrollment": {"z": ["age", "age"]}}, {}, "'age' is listed 2 times"),
        ("calibrated", {"on": ["hight > 0"]}, {}, "there is no column 'hight' of Z"),
        ("calibrated", {"on": ["age ~ 0"]}, {}, "is no feature of covariates"),
        ("calibrated", {"on": ["age", "wealth", "age"]}, {}, "on: 'age' is listed twice"),
        ("calibrated", {"on": ["age>0", "age > 0.0"]}, {}, "on: 'age > 0' is listed twice"),
    ],
)
def test_what_a_rule_cannot_work_with_is_refused(
    kind: str, settings: dict[str, Any], conditions: dict[str, Any], complaint: str
) -> None:
    reasons = list(rule_of(kind, **settings).refusals(CONDITIONS._replace(**conditions)))
    assert any(complaint in reason for reason in reasons), reasons
    assert not list(rule_of("fedavg").refusals(CONDITIONS))


@pytest.mark.parametrize(
    ("kind", "withholder", "complaint"),
    [
        ("fedipw", Withholder.LIMITED_INFORMATION, "the population's means; take 'calibrated'"),
        ("fedipw", Withholder.NO_COVARIATES, "no group has any"),
        ("calibrated", Withholder.NO_COVARIATES, "no group has any"),
        ("weighted", Withholder.GRADIENT, "averages parameters"),
        ("agnostic", Withholder.GRADIENT, "averages parameters"),
        ("weighted", Withholder.NO_PROJECTION, "set training.projection_radius"),
        ("fedipw", Withholder.PREFERENCE, "expected 'all' or 'uniform'"),
        ("fedipw", Withholder.PRESENT_SELECTION, "rows would outnumber those of the others"),
    ],
)
def test_what_is_withheld_from_a_rule_is_refused(
    kind: str, withholder: Withholder, complaint: str
) -> None:
    required = [Required(requirement, kind) for requirement in rule_of(kind).requires()]
    (said,) = excluded(required, [Withheld(withholder)])
    assert complaint in said


def test_only_horvitz_thompson_needs_every_device_called() -> None:
    rule = rule_of("fedipw", normalise="horvitz-thompson")
    assert excludes(rule.requires(), Withholder.SELECTION)
    assert not excludes(rule_of("fedipw").requires(), Withholder.SELECTION)


def test_p_that_are_probabilities_of_inclusion_are_refused() -> None:
    with pytest.raises(ConfigError, match="sum to M"):
        validate(
            ServerSettings,
            {"rounds": 1, "aggregator": {"kind": "weighted", "p": [0.5] * 4}},
            "test",
        )


def test_an_empty_list_of_features_is_refused() -> None:
    empty = {"rounds": 1, "aggregator": {"kind": "calibrated", "on": []}}
    with pytest.raises(ConfigError, match=r"on: it is empty; expected features of Z"):
        validate(ServerSettings, empty, "test")


def known_alone(world: World, places: Sequence[int]) -> Population:
    """The population of a server that has heard of these devices alone."""
    told = world.population
    devices = {CLIENTS[i]: EnrolledDevice(CLIENTS[i], "g", int(i), 1) for i in world.enrolled}
    for i in places:
        devices[CLIENTS[i]].z = dict(zip(told.columns, world.z[i].tolist(), strict=True))
    return Population(CLIENTS, told.columns, [None] * N, devices, told.moments, told.oracle)


def far_of(world: World) -> list[int]:
    """Three of the enrolled who cannot have the population's means."""
    return [int(i) for i in world.enrolled[np.argsort(world.z[world.enrolled, 0])[-3:]]]


def of_these(cohort: Cohort, population: Population, who: Sequence[int]) -> Cohort:
    clients = {CLIENTS[i] for i in who}
    some = [c for c in cohort.contributions if c.client in clients]
    return cohort._replace(contributions=some, population=population)


def test_calibrated_keeps_its_weights_for_those_who_come_back() -> None:
    world = World()
    settings = {"normalise": "horvitz-thompson", "participation": {"x": ["load"]}}
    rule = rule_of("calibrated", **settings)
    state = rule.weigh(world.round(1), {}).state
    cohort = world.round(2)
    back = places(cohort)[:3]
    # A server that came back knows only these again.
    weighing = rule.weigh(of_these(cohort, known_alone(world, back), back), state)
    assert not weighing.warnings
    np.testing.assert_array_equal(weighing.state["q"], state["q"])
    assert weighing.normaliser == ENROLLED


def test_calibrated_means_out_of_reach_in_a_run_are_approached() -> None:
    world = World()
    rule = rule_of("calibrated", participation={"x": ["load"]})
    cohort, far = world.round(1), far_of(world)
    population = known_alone(world, far)
    assert list(rule.objections(population))
    weighing = rule.weigh(of_these(cohort, population, far), {})
    assert weighing.estimates["calibration"]["method"] == "soft"
    assert "quadratic: no weights of the enrolled have the population's" in weighing.warnings[0]
    assert set(np.flatnonzero(weighing.state["q"] >= 0)) == set(far)
    # With the others there it is solved again, and exactly.
    again = rule.weigh(world.round(2), weighing.state)
    assert again.estimates["calibration"]["method"] == "quadratic"


def test_calibrated_without_a_solution_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    rule = rule_of("calibrated", participation={"x": ["load"]})
    few = [int(i) for i in world.enrolled[:30]]
    first = rule.weigh(of_these(world.round(1), known_alone(world, few), few), {})

    def fails(*_: object) -> None:
        raise ConfigError("no weights were found for the enrolled: it is late")

    monkeypatch.setattr("muster.server.aggregators.calibrated.calibrate", fails)
    cohort = world.round(2)
    for last in (None, first.state["q"]):
        weighing = rule.weigh(cohort, {} if last is None else {"q": last})
        assert weighing.warnings[-1].startswith("no weights were found for the enrolled: it is")
        q = weighing.state["q"]
        assert set(np.flatnonzero(q >= 0)) == set(world.enrolled)
        assert q[world.enrolled].sum() == pytest.approx(1)
        before = np.full(30, 1 / 30) if last is None else last[few]
        np.testing.assert_allclose(q[few] / q[few].sum(), before)
        assert q[world.enrolled[30:]] == pytest.approx(1 / ENROLLED)


def test_means_that_no_weights_of_the_enrolled_can_have_are_an_objection() -> None:
    population = World().population
    population.moments = {"age": 99.0, "wealth": 0.0}
    assert any("age" in text for text in rule_of("calibrated").objections(population))
    assert not list(rule_of("calibrated", if_infeasible="soft").objections(population))
    assert not list(rule_of("calibrated").objections(World().population))


def test_oracles_are_asked_for_by_name() -> None:
    assert Need.PROPENSITIES in rule_of("oracle-ipw").needs()
    assert rule_of("importance", shares="exact").needs() == {Need.SHARES}
    assert rule_of("importance").needs() == frozenset()
    assert Need.POPULATION not in rule_of("calibrated").needs()
