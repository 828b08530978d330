"""Two-stage selection: who is enrolled, and who of them takes part, against who was meant.

Part A runs four rules over one fleet; B varies how strongly enrollment prefers devices with high
Z; C and D know the population by its means alone, exact (C) and with errors (D). In B to D the
lives, the data and the draws of A stay as they are, so runs of one seed differ in what they are
compared by.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from muster.common.config import validate
from muster.common.exchange import PROPENSITY
from muster.emulator.exact import TwoClients, fixed_point, prop_e1
from muster.emulator.lives import task_of
from muster.emulator.population import population
from muster.emulator.scenario import Scenario
from muster.emulator.studies.claims import BySeed, Claim, difference, exact, grows, higher
from muster.emulator.studies.fedipw_figure import draw
from muster.emulator.studies.results import Result, Results
from muster.emulator.studies.study import (
    Findings,
    Label,
    Options,
    Study,
    StudyFigure,
    StudyRun,
    StudyTable,
)
from muster.server.aggregators import Aggregator, Cohort, Contribution
from muster.server.aggregators.oracle_ipw import OracleIpw
from muster.server.fleet import Device
from muster.server.participation import Participation, Seen
from muster.server.population import Oracle, Population
from muster.tasks.logistic import OpenLogisticRegression

Z = ("z1", "z2", "z3")
RULES: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"kind": "fedavg"},
    "participation-ipw": {"kind": "participation-ipw"},
    "fedipw": {"kind": "fedipw"},
    "oracle-ipw": {"kind": "oracle-ipw"},
}
COARSE = {"kind": "calibrated", "method": "entropy", "on": [f"{z} > 0" for z in Z]}
BY_MEANS = {"kind": "calibrated", "method": "entropy", "if_infeasible": "soft"}

STRENGTH, STRENGTHS = 1.5, (0.5, 1.5, 3.0)
SMALL, LARGE = 0.1, 0.75
NOISES = (0.0, SMALL, 0.25, 0.5, LARGE)
_ENROLLED, _TAKING_PART = 0.4, 0.3
_TAIL = 0.3


def scenario(
    devices: int,
    rounds: int,
    seed: int,
    rule: Mapping[str, Any],
    strength: float = STRENGTH,
    noise: float | None = None,
) -> Scenario:
    """methods.md, section 1: a configuration that works.

    Args:
        strength: s of logit πᵉ = a₀ + s·βᵀZ, β = 1/√3 in each of three covariates.
        noise: τ of the error τ·N(0, I) of the means; None: the server knows the whole population.
    """
    beta = 1 / math.sqrt(len(Z))
    return validate(
        Scenario,
        {
            "name": "fedipw",
            "seed": seed,
            "task": {
                "name": "logistic",
                "model": "linear",
                "bias": True,
                "dimension": 4,
                "examples_per_client": 20,
                "scale": 1.0,
                "heterogeneity": 0.2,
                "covariates": list(Z),
                "ridge": 0.01,
            },
            "training": {"local_steps": 5, "batch_size": "full", "learning_rate": 0.2},
            "server": {
                "rounds": rounds,
                "aggregator": dict(rule),
                "information": "full" if noise is None else "limited",
                "moments_noise": noise or 0.0,
            },
            "groups": [
                {
                    "name": "device",
                    "count": devices,
                    "devices_per_process": -(-devices // 2),
                    "device": {"profile": "always-on"},
                    "covariates": {
                        "z": {z: {"kind": "normal"} for z in Z},
                        "x": {"load": {"kind": "normal"}},
                    },
                    "enrollment": {
                        "kind": "logistic",
                        "intercept": intercept(_ENROLLED, strength),
                        "z": dict.fromkeys(Z, strength * beta),
                    },
                    "participation": {
                        "willing": {
                            "intercept": intercept(_TAKING_PART, math.sqrt(2)),
                            "z": dict.fromkeys(Z, beta),
                            "x": {"load": 1.0},
                        }
                    },
                }
            ],
        },
        "fedipw",
    )


@cache
def intercept(mean: float, deviation: float) -> float:
    """a with E[1/(1 + exp(−(a + deviation·N(0, 1))))] = mean, by bisection."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    low, high = -40.0, 40.0
    for _ in range(100):
        middle = (low + high) / 2
        if weights @ np.exp(-np.logaddexp(0, -(middle + deviation * nodes))) < mean:
            low = middle
        else:
            high = middle
    return low


