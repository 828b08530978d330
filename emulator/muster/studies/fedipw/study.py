"""Two-stage selection (enrollment, then participation) against the target population.

Part A runs four rules over one fleet. B varies how strongly enrollment prefers devices with high Z.
In C and D, the server knows only the means of the population, exactly (C) or with errors (D). B to
D use the same simulated devices, data and draws as A, so runs of the same seed differ only in the
compared setting; a part of C reverses the effect of a covariate. E is Proposition E.1 on a fleet of
its own, of two groups. F, only in the full form, is Propositions 4.1 and 4.2.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from muster.studies.fedipw.figure import draw, draw_bounds
from muster.studies.fedipw.fleet import (
    BY_MEANS,
    COARSE,
    EFFECTS,
    LARGE,
    NOISES,
    ONE_MEAN,
    OPPOSED,
    RULES,
    SMALL,
    STRENGTH,
    STRENGTHS,
    WEAK,
    scenario,
)
from muster.studies.fedipw.judgement import checks_of, claims_of
from muster.studies.fedipw.measures import OPPOSED_EFFECTS, TAIL, FedIpwMeasures
from muster.studies.fedipw.propositions import (
    ESTIMATED,
    ESTIMATORS,
    PropositionMeasures,
    proposition_claims,
    runs_of,
)
from muster.studies.fedipw.two_groups import UNEVEN, WRONG, two_devices, two_groups
from muster.studies.results import Results
from muster.studies.study import Findings, Options, Study, StudyFigure, StudyTable
from muster.studies.study_run import Label, StudyRun


class FedIpwStudy(Study):
    """Figure 2, the bound of Theorem 6.1 and Proposition E.1."""

    name: ClassVar = "fedipw"
    about: ClassVar = "selection in two stages, and what each correction leaves of the bias"
    paper: ClassVar = "Who Trains Matters: two-stage selection bias (FedIPW), figure 2"
    quick_seeds: ClassVar = 3

    def runs(self, options: Options) -> Sequence[StudyRun]:
        runs = [run for seed in options.all_seeds for run in _runs(seed, options.quick)]
        runs += [run for seed in _more_seeds(options) for run in _more(seed)]
        if not options.quick:
            runs += [run for seed in options.all_seeds for run in runs_of(seed)]
            runs += [
                run
                for seed in _more_seeds(options, _MORE_STEPS)
                for run in runs_of(seed, more=True)
            ]
        return [*runs, *_proposition(options)]

    def judge(self, results: Results, options: Options) -> Findings:
        found, steps = FedIpwMeasures(results, options), PropositionMeasures(results)
        notes = [_TAILS, _BOUND, _TOO_FEW if options.quick else _DIRECTION]
        tables = [
            StudyTable("means", "Means over the seeds", found.means_table(), _MEANS),
            StudyTable("gaps", "Gaps and distances, tail averages", found.table()),
            StudyTable("weights", "Errors of the weights of part A", found.errors_table()),
            StudyTable("two-groups", "Proposition E.1", found.two_groups_table()),
        ]
        claims = list(claims_of(found, options.quick))
        if not options.quick:
            claims += proposition_claims(steps)
            tables += [
                StudyTable("estimators", "Proposition 4.1: errors of the mean step", steps.table()),
                StudyTable("consistency", "The scatter of ln ρ of FedIPW", steps.sweep()),
            ]
        return Findings(
            claims,
            list(checks_of(found)),
            list(_figures(found)),
            tables,
            notes,
        )


class TrainingByN(FedIpwStudy):
    """FedIPW in training, with the sum of the weights and with N as the divisor, on the fleet of
    the quick form and without claims: `muster study muster.studies.fedipw.study:TrainingByN`."""

    name: ClassVar = "fedipw-training-by-n"
    about: ClassVar = "training with FedIPW whose weights are divided by their sum, or by N"

    def runs(self, options: Options) -> Sequence[StudyRun]:
        rules = {"fedipw": RULES["fedipw"], ESTIMATED: ESTIMATORS[ESTIMATED]}
        return [
            _run("A", name, rule, seed, _QUICK)
            for seed in options.all_seeds
            for name, rule in rules.items()
        ]

    def judge(self, results: Results, options: Options) -> Findings:
        table = FedIpwMeasures(results, options).table()
        return Findings([], tables=[StudyTable("gaps", "Gaps, tail averages", table)])


def _figures(found: FedIpwMeasures) -> Iterator[StudyFigure]:
    yield StudyFigure(
        "figure-2",
        "Figure 2",
        lambda: draw(
            found.courses(),
            found.strengths(),
            found.means(),
            found.noises(),
            found.references(),
        ),
        "A: loss over the target population above the least possible loss, by round. B: its "
        "tail average against the strength of the enrollment bias. C: the same if the server "
        "knows only means of the population: of all covariates, of their signs, or of z1 alone. "
        "D: distance to the optimum against the error of these means. Lines are means over the "
        "seeds and bands their range.",
    )
    yield StudyFigure(
        "bounds",
        "The bound and Proposition E.1",
        lambda: draw_bounds(found.errors_table(), found.two_groups_table()),
        "Left: the gap of each run of A against the bound of its weights' error; a run below the "
        "line is within the bound. The bound says nothing about runs whose gap comes from the "
        "single draw of enrollment. Right: the gaps of E and the curve of the proposition.",
    )


_TAILS = (
    f"A tail average is over the last {TAIL:.0%} of the rounds, because the loss of FedAvg falls "
    f"before it rises. Enrollment is drawn once, which leaves every rule a gap of order 1/N. No "
    f"claim says that the oracle is better than FedIPW, because estimated propensities are often "
    f"better than true ones."
)
_MEANS = "Gaps and distances in tail averages, and the gap of the untrained model."
_BOUND = (
    "The bound ½ε²G²/μ has the root mean square of the weights' error ρ − 1 in place of the "
    "largest, because the paper's proof needs no more; G is taken at the run's last model, and μ "
    "between it and the optimum. The paper's own assumption, |ρ − 1| ≤ ½ for all devices, holds "
    "for none of the rules here, and with the largest error the bound is vacuous. It is claimed "
    "only for rules whose weights are wrong in the mean: what FedIPW leaves comes from the draw "
    "of enrollment, which other terms of the theorem contain."
)
_DIRECTION = (
    f"The direction of the means' error is drawn once per seed. An error of {LARGE} towards the "
    f"enrolled devices is worse than no correction; in the other direction it may do no harm. "
    f"The comparison with participation-only is therefore judged on more seeds than the figure "
    f"shows."
)
_TOO_FEW = (
    f"Some claims are not judged with so few devices and seeds: that coarse calibration ends "
    f"further from the target than FedIPW, that the distance grows with each error of the means, "
    f"and that with errors of {LARGE}, calibration ends further than participation-only."
)


def _runs(seed: int, quick: bool) -> Iterator[StudyRun]:
    size = _QUICK if quick else _FULL
    for strength in (WEAK, STRENGTH) if quick else STRENGTHS:
        for name, rule in RULES.items():
            if strength == STRENGTH:
                yield _run("A", name, rule, seed, size)
            elif not (quick and name == "oracle-ipw"):
                yield _run("B", name, rule, seed, size, strength)
    for moments, rule in (("signs", COARSE), ("first", ONE_MEAN)):
        yield _run("C", "calibrated", rule, seed, size, noise=0.0, more={"moments": moments})
    opposed = {"effects": OPPOSED_EFFECTS}
    name = "participation-ipw"
    yield _run("C", name, RULES[name], seed, size, more=opposed)
    yield _run("C", "calibrated", ONE_MEAN, seed, size, noise=0.0, more=opposed)
    for noise in (0.0, SMALL, LARGE) if quick else NOISES:
        yield _run("D", "calibrated", BY_MEANS, seed, size, noise=noise)


_MORE = 7
"""The number of additional seeds for the comparison of D with participation-only, as a multiple of
`seeds`. They are needed because the direction of the means' error is drawn once per seed."""


