"""The simulated devices of a group, with their work, as a plan computes them."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from muster.client.life.effort import Effort
from muster.client.life.settings import Life, PackMember
from muster.client.life.simulation import DeviceSimulation
from muster.client.life.states import CODE, Decided
from muster.common.exchange import Reason
from muster.common.seeds import BoolArray, IntArray
from muster.common.shared_lines import SharedLine, granted
from muster.emulator.planning.result import Learning
from muster.emulator.scenario.scenario import Scenario
from muster.emulator.scenario.settings import Group


class CallResults(NamedTuple):
    """What called devices of a group do.

    Attributes:
        called: the places of the called devices, ascending.
        verdict: of all devices, as if every one was called.
        effort: the work of all devices.
    """

    called: IntArray
    verdict: Decided
    effort: Effort

    @property
    def codes(self) -> IntArray:
        """The results of the called devices, indices into VERDICTS."""
        return self.verdict.code[self.called]

    @property
    def accepted(self) -> BoolArray:
        """Whether the called devices accept."""
        return self.verdict.accepted[self.called]

    @property
    def delivering(self) -> IntArray:
        """The places of the devices that send an update."""
        return np.asarray(self.called[self.codes == 0])


class GroupLives(NamedTuple):
    """Some devices of a group.

    Attributes:
        name: the name of the group.
        seed: of the scenario.
        members: the devices; the other sequences and arrays are in their order.
        devices: their simulation.
        shared: the model of the link that they share.
        effort: their work in a round that begins at scenario second 0, without faults that slow
            them down.
        first: the place of the first of them among the enrolled devices of the group.
    """

    name: str
    seed: int
    members: Sequence[PackMember]
    devices: DeviceSimulation
    shared: SharedLine
    effort: Effort
    first: int = 0

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        group: Group,
        life: Life,
        members: Sequence[PackMember],
        learning: Learning,
        ahead: int = 64,
        first: int = 0,
    ) -> Self:
        """The lives of these members of a group.

        Args:
            life: the settings of the whole group.
            ahead: number of steps for which random numbers are drawn at once.
            first: the place of the first member among the enrolled devices of the group.
        """
        beings = [member.being() for member in members]
        lives = DeviceSimulation(life, scenario.seed, beings, ahead=ahead)
        effort, shared = learning.effort(scenario, group, members), group.shared_line(scenario.seed)
        return cls(group.name, scenario.seed, members, lives, shared, effort, first)

    @property
    def clients(self) -> list[str]:
        """The names of the devices."""
        return [member.client for member in self.members]

    def call(self, round: int, step: int, called: IntArray) -> CallResults:
        """Call devices in a round that opens at a step of their lives. Those that accept work.

        Args:
            called: their places, ascending.
        """
        effort = self.devices.effort_at(step, self.effort)
        verdict = self._with_slots(round, called, self.devices.decide(step, effort))
        self.devices.take_part(called[verdict.accepted[called]], verdict, effort)
        return CallResults(called, verdict, effort)

    def _with_slots(self, round: int, called: IntArray, verdict: Decided) -> Decided:
        """The verdict after channel slots were assigned, if there are fewer than accepting devices.

        Devices without a slot no longer accept, with the reason that their slot was taken.
        """
        if self.shared.slots is None or self.shared.overflow == "queue":
            return verdict
        clients = self.clients
        active = [int(place) for place in called if verdict.accepted[place]]
        competing = {clients[place] for place in active}
        through = granted(self.shared, self.seed, self.name, round, competing)
        denied = [place for place in active if clients[place] not in through]
        code, accepted = verdict.code.copy(), verdict.accepted.copy()
        code[denied], accepted[denied] = CODE[Reason.SLOT_TAKEN], False
        return Decided(code, accepted, verdict.share)
