"""When a claim holds, with numbers that were worked out by hand.

Student's t at .95 with four degrees of freedom is 2.1318. Differences 1 to 5 have mean 3, standard
deviation 1.5811 and standard error .7071: the bound is 3 - 2.1318 * .7071 = 1.4926.
"""

import json
import math
from collections.abc import Sequence

import pytest

from muster.studies import (
    BySeed,
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

NAN = math.nan


def seeds(*values: float, first: int = 101) -> dict[int, float]:
    return dict(enumerate(values, first))


FIVE = seeds(11, 12, 13, 14, 15)
TENS = seeds(10, 10, 10, 10, 10)


# --- greater -------------------------------------------------------------------------------------


def test_greater_holds_when_the_lower_bound_of_the_paired_difference_is_above_0() -> None:
    claim = greater("a beats b", FIVE, TENS)
    assert claim.holds
    assert claim.measured == pytest.approx(3)
    assert claim.expected == "> 0"
    assert claim.interval is not None
    assert claim.interval[0] == pytest.approx(1.4926, abs=1e-4)
    assert claim.interval[1] is None
    assert list(claim.seeds) == [101, 102, 103, 104, 105]
    assert "one-sided 95 % confidence interval" in claim.rule


def test_greater_by_an_amount_needs_the_bound_above_it() -> None:
    assert greater("a beats b by 1.49", FIVE, TENS, by=1.49).holds
    assert not greater("a beats b by 1.50", FIVE, TENS, by=1.5).holds


def test_a_difference_that_scatters_too_much_does_not_hold_with_every_seed_but_one() -> None:
    # mean 3, standard error 1.4142: the bound is 3 - 3.0149.
    claim = greater("a beats b", seeds(-1, 1, 3, 5, 7), 0.0)
    assert not claim.holds
    low, high = claim.interval or (None, None)
    assert low == pytest.approx(-0.0149, abs=1e-4)
    assert high is None


def test_it_is_pairs_that_are_compared() -> None:
    """Seeds differ by far more than the arms do."""
    a, b = seeds(1.1, 11.2, 101.3, 1001.2, 10001.1), seeds(1, 11, 101, 1001, 10001)
    assert greater("a beats b", a, b).holds
    shuffled = dict(zip(a, [11.2, 1.1, 101.3, 1001.2, 10001.1], strict=True))
    assert not greater("a beats b", shuffled, b).holds


def test_with_few_seeds_the_mean_has_to_show_it_and_the_row_says_so() -> None:
    claim = greater("a beats b", seeds(3, 1), seeds(1, 0.5))
    assert claim.holds
    assert claim.interval == (0.5, 2.0)
    assert "the mean exceeds 0 (2 seeds, fewer than 5" in claim.rule
    assert greater("a beats b", seeds(3, 1), seeds(1, 2)).holds
    assert not greater("a beats b", seeds(3, 1), seeds(1, 3)).holds


def test_greater_than_a_number_is_told_of_the_values_themselves() -> None:
    claim = greater("a exceeds 11", FIVE, 11.0)
    assert claim.holds
    assert claim.measured == pytest.approx(13)
    assert claim.expected == "> 11"
    assert claim.interval is not None
    assert claim.interval[0] == pytest.approx(11.4926, abs=1e-4)
    assert not greater("a exceeds 11 by .5", FIVE, 11.0, by=0.5).holds


# --- close ---------------------------------------------------------------------------------------


# --- higher --------------------------------------------------------------------------------------


def test_higher_is_about_ratios() -> None:
    # Logarithms of ratios: 1 to 5, of which the head of this file has the bound.
    a = seeds(*(math.exp(x) for x in (1, 2, 3, 4, 5)))
    ones = seeds(1, 1, 1, 1, 1)
    claim = higher("a above b", a, ones)
    assert claim.holds
    assert claim.measured == pytest.approx(math.exp(3))
    low, high = claim.interval or (None, None)
    assert low == pytest.approx(math.exp(1.4926), rel=1e-4)
    assert high is None
    assert not higher("b above a", ones, a).holds
    assert not higher("scattered", seeds(2, 0.4, 2, 0.6, 2), ones).holds


def test_ratios_show_what_differences_of_all_sizes_do_not() -> None:
    a, b = (
        seeds(0.0024, 0.0022, 0.004, 0.0044, 0.0156),
        seeds(0.0011, 0.001, 0.0019, 0.0024, 0.0037),
    )
    assert not greater("a above b", a, b).holds
    assert higher("a above b", a, b).holds


def test_higher_with_few_seeds_needs_a_mean_ratio_above_1() -> None:
    claim = higher("a above b", seeds(2, 3), seeds(1, 1))
    assert claim.holds
    assert claim.interval == pytest.approx((2.0, 3.0))
    assert "the mean ratio exceeds 1" in claim.rule
    assert higher("a above b", seeds(2, 0.9), seeds(1, 1)).holds
    assert not higher("a above b", seeds(2, 0.4), seeds(1, 1)).holds


def test_no_ratio_is_told_of_what_is_not_above_0() -> None:
    claim = higher("a above b", seeds(2, 1), seeds(1, 0))
    assert not claim.holds
    assert "no finite value with seed 102" in str(claim.measured)


def test_close_holds_when_the_interval_of_90_percent_lies_inside_the_margin() -> None:
    # mean 1, standard error .035355: 1 ± 2.1318 * .035355 = 1 ± .07537
    values = seeds(0.9, 0.95, 1.0, 1.05, 1.1)
    claim = close("a is 1", values, 1.0, 0.0754)
    assert claim.holds
    assert claim.interval == pytest.approx((0.92463, 1.07537), abs=1e-5)
    assert claim.margin == 0.0754
    assert claim.expected == "1 ± 0.0754"
    assert not close("a is 1", values, 1.0, 0.0753).holds
    assert not close("a is 1.03", values, 1.03, 0.08).holds


def test_with_few_seeds_values_on_both_sides_do_not_cancel_each_other() -> None:
    assert close("a is 1", seeds(0.9, 1.1), 1.0, 0.11).holds
    claim = close("a is 1", seeds(0.8, 1.2), 1.0, 0.11)
    assert not claim.holds
    assert claim.measured == pytest.approx(1.0)
    assert claim.interval == (0.8, 1.2)
    assert "the mean distance" in claim.rule
    assert close("a is 1", seeds(0.85, 1.05), 1.0, 0.11).holds


# --- grows ---------------------------------------------------------------------------------------


def levels(*means: float) -> dict[float, BySeed]:
    return {float(level): seeds(mean - 1, mean + 1) for level, mean in enumerate(means)}


@pytest.mark.parametrize(
    ("means", "rank"),
    [
        ([1, 2, 3, 4], 1.0),
        ([1, 2, 4, 3], 0.8),  # 1 - 6 * 2 / (4 * 15)
        ([1, 2, 3, 5, 4], 0.9),  # 1 - 6 * 2 / (5 * 24)
        ([1, 3, 2, 5, 4], 0.8),
        ([4, 3, 2, 1], -1.0),
        ([1, 2, 2, 3], 0.9486833),  # a tie: ranks 1, 2.5, 2.5, 4
        ([7, 7, 7, 7], 0.0),
    ],
)
def test_over_four_levels_it_is_the_rank_correlation_that_counts(
    means: Sequence[float], rank: float
) -> None:
    claim = grows("it grows", levels(*means))
    assert claim.measured == pytest.approx(rank)
    assert claim.holds == (rank >= 0.9)
    assert f"{len(means)} levels" in claim.rule
    assert claim.interval == (min(means), max(means))


def test_over_three_levels_every_mean_has_to_exceed_the_one_before() -> None:
    claim = grows("it grows", levels(1, 2, 3))
    assert claim.holds
    assert "strictly increasing means over 3 levels" in claim.rule
    assert not grows("it grows", levels(1, 3, 2)).holds
    assert not grows("it grows", levels(1, 1, 2)).holds


def test_levels_are_put_into_their_order() -> None:
    assert grows("it grows", {3.0: seeds(9), 0.5: seeds(1), 1.5: seeds(4)}).holds


def test_nothing_grows_over_one_level() -> None:
    with pytest.raises(ValueError, match="at least two levels, found 1"):
        grows("it grows", levels(1))


# --- at_most and exact ---------------------------------------------------------------------------


def test_at_most_looks_at_the_upper_bound() -> None:
    # 3 + 1.5074
    assert at_most("small", seeds(1, 2, 3, 4, 5), 4.51).holds
    claim = at_most("small", seeds(1, 2, 3, 4, 5), 4.50)
    assert not claim.holds
    low, high = claim.interval or (None, None)
    assert low is None
    assert high == pytest.approx(4.5074, abs=1e-4)


def test_at_most_of_few_seeds_or_of_a_number_looks_at_the_mean() -> None:
    assert at_most("small", seeds(1, 3), 2.0).holds
    assert not at_most("small", seeds(1, 3.1), 2.0).holds
    assert at_most("small", 2.0, 2.0).holds
    claim = at_most("small", 2.1, 2.0)
    assert not claim.holds
    assert list(claim.seeds) == []
    assert "seed" not in claim.rule


def test_negligible_differences_are_measured_beside_the_effect_whatever_their_sign() -> None:
    effect = seeds(2, 4)  # 3 in the mean
    claim = negligible("a small share", seeds(-1.5, 1.5), effect, 0.5)
    assert claim.holds
    assert claim.measured == pytest.approx(0.5)
    assert not negligible("a small share", seeds(-1.5, 1.6), effect, 0.5).holds
    for none in (seeds(-1, 1), seeds(math.nan, 4), seeds(-2, -4)):
        assert not negligible("no effect", seeds(0, 0), none, 0.5).holds


def test_exact_allows_rounding_alone() -> None:
    claim = exact("the gap", 0.5 + 1e-13, 0.5, 1e-12)
    assert claim.holds
    assert claim.margin == 1e-12
    assert not exact("the gap", 0.5 + 1e-11, 0.5, 1e-12).holds
    assert exact("the gap", seeds(0.5, 0.5), 0.5, 0.0).holds
    worst = exact("the gap", seeds(0.5, 0.6, 0.45), 0.5, 0.01)
    assert not worst.holds
    assert worst.measured == 0.6


# --- what is missing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claim",
    [
        greater("", seeds(2, NAN, 2, 2, 2), seeds(1, 1, 1, 1, 1)),
        greater("", seeds(2, 2, 2, 2, 2), seeds(1, NAN, 1, 1, 1)),
        greater("", seeds(2, 2), {101: 1.0}),
        greater("", {101: 1.0}, seeds(0, 0)),
        greater("", seeds(1, math.inf), 0.0),
        higher("", seeds(1, NAN), seeds(1, 1)),
        close("", seeds(1, NAN), 1, 0.1),
        at_most("", seeds(1, -math.inf), 1),
        exact("", seeds(1, NAN), 1, 0.1),
        grows("", {1.0: seeds(1, 2), 2.0: {101: 2.0}, 3.0: seeds(3, 3)}),
        grows("", {1.0: seeds(1, 2), 2.0: seeds(2, NAN), 3.0: seeds(3, 3), 4.0: seeds(4, 4)}),
    ],
)
def test_a_seed_without_a_finite_value_makes_a_claim_fail_with_a_sentence(claim: Claim) -> None:
    assert not claim.holds
    assert isinstance(claim.measured, str)
    assert "no finite value with seed 102" in claim.measured
    assert claim.rule
    json.dumps(claim.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    "claim",
    [
        greater("", {}, 0.0),
        greater("", {}, {}),
        higher("", {}, {}),
        close("", {}, 1, 0.1),
        at_most("", {}, 1),
        exact("", {}, 1, 0.1),
        grows("", {1.0: {}, 2.0: {}}),
    ],
)
def test_what_nobody_measured_does_not_hold(claim: Claim) -> None:
    assert not claim.holds
    assert "nothing was measured" in str(claim.measured)


