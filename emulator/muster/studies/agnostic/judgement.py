"""The claims and checks of the study `agnostic`."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from muster.client.availability.k_of_n import effective_weights
from muster.studies.agnostic.fleet import DECAY, DEVICES, NORMALISED, WEIGHTED
from muster.studies.agnostic.known import (
    inclusion_of_random_size,
    limits,
    raw,
    shares,
    shares_by_enumeration,
    shares_by_subsets,
    shares_of_random_size,
    skew,
)
from muster.studies.agnostic.measures import PARTS, Measures
from muster.studies.claims import BySeed, Claim, at_most, close, exact, greater, grows, higher

CLAIMED = {"linear": (100, 30, DECAY, 5), "pictures": (30, DECAY)}
"""Part to the decays at which rules are compared. With nearly no skew there is no difference."""
_LITTLE, _MIDDLE, _MOST = 100, 30, 5

_OFF = {"quadratics": 0.25, "random size": 0.35}
"""Part to the margin: the share of the distance to the mean with other weights."""
_TWICE_OFF = 0.2
_SLOPE_MARGIN, _SLOPE_GAP = 0.15, 0.2
_SELDOM = 0.25
"""Half of the share of rounds that is expected of two rules that do not differ."""

ENUMERATED = (0.344369, 0.248727, 0.175843, 0.092062, 0.092062, 0.046937)
"""p of six devices with the weights 5, 3, 2, 1, 1 and ½, of which two take part, computed by hand.
"""


def claims(found: Measures) -> list[Claim]:
    return [
        *_rules(found),
        *_consistency(found),
        *_minimiser(found),
        *_limits(found),
        *_rates(found),
        _factor(found),
    ]


def checks(found: Measures) -> list[Claim]:
    return [*_literal(found), *_enumerations()]


def factor() -> float:
    """N Σ p²."""
    return float(DEVICES * (shares() ** 2).sum())


def _rules(found: Measures) -> Iterator[Claim]:
    for part in PARTS:
        for decay in CLAIMED[part]:
            yield greater(
                f"{part}, skew {skew(shares(decay)):.2f}: the loss with the weights p_i / Σ p "
                f"above that of agnostic averaging",
                found.difference(part, NORMALISED, decay),
            ).because("Devices that come more often get larger weights too, so they count twice.")
    little, middle, most = (
        found.difference("linear", NORMALISED, decay) for decay in (_LITTLE, _MIDDLE, _MOST)
    )
    for other, decay in ((little, _LITTLE), (most, _MOST)):
        yield greater(
            f"linear: with p_i / Σ p the difference at skew {skew(shares(_MIDDLE)):.2f} is larger "
            f"than at skew {skew(shares(decay)):.2f}",
            middle,
            other,
        ).because(
            "Counting twice shifts the mean little if nearly all come alike, and also if nearly "
            "the same ten come in every round."
        )
    what = "the loss of equation 10 above that of agnostic averaging"
    yield greater(f"pictures: {what}", found.difference("pictures", WEIGHTED)).because(
        "The weights of equation 10 do not sum to 1, so every round makes the parameters longer."
    )
    levels = found.differences("pictures", WEIGHTED)
    yield grows(f"pictures: the skew, and {what}", levels).because(
        "The factor N Σ p², by which a round multiplies the parameters, grows with the skew."
    )


def _consistency(found: Measures) -> Iterator[Claim]:
    for part, rule, name in (
        ("linear", NORMALISED, "p_i / Σ p"),
        ("pictures", NORMALISED, "p_i / Σ p"),
        ("pictures", WEIGHTED, "equation 10"),
    ):
        yield at_most(
            f"{part}: after a third of the rounds, the share of the evaluated rounds in which "
            f"agnostic averaging is not below {name}",
            found.not_above(part, rule),
            _SELDOM,
        ).because("The other rule has another limit, so it is worse in every round, not by chance.")


def _minimiser(found: Measures) -> Iterator[Claim]:
    ended = found.endings()
    yield greater(
        "linear: the average is nearer to the minimiser of Σ p_i f_i than to that of Σ f_i/N",
        _by_seed(ended, "distance to the other"),
        _by_seed(ended, "distance"),
    ).because("A mean over whoever comes takes device i with the weight p_i in the long run.")
    yield higher(
        "linear: and better than the latter, by Σ p_i f_i",
        _by_seed(ended, "gap of the other"),
        _by_seed(ended, "gap"),
    ).because("The average minimises the objective with the weights p_i, not with equal weights.")


def _by_seed(frame: pd.DataFrame, column: str) -> BySeed:
    return {
        int(seed): float(value) for seed, value in zip(frame["seed"], frame[column], strict=True)
    }


def _limits(found: Measures) -> Iterator[Claim]:
    for part, limit in limits().items():
        for other in limit.others:
            yield at_most(
                f"{part}: the distance of the average to Σ p_i b_i, as a share of the distance "
                f"from there to the mean of the b_i with {other}",
                found.off(part, other),
                _OFF[part],
            ).because(
                "With equal curvature, the minimiser of Σ p_i f_i is the mean of the devices' "
                "minimisers b_i with the weights p_i = E[1{i in S}/|S|], and no other weights."
            )
    yield at_most(
        "quadratics: with p_i / Σ p, the distance of the average to the mean of the b_i with the "
        "weights of devices that count twice, as a share of the distance from there to Σ p_i b_i",
        found.off_twice_counted(),
        _TWICE_OFF,
    ).because("In the long run device i has the weight E[p_i 1{i in S} / Σ p] in this rule.")


def _rates(found: Measures) -> Iterator[Claim]:
    absolute, squared = found.slopes("absolute"), found.slopes("squared")
    yield close(
        "absolute deviations: the gap falls as 1/√T: slope of log gap on log T",
        absolute,
        -0.5,
        _SLOPE_MARGIN,
    ).because(
        "With η = c/√(TH), the way from the start takes a share of the rounds that falls as 1/√T; "
        "and an absolute loss is proportional to the distance."
    )
    yield at_most(
        "least squares: the gap falls as 1/√T or faster: slope of log gap on log T", squared, -0.5
    ).because("Theorem 4 bounds the gap of the averaged iterate by a constant over √T.")
    yield greater(
        "the slope with absolute deviations above that with least squares",
        absolute,
        squared,
        by=_SLOPE_GAP,
    ).because("Near the minimum, a squared loss grows with the square of the distance.")


def _factor(found: Measures) -> Claim:
    text = "equation 10 multiplies the parameters, in the mean of the rounds, by N Σ p²"
    margin = float(DEVICES * shares() @ raw(DECAY)) - factor()
    return close(text, found.factors(), factor(), margin / 2).because(
        "A round multiplies the parameters by N/|S| Σ p_i over the devices that come; the margin "
        "is half the distance to N Σ p w, with the raw weights w."
    )


def _literal(found: Measures) -> Iterator[Claim]:
    what = "the loss of equation 10 above that of agnostic averaging"
    yield greater(f"linear: {what}", found.difference("linear", WEIGHTED)).because(
        "In a linear model the parameters that every round makes longer have a larger loss."
    )
    yield grows(f"linear: the skew, and {what}", found.differences("linear", WEIGHTED)).because(
        "The factor by which a round makes the parameters longer grows with the skew."
    )


def _enumerations() -> Iterator[Claim]:
    weights = np.array([5, 3, 2, 1, 1, 0.5])
    counted, raced = shares_by_enumeration(weights, 2), effective_weights(weights, 2)
    text = "six devices of which two come: p by going through all draws, and as worked out by hand"
    yield exact(text, float(np.abs(counted - ENUMERATED).max()), 0.0, 5e-7)
    text = "six devices of which two come: p by going through all draws, and as computed for many"
    yield exact(text, float(np.abs(counted - raced).max()), 0.0, 1e-9)
    subsets = shares_by_subsets(inclusion_of_random_size())
    text = "random size: p by going through all 1,024 subsets, and by the numbers of each group"
    yield exact(text, float(np.abs(subsets - shares_of_random_size()).max()), 0.0, 1e-9)
