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
from muster.common.seeds import FloatArray
from muster.laboratory.calibration.fitting import (
    Spread,
    filled,
    fit,
    paces,
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

_DRAWS = 200
"""Predictions that are drawn of every work."""

QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)

_FILES = (".csv", ".parquet")


@dataclass(frozen=True)
class Agreement:
    """How well seconds were predicted.

    Attributes:
        observed: the seconds.
        drawn: what the model draws for each of them, shape (number, draws).
    """

    observed: pd.Series
    drawn: FloatArray

    @property
    def predicted(self) -> FloatArray:
        """The medians of what the model draws."""
        found: FloatArray = np.median(self.drawn, axis=1)
        return found

    @property
    def error(self) -> float:
        """The median relative error of the predicted medians; NaN without any seconds."""
        return float(((self.predicted - self.observed).abs() / self.observed).median())

    @property
    def distance(self) -> float:
        """The Kolmogorov-Smirnov distance of what was observed and what the model draws; NaN
        without any seconds."""
        # ks_2samp refuses empty samples.
        if self.observed.empty:
            return np.nan
        return float(ks_2samp(self.observed, self.drawn.ravel()).statistic)

    def quantiles(self) -> pd.DataFrame:
        """Observed and predicted seconds at `QUANTILES`."""
        observed, predicted = (
            seconds.quantile(list(QUANTILES))
            for seconds in (self.observed, pd.Series(self.drawn.ravel()))
        )
        return pd.DataFrame({"observed": observed, "predicted": predicted})


@dataclass(frozen=True)
class Calibration:
    """What was fitted to recorded rounds, and how well it predicts those that were held out.

    Attributes:
        devices: as `fitting.fit`.
        spreads: the distributions over the devices of each group, by group and quantity.
        paces: sigma of the speed of a device from round to round, by group.
        held_out: the work in the rounds that were held out, with `observed_s` and `predicted_s`.
        work, rounds: the agreement for the work of devices, and for whole rounds.
        fitted_rounds: the number of rounds to which the devices were fitted.
        server_s: median seconds in those rounds that were not spent on the longest work.
        notes: what a person must know about the numbers.
    """

    devices: pd.DataFrame
    spreads: Mapping[str, Mapping[str, Spread]]
    paces: Mapping[str, float]
    held_out: pd.DataFrame
    work: Agreement
    rounds: Agreement
    fitted_rounds: int
    server_s: float
    notes: Sequence[str]

    def work_of(self, group: str) -> Agreement:
        """The agreement for the work of the devices of a group."""
        theirs = (self.held_out["group"] == group).to_numpy()
        return Agreement(self.work.observed[theirs], self.work.drawn[theirs])

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
    sigmas = paces(devices, fitted)
    draws = seeds.stream(seed, "pace of held-out work").standard_normal((len(judged), _DRAWS))
    predicted = predict(devices, sigmas, judged, draws)
    work_s = Agreement(judged["observed_s"], predicted)
    judged = judged.assign(predicted_s=work_s.predicted)
    whole = ~judged["round"].isin(held.loc[unknown, "round"]).to_numpy()
    longest_drawn = pd.DataFrame(predicted[whole]).groupby(judged["round"].to_numpy()[whole]).max()
    round_s = recorded.round_s.reindex(longest_drawn.index).dropna()
    longest_s = fitted.groupby("round")["observed_s"].max()
    return Calibration(
        devices,
        spreads(devices),
        sigmas,
        judged,
        work_s,
        Agreement(round_s, longest_drawn.loc[round_s.index].to_numpy()),
        len(longest_s),
        float((recorded.round_s.reindex(longest_s.index) - longest_s).median()),
        [*recorded.notes, *notes],
    )
