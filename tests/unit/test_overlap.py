import numpy as np
import pytest

from muster.common.overlap import overlap


def test_overlap_has_quantiles_and_the_effective_share() -> None:
    found = overlap([0.1, 0.2, 0.4, 0.5, 1.0])
    assert (found["min"], found["p25"], found["median"]) == (0.1, 0.2, 0.4)
    assert (found["p75"], found["max"]) == (0.5, 1.0)
    # Weights 10, 5, 2.5, 2, 1: their sum is 20.5, that of their squares 136.25.
    assert found["effective_share"] == pytest.approx(20.5**2 / 136.25 / 5, rel=1e-12)


def test_equal_propensities_lose_nothing_and_zero_has_no_weight() -> None:
    assert overlap([0.3] * 7)["effective_share"] == pytest.approx(1)
    found = overlap([0.0, 0.5, 0.5])
    assert found["min"] == 0
    assert found["effective_share"] == pytest.approx(1)
    assert overlap([0.0, 0.0])["effective_share"] == 0
    enrolled = np.array([False, True, True])
    assert overlap([0.1, 0.5, 0.5], enrolled)["effective_share"] == pytest.approx(1)


def test_weights_of_tiny_propensities_do_not_overflow() -> None:
    assert overlap([1e-200, 1e-200, 1.0])["effective_share"] == pytest.approx(2 / 3)
