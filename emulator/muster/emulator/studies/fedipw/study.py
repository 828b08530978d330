"""Two-stage selection (enrollment, then participation) against the target population.

Part A runs four rules over one fleet. B varies how strongly enrollment prefers devices with high Z.
In C and D, the server knows only the means of the population, exactly (C) or with errors (D). B to
D use the same simulated devices, data and draws as A, so runs of the same seed differ only in the
compared setting.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from muster.emulator.fleet.closed_forms import prop_e1
from muster.emulator.studies.claims import Claim, difference, exact, grows, higher
from muster.emulator.studies.fedipw.figure import draw
from muster.emulator.studies.fedipw.fleet import (
    BY_MEANS,
    COARSE,
    LARGE,
    NOISES,
    RULES,
    SMALL,
    STRENGTH,
    STRENGTHS,
    scenario,
)
from muster.emulator.studies.fedipw.measures import TAIL, FedIpwMeasures, left_by
from muster.emulator.studies.results import Results
from muster.emulator.studies.study import Findings, Options, Study, StudyFigure, StudyTable
from muster.emulator.studies.study_run import Label, StudyRun
from muster.server.aggregators.oracle_ipw import OracleIpw


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
        found = FedIpwMeasures(results, options)
        claims = [
            *_both_stages(found),
            *_stronger(found),
            *_by_means(found, options.quick),
        ]
        figure = StudyFigure(
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
            "knows only the population's means. D: distance to the optimum against the error of "
            "these means. Lines are means over the seeds and bands their range.",
        )
        notes = [_TAILS, _TOO_FEW if options.quick else _DIRECTION]
        table = StudyTable("gaps", "Gaps and distances, tail averages", found.table())
        return Findings(claims, list(proposition_checks()), [figure], [table], notes)


_TAILS = (
    f"A tail average is over the last {TAIL:.0%} of the rounds, because the loss of FedAvg falls "
    f"before it rises. Enrollment is drawn once, which leaves every rule a gap of order 1/N. No "
    f"claim says that the oracle is better than FedIPW, because estimated propensities are often "
    f"better than true ones."
)
_DIRECTION = (
    f"The direction of the means' error is drawn once per seed. An error of {LARGE} towards the "
    f"enrolled devices is worse than no correction; in the other direction it may do no harm. "
    f"The comparison with participation-only is therefore judged on more seeds than the figure "
    f"shows."
)
_TOO_FEW = (
    f"Two claims are not judged with so few devices and seeds: that coarse calibration ends "
    f"further from the target than FedIPW, and that with errors of {LARGE}, calibration ends "
    f"further than participation-only."
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
"""The number of additional seeds for the comparison of D with participation-only, as a multiple of
`seeds`. They are needed because the direction of the means' error is drawn once per seed."""


def _more_seeds(options: Options) -> range:
    after = options.all_seeds.stop
    return range(after, after if options.quick else after + _MORE * options.seeds)


def _more(seed: int) -> Iterator[StudyRun]:
    yield _run("D", "participation-ipw", RULES["participation-ipw"], seed, _FULL)
    for noise in (SMALL, LARGE):
        yield _run("D", "calibrated", BY_MEANS, seed, _FULL, noise=noise)


class _FedIpwSize(NamedTuple):
    devices: int
    rounds: int
    expected_s: float


_FULL, _QUICK = _FedIpwSize(1000, 100, 20.0), _FedIpwSize(400, 60, 9.0)


def _run(
    part: str,
    name: str,
    rule: Mapping[str, Any],
    seed: int,
    size: _FedIpwSize,
    strength: float = STRENGTH,
    noise: float | None = None,
) -> StudyRun:
    read = scenario(size.devices, size.rounds, seed, rule, strength, noise)
    labels: dict[str, Label] = {"rule": name, "strength": strength}
    if noise is not None:
        labels["noise"] = noise
    return StudyRun(part, labels, read, size.expected_s)


def _both_stages(found: FedIpwMeasures) -> Iterator[Claim]:
    only = found.gap("participation-ipw")
    yield higher(
        "A: FedAvg ends further from the target than participation-only weights",
        found.gap("fedavg"),
        only,
    ).because(
        "FedAvg corrects for neither stage of selection; participation-only weights correct "
        "for one."
    )
    for rule, name in (("fedipw", "FedIPW"), ("oracle-ipw", "the oracle")):
        yield higher(
            f"A: participation-only weights end further from the target than {name}",
            only,
            found.gap(rule),
        ).because(
            "Participation-only weights leave the bias of enrollment, which this rule corrects too."
        )


def _stronger(found: FedIpwMeasures) -> Iterator[Claim]:
    gaps = found.strengths()
    only = gaps["participation-ipw"]
    yield grows(
        "B: the gap of FedAvg grows with the strength of enrollment bias", gaps["fedavg"]
    ).because(
        "The stronger enrollment prefers devices, the less the enrolled ones are like the "
        "population."
    )
    yield grows("B: the gap of participation-only weights grows with it", only).because(
        "These weights end at the optimum of the enrolled devices, which moves away from the "
        "target."
    )
    more = {s: difference(values, gaps["fedipw"][s]) for s, values in only.items()}
    yield grows("B: what participation-only leaves over FedIPW grows with it", more).because(
        "FedIPW removes the bias of enrollment, so the difference is this bias."
    )


def _by_means(found: FedIpwMeasures, quick: bool) -> Iterator[Claim]:
    coarse = found.calibrated_gap()
    yield higher(
        "C: calibration on coarse indicators corrects in part: participation-only ends further",
        found.gap("participation-ipw"),
        coarse,
    ).because("The signs of the covariates carry a part of what enrollment depends on.")
    if not quick:
        yield higher(
            "C: and in part only: it ends further than FedIPW", coarse, found.gap("fedipw")
        ).because("Nothing in the signs tells how devices differ that have the same signs.")
    only = found.distance("participation-ipw")
    yield grows(
        "D: the distance to the optimum grows with the error of the means", found.noises()
    ).because(
        "Calibrated weights reproduce the means that they are given, and with them their error."
    )
    yield higher(
        f"D: with errors of {SMALL}, calibration is nearer than participation-only",
        only,
        found.distance("calibrated", SMALL),
    ).because("A small error of the means costs less than the bias of enrollment that it removes.")
    if not quick:
        yield higher(
            f"D: with errors of {LARGE}, it is further than participation-only",
            found.distance("calibrated", LARGE),
            only,
        ).because(
            "A large error of the means costs more than the bias of enrollment that it removes."
        )


def proposition_checks() -> Iterator[Claim]:
    """Yield the checks of proposition E.1, which is about two clients."""
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
