"""The measures of the study `fedipw`, by seed."""

import math

import numpy as np
import pandas as pd

from muster.common.exchange import PROPENSITY
from muster.emulator.fleet.closed_forms import TwoClients, fixed_point
from muster.emulator.studies.claims import BySeed
from muster.emulator.studies.fedipw.fleet import RULES, STRENGTH, STRENGTHS, least_loss
from muster.emulator.studies.results import Result, Results
from muster.emulator.studies.study import Options
from muster.server.aggregators import Aggregator, Cohort, Contribution
from muster.server.fleet import EnrolledDevice
from muster.server.knowledge.participation import ParticipationHistory, Seen
from muster.server.knowledge.population import Oracle, Population

TAIL = 0.3
"""Share of the rounds, at the end, over which gaps and distances are averaged."""


class FedIpwMeasures:
    """Gaps and distances of all runs, by seed."""

    def __init__(self, results: Results, options: Options) -> None:
        self._results = results
        self._seeds = options.all_seeds
        self._noises = sorted(
            {float(r.labels["noise"]) for r in results.where(part="D", rule="calibrated")}
        )
        # The least loss over the target population, which does not depend on enrollment.
        self._least = {result.seed: 0.0 for result in results}
        for seed in self._least:
            self._least[seed] = least_loss(results.where(seed=seed)[0].scenario)

    def _gap(self, result: Result) -> float:
        return result.tail_mean("loss", TAIL) - self._least[result.seed]

    def gap(self, rule: str, strength: float = STRENGTH) -> BySeed:
        part = "A" if strength == STRENGTH else "B"
        return self._results.by_seed(self._gap, part=part, rule=rule, strength=strength)

    def calibrated_gap(self) -> BySeed:
        return self._results.by_seed(self._gap, part="C")

    def distance(self, rule: str, noise: float | None = None) -> BySeed:
        """The distance to the optimum by seed; with `noise`, that of the rule in part D."""
        if noise is not None:
            return self._results.by_seed(_distance, part="D", rule=rule, noise=noise)
        found = self._results.by_seed(_distance, part="A", rule=rule)
        if self._results.where(part="D", rule=rule):
            found.update(self._results.by_seed(_distance, part="D", rule=rule))
        return found

    def noises(self) -> dict[float, BySeed]:
        """The distance to the optimum by τ, for the seeds with which every τ was run."""
        return {tau: self._compared(self.distance("calibrated", tau)) for tau in self._noises}

    def references(self) -> dict[str, BySeed]:
        """The distance to the optimum of rules that know the population, for the same seeds."""
        rules = ("participation-ipw", "fedipw")
        return {rule: self._compared(self.distance(rule)) for rule in rules}

    def _compared(self, values: BySeed) -> BySeed:
        return {seed: value for seed, value in values.items() if seed in self._seeds}

    def strengths(self) -> dict[str, dict[float, BySeed]]:
        """The gap by rule and strength, for the pairs that were run."""
        run = {(str(r.labels["rule"]), float(r.labels["strength"])) for r in self._results}
        return {
            rule: {s: self.gap(rule, s) for s in STRENGTHS if (rule, s) in run} for rule in RULES
        }

    def means(self) -> dict[str, BySeed]:
        return {**{rule: self.gap(rule) for rule in RULES}, "calibrated": self.calibrated_gap()}

    def courses(self) -> dict[str, pd.DataFrame]:
        """Rule to the gap by round, with a column for each seed."""
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
    return result.tail_mean("distance", TAIL)


def left_by(rule: Aggregator, case: TwoClients) -> float:
    """The point where a rule ends on average over enrollment, if all enrolled clients take part.

    A client pulls with its enrollment probability times its weight when enrolled. The optimum is 0.
    """
    clients = ("plus", "minus")
    devices = {
        client: EnrolledDevice(client, "both", place, 1) for place, client in enumerate(clients)
    }
    oracle = Oracle(enrollment=case.enrollment.tolist())
    participation = ParticipationHistory([PROPENSITY])
    participation.enter(Seen(place, True, {PROPENSITY: 1.0}, 0.0) for place in range(2))
    cohort = Cohort(
        1,
        [Contribution(client, "both", 1, 0) for client in clients],
        Population(clients, (), [{}, {}], devices, {}, oracle),
        participation,
    )
    weights = np.array(rule.weigh(cohort, {}).weights)
    return float(fixed_point(case.enrollment * weights, case.minimisers))
