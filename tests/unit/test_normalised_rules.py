"""fednova and q-fedavg, against formulas of their papers written out in NumPy."""

from typing import Any

import numpy as np
import pytest

from muster.client.training.optimizers import Sgd
from muster.client.training.settings import GroupTraining, Training
from muster.common.config import validate
from muster.common.errors import ConfigError
from muster.common.exact_sum import BLOCK, ExactSum, apply, squared_norm
from muster.common.schedules import Inverse
from muster.emulator.scenario.local_work import most_steps
from muster.emulator.scenario.scenario import Scenario
from muster.server.aggregators import Aggregator, Cohort, Contribution
from muster.server.aggregators.fednova import FedNova
from muster.server.aggregators.q_fedavg import QFedAvg
from muster.server.knowledge.local_work import LocalWork
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Oracle, Population


def step(
    rule: Aggregator, model: np.ndarray, contributions: list[Contribution], deltas: np.ndarray
) -> np.ndarray:
    """One round by the contract's loop."""
    members = [contribution.client for contribution in contributions]
    population = Population(members, (), [{} for _ in members], {}, {}, Oracle())
    weighing = rule.weigh(Cohort(1, contributions, population, ParticipationHistory()), {})
    total = ExactSum(len(model))
    for delta, weight in zip(deltas, weighing.weights, strict=True):
        total.add(delta, weight)
    return apply(model, total, keep=1.0, scale=1.0, normaliser=weighing.normaliser)


def gradients_of_a_run(steps: int, rho: float, alpha: float) -> np.ndarray:
    """The vector a of an update: what the update is, in units of −η, if only the k-th stochastic
    gradient is 1 and the others are 0, by taking the local steps."""
    a = np.zeros(steps)
    for k in range(steps):
        moved, v = 0.0, 0.0  # moved = (received − θ)/η
        for number in range(steps):
            gradient = float(number == k) - alpha * moved
            v = rho * v + gradient
            moved += v
        a[k] = moved
    return a


@pytest.mark.parametrize("steps", [1, 2, 7, 30])
@pytest.mark.parametrize(("rho", "alpha"), [(0.0, 0.0), (0.9, 0.0), (0.5, 0.0), (0.0, 0.2)])
def test_effective_steps_are_the_norm_of_the_weights_of_gradients(
    steps: int, rho: float, alpha: float
) -> None:
    work = LocalWork(learning_rate=0.1, momentum=rho, proximal_mu=alpha / 0.1)
    a = gradients_of_a_run(steps, rho, alpha)
    assert (a >= 0).all()
    assert work.effective_steps(steps, 1) == pytest.approx(np.abs(a).sum(), rel=1e-12)


def test_effective_steps_follow_the_learning_rate_of_the_round_of_the_call() -> None:
    schedule = Inverse(kind="inverse", initial=0.4, shift=1.0)  # 0.4, 0.2, …
    work = LocalWork(learning_rate=schedule, proximal_mu=2.0)
    assert work.effective_steps(2, 1) == pytest.approx(1 + 0.2)
    assert work.effective_steps(2, 2) == pytest.approx(1 + 0.6)


def random_round(seed: int) -> tuple[np.ndarray, list[Contribution], np.ndarray]:
    random = np.random.default_rng(seed)
    contributions = [
        Contribution(
            f"c{i}",
            "g",
            examples=int(random.integers(1, 100)),
            staleness=0,
            discount=float(random.uniform(0.2, 1)),
            effective_steps=float(random.integers(1, 40)),
            initial_loss=float(random.uniform(0, 5)),
            learning_rate=0.05,
        )
        for i in range(6)
    ]
    deltas = random.standard_normal((6, 3)).astype(np.float32)
    contributions = [
        c._replace(squared_norm=float((d.astype(np.float64) ** 2).sum()))
        for c, d in zip(contributions, deltas, strict=True)
    ]
    return random.standard_normal(3).astype(np.float32), contributions, deltas


@pytest.mark.parametrize("effective", [None, 5.0])
def test_fednova_is_equation_9(effective: float | None) -> None:
    model, contributions, deltas = random_round(1)
    # d_i = −Δ_i/(η‖a_i‖₁), and x ← x − τ_eff Σ p_i η d_i
    eta = 0.05
    norms = np.array([c.effective_steps for c in contributions])
    d = -deltas / (eta * norms[:, None])
    p = np.array([c.examples * c.discount for c in contributions])
    p = p / p.sum()
    tau = effective or float(p @ norms)
    np.testing.assert_allclose(
        step(FedNova(effective_steps=effective), model, contributions, deltas),
        model - tau * eta * (p @ d),
        rtol=1e-6,
    )


