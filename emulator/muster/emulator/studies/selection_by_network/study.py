"""Selection by the network: a deadline and a slow shared link, and how each rule deals with them.

Whether an update is in time depends on which other devices use the link, which neither Z nor X
records. Part `no deadline` is the control, in which FedIPW corrects the bias as intended.
`deadline` is the same fleet, device by device, with a deadline. `changed` is the latter with FedIPW
and one changed setting.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

from muster.emulator.scenario.scenario import Scenario
from muster.emulator.studies.claims import Claim, exact, greater, grows, higher
from muster.emulator.studies.results import Results
from muster.emulator.studies.selection_by_network.figure import draw_ends, draw_gaps, draw_weights
from muster.emulator.studies.selection_by_network.fleet import (
    DEADLINE_S,
    EACH,
    ENROLLED,
    FEDIPW,
    IMPORTANCE,
    RULES,
    WITH_LINK,
    Setting,
    scenario,
)
from muster.emulator.studies.selection_by_network.measures import (
    CHANGED,
    DEADLINE,
    FREE,
    TAIL,
    SelectionByNetworkMeasures,
)
from muster.emulator.studies.study import Findings, Options, Study, StudyFigure, StudyTable
from muster.emulator.studies.study_run import Label, StudyRun

SHARE = 0.5
"""The valley's share of the population."""

INT8, HALF = "int8", "half called"
SHORTEST_S, LONG_S, LONGEST_S = 0.064, 0.1, 0.12


def _name(deadline_s: float) -> str:
    return f"deadline {deadline_s:g} s"


LONGEST = _name(LONGEST_S)
CHANGES: Mapping[str, Setting] = {
    INT8: Setting(int8=True),
    HALF: Setting(called=round(ENROLLED * EACH)),
    LONGEST: Setting(LONGEST_S),
    _name(LONG_S): Setting(LONG_S),
    _name(SHORTEST_S): Setting(SHORTEST_S),
}


class _SelectionSize(NamedTuple):
    """The size of the study.

    Attributes:
        rounds: number of rounds of each run.
        free: rules that are run without the deadline.
        changes: changed settings that are run.
    """

    rounds: int
    free: Sequence[str]
    changes: Sequence[str]


_FULL = _SelectionSize(60, tuple(RULES), tuple(CHANGES))
_QUICK = _SelectionSize(40, ("fedavg", FEDIPW, "oracle-ipw"), (INT8, HALF, LONGEST))

_START_S, _ROUND_S = 4.0, 0.12


class SelectionByNetworkStudy(Study):
    """A fleet of which a part is behind a slow shared link."""

    name: ClassVar = "selection-by-network"
    about: ClassVar = "a slow shared link and a deadline decide who counts, and no rule is told"
    quick_seeds: ClassVar = 1

    def runs(self, options: Options) -> Sequence[StudyRun]:
        return [run for seed in options.all_seeds for run in _runs(seed, _size(options))]

    def judge(self, results: Results, options: Options) -> Findings:
        found = SelectionByNetworkMeasures(results)
        claims = [*_gaps(found), *_weights(found), *_changes(found), _crowding(found)]
        table = StudyTable("rules", "Rules and changes", found.table(), _TABLE)
        return Findings(claims, list(_checks(found)), list(_figures(found)), [table], _NOTES)


def _size(options: Options) -> _SelectionSize:
    return _QUICK if options.quick else _FULL


def _runs(seed: int, size: _SelectionSize) -> Iterator[StudyRun]:
    for rule in size.free:
        yield _run(FREE, {"rule": rule}, scenario(seed, size.rounds, rule, Setting(None)))
    for rule in RULES:
        yield _run(DEADLINE, {"rule": rule}, scenario(seed, size.rounds, rule, Setting()))
    for change in size.changes:
        labels = {"rule": FEDIPW, "change": change}
        yield _run(CHANGED, labels, scenario(seed, size.rounds, FEDIPW, CHANGES[change]))


def _run(part: str, labels: Mapping[str, Label], read: Scenario) -> StudyRun:
    return StudyRun(part, labels, read, _START_S + _ROUND_S * read.server.rounds)


