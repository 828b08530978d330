"""Exports the metrics of a run as event files of TensorBoard."""

from pathlib import Path

from muster.emulator.export.metrics import metric_points
from muster.emulator.records.account import Account


def write_event_files(account: Account, out: Path) -> None:
    """Write the metrics, and the scenario as a text."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(out)) as writer:
        # TensorBoard shows Markdown, in which an indented text stays as it is.
        scenario = "\n".join(f"    {line}" for line in account.scenario_text.splitlines())
        writer.add_text("scenario", scenario, walltime=account.run.started_at)
        for metric in metric_points(account):
            writer.add_scalar(metric.name, metric.value, metric.round, walltime=metric.at)
