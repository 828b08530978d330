"""The contract of a mode, which has no I/O and no clock.

The server works in rounds in every mode: a round begins with calls and ends when its updates are
folded into the next version. An *assignment* is the work that one call gives to one device. The
mode decides whether an assignment may outlive the round of its call. In lockstep an update counts
by its modelled finish, in scenario seconds; on the other clocks it counts when it arrives.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from muster.common.plugins import Plugin
from muster.server.rounds.selection import Candidate, Draws, Selection

_VERY_STALE = 1_000_000


class Completion(NamedTuple):
    """The conditions that complete a round.

    Attributes:
        goal: the number of updates that count at most; on the wall clock the round closes when it
            is reached. None: all that came.
        window_s: the longest duration of the round; None: it has no end of its own. Updates that
            finish later stay open.
        deadline_s: the longest modelled duration of an assignment, after which its update is late;
            None: no limit.
        least: if fewer updates could count, none does, and they wait for a later round.
        each: whether the round also ends when one more update has finished, so that another device
            can be called; with fewer than `least` updates, it makes no version.
    """

    goal: int | None = None
    window_s: float | None = None
    deadline_s: float | None = None
    least: int = 0
    each: bool = False


class ModeConditions(NamedTuple):
    """The conditions under which a scenario makes a mode work.

    Attributes:
        devices: number of devices that may take part.
        minimum: the fewest updates with which a round is not empty.
        deadline_s: `server.deadline_s`.
        round_s: scenario seconds of a step of device life.
        shared: whether links that devices share delay transfers.
        slots: whether they deny or queue transfers.
        modelled: whether rounds last as long as their modelled work.
    """

    selection: Selection
    devices: int
    lockstep: bool
    minimum: int = 1
    deadline_s: float | None = None
    round_s: float = 60.0
    shared: bool = False
    slots: bool = False
    modelled: bool = False


class RoundEnd(NamedTuple):
    """The end of a round in lockstep, for the time at which the next one opens.

    Attributes:
        number: the number of the round, from 1.
        opened_s: scenario seconds at which it opened.
        finished_s: the modelled finishes of the updates that counted, in scenario seconds.
        untried: whether it called some devices, and others remain that it could have called.
        open_s: the modelled finishes of the updates that stay open, in scenario seconds.
        closed_s: on the clock `modelled`, scenario seconds at which it closed; else None.
    """

    number: int
    opened_s: float
    finished_s: Sequence[float]
    untried: bool
    open_s: Sequence[float] = ()
    closed_s: float | None = None

    def next_s(self, round_s: float) -> float:
        """Scenario seconds at which the next round opens if the clock decides: with `rounds` every
        `round_s` seconds, with `modelled` when this one has closed."""
        return self.number * round_s if self.closed_s is None else self.closed_s


MOST_BARREN = 10_000
"""The most rounds in a row without a version, if the mode counts versions."""


class Mode(Plugin):
    """A mode. Its settings are its fields."""

    carries: ClassVar[bool]
    """No longer in use: `Carrying` says it now."""

    counts_versions: ClassVar[bool] = False
    """Whether `server.rounds` and `evaluate_every` count versions instead of rounds."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse `carries`.

        Raises:
            TypeError: the class sets it.
        """
        super().__init_subclass__(**kwargs)
        if "carries" in vars(cls):
            raise TypeError(
                f"{cls.__name__} sets carries, which its base says now; if its updates may count "
                f"in a later round, derive it from "
                f"muster.server.rounds.modes.carrying.Carrying, and leave carries out"
            )

    def outlives_round(self) -> bool:
        """Whether an assignment may outlive the round of its call."""
        return False

    def draws_devices(self) -> bool:
        """Whether the mode itself decides how many devices work, and the server draws them."""
        return False

    def calls_whom_it_selects(self) -> bool:
        """Whether every round calls exactly the devices that `server.selection` draws for it,
        independently of the rounds before. The account of privacy relies on it."""
        return False

    @abstractmethod
    def completion(self, goal: int | None, deadline_s: float | None) -> Completion:
        """What completes a round.

        Args:
            goal: the goal of the scenario, or of its selection.
            deadline_s: `server.deadline_s`.
        """

    @abstractmethod
    def next_s(self, ended: RoundEnd, round_s: float) -> float:
        """In lockstep, scenario seconds at which the next round opens.

        Args:
            round_s: scenario seconds of a step of device life.
        """

    def wanted(
        self, candidates: Sequence[Candidate], open: int, selection: Selection, draws: Draws
    ) -> list[str]:
        """The clients to call at the beginning of a round, in the order of `candidates`.

        Args:
            candidates: the devices that can be called.
            open: the number of assignments that earlier rounds left open. If rounds end at each
                finish (`Completion.each`), those whose work has finished are not counted.
            draws: makes the random stream of the round.
        """
        return selection.select(candidates, draws)

    def oldest(self) -> int | None:
        """The largest staleness with which an update counts; None: any."""
        return None

    def discount(self, staleness: int) -> float:
        """The factor by which the weight of an update falls because it is stale; 1 if it is not."""
        return 1.0

    def discounts(self) -> bool:
        """Whether any update that counts has a discount below 1. The discount does not rise with
        the staleness."""
        oldest = self.oldest()
        return (
            self.outlives_round() and self.discount(_VERY_STALE if oldest is None else oldest) != 1
        )

    def refusals(self, conditions: ModeConditions) -> Iterator[str]:
        """Yield the reasons why the mode cannot work under these conditions; none if it can."""
        yield from ()
