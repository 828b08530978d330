"""The claims and checks of the study `usual-rules`, from its measures.

A bias is 0 at the optimum of all devices, and 1 at the optimum of the group that always comes.
"""

from collections.abc import Iterator

from muster.studies.claims import (
    BySeed,
    Claim,
    at_most,
    close,
    difference,
    exact,
    greater,
    grows,
)
from muster.studies.usual_rules.fleet import (
    ALL_COME,
    BULYAN,
    CLIPPING,
    FEDADAM,
    FEDAVG,
    FEDNOVA,
    FEDYOGI,
    KRUM,
    MEDIAN,
    MULTI_KRUM,
    NOISE,
    NONE_COME,
    ONE_COMES,
    ORACLE,
    Q1,
    Q5,
    SCAFFOLD,
    TRIMMED,
)
from muster.studies.usual_rules.known import WEIGHTS
from muster.studies.usual_rules.measures import (
    BIAS,
    DISTANCE,
    LOSS,
    PREDICTED,
    UsualRulesMeasures,
)

_FIFTH, _TENTH = 0.2, 0.1
_ROUGH = 0.15
"""The margin where the chance of the last rounds, a device or noise, matters."""
_BOTH = (ALL_COME, ONE_COMES)
_ROBUST = (MEDIAN, TRIMMED, KRUM, MULTI_KRUM, BULYAN)


def claims_of(found: UsualRulesMeasures) -> list[Claim]:
    """The claims about the rules that were run."""
    parts = (_averages, _adaptive, _memory, _fair, _robust, _private)
    return [claim for part in parts for claim in part(found)]


def _averages(found: UsualRulesMeasures) -> Iterator[Claim]:
    everyone = found.of(DISTANCE, ALL_COME, FEDAVG)
    yield greater(
        f"{ALL_COME}: fedavg has a bias towards the group that takes more steps",
        found.of(BIAS, ALL_COME, FEDAVG),
        by=_FIFTH,
    ).because("A device that takes more steps goes further, as if it counted more.")
    yield greater(
        f"{ALL_COME}: fednova is less than half as far from the optimum as fedavg",
        {seed: distance / 2 for seed, distance in everyone.items()},
        found.of(DISTANCE, ALL_COME, FEDNOVA),
    ).because("Updates are divided by their numbers of steps; what remains is drift.")
    yield greater(
        f"{ONE_COMES}: fednova is more than half of the way to the optimum of those that come",
        found.of(BIAS, ONE_COMES, FEDNOVA),
        by=0.5,
    ).because("It corrects for numbers of steps, and knows nothing of devices that are away.")
    yield close(
        f"{ONE_COMES}: oracle-ipw has the bias that fedavg has if {ALL_COME}",
        difference(found.of(BIAS, ONE_COMES, ORACLE), found.of(BIAS, ALL_COME, FEDAVG)),
        0,
        _ROUGH,
    ).because("The probabilities correct for who comes, and not for numbers of steps.")
    for rule in WEIGHTS:
        bias, predicted = (found.of(name, ONE_COMES, rule) for name in (BIAS, PREDICTED))
        yield close(
            f"{ONE_COMES}: the bias of {rule} is the computed one",
            difference(bias, predicted),
            0,
            _ROUGH,
        ).because("In the long run a mean of updates ends where their weighted mean is 0.")
    for rule in (FEDAVG, FEDNOVA, FEDADAM, FEDYOGI, Q1):
        if rule in found.rules:
            yield greater(
                f"The bias of {rule} is larger if {ONE_COMES} than if {ALL_COME}",
                found.of(BIAS, ONE_COMES, rule),
                found.of(BIAS, ALL_COME, rule),
                by=_FIFTH,
            ).because("An update that does not come has no weight.")


def _adaptive(found: UsualRulesMeasures) -> Iterator[Claim]:
    for rule in (FEDADAM, FEDYOGI):
        for part in _BOTH if rule in found.rules else ():
            yield close(
                f"{part}: {rule} has the bias of fedavg",
                _more(found, BIAS, part, rule),
                0,
                _TENTH,
            ).because("It scales the same mean update, which is 0 at the same point.")


