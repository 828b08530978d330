"""The measures of the parts of the study `fedplt` with static masks and with damping."""

from functools import cached_property

import numpy as np
import pandas as pd

from muster.studies.claims import BySeed
from muster.studies.fedplt.fleet import RATES
from muster.studies.fedplt.known import Path, boundary_radius, limits, path
from muster.studies.fedplt.measures import bytes_up, fallen, mean, slope, squared_tail
from muster.studies.fedplt.static_fleet import SKEWED
from muster.studies.results import Result, Results

FAR = 4.0
"""Far from the minimiser: at so many times the distance of the limit of static masks from it."""


class StaticMeasures:
    """The measures of static masks, of networks and of the boundary."""

    def __init__(self, results: Results) -> None:
        self._results = results

    # --- both regimes of step sizes ---------------------------------------------------------------

    def floor_ratio(self, data: str) -> BySeed:
        """The floor of D at the largest η as a multiple of that at the smallest, by seed."""
        low, high = (
            self._results.by_seed(squared_tail, part="static", data=data, rate=rate)
            for rate in (min(RATES), max(RATES))
        )
        return {seed: high[seed] / value for seed, value in low.items()}

    def slopes(self, data: str) -> BySeed:
        """The slope of log D on log t with decaying η, by seed."""
        return self._results.by_seed(slope, part="static decay", data=data)

    def limit_share(self, data: str) -> BySeed:
        """The distance of the final model of decaying η to the limit, as a share of the distance of
        the limit to the minimiser, by seed."""

        def share(result: Result) -> float:
            limit, best = limits(result.scenario)
            return float(np.linalg.norm(result.vector - limit) / np.linalg.norm(limit - best))

        return self._results.by_seed(share, part="static decay", data=data)

    def distances(self, data: str) -> dict[str, pd.DataFrame]:
        """The distance to the minimiser by round, with a column for each seed, by rate."""
        named: dict[str, dict[str, str | float]] = {
            f"η = {r:g}": {"part": "static", "data": data, "rate": r} for r in RATES
        }
        named["decaying η"] = {"part": "static decay", "data": data}
        return {
            name: self._results.courses(lambda result: result.course("distance"), **labels)
            for name, labels in named.items()
        }

    def limit_distance(self, data: str) -> float:
        """The distance of the limit of static masks to the minimiser, a mean over the seeds."""
        found = [limits(result.scenario) for result in self._of("static decay", data)]
        return float(np.mean([np.linalg.norm(limit - best) for limit, best in found]))

    # --- assumption 6 -----------------------------------------------------------------------------

    @cached_property
    def paths(self) -> dict[str, dict[int, Path]]:
        """The paths of full gradient steps, by data and seed."""
        found: dict[str, dict[int, Path]] = {}
        for result in self._results.where(part="path"):
            data = str(result.labels["data"])
            found.setdefault(data, {})[result.seed] = path(result.scenario)
        return found

    def far_alignment(self, data: str) -> BySeed:
        """The smallest ρ_k at `FAR` times the distance of the limit and farther, by seed."""
        found = {}
        for seed, of in self._paths(data).items():
            far = of.distances >= FAR * of.distances[-1]
            found[seed] = float(of.alignments[far].min()) if far.any() else np.nan
        return found

    def misaligned(self, data: str) -> BySeed:
        """The share of the devices whose ρ_k is not above 0 at the end of the path, by seed. (The
        mean of the smallest ρ_k says little, because ρ_k is a ratio whose denominator may be
        nearly 0.)"""
        return {
            seed: float((of.alignments[-1] <= 0).mean()) for seed, of in self._paths(data).items()
        }

    def path_error(self) -> BySeed:
        """The largest difference of an entry of a run's model from that of the computed path."""

        def apart(result: Result) -> float:
            known = self.paths[str(result.labels["data"])][result.seed]
            return float(np.abs(result.vector - known.end).max())

        return self._results.by_seed(apart, part="path", data=SKEWED)

    def alignment(self) -> pd.DataFrame:
        """What is known of static masks by `data`: the distance of their limit from the minimiser
        and the share of the devices with ρ_k ≤ 0 at the end, in means over the seeds, and the
        smallest ρ_k at the untrained model."""
        rows = [
            {
                "data": data,
                "distance of the limit": self.limit_distance(data),
                "smallest ρ_k at the start": min(of.alignments[0].min() for of in paths.values()),
                "ρ_k ≤ 0 at the end": mean(self.misaligned(data)),
            }
            for data in self.paths
            if (paths := self._paths(data))
        ]
        return pd.DataFrame(rows)

    def _paths(self, data: str) -> dict[int, Path]:
        ended = {result.seed for result in self._of("path", data) if result.ended}
        return {seed: of for seed, of in self.paths.get(data, {}).items() if seed in ended}

    # --- networks and the boundary ----------------------------------------------------------------

    def fall(self, **labels: str | float) -> BySeed:
        """The loss of the untrained model minus the final loss, by seed."""
        return self._results.by_seed(fallen, **labels)

    def highest(self, **labels: str | float) -> BySeed:
        """The highest loss of any evaluated round minus that of the untrained model, by seed."""
        return self._results.by_seed(
            lambda result: float(result.course("loss").iloc[1:].max() - result.course("loss")[0]),
            **labels,
        )

    def networks(self) -> pd.DataFrame:
        """What every run of `network` ended with, in means over the seeds: `devices train`, `data`,
        `rate`, `first loss`, `loss`, `accuracy`, `bytes up`."""
        rows = [
            {
                "devices train": str(result.labels["trains"]),
                "data": str(result.labels["data"]),
                "rate": float(result.labels["server"]),
                "first loss": float(result.course("loss").iloc[0]),
                "loss": result.final("loss"),
                "accuracy": result.final("accuracy"),
                "bytes up": bytes_up(result),
            }
            for result in self._results.where(part="network")
            if result.ended
        ]
        keys = ["devices train", "data", "rate"]
        frame = pd.DataFrame(rows, columns=[*keys, "first loss", "loss", "accuracy", "bytes up"])
        return frame.groupby(keys, sort=False).mean().reset_index()

    def boundary(self) -> pd.DataFrame:
        """The runs of `boundary` in means over the seeds: `share`, `steps`, `rate`, `rise`, the
        highest loss of any evaluated round as a multiple of that of the untrained model, and
        `radius`, the spectral radius of a round at the untrained model, of the first seed."""
        rows = []
        for result in self._results.where(part="boundary"):
            if result.ended:
                course = result.course("loss")
                named = {"share": result.labels["share"], "steps": result.labels["steps"]}
                rise = {
                    "rate": result.labels["server"],
                    "rise": course.iloc[1:].max() / course.iloc[0],
                }
                rows.append({**named, **rise})
        keys = ["share", "steps", "rate"]
        frame = pd.DataFrame(rows, columns=[*keys, "rise"])
        found = frame.groupby(keys).mean().reset_index()
        seed = min(result.seed for result in self._results.where(part="boundary"))
        found["radius"] = [
            boundary_radius(seed, float(row[0]), int(row[1]), float(row[2]))
            for row in found[["share", "steps", "rate"]].to_numpy()
        ]
        return found

    # --- helpers ----------------------------------------------------------------------------------

    def _of(self, part: str, data: str) -> Results:
        return self._results.where(part=part, data=data)
