"""The fault `corrupt`."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.client.faults.contract import DamagedUpdate
from muster.common.exchange import Body


class CorruptUpdate(DamagedUpdate):
    """Bytes of the update are flipped on its way, as by a faulty network card: TCP's checksum of 16
    bits misses one such packet in 65,536 or so (Stone and Partridge, When the CRC and TCP checksum
    disagree, SIGCOMM 2000). The server recognises the damage by the checksum of the body, and the
    device sends it again, so the model does not change."""

    flipped_bytes: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """How many bytes of the body are changed, at random places; at most all of them."""

    def damage(self, body: Body, draws: np.random.Generator) -> Sequence[Body]:
        found = []
        for _ in range(self.times):
            changed = np.frombuffer(body, np.uint8).copy()
            count = min(self.flipped_bytes, len(changed))
            places = draws.choice(len(changed), size=count, replace=False)
            changed[places] ^= draws.integers(1, 256, size=count, dtype=np.uint8)
            found.append(changed.tobytes())
        return found
