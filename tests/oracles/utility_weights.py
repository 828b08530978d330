"""The weights of rational devices, derived again from the utilities that they reported.

The server solves problem 7 of FedUCA by interior points. Here the solution is certified instead
(`strategy_optimum`). The weights of max-participation are compared with the conditions of an
optimum.

Yashwanth et al., Federated Learning by Utility-Constrained Stochastic Aggregation for Improving
Rational Participation, 2026, problem 7. https://arxiv.org/abs/2605.18020
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.oracles.baseline_weights import BaselineWeights
from tests.oracles.next_model import RECALLING
from tests.oracles.strategy_optimum import ProblemSeven

from muster.common.seeds import BoolArray, FloatArray, stream
from muster.emulator.run_audit.evidence import Evidence
from muster.emulator.run_audit.result import CheckLog

_ROUNDING = 1e-9
_COLUMNS = 1e-6
"""How far the sums of columns may be from their values."""

_GAP = 5e-5
"""The largest difference of the objective from its optimum if λ = 0, with which α is not unique."""

_APART = 0.05
"""How far α may be from that of the optimum, as a share of the largest amount by which equal
weights miss a threshold. The bound on it was 2e-6 to 3e-3 in the median, and at most 0.02, over
random problems of 3 to 500 devices."""

_NO_CURVE = (1e-2, 0.0, 1.0, 0.0)
"""The utility that counts for a device that has reported none."""


@dataclass(frozen=True)
class RoundWeights:
    """What the ledger has of the weights of a round, in the order of the enrolled devices.

    Attributes:
        alpha: the weights of the version that the round has made, shape (N,).
        solved: the weights that the round has solved, in the same shape.
        curves: a, b, c and γ of each device, shape (N, 4).
        reported: whether the device has reported them, shape (N,).
        estimates: all estimates of the round, by name.
    """

    round: int
    clients: Sequence[str]
    alpha: FloatArray
    solved: FloatArray
    curves: FloatArray
    reported: BoolArray
    estimates: Mapping[str, Any]

    @classmethod
    def of(cls, evidence: Evidence, round: int) -> "RoundWeights | None":
        """Read the weights of a round; None if the ledger has not those of all devices."""
        estimates, clients = evidence.estimates(round), evidence.enrolled
        alpha = estimates.get("alpha", {})
        solved = estimates.get("solved", alpha)
        if list(alpha) != clients or list(solved) != clients:
            return None
        query = "SELECT client, a, b, c, threshold FROM valuations WHERE round = ?"
        rows = {row[0]: tuple(row)[1:] for row in evidence.rows(query, round)}
        curves = [rows.get(client, _NO_CURVE) for client in clients]
        known = [_NO_CURVE if None in curve else curve for curve in curves]
        vectors = [np.array(list(table.values())) for table in (alpha, solved)]
        shown = np.array(known, dtype=np.float64)
        reported = np.array([client in rows and None not in rows[client] for client in clients])
        return cls(round, clients, vectors[0], vectors[1], shown, reported, estimates)

    def utilities(self, weights: FloatArray) -> FloatArray:
        """u_k(r) at weights of shape (…, N)."""
        a, b, c, _ = self.curves.T
        return np.asarray((b - a * weights) * weights + c)

    def of_devices(self, name: str) -> FloatArray:
        """An estimate by client, shape (N,)."""
        table = self.estimates.get(name, {})
        return np.array([table.get(client, math.nan) for client in self.clients])

    def intervals(self) -> tuple[FloatArray, FloatArray]:
        """Where utilities reach thresholds, by the quadratic formula; NaN where they never do."""
        a, b, c, threshold = self.curves.T
        with np.errstate(invalid="ignore"):
            root = np.sqrt(b * b - 4 * a * (threshold - c) + _ROUNDING**2)
        low, high = np.maximum((b - root) / (2 * a), 0), np.minimum((b + root) / (2 * a), 1)
        there = low <= high + _ROUNDING
        return np.where(there, low, np.nan), np.where(there, np.maximum(low, high), np.nan)


def check_utility_weights(evidence: Evidence, log: CheckLog) -> None:
    """The weights of all devices follow from what they reported in the rounds."""
    kind = evidence.rule["kind"]
    if kind not in RECALLING:
        log.skip("the aggregator gives weights to updates, not to all devices")
        return
    before = np.full(len(evidence.enrolled), 1 / len(evidence.enrolled))
    baseline = BaselineWeights(evidence.rule)
    for row in evidence.rows("SELECT round FROM rounds ORDER BY round"):
        weights = RoundWeights.of(evidence, row["round"])
        if weights is None:
            log.require(
                False, "alpha", "a weight for every enrolled device", "others", row["round"]
            )
            return
        for update in evidence.folded(weights.round):
            alpha = weights.alpha[weights.clients.index(update["client"])]
            log.compare("weight", alpha, update["weight"], weights.round, update["client"])
        if kind == "rational-fedavg":
            _compare(log, weights, "alpha", np.full_like(before, 1 / len(before)), weights.alpha)
        if kind in ("feduca", "max-participation"):
            _check_solved(evidence, log, weights, before)
        if kind in ("incfl", "aaggff-s"):
            baseline.check(evidence, log, weights.round, weights.estimates["alpha"])
        before = weights.solved


def _check_solved(
    evidence: Evidence, log: CheckLog, weights: RoundWeights, before: FloatArray
) -> None:
    if evidence.rule["order"] == "lagged":
        _compare(log, weights, "alpha, solved in the round before", before, weights.alpha)
    stays = weights.utilities(weights.solved) >= weights.curves[:, 3]
    _compare(log, weights, "predicted", stays.astype(float), weights.of_devices("predicted"))
    _check_number(log, weights, "discrepancy", np.sum((weights.solved - 1 / len(before)) ** 2))
    _check_attainable(log, weights, int(stays.sum()))
    if evidence.rule["kind"] == "max-participation":
        _check_nearest(log, weights)
    else:
        _check_strategies(evidence, log, weights, before)


def _check_attainable(log: CheckLog, weights: RoundWeights, kept: int) -> None:
    """No weights keep more devices than the smallest weights at which they stay allow."""
    low, _ = weights.intervals()
    sums = np.cumsum(np.sort(low[~np.isnan(low)]))
    margin = 1e-6  # a threshold may be the utility of a weight, up to rounding
    least, most = ((sums <= 1 + over).sum() for over in (-margin, margin))
    found = weights.estimates.get("attainable", -1)
    log.require(max(kept, least) <= found <= most, "attainable",
                f"from {max(kept, least)} to {most}", found, weights.round)  # fmt: skip


def _check_nearest(log: CheckLog, weights: RoundWeights) -> None:
    """The weights of max-participation keep the attainable number, and are the nearest to equal
    ones that do: no weight that may fall is larger than one that may rise."""
    alpha, (low, high) = weights.solved, weights.intervals()
    kept = weights.of_devices("predicted") > 0
    log.compare("attainable", weights.estimates.get("attainable"), int(kept.sum()), weights.round)
    rest = 1 - math.fsum(alpha)
    log.require(-1e-8 <= rest, "sum of the weights", "at most 1", 1 - rest, weights.round)
    least, most = np.where(kept, low, 0.0), np.where(kept, high, 1.0)
    log.require(rest < 1e-8 or bool((alpha >= most - 1e-6).all()), "sum of the weights",
                "1, unless no device may have more", 1 - rest, weights.round)  # fmt: skip
    may_fall, may_rise = alpha[alpha > least + 1e-6], alpha[alpha < most - 1e-6]
    uneven = may_fall.max(initial=-np.inf) - may_rise.min(initial=np.inf)
    log.require(uneven <= 1e-8, "weights that could be more equal", "none", uneven, weights.round)


def _check_strategies(
    evidence: Evidence, log: CheckLog, weights: RoundWeights, before: FloatArray
) -> None:
    """Check the mixture, and the matrix R against the conditions and the optimum of problem 7."""
    round, clients = weights.round, len(weights.clients)
    settings = evidence.rule
    count = min(settings["strategies"], clients)
    draws = stream(evidence.server_config["seed"], "aggregation", round)
    drawn = np.maximum(draws.dirichlet([settings["concentration"]] * count), 1e-9)
    mixture = np.array(list(weights.estimates.get("mixture", {}).values()))
    agrees = len(mixture) == count and np.allclose(mixture, drawn / drawn.sum(), atol=_ROUNDING)
    log.require(
        bool(agrees), "mixture", "that of the seed", weights.estimates.get("mixture"), round
    )
    if "strategies" not in weights.estimates:
        _compare(log, weights, "alpha, kept because no solver succeeded", before, weights.solved)
        return
    tables = weights.estimates.get("strategies", {}).values()
    matrix = np.array([list(table.values()) for table in tables])
    if not agrees or matrix.shape != (count, clients):
        log.require(False, "strategies", f"{count} rows for {clients} devices", matrix.shape, round)
        return
    off = np.abs(matrix.sum(axis=1) - 1).max() + max(0.0, -matrix.min())
    log.require(off <= _ROUNDING, "rows of the strategies", "weights with the sum 1", off, round)
    if count > 1:
        off = np.abs(matrix.sum(axis=0) - count / clients).max()
        log.require(off <= _COLUMNS, "columns of the strategies", f"the sum {count / clients:g}",
                    off, round)  # fmt: skip
    problem = ProblemSeven(weights.curves, mixture, settings["slack"], settings["regularization"])
    if problem.spread > 0:
        apart, allowed = problem.distance(matrix), _APART * problem.scale() + _ROUNDING
        log.require(apart <= allowed, "α, from the optimum of problem 7",
                    f"at most {allowed:g} away", apart, round)  # fmt: skip
    else:
        gap = problem.gap(matrix)
        log.require(gap <= _GAP, "objective of problem 7 above its optimum",
                    f"at most {_GAP:g}", gap, round)  # fmt: skip
    _check_mixed(log, weights, mixture, matrix, settings["slack"])


def _check_mixed(
    log: CheckLog, weights: RoundWeights, mixture: FloatArray, matrix: FloatArray, slack: float
) -> None:
    """Check the weights that follow from R, or those of the fallback, and the estimates of them."""
    alpha, threshold = mixture @ matrix, weights.curves[:, 3]
    above = (weights.utilities(alpha) - threshold)[weights.reported]
    nearest = above.max(initial=-math.inf)
    fallback = weights.estimates.get("fallback")
    nobody = nearest <= _ROUNDING if fallback else nearest < -_ROUNDING
    right = bool(nobody) == bool(fallback)
    log.require(right, "fallback", "one if and only if nobody stays", fallback, weights.round)
    expected = mixture @ weights.utilities(matrix)
    if fallback:
        alpha = _fallback_weights(weights, str(fallback), len(mixture))
        expected = weights.utilities(alpha)
    _compare(log, weights, "alpha, from strategies and mixture", alpha, weights.solved)
    gap, missing = weights.utilities(alpha) - expected, threshold + slack - expected
    _compare(log, weights, "jensen_gap", gap, weights.of_devices("jensen_gap"))
    found = weights.of_devices("missing_utility")
    _compare(log, weights, "missing_utility", np.maximum(missing, 0), found)
    if len(mixture) > 1:
        squares = len(mixture) * math.fsum(share * share for share in mixture)
        bound = ((len(mixture) if fallback else squares) - 1) / len(alpha)
        _check_number(log, weights, "discrepancy_bound", bound)
        holds = weights.estimates["discrepancy"] <= bound + 1e-5
        log.require(holds, "discrepancy", f"at most {bound:g}",
                    weights.estimates["discrepancy"], weights.round)  # fmt: skip


def _fallback_weights(weights: RoundWeights, chosen: str, strategies: int) -> FloatArray:
    """The weights that keep one device, and equal ones for the others."""
    clients = len(weights.clients)
    if chosen not in weights.clients:
        return np.full(clients, 1 / clients)
    place, (low, high) = weights.clients.index(chosen), weights.intervals()
    a, b, _, _ = weights.curves[place]
    weight = min(max(b / (2 * a), low[place]), high[place], strategies / clients)
    alpha = np.full(clients, (1 - weight) / max(clients - 1, 1))
    alpha[place] = weight
    return alpha


def _compare(
    log: CheckLog, weights: RoundWeights, what: str, expected: FloatArray, found: FloatArray
) -> None:
    for client, right, value in zip(weights.clients, expected, found, strict=True):
        close = abs(right - value) <= _ROUNDING
        log.require(bool(close), what, repr(float(right)), float(value), weights.round, client)


def _check_number(log: CheckLog, weights: RoundWeights, name: str, expected: float) -> None:
    found = weights.estimates.get(name, math.nan)
    close = abs(expected - found) <= _ROUNDING
    log.require(bool(close), name, repr(float(expected)), found, weights.round)
