"""A whole run of a scenario inside this process: in virtual time, over the in-memory transport."""

import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from muster.common.clock import WallClock
from muster.common.errors import ConfigError, RunFailed
from muster.common.faults import TracedFault
from muster.common.files import write_atomic
from muster.emulator.credentials.issuing import remove_credentials
from muster.emulator.injection.run_faults import record_afterwards
from muster.emulator.planning import server_view
from muster.emulator.runs.conclusion import conclude
from muster.emulator.scenario.recorded_life import as_played
from muster.emulator.scenario.scenario import Scenario
from muster.server.evaluation.messages import Setup
from muster.server.evaluation.process import ModelEvaluation
from muster.simulation.evaluation import Evaluate
from muster.simulation.faults import KillAt
from muster.simulation.history import History
from muster.simulation.programs import programs_of


def require_simulated(scenario: Scenario) -> None:
    """Check that a scenario can be run inside one process.

    Raises:
        ConfigError: it is not in lockstep, so that its result depends on real time; or its devices
            wait for slots; or a fault strikes what is not there; or no run could play it.
    """
    if not scenario.clock.lockstep:
        raise ConfigError(
            f"clock.kind: a run inside one process must be in lockstep; expected "
            f'"rounds", found "{scenario.clock.kind}"'
        )
    server_view.require(scenario)
    played = as_played(scenario)
    for fault in played.faults:
        if not isinstance(fault.do, TracedFault):
            raise ConfigError(
                f"faults.{fault.name}: in a run inside one process there are no processes and no "
                f"links that {fault.do.kind} could strike; expected faults of devices, or use "
                f"muster run"
            )
    for group in played.groups:
        if group.shared_link.slots is not None and group.shared_link.overflow == "queue":
            raise ConfigError(
                f"groups.{group.name}.shared_link.overflow: in a run inside one process no device "
                f'waits for a slot; expected "collide" or "subset", found "queue"'
            )


def simulate_run(scenario: Scenario, folder: Path, kills: Sequence[KillAt] = ()) -> str:
    """Run a scenario without sockets or processes of its own, and return the run's status.

    The server, the devices and the evaluation are those of a real run, and so is every number in
    the run folder apart from times. The fleet uses one core and no more memory than one process.

    Args:
        folder: the run folder; what it had is removed.
        kills: processes that die within the run, and are started again.

    Raises:
        ConfigError: as `require_simulated`; or a kill names no process.
        RunFailed: the run failed, or ended before the event of a kill.
    """
    require_simulated(scenario)
    torch.set_num_threads(1)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_atomic(folder / "scenario.toml", scenario.to_toml().encode())
    with tempfile.TemporaryDirectory(prefix="muster-") as scratch:
        (Path(scratch) / "programs").mkdir()
        shutil.copy(folder / "scenario.toml", Path(scratch) / "programs")  # the inputs name it
        programs = programs_of(scenario, Path(scratch) / "programs")
        there = ["server", *(pack.name for pack in programs.packs)]
        for kill in kills:
            if kill.process not in there:
                raise ConfigError(
                    f"no process {kill.process!r} could be killed; there are: {', '.join(there)}"
                )
        history = History(
            programs,
            folder,
            scenario.seed,
            kills,
            most_s=math.inf,
            most_steps=math.inf,
            evaluation=_begin,
        )
        try:
            outcome = history.play()
        except BaseException:  # an interrupt, for example
            history.close()
            raise
    try:
        if outcome.violations:
            raise RunFailed("; ".join(outcome.violations))
        for kill in kills:
            if kill not in history.awaited:
                continue
            raise RunFailed(
                f"{kill.process} was to die at {kill.event} of round {kill.round}, but the journal "
                f"of the run has no such event"
            )
        for kill in history.missed:
            raise RunFailed(
                f"{kill.process} was to die at {kill.event} of round {kill.round}, but it did not "
                f"run then; an earlier kill had ended it"
            )
        record_afterwards(folder, programs.faults)
        concluded = conclude(folder, None, report=False)
    finally:
        with _out_of_reach(folder):
            history.close()
        remove_credentials(folder)
    if concluded is None:
        raise RunFailed(f"the run left no ledger that can be read in {folder}")
    summary, account = concluded
    account.close()
    return str(summary["status"])


@contextmanager
def _out_of_reach(folder: Path) -> Iterator[None]:
    """Move a run folder away for a while. A server that was killed is unwound when its history is
    closed, and would then write the model that it had over that of the run."""
    kept = folder.with_name(f"{folder.name}.kept")
    shutil.rmtree(kept, ignore_errors=True)  # of a process that was killed meanwhile
    folder.rename(kept)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        kept.rename(folder)


def _begin(setup: Setup) -> Evaluate:
    return ModelEvaluation(setup, WallClock()).evaluate
