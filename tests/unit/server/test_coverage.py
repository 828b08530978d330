"""The mean of each coordinate over the updates that have it."""

from typing import Any

import numpy as np
import pytest

from muster.common.errors import Diverged
from muster.common.exact_sum import BLOCK, ExactSum
from muster.common.masks import Mask
from muster.server.aggregators import BUILT_IN, Aggregator, Contribution, Withholder
from muster.server.aggregators.combinations import excludes
from muster.server.aggregators.coverage import Coverage, apply_covered
from muster.server.aggregators.fedavg import FedAvg
from muster.server.aggregators.fedbuff import FedBuff
from muster.server.aggregators.fedplt import FedPlt

MASKS = (Mask(np.array([True, True, False, False])), Mask(np.array([False, True, True, False])))
DELTAS = np.array([[4, 8, 0, 0], [0, 16, 2, 0]], np.float32)
EXAMPLES = (1, 3)


def stepped(rule: Aggregator, model: list[float], masks: Any = MASKS, scale: float = 1.0) -> Any:
    """One step of the rule with the updates above."""
    contributions = [Contribution(f"c{n}", "g", n, staleness=0) for n in EXAMPLES]
    weights = [rule.weight(contribution, {}) for contribution in contributions]
    total, coverage = ExactSum(4), Coverage(4)
    for delta, weight in zip(DELTAS, weights, strict=True):
        total.add(delta, weight)
    normaliser = rule.normaliser(sum(weights), contributions)
    coverage.enter(masks, weights, normaliser, rule.compensates())
    return apply_covered(np.array(model, np.float32), total, coverage, scale).tolist()


def test_fedplt_takes_the_mean_over_those_who_trained_a_coordinate() -> None:
    # 4 from the first alone; (1·8 + 3·16)/4 = 14 from both; 2 from the second; nothing.
    assert stepped(FedPlt(), [1, 1, 1, 1]) == [5, 15, 3, 1]
    assert stepped(FedAvg(), [1, 1, 1, 1]) == [5, 15, 3, 1]


def test_without_psi_a_coordinate_moves_by_the_share_of_the_examples_behind_it() -> None:
    # 4·1/4, 14, 2·3/4
    assert stepped(FedPlt(psi=False), [1, 1, 1, 1]) == [2, 15, 2.5, 1]


def test_the_rate_of_the_server_damps_the_step() -> None:
    # Half of the steps 4, 14 and 2 with ψ; half of 1, 14 and 1.5 without.
    assert stepped(FedPlt(rate=0.5), [1, 1, 1, 1]) == [3, 8, 2, 1]
    assert stepped(FedPlt(rate=0.5, psi=False), [1, 1, 1, 1]) == [1.5, 8, 1.75, 1]


def test_a_rule_that_does_not_divide_by_its_weights_gets_psi_on_top() -> None:
    # With both: (8 + 16)/2 · 0.5 = 6. The first alone: 4/2 · 0.5 · ψ, with ψ = 2.
    assert stepped(FedBuff(rate=0.5), [0, 0, 0, 0]) == [2, 6, 1, 0]


def test_a_gradient_is_taken_with_the_servers_rate() -> None:
    assert stepped(FedPlt(), [1, 1, 1, 1], scale=-0.5) == [-1, -6, 0, 1]


def test_a_device_that_trains_the_whole_model_has_every_coordinate() -> None:
    masks = (MASKS[0], None)
    # (1·4 + 3·0)/4, (8 + 48)/4, 6/3 and 0/3
    assert stepped(FedPlt(), [0, 0, 0, 0], masks) == [1, 14, 2, 0]


def test_a_coordinate_that_nobody_trained_keeps_its_sign_of_zero() -> None:
    for psi in (True, False):
        last = stepped(FedPlt(psi=psi), [0, 0, 0, -0.0])[-1]
        assert np.signbit(last)


def test_a_step_that_float32_cannot_hold_is_a_divergence() -> None:
    with pytest.raises(Diverged):
        stepped(FedPlt(), [3e38, 0, 0, 0], scale=1e38)


def test_the_coverage_of_a_round_replaces_that_of_the_round_before() -> None:
    coverage = Coverage(4)
    coverage.enter([None], [7.0], 7.0, True)
    assert coverage.shares() == {"share": 1.0, "updates": 1.0, "largest_psi": 1.0}
    coverage.enter(MASKS, [1.0, 3.0], 4.0, True)
    assert coverage.shares() == {"share": 0.75, "updates": 1.0, "largest_psi": 4.0}


@pytest.mark.parametrize(
    "rule", [FedPlt(), FedPlt(psi=False), FedPlt(rate=0.5), FedBuff(rate=0.5)], ids=repr
)
def test_every_coordinate_of_a_model_of_several_blocks_has_its_own_coverage(
    rule: Aggregator,
) -> None:
    """Whole numbers of which each coordinate has its own, so that a block that takes the mask, the
    update or the coverage of another one makes another step."""
    length, random = 2 * BLOCK + 100, np.random.default_rng(3)
    deltas = random.integers(-9, 9, (3, length)).astype(np.float32)
    chosen = random.random((3, length)) < 0.6
    model = random.integers(-9, 9, length).astype(np.float32)
    contributions = [Contribution(f"c{n}", "g", n, staleness=0) for n in (1, 2, 5)]
    weights = np.array([rule.weight(contribution, {}) for contribution in contributions])
    normaliser = rule.normaliser(float(weights.sum()), contributions)
    total, coverage = ExactSum(length), Coverage(length)
    for delta, mask, weight in zip(deltas, chosen, weights, strict=True):
        total.add(delta * mask, float(weight))
    masks = [Mask(mask) for mask in chosen]
    coverage.enter(masks, weights.tolist(), normaliser, rule.compensates())
    made = apply_covered(model, total, coverage, 1.0)

    trained = weights @ chosen
    psi = weights.sum() / np.where(trained, trained, np.inf) if rule.compensates() else 1.0
    expected = model + psi * (weights @ (deltas * chosen)) / normaliser
    np.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6)
    assert coverage.shares()["share"] == (trained > 0).mean()
    assert coverage.shares()["largest_psi"] == weights.sum() / trained[trained > 0].min()


def made(kind: str, rule: type[Aggregator]) -> Aggregator:
    """The rule with 1 for every setting that has no default."""
    fields = rule.model_fields.items()
    return rule(kind=kind, **{name: 1 for name, field in fields if field.is_required()})


def test_the_rules_that_work_with_masks_are_those_of_the_page() -> None:
    works = {"fedplt", "fedavg", "fedbuff", "fedipw", "participation-ipw", "importance"}
    refused = {
        kind
        for kind, rule in BUILT_IN.items()
        if excludes(made(kind, rule).requires(), Withholder.MASK)
    }
    assert set(BUILT_IN) - refused == works
    for kind in works:
        assert BUILT_IN[kind].weighs == "updates"
        assert BUILT_IN[kind].make is Aggregator.make
