"""Starts the supervisor of a fleet of `muster up`, and waits until the fleet has committed a round.

The supervisor is a process that outlives the command (`muster.cli.detached`).
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from muster.common.clock import Clock
from muster.common.environment import settled
from muster.common.errors import ConfigError, LaunchFailed
from muster.common.events import Died
from muster.emulator.following.run_progress import Event, RunProgress
from muster.emulator.launch.docker.compose_command import Say
from muster.emulator.launch.starting import quoted
from muster.emulator.run_folder.folder import DETACHED_LOG, JOURNAL
from muster.emulator.run_folder.journal_tail import Tail

_LOOK_S = 0.2
_SAY_EVERY_S = 2.0
_GOODBYE_S = 60.0

_ERROR = re.compile(r"^error: (.*)", re.DOTALL | re.MULTILINE)
"""The message with which the supervisor ends. Lines of logs that it quotes begin otherwise."""

_DEATHS = 3
"""A program that has died so often before the first round counts as broken."""

_DEATHS_TOLD = 2
"""Most programs whose last lines are told."""

_STEPS = {"nursery": "making containers", "server": "starting devices"}
"""What comes after the start of a program."""


class FirstRound:
    """What is told of a fleet until its first round is committed.

    Attributes:
        committed: whether it is.
    """

    def __init__(self, folder: Path, run_progress: RunProgress, say: Say, clock: Clock) -> None:
        self._folder, self._run_progress, self._say, self._clock = folder, run_progress, say, clock
        self.committed = False
        self._died: dict[str, tuple[int, int]] = {}
        self._said, self._say_at = "", 0.0

    def happen(self, events: Sequence[Event]) -> None:
        """Take notice of events of the journal.

        Raises:
            LaunchFailed: a program dies again and again.
        """
        for event in events:
            self._run_progress.happen(event)
            self.committed = self.committed or event["event"] == "round_committed"
            if event["event"] == "started" and (step := _STEPS.get(event["process"])):
                self._say(step)
            if event["event"] == Died.name:
                times, _ = self._died.get(event["process"], (0, 0))
                self._died[event["process"]] = times + 1, event["status"]
                if times + 1 == _DEATHS and not self.committed:
                    raise LaunchFailed(f"{event['process']} died {_DEATHS} times")
        self._tell_enrolled()

    def _tell_enrolled(self) -> None:
        there, all_of = len(self._run_progress.enrolled), self._run_progress.population
        line, now = f"{there} of {all_of} devices enrolled", self._clock.monotonic()
        if all_of and line != self._said and (now >= self._say_at or there == all_of):
            self._say(line)
            self._said, self._say_at = line, now + _SAY_EVERY_S

    def deaths(self) -> list[str]:
        """What has died, with the last lines of its log."""
        told = []
        for name, (_, status) in list(self._died.items())[:_DEATHS_TOLD]:
            log = self._folder / "logs" / f"{name}.log"
            lines = quoted(log.read_text(errors="replace")) if log.is_file() else ""
            told.append(f"{name} ended with status {status}{lines}")
        return told


def start_supervised(folder: Path, run_progress: RunProgress, say: Say, clock: Clock) -> None:
    """Start the supervisor of a run folder, and return once a round is committed, or the run has
    ended well.

    Raises:
        ConfigError: the fleet cannot be started this way.
        LaunchFailed: the run failed, or a program dies again and again. The supervisor has ended.
    """
    tail, first = Tail(folder / JOURNAL), FirstRound(folder, run_progress, say, clock)
    say("preparing the task")
    with open(folder / DETACHED_LOG, "ab") as log:
        before = log.tell()
        supervising = subprocess.Popen(
            [sys.executable, "-P", "-m", "muster.cli.detached", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=settled(os.environ),
            start_new_session=True,  # it outlives this command, its terminal and Ctrl-C
        )
    try:
        while not first.committed:
            ended = supervising.poll()  # before the journal, in which it says why
            first.happen(tail.new())
            if ended is not None and not first.committed:
                if not ended:
                    return
                raise failure_in(folder, ended, before)
            clock.pause(_LOOK_S)
    except LaunchFailed as failure:
        _end(supervising)
        raise LaunchFailed("\n".join([str(failure), *first.deaths()])) from None
    except BaseException:
        _end(supervising)
        raise
    # So that its end is noticed, in a program that outlives it.
    Thread(target=supervising.wait, daemon=True).start()


def failure_in(folder: Path, status: int, before: int) -> ConfigError | LaunchFailed:
    """Why the supervisor has ended.

    Args:
        before: the size of its log when it was started.
    """
    said = (folder / DETACHED_LOG).read_bytes()[before:].decode(errors="replace").strip()
    told = _ERROR.search(said)
    if told is None:
        return LaunchFailed(f"the supervisor ended with status {status}{quoted(said)}")
    return ConfigError(told[1]) if status == 2 else LaunchFailed(told[1])


def _end(supervising: "subprocess.Popen[bytes]") -> None:
    """End the supervisor, which ends the fleet."""
    supervising.terminate()
    try:
        supervising.wait(_GOODBYE_S)
    except subprocess.TimeoutExpired:
        supervising.kill()
        supervising.wait()
