"""Agnostic federated averaging: what it minimises, how fast, and what equation 10 does instead.

The parts `linear` and `pictures` run the rules where some devices come far more often than others,
more and less so; `rate` agnostic averaging for ever more rounds; `quadratics` where its average
lies; `small ball` again `pictures`, in a ball that binds.
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
from muster.emulator.studies.study import (
    Findings,
    Label,
    Options,
    Study,
    StudyFigure,
    StudyRun,
    StudyTable,
)

_EVALUATIONS = 20
_MARGIN, _FACTOR_MARGIN = 0.003, 0.15

ENUMERATED = (0.344369, 0.248727, 0.175843, 0.092062, 0.092062, 0.046937)
"""p of six devices with the weights 5, 3, 2, 1, 1 and ½ of which two come, worked out by hand."""


class _AgnosticSize(NamedTuple):
    """How much is run.

    Attributes:
        rounds: of what is compared; one of `horizons`.
        decays: of the sweep over skew.
        horizons: the T whose gaps give the rate.
        limit: rounds of `quadratics`.
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
            return ("without a data directory: scikit-learn's 8×8 digits in the place of MNIST",)
        return ()

    def judge(self, results: Results, options: Options) -> Findings:
        size = _size(options)
        found = Measures(results, size.decays, size.horizons, size.rounds)
        return Findings(
            [*_equation_10(found), *_minimiser(found), *_rate(found), *_numbers(found)],
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
        yield greater(f"{part}: {what}", weighted, agnostic)
        yield grows(f"{part}: the skew, and {what}", found.differences(part))
    yield greater(
        "linear: the loss with weights p_i / Σ p above that of agnostic averaging",
        found.loss("linear", NORMALISED),
        found.loss("linear", AGNOSTIC),
    )


def _minimiser(found: Measures) -> Iterator[Claim]:
    for part in ("linear", "quadratics"):
        ended = found.endings(part)
        yield greater(
            f"{part}: the average is nearer to the minimiser of Σ p_i f_i than to that of Σ f_i/N",
            _by_seed(ended, "distance to the other"),
            _by_seed(ended, "distance"),
        )
        yield greater(
            f"{part}: and better than the latter, by Σ p_i f_i",
            _by_seed(ended, "gap of the other"),
            _by_seed(ended, "gap"),
        )
    for number, misses in enumerate(found.misses(measured=True), 1):
        text = f"quadratics: the average less Σ p_i b_i, coordinate {number}"
        yield close(text, misses, 0.0, _MARGIN)


def _by_seed(frame: pd.DataFrame, column: str) -> BySeed:
    return {
        int(seed): float(value) for seed, value in zip(frame["seed"], frame[column], strict=True)
    }


def _rate(found: Measures) -> Iterator[Claim]:
    text = "linear: the gap falls as 1/√T or faster: slope of log gap on log T"
    yield at_most(text, found.slopes(), -0.5)


def _numbers(found: Measures) -> Iterator[Claim]:
    weights = np.array([5, 3, 2, 1, 1, 0.5])
    counted, raced = shares_by_enumeration(weights, 2), effective_weights(weights, 2)
    text = "six devices of which two come: p by going through all draws, and as worked out by hand"
    yield exact(text, float(np.abs(counted - ENUMERATED).max()), 0.0, 5e-7)
    text = "six devices of which two come: p by going through all draws, and as computed for many"
    yield exact(text, float(np.abs(counted - raced).max()), 0.0, 1e-9)
    text = "equation 10 multiplies the parameters, in the mean of the rounds, by N Σ p²"
    yield close(text, found.factors(), _factor(), _FACTOR_MARGIN)


def _factor() -> float:
    return float(DEVICES * (shares() ** 2).sum())


def _figures(found: Measures) -> Iterator[StudyFigure]:
    yield StudyFigure(
        "figure-1",
        "Loss over the rounds",
        draw_courses({part: found.courses(part) for part in PARTS}),
        "Σ p_i f_i of the averaged iterate. Lines are means over the seeds, bands their range; the "
        "scale of losses is logarithmic.",
    )
    yield StudyFigure(
        "figure-2",
        "Equation 10 less agnostic averaging, against skew",
        draw_differences({part: found.differences(part) for part in PARTS}),
        "Loss at the end, Σ p_i f_i with the p of that skew: a dot for each seed, and the line of "
        "the means.",
    )
    yield StudyFigure(
        "limits",
        "How fast, and where to",
        draw_limits(
            found.gaps,
            found.slopes(),
            found.misses(measured=True),
            found.misses(measured=False),
            _MARGIN,
        ),
        "Left: how far Σ p_i f_i of the average is above its least, a dot for each seed, and what "
        "Theorem 4 promises. Right: the average of a run less Σ p_i b_i, a dot for each seed; "
        "crosses are Σ b_i/N, the square is the margin.",
    )


def _tables(found: Measures) -> Iterator[StudyTable]:
    yield StudyTable(
        "losses",
        "Losses at the end",
        found.losses(),
        "Means over the seeds of Σ p_i f_i; then how far above agnostic averaging, in the mean and "
        "of the lowest and the highest seed.",
    )
    for part in ("linear", "quadratics"):
        yield StudyTable(
            f"endings-{part}",
            f"Where agnostic averaging ended: {part}",
            found.endings(part),
            "From the minimiser of Σ p_i f_i, and from the other, that of Σ f_i/N; and how far "
            "above the least of Σ p_i f_i.",
        )


def _notes(size: _AgnosticSize) -> list[str]:
    kept = (1 - QUADRATICS.rate(size.limit)) ** STEPS
    start = kept / (1 - kept) / size.limit
    return [
        (
            "Losses are of the average of the iterates, on what the devices train on, with the "
            "exact p: the raw weights exp(−i/10) are not p. The skew is ‖p − 1/N‖₁."
        ),
        (
            f"The weights N/|S|·p_i of equation 10 sum to {_factor():.2f} in the mean of the "
            "rounds, not to 1, and so many times longer do they make the parameters. Nothing but "
            "the ball in which training stays holds them: the loss of equation 10 is a matter of "
            "its radius, and in `linear` goes with its square."
        ),
        (
            "Softmax regression minds the length of its parameters less. There a little skew makes "
            "equation 10 a longer step, which may lower the loss, and in a ball that binds (`small "
            "ball`) it undoes the ball; neither has to do with who takes part."
        ),
        (
            f"`quadratics` keeps {kept:.0%} of where it was over a round, and so the average keeps "
            f"{start:.0e} of the way from its start to its limit: no round is left out for it."
        ),
        (
            "Theorem 4 is about convex losses of every kind. Least squares are smooth and strongly "
            "convex, and faster than it promises."
        ),
    ]
