"""The base classes of the rules for rational devices: what a device has sent stays in the model
while it declines, and devices are told their weights.

Yashwanth, Singh, Nayak, Bulusu, Chakraborty, Federated Learning by Utility-Constrained Stochastic
Aggregation for Improving Rational Participation, 2026, Algorithms 1 (stale updates) and 4 (stale
models). https://arxiv.org/abs/2605.18020
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from muster.common.exchange import Valuation
from muster.common.requirements import Requirement
from muster.common.seeds import FloatArray
from muster.common.tensors import Vector
from muster.server.aggregators.bases import Recalling
from muster.server.aggregators.facts import Cohort, Need
from muster.server.aggregators.values import Retention, State, Weighing
from muster.server.knowledge.utilities import Utilities, stays


class DeviceWeights(NamedTuple):
    """The weights that a rule gives to all enrolled devices.

    Attributes:
        alpha: α of the next version, >= 0 with a sum of at most 1, float64, shape (enrolled,).
        state: the entries of the rule's next state, without `alpha`.
        estimates, warnings: as in `Weighing`.
    """

    alpha: FloatArray
    state: State = MappingProxyType({})
    estimates: Mapping[str, Any] = MappingProxyType({})
    warnings: Sequence[str] = ()


class Retaining(Recalling):
    """A rule that gives every enrolled device k a weight α_k, also while it declines.

    With `retention = "update"` the next model is θ + Σ α_k·D_k, where D_k is the last update of
    device k, 0 before the first one. With "model" it is Σ α_k·m_k + (1 − Σ α_k)·θ, where m_k is the
    model that device k has sent last: the version that it trained from plus D_k; θ before the first
    one. A round in which nobody accepts makes a version too: last updates move the model again,
    while last models with the same weights keep it as it is.

    State:
        alpha: α of the newest version, float64, shape (enrolled,); empty before the first one.
    """

    weights: ClassVar[Literal["on-arrival", "at-close"]] = "at-close"
    discounts: ClassVar[bool] = False
    announces: ClassVar[bool] = True

    retention: Retention = "update"
    """What the server retains of a device that declines. update: its last update (Algorithm 1 of
    the paper). model: its last model (Algorithm 4)."""

    @abstractmethod
    def device_weights(self, clients: Sequence[str], cohort: Cohort, state: State) -> DeviceWeights:
        """Return the weights of the enrolled devices.

        Args:
            clients: the enrolled devices, in the order of the population.
        """

    def weigh(self, cohort: Cohort, state: State) -> Weighing:
        """See `Aggregator.weigh`."""
        people = cohort.population
        clients = [c for c, there in zip(people.clients, people.enrolled, strict=True) if there]
        chosen = self.device_weights(clients, cohort, state)
        by_client = dict(zip(clients, chosen.alpha.tolist(), strict=True))
        estimates = {"alpha": by_client, "discrepancy": discrepancy(chosen.alpha)}
        return Weighing(
            [by_client[contribution.client] for contribution in cohort.contributions],
            1.0,
            {"alpha": chosen.alpha, **chosen.state},
            {**estimates, **gains_of(cohort.valuations), **chosen.estimates},
            chosen.warnings,
            recalled=by_client,
        )

    def retains(self) -> Retention:
        return self.retention

    def announced(self, state: State, devices: int) -> FloatArray:
        alpha = state["alpha"]
        return np.asarray(alpha) if len(alpha) else equal_weights(devices)

    def initial_state(self, model: Vector) -> State:
        return {"alpha": np.zeros(0)}

    def needs(self) -> frozenset[Need]:
        return frozenset({Need.VALUATIONS})

    def requires(self) -> frozenset[Requirement]:
        of_weights = {Requirement.EVERY_WEIGHT, Requirement.OWN_PART}
        return super().requires() | of_weights | {Requirement.RATIONAL_DEVICES}


class UtilityConstrained(Retaining):
    """A rule that solves for weights at which devices stay, by the utilities that they report.

    State:
        next: the weights that were solved for the version after the newest one, in the shape of
            `alpha`.
    """

    order: Literal["lagged", "solve-first"] = "lagged"
    """lagged: a version is made with the weights that the round before has solved, as in the paper.
    solve-first: it is made with weights solved for the utilities of the same round."""

    @abstractmethod
    def solved(
        self, clients: Sequence[str], cohort: Cohort, utilities: Utilities, old: FloatArray
    ) -> DeviceWeights:
        """Solve for the weights at which devices with these utilities stay.

        Args:
            old: the weights that the round before has solved; they stay if nothing else is found.
        """

    def device_weights(self, clients: Sequence[str], cohort: Cohort, state: State) -> DeviceWeights:
        """See `Retaining.device_weights`."""
        old = state["next"] if len(state["next"]) else equal_weights(len(clients))
        utilities = utilities_of([cohort.valuations.get(client) for client in clients])
        found = self.solved(clients, cohort, utilities, np.asarray(old))
        kept = stays(utilities, found.alpha).astype(int)
        estimates = {
            "discrepancy": discrepancy(found.alpha),
            **found.estimates,
            "predicted": dict(zip(clients, kept.tolist(), strict=True)),
        }
        if self.order == "lagged":
            estimates["solved"] = dict(zip(clients, found.alpha.tolist(), strict=True))
        alpha = found.alpha if self.order == "solve-first" else np.asarray(old)
        return DeviceWeights(alpha, {"next": found.alpha}, estimates, found.warnings)

    def initial_state(self, model: Vector) -> State:
        return {"alpha": np.zeros(0), "next": np.zeros(0)}


def has_curve(valuation: Valuation | None) -> bool:
    """Whether a device has reported a utility."""
    return valuation is not None and valuation.curve is not None


def utilities_of(valuations: Sequence[Valuation | None]) -> Utilities:
    """The utilities of devices. A device that reported none has the utility 1 of its weight and the
    threshold 0, which every weight satisfies."""
    curves = [None if valuation is None else valuation.curve for valuation in valuations]
    rows = [(1e-2, 0.0, 1.0, 0.0) if curve is None else tuple(curve) for curve in curves]
    return Utilities(*np.array(rows, dtype=np.float64).T)


def gains_of(valuations: Mapping[str, Valuation]) -> dict[str, float]:
    """The number and the share of devices with a model of their own for which the received model is
    better (eq. 1 of the paper, `Valuation.gains`), whatever test they apply."""
    gains = [v.gains for v in valuations.values() if v.gains is not None]
    return {"gains": sum(gains), "gain_rate": sum(gains) / len(gains) if gains else 0.0}


def losses_of(
    clients: Sequence[str], valuations: Mapping[str, Valuation]
) -> tuple[FloatArray, FloatArray]:
    """The losses of the received model and of a device's own, each of shape (clients,); NaN if a
    device reported none."""
    known = [valuations.get(client) for client in clients]
    received = [None if v is None else v.received_loss for v in known]
    own = [None if v is None else v.own_loss for v in known]
    return np.array(received, dtype=np.float64), np.array(own, dtype=np.float64)


def discrepancy(alpha: FloatArray) -> float:
    """‖α − 1/N‖² (Lemma A.10 of the paper)."""
    return float(np.sum((alpha - 1 / len(alpha)) ** 2))


def equal_weights(devices: int) -> FloatArray:
    """1/N for each of N devices."""
    return np.full(devices, 1 / devices)
