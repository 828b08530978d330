"""Event files of TensorBoard."""

from collections.abc import Sequence
from pathlib import Path

from muster.emulator.export.metrics import MetricPoint
from muster.emulator.export.tracker import Tracker
from muster.emulator.records.account import Account


class EventFiles(Tracker):
    """Writes the metrics, and the scenario as a text, into a folder. A run that is continued gets
    another file there.

    Args:
        out: the folder.
    """

    def __init__(self, out: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(out))

    def begin(self, account: Account) -> None:
        # TensorBoard shows Markdown, in which an indented text stays as it is.
        scenario = "\n".join(f"    {line}" for line in account.scenario_text.splitlines())
        self._writer.add_text("scenario", scenario, walltime=account.run.started_at)

    def log(self, points: Sequence[MetricPoint]) -> None:
        for point in points:
            self._writer.add_scalar(point.name, point.value, point.round, walltime=point.at)
        self._writer.flush()

    def end(self, account: Account) -> None:
        self._writer.close()
