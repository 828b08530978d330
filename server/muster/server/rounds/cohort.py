"""The members of a round's cohort."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from muster.common.exchange import Answer, Update


class WorkTime(NamedTuple):
    """When the modelled work of an assignment begins and ends, in lockstep.

    Attributes:
        round: the round of the call.
        begun_s: scenario seconds at which the device was called.
        modelled_s: modelled seconds of the work.
        end_s: scenario seconds at which it ends.
    """

    round: int
    begun_s: float
    modelled_s: float
    end_s: float

    def delayed(self, seconds: float) -> "WorkTime":
        """The time of work that takes longer by some seconds."""
        return self._replace(modelled_s=self.modelled_s + seconds, end_s=self.end_s + seconds)


@dataclass(slots=True)
class CohortMember:
    """A device of the round's cohort, with its answer and its update.

    Attributes:
        round: the round of its call. It is older than the round that has it in its cohort if that
            round has taken it over.
        base_version: the version that it trains from.
        begun_s: in lockstep, scenario seconds at which it was called.
        step: in lockstep, the step of its life at which it was called.
        attempt: the number of its newest call; 0 before the first.
        overtaken: its update arrived before its answer, and `answer` is a placeholder until then.
        accepted: its accepted update, if there is one.
        late: in lockstep, an update that missed the deadline even without shared links.
        spoke: the round expects nothing more of it: it declined, gave up, or its update was judged.
        ended: its update can no longer count, because it would be too old.
        entered: its answer is entered in the account, with `entered_bytes` of `model_bytes`.
        model_bytes: bytes of the models that it got inside the messages that called it.
        claimed_bytes: the part of `model_bytes` that has been charged to an update.
    """

    round: int
    base_version: int
    begun_s: float = 0.0
    step: int = 0
    attempt: int = 0
    answer: Answer | None = None
    overtaken: bool = False
    accepted: Update | None = None
    late: Update | None = None
    spoke: bool = False
    ended: bool = False
    entered: bool = False
    entered_bytes: int = 0
    model_bytes: int = 0
    claimed_bytes: int = 0

    def claim(self) -> int:
        """Charge the model bytes that no update has been charged with yet; return their number."""
        claimed = self.model_bytes - self.claimed_bytes
        self.claimed_bytes = self.model_bytes
        return claimed

    def enter(self) -> int:
        """Record that the answer is entered; return the model bytes that were not entered yet."""
        new = self.model_bytes - self.entered_bytes
        self.entered, self.entered_bytes = True, self.model_bytes
        return new

    @property
    def alone(self) -> WorkTime | None:
        """In lockstep, the time of its work if it had its link for itself; None before its update
        has arrived."""
        update = self.accepted or self.late
        if update is None:
            return None
        end_s = self.begun_s + update.modelled_s
        return WorkTime(self.round, self.begun_s, update.modelled_s, end_s)

    @property
    def works(self) -> bool:
        """Whether the device may still give an update, or has given one that has not counted."""
        return self.accepted is not None or not self.spoke


def times_alone(cohort: Mapping[str, CohortMember]) -> dict[str, WorkTime]:
    """In lockstep, the time of the work of every update that arrived, by client, as if every device
    had its link for itself."""
    return {client: time for client, member in cohort.items() if (time := member.alone)}
