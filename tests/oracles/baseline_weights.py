"""The weights of incfl and aaggff-s, derived again from the losses that devices reported."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from muster.common.seeds import FloatArray
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog

_ROUNDING = 1e-9
_OPTIMUM = 1e-7
"""How far the slopes of an optimum may be from their conditions."""

_RESPONSES: Mapping[str, Callable[[float], float]] = {
    "normal": lambda x: math.erfc((1 - x) / math.sqrt(2)) / 2,
    "weibull": lambda x: -math.expm1(-x * x),
    "exponential": lambda x: -math.expm1(-x),
}
"""The responses of aaggff-s to relative losses, times the number of devices."""


@dataclass
class BaselineWeights:
    """The rounds of a run with incfl or aaggff-s so far.

    Attributes:
        settings: those of the aggregator.
        local: by client, the first loss of its own model.
        losses: by client, the newest loss of the received model.
        excess: by client, the newest difference of both.
        alpha: by client, the weights of the newest round.
        steps: the gradients of aaggff-s, each with the weights at which it was taken.
    """

    settings: Mapping[str, Any]
    local: dict[str, float] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    excess: dict[str, float] = field(default_factory=dict)
    alpha: Mapping[str, float] = field(default_factory=dict)
    steps: list[tuple[FloatArray, FloatArray]] = field(default_factory=list)

    def check(
        self, evidence: Evidence, log: CheckLog, round: int, alpha: Mapping[str, float]
    ) -> None:
        """Check the weights of a round. Rounds come in their order."""
        query = "SELECT client, received_loss, own_loss FROM valuations WHERE round = ?"
        for client, received, own in evidence.rows(query, round):
            if own is not None:
                self.local.setdefault(client, own)
            if received is not None:
                self.losses[client] = received
                if client in self.local:
                    self.excess[client] = received - self.local[client]
        if self.settings["kind"] == "incfl":
            self._check_incfl(log, round, alpha)
        else:
            self._check_newton_step(log, round, alpha)

    def _check_incfl(self, log: CheckLog, round: int, alpha: Mapping[str, float]) -> None:
        """Compare α with q/(Σ q + ε), where q = σ(x)·(1 − σ(x)) = 1/(2 + 2·cosh x)."""
        excess = {client: min(abs(self.excess.get(client, 0.0)), 700.0) for client in alpha}
        appeal = {client: 1 / (2 + 2 * math.cosh(x)) for client, x in excess.items()}
        divisor = math.fsum(appeal.values()) + self.settings["epsilon"]
        for client, found in alpha.items():
            close = abs(found - appeal[client] / divisor) <= _ROUNDING
            expected = repr(appeal[client] / divisor)
            log.require(close, "alpha", expected, found, round, client)

    def _check_newton_step(self, log: CheckLog, round: int, alpha: Mapping[str, float]) -> None:
        """Compare α with the conditions of the weights that minimise the regularised sum of all
        rounds: the slope is the same wherever a weight is positive, and nowhere smaller."""
        weights = np.array(list(alpha.values()))
        if self.losses:
            before = np.array([self.alpha.get(client, 1 / len(alpha)) for client in alpha])
            responses = self._responses(list(alpha))
            divisor = 1 + math.fsum(before * responses)
            self.steps.append((-responses / divisor, before))
        self.alpha = alpha
        slope, curvature = 4 * weights, len(weights) / 4
        for gradient, taken in self.steps:
            along = math.fsum(gradient * (weights - taken))
            slope = slope + gradient * (1 + curvature * along)
        uneven = float(slope[weights > _OPTIMUM].max() - slope.min())
        whole = abs(math.fsum(weights) - 1) <= _ROUNDING and weights.min() >= 0
        log.require(bool(whole), "sum of the weights", "1", math.fsum(weights), round)
        log.require(uneven <= _OPTIMUM, "slopes of the regret", "equal ones", uneven, round)

    def _responses(self, clients: Sequence[str]) -> FloatArray:
        known = math.fsum(self.losses.values()) / len(self.losses)
        losses = [self.losses.get(client, known) for client in clients]
        mean = math.fsum(losses) / len(losses)
        respond = _RESPONSES[self.settings["response"]]
        relative = (loss / mean if mean > 0 else 1.0 for loss in losses)
        return np.array([respond(x) / len(losses) for x in relative])
