"""Wrong weights of the devices fail the study `agnostic`."""

import numpy as np
import pytest
from tests.mutations.conftest import Judge

from muster.client.availability.k_of_n import effective_weights
from muster.common.seeds import FloatArray
from muster.emulator.planning import oracle
from muster.server.aggregators.agnostic import Agnostic
from muster.server.aggregators.facts import Contribution
from muster.server.aggregators.values import State
from muster.studies import Claim, StudyRun
from muster.studies.agnostic.fleet import DECAY, QUADRATICS_DECAY, WEIGHTED
from muster.studies.agnostic.known import shares

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

LIMITS = [
    f"quadratics: the distance of the average to Σ p_i b_i, as a share of the distance from there "
    f"to the mean of the b_i with {other}"
    for other in ("the raw weights", "p²/Σp²")
]
TWICE = (
    "quadratics: with p_i / Σ p, the distance of the average to the mean of the b_i with the "
    "weights of devices that count twice, as a share of the distance from there to Σ p_i b_i"
)
FACTOR = "equation 10 multiplies the parameters, in the mean of the rounds, by N Σ p²"


def needed(run: StudyRun) -> bool:
    of_factor = (run.part, run.labels.get("rule"), run.labels.get("decay"))
    return run.part == "quadratics" or of_factor == ("linear", WEIGHTED, DECAY)


def held(claims: dict[str, Claim]) -> dict[str, bool]:
    """Whether each of the claims here holds, all of which must have been measured."""
    chosen = {text: claims[text] for text in (*LIMITS, TWICE, FACTOR)}
    assert not [text for text, claim in chosen.items() if isinstance(claim.measured, str)]
    return {text: claim.holds for text, claim in chosen.items()}


def test_without_a_defect_the_claims_hold(judged: Judge) -> None:
    assert all(held(judged("agnostic", needed)).values())


def test_raw_weights_in_place_of_p_fail(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def raw(weights: FloatArray, k: int) -> FloatArray:
        return np.asarray(weights / weights.sum())

    monkeypatch.setattr(oracle, "effective_weights", raw)
    assert held(judged("agnostic", needed)) == {
        **dict.fromkeys(LIMITS, True),  # agnostic averaging asks for no p
        TWICE: False,
        FACTOR: False,
    }


def test_squares_in_place_of_p_fail(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def squares(weights: FloatArray, k: int) -> FloatArray:
        p = effective_weights(weights, k)
        return np.asarray(p**2 / np.sum(p**2))

    monkeypatch.setattr(oracle, "effective_weights", squares)
    found = held(judged("agnostic", needed))
    assert not found[TWICE]
    assert not found[FACTOR]


def test_a_mean_that_weighs_devices_by_p_fails(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = shares(QUADRATICS_DECAY)

    def weight(rule: Agnostic, contribution: Contribution, state: State) -> float:
        return float(p[int(contribution.client.rsplit("-", 1)[1])])

    monkeypatch.setattr(Agnostic, "weight", weight)
    found = held(judged("agnostic", needed))
    assert not any(found[text] for text in LIMITS)
    assert found[TWICE], "the rule that is meant to weigh by p does so as before"
