"""The row of the table `run` of a ledger."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunRow:
    """The one row of the table `run`.

    Attributes:
        status: None while the run goes on, or if its server was killed.
        started_at: start of the first incarnation, in UNIX seconds.
        began_at: scenario time 0 in UNIX seconds, on the wall and scaled clocks.
        population: number of devices, including those that the server does not know.
        bytes_up, bytes_down: bytes of bodies that belong to no committed round.
    """

    id: str
    incarnation: int
    status: str | None
    detail: str | None
    started_at: float
    ended_at: float | None
    began_at: float | None
    population: int
    bytes_up: int
    bytes_down: int
