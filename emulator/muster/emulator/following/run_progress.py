"""The progress of a run, computed from the events of its journal without I/O or a clock.

An event costs one look-up in a table and a little arithmetic, so a display can handle every event
of a large fleet and draw whenever it wants.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from muster.emulator.records.secure_sums import failure_text
from muster.emulator.records.summary import clean
from muster.emulator.records.worsening import Quality, worsening, worsening_text

Event = Mapping[str, Any]
"""A line of the journal, as `Journal.add` returns it."""


class FaultState(StrEnum):
    """The state of an occurrence of a fault."""

    PLANNED = "planned"
    APPLIED = "applied"
    OBSERVED = "observed"
    HEALED = "healed"
    VERIFIED = "verified"


@dataclass(slots=True)
class FaultProgress:
    """An occurrence of a fault.

    Attributes:
        number: the number of the occurrence, from 1.
        do: its kind; empty if the journal does not say it.
        targets: those that it strikes, or may strike while it is planned; empty if it is over and a
            later occurrence has begun.
        first: the round in which it was applied; while it is planned, the round in which it begins;
            None if that is not known.
        healed: the round in which it was healed; None before, and if it lasted to the end.
        seen: what was measured; empty until it is observed.
        acting: whether it acts now.
    """

    fault: str
    number: int
    do: str
    state: FaultState
    targets: Sequence[str]
    first: int | None
    healed: int | None = None
    seen: str = ""
    acting: bool = False


# Weight of the newest round in the moving average of the pace, so that about the last ten rounds
# determine the time left.
_NEWEST = 0.2


@dataclass(slots=True)
class RunProgress:
    """The progress of a run according to the events so far.

    Attributes:
        rounds: the number of rounds of the whole run, or of versions if it `counts_versions`.
        round, version: the last that were committed, also by an earlier incarnation of the server.
        enrolled: clients that have a session of the current server.
        bytes_up, bytes_down: bytes of the bodies that devices sent and received in the whole run.
        initial: what was measured of the initial model; None before that.
        arriving: bytes of the updates that have arrived in the open round.
        measuring: the step of measuring links before the run; empty if none is measured.
        awaited: the first devices for which the open round has waited for some seconds; empty if
            it does not wait.
        waiting: that it waits and for whom, for a person; empty if it does not.
        secure: the steps of the open round's secure sum in its newest attempt, each with how many
            devices have taken it (None: that is not known yet), and how many were asked.
        failed_training: the first training that failed, for a person; empty if none did.
        faults: the occurrences of faults by name and number, in the order in which they appeared.
        notices: messages for a person, one line each; the displays remove them.
    """

    population: int = 0
    rounds: int = 0
    counts_versions: bool = False
    round: int = 0
    version: int = 0
    enrolled: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    called: int = 0
    folded: int = 0
    empty: int = 0
    loss: float | None = None
    accuracy: float | None = None
    epsilon: float | None = None
    initial: Quality | None = None
    evaluated_round: int = 0
    evaluated_version: int = 0
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    arriving: int = 0
    status: str | None = None
    detail: str = ""
    measuring: str = ""
    awaited: Sequence[str] = ()
    waiting: str = ""
    secure: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    failed_training: str = ""
    faults: dict[tuple[str, int], FaultProgress] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    _committed_at: float | None = None
    _pace_s: float | None = None

    def happen(self, event: Event) -> None:
        """Update the progress with one event; unknown events are ignored."""
        if handler := _HANDLERS.get(event["event"]):
            handler(self, event)

    @property
    def starting(self) -> bool:
        """Whether the current server has not committed a round yet, while devices start."""
        return self._committed_at is None

    @property
    def counts(self) -> str:
        """What `rounds` counts: "rounds" or "versions"."""
        return "versions" if self.counts_versions else "rounds"

    @property
    def evaluated(self) -> tuple[str, int] | None:
        """The round, or the version in a run that counts versions, of the newest evaluation; None
        if it is the newest one."""
        newest, number = self.round, self.evaluated_round
        if self.counts_versions:
            newest, number = self.version, self.evaluated_version
        return None if number == newest else (self.counts[:-1], number)

    @property
    def quality(self) -> Quality:
        """The newest evaluation. A journal has null for what is not finite."""
        loss, accuracy = (math.nan if each is None else each for each in (self.loss, self.accuracy))
        return Quality(loss, accuracy)

    @property
    def worse(self) -> str:
        """What is said of a model that is far worse than the initial one; else ""."""
        found = self.initial and worsening(self.initial, self.quality)
        return worsening_text(found) if found else ""

    @property
    def done(self) -> int:
        """The number of rounds, or of versions, that are committed."""
        return self.version if self.counts_versions else self.round

    @property
    def left_s(self) -> float | None:
        """Seconds until the last round at the pace of the newest rounds; None: not known yet."""
        return None if self._pace_s is None else self._pace_s * (self.rounds - self.done)

    @property
    def acting(self) -> dict[tuple[str, int], str]:
        """The faults that act, by name and number of the occurrence, each with its targets."""
        return {key: _targets(each.targets) for key, each in self.faults.items() if each.acting}

    def _on_server_started(self, event: Event) -> None:
        self.population, self.rounds = event["population"], event["rounds"]
        self.round, self.version = event["round"], event["version"]
        self.counts_versions = event.get("counts") == "versions"
        self.bytes_up, self.bytes_down = event["bytes_up"], event["bytes_down"]
        self._goes_on()
        self.status, self.detail = None, ""  # a run that had ended was resumed
        self._committed_at = None  # earlier events may be about rounds of the previous server

    def _on_enrolled(self, event: Event) -> None:
        self.enrolled.add(event["client"])

    def _on_attended(self, event: Event) -> None:
        self.present.add(event["client"])

    def _on_left(self, event: Event) -> None:
        self.present.discard(event["client"])

    def _on_received(self, event: Event) -> None:
        self.arriving += event["bytes"]

    def _on_waiting(self, event: Event) -> None:
        self.awaited = [clean(client) for client in event["clients"]]
        more = event["number"] - 1
        who = self.awaited[0] + (f" and {more} other device{'s' * (more > 1)}" if more else "")
        self.waiting = f"round {event['round']} waits for {who}"
        self.notices.append(self.waiting)

    def _on_secure_step(self, event: Event) -> None:
        if event["step"] == "keys":  # an attempt begins
            self.secure.clear()
        self.secure[clean(event["step"])] = event["answered"], event["asked"]

    def _on_secure_sum_failed(self, event: Event) -> None:
        self.notices.append(f"round {event['round']} has no secure sum: {failure_text(event)}")

    def _goes_on(self) -> None:
        self.awaited, self.waiting = (), ""
        self.secure.clear()

    def _on_round_committed(self, event: Event) -> None:
        self.round, self.called, self.folded = event["round"], event["called"], event["folded"]
        self.version, self.epsilon = event["version"], event.get("epsilon")
        self._goes_on()
        self.empty += event["outcome"] == "empty"
        self.seconds += event["seconds"]
        self.bytes_up += event["bytes_up"]
        self.bytes_down += event["bytes_down"]
        self.arriving = 0
        # Use the times in the events and not those of their arrival, because a reader may get many
        # events at once. The first round of a server does not count, because it also waits for
        # devices to start.
        if self._committed_at is not None:
            took = event["at"] - self._committed_at
            pace = took if self._pace_s is None else self._pace_s
            self._pace_s = pace + _NEWEST * (took - pace)
        self._committed_at = event["at"]

    def _on_evaluated(self, event: Event) -> None:
        self.loss, self.accuracy = event["loss"], event["accuracy"]
        if event["version"] == 0:
            self.initial = self.quality
        self.evaluated_round, self.evaluated_version = event["round"], event["version"]

    def _on_verifying(self, event: Event) -> None:
        self.measuring = clean(event["step"])

    def _on_verified(self, event: Event) -> None:
        self.measuring = ""

    def _on_died(self, event: Event) -> None:
        how = ", ".join(filter(None, [clean(event["status"]), clean(event.get("cause", ""))]))
        self.notices.append(f"problem: {clean(event['process'])} died ({how})")
        if event["process"] == "server":
            # Sessions and the open round end with their server.
            self._goes_on()
            self.enrolled.clear()
            self.present.clear()
            self.arriving, self._committed_at = 0, None

    def _on_training_failed(self, event: Event) -> None:
        if not self.failed_training:  # it may happen to every device in every round
            who, error = clean(event["client"]), clean(event["error"])
            self.failed_training = f"training failed on {who} in round {event['round']}: {error}"
            self.notices.append(f"problem: {self.failed_training}")

    def _on_left_out(self, event: Event) -> None:
        client, errors = clean(event["client"]), event["errors"]
        self.notices.append(f"problem: {client} is left out; its training failed {errors} times")

    def _on_restarted(self, event: Event) -> None:
        self.notices.append(f"{clean(event['process'])} was restarted")

    def _on_fault_planned(self, event: Event) -> None:
        self._occurrence(event, 1).do = clean(event["do"])

    def _on_fault_applied(self, event: Event) -> None:
        fault = self._fault(event, f"applied to {_targets(event['targets'])}")
        fault.state, fault.acting = FaultState.APPLIED, True
        fault.targets, fault.first, fault.healed = event["targets"], event.get("round"), None

    def _on_fault_observed(self, event: Event) -> None:
        fault = self._fault(event, f"observed: {clean(event['seen'])}")
        fault.state, fault.seen = FaultState.OBSERVED, clean(event["seen"])

    def _on_fault_healed(self, event: Event) -> None:
        lasted = event.get("with_run")
        fault = self._fault(event, "lasted to the end" if lasted else "healed")
        fault.acting = False
        if not lasted:
            fault.healed = event.get("round")
            fault.state = FaultState.HEALED
        if (fault.fault, fault.number + 1) in self.faults:
            fault.targets = ()

    def _on_fault_verified(self, event: Event) -> None:
        self._fault(event, "verified to be over").state = FaultState.VERIFIED

    def _fault(self, event: Event, what: str) -> FaultProgress:
        """The occurrence that an event is about, after the notice that `what` has happened."""
        if event["number"] == 1:  # a fault may come and go a thousand times
            self.notices.append(f"fault {clean(event['fault'])}: {what}")
        return self._occurrence(event, event["number"])

    def _occurrence(self, event: Event, number: int) -> FaultProgress:
        name = clean(event["fault"])
        if (name, number) not in self.faults:
            first, previous = (self.faults.get((name, each)) for each in (1, number - 1))
            if previous is not None and not previous.acting:
                previous.targets = ()
            self.faults[name, number] = FaultProgress(
                name, number, first.do if first else "", FaultState.PLANNED, event["targets"],
                event.get("round"),
            )  # fmt: skip
        return self.faults[name, number]

    def _on_disk_ran_full(self, event: Event) -> None:
        what, reason = clean(event["what"]), clean(event["reason"])
        self.notices.append(f"problem: {what} could not be written ({reason}); waiting for room")

    def _on_disk_has_room(self, event: Event) -> None:
        self.notices.append(f"there is room on the disk again, after {event['seconds']:.0f} s")

    def _on_ended(self, event: Event) -> None:
        self._goes_on()
        self.status, self.detail = clean(event["status"]), clean(event["detail"] or "")
        self.bytes_up += event["bytes_up"]
        self.bytes_down += event["bytes_down"]
        self.arriving = 0


def _targets(targets: Sequence[str]) -> str:
    """The targets of a fault, for a person."""
    return clean(targets[0]) if len(targets) == 1 else f"{len(targets)} targets"


_HANDLERS: dict[str, Callable[[RunProgress, Event], None]] = {
    name.removeprefix("_on_"): method
    for name, method in vars(RunProgress).items()
    if name.startswith("_on_")
}
"""The method `_on_NAME` of every event called NAME that is handled."""
