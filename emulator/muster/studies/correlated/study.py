"""Correlated participation, and the bias that it causes in a mean over the participants.

Part fig1 trains a classifier under four schemes. fig2 repeats this while only a limited number of
devices of a group can transfer at once. surrogate replaces the classifier by a quadratic function,
whose minimiser shows the bias itself. theorems runs such a function with the step of the paper's
theorems. fedavg, only in the full form, is fig1 with several local steps. Runs of the same seed
have the same data, initial model, events and minibatches.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from muster.emulator.scenario.scenario import Scenario
from muster.studies.claims import Claim, exact
from muster.studies.correlated import fleet, measures
from muster.studies.correlated.bias_claims import (
    FULL,
    QUICK,
    CorrelatedSize,
    bias_claims,
    share_claims,
)
from muster.studies.correlated.fleet import (
    AVERAGED,
    LIMITS,
    LITERAL,
    LOCAL_STEPS,
    NEVER_BINDS,
    SCHEMES,
    TransferLimit,
)
from muster.studies.correlated.measures import UNDER_LIMITS, CorrelatedMeasures, mean, name_of
from muster.studies.correlated.theorem_claims import SHORT, theorem_claims, theorem_table
from muster.studies.results import Results
from muster.studies.study import Findings, Options, Study, StudyFigure, StudyTable
from muster.studies.study_run import Label, StudyRun

NO_MNIST = (
    "Without a data directory, scikit-learn's digits of 8×8 pixels replace MNIST: an MLP of "
    "64-4-3, and 34 examples per device."
)
LOSSES = (
    "Mean over all devices, each with the same weight. The mean over rounds is the area under the "
    "curve. A limit is named by what happens if more than M_max devices of a group take part: with "
    "collide, none of the group gets through; with subset, M_max of them do. The rows of FedAvg "
    "are those of the part fedavg."
)
DIGITS = "Final loss on the data of each group's devices, and means of all rounds."
SHARES = (
    "c of a device of each group: the exact value, and the final estimate of the debiased scheme. "
    "The table also has the weights of the groups in a plain mean over the participants; equal "
    "weights of devices would give .3, .4 and .3."
)

THEOREMS = (
    "Means of ‖∇F‖² over the rounds, in units of the bias term ‖∇F − Σ c_m ∇F_m‖² at the point "
    "where biased ends. Expected and the bound follow from exact constants; for debiased they are "
    "those of the exact c. The printed bound is the paper's, with D, σ² and δ for its constants."
)


def notes(found: CorrelatedMeasures) -> Iterator[str]:
    """Sentences that a reader of the results has to know."""
    literal, fewer = fleet.exact(LITERAL), fleet.exact(TransferLimit("collide", 2))
    yield (
        f"The classifier can serve all three digits at once, so smaller weights for some of them "
        f"make it slow rather than wrong: the biased loss still falls at the end (by "
        f"{mean(found.of(measures.last_fifth, 'biased')):.0%} in the last fifth of the rounds). "
        f"The claim that biased ends above the others holds for this number of rounds only. The "
        f"surrogate cannot serve all groups, so it shows the bias that remains."
    )
    yield (
        f"If more than M_max devices collide, the bias is reversed. When the four devices of the "
        f"middle group take part, more than {LITERAL.slots} of them are nearly always available. "
        f"This group, which took part most often, therefore weighs {literal.biased[1]:.3f} instead "
        f"of {fleet.exact().biased[1]:.3f}, and {literal.empty:.0%} of the rounds are empty."
    )
    yield (
        f"If more than two devices collide, c of the middle group is {fewer.shares[1]:.4f}, below "
        f"δ = {fleet.DELTA:g}: its weight is capped, and no number of rounds removes the bias."
    )
    yield (
        f"An empty round counts in ĉ. Leaving it out would make every ĉ larger by "
        f"{1 / (1 - fleet.exact().empty) - 1:.0%}."
    )
    yield (
        "ĉ includes the current round and is noisy at first, so the first weights are noisy too. "
        "This is one reason why debiased is slower than unbiased. The paper does not state the "
        "size of a minibatch; here it is 32."
    )


_C, _EMPTY = (0.0573964999, 0.1148995406), 0.1960228383
"""c of the outer groups and of the middle group, and the probability of an empty round, by summing
equation (13) over all 2^10 sets of devices."""


class CorrelatedStudy(Study):
    """Figures 1 and 2, and what they rest on."""

    name: ClassVar = "correlated"
    quick_seeds: ClassVar = 3
    without_data: ClassVar = NO_MNIST
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

    def judge(self, results: Results, options: Options) -> Findings:
        size = _size(options)
        lengths = (SHORT, size.theorem_rounds)
        found = CorrelatedMeasures(results, size.rounds, LIMITS)
        claims = [
            *bias_claims(found, size),
            *theorem_claims(found, size.theorem_rounds),
            *share_claims(found, size),
        ]
        checks = [*_constants(), _never_binds(found)]
        tables = [
            StudyTable("losses", "Final training loss", found.losses(), LOSSES),
            StudyTable("digits", "Losses by digit, and rounds", found.digits(), DIGITS),
            StudyTable("shares", "Shares of the groups", found.shares(), SHARES),
            StudyTable("theorems", "The theorems", theorem_table(found, lengths), THEOREMS),
        ]
        return Findings(claims, checks, list(_figures(found)), tables, list(notes(found)))


def _size(options: Options) -> CorrelatedSize:
    return QUICK if options.quick else FULL


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
    for scheme in () if options.quick else AVERAGED:
        yield _averaging(scheme, seed, options)
    for scheme in UNDER_LIMITS:
        for rounds in (SHORT, _size(options).theorem_rounds):
            labels: dict[str, Label] = {"scheme": scheme, "rounds": rounds}
            expected_s = _START_S + _SOME_S * rounds
            yield StudyRun("theorems", labels, fleet.theorems(scheme, seed, rounds), expected_s)


def _classifier(
    scheme: str, seed: int, options: Options, limit: TransferLimit | None = None
) -> StudyRun:
    scenario = fleet.classifier(scheme, seed, _size(options).rounds, options.data, limit)
    return _run("fig1" if limit is None else "fig2", scheme, limit, scenario)


def _averaging(scheme: str, seed: int, options: Options) -> StudyRun:
    """FedAvg: in a fifth of the rounds, devices take as many steps as in fig1."""
    rounds = _size(options).rounds // LOCAL_STEPS
    scenario = fleet.classifier(scheme, seed, rounds, options.data, local_steps=LOCAL_STEPS)
    return StudyRun("fedavg", {"scheme": scheme}, scenario, _START_S + 2 * _ALL_S * rounds)


_START_S, _ALL_S, _SOME_S, _LIMITED_S = 4.0, 0.011, 0.007, 0.012
"""Seconds measured on two cores: a start, and a round with all devices, with some, with slots."""


def _run(part: str, scheme: str, limit: TransferLimit | None, scenario: Scenario) -> StudyRun:
    round_s = _ALL_S if scheme == "unbiased" else _SOME_S if limit is None else _LIMITED_S
    labels = {"scheme": scheme, "limit": name_of(limit)}
    return StudyRun(part, labels, scenario, _START_S + round_s * scenario.server.rounds)


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


def _constants() -> Iterator[Claim]:
    truth = fleet.exact()
    yield exact("c of the outer groups, exactly", truth.shares[0], _C[0], 1e-10)
    yield exact("c of the middle group, exactly", truth.shares[1], _C[1], 1e-10)
    yield exact("The probability that nobody comes, exactly", truth.empty, _EMPTY, 1e-10)


def _figures(found: CorrelatedMeasures) -> Iterator[StudyFigure]:
    from muster.studies.correlated.figure import draw_limits, draw_losses, draw_surrogate

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
            {name_of(x): {s: fleet.ends_at(s, x) for s in UNDER_LIMITS} for x in limits},
            {scheme: found.distances(scheme) for scheme in UNDER_LIMITS},
            fleet.exact().gap,
        ),
        "F_m = ½‖θ − θ₀ − e_g‖² for the devices of group g. Under any weights, its minimiser is "
        "the point with these weights between the corners. The end point of a scheme therefore "
        "shows the weight of each group. Crosses are the expected end points.",
    )