def test_fednova_is_fedavg_if_all_devices_take_as_many_steps() -> None:
    model, contributions, deltas = random_round(2)
    same = [c._replace(effective_steps=7.0, discount=1.0) for c in contributions]
    expected = model + np.average(deltas, axis=0, weights=[c.examples for c in same])
    np.testing.assert_allclose(step(FedNova(), model, same, deltas), expected, rtol=1e-5)


@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("smoothness", [None, 3.0])
def test_q_fedavg_is_algorithm_2(q: float, smoothness: float | None) -> None:
    model, contributions, deltas = random_round(3)
    big_l = smoothness or 1 / 0.05
    numerator, denominator = np.zeros(3), 0.0
    for c, delta in zip(contributions, deltas, strict=True):
        delta_w = big_l * -delta.astype(np.float64)  # L (w^t − w̄_k)
        f = c.initial_loss
        numerator += c.discount * f**q * delta_w
        h = q * f ** (q - 1) * (delta_w @ delta_w) + big_l * f**q
        denominator += c.discount * h
    np.testing.assert_allclose(
        step(QFedAvg(q=q, smoothness=smoothness), model, contributions, deltas),
        model - numerator / denominator,
        rtol=1e-5,
    )


def test_q_fedavg_bears_losses_of_any_size() -> None:
    model, contributions, deltas = random_round(4)
    for losses in ([0.0] * 6, [1e300] * 6, [0.0, 1e-300, 1.0, 1e300, 2.0, 1e150]):
        lost = [
            c._replace(initial_loss=loss) for c, loss in zip(contributions, losses, strict=True)
        ]
        for q in (0.1, 1000.0):
            assert np.isfinite(step(QFedAvg(q=q), model, lost, deltas)).all()


def test_a_squared_norm_is_that_of_all_blocks() -> None:
    vector = np.random.default_rng(1).standard_normal(2 * BLOCK + 7).astype(np.float32)
    found = squared_norm(lambda start, stop: vector[start:stop], len(vector))
    assert found == pytest.approx(float((vector.astype(np.float64) ** 2).sum()), rel=1e-14)


def scenario(aggregator: str, **training: Any) -> Scenario:
    return validate(
        Scenario,
        {
            "name": "refused",
            "task": {"name": "quadratic", "dimension": 2},
            "training": training,
            "server": {"rounds": 1, "aggregator": aggregator},
            "groups": [{"name": "g", "count": 2}],
        },
        "test",
    )


@pytest.mark.parametrize(
    ("training", "found"),
    [
        ({"optimizer": "adam"}, "training.optimizer = 'adam'"),
        ({"optimizer": {"kind": "sgd", "momentum": 0.9, "nesterov": True}}, "nesterov"),
        ({"optimizer": {"kind": "sgd", "weight_decay": 0.1}}, "weight_decay"),
        (
            {"optimizer": {"kind": "sgd", "momentum": 0.9}, "proximal_mu": 1.0},
            "momentum together with training.proximal_mu",
        ),
        ({"proximal_mu": 20.0}, "proximal_mu · learning_rate = 2"),
        ({"gradient": True}, "training.gradient"),
        ({"projection_radius": 1.0}, "training.projection_radius"),
        ({"clip_update": 1.0}, "training.clip_update"),
        ({"local_steps": 0}, "local_steps = 0"),
        ({"trainer": "muster.client.training.local:train"}, "training.trainer"),
    ],
)
def test_fednova_refuses_training_whose_weights_of_gradients_are_not_known(
    training: dict[str, Any], found: str
) -> None:
    with pytest.raises(ConfigError, match=r"server\.aggregator: fednova needs") as refused:
        scenario("fednova", **training)
    assert found in str(refused.value)


def test_fednova_takes_momentum_or_a_proximal_term() -> None:
    assert scenario("fednova", proximal_mu=1.0).local_work.proximal_mu == 1.0
    momentum = {"kind": "sgd", "momentum": 0.9}
    assert scenario("fednova", optimizer=momentum).local_work.momentum == 0.9


