"""The simulated devices of a group, with their work, as a plan computes them."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from muster.client.config import PackMember
from muster.client.device_simulation import DeviceSimulation
from muster.client.life import Effort, Life
from muster.common.lines import LinkModel
from muster.emulator.experiments.planning.result import Learning
from muster.emulator.fleet.lives import line_of
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
