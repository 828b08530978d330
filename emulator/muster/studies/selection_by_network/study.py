"""Selection by the network: a deadline and a slow shared link, and how each rule deals with them.

Whether an update is in time depends on which other devices use the link, which neither Z nor X
records. Part `no deadline` is the control, in which FedIPW corrects the bias as intended.
`deadline` is the same fleet, device by device, with a deadline. `changed` is the latter with FedIPW
and one changed setting.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from muster.emulator.scenario.scenario import Scenario
from muster.studies.results import Results
from muster.studies.selection_by_network.claims import SHARE, checks_of, claims_of, predicted_gap
from muster.studies.selection_by_network.figure import (
    draw_ends,
    draw_gaps,
    draw_prediction,
    draw_weights,
)
from muster.studies.selection_by_network.fleet import (
    CHANGES,
    DEADLINE_S,
    FEDIPW,
    HALF,
    INT8,
    RULES,
    Setting,
    scenario,
)
from muster.studies.selection_by_network.measures import (
    CHANGED,
    DEADLINE,
    FREE,
    TAIL,
    SelectionByNetworkMeasures,
)
from muster.studies.study import Findings, Options, Study, StudyFigure, StudyTable
from muster.studies.study_run import Label, StudyRun


class _SelectionSize(NamedTuple):
    """The size of the study.

    Attributes:
        rounds: number of rounds of each run.
        free: rules that are run without the deadline.
    """

    rounds: int
    free: Sequence[str]


_FULL = _SelectionSize(60, tuple(RULES))
_QUICK = _SelectionSize(40, ("fedavg", FEDIPW, "oracle-ipw"))

_START_S, _ROUND_S = 4.0, 0.12


class SelectionByNetworkStudy(Study):
    """A fleet of which a part is behind a slow shared link."""

    name: ClassVar = "selection-by-network"
    about: ClassVar = "a slow shared link and a deadline decide who counts, and no rule is told"
    quick_seeds: ClassVar = 2

    def runs(self, options: Options) -> Sequence[StudyRun]:
        return [run for seed in options.all_seeds for run in _runs(seed, _size(options))]

    def judge(self, results: Results, options: Options) -> Findings:
        found = SelectionByNetworkMeasures(results)
        table = StudyTable("rules", "Rules and changes", found.table(), _TABLE)
        figures = list(_figures(found))
        return Findings(claims_of(found), list(checks_of(found)), figures, [table], _NOTES)


def _size(options: Options) -> _SelectionSize:
    return _QUICK if options.quick else _FULL


def _runs(seed: int, size: _SelectionSize) -> Iterator[StudyRun]:
    for rule in size.free:
        yield _run(FREE, {"rule": rule}, scenario(seed, size.rounds, rule, Setting(None)))
    for rule in RULES:
        yield _run(DEADLINE, {"rule": rule}, scenario(seed, size.rounds, rule, Setting()))
    for change in CHANGES:
        labels = {"rule": FEDIPW, "change": change}
        yield _run(CHANGED, labels, scenario(seed, size.rounds, FEDIPW, CHANGES[change]))


def _run(part: str, labels: Mapping[str, Label], read: Scenario) -> StudyRun:
    return StudyRun(part, labels, read, _START_S + _ROUND_S * read.server.rounds)


def _figures(found: SelectionByNetworkMeasures) -> Iterator[StudyFigure]:
    yield StudyFigure(
        "gaps",
        "What the deadline costs",
        lambda: draw_gaps(
            found.by_rule("gap", FREE), found.by_rule("gap", DEADLINE), found.by_change("gap")
        ),
        "Loss over all devices, enrolled or not, above the least possible loss, as a share of the "
        "town's gap. On the right is FedIPW, which does not know of the link. The deadline of the "
        f"study is {DEADLINE_S:g} s.",
    )
    yield StudyFigure(
        "weights",
        "Weight of the valley by rule",
        lambda: draw_weights(
            found.by_rule("valley's weight", FREE),
            found.by_rule("valley's weight", DEADLINE),
            SHARE,
        ),
        "Town and valley have the same covariates except for the link. Weights by z1, z2 and load "
        "therefore cannot make up for the valley's late updates.",
    )
    yield StudyFigure(
        "prediction",
        "Weight of the valley and gap of FedIPW",
        lambda: draw_prediction(_predictable(found), predicted_gap),
        "A dot for each run of FedIPW that does not know of the link. The line is the gap of a "
        "model that is right in everything but the valley's weight w.",
    )
    yield StudyFigure(
        "late",
        "Late updates",
        lambda: draw_ends(found.ends(), found.crowds()),
        "Updates per round with the deadline, the same for every rule. On the right is every round "
        "of every seed. No covariate of a device records how many others take part.",
    )


def _predictable(
    found: SelectionByNetworkMeasures,
) -> dict[str, list[tuple[float, float]]]:
    fewer = (INT8, HALF)
    limits = [change for change in CHANGES if change not in fewer]
    under = [*found.weights_and_gaps(DEADLINE, ""), *found.weights_and_gaps(CHANGED, *limits)]
    return {
        "no deadline": found.weights_and_gaps(FREE, ""),
        "deadlines": under,
        " or ".join(fewer): found.weights_and_gaps(CHANGED, *fewer),
    }


_TABLE = (
    "Means over the seeds. Gaps are shares of the town's gap. The valley is half of the "
    "population. Its weight is its share of the weight of folded updates in the second half of the "
    "rounds. The effective size is the number of equally weighted updates that would be as noisy."
)

_NOTES = [
    (
        "A gap is the loss over all devices above the least loss, as a mean of the last "
        f"{TAIL:.0%} of the rounds and as a share of the town's gap: that of a model which suits "
        "the town alone. The town's gap is known and is the same with every seed. Devices are "
        "enrolled by z1 and z2 and take part by z1, z2 and load. Town and valley have the same "
        "distribution of these, of speed and of examples; they differ in the link and, by "
        "`behind`, in their data. Model, link and deadline are all small: what matters is how many "
        "transfers fit into the deadline. In lockstep, lateness follows from modelled seconds, not "
        "from the machine."
    ),
    (
        "A propensity is right only given the covariates that it was fitted on. FedIPW sees that "
        "updates are missing, finds no covariate that explains it, and spreads the loss over all "
        "devices. The oracle knows which devices take part, but not whether their updates arrive "
        "in time."
    ),
    (
        "First, count late updates in `contributions`, by group or by anything that you know about "
        "the path to a device. Then record the link (its kind, its cell, its region) as a "
        "covariate, which removes a part of the bias. The covariate need not predict which "
        "device is late in a round, only which devices have similar data."
    ),
    (
        "It is better to lose fewer updates than to correct by weights: compress updates, call "
        "fewer devices at once, or wait longer. Weights cannot restore updates that were not "
        "folded. The weights of the few updates in time become large, and the effective size "
        "small. It is small too if fewer devices are called, because fewer updates count."
    ),
    (
        "Importance needs no covariate: it counts which updates arrived, whatever the reason. But "
        "it knows nothing of devices that never enrolled, and it caps the weight of devices that "
        "rarely contribute, so a part of the gap remains."
    ),
]
