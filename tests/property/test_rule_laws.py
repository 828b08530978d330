"""The laws of the kit for testing aggregators, for all built-in rules."""

import pytest

from muster.server.aggregators import BUILT_IN, Strategy
from muster.testing import LAWS, RuleLaws

ALIKE = "every device counts alike, whatever its examples"
BY_DEVICE = "the weight is that of the device, whatever its examples"
ROBUST = f"{ALIKE}, because a device could lie about them"
ENROLLED = "the weights depend on the number of enrolled devices"
LEARNED = "devices that do not take part are what the propensities are learned from"
COUNTED = "an empty round is a round in which nobody took part"
OPTIMIZER = "the step is that of an optimizer"
RECALL = "a round without updates makes a version too, from what devices have sent before"
DEVICE_SHARE = "each device has its share of the model, also those that send nothing"

_ROBUST = {"splitting": ROBUST}
_ADAPTIVE = {"agreement": OPTIMIZER}
_LEARNING = {
    "splitting": BY_DEVICE,
    "absentees": LEARNED,
    "empty-round": COUNTED,
}
_RETAINING = {
    "splitting": ALIKE,
    "agreement": DEVICE_SHARE,
    "absentees": DEVICE_SHARE,
    "empty-round": RECALL,
}

EXCEPTIONS = {
    "agnostic": {"splitting": ALIKE},
    "weighted": {"splitting": BY_DEVICE, "absentees": ENROLLED},
    "weighted-normalised": {"splitting": BY_DEVICE},
    "participation-ipw": _LEARNING,
    "fedipw": _LEARNING,
    "calibrated": _LEARNING,
    "oracle-ipw": {"splitting": BY_DEVICE},
    "importance": {
        "splitting": BY_DEVICE,
        "agreement": "rare devices count for more than their share of the round",
        "absentees": ENROLLED,
        "empty-round": COUNTED,
    },
    "fedbuff": {"splitting": ALIKE},
    "fedasync": {"splitting": ALIKE, "agreement": "the model keeps a share of what it was"},
    "fedadagrad": _ADAPTIVE,
    "fedadam": _ADAPTIVE,
    "fedyogi": _ADAPTIVE,
    "fedvarp": {"splitting": ALIKE, "absentees": ENROLLED},
    "mifa": {
        "splitting": ALIKE,
        "agreement": "it waits until all devices have taken part",
        "absentees": ENROLLED,
    },
    "median": _ROBUST,
    "trimmed-mean": _ROBUST,
    "krum": _ROBUST,
    "multi-krum": _ROBUST,
    "bulyan": _ROBUST,
    "fednova": {
        "agreement": "updates are divided by the number of local steps",
        "splitting": "the weights n_i/‖a_i‖₁ of two halves are rounded, so bits may differ",
    },
    "q-fedavg": {
        "splitting": ALIKE,
        "agreement": "the step is shorter where losses fall fast",
    },
    "scaffold": {"splitting": ALIKE},
    "feduca": _RETAINING,
    "max-participation": _RETAINING,
    "rational-fedavg": _RETAINING,
    "incfl": _RETAINING,
    "aaggff-s": _RETAINING,
}


def laws_of(kind: str, exceptions: dict[str, str], examples: int = 10) -> RuleLaws:
    members = {"rule": kind, "exceptions": exceptions, "examples": examples}
    laws: RuleLaws = type("LawsOfOne", (RuleLaws,), members)()
    return laws


RULES = [kind for kind, rule in BUILT_IN.items() if not issubclass(rule, Strategy)]
"""The rules. The strategy of an app is in place of one, and only the app knows its laws."""


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", RULES)
def test_built_in_rules_satisfy_the_laws(kind: str, law: str) -> None:
    getattr(laws_of(kind, EXCEPTIONS.get(kind, {})), LAWS[law])()


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize(
    ("kind", "law"), [(kind, law) for kind, laws in EXCEPTIONS.items() for law in laws]
)
def test_every_exception_is_needed(kind: str, law: str) -> None:
    with pytest.raises(AssertionError):
        getattr(laws_of(kind, {}, examples=50), LAWS[law])()


def test_exceptions_are_of_laws_that_exist_and_have_reasons() -> None:
    with pytest.raises(AssertionError, match=r"there is no law \['speling'\]; the laws are"):
        laws_of("fedavg", {"speling": "a slip"}).test_exceptions_are_of_laws_that_exist()
    with pytest.raises(AssertionError, match=r"\['splitting'\] say no reason"):
        laws_of("fedavg", {"splitting": " "}).test_exceptions_are_of_laws_that_exist()


def test_an_exception_is_skipped_with_its_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match=f"splitting: {ALIKE}"):
        getattr(laws_of("agnostic", {"splitting": ALIKE}), LAWS["splitting"])()
