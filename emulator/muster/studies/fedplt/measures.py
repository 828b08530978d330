"""The measures of the study `fedplt`."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pandas as pd

from muster.studies.claims import BySeed
from muster.studies.fedplt.fleet import NO_MASK, RATES
from muster.studies.fedplt.known import limits
from muster.studies.results import Result, Results

_TAIL = 0.6
"""Share of the rounds over which the squared distance of `floor` is averaged."""
_BINS = 12


class FedPltMeasures:
    """The measures of all runs."""

    def __init__(self, results: Results) -> None:
        self._results = results

    # --- floor and decay --------------------------------------------------------------------------

    def floors(self) -> dict[float, BySeed]:
        """The mean of D = ‖θ − θ*‖² over the last three fifths of the rounds, by η and seed."""
        return {
            rate: self._results.by_seed(squared_tail, part="floor", rate=rate) for rate in RATES
        }

    def floor_ratios(self) -> dict[float, BySeed]:
        """The floor of each η as a multiple of the floor of η/2, by η and seed."""
        floors = self.floors()
        return {
            rate: {seed: floors[rate][seed] / half for seed, half in floors[before].items()}
            for before, rate in pairwise(RATES)
        }

    def last_with_decay(self) -> BySeed:
        """The mean of D over the last tenth of the rounds of `decay`, by seed."""
        return self._results.by_seed(lambda result: squared_tail(result, 0.1), part="decay")

    def slopes(self) -> BySeed:
        """The slope of log D on log t in the last nine tenths of `decay`, by seed."""
        return self._results.by_seed(slope, part="decay")

    def distances(self) -> dict[str, pd.DataFrame]:
        """D by round, with a column for each seed, by the name of the rate."""
        named: dict[str, dict[str, str | float]] = {
            f"η = {rate:g}": {"part": "floor", "rate": rate} for rate in RATES
        }
        named["decaying η"] = {"part": "decay"}
        return {name: self._courses("distance", **labels) ** 2 for name, labels in named.items()}

    # --- ψ and capacity ---------------------------------------------------------------------------

    def psi(self, measure: str, capacity: float, *, psi: bool) -> BySeed:
        """The final loss or accuracy with masks, by seed."""
        return self._final(measure, part="psi", capacity=capacity, psi=psi)

    def whole(self, measure: str, scaled_by: float = 1.0) -> BySeed:
        """The final loss or accuracy of devices that train the whole model with η · scaled_by."""
        return self._final(measure, part="psi", scaled_by=scaled_by)

    def bytes_up(self, capacity: float) -> BySeed:
        """The bytes that devices sent with masks as a share of those without, by seed."""
        ours = self._results.by_seed(bytes_up, part="psi", capacity=capacity, psi=True)
        theirs = self._results.by_seed(bytes_up, part="psi", scaled_by=1.0)
        return {seed: ours[seed] / theirs[seed] for seed in ours}

    # --- instabilities ----------------------------------------------------------------------------

    def rise(self, **labels: str | float) -> BySeed:
        """The highest loss of any evaluated round minus the loss of the untrained model."""

        def risen(result: Result) -> float:
            course = result.course("loss")
            return float(course.iloc[1:].max() - course.iloc[0])

        return self._results.by_seed(risen, **labels)

    def fall(self, **labels: str | float) -> BySeed:
        """The loss of the untrained model minus the final loss."""
        return self._results.by_seed(fallen, **labels)

    def final_loss(self, part: str, masks: str, rate: float) -> BySeed:
        """The final loss, by seed."""
        return self._final("loss", part=part, masks=masks, rate=rate)

    def rebound(self, part: str, masks: str, rate: float) -> BySeed:
        """The final loss minus the lowest loss of any evaluated round, by seed."""

        def risen(result: Result) -> float:
            course = result.course("loss")
            return float(course.iloc[-1] - course.min())

        return self._results.by_seed(risen, part=part, masks=masks, rate=rate)

    def growth(self, schedule: str, rate: float) -> BySeed:
        """The natural logarithm of the final distance to the minimiser over the first, in
        `curvature`; positive if masks drive the model away."""

        def grown(result: Result) -> float:
            course = result.course("distance")
            return float(np.log(course.iloc[-1] / course.iloc[0]))

        return self._results.by_seed(grown, part="curvature", masks=schedule, rate=rate)

    def courses(self, part: str, measure: str) -> dict[str, pd.DataFrame]:
        """A measure by round of every run of a part, by what is run."""
        return {
            described(labels): self._courses(measure, part=part, **labels)
            for labels in self._labels(part)
        }

    # --- limit ------------------------------------------------------------------------------------

    def limit_error(self, schedule: str) -> BySeed:
        """The distance of the final model to the limit of static masks, as a share of the distance
        from there to the minimiser of the mean loss."""
        return self._limit(schedule, 0)

    def minimiser_error(self, schedule: str) -> BySeed:
        """The distance of the final model to the minimiser of the mean loss, as a share of the
        distance from there to the limit of static masks."""
        return self._limit(schedule, 1)

    def _limit(self, schedule: str, which: int) -> BySeed:
        known = {
            result.seed: limits(result.scenario)
            for result in self._results.where(part="limit", masks="static")
        }

        def share(result: Result) -> float:
            points = known[result.seed]
            apart = float(np.linalg.norm(points[0] - points[1]))
            return float(np.linalg.norm(result.vector - points[which])) / apart

        return self._results.by_seed(share, part="limit", masks=schedule)

    # --- helpers ----------------------------------------------------------------------------------

    def table(self) -> pd.DataFrame:
        """What every run of `psi` ended with: means over the seeds."""
        rows = []
        for labels in self._labels("psi"):
            of = {name: self._final(name, part="psi", **labels) for name in ("loss", "accuracy")}
            sent = self._results.by_seed(bytes_up, part="psi", **labels)
            rows.append(
                {
                    "devices train": described(labels),
                    "loss": mean(of["loss"]),
                    "accuracy": mean(of["accuracy"]),
                    "bytes up": mean(sent),
                }
            )
        return pd.DataFrame(rows)

    def _final(self, measure: str, **labels: str | float | bool) -> BySeed:
        def final(result: Result) -> float:
            return result.final(measure)

        return self._results.by_seed(final, **labels)

    def _labels(self, part: str) -> list[Mapping[str, str | float | bool]]:
        found: list[Mapping[str, str | float | bool]] = []
        for result in self._results.where(part=part):
            if result.labels not in found:
                found.append(result.labels)
        return found

    def _courses(self, measure: str, **labels: str | float | bool) -> pd.DataFrame:
        return self._results.courses(lambda result: result.course(measure), **labels)


def described(labels: Mapping[str, str | float | bool]) -> str:
    """What is run, in a few words."""
    words = []
    if "capacity" in labels:
        words.append(f"{labels['capacity']:.0%} of the model")
    if "psi" in labels:
        words.append("ψ" if labels["psi"] else "without ψ")
    if "scaled_by" in labels:
        scaled = labels["scaled_by"]
        words.append("the whole model" + ("" if scaled == 1.0 else f", η · {scaled:g}"))
    if "masks" in labels:
        named = labels["masks"]
        words.append("the whole model" if named == NO_MASK else f"{named} masks")
    if "rate" in labels:
        words.append(f"η = {labels['rate']:g}")
    if "steps" in labels:
        words.append(f"{labels['steps']} steps")
    return ", ".join(words)


def squared_tail(result: Result, share: float = _TAIL) -> float:
    """The mean of ‖θ − θ*‖² over the last share of the rounds."""
    course = result.course("distance")
    return float((course[course.index > (1 - share) * course.index.max()] ** 2).mean())


def slope(result: Result) -> float:
    """The slope of log D on log t, by least squares on means over bins of equal width in log t."""
    course = result.course("distance") ** 2
    course = course[course.index > course.index.max() / 10]
    edges = np.geomspace(course.index.min(), course.index.max() + 1, _BINS + 1)
    bins = np.digitize(course.index, edges)
    squares = course.groupby(bins).mean().to_numpy()
    times = pd.Series(course.index, course.index).groupby(bins).mean().to_numpy()
    return float(np.polyfit(np.log(times), np.log(squares), 1)[0])


def fallen(result: Result) -> float:
    """The loss of the untrained model minus the final loss."""
    return float(result.course("loss").iloc[0]) - result.final("loss")


def bytes_up(result: Result) -> float:
    """The bytes of all updates that devices sent."""
    return float(result.summary["bytes_up"])


def mean(values: BySeed) -> float:
    return float(np.mean(list(values.values())))
