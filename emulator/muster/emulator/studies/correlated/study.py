"""Correlated participation, and the bias that it causes in a mean over the participants.

Part fig1 trains a classifier under four schemes. fig2 repeats this while only a limited number of
devices of a group can transfer at once. surrogate replaces the classifier by a quadratic function,
whose minimiser shows the bias itself. Runs of the same seed have the same data, initial model,
events and minibatches.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from muster.emulator.scenario.scenario import Scenario
from muster.emulator.studies.claims import Claim, at_most, close, difference, exact, greater
from muster.emulator.studies.correlated import fleet as fleet
from muster.emulator.studies.correlated import measures as measures
from muster.emulator.studies.correlated.fleet import (
    FAIR,
    LIMITS,
    LITERAL,
    NEVER_BINDS,
    SCHEMES,
    Limit,
)
from muster.emulator.studies.correlated.measures import (
    UNDER_LIMITS,
    CorrelatedMeasures,
    final,
    mean_loss,
    name_of,
)
from muster.emulator.studies.correlated.notes import DIGITS, LOSSES, NO_MNIST, SHARES, notes
from muster.emulator.studies.results import Result, Results
from muster.emulator.studies.study import Findings, Options, Study, StudyFigure, StudyTable
from muster.emulator.studies.study_run import StudyRun

_C, _EMPTY = (0.0573964999, 0.1148995406), 0.1960228383
"""c of the outer groups and of the middle group, and the probability of an empty round, by summing
equation (13) over all 2^10 sets of devices."""


class _CorrelatedSize(NamedTuple):
    """The number of rounds of a study, and the margins of its claims: a shorter study needs wider
    margins.

    Attributes:
        loss: margin of final losses.
        limited_loss: margin of final losses with a limit.
        distance: largest distance of the surrogate to its expected end point.
        limited_distance: the same with a limit.
        weight: margin of the middle group's weight in the surrogate.
        share: largest difference of an estimated ĉ to c.
        empty: margin of the share of empty rounds.
    """

    rounds: int
    loss: float
    limited_loss: float
    distance: float
    limited_distance: float
    weight: float
    share: float
    empty: float


_FULL = _CorrelatedSize(1500, 0.01, 0.01, 0.05, 0.12, 0.04, 0.01, 0.025)
_QUICK = _CorrelatedSize(400, 0.025, 0.04, 0.15, 0.3, 0.1, 0.025, 0.08)


class CorrelatedStudy(Study):
    """Figures 1 and 2, and what they rest on."""

    name: ClassVar = "correlated"
    about: ClassVar = "devices that come together or not at all, and what makes up for it"
    paper: ClassVar = (
        "Harrak, Egan, Goursaud, Alberi Morel, Conte: Bias Mitigation for Federated Learning with "
        "Spatially Correlated Participation, 2025, figures 1 and 2"
    )
    paper_sizes: ClassVar = {
        "fig1": "10 clients, 1500 rounds, 5 runs",
        "fig2": "10 clients, 1500 rounds, 5 runs",
    }

    def runs(self, options: Options) -> Sequence[StudyRun]:
        found = [run for seed in options.all_seeds for run in _runs(seed, options)]
        # One seed is enough, because the models are either equal bit for bit or not.
        return [*found, _classifier("debiased", options.seed, options, NEVER_BINDS)]

    def remarks(self, options: Options) -> Sequence[str]:
        if options.data is not None:
            return ()
        return [NO_MNIST]

    def judge(self, results: Results, options: Options) -> Findings:
        size = _size(options)
        found = CorrelatedMeasures(results, size.rounds, LIMITS)
        claims = [
            *_figure_1(found, size),
            *_figure_2(found, size),
            *_surrogate(found, size),
            *_shares(found, size),
        ]
        checks = [*_constants(), _never_binds(found)]
        tables = [
            StudyTable("losses", "Final training loss", found.losses(), LOSSES),
            StudyTable("digits", "Losses by digit, and rounds", found.digits(), DIGITS),
            StudyTable("shares", "Shares of the groups", found.shares(), SHARES),
        ]
        return Findings(claims, checks, list(_figures(found)), tables, list(notes(found)))


def _size(options: Options) -> _CorrelatedSize:
    return _QUICK if options.quick else _FULL


def _runs(seed: int, options: Options) -> Iterator[StudyRun]:
    for scheme in SCHEMES:
        yield _classifier(scheme, seed, options)
    for limit in LIMITS[:1] if options.quick else LIMITS:
        for scheme in UNDER_LIMITS:
            yield _classifier(scheme, seed, options, limit)
    for limited in (None,) if options.quick else (None, LITERAL):
        for scheme in UNDER_LIMITS:
            scenario = fleet.surrogate(scheme, seed, _size(options).rounds, limited)
            yield _run("surrogate", scheme, limited, scenario)


def _classifier(scheme: str, seed: int, options: Options, limit: Limit | None = None) -> StudyRun:
    scenario = fleet.classifier(scheme, seed, _size(options).rounds, options.data, limit)
    return _run("fig1" if limit is None else "fig2", scheme, limit, scenario)


_START_S, _ALL_S, _SOME_S, _LIMITED_S = 4.0, 0.011, 0.007, 0.012
"""Seconds measured on two cores: a start, and a round with all devices, with some, with slots."""


def _run(part: str, scheme: str, limit: Limit | None, scenario: Scenario) -> StudyRun:
    round_s = _ALL_S if scheme == "unbiased" else _SOME_S if limit is None else _LIMITED_S
    labels = {"scheme": scheme, "limit": name_of(limit)}
    return StudyRun(part, labels, scenario, _START_S + round_s * scenario.server.rounds)


def _figure_1(found: CorrelatedMeasures, size: _CorrelatedSize) -> Iterator[Claim]:
    over = {scheme: found.of(mean_loss, scheme) for scheme in SCHEMES}
    ends = {scheme: found.of(final, scheme) for scheme in SCHEMES}
    yield greater(
        "Mean over rounds of the training loss: biased above debiased",
        over["biased"],
        over["debiased"],
    ).because(
        "A plain mean gives the outer groups too little weight, so their digits are learned late."
    )
    yield greater(
        "Mean over rounds of the training loss: debiased above unbiased",
        over["debiased"],
        over["unbiased"],
    ).because(
        "Debiased steps vary with the devices that come; unbiased has all of them in every round."
    )
    yield greater("Final loss: biased above unbiased", ends["biased"], ends["unbiased"]).because(
        "The digits of the outer groups are still behind at the end."
    )
    yield greater("Final loss: biased above debiased", ends["biased"], ends["debiased"]).because(
        "The debiased scheme gives every device the same weight in the mean of the rounds."
    )
    yield close(
        "Final loss: debiased less unbiased is about 0",
        difference(ends["debiased"], ends["unbiased"]),
        0.0,
        size.loss,
    ).because("In the mean of the rounds a debiased step is the step of all devices.")
    yield close(
        "Final loss: debiased by the estimated ĉ less by the exact c is about 0",
        difference(ends["debiased"], ends["exact"]),
        0.0,
        size.loss,
    ).because("The estimate converges to c, so later steps are the same.")


def _figure_2(found: CorrelatedMeasures, size: _CorrelatedSize) -> Iterator[Claim]:
    text = f"M_max = {LITERAL.slots}, {LITERAL.overflow}"
    ends = {scheme: found.of(final, scheme, LITERAL) for scheme in UNDER_LIMITS}
    yield close(
        f"{text}: debiased still converges: its final loss less that of unbiased is about 0",
        difference(ends["debiased"], found.of(final, "unbiased")),
        0.0,
        size.limited_loss,
    ).because(
        "ĉ is the share of the devices that get through, so it makes up for collisions as well."
    )
    yield greater(
        f"{text}: more slowly: its mean over rounds is above that of unbiased",
        found.of(mean_loss, "debiased", LITERAL),
        found.of(mean_loss, "unbiased"),
    ).because("Fewer devices get through, so steps vary more.")
    yield greater(f"{text}: biased ends above debiased", ends["biased"], ends["debiased"]).because(
        "Collisions change the weights of the groups, and a plain mean does not make up for it."
    )


def _never_binds(found: CorrelatedMeasures) -> Claim:
    same = found.same_model(NEVER_BINDS)
    return Claim(
        f"M_max = {NEVER_BINDS.slots} never binds: the model is that without a limit",
        bool(same) and all(same.values()),
        "the same" if same and all(same.values()) else "another, or none",
        "the same",
        "SHA-256 of the models",
        list(same),
    )


def _surrogate(found: CorrelatedMeasures, size: _CorrelatedSize) -> Iterator[Claim]:
    for limit in found.surrogate_limits:
        within = size.distance if limit is None else size.limited_distance
        for scheme in UNDER_LIMITS:
            end = ends_at(scheme, limit)
            where = ", ".join(f"{weight:.3f}" for weight in end)
            text = f"Surrogate, {scheme}" + (f", {limit}" if limit else "")

            def distance(result: Result, end: Sequence[float] = end) -> float:
                return float(np.linalg.norm(measures.weights(result) - end))

            yield at_most(
                f"{text}: it ends near ({where})",
                found.of_surrogate(distance, scheme, limit),
                within,
            ).because(
                "The minimiser under any weights is the point with these weights between the "
                "corners."
            )
            yield close(
                f"{text}: the middle group weighs {end[1]:.3f}",
                found.of_surrogate(lambda r: float(measures.weights(r)[1]), scheme, limit),
                end[1],
                size.weight if limit is None else 2 * size.weight,
            ).because(
                "This is the weight that the scheme gives to the middle group in the long run."
            )


def ends_at(scheme: str, limit: Limit | None) -> tuple[float, ...]:
    """The weight of each group in the objective that a scheme minimises."""
    return fleet.exact(limit).biased if scheme == "biased" else FAIR


def _shares(found: CorrelatedMeasures, size: _CorrelatedSize) -> Iterator[Claim]:
    yield at_most(
        "The fleet's ĉ end near c: max |ĉ − c|",
        found.of(measures.worst_share, "debiased"),
        size.share,
    ).because("ĉ is a mean over the rounds, whose expectation is c.")
    yield close(
        "The fleet's share of empty rounds is that probability",
        found.of(measures.empty, "debiased"),
        fleet.exact().empty,
        size.empty,
    ).because("A round is empty if no device comes, and empty rounds count in ĉ.")


def _constants() -> Iterator[Claim]:
    truth = fleet.exact()
    yield exact("c of the outer groups, exactly", truth.shares[0], _C[0], 1e-10)
    yield exact("c of the middle group, exactly", truth.shares[1], _C[1], 1e-10)
    yield exact("The probability that nobody comes, exactly", truth.empty, _EMPTY, 1e-10)


def _figures(found: CorrelatedMeasures) -> Iterator[StudyFigure]:
    from muster.emulator.studies.correlated.figure import draw_limits, draw_losses, draw_surrogate

    yield StudyFigure(
        "figure-1",
        "Figure 1",
        lambda: draw_losses(
            {scheme: found.courses(scheme) for scheme in SCHEMES},
            {scheme: found.by_digit(scheme) for scheme in SCHEMES},
        ),
        "Training loss over all devices with equal weights: means over the seeds, with bands of "
        "one standard deviation. On the right is the final loss of each digit; dots are seeds.",
    )
    yield StudyFigure(
        "figure-2",
        "Figure 2",
        lambda: draw_limits(
            {
                f"M_max = {limit.slots}, {limit.overflow}": {
                    "unbiased": found.courses("unbiased"),
                    **{scheme: found.courses(scheme, limit) for scheme in UNDER_LIMITS},
                }
                for limit in found.limits
            }
        ),
        "Training loss if only M_max devices of a group can transfer at once. Unbiased has no "
        f"limit. M_max = {NEVER_BINDS.slots} is figure 1.",
    )
    limits = found.surrogate_limits
    yield StudyFigure(
        "surrogate",
        "The bias itself",
        lambda: draw_surrogate(
            {name_of(x): {s: found.points(s, x) for s in UNDER_LIMITS} for x in limits},
            {name_of(x): {s: ends_at(s, x) for s in UNDER_LIMITS} for x in limits},
            {scheme: found.distances(scheme) for scheme in UNDER_LIMITS},
            float(np.linalg.norm(np.subtract(fleet.exact().biased, FAIR))),
        ),
        "F_m = ½‖θ − θ₀ − e_g‖² for the devices of group g. Under any weights, its minimiser is "
        "the point with these weights between the corners. The end point of a scheme therefore "
        "shows the weight of each group. Crosses are the expected end points.",
    )
