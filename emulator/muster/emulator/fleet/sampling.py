"""Whether a scenario draws its devices so that the account of privacy may claim amplification."""

from muster.emulator.scenario.scenario import Scenario
from muster.server.rounds.selection import UniformSelection
from muster.server.settings.privacy import DeviceSampling


def sample_of(scenario: Scenario, enrolled: int) -> DeviceSampling | None:
    """How the devices of each round are drawn; None unless it is known that they are a fixed
    number, drawn uniformly from all enrolled devices and independently of the rounds before.

    Whoever decides about taking part besides the server breaks this. So it holds only for
    synchronous rounds in lockstep without a deadline or a goal, in which every device that is
    called takes part. The caller makes sure that no device has a simulated life.
    """
    server, selection = scenario.server, scenario.server.selection
    if type(selection) is not UniformSelection or selection.over_selection != 1:
        return None
    free = server.deadline_s is None and server.round_goal() is None
    slots = any(group.shared_link.slots is not None for group in scenario.groups)
    drawn = server.mode.calls_whom_it_selects() and scenario.clock.lockstep
    if not (free and drawn) or slots:
        return None
    return DeviceSampling(size=min(selection.k, enrolled), devices=enrolled)
