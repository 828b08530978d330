"""The claims and checks of the study `fedipw`."""

from collections.abc import Iterator

from muster.studies.claims import (
    Claim,
    at_most,
    close,
    difference,
    exact,
    greater,
    grows,
    higher,
    negligible,
)
from muster.studies.fedipw.fleet import LARGE, SMALL, STRENGTH
from muster.studies.fedipw.measures import FedIpwMeasures
from muster.studies.fedipw.two_groups import WRONG, prop_e1

TRACKS = 1 / 3
"""The most by which the gap of FedIPW may differ from that of the oracle, as a share of the gap
that the oracle removes."""

AS_WELL = 1 / 4
"""The most by which calibration on means that suffice may end further than FedIPW, as a share of
the gap that FedIPW removes."""

FOLLOWS = 0.5
"""The most by which the weights of FedIPW may scatter, as a share of those of participation-only
weights."""

_VACUOUS = 0.05
_ROUNDING = 1e-4
_UNEVEN_MARGIN = 0.2
_NONE_LEFT = 0.1


def claims_of(found: FedIpwMeasures, quick: bool) -> Iterator[Claim]:
    """All claims, in the order of the parts."""
    yield from _both_stages(found)
    yield from _weights(found)
    yield from _stronger(found)
    yield from _by_means(found, quick)
    yield from _noisy_means(found, quick)
    yield from _two_groups(found)


def checks_of(found: FedIpwMeasures) -> Iterator[Claim]:
    """What holds by construction."""
    yield exact(
        "A: ρ is 1 for every update that the oracle weighs",
        {seed: 1 + error for seed, error in found.largest_error("oracle-ipw").items()},
        1.0,
        1e-9,
    )
    cases = [prop_e1(epsilon) for epsilon in WRONG]
    worst = max(cases, key=lambda case: abs(case.gap - case.promised))
    yield exact(
        "E.1: the closed form of the gap of two clients, from its definition, is ½ε²G²/μ",
        worst.gap - worst.promised,
        0.0,
        1e-12,
    )


def _both_stages(found: FedIpwMeasures) -> Iterator[Claim]:
    only = found.gap("participation-ipw")
    yield higher(
        "A: FedAvg ends further from the target than participation-only weights",
        found.gap("fedavg"),
        only,
    ).because(
        "FedAvg corrects for neither stage of selection; participation-only weights correct "
        "for one."
    )
    for rule, name in (("fedipw", "FedIPW"), ("oracle-ipw", "the oracle")):
        yield higher(
            f"A: participation-only weights end further from the target than {name}",
            only,
            found.gap(rule),
        ).because(
            "Participation-only weights leave the bias of enrollment, which this rule corrects too."
        )
    yield _tracks(found, "A: FedIPW tracks the oracle", STRENGTH)


def _tracks(found: FedIpwMeasures, text: str, strength: float) -> Claim:
    estimated, true = found.gap("fedipw", strength), found.gap("oracle-ipw", strength)
    return negligible(
        f"{text}: their gaps differ by at most a third of what the oracle removes",
        difference(estimated, true),
        difference(found.gap("participation-ipw", strength), true),
        TRACKS,
    ).because("The propensities are logistic, as both models assume, so they are estimated well.")


def _weights(found: FedIpwMeasures) -> Iterator[Claim]:
    yield negligible(
        "A: the weights of FedIPW follow the true propensities, update by update: ln ρ scatters "
        "at most half as much as with participation-only weights",
        found.scatter("fedipw"),
        found.scatter("participation-ipw"),
        FOLLOWS,
    ).because(
        "FedIPW estimates both propensities, from Z and from the X of the same round; "
        "participation-only weights lack that of enrollment."
    )
    for rule, name in (("fedavg", "FedAvg"), ("participation-ipw", "participation-only")):
        share = found.share_of_bound(rule)
        yield at_most(
            f"A: the gap of {name} is within the bound ½ε²G²/μ of its weights' error", share, 1.0
        ).because(
            "The bias of the mean update is at most ε·G (Lemma D.9), and strong convexity turns it "
            "into a gap."
        )
        yield greater(
            f"A: this bound is not vacuous: {name} leaves more than a twentieth of it",
            share,
            _VACUOUS,
        ).because(
            "The devices that selection prefers have gradients that point the same way, so the "
            "errors of their weights add up."
        )


