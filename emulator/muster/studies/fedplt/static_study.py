"""The runs, figures and tables of the study `fedplt` on static masks, and on damping."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from muster.emulator.scenario.scenario import Scenario
from muster.studies.fedplt.figure import draw_alignment, draw_bytes, draw_static
from muster.studies.fedplt.fleet import DECAYING, RATES, ROTATING, STATIC, WHOLE
from muster.studies.fedplt.static_fleet import (
    BLOCKS,
    BOUNDARY_STEPS,
    DAMPED,
    DATA,
    HALF,
    PATH_RATE,
    SCHEDULES,
    SHARES,
    TENSORS,
    UNDAMPED,
    evenly,
    linear,
    mixed,
    network,
    quarter,
    share_of,
)
from muster.studies.fedplt.static_measures import StaticMeasures
from muster.studies.study import StudyFigure, StudyTable
from muster.studies.study_run import Label

Planned = tuple[str, Mapping[str, Label], Scenario]
"""The part, the labels and the scenario of a run."""


class StaticSize(NamedTuple):
    """Numbers of rounds of the parts."""

    static: int
    path: int
    network: int
    boundary: int


FULL = StaticSize(static=800, path=150, network=150, boundary=20)
QUICK = StaticSize(static=250, path=150, network=40, boundary=20)


def static_runs(seed: int, size: StaticSize) -> Iterator[Planned]:
    for data in DATA:
        for rate in RATES:
            run = linear(data, rate).scenario(seed, size.static, HALF, evaluate_every=5)
            yield "static", {"data": data, "rate": rate}, run
        run = linear(data, DECAYING).scenario(seed, size.static, HALF, evaluate_every=5)
        yield "static decay", {"data": data}, run
        run = linear(data, PATH_RATE, full=True).scenario(seed, size.path, HALF, evaluate_every=10)
        yield "path", {"data": data}, run
        yield from _networks(seed, size.network, data)
    for share in SHARES:
        cells = [(steps, UNDAMPED) for steps in BOUNDARY_STEPS] + [(max(BOUNDARY_STEPS), DAMPED)]
        for steps, rate in cells:
            masks = share_of(share, rate)
            run = evenly(steps).scenario(seed, size.boundary, masks, evaluate_every=1)
            yield "boundary", {"share": share, "steps": steps, "server": rate}, run


def _networks(seed: int, rounds: int, data: str) -> Iterator[Planned]:
    fleet = network(data)
    named: dict[str, Label] = {"data": data, "server": UNDAMPED}
    yield "network", {**named, "trains": "the whole model"}, fleet.scenario(seed, rounds, WHOLE)
    for schedule in SCHEDULES:
        for rate in (UNDAMPED, DAMPED):
            run = fleet.scenario(seed, rounds, quarter(schedule, rate))
            labels: dict[str, Label] = {
                "masks": schedule,
                "server": rate,
                "trains": f"¼: blocks, {schedule}",
            }
            yield "network", {**named, **labels}, run
    for kind, schedule in ((BLOCKS, STATIC), (BLOCKS, ROTATING), (TENSORS, STATIC)):
        run = fleet.scenario(seed, rounds, mixed(kind, schedule))
        yield "network", {**named, "trains": f"1, ½, ¼: {kind}, {schedule}"}, run


def static_figures(found: StaticMeasures) -> Iterator[StudyFigure]:
    yield StudyFigure(
        "static",
        "Static masks end at another point",
        lambda: draw_static(
            {data: found.distances(data) for data in DATA},
            {data: found.limit_distance(data) for data in DATA},
        ),
        "The distance to the minimiser with static masks, means over the seeds. The dashed line is "
        "the distance of the solution of Σ c_k m_k⊙∇F_k = 0, computed from the data.",
    )
    yield StudyFigure(
        "alignment",
        "Assumption 6 along the path",
        lambda: draw_alignment(found.paths),
        "ρ_k of every device at the models of the path of full gradient steps, against the "
        "distance to the minimiser. The paper assumes ρ_k > 0.",
    )
    yield StudyFigure(
        "schedules",
        "Accuracy against bytes",
        lambda: draw_bytes(found.networks()),
        "The usual perceptron on digits, means over the seeds. Hollow: undamped (a server's rate "
        "of 1); filled: the step times ½.",
    )


def static_tables(found: StaticMeasures) -> Iterator[StudyTable]:
    yield StudyTable(
        "alignment",
        "Assumption 6",
        found.alignment(),
        "The distance of the limit of static masks from the minimiser, the smallest ρ_k of any "
        "seed and device at the untrained model, and the share of the devices whose ρ_k is not "
        "above 0 at the end of the path.",
    )
    yield StudyTable(
        "networks",
        "A network: schedules, capacities and damping",
        found.networks(),
        "Means over the seeds of the first and the final loss, the final accuracy, and the bytes "
        "of all updates.",
    )
    yield StudyTable(
        "boundary",
        "Where overshooting begins",
        found.boundary(),
        "The highest loss of any round as a multiple of that of the untrained model, in means over "
        "the seeds, and the spectral radius of a round at the untrained model.",
    )
