"""Defects that the study `feduca` finds."""

import pytest
from tests.mutations.conftest import Judge

from muster.client.device.rational import ModelJudge
from muster.common.exchange import Call, Valuation
from muster.server.aggregators import feduca
from muster.server.knowledge.strategies import Strategies, StrategyProblem
from muster.studies import Claim, StudyRun
from muster.studies.feduca.claims import AS_PRINTED, DELTA, INFLATION
from muster.studies.feduca.fleet import FEDAVG, FEDUCA, PRINTED

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

STAY = "Under the printed rule, fedavg keeps all institutes"
GAPS = [
    f"With binding thresholds, the Jensen gap is larger at δ = 1 than at {extreme}"
    for extreme in ("0.01", "1000")
]
OVERSTATE = "The more institutes overstate their thresholds, the fewer stay"
FORESEEN = (STAY, *GAPS, OVERSTATE)


def needed(run: StudyRun) -> bool:
    method, test = run.labels["method"], run.labels["test"]
    usual = run.part == AS_PRINTED and "change" not in run.labels
    printed = usual and method == FEDUCA
    return printed or run.part in (DELTA, INFLATION) or (method, test) == (FEDAVG, PRINTED)


def held(claims: dict[str, Claim]) -> dict[str, bool]:
    """Whether each of the claims here holds, all of which must have been measured."""
    chosen = {text: claims[text] for text in FORESEEN}
    assert not [text for text, claim in chosen.items() if isinstance(claim.measured, str)]
    return {text: claim.holds for text, claim in chosen.items()}


def test_without_a_defect_the_claims_hold(judged: Judge) -> None:
    assert all(held(judged("feduca", needed)).values())


def test_devices_that_apply_eq_1_in_place_of_the_printed_rule_fail(
    judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gaining(judge: ModelJudge, call: Call, valuation: Valuation) -> bool:
        return bool(valuation.gains)

    monkeypatch.setattr(ModelJudge, "_accepts", gaining)
    assert not held(judged("feduca", needed))[STAY]


def test_strategies_that_are_all_alike_fail(judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def alike(problem: StrategyProblem) -> Strategies:
        return Strategies(problem.equal(), "none")

    monkeypatch.setattr(feduca, "solve", alike)
    found = held(judged("feduca", needed))
    assert not any(found[text] for text in GAPS)
    assert found[STAY], "FedAvg does not solve"
