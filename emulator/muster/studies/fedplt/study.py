"""FedPLT: training parts of a model, its convergence, the use of ψ, and when masks fail."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from muster.emulator.scenario.scenario import Scenario
from muster.studies.fedplt.figure import draw_convergence, draw_instabilities, draw_psi
from muster.studies.fedplt.fleet import (
    CAPACITIES,
    DECAYING,
    DISAGREEING,
    FEW,
    HALF,
    LABEL_RATES,
    LARGE,
    LIMIT_MASKS,
    MANY,
    NO_MASK,
    ONE,
    RATES,
    ROTATING,
    SMALL,
    STATIC,
    TENTH,
    WHOLE,
    Masks,
    PartFleet,
    blocks,
    curved,
    noisy,
    perceptron,
    softmax,
    two_classes,
)
from muster.studies.fedplt.judgement import checks, claims
from muster.studies.fedplt.measures import FedPltMeasures
from muster.studies.fedplt.static_claims import static_checks, static_claims
from muster.studies.fedplt.static_measures import StaticMeasures
from muster.studies.fedplt.static_study import (
    FULL,
    QUICK,
    static_figures,
    static_runs,
    static_tables,
)
from muster.studies.results import Results
from muster.studies.study import DIGITS_FOR_MNIST, Findings, Options, Study, StudyFigure, StudyTable
from muster.studies.study_run import Label, StudyRun


class _Size(NamedTuple):
    """Numbers of rounds of the parts, and the largest number of rounds of `decay`."""

    floor: int
    decay: int
    psi: int
    overshoot: int
    curvature: int
    labels: int
    limit: int


_FULL = _Size(floor=800, decay=1000, psi=150, overshoot=20, curvature=60, labels=60, limit=150)
_QUICK = _Size(floor=500, decay=500, psi=40, overshoot=10, curvature=40, labels=40, limit=100)

_START_S, _ROUND_S = 3.5, 0.02


class FedPltStudy(Study):
    """The theorem on partial training, ψ, and the instabilities of masks."""

    name: ClassVar = "fedplt"
    about: ClassVar = "devices that train and send a part of the model"
    paper: ClassVar = (
        "Convergence Analysis of Federated Learning with Partial Parameter Training (FedPLT)"
    )
    quick_seeds: ClassVar = 2
    without_data: ClassVar = DIGITS_FOR_MNIST

    def runs(self, options: Options) -> Sequence[StudyRun]:
        return [run for seed in options.all_seeds for run in _runs(seed, options)]

    def judge(self, results: Results, options: Options) -> Findings:
        found, static = FedPltMeasures(results), StaticMeasures(results)
        return Findings(
            [*static_claims(static), *claims(found)],
            [*static_checks(static), *checks(found)],
            [*static_figures(static), *_figures(found)],
            [*static_tables(static), *_tables(found)],
            _notes(),
        )


def _runs(seed: int, options: Options) -> Iterator[StudyRun]:
    size = _QUICK if options.quick else _FULL
    for part, labels, run in static_runs(seed, QUICK if options.quick else FULL):
        yield _run(part, labels, run)
    for rate in RATES:
        run = noisy(rate).scenario(seed, size.floor, HALF, evaluate_every=5)
        yield _run("floor", {"rate": rate}, run)
    yield _run("decay", {}, noisy(DECAYING).scenario(seed, size.decay, HALF, evaluate_every=5))
    yield from _psi(seed, size.psi, options.data)
    for masks, steps in ((TENTH, MANY), (TENTH, FEW), (WHOLE, MANY)):
        # Few steps get more rounds, so that they have the same number of steps in all.
        rounds = size.overshoot * MANY // steps
        run = softmax(steps).scenario(seed, rounds, masks, evaluate_every=rounds // 10)
        yield _run("overshoot", {"masks": masks.schedule, "steps": steps}, run)
    for schedule, rate in ((STATIC, LARGE), (STATIC, SMALL), (ROTATING, LARGE), (NO_MASK, LARGE)):
        # A smaller rate gets more rounds, so that it can go as far.
        run = _masked(curved(rate), seed, round(size.curvature * LARGE / rate), schedule)
        yield _run("curvature", {"masks": schedule, "rate": rate}, run)
    for rate in LABEL_RATES:
        for schedule in (STATIC, ROTATING):
            rounds = round(size.labels * max(LABEL_RATES) / rate)
            run = _masked(two_classes(rate), seed, rounds, schedule)
            yield _run("labels", {"masks": schedule, "rate": rate}, run)
    for schedule, masks in LIMIT_MASKS.items():
        run = DISAGREEING.scenario(seed, size.limit, masks)
        yield _run("limit", {"masks": schedule}, run)


def _psi(seed: int, rounds: int, data: str | None) -> Iterator[StudyRun]:
    for scaled_by in (1.0, *CAPACITIES):
        fleet = perceptron(data, scaled_by)
        yield _run("psi", {"scaled_by": scaled_by}, fleet.scenario(seed, rounds, WHOLE))
    for capacity in CAPACITIES:
        for psi in (True, False):
            run = perceptron(data).scenario(seed, rounds, blocks(capacity, psi=psi))
            yield _run("psi", {"capacity": capacity, "psi": psi}, run)


def _masked(fleet: PartFleet, seed: int, rounds: int, schedule: str) -> Scenario:
    """A run in which a device trains a twentieth of the model, or all of it."""
    masks = WHOLE if schedule == NO_MASK else Masks(schedule, ONE)
    return fleet.scenario(seed, rounds, masks)


def _run(part: str, labels: Mapping[str, Label], run: Scenario) -> StudyRun:
    return StudyRun(part, labels, run, _START_S + _ROUND_S * run.server.rounds)


def _figures(found: FedPltMeasures) -> Iterator[StudyFigure]:
    yield StudyFigure(
        "convergence",
        "Constant and decaying steps",
        lambda: draw_convergence(found.distances(), found.floors()),
        "D = ‖θ − θ*‖², half of the coordinates trained by each device. Left: means over the "
        "seeds; both scales are logarithmic. Right: the floor against η, and a line of slope 1.",
    )
    yield StudyFigure(
        "psi",
        "With and without ψ",
        lambda: draw_psi(found.courses("psi", "loss"), found.table()),
        "Left: the loss over the rounds, means over the seeds. Right: the final loss against the "
        "bytes that devices sent.",
    )
    yield StudyFigure(
        "instabilities",
        "When masks fail",
        lambda: draw_instabilities(
            {
                "overshoot": found.courses("overshoot", "loss"),
                "curvature": found.courses("curvature", "distance"),
                "labels": found.courses("labels", "loss"),
            }
        ),
        "Losses, and for `curvature` the distance to the common minimiser, against the share of "
        "the rounds. Lines are means over the seeds; the scales of the left and the middle are "
        "logarithmic.",
    )


def _tables(found: FedPltMeasures) -> Iterator[StudyTable]:
    yield StudyTable(
        "psi",
        "What devices train, and what it costs",
        found.table(),
        "Means over the seeds of the final loss and accuracy, and the bytes of all updates.",
    )


def _notes() -> list[str]:
    return [
        (
            "The theorem is about static masks. `floor` and `decay` have drawn masks, for which it "
            "states nothing; `static` has its own."
        ),
        (
            "The paper has no experiments. These fleets test what it proves, and where its "
            "assumptions end."
        ),
        (
            "Overshoot, the first instability: parts that depend on each other are trained apart. "
            "With ψ, a round moves every part as if the others rested. Keep ψ·τ·η·L below about 1."
        ),
        (
            "Static masks of devices that differ, the second instability: entry i follows the "
            "gradients of the devices that train it, which are not those that train entry j. "
            "The movement is then not that of any loss, and may lead away at every step size. "
            "Masks that rotate or are drawn do not have this problem."
        ),
    ]
