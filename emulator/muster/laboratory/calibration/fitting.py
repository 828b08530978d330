"""Fits speeds and links to recorded work with medians, which single slow rounds do not move."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import (  # type: ignore[import-untyped]
    kstest,
    lognorm,
    median_abs_deviation,
)

from muster.common.lines import LinkModel
from muster.common.seeds import FloatArray
from muster.emulator.scenario.device_table import COLUMNS


class FittedQuantity(NamedTuple):
    """A quantity that is fitted.

    Attributes:
        column: the column of a table of devices in which it is written.
        size: of the unit of this column, in the SI unit.
    """

    column: str
    size: float


SPEED, DOWN, UP, RTT = "examples_per_s", "down_bps", "up_bps", "rtt_s"

QUANTITIES: Final[Mapping[str, FittedQuantity]] = {
    SPEED: FittedQuantity("examples_per_s", 1.0),
    DOWN: FittedQuantity("down_mbps", 1e6),
    UP: FittedQuantity("up_mbps", 1e6),
    RTT: FittedQuantity("rtt_ms", 1e-3),
}
"""What is fitted, by its name in SI units, which is also a column of a table of devices."""

_DOUBTFUL = 0.05
"""If data of a distribution are so far from it with a smaller probability, it is doubtful."""

_MOST_SIGMA = 2.0
"""The largest `device.speed_sigma` of a scenario."""

_ALIKE = 2.0
"""Sizes tell a rate from the costs of every transfer if they differ by this factor."""


@dataclass(frozen=True)
class Spread:
    """A log-normal distribution of a quantity over the devices of a group.

    Attributes:
        sigma: standard deviation of the logarithm; 0: all devices have the median.
        distance: Kolmogorov-Smirnov distance to the values of the devices.
        doubtful: whether their values would be surprising if they came from this distribution.
    """

    median: float
    sigma: float
    distance: float
    doubtful: bool


def fit(work: pd.DataFrame) -> pd.DataFrame:
    """The devices: `group`, `rounds`, the number of those that were used, and the quantities, NaN
    where nothing tells."""
    parts_s = work["train_s"] + work["down_s"] + work["up_s"]
    single = pd.DataFrame(
        {
            SPEED: work["examples"] / work["train_s"],
            DOWN: _rate(work["bytes_down"], work["down_s"]),
            UP: _rate(work["bytes_up"], work["up_s"]),
            # The model has two round trips in all that is neither training nor transfer.
            RTT: (work["work_s"] - parts_s).clip(lower=0.0) / 2,
        }
    )
    by_device = single.groupby(work["device"])
    devices = by_device.median()
    for name in QUANTITIES:
        devices[name] = devices[name].clip(*COLUMNS[name].bounds)
    devices.insert(0, "group", work.groupby("device")["group"].first())
    # Where nothing is left for round trips, nothing has told of them.
    longest = devices.groupby("group")[RTT].transform("max")
    devices[RTT] = devices[RTT].where(longest > 0)
    devices.insert(1, "rounds", by_device.size())
    return devices


def paces(devices: pd.DataFrame, work: pd.DataFrame) -> dict[str, float]:
    """How much the speed of a device differs from round to round in every group: sigma of the
    log-normal factor of its training (`device.speed_sigma`), from the median absolute deviation."""
    seconds = work["examples"] / work["device"].map(devices[SPEED])
    factors = np.log(work["train_s"] / seconds)
    found = factors.groupby(work["group"], sort=False).agg(median_abs_deviation, scale="normal")
    return {str(group): min(float(sigma), _MOST_SIGMA) for group, sigma in found.items()}


def filled(devices: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The devices, in which a missing quantity is the median of the group if the group has one, and
    what was filled in, in words."""
    found, notes = devices.copy(), []
    for name in QUANTITIES:
        medians = devices.groupby("group")[name].transform("median")
        missing = devices[name].isna() & medians.notna()
        if missing.any():
            notes.append(f"{int(missing.sum())} devices have the median {name} of their group")
            found[name] = devices[name].fillna(medians)
    return found, notes


def sizes_alike(work: pd.DataFrame) -> list[str]:
    """For every group whose transfers in a direction have nearly one size, that their rate holds
    only for this size, in words: it also contains what every transfer costs."""
    notes = []
    for group, of_group in work.groupby("group", sort=False):
        for way, name in (("down", DOWN), ("up", UP)):
            sizes = of_group[f"bytes_{way}"]
            sizes = sizes[(sizes > 0) & (of_group[f"{way}_s"] > 0)]
            if len(sizes) and sizes.max() < _ALIKE * sizes.min():
                notes.append(
                    f"{QUANTITIES[name].column} of {group} holds for bodies of "
                    f"{sizes.median():,.0f} bytes: all had nearly this size, so the rate also "
                    f"contains what every transfer costs"
                )
    return notes


def _rate(size: pd.Series, seconds: pd.Series) -> pd.Series:
    return (8 * size / seconds).where((size > 0) & (seconds > 0))


def predict(
    devices: pd.DataFrame, sigmas: Mapping[str, float], work: pd.DataFrame, draws: FloatArray
) -> FloatArray:
    """The modelled seconds of the work in every row, as lockstep computes them (docs/links.md).

    Args:
        sigmas: as from `paces`.
        draws: standard normal numbers, shape (rows, n).

    Returns:
        n drawn predictions of every row, shape (rows, n).
    """
    lines = {client: _line(device) for client, device in devices.iterrows()}
    trained_s = (work["examples"] / work["device"].map(devices[SPEED])).to_numpy()
    moved_s = [
        lines[client].transfer_s(down, up)
        for client, down, up in zip(
            work["device"], work["bytes_down"], work["bytes_up"], strict=True
        )
    ]
    sigma = work["group"].map(sigmas).to_numpy()
    trained: FloatArray = trained_s[:, None] * np.exp(sigma[:, None] * draws)
    trained += np.array(moved_s)[:, None]
    return trained


def _line(device: "pd.Series") -> LinkModel:
    down, up, rtt = (None if np.isnan(device[name]) else device[name] for name in (DOWN, UP, RTT))
    return LinkModel(down_bps=down, up_bps=up, rtt_s=rtt or 0.0)


def spread_of(values: pd.Series) -> Spread:
    """The log-normal distribution with the median of the values, and their median deviation."""
    median = float(values.median())
    sigma = 0.0
    if len(values) > 1 and values.min() > 0:
        sigma = float(median_abs_deviation(np.log(values), scale="normal"))
    if sigma == 0.0:
        return Spread(median, 0.0, 0.0, bool(np.ptp(values) > 0))
    test = kstest(values, lognorm(s=sigma, scale=median).cdf)
    return Spread(median, sigma, float(test.statistic), bool(test.pvalue < _DOUBTFUL))


def spreads(devices: pd.DataFrame) -> dict[str, dict[str, Spread]]:
    """The distributions of every group, by its name and that of the quantity."""
    return {
        str(group): {name: spread_of(of_group[name]) for name in measured(of_group)}
        for group, of_group in devices.groupby("group", sort=False)
    }


def measured(devices: pd.DataFrame) -> list[str]:
    """The quantities that all these devices have."""
    return [name for name in QUANTITIES if devices[name].notna().all()]