def _stronger(found: FedIpwMeasures) -> Iterator[Claim]:
    gaps = found.strengths()
    only = gaps["participation-ipw"]
    for s in (s for s in only if s != STRENGTH):
        yield higher(
            f"B: with strength {s:g} too, FedAvg ends further than participation-only weights",
            gaps["fedavg"][s],
            only[s],
        ).because("Enrollment and participation prefer the same devices, so their biases add up.")
    for s in (s for s in gaps["oracle-ipw"] if s != STRENGTH):
        yield _tracks(found, f"B: with strength {s:g} too, FedIPW tracks the oracle", s)
    yield grows(
        "B: the gap of FedAvg grows with the strength of enrollment bias", gaps["fedavg"]
    ).because(
        "The stronger enrollment prefers devices, the less the enrolled ones are like the "
        "population."
    )
    yield grows("B: the gap of participation-only weights grows with it", only).because(
        "These weights end at the optimum of the enrolled devices, which moves away from the "
        "target."
    )
    more = {s: difference(values, gaps["fedipw"][s]) for s, values in only.items()}
    yield grows("B: what participation-only leaves over FedIPW grows with it", more).because(
        "FedIPW removes the bias of enrollment, so the difference is this bias."
    )


def _by_means(found: FedIpwMeasures, quick: bool) -> Iterator[Claim]:
    only, fedipw = found.gap("participation-ipw"), found.gap("fedipw")
    means, signs = found.calibrated_gap("all"), found.calibrated_gap("signs")
    one = found.calibrated_gap("first")
    yield negligible(
        "C: calibration on the exact means of Z does as well as FedIPW: its gap is larger by at "
        "most a quarter of what FedIPW removes",
        # Only what it leaves more: calibration that ends nearer does not contradict the claim.
        {seed: max(more, 0.0) for seed, more in difference(means, fedipw).items()},
        difference(only, fedipw),
        AS_WELL,
    ).because("Enrollment and the data depend on Z almost linearly, so its means suffice.")
    yield higher(
        "C: calibration on coarse indicators corrects in part: participation-only ends further",
        only,
        signs,
    ).because("The signs of the covariates carry a part of what enrollment depends on.")
    if not quick:
        yield higher("C: and in part only: it ends further than FedIPW", signs, fedipw).because(
            "Nothing in the signs tells how devices differ that have the same signs."
        )
    yield higher(
        "C: calibration on the mean of one covariate corrects in part: participation-only ends "
        "further",
        only,
        one,
    ).because("One of the three covariates is balanced, and the biases of all have the same sign.")
    yield higher(
        "C: and in part only: it ends further than calibration on all means", one, means
    ).because("The means of the other two covariates stay as enrollment left them.")
    yield higher(
        "C: if the covariates have opposed effects, calibration on one of them is worse than none",
        found.opposed_gap("calibrated"),
        found.opposed_gap("participation-ipw"),
    ).because(
        "The bias of the first covariate cancels a part of that of the others, and calibration "
        "removes the first alone."
    )


def _noisy_means(found: FedIpwMeasures, quick: bool) -> Iterator[Claim]:
    only, large = found.distance("participation-ipw"), found.distance("calibrated", LARGE)
    if not quick:
        yield grows(
            "D: the distance to the optimum grows with the error of the means", found.noises()
        ).because(
            "Calibrated weights reproduce the means that they are given, and with them their error."
        )
    noises = found.noises()
    yield higher(
        f"D: with errors of {LARGE}, calibration ends further than with exact means",
        noises[LARGE],
        noises[0.0],
    ).because("The weights reproduce means that are not those of the population.")
    yield higher(
        f"D: with errors of {SMALL}, calibration is nearer than participation-only",
        only,
        found.distance("calibrated", SMALL),
    ).because("A small error of the means costs less than the bias of enrollment that it removes.")
    if not quick:
        yield higher(
            f"D: with errors of {LARGE}, it is further than participation-only", large, only
        ).because(
            "A large error of the means costs more than the bias of enrollment that it removes."
        )


def _two_groups(found: FedIpwMeasures) -> Iterator[Claim]:
    for epsilon, share in found.two_devices().items():
        yield exact(
            f"E: two devices with weights wrong by {epsilon:g} end with a gap of ½ε²G²/μ times",
            share,
            1.0,
            _ROUNDING,
        ).because("The weighted loss of Proposition E.1 has its minimum where this gap is left.")
    fedavg = found.two_groups("fedavg")
    yield close(
        "E: two groups that take part with (1 ± ε)/2 leave FedAvg this gap in the mean, times",
        fedavg,
        1.0,
        _UNEVEN_MARGIN,
    ).because("A group's weight is its share of the updates, which is (1 ± ε)/2 in the mean.")
    yield negligible(
        "E: the oracle's weights leave at most a tenth of it",
        found.two_groups("oracle-ipw"),
        fedavg,
        _NONE_LEFT,
    ).because("Its weights make the groups equal in the mean; only the draws of a round differ.")
