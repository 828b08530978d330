"""The checks of the study `feduca`: statements that hold by construction."""

from collections.abc import Iterator

from muster.studies.claims import Claim, at_most, difference, exact
from muster.studies.feduca.claims import SAME_TEST
from muster.studies.feduca.fleet import FEDAVG, NEAREST, PRINTED
from muster.studies.feduca.measures import UtilityMeasures


def checks_of(found: UtilityMeasures) -> Iterator[Claim]:
    yield at_most(
        "In no round is the discrepancy ‖α − 1/N‖² above its bound, (n_s·‖s‖² − 1)/N or "
        "(n_s − 1)/N",
        found.worst("discrepancy excess"),
        1e-6,
    )
    yield at_most(
        "In no round do more constraints hold at the solved weights than can hold",
        found.worst("unsatisfied"),
        0.0,
    )
    yield exact(
        "With solve-first, every decision under a fitted test is the one that the server foresaw",
        found.worst("mispredicted"),
        0.0,
        0.0,
    )
    nearest = {
        m: found.of(m, SAME_TEST, NEAREST, PRINTED)
        for m in ("participation", "accuracy", "discrepancy")
    }
    yield exact(
        "Under the printed rule, FedUCA with the solution nearest to equal weights never leaves "
        "equal weights: ‖α − 1/N‖²",
        nearest["discrepancy"],
        0.0,
        0.0,
    )
    yield exact(
        "Under the printed rule, all institutes stay with the solution nearest to equal weights",
        nearest["participation"],
        1.0,
        0.0,
    )
    yield exact(
        "Under the printed rule, the solution nearest to equal weights has the model of FedAvg: "
        "the difference of the accuracies",
        difference(nearest["accuracy"], found.of("accuracy", SAME_TEST, FEDAVG, PRINTED)),
        0.0,
        0.0,
    )
    yield exact("Nobody declines in a forced round", found.worst("refused"), 0.0, 0.0)
