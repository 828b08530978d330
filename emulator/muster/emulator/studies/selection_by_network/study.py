"""Selection by the network: a deadline behind a slow shared link, and what each rule makes of it.

Whether an update is in time depends on who else uses the link, which neither Z nor X records. Part
`no deadline` is the control, where FedIPW corrects what it should; `deadline` is the same fleet,
life by life, with one; `changed` is that with FedIPW, and something else about it.
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
from muster.emulator.studies.study import (
    Findings,
    Label,
    Options,
    Study,
    StudyFigure,
    StudyRun,
    StudyTable,
)

SHARE = 0.5
"""Of the valley in the population."""

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
    """How much is run.

    Attributes:
        free: rules without the deadline.
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
        claims = [*_gaps(found), *_weights(found), *_changes(found), *_losses(found)]
        table = StudyTable("rules", "Rules and changes", found.table(), _TABLE)
        return Findings(claims, list(_figures(found)), [table], _NOTES)


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
    )
    yield higher(
        "FedIPW ends further from the target with the deadline than without",
        deadline[FEDIPW],
        free[FEDIPW],
    )
    yield higher(
        "The oracle, which knows what devices do and not what links do, ends further with the "
        "deadline too",
        deadline["oracle-ipw"],
        free["oracle-ipw"],
    )
    yield higher(
        "With the deadline FedIPW ends further from the target than when it is told of the link",
        deadline[FEDIPW],
        deadline[WITH_LINK],
    )
    yield higher(
        "With the deadline participation-only weights end further from the target than importance, "
        "which corrects participation alone too, but counts who came",
        deadline["participation-ipw"],
        deadline[IMPORTANCE],
    )


def _weights(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    weights = found.by_rule("valley's weight", DEADLINE)
    yield greater(
        "With the deadline the valley has a smaller share of what is folded than of what comes",
        found.of("valley's share of accepted", DEADLINE),
        found.of("valley's share of folded", DEADLINE),
    )
    for rule, name in ((FEDIPW, "FedIPW"), ("oracle-ipw", "the oracle")):
        yield greater(
            f"With the deadline {name} weighs the valley by less than {SHARE:g}, its share of the "
            f"population",
            {seed: SHARE - weight for seed, weight in weights[rule].items()},
        )
    for rule, name in (
        (WITH_LINK, "FedIPW that is told of the link"),
        (IMPORTANCE, "importance"),
    ):
        yield greater(
            f"With the deadline {name} weighs the valley by more than FedIPW",
            weights[rule],
            weights[FEDIPW],
        )


def _changes(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    gaps, deadline = found.by_change("gap"), found.of("gap", DEADLINE)
    for change, name in (
        (INT8, "with updates that are compressed to int8"),
        (HALF, "when half as many devices are called"),
        (LONGEST, f"with a deadline of {LONGEST_S:g} s instead of {DEADLINE_S:g} s"),
    ):
        yield higher(f"FedIPW ends nearer to the target {name}", deadline, gaps[change])
    by_deadline = {limit: gaps.get(_name(limit)) for limit in (SHORTEST_S, LONG_S, LONGEST_S)}
    measured = {1 / limit: values for limit, values in by_deadline.items() if values is not None}
    if len(measured) > 1:
        yield grows(
            "The gap of FedIPW grows as the deadline is shorter",
            {**measured, 1 / DEADLINE_S: deadline},
        )


def _losses(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    yield greater(
        "With the deadline a larger share of the valley is late in rounds in which more of it come",
        found.of("crowding", DEADLINE),
    )
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
        draw_gaps(
            found.by_rule("gap", FREE), found.by_rule("gap", DEADLINE), found.by_change("gap")
        ),
        "Loss over all devices, enrolled or not, above the least there is. On the right FedIPW, "
        f"which is told of no link; the deadline of the study is {DEADLINE_S:g} s.",
    )
    yield StudyFigure(
        "weights",
        "Whom each rule weighs",
        draw_weights(
            found.by_rule("valley's weight", FREE),
            found.by_rule("valley's weight", DEADLINE),
            SHARE,
        ),
        "Town and valley have the same covariates but for the link, so weights by z1, z2 and load "
        "leave the valley where the deadline put it.",
    )
    yield StudyFigure(
        "late",
        "Who is late",
        draw_ends(found.ends(), found.crowds()),
        "Updates a round with the deadline, the same for every rule. On the right every round of "
        "every seed: no covariate of a device says how many others come.",
    )


_TABLE = (
    "Means over the seeds. The valley is half of the population; its weight is that in what rounds "
    "fold after the first third of them. The effective size is how many updates that weigh the "
    "same would be as noisy."
)

_NOTES = [
    (
        f"A gap is the mean of the last {TAIL:.0%} of the rounds. Devices are enrolled by z1 and "
        "z2 and take part by z1, z2 and load. Town and valley have the same distribution of these, "
        "of speed and of examples; they differ in the link and, by `behind`, in their data. "
        "Model, link and deadline are small alike: what matters is how many transfers fit into the "
        "deadline. In lockstep who is late follows from modelled seconds, not from the machine."
    ),
    (
        "A propensity is right only given what it was fitted on. FedIPW sees that updates are "
        "missing, finds no covariate that goes with it, and spreads the loss over all devices. The "
        "oracle knows what devices do, but not what becomes of their updates."
    ),
    (
        "What to do first: count late updates in `contributions`, by group or by whatever you know "
        "of the way to a device. Record the link (its kind, its cell, its region) as a covariate: "
        "that takes back a large part. It need not tell who is late in a round, only whose "
        "data are alike."
    ),
    (
        "Better than weights is to lose less: compress, call fewer at once, or wait longer. "
        "Weights cannot bring back what was not folded; those of the few in time become large, and "
        "the effective size small."
    ),
    (
        "Importance needs no covariate: it counts who came, whatever the reason. But it knows "
        "nothing of those who never enrolled, and caps the weight of those who hardly ever come, "
        "so a part of the gap remains."
    ),
]
