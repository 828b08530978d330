"""The claims of the study `fedplt`, and its checks."""

from collections.abc import Iterator

from muster.studies.claims import Claim, at_most, close, difference, greater, negligible
from muster.studies.fedplt.fleet import (
    CAPACITIES,
    FEW,
    LABEL_RATES,
    LARGE,
    MANY,
    NO_MASK,
    ROTATING,
    SMALL,
    STATIC,
)
from muster.studies.fedplt.measures import FedPltMeasures

_RATIO, _RATIO_MARGIN = 2.05, 0.25
_SLOPE, _SLOPE_MARGIN = -1.025, 0.225
_ALIKE, _SCALED = 0.05, 0.15
_NEAR = 0.1


def claims(found: FedPltMeasures) -> list[Claim]:
    return [*_convergence(found), *_psi(found), *_instabilities(found), *_limit(found)]


def _convergence(found: FedPltMeasures) -> Iterator[Claim]:
    for rate, ratios in found.floor_ratios().items():
        yield close(
            f"floor: D with η = {rate:g} as a multiple of D with half of it",
            ratios,
            _RATIO,
            _RATIO_MARGIN,
        ).because("A constant step ends at a noise floor, and the floor is proportional to η.")
    yield close(
        "decay: with η = 1/(z(t + t₀)), the slope of log D on log t",
        found.slopes(),
        _SLOPE,
        _SLOPE_MARGIN,
    ).because("The floor sinks with η, so that D falls as 1/t.")
    smallest = found.floors()[min(found.floors())]
    yield greater(
        "decay: D ends below the floor of the smallest constant η",
        smallest,
        found.last_with_decay(),
    ).because("The last steps are smaller than any constant step of the study.")


def _psi(found: FedPltMeasures) -> Iterator[Claim]:
    whole = found.whole("loss")
    for capacity in CAPACITIES:
        share = f"{capacity:.0%}"
        with_psi = found.psi("loss", capacity, psi=True)
        without = found.psi("loss", capacity, psi=False)
        cost = difference(without, whole)
        yield greater(
            f"psi: devices that train {share} of the model lose by leaving out ψ: the loss",
            without,
            with_psi,
        ).because("Without ψ, a unit moves by the share of the devices that trained it only.")
        yield negligible(
            f"psi: with ψ, masks of {share} end as devices that train the whole model: the "
            f"difference of the losses, as a share of what leaving out ψ costs",
            difference(with_psi, whole),
            cost,
            _ALIKE,
        ).because("With ψ a unit moves by the mean of the devices that trained it.")
        yield negligible(
            f"psi: without ψ, masks of {share} act as a learning rate that is multiplied by "
            f"{capacity:g}: the difference of the losses, as a share of what leaving out ψ costs",
            difference(without, found.whole("loss", capacity)),
            cost,
            _SCALED,
        ).because("Every unit is trained by that share of the devices, and ψ is left out.")
    least = min(CAPACITIES)
    accuracy = found.psi("accuracy", least, psi=True)
    yield negligible(
        f"psi: the accuracy with masks of {least:.0%}, less that of the whole model, as a share of "
        f"what leaving out ψ costs",
        difference(accuracy, found.whole("accuracy")),
        difference(found.whole("accuracy"), found.psi("accuracy", least, psi=False)),
        _NEAR,
    ).because("Devices hold alike data, so that it hardly matters which of them trains a unit.")


def _instabilities(found: FedPltMeasures) -> Iterator[Claim]:
    yield greater(
        f"overshoot: with masks and {MANY} local steps, the loss rises above that of the untrained "
        f"model, by more than",
        found.rise(part="overshoot", masks=ROTATING, steps=MANY),
        by=1.0,
    ).because(
        "Each device moves its part alone as far as is best with the others at rest, and the sum "
        "of these moves goes too far."
    )
    yield greater(
        f"overshoot: with masks and {FEW} local steps the loss falls, by more than",
        found.fall(part="overshoot", masks=ROTATING, steps=FEW),
        by=1.0,
    ).because("After few steps, no part has moved so far that the others should have followed.")
    yield greater(
        f"overshoot: and also with {MANY} local steps of the whole model",
        found.fall(part="overshoot", masks=NO_MASK, steps=MANY),
        by=1.0,
    ).because("Each device moves all parts together.")
    for rate in (LARGE, SMALL):
        yield greater(
            f"curvature: with static masks and η = {rate:g}, the distance to the common minimiser "
            f"grows: logarithm of the last over the first",
            found.growth(STATIC, rate),
        ).because(
            "Each entry follows the curvature of another device. These rows together are no "
            "Hessian, and have eigenvalues with negative real parts."
        )
    for masks in (ROTATING, NO_MASK):
        named = "rotating masks" if masks == ROTATING else "the whole model"
        shrinks = {seed: -value for seed, value in found.growth(masks, LARGE).items()}
        yield greater(
            f"curvature: with {named} and η = {LARGE:g} it shrinks: logarithm of the first over "
            f"the last",
            shrinks,
        ).because("In the mean over the rounds, every entry follows the mean of all curvatures.")
    for rate in LABEL_RATES:
        yield greater(
            f"labels: with static masks and η = {rate:g} the loss ends above that of rotating "
            f"masks by more than",
            found.final_loss("labels", STATIC, rate),
            found.final_loss("labels", ROTATING, rate),
            by=0.5,
        ).because("Each part of the model sees the labels of few devices only.")
        yield greater(
            f"labels: with static masks and η = {rate:g} the loss rises after its lowest value, by "
            f"more than",
            found.rebound("labels", STATIC, rate),
            by=0.1,
        ).because("No step size helps: a smaller one only slows the same movement down.")


def _limit(found: FedPltMeasures) -> Iterator[Claim]:
    yield at_most(
        "limit: static masks lead to the solution of Σ c_k m_k⊙∇F_k = 0: the distance to it, as a "
        "share of its distance to the minimiser",
        found.limit_error(STATIC),
        _NEAR,
    ).because("There no entry moves, although the mean loss has another minimiser.")
    yield at_most(
        "limit: rotating masks lead near the minimiser: the distance to it, as a share of its "
        "distance to where static masks lead",
        found.minimiser_error(ROTATING),
        1 / 3,
    ).because("Over the rounds every device trains every entry.")


def checks(found: FedPltMeasures) -> list[Claim]:
    return [
        at_most(
            f"psi: bytes up with masks of {capacity:.0%}, as a share of those of the whole model",
            found.bytes_up(capacity),
            capacity + 0.02,
        )
        for capacity in CAPACITIES
    ]
