"""Scaffold by hand: what the server makes of two vectors, and what a device makes of its own."""

from typing import ClassVar

import numpy as np

from muster.client.training.control_variates import Control
from muster.client.training.trainer import Trained
from muster.common.tensors import Vector
from muster.server.aggregators import AGGREGATORS, Cohort, Conditions, Contribution
from muster.server.aggregators.fedavg import FedAvg
from muster.server.aggregators.scaffold import Scaffold
from muster.server.fleet.devices import EnrolledDevice
from muster.server.knowledge.participation import ParticipationHistory
from muster.server.knowledge.population import Oracle, Population


def vector(*entries: float) -> Vector:
    return np.array(entries, np.float32)


def test_the_server_takes_a_mean_of_updates_and_a_share_of_the_changes() -> None:
    rule = AGGREGATORS.parse({"kind": "scaffold", "rate": 0.5})
    assert isinstance(rule, Scaffold)
    clients = ["a", "b", "c", "d", "e"]
    enrolled = {c: EnrolledDevice(c, "g", n, 9) for n, c in enumerate(clients[:4])}
    population = Population(clients, (), [None] * 5, enrolled, {}, Oracle())
    state = rule.initial_state(vector(7, 7))
    assert rule.control_variate(state).tolist() == [0, 0]
    contributions = [Contribution("a", "g", 1, 0), Contribution("c", "g", 8, 0)]
    cohort = Cohort(1, contributions, population, ParticipationHistory())
    for _ in range(2):
        weighing = rule.weigh(cohort, state)
        assert (weighing.weights, weighing.normaliser) == ([1, 1], 2)
        # Updates (2, 0) and (4, 2); changes (1, 0) and (3, −4).
        mean = np.array([2 + 4, 0 + 2, 1 + 3, 0 - 4]) / 2
        step, state = rule.step(mean, weighing.state)
        assert step.tolist() == [1.5, 0.5]
    # Twice (1 + 3, 0 − 4) / 4, because four devices are enrolled.
    assert rule.control_variate(state).tolist() == [2, -2]
    assert rule.control_variate(state).dtype == np.float32


def test_a_rule_of_ones_own_with_control_variates_needs_a_step() -> None:
    class Controlled(FedAvg):
        control: ClassVar[bool] = True

    nowhere = Conditions(frozenset(), frozenset(), True, "all", True, False)
    assert list(Scaffold(kind="scaffold").refusals(nowhere)) == []
    (said,) = Controlled(kind="own").refusals(nowhere)
    assert "derive its class from muster.server.aggregators.Stepping" in said


def test_a_device_replaces_its_control_variate_by_its_mean_gradient() -> None:
    control = Control(server=vector(1, 0), own=vector(0.5, 0.5))
    assert control.correction().tolist() == [0.5, -0.5]
    # Two steps of 0.5: −c − Δ/(2 · 0.5). The mean corrected gradient is (2, −1), so that of the
    # device is (2, −1) − c + c_i = (1.5, −0.5), which c_i + Δc_i is.
    trained = Trained(vector(-2, 1), examples=3, loss=0.0, train_steps=2)
    change = control.change(trained, rate=0.5)
    assert change.tolist() == [1, -1]
    assert (control.own + change).tolist() == [1.5, -0.5]
    idle = Trained(vector(0, 0), examples=0, loss=0.0, train_steps=0)
    assert control.change(idle, rate=0.5).tolist() == [0, 0]
    assert Control.of(vector(1, 2), b"").own.tolist() == [0, 0]
    assert Control.of(vector(1, 2), vector(3, 4).tobytes()).own.tolist() == [3, 4]
