"""Every device may be away in an interval of rounds of its own."""

from collections.abc import Iterator, Mapping, Sequence

from muster.laboratory.worst_case.families.contract import Keys, SetsAway
from muster.laboratory.worst_case.schedule import FaultlessRun


class Outages(SetsAway):
    """A set is a single device."""

    def sets(self, course: FaultlessRun) -> Mapping[str, Sequence[str]]:
        return {client: [client] for client in course.clients}

    def simple(self, course: FaultlessRun) -> Iterator[Keys]:
        yield from ()