class FedIpwStudy(Study):
    """Figure 2 and Proposition E.1."""

    name: ClassVar = "fedipw"
    about: ClassVar = "selection in two stages, and what each correction leaves of the bias"
    paper: ClassVar = "Who Trains Matters: two-stage selection bias (FedIPW), figure 2"
    quick_seeds: ClassVar = 1

    def runs(self, options: Options) -> Sequence[StudyRun]:
        runs = [run for seed in options.all_seeds for run in _runs(seed, options.quick)]
        return runs + [run for seed in _more_seeds(options) for run in _more(seed)]

    def judge(self, results: Results, options: Options) -> Findings:
        found = _Found(results, options)
        claims = [
            *_both_stages(found),
            *_stronger(found),
            *_by_means(found, options.quick),
            *_proposition(),
        ]
        figure = StudyFigure(
            "figure-2",
            "Figure 2",
            draw(
                found.courses(),
                found.strengths(),
                found.means(),
                found.noises(),
                found.references(),
            ),
            "A: loss over the target population above the least there is, round by round. B: its "
            "tail average as enrollment prefers some more. C: with the population's means alone. "
            "D: distance to the optimum as these means are less exact. Lines are means over the "
            "seeds, bands their range.",
        )
        notes = [_TAILS, _TOO_FEW if options.quick else _DIRECTION]
        table = StudyTable("gaps", "Gaps and distances, tail averages", found.table())
        return Findings(claims, [figure], [table], notes)


_TAILS = (
    f"A tail average is over the last {_TAIL:.0%} of the rounds: the loss of FedAvg dips before it "
    f"rises, and enrollment is drawn once, which leaves every rule a floor of order 1/N. No claim "
    f"says that the oracle is better than FedIPW: estimated propensities often are."
)
_DIRECTION = (
    f"In which direction the means err is drawn once a seed: errors of {LARGE} towards those who "
    f"are enrolled are worse than no correction, the other way they may do no harm. On which side "
    f"of participation-only it ends is therefore judged on more seeds than the figure shows."
)
_TOO_FEW = (
    f"Not judged with so few devices and seeds: that coarse calibration ends further than FedIPW, "
    f"and that with errors of {LARGE} calibration is further than participation-only."
)


def _runs(seed: int, quick: bool) -> Iterator[StudyRun]:
    size = _QUICK if quick else _FULL
    for strength in STRENGTHS:
        for name, rule in RULES.items():
            if strength == STRENGTH:
                yield _run("A", name, rule, seed, size)
            elif not (quick and name == "oracle-ipw"):
                yield _run("B", name, rule, seed, size, strength)
    yield _run("C", "calibrated", COARSE, seed, size, noise=0.0)
    for noise in (SMALL, LARGE) if quick else NOISES:
        yield _run("D", "calibrated", BY_MEANS, seed, size, noise=noise)


_MORE = 7
"""So many times `seeds` more seeds decide on which side of participation-only D is: in which
direction the means err is drawn once a seed, and decides much."""


def _more_seeds(options: Options) -> range:
    after = options.all_seeds.stop
    return range(after, after if options.quick else after + _MORE * options.seeds)


def _more(seed: int) -> Iterator[StudyRun]:
    yield _run("D", "participation-ipw", RULES["participation-ipw"], seed, _FULL)
    for noise in (SMALL, LARGE):
        yield _run("D", "calibrated", BY_MEANS, seed, _FULL, noise=noise)


class _Size(NamedTuple):
    devices: int
    rounds: int
    expected_s: float


