"""The claims of the study `correlated` about the classifier, the surrogate and the shares, and
its sizes, in full and quick."""

from collections.abc import Iterator
from typing import NamedTuple

from muster.studies.claims import Claim, at_most, close, difference, greater, negligible
from muster.studies.correlated import fleet, measures
from muster.studies.correlated.fleet import (
    AVERAGED,
    FAIR,
    FEWER,
    FEWER_SUBSET,
    LITERAL,
    LOCAL_STEPS,
    SCHEMES,
)
from muster.studies.correlated.measures import (
    UNDER_LIMITS,
    CorrelatedMeasures,
    distance_to,
    final,
    mean_loss,
)


class CorrelatedSize(NamedTuple):
    """The number of rounds of a study, and the margins of its claims: a shorter study needs wider
    margins.

    Attributes:
        rounds: rounds of the classifiers and the surrogate.
        theorem_rounds: rounds of the long runs for the theorems.
        distance: largest distance of the surrogate to its expected end point, as a share of the
            distance between the end points of the schemes. Below ½, the surrogate is nearer to its
            own end point than to that of the other scheme.
        floor: margin of the biased surrogate's ‖∇F‖ at the end, as a share of its expected value.
        limited_share: largest |ĉ/c − 1| with a limit, with which the middle group is seldom heard.
            If it is never heard, the mean over the groups is at least ⅓.
        empty: margin of the share of empty rounds.
    """

    rounds: int
    theorem_rounds: int
    distance: float
    floor: float
    limited_share: float
    empty: float


FULL = CorrelatedSize(1500, 1500, 0.25, 0.2, 0.12, 0.025)
QUICK = CorrelatedSize(300, 900, 0.4, 0.35, 0.25, 0.04)


_HALF = 0.5
"""The largest share of the bias' effect on the final loss by which two schemes may differ that
should be alike."""


_THIRD = 1 / 3
"""The same for the effect of a limit, which is larger."""

_SHARE_ERROR = 0.12
"""The largest |ĉ/c − 1|: half the error of an estimate that leaves out empty rounds."""


def bias_claims(found: CorrelatedMeasures, size: CorrelatedSize) -> Iterator[Claim]:
    yield from _figure_1(found)
    yield from _figure_2(found)
    yield from _surrogate(found, size)
    yield from _fewer(found)
    yield from _averaging(found)


def _figure_1(found: CorrelatedMeasures) -> Iterator[Claim]:
    over = {scheme: found.of(mean_loss, scheme) for scheme in SCHEMES}
    ends = {scheme: found.of(final, scheme) for scheme in SCHEMES}
    yield greater(
        "Mean over rounds of the training loss: biased above debiased",
        over["biased"],
        over["debiased"],
    ).because(
        "A plain mean gives the outer groups too little weight, so their digits are learned late."
    )
    yield greater(
        "Mean over rounds of the training loss: debiased above unbiased",
        over["debiased"],
        over["unbiased"],
    ).because(
        "Debiased steps vary with the devices that come; unbiased has all of them in every round."
    )
    yield greater("Final loss: biased above unbiased", ends["biased"], ends["unbiased"]).because(
        "The digits of the outer groups are still behind at the end."
    )
    yield greater("Final loss: biased above debiased", ends["biased"], ends["debiased"]).because(
        "The debiased scheme gives every device the same weight in the mean of the rounds."
    )
    yield negligible(
        "Final loss: debiased differs from unbiased by less than half as much as biased does",
        difference(ends["debiased"], ends["unbiased"]),
        difference(ends["biased"], ends["unbiased"]),
        _HALF,
    ).because("In the mean of the rounds a debiased step is the step of all devices.")
    yield negligible(
        "Final loss: with the estimated ĉ it differs from that with the exact c by less than half "
        "as much as biased does",
        difference(ends["debiased"], ends["exact"]),
        difference(ends["biased"], ends["exact"]),
        _HALF,
    ).because("The estimate converges to c, so later steps are the same.")


def _figure_2(found: CorrelatedMeasures) -> Iterator[Claim]:
    text = f"M_max = {LITERAL.slots}, {LITERAL.overflow}"
    ends = {scheme: found.of(final, scheme, LITERAL) for scheme in UNDER_LIMITS}
    free = {measure: found.of(measure, "debiased") for measure in (final, mean_loss)}
    yield negligible(
        f"{text}: debiased still converges: its final loss differs from that without a limit by "
        f"less than a third as much as that of biased does",
        difference(ends["debiased"], free[final]),
        difference(ends["biased"], free[final]),
        _THIRD,
    ).because(
        "ĉ is the share of the devices that get through, so it makes up for collisions as well."
    )
    yield greater(
        f"{text}: more slowly: its mean over rounds is above that without a limit",
        found.of(mean_loss, "debiased", LITERAL),
        free[mean_loss],
    ).because("Fewer devices get through, so steps vary more.")
    yield greater(f"{text}: biased ends above debiased", ends["biased"], ends["debiased"]).because(
        "Collisions change the weights of the groups, and a plain mean does not make up for it."
    )


