"""What the noise of several devices in a secure sum hides, computed from its probabilities."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting.rdp import compute_epsilon
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

from muster.common.secure.noise import FEWEST_STEPS
from muster.server.aggregation.accountant import Accountant
from muster.server.settings.privacy import Privacy
from muster.server.settings.secure import Secure

Probabilities = npt.NDArray[np.float64]
"""Of whole numbers, of which 0 is in the middle."""

_LEAST = 1e-290
"""Smaller probabilities are not exact."""


def probabilities(deviation: float, devices: int) -> Probabilities:
    """Those of the sum of the discrete Gaussian noise of so many devices. Products of positive
    numbers are added without FFT, so that the tails are exact too."""
    numbers = np.arange(-math.ceil(30 * deviation), math.ceil(30 * deviation) + 1.0)
    one = np.exp(-((numbers / deviation) ** 2) / 2)
    one /= math.fsum(one)
    found = one
    for _ in range(devices - 1):
        found = np.convolve(found, one)
    return found


def divergence(noise: Probabilities, shift: int, order: float) -> float:
    """The Rényi divergence between noise and noise to which a whole number was added."""
    here, there = noise[shift:], noise[: len(noise) - shift]
    known = (here > _LEAST) & (there > _LEAST)
    logs = order * np.log(here[known]) + (1 - order) * np.log(there[known])
    return math.log(math.fsum(np.exp(logs))) / (order - 1)


def left_out(deviation: float, devices: int) -> float:
    """By how much the divergence of one entry may exceed that of Gaussian noise of the same
    variance (Kairouz, Liu, Steinke 2021, theorem 1 and proposition 14)."""
    exponent = -2 * (math.pi * deviation) ** 2
    return 10 * sum(math.exp(exponent * k / (k + 1)) for k in range(1, devices))


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("deviation", [0.5, 0.6, 0.7, 0.8, 1.0, 4.0])
def test_noise_of_several_devices_hides_as_much_as_the_paper_says(
    deviation: float, devices: int
) -> None:
    noise, room = probabilities(deviation, devices), left_out(deviation, devices)
    excess = [
        divergence(noise, shift, order) - order * shift**2 / (2 * devices * deviation**2)
        for shift in (1, 2, 3, 4)
        for order in (1.1, 1.5, 2, 3, 4)
    ]
    assert max(excess) <= room + 1e-9
    if devices > 1 and deviation < 0.8:  # it hides less than Gaussian noise, so the term is needed
        assert max(excess) > 1e-4


@pytest.mark.parametrize(
    ("devices", "minimum", "collusion"), [(3, 3, 0.0), (12, 9, 0.25), (20, 19, 0.15)]
)
@pytest.mark.parametrize(("steps", "entries"), [(16, 1), (8, 4), (2, 64)])
def test_epsilon_of_a_sum_is_that_of_its_exact_divergences(
    devices: int, minimum: int, collusion: float, steps: int, entries: int
) -> None:
    """An update has so many entries of so many steps of the grid: it is as long as the clip."""
    privacy = Privacy(clip=0.25, noise=1.0, where="sum")
    secure = Secure(range=1.0, bits=8, collusion=collusion)
    grid = secure.format(devices, 1, privacy, minimum).grid
    assert grid is not None
    assert privacy.clip / grid.step == steps * math.sqrt(entries)
    assert grid.deviation / grid.step >= FEWEST_STEPS  # equal, if 16 of 19 devices are honest
    honest = minimum - math.floor(collusion * devices)
    noise = probabilities(grid.deviation / grid.step, honest)
    orders = [order for order in DEFAULT_RDP_ORDERS if order < 20]
    exact = np.array([entries * divergence(noise, steps, order) for order in orders])
    for rounds in (1, 7):
        exact_epsilon, best = compute_epsilon(orders, rounds * exact, privacy.delta)
        assert orders[1] < best < orders[-2]
        claimed = Accountant(privacy, None).epsilon(rounds)
        assert claimed == pytest.approx(exact_epsilon, rel=1e-9)


def test_what_the_account_leaves_out_is_below_what_the_pages_say() -> None:
    assert left_out(FEWEST_STEPS, 1000) < 1000 * 1e-67
