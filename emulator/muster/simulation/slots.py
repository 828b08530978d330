"""The channel slots of simulated groups: the gateway's allocator, without a gateway."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext

from muster.common.exchange import Call
from muster.common.shared_lines import SharedLine
from muster.emulator.gateway.slots import DeviceRound, SlotAllocator


class SimulatedSlots:
    """Grants the slots of one group to its devices, which contend in rounds.

    Devices that wait for a slot in turn (overflow "queue") need a gateway, because a transfer takes
    no time here.
    """

    def __init__(self, shared: SharedLine, seed: int, group: str) -> None:
        self._allocator = SlotAllocator(shared, seed, group)
        self._asked: dict[DeviceRound, asyncio.Future[bool]] = {}

    async def contend(self, call: Call, active: bool) -> bool:
        """Record whether a device wants to transfer in a round; return whether it may.

        The answer comes when all called devices of the group have asked.
        """
        client, round = call.key.client, call.key.round
        asked = self._asked.setdefault((round, client), asyncio.get_running_loop().create_future())
        decided = self._allocator.contend(round, client, active, call.called_in_group)
        for device_round, granted in decided.items():
            told = self._asked.pop(device_round, None)
            if told is not None and not told.done():
                told.set_result(granted)
        return await asyncio.shield(asked)  # a device that breaks off may ask again

    def turn(self, call: Call) -> AbstractAsyncContextManager[float]:
        """Hold a slot during a transfer, which was granted by `contend`; it waited for 0 s."""
        return nullcontext(0.0)

    def close(self) -> None:
        """A device leaves. Its decisions stay."""


def slots_of(shared: Mapping[str, SharedLine], seed: int) -> dict[str, SimulatedSlots]:
    """The slots of every group that has some, by its name."""
    return {
        group: SimulatedSlots(line, seed, group)
        for group, line in shared.items()
        if line.slots is not None and line.overflow != "queue"
    }
