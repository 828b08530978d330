"""The weights of the built-in rules whose weights follow from the ledger, by their formulas.

The formulas are those of docs/aggregators.md, written down again. `vector_formulas` has those that
need the updates themselves, `propensities` those that learn from earlier rounds.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from muster.common.schedules import SCHEDULES
from muster.emulator.run_audit.evidence import Evidence, Row

_CONSTANT = {"kind": "constant"}

ROUNDING = 1e-9
"""The largest relative difference between results of other arithmetic than the server's."""

_PROPENSITY = "participation_propensity"
"""The name under which a device reports its true propensity of participation, if an oracle asks."""


class WeighedRound(NamedTuple):
    """The weights of a round by formula.

    Attributes:
        weights: one for each folded update, in their order.
        normaliser: the divisor of the weighted sum.
        tolerance: the largest relative difference at which two numbers agree; 0 if they must be
            equal.
    """

    weights: Sequence[float]
    normaliser: float
    tolerance: float = 0.0


@dataclass
class RoundContext:
    """What the formulas of a run know.

    Attributes:
        settings: the settings of the aggregator.
        mode: the settings of the mode.
        enrolled: the devices that may train.
        population: all devices, by position.
        local_work: what the server knows of local training.
        oracle: the true values that the rule has asked for, by position in the population.
        heard: the devices that have taken part in a round so far.
        shares: for each device, the sum of 1/|S| over the rounds S in which it took part.
    """

    settings: Mapping[str, Any]
    mode: Mapping[str, Any]
    enrolled: Sequence[str]
    population: Sequence[str] = ()
    local_work: Mapping[str, Any] = field(default_factory=dict)
    oracle: Mapping[str, Any] = field(default_factory=dict)
    heard: set[str] = field(default_factory=set)
    shares: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, evidence: Evidence) -> "RoundContext":
        """What the formulas of a run know before its first round."""
        config = evidence.server_config
        return cls(
            evidence.rule,
            evidence.mode,
            evidence.enrolled,
            [member["client"] for member in config["population"]],
            config.get("local_work") or {},
            config.get("oracle") or {},
        )

    def learning_rate(self, round: int) -> float:
        """The learning rate of devices that were called in a round."""
        rate = self.local_work["learning_rate"]
        schedule: Any = SCHEDULES.parse(rate) if isinstance(rate, Mapping) else None
        return float(rate if schedule is None else schedule.at(round))

    def of_device(self, quantity: str, client: str) -> float:
        """A true value of a device."""
        return float(self.oracle[quantity][self.population.index(client)])

    def discount(self, row: Row) -> float:
        """The factor by which the mode lets the weight of an update fall (docs/modes.md)."""
        found = self.mode.get("staleness_weight", _CONSTANT)
        function = found if isinstance(found, Mapping) else {"kind": found}
        staleness = int(row["staleness"])
        if function["kind"] == "polynomial":
            return float((1 + staleness) ** -float(function["exponent"]))
        if function["kind"] == "threshold":
            over = max(0, staleness - int(function["limit"]))
            return 1.0 / (1.0 + float(function["slope"]) * over)
        return 1.0


Formula = Callable[[RoundContext, Sequence[Row]], WeighedRound]
"""Takes the folded updates of a round in the order of their clients."""