def _fewer(found: CorrelatedMeasures) -> Iterator[Claim]:
    """M_max = 2, only in the full form."""
    if FEWER not in found.limits:
        return
    free, over = found.of(final, "debiased"), "M_max = 2, collide"
    ends = {scheme: found.of(final, scheme, FEWER) for scheme in UNDER_LIMITS}
    yield greater(f"{over}: biased ends above debiased", ends["biased"], ends["debiased"]).because(
        "Capped weights still make up for a part of what collisions do to the weights."
    )
    yield greater(
        f"{over}: debiased does not arrive in these rounds: it ends even above biased without a "
        f"limit",
        ends["debiased"],
        found.of(final, "biased"),
    ).because("c of the middle group is below δ, and nine rounds of ten are empty.")
    biased = found.of(final, "biased", FEWER_SUBSET)
    yield negligible(
        "M_max = 2, subset: debiased still converges: its final loss differs from that without a "
        "limit by less than a third as much as that of biased does",
        difference(found.of(final, "debiased", FEWER_SUBSET), free),
        difference(biased, free),
        _THIRD,
    ).because("No round is lost, and ĉ is the share of the devices that get through.")


def _averaging(found: CorrelatedMeasures) -> Iterator[Claim]:
    """FedAvg, only in the full form."""
    if not found.averaging:
        return
    over = {scheme: found.of_averaging(mean_loss, scheme) for scheme in AVERAGED}
    ends = {scheme: found.of_averaging(final, scheme) for scheme in AVERAGED}
    text = f"FedAvg, {LOCAL_STEPS} local steps"
    yield greater(
        f"{text}: mean over rounds of the training loss: biased above debiased",
        over["biased"],
        over["debiased"],
    ).because("The weights of the devices are those of FedSGD; only an update is more than a step.")
    yield greater(
        f"{text}: final loss: biased above debiased", ends["biased"], ends["debiased"]
    ).because("The digits of the outer groups are still behind at the end.")
    yield negligible(
        f"{text}: final loss: debiased differs from unbiased by less than half as much as biased "
        f"does",
        difference(ends["debiased"], ends["unbiased"]),
        difference(ends["biased"], ends["unbiased"]),
        _HALF,
    ).because("In the mean of the rounds a debiased step is the mean update of all devices.")


def _surrogate(found: CorrelatedMeasures, size: CorrelatedSize) -> Iterator[Claim]:
    for limit in found.surrogate_limits:
        for scheme in UNDER_LIMITS:
            end = fleet.ends_at(scheme, limit)
            where = ", ".join(f"{weight:.3f}" for weight in end)
            yield at_most(
                f"Surrogate, {scheme}{f', {limit}' if limit else ''}: it ends near ({where}), the "
                f"distance as a share of that between biased and debiased",
                found.of_surrogate(distance_to(end, fleet.exact(limit).gap), scheme, limit),
                size.distance,
            ).because(
                "The minimiser under any weights is the point with these weights between the "
                "corners."
            )
    yield close(
        "Surrogate, biased: falling steps do not remove the bias: ‖∇F‖ at the end, as a multiple "
        "of the norm of the bias",
        found.of_surrogate(distance_to(FAIR, fleet.exact().gap), "biased"),
        1.0,
        size.floor,
    ).because(
        "The bias term of Theorem 1 does not depend on the step. Where the mean biased step "
        "vanishes, the bias is ∇F itself."
    )


def share_claims(found: CorrelatedMeasures, size: CorrelatedSize) -> Iterator[Claim]:
    longest = size.theorem_rounds
    yield at_most(
        "The fleet's ĉ end near c: |ĉ/c − 1|, the mean over the groups",
        found.of_theorems(measures.share_error(None), "debiased", longest),
        _SHARE_ERROR,
    ).because("ĉ is a mean over the rounds, whose expectation is c.")
    yield at_most(
        f"M_max = {LITERAL.slots}, {LITERAL.overflow}: ĉ end near the c of the devices that get "
        f"through: |ĉ/c − 1|, the mean over the groups",
        found.of(measures.share_error(LITERAL), "debiased", LITERAL),
        size.limited_share,
    ).because("Slots go to available devices only, so collisions are as likely as computed.")
    yield close(
        "The fleet's share of empty rounds is that probability",
        found.of_theorems(measures.empty, "debiased", longest),
        fleet.exact().empty,
        size.empty,
    ).because("A round is empty if no device comes, and empty rounds count in ĉ.")
