"""Agnostic federated averaging: its objective, its rate, and a comparison with equation 10.

The parts `linear` and `pictures` compare rules while some devices take part far more often than
others, with several degrees of skew. `rate` runs agnostic averaging for more and more rounds, with
a smooth and a nonsmooth loss. `quadratics` and `random size` show where its average lies. `small
ball` repeats `pictures` in a ball that binds.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from muster.emulator.scenario.scenario import Scenario
from muster.studies.agnostic.figure import draw_courses, draw_differences, draw_limits, draw_rates
from muster.studies.agnostic.fleet import (
    AGNOSTIC,
    DECAY,
    LINEAR,
    LOSSES,
    NORMALISED,
    QUADRATICS,
    QUADRATICS_DECAY,
    RULES,
    STEPS,
    WEIGHTED,
    pictures,
    random_size,
    scenario,
    sharp,
)
from muster.studies.agnostic.judgement import checks, claims, factor
from muster.studies.agnostic.known import limits
from muster.studies.agnostic.measures import PARTS, SMALL_BALL, Measures
from muster.studies.results import Results
from muster.studies.study import DIGITS_FOR_MNIST, Findings, Options, Study, StudyFigure, StudyTable
from muster.studies.study_run import Label, StudyRun

_EVALUATIONS = 20


class _AgnosticSize(NamedTuple):
    """The size of the study.

    Attributes:
        rounds: number of rounds of the compared runs.
        decays: part to the decays of the sweep over skew.
        horizons: the values of T whose gaps give the rate.
        limit: number of rounds of `quadratics`.
        random: number of rounds of `random size`.
        small_ball: whether `small ball` is run.
    """

    rounds: int
    decays: Mapping[str, Sequence[float]]
    horizons: Sequence[int]
    limit: int
    random: int
    small_ball: bool


_SWEEP = (1000, 100, 50, 30, DECAY, 5)
_FULL = _AgnosticSize(
    200,
    {"linear": _SWEEP, "pictures": _SWEEP},
    (25, 50, 100, 200, 400, 800),
    limit=600,
    random=1500,
    small_ball=True,
)
_QUICK = _AgnosticSize(
    60,
    {"linear": (100, 30, DECAY, 5), "pictures": (100, 30, DECAY)},
    (25, 60, 150),
    limit=150,
    random=500,
    small_ball=False,
)

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
    quick_seeds: ClassVar = 2
    without_data: ClassVar = DIGITS_FOR_MNIST

    def runs(self, options: Options) -> Sequence[StudyRun]:
        return [run for seed in options.all_seeds for run in _runs(seed, options)]

    def judge(self, results: Results, options: Options) -> Findings:
        size = _size(options)
        found = Measures(results, size.decays, size.horizons, small_ball=size.small_ball)
        return Findings(
            claims(found), checks(found), list(_figures(found)), list(_tables(found)), _notes(size)
        )


def _size(options: Options) -> _AgnosticSize:
    return _QUICK if options.quick else _FULL


def _runs(seed: int, options: Options) -> Iterator[StudyRun]:
    size, shown = _size(options), pictures(options.data)
    for part, problem in zip(PARTS, (LINEAR, shown), strict=True):
        for decay in size.decays[part]:
            every = size.rounds // _EVALUATIONS if decay == DECAY else None
            for rule in RULES:
                run = scenario(problem, seed, size.rounds, rule, decay, every)
                yield _run(part, {"rule": rule, "decay": decay}, run)
    for loss in LOSSES:
        for rounds in size.horizons:
            run = scenario(sharp(loss), seed, rounds)
            yield _run("rate", {"loss": loss, "rounds": rounds}, run)
    for rule in (AGNOSTIC, NORMALISED):
        run = scenario(QUADRATICS, seed, size.limit, rule, QUADRATICS_DECAY)
        yield _run("quadratics", {"rule": rule}, run)
    yield _run("random size", {"rule": AGNOSTIC}, random_size(seed, size.random))
    if size.small_ball:
        for rule in (AGNOSTIC, WEIGHTED):
            smaller = shown._replace(radius=shown.small)
            yield _run(SMALL_BALL, {"rule": rule}, scenario(smaller, seed, size.rounds, rule))


def _run(part: str, labels: Mapping[str, Label], run: Scenario) -> StudyRun:
    expected_s = _START_S + _ROUND_S[run.task.kind] * run.server.rounds
    return StudyRun(part, labels, run, expected_s)


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
        "Other rules less agnostic averaging, against skew",
        lambda: draw_differences(
            {
                rule: {part: found.differences(part, rule) for part in PARTS}
                for rule in (WEIGHTED, NORMALISED)
            }
        ),
        "Difference of the final losses Σ p_i f_i, with the p of each skew: a dot for each seed, "
        "and a line through the means. Above: equation 10. Below: the weights p_i / Σ p.",
    )
    yield StudyFigure(
        "rates",
        "How fast",
        lambda: draw_rates(found.gaps, {loss: found.slopes(loss) for loss in LOSSES}),
        "Σ p_i f_i of the average minus its minimum: a dot for each seed, a line through the "
        "means, and the rate of Theorem 4.",
    )
    yield StudyFigure(
        "limits",
        "Where to",
        lambda: draw_limits({part: found.places(part) for part in limits()}),
        "The average of each run, and the means of the devices' minimisers with other weights, "
        "minus Σ p_i b_i.",
    )


def _tables(found: Measures) -> Iterator[StudyTable]:
    yield StudyTable(
        "losses",
        "Losses at the end",
        found.losses(),
        "Means over the seeds of Σ p_i f_i, and its difference to agnostic averaging: the mean, "
        "the lowest and the highest seed.",
    )
    yield StudyTable(
        "limits",
        "Where averages ended",
        found.offs(),
        "The distance of the average to the mean of the b_i with the expected weights, as a share "
        "of the distance from there to the mean with other weights; and the highest seed's.",
    )
    yield StudyTable(
        "endings-linear",
        "Where agnostic averaging ended: linear",
        found.endings(),
        "Distances to the minimiser of Σ p_i f_i and to the other, that of Σ f_i/N; and gaps to "
        "the minimum of Σ p_i f_i.",
    )


def _notes(size: _AgnosticSize) -> list[str]:
    kept = (1 - QUADRATICS.step) ** STEPS
    start = kept / (1 - kept) / size.limit
    return [
        (
            "Losses are those of the average of the iterates on the devices' training data, with "
            "the exact p. The raw weights exp(−i/10) are not p. The skew is ‖p − 1/N‖₁."
        ),
        (
            f"The weights N/|S|·p_i of equation 10 sum to {factor():.2f} in the mean of the "
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
            f"so the average keeps {start:.1%} of the distance from its start to its limit. "
            f"Therefore no round is left out of the average."
        ),
        (
            "Theorem 4 holds for all convex losses. Least squares are smooth and strongly convex, "
            "and converge faster than the theorem promises. The devices of `rate` nearly agree: "
            "if they did not, the mean of their absolute losses would be smooth at the minimum."
        ),
    ]
