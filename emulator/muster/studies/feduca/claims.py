"""The claims of the study `feduca`, from its measures.

They were written before the runs that judge them. Those about the table as printed are the paper's;
those about one and the same test are ours, and follow from the rule of Algorithm 1: a device stays
if its utility at the new weight is not below that at the old one, which is nearly the same as "my
weight did not fall".
"""

from collections.abc import Iterator

from muster.studies.claims import (
    BySeed,
    Claim,
    at_most,
    close,
    difference,
    greater,
)
from muster.studies.feduca.fleet import (
    ALWAYS,
    BASELINES,
    BINDING,
    COIN,
    EQUATION_1,
    FEDAVG,
    FEDPROX,
    FEDUCA,
    PRINTED,
    SOLVE_FIRST,
    WARM_START,
)
from muster.studies.feduca.measures import UtilityMeasures

AS_PRINTED, SAME_TEST, STRATEGIES_PART, DELTA, INFLATION = (
    "as printed", "same test", "strategies", "delta", "inflation",
)  # fmt: skip
CIFAR, NEWS = "cifar-10", "20 newsgroups"
"""The parts of the study."""

LOW_DELTA, MIDDLE_DELTAS, HIGH_DELTA = 0.01, (0.5, 1.0, 10.0), 1000.0
INFLATIONS = (0.05, 0.1)
ONE_STRATEGY = "n_s = 1"

_CLEARLY = 0.02
"""An accuracy that is clearly higher, or that is not, differs by so much."""
_FEWER = 0.2
"""The share of all institutes by which a participation is lower if it has collapsed."""
_HALF = 0.15
"""About half of the institutes: 0.5 up to this margin."""
_ELSEWHERE = 0.05
"""An accuracy on other data that is clearly higher; the paper has 18 points and more."""
_DELTA = 0.15
"""A gain of participation that is less than the 24 points of the paper's figure 2."""
_FIT = 0.5
"""The least R² of a fit that describes the utility."""


def alike_of(alpha: float) -> str:
    """The name of a split, for example "Dir(1)"; empty for the usual one."""
    return "" if alpha == 0.5 else f"Dir({alpha:g})"


def delta_of(delta: float) -> str:
    return f"δ = {delta:g}"


def inflation_of(share: float) -> str:
    return f"inflation {share:g}"


def claims_of(found: UtilityMeasures) -> list[Claim]:
    claims = [*_printed(found, ""), *_same_test(found)]
    if found.has(AS_PRINTED, alike_of(1.0)):
        claims += _printed(found, alike_of(1.0))
    claims += [*_strategies(found), *_deltas(found), *_inflations(found), *_fit(found)]
    for part in (CIFAR, NEWS):
        if found.has(part):
            claims += _elsewhere(found, part)
    return claims


def _printed(found: UtilityMeasures, split: str) -> Iterator[Claim]:
    """Table 2 and figure 1: each method is judged by the test that the paper gives it."""
    where = f"As printed{', ' + split if split else ''}"
    ours = {m: found.of(m, AS_PRINTED, FEDUCA, PRINTED, split) for m in _BOTH}
    yield _half(where, ours["participation"])
    for method in BASELINES:
        theirs = {m: found.of(m, AS_PRINTED, method, EQUATION_1, split) for m in _BOTH}
        yield _keeps_more(where, ours["participation"], method, theirs["participation"])
        yield greater(
            f"{where}: the model of FedUCA is better than that of {method}, by more than "
            f"{_CLEARLY:g}",
            ours["accuracy"],
            theirs["accuracy"],
            by=_CLEARLY,
        ).because("The baseline lives on the last models of institutes that left.")
    warm = {m: found.of(m, AS_PRINTED, WARM_START, EQUATION_1, split) for m in _BOTH}
    yield greater(
        f"{where}: five forced rounds make the model of FedAvg better",
        warm["accuracy"],
        found.of("accuracy", AS_PRINTED, FEDAVG, EQUATION_1, split),
    ).because("Without them, institutes leave a model of a single round.")
    yield greater(
        f"{where}: the model of FedUCA is better than that of fedavg-ws",
        ours["accuracy"],
        warm["accuracy"],
    ).because("About half of the institutes go on improving it.")


_BOTH = ("participation", "accuracy")


def _half(where: str, participation: BySeed) -> Claim:
    return close(
        f"{where}: FedUCA keeps about half of the institutes", participation, 0.5, _HALF
    ).because("Weights sum to 1, so if some rise the others fall.")


def _keeps_more(where: str, ours: BySeed, method: str, theirs: BySeed) -> Claim:
    return greater(f"{where}: FedUCA keeps more institutes than {method}", ours, theirs).because(
        "The baseline must be better than the institute's own model, which is harder."
    )