def test_a_number_that_is_none_does_not_hold() -> None:
    assert not at_most("", NAN, 1).holds
    assert exact("", math.inf, 1, 1).measured == "not a number: inf"


def test_a_claim_of_ones_own_cannot_hold_without_a_number() -> None:
    claim = Claim("mine", True, NAN, "> 0", "by eye")
    assert not claim.holds
    assert claim.measured == "not a number: nan"


# --- rows ----------------------------------------------------------------------------------------


def test_a_row_has_these_keys_and_is_json() -> None:
    row = json.loads(json.dumps(greater("a beats b", FIVE, TENS).to_json(), allow_nan=False))
    assert list(row) == [
        "claim", "holds", "measured", "expected", "rule", "seeds", "interval", "margin", "why",
        "rate",
    ]  # fmt: skip
    assert row["holds"] is True
    assert row["interval"][1] is None
    assert row["margin"] is None


def test_a_claim_keeps_its_judgement_when_it_is_explained() -> None:
    judged = greater("a beats b", FIVE, TENS)
    explained = judged.because("it must")
    assert explained.why == "it must"
    assert {**explained.to_json(), "why": ""} == judged.to_json()


def test_a_difference_has_every_seed_of_either() -> None:
    found = difference({1: 3.0, 2: 5.0}, {2: 1.0, 3: 1.0})
    assert found[2] == 4.0
    assert list(found) == [1, 2, 3]
    assert math.isnan(found[1])
    assert math.isnan(found[3])
