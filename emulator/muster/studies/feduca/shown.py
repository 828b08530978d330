"""The figures, tables and notes of the study `feduca`."""

from collections.abc import Iterator

from muster.studies.feduca.claims import (
    AS_PRINTED,
    CIFAR,
    DELTA,
    INFLATION,
    NEWS,
    SAME_TEST,
    STRATEGIES_PART,
)
from muster.studies.feduca.figure import draw_courses, draw_deltas, draw_discrepancies
from muster.studies.feduca.measures import GAPS, UtilityMeasures
from muster.studies.study import StudyFigure, StudyTable


def figures_of(found: UtilityMeasures) -> Iterator[StudyFigure]:
    yield StudyFigure(
        "as-printed",
        "As printed: two tests",
        lambda: draw_courses(found.courses),
        "Figure 1 of the paper. FedUCA is judged by the printed rule, the others by eq. 1. Means "
        "over the seeds; participation is a moving mean over five rounds.",
    )
    yield StudyFigure(
        "same-test",
        "The same test for everybody, and controls",
        lambda: draw_courses(found.courses, same=True),
        "FedUCA and FedAvg, each under eq. 1 and under the printed rule, and FedAvg with a coin "
        "and with everybody. Means over the seeds; participation is a moving mean over five "
        "rounds.",
    )
    yield StudyFigure(
        "deltas",
        "The Jensen gap and participation over δ",
        lambda: draw_deltas(found.runs),
        "Table 8 and figure 2 of the paper, as printed and with binding thresholds: γ = 1.05 times "
        "the accuracy of the received model, and weights that are solved first. Dots are seeds; "
        "the paper's numbers are from CIFAR-10.",
    )
    yield StudyFigure(
        "discrepancy",
        "Discrepancy against its bound",
        lambda: draw_discrepancies(found.discrepancies),
        "Figure 7 of the paper, means over the seeds: FedUCA as printed, and at δ = 1 with "
        "binding thresholds. The bound is that of the round's own s, (n_s·‖s‖² − 1)/N, or "
        "(n_s − 1)/N in a round that falls back to weights that were not solved.",
    )


def tables_of(found: UtilityMeasures) -> Iterator[StudyTable]:
    yield StudyTable(
        "as-printed",
        "Table 2 as printed",
        found.table([AS_PRINTED]),
        "Means over the seeds: the accuracy of the last fifth of the rounds with its standard "
        "deviation, the share of institutes that accept, with that of the least and the most seed, "
        "and the share for which the received model is truly better than their own (eq. 1), both "
        "over the last half.",
    )
    yield StudyTable(
        "same-test",
        "Under the same test",
        found.table([AS_PRINTED, SAME_TEST]),
        "Every method under eq. 1, under the printed rule, and FedAvg with a coin and with "
        "everybody as controls. All retain updates; the rows of the table as printed retain what "
        "the paper prints.",
    )
    if found.has(CIFAR) or found.has(NEWS):
        yield StudyTable(
            "elsewhere",
            "Other data",
            found.table([CIFAR, NEWS]),
            "Table 7, and table 2 for CIFAR-10, with fewer examples and rounds, and with a coin.",
        )
    yield StudyTable(
        "settings",
        "Strategies, δ and inflation",
        found.table(
            [STRATEGIES_PART, DELTA, INFLATION],
            ["accuracy", "participation", "eq. 1", *GAPS, "missing utility", "discrepancy"],
        ),
        "Tables 3, 8 and 9, and figure 2. The gap and the missing utility are sums over the "
        "institutes, in means over the rounds, and over the half and the quarter of the rounds in "
        "which the gap is largest. The discrepancy ‖α − 1/N‖² is that of lemma A.10.",
    )
    yield StudyTable(
        "fit",
        "The fit and the discrepancy",
        found.table(
            [AS_PRINTED, CIFAR, NEWS], ["r squared", "discrepancy", "bound", "weight change"]
        ).dropna(),
        "Table 5 and figure 7 for FedUCA: R² on a grid of 41 weights, ‖α − 1/N‖² and its bound, "
        "and the largest change of a weight from one version to the next, in means over rounds.",
    )


NOTES = [
    (
        "With the printed rule a device stays if its utility at the new weight is not below that "
        "at the old one, by the same curve. That is nearly the same as a weight that did not fall, "
        "whatever the model is worth to it."
    ),
    (
        "FedUCA as printed solves a problem with many solutions, and its solver decides which of "
        "them is taken. Equal weights, with which it begins, are always one of them. `feduca "
        "nearest` takes the solution that is nearest to equal weights, so it never leaves them."
    ),
    (
        "Institutes fit their utilities to weights in [0, 0.5], because no strategy can give an "
        "institute more than n_s/N. The paper's equation 5 has [0, 1]."
    ),
    (
        "The partition follows appendix A.5; the paper does not name the groups of classes. "
        "Examples, rounds and models are smaller than in the paper, and the runs on CIFAR-10 use "
        "a subset of it."
    ),
    (
        "Of an institute that declines, the server retains its last update (algorithm 1, FedUCA), "
        "or in the table as printed its last model (algorithm 4, the baselines). In the other "
        "parts all methods retain updates. A round in which nobody accepts makes a version too."
    ),
]
