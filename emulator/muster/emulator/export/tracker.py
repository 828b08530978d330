"""The contract of a tracker: a program of others that records runs, and gets the metrics of a run
while it goes on or, by an export, all at once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from muster.emulator.export.metrics import MetricPoint
from muster.emulator.records.account import Account


class Tracker(ABC):
    """One run in a tracker. The methods are called in this order, `log` any number of times."""

    @abstractmethod
    def begin(self, account: Account) -> None:
        """Open the run with the settings of its scenario, or continue it if the tracker has it."""

    @abstractmethod
    def log(self, points: Sequence[MetricPoint]) -> None:
        """Record values of metrics, by round."""

    @abstractmethod
    def end(self, account: Account) -> None:
        """Close the run with its status. It may be opened again, if the run is resumed."""
