"""The claims and checks of the study `selection-by-network`, from its measures.

Gaps are shares of the town's gap, whose size does not depend on the seed, and claims state by how
much of it gaps differ. They are no ratios of gaps, because without a deadline a gap is near 0.
"""

from collections.abc import Iterator

from muster.studies.claims import (
    BySeed,
    Claim,
    difference,
    exact,
    greater,
    grows,
    negligible,
    times,
)
from muster.studies.selection_by_network.fleet import (
    DEADLINE_S,
    DEADLINES_S,
    FEDIPW,
    HALF,
    IMPORTANCE,
    INT8,
    LONGEST,
    WITH_LINK,
    deadline_name,
)
from muster.studies.selection_by_network.measures import DEADLINE, FREE, SelectionByNetworkMeasures

SHARE = 0.5
"""The valley's share of the population."""

_TENTH = 0.1


def claims_of(found: SelectionByNetworkMeasures) -> list[Claim]:
    return [*_gaps(found), *_weights(found), *_remedies(found), _crowding(found)]


def predicted_gap(weight: float) -> float:
    """The gap, as a share of the town's gap, of a model in which the valley weighs `weight`.

    Such a model is away from the middle between the optima of town and valley by 1 - 2 · weight of
    the distance of the town's optimum, and a gap is quadratic.
    """
    return (1 - 2 * weight) ** 2


def _gaps(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    free, deadline = found.by_rule("gap", FREE), found.by_rule("gap", DEADLINE)
    yield greater(
        "Without the deadline FedIPW has less than half the gap of FedAvg",
        times(free["fedavg"], 0.5),
        free[FEDIPW],
    ).because(
        "Without the deadline every update counts, and the covariates explain who takes part."
    )
    yield greater(
        "The deadline adds more than a tenth of the town's gap to the gap of FedIPW",
        _added(found, FEDIPW),
        by=_TENTH,
    ).because("The deadline loses updates of the valley, and no covariate says which.")
    yield greater(
        "The deadline adds more than a tenth of the town's gap to that of the oracle too, which "
        "knows what devices do and not what links do",
        _added(found, "oracle-ipw"),
        by=_TENTH,
    ).because("Even the true propensities say nothing of what becomes of an update on its way.")
    weights = found.of("valley's weight", DEADLINE)
    predicted = {seed: predicted_gap(weight) for seed, weight in weights.items()}
    added = _added(found, FEDIPW)
    yield negligible(
        "The gap that the deadline adds to FedIPW is (1 - 2w)² of the town's gap, up to a third, "
        "with w the valley's weight",
        difference(added, predicted),
        added,
        1 / 3,
    ).because(
        "The deadline acts through the valley's weight alone: of z1, z2 and load it knows nothing."
    )
    yield _removes(
        "FedIPW that is told of the link avoids more than a third of the gap that the deadline "
        "adds to FedIPW",
        found,
        deadline[WITH_LINK],
        1 / 3,
    ).because(
        "With the link as a covariate, the losses of the valley become a part of the propensity."
    )
    yield greater(
        "With the deadline participation-only weights end further from the target than importance, "
        "which corrects participation alone too, but counts who came",
        deadline["participation-ipw"],
        deadline[IMPORTANCE],
    ).because("Importance counts the updates that arrived, whatever kept the others away.")


def _weights(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    weights = found.by_rule("valley's weight", DEADLINE)
    yield greater(
        "With the deadline the valley's share of what is folded is lower by more than a tenth of "
        "all updates than its share of what comes",
        found.of("valley's share of accepted", DEADLINE),
        found.of("valley's share of folded", DEADLINE),
        by=_TENTH,
    ).because("Updates of the valley share a slow link, so more of them are late.")
    for rule, name in ((FEDIPW, "FedIPW"), ("oracle-ipw", "the oracle")):
        yield greater(
            f"With the deadline {name} weighs the valley by less than {SHARE - _TENTH:g}, and it "
            f"is {SHARE:g} of the population",
            {seed: SHARE - weight for seed, weight in weights[rule].items()},
            by=_TENTH,
        ).because("Weights cannot restore updates that were not folded.")
    for rule, name in (
        (WITH_LINK, "FedIPW that is told of the link"),
        (IMPORTANCE, "importance"),
    ):
        yield greater(
            f"With the deadline {name} weighs the valley by more than FedIPW, by over 0.05",
            weights[rule],
            weights[FEDIPW],
            by=0.05,
        ).because("This rule can see that updates of the valley are missing.")


def _remedies(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
    gaps, sizes = found.by_change("gap"), found.by_change("effective size")
    for change, name, share, words in (
        (INT8, "Compressing updates to int8", 0.75, "three quarters"),
        (HALF, "Calling half as many devices", 0.5, "half"),
        (LONGEST, f"Waiting {DEADLINES_S[-1]:g} s instead of {DEADLINE_S:g} s", 0.75,
         "three quarters"),
    ):  # fmt: skip
        text = f"{name} avoids more than {words} of the gap that the deadline adds to FedIPW"
        yield _removes(text, found, gaps[change], share).because(
            "More updates of the valley are in time."
        )
    yield greater(
        "FedIPW ends nearer to the target with int8 than if it is told of the link",
        found.of("gap", DEADLINE, WITH_LINK),
        gaps[INT8],
    ).because("Weights can only use the updates that were folded.")
    yield greater(
        "With int8 the effective size of FedIPW is larger by over 2 than if it is told of the link",
        sizes[INT8],
        found.of("effective size", DEADLINE, WITH_LINK),
        by=2,
    ).because("The few updates of the valley that are in time get large weights.")
    yield greater(
        "With int8 the effective size of FedIPW is larger by over 2 than if half are called",
        sizes[INT8],
        sizes[HALF],
        by=2,
    ).because("If fewer devices are called, fewer updates count.")
    levels = {1 / limit: gaps[deadline_name(limit)] for limit in DEADLINES_S if limit != DEADLINE_S}
    yield grows(
        "The gap of FedIPW grows as the deadline is shorter",
        {**levels, 1 / DEADLINE_S: found.of("gap", DEADLINE)},
    ).because("A shorter deadline loses more updates of the valley.")


def _crowding(found: SelectionByNetworkMeasures) -> Claim:
    return greater(
        "With the deadline a share of the valley that is larger by more than a tenth is late in "
        "rounds in which more of it come",
        found.of("crowding", DEADLINE),
        by=_TENTH,
    ).because("Devices that transfer at the same time share the rate of the link.")


def checks_of(found: SelectionByNetworkMeasures) -> Iterator[Claim]:
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


def _added(found: SelectionByNetworkMeasures, rule: str) -> dict[int, float]:
    """What the deadline adds to the gap of a rule."""
    return difference(found.of("gap", DEADLINE, rule), found.of("gap", FREE, rule))


def _removes(text: str, found: SelectionByNetworkMeasures, gap: BySeed, share: float) -> Claim:
    """`gap` is below that of FedIPW with the deadline by more than a share of what it adds."""
    removed = difference(found.of("gap", DEADLINE), gap)
    return greater(text, removed, times(_added(found, FEDIPW), share))