def _gaps(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    free, deadline = found.by_rule("gap", FREE), found.by_rule("gap", DEADLINE)
    yield higher(
        "Without the deadline FedAvg ends further from the target than FedIPW",
        free["fedavg"],
        free[FEDIPW],
    ).because(
        "Without the deadline every update counts, and the covariates explain who takes part."
    )
    yield higher(
        "FedIPW ends further from the target with the deadline than without",
        deadline[FEDIPW],
        free[FEDIPW],
    ).because("The deadline loses updates of the valley, and no covariate says which.")
    yield higher(
        "The oracle, which knows what devices do and not what links do, ends further with the "
        "deadline too",
        deadline["oracle-ipw"],
        free["oracle-ipw"],
    ).because("Even the true propensities say nothing of what becomes of an update on its way.")
    yield higher(
        "With the deadline FedIPW ends further from the target than when it is told of the link",
        deadline[FEDIPW],
        deadline[WITH_LINK],
    ).because(
        "With the link as a covariate, the losses of the valley become a part of the propensity."
    )
    yield higher(
        "With the deadline participation-only weights end further from the target than importance, "
        "which corrects participation alone too, but counts who came",
        deadline["participation-ipw"],
        deadline[IMPORTANCE],
    ).because("Importance counts the updates that arrived, whatever kept the others away.")


def _weights(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    weights = found.by_rule("valley's weight", DEADLINE)
    yield greater(
        "With the deadline the valley has a smaller share of what is folded than of what comes",
        found.of("valley's share of accepted", DEADLINE),
        found.of("valley's share of folded", DEADLINE),
    ).because("Updates of the valley share a slow link, so more of them are late.")
    for rule, name in ((FEDIPW, "FedIPW"), ("oracle-ipw", "the oracle")):
        yield greater(
            f"With the deadline {name} weighs the valley by less than {SHARE:g}, its share of the "
            f"population",
            {seed: SHARE - weight for seed, weight in weights[rule].items()},
        ).because("Weights cannot restore updates that were not folded.")
    for rule, name in (
        (WITH_LINK, "FedIPW that is told of the link"),
        (IMPORTANCE, "importance"),
    ):
        yield greater(
            f"With the deadline {name} weighs the valley by more than FedIPW",
            weights[rule],
            weights[FEDIPW],
        ).because("This rule can see that updates of the valley are missing.")


def _changes(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    gaps, deadline = found.by_change("gap"), found.of("gap", DEADLINE)
    for change, name in (
        (INT8, "with updates that are compressed to int8"),
        (HALF, "when half as many devices are called"),
        (LONGEST, f"with a deadline of {LONGEST_S:g} s instead of {DEADLINE_S:g} s"),
    ):
        yield higher(f"FedIPW ends nearer to the target {name}", deadline, gaps[change]).because(
            "More updates of the valley are in time."
        )
    by_deadline = {limit: gaps.get(_name(limit)) for limit in (SHORTEST_S, LONG_S, LONGEST_S)}
    measured = {1 / limit: values for limit, values in by_deadline.items() if values is not None}
    if len(measured) > 1:
        yield grows(
            "The gap of FedIPW grows as the deadline is shorter",
            {**measured, 1 / DEADLINE_S: deadline},
        ).because("A shorter deadline loses more updates of the valley.")


def _crowding(found: SelectionByNetworkMeasures) -> Claim:
    return greater(
        "With the deadline a larger share of the valley is late in rounds in which more of it come",
        found.of("crowding", DEADLINE),
    ).because("Devices that transfer at the same time share the rate of the link.")


def _checks(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    yield exact("Without the deadline no update is late", found.most("late", FREE), 0, 0)
    yield exact(
        "The ledger has a reason for every loss: who accepted was folded, or late for the deadline",
        found.most("unexplained", DEADLINE),
        0,
        0,
    )
    yield exact(
        "Who is late does not depend on the rule: updates that end otherwise than with FedAvg",
        found.other_ends(),
        0,
        0,
    )


def _figures(found: SelectionByNetworkMeasures) -> Iterator[StudyFigure]:
    yield StudyFigure(
        "gaps",
        "What the deadline costs",
        lambda: draw_gaps(
            found.by_rule("gap", FREE), found.by_rule("gap", DEADLINE), found.by_change("gap")
        ),
        "Loss over all devices, enrolled or not, above the least possible loss. On the right is "
        "FedIPW, which does not know of the link. The deadline of the study is "
        f"{DEADLINE_S:g} s.",
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
        "late",
        "Late updates",
        lambda: draw_ends(found.ends(), found.crowds()),
        "Updates per round with the deadline, the same for every rule. On the right is every round "
        "of every seed. No covariate of a device records how many others take part.",
    )


_TABLE = (
    "Means over the seeds. The valley is half of the population. Its weight is its share of the "
    "weight of folded updates after the first third of the rounds. The effective size is the "
    "number of equally weighted updates that would be as noisy."
)

_NOTES = [
    (
        f"A gap is the mean of the last {TAIL:.0%} of the rounds. Devices are enrolled by z1 and "
        "z2 and take part by z1, z2 and load. Town and valley have the same distribution of these, "
        "of speed and of examples; they differ in the link and, by `behind`, in their data. "
        "Model, link and deadline are all small: what matters is how many transfers fit into the "
        "deadline. In lockstep, lateness follows from modelled seconds, not from the machine."
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
        "covariate, which removes a large part of the bias. The covariate need not predict which "
        "device is late in a round, only which devices have similar data."
    ),
    (
        "It is better to lose fewer updates than to correct by weights: compress updates, call "
        "fewer devices at once, or wait longer. Weights cannot restore updates that were not "
        "folded. The weights of the few updates in time become large, and the effective size small."
    ),
    (
        "Importance needs no covariate: it counts which updates arrived, whatever the reason. But "
        "it knows nothing of devices that never enrolled, and it caps the weight of devices that "
        "rarely contribute, so a part of the gap remains."
    ),
]