def _memory(found: UsualRulesMeasures) -> Iterator[Claim]:
    yield at_most(
        f"{ALL_COME}: the distance of scaffold to the optimum",
        found.of(DISTANCE, ALL_COME, SCAFFOLD),
        0.02,
    ).because("Corrected steps are 0 at the optimum, so neither drift nor steps matter.")
    yield at_most(
        f"{ONE_COMES}: the distance of scaffold to the optimum",
        found.of(DISTANCE, ONE_COMES, SCAFFOLD),
        0.05,
    ).because(
        "The server's control variate has a gradient of every device that ever came, also of those "
        "that are away."
    )
    yield close(
        f"{NONE_COME}: scaffold is at the optimum of those that come",
        found.of(BIAS, NONE_COME, SCAFFOLD),
        1,
        0.05,
    ).because("Of a device that never came there is nothing to remember.")


def _fair(found: UsualRulesMeasures) -> Iterator[Claim]:
    yield greater(
        f"{ALL_COME}: q-fedavg with q = 1 goes past the optimum, towards the smaller group",
        {seed: -bias for seed, bias in found.of(BIAS, ALL_COME, Q1).items()},
        by=_TENTH,
    ).because("It minimises the mean of the squared losses, and the smaller group has larger ones.")
    for part in _BOTH:
        losses = {0: FEDAVG, 1: Q1, 5: Q5}
        yield grows(
            f"{part}: the loss of the smaller group falls as q grows (0, 1, 5): minus the loss",
            {
                q: {seed: -loss for seed, loss in found.of(LOSS, part, rule).items()}
                for q, rule in losses.items()
            },
        ).because("With a larger q, a device with a large loss counts more when it comes.")


def _robust(found: UsualRulesMeasures) -> Iterator[Claim]:
    for rule in _ROBUST:
        if rule in found.rules:
            yield greater(
                f"{ALL_COME}: {rule} has a larger bias than fedavg",
                _more(found, BIAS, ALL_COME, rule),
                by=_ROUGH,
            ).because("What differs from the majority counts as wrong, also if it is honest.")
    for rule in (MEDIAN, TRIMMED):
        yield close(
            f"{ONE_COMES}: {rule} is at the optimum of those that always come",
            found.of(BIAS, ONE_COMES, rule),
            1,
            _ROUGH,
        ).because("One of fifteen updates is never in the middle.")


def _private(found: UsualRulesMeasures) -> Iterator[Claim]:
    for part in _BOTH:
        yield close(
            f"{part}: noise leaves the bias of fedavg as it is",
            _more(found, BIAS, part, NOISE),
            0,
            _ROUGH,
        ).because("The noise has the mean 0, and the models depend on it linearly.")
        yield greater(
            f"{part}: noise moves the last model",
            found.moved_by_noise(part),
            by=0.03,
        ).because("It is added anew in every round, so the model does not come to rest.")
    yield greater(
        f"{ALL_COME}: clipping adds to the bias of fedavg",
        _more(found, BIAS, ALL_COME, CLIPPING),
        by=_TENTH,
    ).because("The bound shortens the longest updates, and those are of the smaller group.")


def _more(found: UsualRulesMeasures, measure: str, part: str, rule: str) -> BySeed:
    """A measure of a rule minus that of FedAvg."""
    return difference(found.of(measure, part, rule), found.of(measure, part, FEDAVG))


def checks_of(found: UsualRulesMeasures) -> Iterator[Claim]:
    yield exact(
        "The number of runs in which not as many devices came as the part states",
        found.other_updates(),
        0,
        0,
    )
    yield exact(
        f"The computed bias of oracle-ipw if {ONE_COMES}, less that of fedavg if {ALL_COME}",
        difference(found.of(PREDICTED, ONE_COMES, ORACLE), found.of(PREDICTED, ALL_COME, FEDAVG)),
        0,
        1e-9,
    )
