"""The weights of the rules that learn propensities from earlier rounds, learned again.

The regression is that of docs/aggregators.md, a logistic one with a light ridge on standardised
columns. Its minimum is unique, so another method must find the same: Newton's steps in NumPy here,
scikit-learn in the server.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from tests.oracles.formulas import RoundContext, WeighedRound, by_inverse

from muster.common.seeds import FloatArray
from muster.emulator.run_audit.evidence import Evidence, Row

LEARNING = ("participation-ipw", "fedipw")
"""The rules whose weights are learned again."""

_TOLERANCE = 1e-5
"""The largest relative difference of two weights, whose regressions both stop near the minimum."""

_STEPS = 100


def unlearnable(settings: Mapping[str, Any]) -> str | None:
    """Why the propensities of a rule cannot be learned again; None if they can."""
    for stage in ("participation", "enrollment"):
        kind = settings.get(stage, {}).get("classifier", {}).get("kind", "logistic")
        if kind != "logistic":
            return f"the classifier {kind!r} of {stage} is not one that the audit has"
    return None


@dataclass(frozen=True)
class _Curve:
    """A logistic curve: P = 1 / (1 + exp(−(c₀ + Σ c_j·x_j)))."""

    constant: float
    slopes: FloatArray

    def chance(self, features: FloatArray) -> FloatArray:
        return np.asarray(1 / (1 + np.exp(-(self.constant + features @ self.slopes))))


def fit_curve(features: FloatArray, taken: FloatArray, ridge: float) -> _Curve:
    """Minimise the logistic loss of n rows plus ½·ridge·Σ c² on standardised columns."""
    rows, count = len(features), float(taken.sum())
    centre, spread = features.mean(axis=0), features.std(axis=0)
    spread[spread <= 1e-12 * np.abs(features).max(axis=0, initial=0.0)] = 1.0
    x = np.column_stack([np.ones(rows), (features - centre) / spread])
    if count in (0, rows) or not features.shape[1]:
        add = 0.5 if count in (0, rows) else 0.0
        return _Curve(math.log((count + add) / (rows - count + add)), np.zeros(features.shape[1]))
    weights, penalty = np.zeros(x.shape[1]), np.full(x.shape[1], ridge)
    penalty[0] = 0.0
    for _ in range(_STEPS):
        weights = _newton(x, taken, weights, penalty)
    slopes = weights[1:] / spread
    return _Curve(float(weights[0] - centre @ slopes), slopes)


def _newton(x: FloatArray, taken: FloatArray, weights: FloatArray, penalty: FloatArray) -> Any:
    """One step of Newton's method, shortened until it lowers the loss."""

    def loss(at: FloatArray) -> float:
        odds = x @ at
        return float((np.logaddexp(0, odds) - taken * odds).sum() + (penalty * at**2).sum() / 2)

    chance = 1 / (1 + np.exp(-(x @ weights)))
    slope = x.T @ (chance - taken) + penalty * weights
    curvature = (x.T * (chance * (1 - chance))) @ x + np.diag(penalty)
    step, length = np.linalg.lstsq(curvature, slope, rcond=None)[0], 1.0
    while length > 1e-6 and loss(weights - length * step) > loss(weights):
        length /= 2
    return weights - length * step if length > 1e-6 else weights


class _Seen(NamedTuple):
    """A device in a round, with what the server knew of it."""

    round: int
    client: str
    taken: bool
    features: Sequence[float]