def _by_examples(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    weights = [float(row["examples"]) * context.discount(row) for row in rows]
    return WeighedRound(weights, math.fsum(weights))


def _fedplt(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    found = _by_examples(context, rows)
    return found._replace(normaliser=found.normaliser / context.settings["rate"])


def _alike(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    weights = [context.discount(row) for row in rows]
    return WeighedRound(weights, math.fsum(weights))


def _ones(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    return WeighedRound([1.0] * len(rows), float(len(rows)))


def _fedbuff(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    return WeighedRound(_alike(context, rows).weights, len(rows) / context.settings["rate"])


def _fedasync(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    return WeighedRound(_alike(context, rows).weights, len(rows) / context.settings["alpha"])


def _fedvarp(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    return WeighedRound([1.0] * len(rows), len(rows) / context.settings["rate"])


def _mifa(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    context.heard.update(row["client"] for row in rows)
    waits = context.settings["start"] == "wait" and len(context.heard) < len(context.enrolled)
    weights = [0.0 if waits else 1.0] * len(rows)
    return WeighedRound(weights, len(context.enrolled) / context.settings["rate"])


def _importance(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    if context.settings.get("shares") == "exact":
        scale, least = len(context.enrolled), float(context.settings["delta"])
        exact = (context.of_device("shares", row["client"]) for row in rows)
        return WeighedRound([1 / (scale * max(share, least)) for share in exact], float(len(rows)))
    for row in rows:
        share = context.shares.get(row["client"], 0.0)
        context.shares[row["client"]] = share + 1 / len(rows)
    devices, least = len(context.enrolled), float(context.settings["delta"])
    shares = (context.shares[row["client"]] / row["round"] for row in rows)
    return WeighedRound([1 / (devices * max(share, least)) for share in shares], float(len(rows)))


def _weighted(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    if (given := context.settings.get("p")) is not None:
        shares = [float(share) for share in given]
    else:  # they sum to the probability that a round is not empty
        total = math.fsum(context.oracle["shares"])
        shares = [share / total for share in context.oracle["shares"]]
    weights = [shares[context.population.index(row["client"])] for row in rows]
    divisor = math.fsum(weights)
    if context.settings["kind"] == "weighted":
        divisor = len(rows) / len(context.enrolled)
    return WeighedRound(weights, divisor, ROUNDING)


def _fednova(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    """n_i/‖a_i‖₁, where a_i are the factors of the gradients of the local steps, added one by one
    (the rule has a closed form)."""
    sizes = [row["examples"] * context.discount(row) for row in rows]
    steps = [_gradient_factors(context, row) for row in rows]
    effective = context.settings.get("effective_steps")
    if effective is None:
        effective = math.fsum(n * a for n, a in zip(sizes, steps, strict=True)) / math.fsum(sizes)
    weights = [n / a for n, a in zip(sizes, steps, strict=True)]
    return WeighedRound(weights, math.fsum(sizes) / effective, ROUNDING)


def _gradient_factors(context: RoundContext, row: Row) -> float:
    """Σ a_k over the local steps of an update."""
    momentum = float(context.local_work.get("momentum") or 0.0)
    pull = float(context.local_work.get("proximal_mu") or 0.0)
    if momentum:  # the gradient of step k is in the velocity of all steps from k on
        return math.fsum(
            momentum**later for k in range(row["steps"]) for later in range(row["steps"] - k)
        )
    kept = 1 - pull * context.learning_rate(row["call_round"])
    return math.fsum(kept**later for later in range(row["steps"]))


def _oracle_ipw(context: RoundContext, rows: Sequence[Row]) -> WeighedRound:
    weights, floor = [], float(context.settings["floor"])
    for row in rows:
        reported = float((json.loads(row["x"]) if row["x"] else {}).get(_PROPENSITY, 0.0))
        enrolled = max(context.of_device("enrollment", row["client"]), floor)
        weights.append(1 / (enrolled * max(reported, floor)) if reported > 0 else 0.0)
    return by_inverse(context, weights, float(len(context.population)))


def by_inverse(context: RoundContext, weights: Sequence[float], estimated: float) -> WeighedRound:
    """Weights by inverse propensities, with the divisor that `normalise` chooses.

    Args:
        estimated: the number of devices that the sum of the weights estimates.
    """
    hajek = context.settings["normalise"] == "hajek"
    return WeighedRound(weights, math.fsum(weights) if hajek else estimated, ROUNDING)


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "fedavg": _by_examples,
        "fedplt": _fedplt,
        "fedavgm": _by_examples,
        "fedadagrad": _by_examples,
        "fedadam": _by_examples,
        "fedyogi": _by_examples,
        "agnostic": _alike,
        "fedbuff": _fedbuff,
        "fedasync": _fedasync,
        "fedvarp": _fedvarp,
        "mifa": _mifa,
        "median": _ones,
        "scaffold": _ones,
        "trimmed-mean": _ones,
        "importance": _importance,
        "weighted": _weighted,
        "weighted-normalised": _weighted,
        "fednova": _fednova,
        "oracle-ipw": _oracle_ipw,
    }
)
"""The formulas by the names of the rules."""