def test_q_fedavg_refuses_gradients() -> None:
    with pytest.raises(ConfigError, match="q-fedavg needs updates of local training"):
        scenario("q-fedavg", gradient=True)


def with_rate(aggregator: Any, rate: Any, **training: Any) -> Scenario:
    """Two groups, of which the second has a learning rate of its own."""
    values = {
        "name": "rates",
        "task": {"name": "linear"},
        "training": training,
        "server": {"rounds": 1, "aggregator": aggregator},
        "groups": [
            {"name": "a", "count": 2},
            {"name": "b", "count": 2, "training": {"learning_rate": rate}},
        ],
    }
    return validate(Scenario, values, "test")


@pytest.mark.parametrize(
    ("aggregator", "training", "why"),
    [
        ("fednova", {}, "found groups.training.learning_rate"),
        ("scaffold", {}, "found groups.training.learning_rate"),
        (
            "q-fedavg",
            {},
            r"learning rate of training, but groups\[1\] has its own, 0.5; .*smoothness",
        ),
        ("fedavg", {"gradient": True}, r"learning_rate of groups\[1\] has nothing to act on"),
    ],
)
def test_a_rule_that_knows_one_rate_refuses_others(
    aggregator: str, training: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        with_rate(aggregator, 0.5, **training)


def test_other_rules_take_a_rate_for_each_group() -> None:
    assert not with_rate("fednova", 0.1).local_work.other
    assert with_rate({"kind": "q-fedavg", "smoothness": 2.0}, 0.5)
    found = with_rate("fedavg", {"kind": "inverse", "initial": 0.5}).groups[1].training
    assert Training().of(found).learning_rate_at(2) == 0.25


@pytest.mark.parametrize(
    ("training", "held", "steps"),
    [
        ({"local_steps": 7}, 100, 7),
        ({"local_epochs": 3, "batch_size": 32}, 100, 12),
        ({"local_epochs": 3, "batch_size": "full"}, 100, 3),
        ({"batch_size": 1000}, 100, 1),
        ({"local_epochs": 2}, 0, 0),
    ],
)
def test_the_steps_of_a_device_follow_from_its_examples(
    training: dict[str, Any], held: int, steps: int
) -> None:
    assert Training(**training).steps(held) == steps


def test_a_group_may_train_longer() -> None:
    epochs = Training(local_epochs=2, batch_size=10)
    assert epochs.of(GroupTraining()) is epochs
    other = Training(local_steps=5).of(GroupTraining(batch_size=7, learning_rate=0.5))
    assert (other.local_steps, other.batch_size, other.learning_rate_at(9)) == (5, 7, 0.5)
    assert other.minibatch(100) == 7
    assert epochs.of(GroupTraining(local_steps=5)).steps(100) == 5
    assert Training(local_steps=5, batch_size=10).of(GroupTraining(local_epochs=3)).steps(100) == 30
    assert Training(local_steps=5).of(GroupTraining(local_epochs=3)).examples_seen(100) == 300


def test_optimizer_and_clipping_may_differ_in_a_group() -> None:
    usual = Training(clip_norm=1.0, proximal_mu=0.5, optimizer=Sgd(kind="sgd", momentum=0.9))
    values = {"optimizer": {"kind": "adam", "weight_decay": 0.1}, "proximal_mu": 0}
    own = validate(GroupTraining, values, "test")
    found = usual.of(GroupTraining.from_json(own.to_json()))
    assert found.optimizer.to_json() == own.given["optimizer"].to_json()
    assert (found.clip_norm, found.proximal_mu, found.local_epochs) == (1.0, 0.0, 1)
    assert usual.of(GroupTraining(clip_norm=2.0)).clip_norm == 2.0


def test_a_length_is_given_once() -> None:
    with pytest.raises(ConfigError, match="local_steps and local_epochs both say"):
        validate(GroupTraining, {"local_steps": 1, "local_epochs": 1}, "test")


def test_the_server_knows_how_many_steps_each_device_can_take() -> None:
    training = Training(local_epochs=2, batch_size=10)
    assert most_steps(training, 95) == 20
    assert most_steps(training.of(GroupTraining(local_steps=3)), 95) == 3
    own = training.model_copy(update={"trainer": object()})
    assert most_steps(own, 95) is None
