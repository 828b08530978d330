"""The simulated devices of a group, with their work, as a plan computes them."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from muster.client.life.effort import Effort
from muster.client.life.settings import Life, PackMember
from muster.client.life.simulation import DeviceSimulation
from muster.client.life.states import CODE, Decided
from muster.common.exchange import Reason
from muster.common.lines import LinkModel, SharedLine, granted
from muster.common.seeds import IntArray
from muster.emulator.fleet.lives import line_of
from muster.emulator.planning.result import Learning
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group


class GroupLives(NamedTuple):
    """Some devices of a group.

    Attributes:
        members: the devices; the other sequences and arrays are in their order.
        devices: their simulation.
        lines: the models of their links.
        effort: their work in a round, without faults that slow them down.
    """

    members: Sequence[PackMember]
    devices: DeviceSimulation
    lines: Sequence[LinkModel]
    effort: Effort

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        group: Group,
        life: Life,
        members: Sequence[PackMember],
        learning: Learning,
        ahead: int = 64,
    ) -> Self:
        """The lives of these members of a group.

        Args:
            life: the settings of the whole group.
            ahead: number of steps for which random numbers are drawn at once.
        """
        beings = [member.being() for member in members]
        lives = DeviceSimulation(life, scenario.seed, beings, ahead=ahead)
        lines = [line_of(scenario, group, member.client) for member in members]
        return cls(members, lives, lines, learning.effort(scenario, group, members, lines))

    @property
    def clients(self) -> list[str]:
        """The names of the devices."""
        return [member.client for member in self.members]


def with_slots(
    shared: SharedLine,
    seed: int,
    group: str,
    clients: Sequence[str],
    round: int,
    called: IntArray,
    verdict: Decided,
) -> Decided:
    """The verdict of a group's devices after channel slots were assigned, if there are fewer than
    accepting devices.

    Devices without a slot no longer accept, with the reason that their slot was taken.
    """
    if shared.slots is None or shared.overflow == "queue":
        return verdict
    active = [int(place) for place in called if verdict.accepted[place]]
    through = granted(shared, seed, group, round, {clients[place] for place in active})
    denied = [place for place in active if clients[place] not in through]
    code, accepted = verdict.code.copy(), verdict.accepted.copy()
    code[denied], accepted[denied] = CODE[Reason.SLOT_TAKEN], False
    return Decided(code, accepted, verdict.share)
