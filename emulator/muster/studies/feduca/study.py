"""Rational institutes: the table of the paper as printed, and beside it every method under one and
the same test.

Part `as printed` is table 2 and figure 1 of the paper, with FedUCA under the rule of Algorithm 1
and the baselines under eq. 1. `same test` has the other rows of the same-test table. `strategies`
is table 3, `delta` table 8 and figure 2 (as printed, and with thresholds that bind), `inflation`
table 9. Table 5 and figure 7 need no runs of their own. In the full form, `cifar-10` has the rest
of table 2 and `20 newsgroups` is table 7, with fewer examples and rounds, because these models take
long to train.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from muster.studies.feduca.checks import checks_of
from muster.studies.feduca.claims import (
    AS_PRINTED,
    CIFAR,
    DELTA,
    HIGH_DELTA,
    INFLATION,
    INFLATIONS,
    LOW_DELTA,
    NEWS,
    ONE_STRATEGY,
    SAME_TEST,
    STRATEGIES_PART,
    alike_of,
    claims_of,
    delta_of,
    inflation_of,
)
from muster.studies.feduca.fleet import (
    AAGGFF,
    ALWAYS,
    BINDING,
    COIN,
    EQUATION_1,
    FEDAVG,
    FEDPROX,
    FEDUCA,
    INCFL,
    MODEL,
    NEAREST,
    PRINTED,
    SOLVE_FIRST,
    UPDATE,
    USUAL,
    WARM_START,
    UtilityData,
    UtilitySetting,
    animals,
    clothes,
    posts,
    scenario,
)
from muster.studies.feduca.measures import UtilityMeasures
from muster.studies.feduca.shown import NOTES, figures_of, tables_of
from muster.studies.results import Results
from muster.studies.study import Findings, Options, Study, StudyTable
from muster.studies.study_run import Label, StudyRun


class _UtilitySize(NamedTuple):
    """The size of the study.

    Attributes:
        rounds: rounds on Fashion-MNIST or digits.
        examples: examples of an institute there.
        alphas: concentrations of the training examples in the table as printed.
        same: methods and tests of the same-test table, beside those of the table as printed.
        deltas: the levels of δ.
        elsewhere: rounds on other data; 0: not run.
        round_s: seconds of a round.
    """

    rounds: int
    examples: int
    alphas: Sequence[float]
    same: Sequence[tuple[str, str]]
    deltas: Sequence[float]
    elsewhere: int
    round_s: float


_CONTROLS = (
    *((method, EQUATION_1) for method in (FEDUCA, FEDAVG)),
    (NEAREST, PRINTED),
    *((FEDAVG, test) for test in (PRINTED, COIN, ALWAYS)),
)
_OTHERS = (
    *((method, EQUATION_1) for method in (SOLVE_FIRST, FEDPROX, WARM_START, INCFL, AAGGFF)),
    *((method, PRINTED) for method in (FEDPROX, INCFL, AAGGFF)),
)
_FULL = _UtilitySize(
    30, 400, (0.5, 1.0), (*_CONTROLS, *_OTHERS), (0.01, 0.5, 1.0, 10.0, 100.0, 1000.0), 10, 1.0
)
_QUICK = _UtilitySize(20, 200, (0.5, 1.0), _CONTROLS, (LOW_DELTA, 1.0, HIGH_DELTA), 0, 0.4)
_PRINTED_TABLE = (
    (FEDUCA, PRINTED),
    *((method, EQUATION_1) for method in (FEDAVG, FEDPROX, WARM_START, INCFL, AAGGFF)),
)
_TABLE_7 = tuple(row for row in _PRINTED_TABLE if WARM_START not in row)
_ELSEWHERE_EXAMPLES = 200
_START_S, _CIFAR_S, _NEWS_S = 5.0, 3.0, 3.0


class FedUcaStudy(Study):
    """FedUCA and its baselines, as printed and under one and the same test."""

    name: ClassVar = "feduca"
    about: ClassVar = "rational institutes, and weights that are to keep them"
    paper: ClassVar = (
        "Yashwanth et al., Federated Learning by Utility-Constrained Stochastic Aggregation for "
        "Improving Rational Participation, 2026"
    )
    quick_seeds: ClassVar = 2
    without_data: ClassVar = (
        "No data directory: scikit-learn's 8×8 digits replace Fashion-MNIST, and the parts on "
        "CIFAR-10 and 20 Newsgroups are left out."
    )

    def runs(self, options: Options) -> Sequence[StudyRun]:
        return [run for seed in options.all_seeds for run in _runs(seed, options)]

    def judge(self, results: Results, options: Options) -> Findings:
        found = UtilityMeasures(results)
        return Findings(
            claims_of(found),
            list(checks_of(found)),
            list(figures_of(found)),
            list(tables_of(found)),
            NOTES,
        )


class OtherBaselines(FedUcaStudy):
    """The rows of the same-test table that only the full form has, at the size of the quick form
    and without claims: `muster study muster.studies.feduca.study:OtherBaselines`."""

    name: ClassVar = "feduca-other-baselines"
    about: ClassVar = "the other baselines of feduca under one and the same test"

    def runs(self, options: Options) -> Sequence[StudyRun]:
        data = clothes(options.data, _QUICK.examples, quick=True)
        return [
            _run(SAME_TEST, seed, data, _QUICK, method, test)
            for seed in options.all_seeds
            for method, test in _OTHERS
        ]

    def judge(self, results: Results, options: Options) -> Findings:
        table = UtilityMeasures(results).table([SAME_TEST])
        return Findings([], tables=[StudyTable("same-test", "Under the same test", table)])


def _runs(seed: int, options: Options) -> Iterator[StudyRun]:
    size = _QUICK if options.quick else _FULL
    data = clothes(options.data, size.examples, quick=options.quick)
    for alpha in size.alphas:
        yield from _table(AS_PRINTED, seed, data, size, alpha)
    for method, test in size.same:
        yield _run(SAME_TEST, seed, data, size, method, test)
    one = UtilitySetting(strategies=1)
    yield _run(STRATEGIES_PART, seed, data, size, FEDUCA, PRINTED, ONE_STRATEGY, one)
    for delta in size.deltas:
        setting = UtilitySetting(concentration=delta)
        for method, test in ((FEDUCA, PRINTED), (SOLVE_FIRST, BINDING)):
            yield _run(DELTA, seed, data, size, method, test, delta_of(delta), setting)
    for share in INFLATIONS:
        setting = UtilitySetting(inflation=share)
        yield _run(INFLATION, seed, data, size, FEDUCA, PRINTED, inflation_of(share), setting)
    if size.elsewhere and options.data is not None:
        yield from _elsewhere(seed, options.data, size)


def _elsewhere(seed: int, directory: str, size: _UtilitySize) -> Iterator[StudyRun]:
    """The rest of table 2, and table 7, each with a coin beside it."""
    cifar, news = (of(directory, _ELSEWHERE_EXAMPLES) for of in (animals, posts))
    sized = size._replace(rounds=size.elsewhere, round_s=_CIFAR_S)
    for alpha in size.alphas:
        yield from _table(CIFAR, seed, cifar, sized, alpha)
    yield _run(CIFAR, seed, cifar, sized, FEDAVG, COIN)
    sized = sized._replace(round_s=_NEWS_S)
    yield from _table(NEWS, seed, news, sized, 0.5, _TABLE_7)
    yield _run(NEWS, seed, news, sized, FEDAVG, COIN)


def _table(
    part: str,
    seed: int,
    data: UtilityData,
    size: _UtilitySize,
    alpha: float,
    rows: Sequence[tuple[str, str]] = _PRINTED_TABLE,
) -> Iterator[StudyRun]:
    """The rows of a table of the paper, each with the retention and the test that it has there."""
    for method, test in rows:
        ours = method == FEDUCA
        kept = UPDATE if ours else MODEL
        setting = UtilitySetting(alpha, retention=kept, dense=ours and alpha == USUAL.alpha)
        yield _run(part, seed, data, size, method, test, alike_of(alpha), setting)


def _run(
    part: str,
    seed: int,
    data: UtilityData,
    size: _UtilitySize,
    method: str,
    test: str,
    change: str = "",
    setting: UtilitySetting = USUAL,
) -> StudyRun:
    labels: dict[str, Label] = {"method": method, "test": test}
    if change:
        labels["change"] = change
    read = scenario(data, seed, size.rounds, method, test, setting)
    return StudyRun(part, labels, read, _START_S + size.round_s * size.rounds)