@dataclass
class LearnedPropensities:
    """The propensities of a run, learned in the rounds in which its rule has learned them."""

    evidence: Evidence
    context: RoundContext
    _seen: list[_Seen] = field(default_factory=list)
    _learned: int = 0
    _participation: _Curve | None = None
    _enrollment: _Curve | None = None

    def weigh(self, round: int, rows: Sequence[Row]) -> WeighedRound:
        """The weights of a round by formula. Rounds come in their order."""
        settings, clients = self.context.settings, [row["client"] for row in rows]
        stage, floor = settings["participation"], float(settings["floor"])
        if not self._seen:
            self._seen = list(self._participants(stage))
        if round >= max(self._learned + 1, math.ceil(self._learned * stage["refit_growth"] - 1e-9)):
            past = [seen for seen in self._seen if seen.round <= round]
            self._participation = _fitted(past, stage)
            self._learned = round if self._participation is not None else 0
        here = {seen.client: seen.features for seen in self._seen if seen.round == round}
        chances = _chances(self._participation, [here.get(client) for client in clients])
        product = np.maximum(chances, floor)
        if settings["kind"] == "fedipw":
            product = product * np.maximum(self._enrolling(clients), floor)
        weights = np.where(np.isfinite(chances), 1 / product, 0.0).tolist()
        whole = settings["kind"] == "fedipw"
        devices = len(self.context.population) if whole else len(self.context.enrolled)
        return by_inverse(self.context, weights, float(devices))._replace(tolerance=_TOLERANCE)

    def _participants(self, stage: Mapping[str, Any]) -> Iterator[_Seen]:
        """Every enrolled device in every round that could call it."""
        config, z = self.evidence.server_config, self._covariates()
        names = dict.fromkeys(name for group in config["x"].values() for name in group)
        z_names, x_names = _chosen(config["z"], stage), [*_chosen(names, stage, "x")]
        query = (
            'SELECT a.round, a.client, a.x, k."group", c.client IS NOT NULL AS taken FROM answers '
            "a JOIN clients k USING (client) LEFT JOIN contributions c ON c.round = a.round AND "
            "c.client = a.client AND c.outcome = 'folded' ORDER BY a.round, k.position"
        )
        for row in self.evidence.rows(query):
            if row["x"] is None and config["x"].get(row["group"]):
                continue  # nothing was ever heard of its covariates
            x = json.loads(row["x"]) if row["x"] else {}
            known = z.get(row["client"])
            values = [math.nan if known is None else known.get(name, 0.0) for name in z_names]
            values += [x.get(name, 0.0) for name in x_names]
            yield _Seen(row["round"], row["client"], bool(row["taken"]), values)

    def _enrolling(self, clients: Sequence[str]) -> FloatArray:
        stage, z = self.context.settings["enrollment"], self._covariates()
        names = _chosen(self.evidence.server_config["z"], stage)
        enrolled = set(self.context.enrolled)
        rows = [
            _Seen(0, client, client in enrolled, [z[client].get(name, 0.0) for name in names])
            for client in self.context.population
        ]
        if self._enrollment is None:
            self._enrollment = _fitted(rows, stage)
        by_client = {row.client: row.features for row in rows}
        return _chances(self._enrollment, [by_client[client] for client in clients])

    def _covariates(self) -> dict[str, dict[str, float]]:
        query = "SELECT client, z FROM clients WHERE z IS NOT NULL"
        return {row["client"]: json.loads(row["z"]) for row in self.evidence.rows(query)}


def _chosen(known: Any, stage: Mapping[str, Any], which: str = "z") -> list[str]:
    wanted = stage.get(which)
    return list(known) if wanted is None else list(wanted)


def _fitted(rows: Sequence[_Seen], stage: Mapping[str, Any]) -> _Curve | None:
    """The curve of the rows whose features are all known; None if there is no such row."""
    known = [row for row in rows if all(map(math.isfinite, row.features))]
    if not known:
        return None
    features = np.array([row.features for row in known], np.float64).reshape(len(known), -1)
    taken = np.array([row.taken for row in known], np.float64)
    return fit_curve(features, taken, float(stage["classifier"]["ridge"]))


def _chances(curve: _Curve | None, features: Sequence[Sequence[float] | None]) -> FloatArray:
    """The propensities of devices; infinite where the features are not known."""
    found = np.full(len(features), math.inf)
    for place, values in enumerate(features):
        if values is not None and all(map(math.isfinite, values)):
            found[place] = 1.0 if curve is None else curve.chance(np.array(values))
    return found