_FULL, _QUICK = _Size(1000, 100, 20.0), _Size(400, 60, 9.0)


def _run(
    part: str,
    name: str,
    rule: Mapping[str, Any],
    seed: int,
    size: _Size,
    strength: float = STRENGTH,
    noise: float | None = None,
) -> StudyRun:
    read = scenario(size.devices, size.rounds, seed, rule, strength, noise)
    labels: dict[str, Label] = {"rule": name, "strength": strength}
    if noise is not None:
        labels["noise"] = noise
    return StudyRun(part, labels, read, size.expected_s)


class _Found:
    """What was measured, by seed."""

    def __init__(self, results: Results, options: Options) -> None:
        self._results = results
        self._seeds = options.all_seeds
        self._noises = sorted(
            {float(r.labels["noise"]) for r in results.where(part="D", rule="calibrated")}
        )
        # Of the target population: enrollment has no part in it.
        self._least = {result.seed: 0.0 for result in results}
        for seed in self._least:
            self._least[seed] = least_loss(results.where(seed=seed)[0].scenario)

    def _gap(self, result: Result) -> float:
        return result.tail_mean("loss", _TAIL) - self._least[result.seed]

    def gap(self, rule: str, strength: float = STRENGTH) -> BySeed:
        part = "A" if strength == STRENGTH else "B"
        return self._results.by_seed(self._gap, part=part, rule=rule, strength=strength)

    def calibrated_gap(self) -> BySeed:
        return self._results.by_seed(self._gap, part="C")

    def distance(self, rule: str, noise: float | None = None) -> BySeed:
        """To the optimum, of every seed; with `noise` of the rule of D."""
        if noise is not None:
            return self._results.by_seed(_distance, part="D", rule=rule, noise=noise)
        found = self._results.by_seed(_distance, part="A", rule=rule)
        if self._results.where(part="D", rule=rule):
            found.update(self._results.by_seed(_distance, part="D", rule=rule))
        return found

    def noises(self) -> dict[float, BySeed]:
        """Distance to the optimum by τ, of the seeds with which every τ was run."""
        return {tau: self._compared(self.distance("calibrated", tau)) for tau in self._noises}

    def references(self) -> dict[str, BySeed]:
        """Likewise of rules that are told more."""
        rules = ("participation-ipw", "fedipw")
        return {rule: self._compared(self.distance(rule)) for rule in rules}

    def _compared(self, values: BySeed) -> BySeed:
        return {seed: value for seed, value in values.items() if seed in self._seeds}

    def strengths(self) -> dict[str, dict[float, BySeed]]:
        """Gap by rule and strength, of those that were run."""
        run = {(str(r.labels["rule"]), float(r.labels["strength"])) for r in self._results}
        return {
            rule: {s: self.gap(rule, s) for s in STRENGTHS if (rule, s) in run} for rule in RULES
        }

    def means(self) -> dict[str, BySeed]:
        return {**{rule: self.gap(rule) for rule in RULES}, "calibrated": self.calibrated_gap()}

    def courses(self) -> dict[str, pd.DataFrame]:
        """Gap over the rounds by rule: a column for each seed."""
        found = {}
        for rule in RULES:
            columns = {}
            for result in self._results.where(part="A", rule=rule):
                if result.ended:
                    columns[result.seed] = result.course("loss") - self._least[result.seed]
                result.close()
            found[rule] = pd.DataFrame(columns)
        return found

    def table(self) -> pd.DataFrame:
        rows = []
        for result in self._results:
            if not result.ended:
                continue
            labels = result.labels
            rows.append(
                {
                    "part": result.part,
                    "rule": labels["rule"],
                    "strength": labels["strength"],
                    "noise": labels.get("noise", math.nan),
                    "seed": result.seed,
                    "gap": self._gap(result),
                    "distance": _distance(result),
                    "effective size": float(result.account.rounds["effective_size"].mean()),
                    "folded a round": float(result.account.rounds["folded"].mean()),
                }
            )
            result.close()
        return pd.DataFrame(rows)


