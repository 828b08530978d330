"""Runs, plans and comparisons that a notebook can show."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from torch import nn

from muster.emulator import comparison, planning
from muster.emulator.comparison.fragment import comparison_fragment
from muster.emulator.export.tracking import tracking
from muster.emulator.records.account import Account
from muster.emulator.records.manifest import intact_folder
from muster.emulator.records.summary import MODEL, outline
from muster.emulator.report.fragment import plan_fragment, run_fragment
from muster.emulator.report.plan_tables import describe
from muster.emulator.runs import running
from muster.emulator.scenario.reading import read_scenario
from muster.tasks.opening import opened
from muster.torch.display import showing


class Shown(ABC):
    """A result that a notebook shows as the last value of a cell."""

    @abstractmethod
    def html(self) -> str:
        """The result as a piece of HTML, which needs no file and no network."""

    def _repr_html_(self) -> str:
        return self.html()


class ShownRun(Shown, running.Run):
    """A run. `ledger` has its tables as data frames, for example `run.ledger.evaluations`
    (docs/results.md), and `folder` the files, which every command reads."""

    @classmethod
    def of(cls, found: running.Run) -> Self:
        return cls(**_fields(found))

    def module(self) -> nn.Module:
        """The model of the run: the module as its task makes it, with the values of
        model.safetensors. Entries that stay on their devices have their initial values.

        Raises:
            ConfigError: the model or the data are not there any more.
            FileNotFoundError: the run has made no model yet.
        """
        from safetensors.torch import load_file

        values = load_file(self.folder / MODEL)
        scenario = read_scenario(self.folder / "scenario.toml")
        module = opened(scenario.task, scenario.devices, scenario.seed).module()
        module.load_state_dict(values, strict=False)
        return module

    def html(self) -> str:
        return run_fragment(self.ledger)


class ShownPlan(Shown, planning.Plan):
    """A plan."""

    @classmethod
    def of(cls, found: planning.Plan) -> Self:
        return cls(**_fields(found))

    def __str__(self) -> str:
        return describe(self)

    def html(self) -> str:
        return plan_fragment(self)


class ShownComparison(Shown, comparison.Comparison):
    """A comparison. `runs`, `means`, `differences` and `courses` are data frames."""

    @classmethod
    def of(cls, found: comparison.Comparison) -> Self:
        return cls(**_fields(found))

    def html(self) -> str:
        return comparison_fragment(self)


def read(folder: Path | str = "runs/latest") -> ShownRun:
    """The run in a folder as it is now. It may have been made by `muster run`, and may go on.

    Raises:
        ConfigError: there is no run.
        LedgerError: its ledger cannot be read.
    """
    found = intact_folder(Path(folder))
    account = Account(found)
    return ShownRun(found, outline(account), account)


def resume(
    folder: Path | str = "runs/latest",
    *,
    rounds: int | None = None,
    track: Sequence[str] = (),
    quiet: bool = False,
) -> ShownRun:
    """Resume the run in a folder where its ledger ends.

    Args:
        rounds: the number of rounds in all, in place of that of its scenario.
        track: trackers that record the run; one that has it continues it.
        quiet: show no progress.

    Raises:
        ConfigError, LedgerError, RunFailed: see `muster.emulator.runs.running.resume`.
    """
    title = Path(folder).resolve().name
    with tracking(track) as begin, showing(title, quiet) as show:
        return ShownRun.of(running.resume(folder, rounds=rounds, show=show, begin=begin))


def _fields(found: Any) -> dict[str, Any]:
    return {field.name: getattr(found, field.name) for field in fields(found)}
