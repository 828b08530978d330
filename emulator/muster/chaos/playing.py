"""Plays a plan over real processes, and checks what the run has left.

The run is a process of its own, because its supervisor may be killed. It is resumed then.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.chaos.killer import ProcessKiller, Victim
from muster.chaos.plans import ChaosPlan
from muster.chaos.run_processes import processes_with
from muster.common.clock import Clock
from muster.common.faults import TracedFault
from muster.common.processes import child_command, child_environment
from muster.emulator.records.account import Account
from muster.emulator.run_audit import audit
from muster.emulator.run_folder.folder import JOURNAL
from muster.emulator.run_folder.journal_tail import Tail
from muster.emulator.scenario.scenario import Scenario
from muster.simulation.observed import seen_in
from muster.simulation.whole_run import simulate_run

_POLL_S = 0.005
_STUCK_S = 300.0
"""Seconds without a line in the journal after which a run is stuck. It is longer than
`server.stall_s`, after which the run should fail by itself."""

_GONE_S = 30.0
"""Seconds after which no process of a run may be left."""


@dataclass
class ChaosOutcome:
    """What became of a plan.

    Attributes:
        violations: what is not as it must be; empty if all is well.
        kills: the kills that were carried out, by victim.
        states: occurrences of faults by state: applied, observed, healed, verified.
        same: whether the model was compared with that of the undisturbed run, and is the same.
        reached: the probes over accounts that the run has reached.
    """

    violations: list[str] = field(default_factory=list)
    kills: Counter[Victim] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    same: bool = False
    reached: frozenset[str] = frozenset()


def play(plan: ChaosPlan, folder: Path, clock: Clock) -> ChaosOutcome:
    """Play a plan in a folder that does not exist yet.

    The folder gets the scenario (`scenario.toml`), what the run has printed (`output.txt`), the
    run folder (`run`), and in lockstep that of the run without injected faults (`undisturbed`).
    """
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(plan.scenario.to_toml())
    course = _Course(plan, folder, clock)
    outcome = ChaosOutcome(kills=course.killer.done)
    outcome.violations += course.follow()
    if not outcome.violations:
        outcome.violations += judge(plan.scenario, folder, outcome)
    return outcome


class _Course:
    """The course of a run from its start to its end, over all deaths of its supervisor."""

    def __init__(self, plan: ChaosPlan, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._run = folder / "run"
        self._clock = clock
        self._tail = Tail(self._run / JOURNAL)
        self.killer = ProcessKiller(self._run, plan.kills, plan.seed)

    def follow(self) -> Iterator[str]:
        """Run until the run has ended; yield what went wrong."""
        arguments = [str(self._run), str(self._folder / "scenario.toml")]
        while True:
            status = self._follow_supervisor(arguments)
            if left := self._left():
                yield f"{len(left)} processes are left, for example: {left[0]:.200}"
                return
            if status is not None:
                break
            arguments = arguments[:1]
        if status:
            said = (self._folder / "output.txt").read_text(errors="replace").strip()
            yield f"the run ended with status {status}: {said[-2000:]}"

    def _follow_supervisor(self, arguments: list[str]) -> int | None:
        """Run one supervisor; return its exit status, or None if the plan has killed it."""
        command = child_command("muster.chaos.one_run", *arguments)
        with (self._folder / "output.txt").open("ab") as output:
            supervisor = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=child_environment(),
            )
            try:
                killed = self._watch(supervisor)
                return None if killed else supervisor.wait()
            finally:
                supervisor.kill()
                supervisor.wait()

    def _watch(self, supervisor: subprocess.Popen[bytes]) -> bool:
        """Follow the journal until the supervisor has ended; return whether to kill it."""
        heard = self._clock.monotonic()
        while supervisor.poll() is None:
            for line in self._tail.new():
                heard = self._clock.monotonic()
                if self.killer.happen(line):
                    return True
            if self._clock.monotonic() - heard > _STUCK_S:
                self._say(f"stuck: the journal has had no line for {_STUCK_S:g} s")
                return False
            self._clock.pause(_POLL_S)
        return False

    def _left(self) -> list[str]:
        """The processes of the run that do not end by themselves."""
        limit = self._clock.monotonic() + _GONE_S
        while (left := processes_with(str(self._run))) and self._clock.monotonic() < limit:
            self._clock.pause(_POLL_S)
        return left

    def _say(self, line: str) -> None:
        with (self._folder / "output.txt").open("a") as output:
            output.write(f"{line}\n")


def _never_healed(run: Path) -> set[tuple[str, int]]:
    """The occurrences of faults that act even after the run, by their events in the journal."""
    found: dict[str, set[tuple[str, int]]] = {"fault_applied": set(), "fault_healed": set()}
    with Account(run) as account:
        for event in account.events(*found):
            found[event["event"]].add((event["fault"], event["number"]))
    return found["fault_applied"] - found["fault_healed"]


def judge(scenario: Scenario, folder: Path, outcome: ChaosOutcome) -> Iterator[str]:
    """Check a run that has come to its end; yield what is wrong.

    Args:
        folder: has the run folder as `run`.
        outcome: gets the states of the faults, the probes, and whether the model is right.
    """
    run = folder / "run"
    summary = _summary(run)
    outcome.reached = seen_in(run)
    for fault in summary.get("faults", []):
        outcome.states.update({state: fault[state] for state in ("applied", "observed")})
        outcome.states.update({state: fault[state] for state in ("healed", "verified")})
    for name, number in sorted(_never_healed(run)):
        yield f"occurrence {number} of {name} was applied and never healed"
    audited = audit(run)
    if not audited.agrees:
        yield f"the audit found a difference: {audited.first}"
    if not scenario.clock.lockstep:
        if summary["status"] != "completed":
            yield f"the run is {summary['status']}, expected completed"
        return
    reference = undisturbed(scenario, folder / "undisturbed")
    for key in ("status", "model_sha256"):
        if summary[key] != reference[key]:
            yield f"{key} is {summary[key]}, in the undisturbed run it is {reference[key]}"
    outcome.same = summary["model_sha256"] == reference["model_sha256"]


def undisturbed(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """The summary of the same run in lockstep without faults of programs and links, played in this
    process. Faults inside devices are part of it, because they change the model."""
    inside = [fault for fault in scenario.faults if isinstance(fault.do, TracedFault)]
    simulate_run(scenario.model_copy(update={"faults": inside}), folder)
    return _summary(folder)


def _summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_bytes())
    return found