_MORE_STEPS = 3
"""The same for Proposition 4.1, which is about a mean over draws of enrollment."""


def _more_seeds(options: Options, more: int = _MORE) -> range:
    after = options.all_seeds.stop
    return range(after, after if options.quick else after + more * options.seeds)


def _more(seed: int) -> Iterator[StudyRun]:
    yield _run("D", "participation-ipw", RULES["participation-ipw"], seed, _FULL)
    for noise in (SMALL, LARGE):
        yield _run("D", "calibrated", BY_MEANS, seed, _FULL, noise=noise)


class _FedIpwSize(NamedTuple):
    devices: int
    rounds: int
    expected_s: float


_FULL, _QUICK = _FedIpwSize(1000, 100, 20.0), _FedIpwSize(400, 40, 7.0)


def _run(
    part: str,
    name: str,
    rule: Mapping[str, Any],
    seed: int,
    size: _FedIpwSize,
    strength: float = STRENGTH,
    noise: float | None = None,
    more: Mapping[str, Label] = MappingProxyType({}),
) -> StudyRun:
    effects = OPPOSED if more.get("effects") == OPPOSED_EFFECTS else EFFECTS
    read = scenario(size.devices, size.rounds, seed, rule, strength, noise, effects)
    labels: dict[str, Label] = {"rule": name, "strength": strength, **more}
    if noise is not None:
        labels["noise"] = noise
    return StudyRun(part, labels, read, size.expected_s)


def _proposition(options: Options) -> Iterator[StudyRun]:
    """The runs of part E. Those of two devices have no randomness, so one seed is enough."""
    for epsilon in WRONG[1::2] if options.quick else WRONG:
        yield StudyRun(
            "E",
            {"rule": "weighted-normalised", "epsilon": epsilon},
            two_devices(options.seed, epsilon),
            3.0,
        )
    for seed in options.all_seeds:
        for name in ("fedavg", "oracle-ipw"):
            read = two_groups(seed, UNEVEN, RULES[name])
            yield StudyRun("E", {"rule": name, "epsilon": UNEVEN}, read, 5.0)
