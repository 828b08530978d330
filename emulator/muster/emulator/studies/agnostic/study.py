"""Agnostic federated averaging: its objective, its rate, and a comparison with equation 10.

The parts `linear` and `pictures` compare rules while some devices take part far more often than
others, with several degrees of skew. `rate` runs agnostic averaging for more and more rounds.
`quadratics` shows where its average lies. `small ball` repeats `pictures` in a ball that binds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd

from muster.emulator.fleet.closed_forms import effective_weights, shares_by_enumeration
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.studies.agnostic.figure import draw_courses, draw_differences, draw_limits
from muster.emulator.studies.agnostic.fleet import (
    AGNOSTIC,
    DECAY,
    DEVICES,
    LINEAR,
    NORMALISED,
    QUADRATICS,
    STEPS,
    WEIGHTED,
    pictures,
    rules_at,
    scenario,
    shares,
)
from muster.emulator.studies.agnostic.measures import PARTS, Measures
from muster.emulator.studies.claims import BySeed, Claim, at_most, close, exact, greater, grows
from muster.emulator.studies.results import Results
from muster.emulator.studies.study import Findings, Options, Study, StudyFigure, StudyTable
from muster.emulator.studies.study_run import Label, StudyRun

_EVALUATIONS = 20
_MARGIN, _FACTOR_MARGIN = 0.003, 0.15

ENUMERATED = (0.344369, 0.248727, 0.175843, 0.092062, 0.092062, 0.046937)
"""p of six devices with the weights 5, 3, 2, 1, 1 and ½, of which two take part, computed by hand.
"""


class _AgnosticSize(NamedTuple):
    """The size of the study.

    Attributes:
        rounds: number of rounds of the compared runs; one of `horizons`.
        decays: the decays of the sweep over skew.
        horizons: the values of T whose gaps give the rate.
        limit: number of rounds of `quadratics`.
    """

    rounds: int
    decays: Sequence[float]
    horizons: Sequence[int]
    limit: int


_FULL = _AgnosticSize(200, (1000, 100, 50, 20, DECAY, 5), (25, 50, 100, 200, 400, 800), 1500)
_QUICK = _AgnosticSize(100, (100, 30, DECAY, 5), (25, 100, 400), 600)

_START_S = 3.5
_ROUND_S = {"linear": 0.01, "quadratic": 0.01, "digits": 0.012, "mnist": 0.02}


class AgnosticStudy(Study):
    """Figures 1 and 2, and Theorem 4."""

    name: ClassVar = "agnostic"
    about: ClassVar = "what a mean over whoever comes minimises, and equation 10 against it"
    paper: ClassVar = "Convergence of Agnostic Federated Averaging, figures 1 and 2, theorem 4"
    paper_sizes: ClassVar = {
        "linear": "100 users, 10 a round, weights exp(−i/10), 5 seeds",
        "pictures": "MNIST, 100 users, 10 a round, weights exp(−i/10), 5 seeds",
    }
    quick_seeds: ClassVar = 1

    def runs(self, options: Options) -> Sequence[StudyRun]:
        return [run for seed in options.all_seeds for run in _runs(seed, options)]

    def remarks(self, options: Options) -> Sequence[str]:
        if options.data is None:
            return ("No data directory: scikit-learn's 8×8 digits replace MNIST.",)
        return ()

    def judge(self, results: Results, options: Options) -> Findings:
        size = _size(options)
        found = Measures(results, size.decays, size.horizons, size.rounds)
        return Findings(
            [*_equation_10(found), *_minimiser(found), *_rate(found), _growth(found)],
            list(_enumerations()),
            list(_figures(found)),
            list(_tables(found)),
            _notes(size),
        )


def _size(options: Options) -> _AgnosticSize:
    return _QUICK if options.quick else _FULL


def _runs(seed: int, options: Options) -> Iterator[StudyRun]:
    size, shown = _size(options), pictures(options.data)
    for part, problem in zip(PARTS, (LINEAR, shown), strict=True):
        for decay in size.decays:
            every = size.rounds // _EVALUATIONS if decay == DECAY else None
            for rule in rules_at(decay):
                run = scenario(problem, seed, size.rounds, rule, decay, every)
                yield _run(part, {"rule": rule, "decay": decay}, run)
    for rounds in size.horizons:
        if rounds != size.rounds:  # those are among `linear`
            yield _run("rate", {"rounds": rounds}, scenario(LINEAR, seed, rounds))
    yield _run("quadratics", {}, scenario(QUADRATICS, seed, size.limit))
    for rule in (AGNOSTIC, WEIGHTED):
        smaller = shown._replace(radius=shown.small)
        yield _run("small ball", {"rule": rule}, scenario(smaller, seed, size.rounds, rule))


def _run(part: str, labels: Mapping[str, Label], run: Scenario) -> StudyRun:
    expected_s = _START_S + _ROUND_S[run.task.kind] * run.server.rounds
    return StudyRun(part, labels, run, expected_s)


def _equation_10(found: Measures) -> Iterator[Claim]:
    for part in PARTS:
        agnostic = found.loss(part, AGNOSTIC)
        weighted = found.loss(part, WEIGHTED)
        what = "the loss of equation 10 above that of agnostic averaging"
        yield greater(f"{part}: {what}", weighted, agnostic).because(
            "The weights of equation 10 do not sum to 1, so every round makes the parameters "
            "longer."
        )
        yield grows(f"{part}: the skew, and {what}", found.differences(part)).because(
            "The factor N Σ p², by which a round multiplies the parameters, grows with the skew."
        )
    yield greater(
        "linear: the loss with weights p_i / Σ p above that of agnostic averaging",
        found.loss("linear", NORMALISED),
        found.loss("linear", AGNOSTIC),
    ).because("Devices that come more often get larger weights too, so they count twice.")


def _minimiser(found: Measures) -> Iterator[Claim]:
    for part in ("linear", "quadratics"):
        ended = found.endings(part)
        yield greater(
            f"{part}: the average is nearer to the minimiser of Σ p_i f_i than to that of Σ f_i/N",
            _by_seed(ended, "distance to the other"),
            _by_seed(ended, "distance"),
        ).because("A mean over whoever comes takes device i with the weight p_i in the long run.")
        yield greater(
            f"{part}: and better than the latter, by Σ p_i f_i",
            _by_seed(ended, "gap of the other"),
            _by_seed(ended, "gap"),
        ).because(
            "The average minimises the objective with the weights p_i, not the one with equal "
            "weights."
        )
    for number, misses in enumerate(found.misses(measured=True), 1):
        text = f"quadratics: the average less Σ p_i b_i, coordinate {number}"
        yield close(text, misses, 0.0, _MARGIN).because(
            "With equal curvature, the minimiser of Σ p_i f_i is the mean of the minimisers "
            "with weights p_i."
        )


def _by_seed(frame: pd.DataFrame, column: str) -> BySeed:
    return {
        int(seed): float(value) for seed, value in zip(frame["seed"], frame[column], strict=True)
    }


def _rate(found: Measures) -> Iterator[Claim]:
    text = "linear: the gap falls as 1/√T or faster: slope of log gap on log T"
    yield at_most(text, found.slopes(), -0.5).because(
        "Theorem 4 bounds the gap of the averaged iterate by a constant over √T."
    )


def _growth(found: Measures) -> Claim:
    text = "equation 10 multiplies the parameters, in the mean of the rounds, by N Σ p²"
    return close(text, found.factors(), _factor(), _FACTOR_MARGIN).because(
        "A round multiplies the parameters by N/|S| Σ p_i over the devices that come."
    )


def _enumerations() -> Iterator[Claim]:
    weights = np.array([5, 3, 2, 1, 1, 0.5])
    counted, raced = shares_by_enumeration(weights, 2), effective_weights(weights, 2)
    text = "six devices of which two come: p by going through all draws, and as worked out by hand"
    yield exact(text, float(np.abs(counted - ENUMERATED).max()), 0.0, 5e-7)
    text = "six devices of which two come: p by going through all draws, and as computed for many"
    yield exact(text, float(np.abs(counted - raced).max()), 0.0, 1e-9)


def _factor() -> float:
    return float(DEVICES * (shares() ** 2).sum())


def _figures(found: Measures) -> Iterator[StudyFigure]:
    yield StudyFigure(
        "figure-1",
        "Loss over the rounds",
        lambda: draw_courses({part: found.courses(part) for part in PARTS}),
        "Σ p_i f_i of the averaged iterate. Lines are means over the seeds and bands their range. "
        "The scale of losses is logarithmic.",
    )
    yield StudyFigure(
        "figure-2",
        "Equation 10 less agnostic averaging, against skew",
        lambda: draw_differences({part: found.differences(part) for part in PARTS}),
        "Difference of the final losses Σ p_i f_i, with the p of each skew: a dot for each seed, "
        "and a line through the means.",
    )
    yield StudyFigure(
        "limits",
        "How fast, and where to",
        lambda: draw_limits(
            found.gaps,
            found.slopes(),
            found.misses(measured=True),
            found.misses(measured=False),
            _MARGIN,
        ),
        "Left: Σ p_i f_i of the average minus its minimum, a dot for each seed, and the rate of "
        "Theorem 4. Right: the average of a run minus Σ p_i b_i, a dot for each seed; crosses are "
        "Σ b_i/N, and the square is the margin.",
    )


def _tables(found: Measures) -> Iterator[StudyTable]:
    yield StudyTable(
        "losses",
        "Losses at the end",
        found.losses(),
        "Means over the seeds of Σ p_i f_i, and its difference to agnostic averaging: the mean, "
        "the lowest and the highest seed.",
    )
    for part in ("linear", "quadratics"):
        yield StudyTable(
            f"endings-{part}",
            f"Where agnostic averaging ended: {part}",
            found.endings(part),
            "Distances to the minimiser of Σ p_i f_i and to the other, that of Σ f_i/N; and gaps "
            "to the minimum of Σ p_i f_i.",
        )


def _notes(size: _AgnosticSize) -> list[str]:
    kept = (1 - QUADRATICS.rate(size.limit)) ** STEPS
    start = kept / (1 - kept) / size.limit
    return [
        (
            "Losses are those of the average of the iterates on the devices' training data, with "
            "the exact p. The raw weights exp(−i/10) are not p. The skew is ‖p − 1/N‖₁."
        ),
        (
            f"The weights N/|S|·p_i of equation 10 sum to {_factor():.2f} in the mean of the "
            "rounds, not to 1, so each round makes the parameters longer by this factor. Only the "
            "ball in which training stays limits them. The loss of equation 10 therefore depends "
            "on the radius of the ball; in `linear` it grows with its square."
        ),
        (
            "Softmax regression is less sensitive to the length of its parameters. With a little "
            "skew, equation 10 acts as a longer step, which may lower the loss; in a ball that "
            "binds (`small ball`) it counteracts the ball. Neither depends on which devices take "
            "part."
        ),
        (
            f"In `quadratics`, a round keeps {kept:.0%} of the distance to the participants' mean, "
            f"so the average keeps {start:.0e} of the distance from its start to its limit. "
            f"Therefore no round is left out of the average."
        ),
        (
            "Theorem 4 holds for all convex losses. Least squares are smooth and strongly convex, "
            "and converge faster than the theorem promises."
        ),
    ]
