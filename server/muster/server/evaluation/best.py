"""The best version of a run so far, and for how many evaluations there was none better."""

import math
from collections.abc import Mapping

from muster.common.errors import RunFailed
from muster.server.settings.server import Best, Target

BEST = "best.safetensors"
"""Name of the file of the best version, in the run folder."""


class BestVersion:
    """Follows the evaluations of a run, in their order.

    Attributes:
        version: the best version; None before the first evaluation.
        value: its metric.
        since: number of evaluations after that of the best version.
    """

    def __init__(self, settings: Best) -> None:
        self._settings = settings
        self.version: int | None = None
        self.value = math.nan
        self.since = 0

    def value_of(self, metrics: Mapping[str, float]) -> float:
        """The metric of an evaluation.

        Raises:
            RunFailed: it was not measured.
        """
        return metric_of(metrics, self._settings.metric, "server.best.metric")

    def improves(self, metrics: Mapping[str, float]) -> bool:
        """Whether an evaluation is the best so far. A metric that is not a number is never."""
        value, least = self.value_of(metrics), self._settings.least_change
        if self.version is None or math.isnan(self.value):
            return not math.isnan(value)
        change = value - self.value if self._settings.upwards else self.value - value
        return change > least

    def enter(self, version: int, metrics: Mapping[str, float]) -> None:
        """Enter the evaluation of a version."""
        if self.improves(metrics):
            self.version, self.value, self.since = version, self.value_of(metrics), 0
        else:
            self.since += 1

    @property
    def exhausted(self) -> str:
        """Why the run should end, as a part of a sentence; empty if it should not."""
        patience, metric = self._settings.patience, self._settings.metric
        if patience is None or self.since < patience:
            return ""
        best = f"{self.value:.4g} in version {self.version}"
        none = "it was never a number" if self.version is None else f"the best was {best}"
        return f"{metric} was not better in {patience} evaluations; {none}"


def metric_of(metrics: Mapping[str, float], name: str, setting: str) -> float:
    """The metric of an evaluation.

    Raises:
        RunFailed: it was not measured.
    """
    if name not in metrics:
        raise RunFailed(
            f"{setting}: the task measures no {name!r}; there are: {', '.join(metrics)}"
        )
    return metrics[name]


def require_measured(target: Target, metrics: Mapping[str, float]) -> None:
    """Check that an evaluation has the metrics of a target.

    Raises:
        RunFailed: one was not measured.
    """
    for setting, names in (("at_least", target.at_least), ("at_most", target.at_most)):
        for name in names:
            metric_of(metrics, name, f"server.target.{setting}")
