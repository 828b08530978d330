"""Rational devices: the decision, what is remembered of it, what travels, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from muster.client.device.memory import Memory, RoundRecord, State
from muster.client.device.rational import ModelJudge, ModelJudgement, ModelPart
from muster.client.device.utility import LEAST_CURVATURE, fitted, r_squared, without
from muster.client.life.participation import ParticipationSettings, UtilitySettings
from muster.common.config import validate
from muster.common.errors import ConfigError, RemoteProtocolError
from muster.common.exchange import (
    Answer,
    Call,
    Decision,
    Key,
    Reason,
    ToDevice,
    UtilityCurve,
    Valuation,
)
from muster.common.tensors import Vector
from muster.emulator.planning import plan
from muster.emulator.report.plan_tables import describe
from muster.emulator.scenario.scenario import Scenario
from muster.tasks.classification import Digits
from muster.tasks.models import Softmax
from muster.tasks.task import OpenTask
from muster.v1 import fleet_pb2 as pb
from muster.wire.messages import (
    decode_from_device,
    decode_to_device,
    encode_answers,
    encode_to_device,
)

OWN = np.arange(4, dtype=np.float32)
CURVE = UtilityCurve(0.5, 0.25, 0.125, 0.75)
FULL = Valuation(0.25, 0.5, CURVE, False, True, -0.5, 0.75, 2.5, 1.5)
CALL = Call(Key("a", 2, 1), 1, 0.0, bytes(16))


@pytest.fixture(scope="module")
def digits() -> OpenTask:
    return Digits(name="digits", model=Softmax(kind="softmax"), validation_ratio=0.25).open(2, 0)


def judge_of(digits: OpenTask, **settings: Any) -> ModelJudge:
    validation = digits.validation(0)
    return ModelJudge(UtilitySettings(**settings), digits, digits.module(), validation, "a")


def votes_for(module: nn.Module, label: int) -> np.ndarray:
    """Parameters of a linear model that always predicts this label."""
    weight, bias = (np.zeros(p.shape, np.float32) for p in module.parameters())
    bias[label] = 1.0
    return np.concatenate([weight.ravel(), bias])


def share_of(digits: OpenTask, label: int) -> float:
    return float(np.mean(digits.validation(0).y == label))


@pytest.mark.parametrize(
    ("margin", "tolerance", "received", "own", "accepts"),
    [
        (0.0, 0.0, 0.51, 0.50, True),
        (0.0, 0.0, 0.50, 0.50, False),  # eq. 1 asks for more than the own model
        (0.0, 0.01, 0.50, 0.50, True),
        (0.1, 0.0, 0.56, 0.50, True),
        (0.1, 0.0, 0.54, 0.50, False),  # 1.1 · 0.5 = 0.55
        (0.1, 0.02, 0.54, 0.50, True),
    ],
)
def test_a_device_accepts_what_is_better_for_it(
    digits: OpenTask,
    margin: float,
    tolerance: float,
    received: float,
    own: float,
    accepts: bool,
) -> None:
    judge = judge_of(digits, margin=margin, tolerance=tolerance)
    assert judge.gains(received, own) is accepts


def test_a_device_measures_both_models_on_its_validation_examples(digits: OpenTask) -> None:
    judge, module = judge_of(digits), digits.module()
    shares = [share_of(digits, label) for label in range(10)]
    best, worst = int(np.argmax(shares)), int(np.argmin(shares))
    kept = ModelJudgement(True, Valuation(0.0, None), votes_for(module, worst)).to_bytes()
    judgement = judge.decide(CALL, votes_for(module, best), kept)
    assert judgement.accepts
    assert judgement.valuation[:2] == pytest.approx((shares[best], shares[worst]))
    np.testing.assert_array_equal(judgement.own, votes_for(module, worst))
    kept = judgement._replace(own=votes_for(module, best)).to_bytes()
    assert not judge.decide(CALL, votes_for(module, worst), kept).accepts


def accepted(digits: OpenTask, call: Call, received: int, own: int, **settings: Any) -> bool:
    """Whether a device accepts a model that always predicts one label, if its own predicts another
    one, and its curve is CURVE."""
    module = digits.module()
    kept = ModelJudgement(True, Valuation(0.0, None, CURVE), votes_for(module, own)).to_bytes()
    return judge_of(digits, **settings).decide(call, votes_for(module, received), kept).accepts


def by_share(digits: OpenTask) -> list[int]:
    """The labels by ascending share in the validation examples."""
    return sorted(range(10), key=lambda label: share_of(digits, label))


def test_a_device_that_always_accepts_says_whether_it_gained(digits: OpenTask) -> None:
    worst, *_, best = by_share(digits)
    module, judge = digits.module(), judge_of(digits, test="always")
    for received, own, gains in ((best, worst, True), (worst, best, False), (best, best, False)):
        kept = ModelJudgement(True, Valuation(0.0, None), votes_for(module, own)).to_bytes()
        judgement = judge.decide(CALL, votes_for(module, received), kept)
        assert (judgement.accepts, judgement.valuation.gains, judgement.valuation.forced) == (
            True,
            gains,
            False,
        )


def test_a_coin_accepts_half_of_the_models_by_the_seed(digits: OpenTask) -> None:
    calls = [CALL._replace(key=Key("a", round, 1)) for round in range(2, 202)]
    first, again = ([accepted(digits, call, 0, 0, test="coin") for call in calls] for _ in range(2))
    assert first == again
    assert 75 < sum(first) < 125  # 100 expected, with a standard deviation of 7


def test_forced_rounds_are_accepted_without_a_test(digits: OpenTask) -> None:
    worst, *_, best = by_share(digits)
    found = [
        accepted(digits, CALL._replace(key=Key("a", round, 1)), worst, best, forced_rounds=5)
        for round in (4, 5, 6)
    ]
    assert found == [True, True, False]


def test_a_fitted_test_compares_the_curve_with_what_was_reported(digits: OpenTask) -> None:
    # u(r) = -0.5·r² + 0.25·r + 0.125 is at most 0.15625, and the threshold 0.75.
    call = CALL._replace(weight=0.25)
    rule = {"test": "fitted"}
    assert not accepted(digits, call, 0, 0, tolerance=0.59, **rule)
    assert accepted(digits, call, 0, 0, tolerance=0.6, **rule)  # 0.75 - 0.15625 = 0.59375


def test_a_first_model_is_accepted_and_forced(digits: OpenTask) -> None:
    judgement = judge_of(digits, margin=100).decide(CALL, votes_for(digits.module(), 0), b"")
    assert judgement.accepts
    assert judgement.valuation.forced
    assert (judgement.valuation.gains, judgement.valuation.own_accuracy) == (None, None)


def concluded(digits: OpenTask, **settings: Any) -> Valuation:
    """The valuation after a round in which a device goes from one vote to another, with the weight
    1/2 in a model to which it has contributed its first vote."""
    worst, *_, best = by_share(digits)
    module, judge = digits.module(), judge_of(digits, **settings)
    call = CALL._replace(weight=0.5, base_version=0)
    received = votes_for(module, worst)
    judgement = judge.decide(call, received, b"")
    return judge.conclude(call, judgement, received, votes_for(module, best) - received).valuation


def test_a_device_overstates_its_threshold_by_the_inflation(digits: OpenTask) -> None:
    best = share_of(digits, by_share(digits)[-1])  # accuracy of the own model after training
    for inflation in (0.0, 0.1):
        curve = concluded(digits, inflation=inflation).curve
        assert curve is not None
        assert curve.threshold == pytest.approx((1 + inflation) * best)


def test_r_squared_is_that_of_numpy_on_the_dense_grid(digits: OpenTask) -> None:
    worst, *_, best = by_share(digits)
    assert concluded(digits).r_squared is None
    valuation = concluded(digits, dense_points=21, points=5)
    # A mixture votes for whoever has the larger weight; a tie goes to the smaller label.
    grid = np.linspace(0, 1, 21)
    wins = (grid > 0.5) | ((grid == 0.5) & (best < worst))
    measured = np.where(wins, share_of(digits, best), share_of(digits, worst))
    curve = valuation.curve
    assert curve is not None
    fit = np.polyval([-curve.a, curve.b, curve.c], grid)
    variance = np.mean((measured - measured.mean()) ** 2)
    assert valuation.r_squared == pytest.approx(1 - np.mean((measured - fit) ** 2) / variance)


def test_a_device_without_validation_examples_is_refused(digits: OpenTask) -> None:
    nothing = digits.validation(0).take(slice(0))
    with pytest.raises(ConfigError, match=r"holds out none; raise task\.validation_ratio"):
        ModelJudge(UtilitySettings(), digits, digits.module(), nothing, "a")


def test_a_decision_survives_the_process(tmp_path: Path) -> None:
    first = State(own=ModelJudgement(True, Valuation(0.25, None), OWN).to_bytes())
    second = State(own=ModelJudgement(False, Valuation(0.25, 0.5), OWN + 1).to_bytes())
    memory = Memory(tmp_path)
    memory.hold(RoundRecord(1, bytes(16), State(), first))
    memory.hold(RoundRecord(2, bytes(16), first, second))
    held = Memory(tmp_path).held
    assert [record.after for record in held] == [first, second]
    judgement = ModelJudgement.from_bytes(Memory(tmp_path).before(3).own)
    assert (judgement.accepts, judgement.valuation) == (False, Valuation(0.25, 0.5))
    np.testing.assert_array_equal(judgement.own, OWN + 1)
    assert ModelJudgement.from_bytes(first.own).valuation.own_accuracy is None


@pytest.mark.parametrize("valuation", [Valuation(0.0, None), FULL, None])
def test_a_valuation_travels_with_the_answer(valuation: Valuation | None) -> None:
    answer = Answer(Key("a", 2, 1), Decision.DECLINE, reason=Reason.NO_GAIN, valuation=valuation)
    [(said, _)] = decode_from_device(encode_answers([(answer, b"")])).answers
    assert said == answer


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["received_accuracy", "own_accuracy"])
def test_a_valuation_that_is_no_accuracy_is_refused(field: str, value: float) -> None:
    fields: dict[str, Any] = {"received_accuracy": 0.5, field: value}
    assert "expected a number from 0 to 1" in fault_of(pb.Valuation(**fields))


def fault_of(valuation: pb.Valuation) -> str:
    """What is found wrong with a valuation; the answer itself is decoded."""
    answer = pb.Answer(client="a", round=1, decision=pb.DECISION_ACCEPT, valuation=valuation)
    [(said, _)] = decode_from_device(pb.DeviceMessage(answers=[answer]).SerializeToString()).answers
    assert (said.decision, said.valuation) == (Decision.ACCEPT, None)
    return said.fault


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("fitted_utility", float("nan"), "expected a finite number"),
        ("r_squared", -float("inf"), "expected a finite number"),
        ("r_squared", 1.5, "expected at most 1"),
        ("received_loss", float("inf"), "expected a finite number"),
        ("own_loss", 1e9, "expected a finite number"),
    ],
)
def test_numbers_of_a_valuation_that_cannot_be_are_refused(
    field: str, value: float, said: str
) -> None:
    fields: dict[str, Any] = {"received_accuracy": 0.5, field: value}
    fault = fault_of(pb.Valuation(**fields))
    assert fault.startswith(f"{field} = ")
    assert said in fault


@pytest.mark.parametrize(
    "wrong", [{"a": 0.0}, {"a": -1.0}, {"b": float("nan")}, {"c": 1e9}, {"threshold": float("inf")}]
)
def test_a_curve_that_is_not_concave_or_not_finite_is_refused(wrong: dict[str, float]) -> None:
    curve = pb.UtilityCurve(**{**CURVE._asdict(), **wrong})
    valuation = pb.Valuation(received_accuracy=0.5, curve=curve)
    assert "expected a > 0 and finite numbers" in fault_of(valuation)


def test_a_weight_travels_with_the_call() -> None:
    # 0: the device has no part in the model, but is told so.
    for weight, retains_model in ((0.25, True), (0.0, False), (None, False)):
        call = CALL._replace(weight=weight, retains_model=retains_model)
        assert decode_to_device(encode_to_device(ToDevice(calls=[call]))).calls == [call]
    wrong = encode_to_device(ToDevice(calls=[CALL._replace(weight=1.5)]))
    with pytest.raises(RemoteProtocolError, match="expected 0 to 1"):
        decode_to_device(wrong)


@pytest.mark.parametrize("contribution", [OWN + 3, None], ids=["known", "unknown"])
def test_a_stand_with_a_part_in_the_model_survives_the_process(contribution: Vector | None) -> None:
    part = ModelPart(7, OWN + 1, OWN + 2, contribution)
    judgement = ModelJudgement(False, FULL, OWN, part, cost=0.125)
    again = ModelJudgement.from_bytes(judgement.to_bytes())
    assert (again.valuation, again.cost) == (judgement.valuation, 0.125)
    assert again.part is not None
    assert again.part.version == 7
    for found, expected in zip(again.part[1:], part[1:], strict=True):
        np.testing.assert_array_equal(found, expected)


def part_in(version: int, model: Vector, before: ModelPart | None, **call: Any) -> ModelPart:
    return ModelPart.of(CALL._replace(base_version=version, **call), model, before)


def test_a_part_is_the_version_before_plus_the_last_update() -> None:
    first = part_in(0, OWN, None)
    np.testing.assert_array_equal(first.contribution, OWN)  # nobody has contributed
    sent = first._replace(sent=OWN * 2)
    second = part_in(1, OWN + 9, sent)
    np.testing.assert_array_equal(second.contribution, OWN * 3)
    assert part_in(1, OWN + 9, second) is second, "an empty round moved the part"
    third = part_in(2, OWN, second)  # it sent nothing in between
    np.testing.assert_array_equal(third.contribution, (OWN + 9) + OWN * 2)


def test_a_device_that_missed_a_version_does_not_know_its_part() -> None:
    sent = part_in(0, OWN, None)._replace(sent=OWN * 2)
    missed = part_in(2, OWN + 9, sent)
    assert missed.contribution is None
    again = part_in(3, OWN, missed)
    np.testing.assert_array_equal(again.contribution, (OWN + 9) + OWN * 2)
    assert part_in(4, OWN, None).contribution is None, "it was called for the first time"


def test_where_models_are_retained_a_part_is_the_model_that_was_sent() -> None:
    retained = {"retains_model": True}
    first = part_in(0, OWN, None, **retained)
    second = part_in(
        1, OWN + 9, first, **retained
    )  # it sent nothing, which keeps the version before
    np.testing.assert_array_equal(second.contribution, OWN)
    sent = second._replace(sent=OWN * 2)
    for version in (2, 5):  # also after it was away
        np.testing.assert_array_equal(part_in(version, OWN, sent, **retained).contribution, OWN * 2)


@pytest.mark.parametrize("retains_model", [False, True])
def test_a_device_remembers_what_it_sent(digits: OpenTask, retains_model: bool) -> None:
    module, judge = digits.module(), judge_of(digits)
    received, after = votes_for(module, 1), votes_for(module, 2)
    call = CALL._replace(weight=0.5, base_version=0, retains_model=retains_model)
    judgement = judge.decide(call, received, b"")
    sent = judge.conclude(call, judgement, received, after - received).sent
    np.testing.assert_array_equal(sent, after if retains_model else after - received)


def test_the_fit_recovers_a_concave_quadratic() -> None:
    r = np.linspace(0, 0.5, 9)
    assert fitted(r, -0.7 * r**2 + 0.3 * r + 0.4) == pytest.approx((0.7, 0.3, 0.4), abs=1e-8)


def test_a_convex_utility_gets_the_least_curvature_and_the_best_line() -> None:
    r = np.array([0.0, 0.5, 1.0])
    # u + a·r² with a = 0.01 is (0, 0.2525, 1.01); its least-squares line is 1.01·r - 0.0841667
    a, b, c = fitted(r, r**2)
    assert (a, b, c) == pytest.approx((LEAST_CURVATURE, 1.01, (1.2625 - 1.515) / 3), abs=1e-9)


def test_a_model_without_a_device_is_what_the_others_made() -> None:
    own, others = OWN, OWN[::-1] * 3
    whole = (0.25 * own + 0.75 * others).astype(np.float32)
    np.testing.assert_allclose(without(whole, own, 0.25), others, rtol=1e-6)
    np.testing.assert_array_equal(without(own, own, 1.0), own)


def test_accuracies_that_are_all_the_same_have_no_r_squared() -> None:
    # The mean of 41 times 35/42 is not 35/42 in floats.
    for right in range(43):
        measured = np.full(41, right / 42)
        assert r_squared(measured, measured + 0.001) is None


def test_r_squared_needs_three_weights() -> None:
    assert UtilitySettings(dense_points=3).dense_points == 3
    with pytest.raises(ValueError, match="expected 0, or at least 3 weights"):
        UtilitySettings(dense_points=2)


def test_utility_belongs_to_rational_devices() -> None:
    assert ParticipationSettings().rational is None
    assert ParticipationSettings(kind="rational").rational == UtilitySettings()
    with pytest.raises(ValueError, match="utility needs kind = 'rational'"):
        ParticipationSettings(utility=UtilitySettings())


VALUES: dict[str, Any] = {
    "name": "test",
    "task": {"name": "digits", "validation_ratio": 0.2},
    "server": {"rounds": 3},
}
GROUP: dict[str, Any] = {"name": "silo", "count": 4, "participation": {"kind": "rational"}}


def refusal(group: dict[str, Any] | None = None, **sections: Any) -> str:
    values = {**VALUES, **sections, "groups": [{**GROUP, **(group or {})}]}
    try:
        validate(Scenario, values, "test")
    except ConfigError as error:
        return str(error)
    return ""


def test_rational_devices_alone_are_accepted() -> None:
    assert refusal() == ""


ALIVE: dict[str, Any] = {
    "device": {"profile": "phone"},
    "availability": {"kind": "bernoulli", "probability": 0.5},
    "link": {"profile": "3g"},
    "covariates": {"x": {"battery": "battery"}},
    "participation": {"kind": "rational", "willing": 0.5, "drop_out": 0.1},
}


@pytest.mark.parametrize("clock", ["rounds", "wall", "scaled"])
def test_rational_devices_with_a_life_are_accepted(clock: str) -> None:
    when = {"when": {"round": 2}, "for_rounds": 1} if clock == "rounds" else {"for_s": 5}
    faults = [{"do": {"kind": "offline"}, "when": {"at_s": 5}, **when}]
    server = {"rounds": 3, "deadline_s": 9, "goal": 2, "aggregator": "feduca"}
    assert refusal(ALIVE, clock={"kind": clock}, server=server, faults=faults) == ""


@pytest.mark.parametrize("kind", ["wall", "scaled"])
def test_rational_devices_share_real_links(kind: str) -> None:
    group, server = {"shared_link": {"up": "1 Mbit/s"}}, {"rounds": 3, "deadline_s": 9}
    assert refusal(group, clock={"kind": kind}, server=server) == ""


UNABLE: list[tuple[dict[str, Any], str]] = [
    ({"task": {"name": "digits"}}, "task.validation_ratio: rational"),
    ({"task": {"name": "linear", "validation_ratio": 0.2}}, "rational devices compare accuracies"),
    ({"training": {"gradient": True}}, "training.gradient: rational"),
    ({"training": {"clip_update": 1.0}}, "training.clip_update: rational"),
    ({"server": {"rounds": 3, "aggregator": "scaffold"}}, "has no control variate"),
    (
        {"server": {"rounds": 3, "privacy": {"clip": 1.0, "noise": 1.0, "where": "device"}}},
        "server.privacy: rational",
    ),
    ({"server": {"rounds": 3, "aggregator": "oracle-ipw"}}, "needs the true"),
    (
        {"group": {"participation": {"kind": "rational", "utility": {"test": "fitted"}}}},
        "groups[0].participation.utility.test: 'fitted' compares",
    ),
    (
        {"group": {"participation": {"kind": "rational", "utility": {"inflation": 0.1}}}},
        "groups[0].participation.utility.inflation: a device reports no utility",
    ),
    (
        {"group": {"participation": {"kind": "rational", "utility": {"dense_points": 9}}}},
        "groups[0].participation.utility.dense_points: a device reports no utility",
    ),
    ({"group": {"mask": {"kind": "blocks"}}}, "groups[0].mask: rational"),
    ({"group": {"shared_link": {"up": "1 Mbit/s"}}}, "groups[0].shared_link: a rational"),
    ({"group": {"shared_link": {"slots": 2}}}, "groups[0].shared_link.slots: a rational"),
    ({"group": {"device": {"torch_device": "cuda"}}}, "groups[0].device.torch_device: rational"),
]


@pytest.mark.parametrize(("sections", "expected"), UNABLE, ids=[said for _, said in UNABLE])
def test_what_rational_devices_cannot_do_is_refused(
    sections: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(**sections)


def test_what_devices_report_is_set_if_the_aggregator_tells_weights() -> None:
    utility = {"threshold": "weight", "inflation": 0.1, "points": 5, "largest_weight": 0.5}
    group = {"participation": {"kind": "rational", "utility": utility}}
    assert refusal(group, server={"rounds": 3, "aggregator": "feduca"}) == ""


@pytest.mark.parametrize("where", ["server", "device"])
def test_privacy_with_feduca_is_refused_without_a_hint_that_is_refused_too(where: str) -> None:
    privacy = {"clip": 1.0, "noise": 1.0, "where": where}
    told = refusal(server={"rounds": 3, "aggregator": "feduca", "privacy": privacy})
    assert "server.privacy: " in told
    assert "where = 'device'" not in told


def test_a_plan_says_that_it_cannot_foresee_who_leaves() -> None:
    scenario = validate(Scenario, {**VALUES, "groups": [GROUP]}, "test")
    assert "devices of silo are rational, and leave if" in describe(plan(scenario))