def _same_test(found: UtilityMeasures) -> Iterator[Claim]:
    """The same-test table: every method under eq. 1, every method under the printed rule."""
    yield greater(
        "FedUCA keeps more institutes under the printed rule than under eq. 1",
        found.of("participation", AS_PRINTED, FEDUCA, PRINTED),
        found.of("participation", SAME_TEST, FEDUCA, EQUATION_1),
    ).because("It is the test that keeps institutes, and not the weights.")
    for method in (FEDAVG, FEDPROX):
        if there := found.of("participation", SAME_TEST, method, PRINTED):
            yield close(
                f"Under the printed rule, {method} keeps all institutes", there, 1.0, 0.02
            ).because("Its weights do not change, so that no utility falls below the threshold.")
    ours = found.of("accuracy", AS_PRINTED, FEDUCA, PRINTED)
    yield at_most(
        f"FedUCA as printed is at most {_CLEARLY:g} better than FedAvg where a coin decides",
        difference(ours, found.of("accuracy", SAME_TEST, FEDAVG, COIN)),
        _CLEARLY,
    ).because("The printed rule keeps a half that has nothing to do with the value of the model.")
    yield at_most(
        f"FedUCA as printed is at most {_CLEARLY:g} better than FedAvg that everybody joins",
        difference(ours, found.of("accuracy", SAME_TEST, FEDAVG, ALWAYS)),
        _CLEARLY,
    ).because("More institutes in every round give a better mean.")
    yield greater(
        "Institutes that the printed rule keeps are no better off: as many of them as under "
        "FedAvg with a coin have a received model that is better than their own",
        found.of("eq. 1", SAME_TEST, FEDAVG, COIN),
        found.of("eq. 1", AS_PRINTED, FEDUCA, PRINTED),
        by=-0.1,
    ).because("The threshold is a utility of the model itself, and not that of leaving.")


def _strategies(found: UtilityMeasures) -> Iterator[Claim]:
    """Table 3."""
    one = found.of("participation", STRATEGIES_PART, FEDUCA, PRINTED, ONE_STRATEGY)
    yield close(
        "With one strategy, FedUCA as printed also keeps about half of the institutes",
        one,
        0.5,
        _HALF,
    ).because("The rule compares two weights; how many strategies made them does not matter.")


def _deltas(found: UtilityMeasures) -> Iterator[Claim]:
    """Table 8 and figure 2, as printed and with thresholds that bind."""
    printed = {
        (m, delta): found.of(m, DELTA, FEDUCA, PRINTED, delta_of(delta))
        for m in ("participation", "jensen gap")
        for delta in (LOW_DELTA, 1.0)
    }
    yield at_most(
        f"As printed, FedUCA keeps at most {_DELTA:g} of the institutes more at δ = 1 than at "
        f"{LOW_DELTA:g}",
        difference(printed["participation", 1.0], printed["participation", LOW_DELTA]),
        _DELTA,
    ).because("The rule compares two weights; how they were mixed does not matter.")
    yield greater(
        f"As printed, the Jensen gap is larger at δ = 1 than at {LOW_DELTA:g}",
        printed["jensen gap", 1.0],
        printed["jensen gap", LOW_DELTA],
    ).because("With small δ, one strategy counts.")
    gaps = {
        delta: found.of("jensen gap", DELTA, SOLVE_FIRST, BINDING, delta_of(delta))
        for delta in (LOW_DELTA, *MIDDLE_DELTAS, HIGH_DELTA)
    }
    for middle in MIDDLE_DELTAS:
        if not gaps[middle]:
            continue
        for extreme in (LOW_DELTA, HIGH_DELTA):
            yield greater(
                f"With binding thresholds, the Jensen gap is larger at δ = {middle:g} than at "
                f"{extreme:g}",
                gaps[middle],
                gaps[extreme],
            ).because("At the extremes, one strategy counts, or all strategies are alike.")


def _inflations(found: UtilityMeasures) -> Iterator[Claim]:
    """Table 9."""
    truthful = found.of("participation", AS_PRINTED, FEDUCA, PRINTED)
    for share in INFLATIONS:
        yield greater(
            f"If all institutes overstate their thresholds by {share:.0%}, fewer stay, by more "
            f"than {_FEWER:g}",
            truthful,
            found.of("participation", INFLATION, FEDUCA, PRINTED, inflation_of(share)),
            by=_FEWER,
        ).because("The sum of the weights is 1, so that not all demands can be met.")


def _fit(found: UtilityMeasures) -> Iterator[Claim]:
    """Table 5."""
    yield greater(
        f"The concave fit describes the utility: its mean R² on a dense grid is over {_FIT:g}",
        found.of("r squared", AS_PRINTED, FEDUCA, PRINTED),
        _FIT,
    ).because("Accuracies along a line between two models rise and fall once.")


def _elsewhere(found: UtilityMeasures, part: str) -> Iterator[Claim]:
    """Table 7, and table 2 for CIFAR-10: other data, with fewer examples and rounds."""
    for split in ("", alike_of(1.0)):
        if not found.has(part, split):
            continue
        where = f"On {part}{', ' + split if split else ''}"
        ours = {m: found.of(m, part, FEDUCA, PRINTED, split) for m in _BOTH}
        theirs = {m: found.of(m, part, FEDAVG, EQUATION_1, split) for m in _BOTH}
        yield _half(where, ours["participation"])
        yield _keeps_more(where, ours["participation"], FEDAVG, theirs["participation"])
        yield greater(
            f"{where}: the model of FedUCA is better than that of fedavg",
            ours["accuracy"],
            theirs["accuracy"],
        ).because("The baseline lives on the last models of institutes that left.")
    yield at_most(
        f"On {part}: FedUCA as printed is at most {_ELSEWHERE:g} better than FedAvg where a coin "
        f"decides",
        difference(
            found.of("accuracy", part, FEDUCA, PRINTED), found.of("accuracy", part, FEDAVG, COIN)
        ),
        _ELSEWHERE,
    ).because("The printed rule keeps a half that has nothing to do with the value of the model.")