def _distance(result: Result) -> float:
    return result.tail_mean("distance", _TAIL)


def least_loss(read: Scenario) -> float:
    """F(θ*): the least mean loss over the clients of a scenario with logistic regression, its ridge
    included."""
    opened = task_of(read, population(read)).open(read.devices, read.seed)
    assert isinstance(opened, OpenLogisticRegression)
    theta = opened.optimum()
    losses = []
    for index in range(read.devices):
        x, y = opened.design(index)
        z = x @ theta
        losses.append(float(np.mean(np.logaddexp(0, z) - y * z)))
    return float(np.mean(losses) + opened.ridge / 2 * theta @ theta)


def _both_stages(found: _Found) -> Iterator[Claim]:
    only = found.gap("participation-ipw")
    yield higher(
        "A: FedAvg ends further from the target than participation-only weights",
        found.gap("fedavg"),
        only,
    )
    for rule, name in (("fedipw", "FedIPW"), ("oracle-ipw", "the oracle")):
        yield higher(
            f"A: participation-only weights end further from the target than {name}",
            only,
            found.gap(rule),
        )


def _stronger(found: _Found) -> Iterator[Claim]:
    gaps = found.strengths()
    only = gaps["participation-ipw"]
    yield grows("B: the gap of FedAvg grows with the strength of enrollment bias", gaps["fedavg"])
    yield grows("B: the gap of participation-only weights grows with it", only)
    more = {s: difference(values, gaps["fedipw"][s]) for s, values in only.items()}
    yield grows("B: what participation-only leaves over FedIPW grows with it", more)


def _by_means(found: _Found, quick: bool) -> Iterator[Claim]:
    coarse = found.calibrated_gap()
    yield higher(
        "C: calibration on coarse indicators corrects in part: participation-only ends further",
        found.gap("participation-ipw"),
        coarse,
    )
    if not quick:
        yield higher(
            "C: and in part only: it ends further than FedIPW", coarse, found.gap("fedipw")
        )
    only = found.distance("participation-ipw")
    yield grows("D: the distance to the optimum grows with the error of the means", found.noises())
    yield higher(
        f"D: with errors of {SMALL}, calibration is nearer than participation-only",
        only,
        found.distance("calibrated", SMALL),
    )
    if not quick:
        yield higher(
            f"D: with errors of {LARGE}, it is further than participation-only",
            found.distance("calibrated", LARGE),
            only,
        )


def _proposition() -> Iterator[Claim]:
    cases = [prop_e1(epsilon) for epsilon in (0.1, 0.3, 0.5, 0.9)]
    worst = max(cases, key=lambda case: abs(case.gap - case.promised))
    yield exact(
        "E.1: weights wrong by ε leave two clients a gap of ½ε²G²/μ",
        worst.gap - worst.promised,
        0.0,
        1e-12,
    )
    oracle = OracleIpw(kind="oracle-ipw")
    most = max((left_by(oracle, case) for case in cases), key=abs)
    yield exact("E.1: the oracle's weights leave none", most, 0.0, 1e-12)


def left_by(rule: Aggregator, case: TwoClients) -> float:
    """Where a rule ends on average over who is enrolled, if everybody enrolled takes part: what a
    client pulls with is how often it is enrolled, times what it weighs then. The optimum is 0."""
    clients = ("plus", "minus")
    devices = {client: Device(client, "both", place, 1) for place, client in enumerate(clients)}
    oracle = Oracle(enrollment=case.enrollment.tolist())
    participation = Participation([PROPENSITY])
    participation.enter(Seen(place, True, {PROPENSITY: 1.0}, 0.0) for place in range(2))
    cohort = Cohort(
        1,
        [Contribution(client, "both", 1, 0) for client in clients],
        Population(clients, (), [{}, {}], devices, {}, oracle),
        participation,
    )
    weights = np.array(rule.weigh(cohort, {}).weights)
    return float(fixed_point(case.enrollment * weights, case.minimisers))
