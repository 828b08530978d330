"""The leverage of devices on what is learned from their covariates."""

import numpy as np
import pytest

from muster.server.knowledge.leverage import largest_leverage

CLIENTS = [f"d{number}" for number in range(20)]


def test_the_leverage_is_that_of_the_hat_matrix() -> None:
    drawn = np.random.default_rng(4)
    features, places = drawn.normal(size=(30, 2)), np.arange(30) // 3
    design = np.hstack([np.ones((30, 1)), features])
    hat = np.diag(design @ np.linalg.inv(design.T @ design) @ design.T)
    of_devices = hat.reshape(10, 3).sum(axis=1)
    found = largest_leverage(features, places)
    assert found.place == of_devices.argmax()
    assert found.value == pytest.approx(of_devices.max())
    assert (found.devices, found.coefficients) == (10, 3)


@pytest.mark.parametrize("far", [1e30, -1e12, 50.0])
def test_a_device_far_from_the_others_decides_a_coefficient(far: float) -> None:
    features = np.linspace(0, 1, 13)[:, None]
    features[4] = far
    found = largest_leverage(features, np.arange(13))
    assert found.place == 4
    assert 0.95 < found.value <= 1 + 1e-9
    assert found.estimate(CLIENTS) == {"d4": found.value}
    warning = "the covariates of d4 alone decide a coefficient of x, although there are 13 devices"
    assert found.warnings(CLIENTS, "x") == [f"{warning} (estimates 'leverage')"]


def test_columns_that_add_nothing_do_not_count() -> None:
    column = np.arange(12.0)
    features = np.column_stack([column, 3 * column + 1, np.full(12, 7.0)])
    found = largest_leverage(features, np.arange(12))
    assert found.coefficients == 2
    assert found.value == pytest.approx(1 / 12 + 5.5**2 / np.square(column - 5.5).sum())
    assert not found.warnings(CLIENTS, "x")


def test_with_few_devices_nothing_is_said() -> None:
    assert not largest_leverage(np.array([[0.0], [0.0], [9.0]]), np.arange(3)).warnings(
        CLIENTS, "x"
    )


def test_without_features_all_devices_are_alike() -> None:
    assert largest_leverage(np.zeros((4, 0)), np.array([0, 0, 1, 2])).value == 0.5
