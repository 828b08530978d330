import numpy as np
import pytest

from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.exact_sum import ExactSum, apply
from muster.server.aggregators import AGGREGATORS, BUILT_IN, Aggregator, Cohort, Contribution
from muster.server.aggregators.agnostic import Agnostic
from muster.server.aggregators.fedasync import FedAsync
from muster.server.aggregators.fedavg import FedAvg
from muster.server.aggregators.fedbuff import FedBuff
from muster.server.aggregators.values import CountedRound
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Oracle, Population
from muster.server.settings.server import ServerSettings
from muster.server.testing import PlusOne


def step(rule: Aggregator, model: list[float], updates: dict[int, list[float]]) -> np.ndarray:
    """One round by the contract's loop; `updates` by the examples behind them."""
    start = np.array(model, np.float32)
    state = rule.initial_state(start)
    contributions = [Contribution(f"c{n}", "g", n, staleness=0) for n in updates]
    members = [contribution.client for contribution in contributions]
    population = Population(members, (), [{} for _ in members], {}, {}, Oracle())
    weighing = rule.weigh(Cohort(1, contributions, population, ParticipationHistory()), state)
    weights, normaliser = weighing.weights, weighing.normaliser
    total = ExactSum(len(model))
    for delta, weight in zip(updates.values(), weights, strict=True):
        total.add(np.array(delta, np.float32), weight)
    keep = 1.0 if rule.weighs == "updates" else sum(weights) / normaliser
    return apply(start, total, keep=keep, scale=1.0, normaliser=normaliser)


def test_fedavg_weighs_each_device_by_its_examples() -> None:
    # 10 + (1 * [0, 2] + 3 * [4, 6]) / 4 = 10 + [3, 5]
    stepped = step(FedAvg(), [10, 10], {1: [0, 2], 3: [4, 6]})
    np.testing.assert_array_equal(stepped, np.array([13, 15], np.float32))


def test_agnostic_weighs_all_alike() -> None:
    # 10 + ([0, 2] + [4, 6]) / 2 = 10 + [2, 4]
    stepped = step(Agnostic(), [10, 10], {1: [0, 2], 3: [4, 6]})
    np.testing.assert_array_equal(stepped, np.array([12, 14], np.float32))


def made(
    rule: Aggregator, model: float, sent: list[tuple[float, float]], bases: bool = False
) -> float:
    """The version of a model with one entry.

    Args:
        sent: for each device the entry that it sends, and the discount for its staleness.
        bases: the entries are parameters, and not updates.
    """
    contributions = [
        Contribution(f"c{n}", "g", 5, staleness=1, discount=discount)
        for n, (_, discount) in enumerate(sent)
    ]
    population = Population([c.client for c in contributions], (), [{}, {}], {}, {}, Oracle())
    cohort = Cohort(1, contributions, population, ParticipationHistory())
    weighing, total = rule.weigh(cohort, {}), ExactSum(1)
    for (entry, _), weight in zip(sent, weighing.weights, strict=True):
        total.add(np.array([entry], np.float32), weight)
    round = CountedRound(1, [], weighing, total, population, has_bases=bases)
    return float(rule.make(np.array([model], np.float32), round).model[0])


def test_fedbuff_divides_by_the_number_of_updates_so_stale_ones_make_the_step_shorter() -> None:
    # 10 + 0.5 · (1·4 + 0.5·8)/2
    assert made(FedBuff(rate=0.5), 10, [(4, 1.0), (8, 0.5)]) == 12


def test_fedavg_divides_by_the_discounted_weights() -> None:
    # 10 + (5·4 + 2.5·7)/7.5
    assert made(FedAvg(), 10, [(4, 1.0), (7, 0.5)]) == 15


def test_fedasync_mixes_what_devices_have_trained_with_the_model() -> None:
    # Shares 0.5·1/2 and 0.5·0.5/2 of the trained models, and the other 0.625 of the model itself.
    found = made(FedAsync(alpha=0.5), 10, [(20, 1.0), (8, 0.5)], bases=True)
    assert found == 0.625 * 10 + 0.25 * 20 + 0.125 * 8


def test_agnostic_offers_the_average_of_the_iterates() -> None:
    rule = Agnostic()
    state = rule.initial_state(np.zeros(1, np.float32))
    assert rule.result(state, np.array([7], np.float32)) == [7]
    for iterate in (1, 2, 6):
        state = rule.next_state(state, np.array([iterate], np.float32))
    assert rule.result(state, np.array([6], np.float32)) == [3]
    assert Agnostic(offer="last").result({}, np.array([6], np.float32)) == [6]


def test_a_rule_of_ones_own_is_named_by_module_and_class() -> None:
    server = validate(
        ServerSettings,
        {"rounds": 1, "aggregator": {"kind": "muster.server.testing:PlusOne", "extra": 2.0}},
        "test",
    )
    assert server.aggregator == PlusOne(kind="muster.server.testing:PlusOne", extra=2.0)
    assert ServerSettings.from_json(server.to_json()) == server


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("fedvag", "called 'fedvag' (did you mean 'fedavg'?); there are: aaggff-s, agnostic, "),
        ("no.such.module:Rule", "cannot import 'no.such.module'"),
        ("muster.common.errors:Rule", "has no 'Rule'"),
        ("muster.common.clock:WallClock", "expected a class derived from muster's aggregator"),
    ],
)
def test_a_rule_that_is_not_there_is_refused_with_what_is(kind: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match="aggregator") as refused:
        validate(ServerSettings, {"rounds": 1, "aggregator": kind}, "test")
    assert complaint in str(refused.value)


def test_settings_of_another_rule_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"aggregator\.offer: unknown key"):
        validate(
            ServerSettings, {"rounds": 1, "aggregator": {"kind": "fedavg", "offer": "last"}}, "test"
        )


def test_the_registry_finds_what_it_names() -> None:
    assert {AGGREGATORS.find(name) for name in BUILT_IN} == set(BUILT_IN.values())
