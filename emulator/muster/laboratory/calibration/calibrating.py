"""Fits recorded rounds, and judges the fit by rounds that it has not seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp  # type: ignore[import-untyped]

from muster.common import seeds
from muster.common.errors import ConfigError
from muster.laboratory.calibration.fitting import (
    Spread,
    filled,
    fit,
    predict,
    sizes_alike,
    spreads,
)
from muster.laboratory.calibration.recorded import (
    RecordedRounds,
    joined,
    recorded_in_file,
    seconds_of_work,
)
from muster.laboratory.calibration.runs import recorded_in_run

LEAST_ROUNDS: Final = 8
"""Fewer rounds do not tell how well a fit predicts others."""

MOST_ERROR, MOST_DISTANCE = 0.10, 0.10
"""A median error and a distance up to which the model describes the rounds."""

QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)

_FILES = (".csv", ".parquet")


@dataclass(frozen=True)
class Agreement:
    """How well seconds were predicted.

    Attributes:
        observed, predicted: the seconds, in the same order.
    """

    observed: pd.Series
    predicted: pd.Series

    @property
    def error(self) -> float:
        """The median relative error; NaN without any seconds."""
        return float(((self.predicted - self.observed).abs() / self.observed).median())

    @property
    def distance(self) -> float:
        """The Kolmogorov-Smirnov distance of the two distributions; NaN without any seconds."""
        # ks_2samp refuses empty samples.
        if self.observed.empty:
            return np.nan
        return float(ks_2samp(self.observed, self.predicted).statistic)

    def quantiles(self) -> pd.DataFrame:
        """Observed and predicted seconds at `QUANTILES`."""
        observed, predicted = (
            seconds.quantile(list(QUANTILES)) for seconds in (self.observed, self.predicted)
        )
        return pd.DataFrame({"observed": observed, "predicted": predicted})


@dataclass(frozen=True)
class Calibration:
    """What was fitted to recorded rounds, and how well it predicts those that were held out.

    Attributes:
        devices: as `fitting.fit`.
        spreads: the distributions over the devices of each group, by group and quantity.
        held_out: the work in the rounds that were held out, with `observed_s` and `predicted_s`.
        work, rounds: the agreement for the work of devices, and for whole rounds.
        fitted_rounds: the number of rounds to which the devices were fitted.
        server_s: median seconds in those rounds that were not spent on the longest work.
        notes: what a person must know about the numbers.
    """

    devices: pd.DataFrame
    spreads: Mapping[str, Mapping[str, Spread]]
    held_out: pd.DataFrame
    work: Agreement
    rounds: Agreement
    fitted_rounds: int
    server_s: float
    notes: Sequence[str]

    @property
    def judges_distance(self) -> bool:
        """Whether the distance of devices' work is judged. A device whose time is the same in all
        rounds, and is missed by a trifle, can add all its share of the work to the distance. So no
        device may have a greater share than the distance that is allowed."""
        shares = self.held_out["device"].value_counts(normalize=True)
        return float(shares.max()) <= MOST_DISTANCE

    @property
    def shortcomings(self) -> list[str]:
        """Why the model does not describe the rounds, in words; empty if it does."""
        found = [
            f"the median error of {what} is {100 * agreement.error:.1f} %, above "
            f"{100 * MOST_ERROR:.0f} %"
            for what, agreement in (("round times", self.rounds), ("devices' work", self.work))
            if agreement.error > MOST_ERROR
        ]
        if self.judges_distance and self.work.distance > MOST_DISTANCE:
            found.append(
                f"the distance of devices' work is {self.work.distance:.2f}, above {MOST_DISTANCE}"
            )
        return found


def recorded_in(sources: Sequence[Path]) -> RecordedRounds:
    """The rounds in run folders, and in CSV and Parquet files.

    Raises:
        ConfigError: one cannot be used.
        LedgerError: the ledger of a run is damaged.
    """
    places = [path.resolve() for path in sources]
    if twice := [place for place in places if places.count(place) > 1]:
        raise ConfigError(f"expected every recording once, found {twice[0]} more than once")
    return joined(
        [
            recorded_in_file(path) if path.suffix in _FILES else recorded_in_run(path)
            for path in sources
        ]
    )


def calibrate(recorded: RecordedRounds, seed: int, held_out: float) -> Calibration:
    """Fit the devices to a part of the rounds, and predict the others.

    Args:
        seed: of the draw of the rounds that are held out.
        held_out: the part of the rounds that is held out, from 0.05 to 0.5.

    Raises:
        ConfigError: there are too few rounds, or no device trained in several.
    """
    if not 0.05 <= held_out <= 0.5:
        raise ConfigError(f"--held-out: expected a share from 0.05 to 0.5, found {held_out:g}")
    work = recorded.work.assign(observed_s=seconds_of_work(recorded.work))
    every = work["round"].unique()
    if len(every) < LEAST_ROUNDS:
        raise ConfigError(
            f"expected at least {LEAST_ROUNDS} rounds, of which some are held out, found "
            f"{len(every)}; record more"
        )
    drawn = seeds.stream(seed, "rounds held out").permutation(len(every))
    is_out = work["round"].isin(every[drawn[: max(2, round(held_out * len(every)))]])
    fitted, held = work[~is_out], work[is_out]
    devices, notes = filled(fit(fitted))
    notes += sizes_alike(work)
    unknown = ~held["device"].isin(devices.index)
    if unknown.any():
        notes.append(
            f"{int(unknown.sum())} times a device trained only in a round that is held out, which "
            f"is not judged as a whole then"
        )
    judged = held[~unknown]
    if judged.empty:
        raise ConfigError(
            "expected devices that trained in several rounds, found none that trained in a round "
            "that is held out and in another; record more"
        )
    judged = judged.assign(predicted_s=predict(devices, judged))
    whole = judged[~judged["round"].isin(held.loc[unknown, "round"])]
    predicted_s = whole.groupby("round")["predicted_s"].max()
    round_s = recorded.round_s.reindex(predicted_s.index).dropna()
    longest_s = fitted.groupby("round")["observed_s"].max()
    return Calibration(
        devices,
        spreads(devices),
        judged,
        Agreement(judged["observed_s"], judged["predicted_s"]),
        Agreement(round_s, predicted_s[round_s.index]),
        len(longest_s),
        float((recorded.round_s.reindex(longest_s.index) - longest_s).median()),
        [*recorded.notes, *notes],
    )
