"""The fault `reordered`."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from muster.client.faults.contract import DamagedUpdate
from muster.common.exchange import Body


class ReorderedUpdate(DamagedUpdate):
    """The pieces of the update arrive in another order, as from a client that sends them side by
    side. All numbers are finite and their count is right, so only the checksum of the body shows
    that they stand in wrong places. The device sends the update again in its right order, so the
    model does not change."""

    pieces: Annotated[int, Field(ge=2, le=1_000)] = 4
    """Into how many pieces of about equal length the body is cut; at most one per number."""

    def damage(self, body: Body, draws: np.random.Generator) -> Sequence[Body]:
        """Bodies of pieces in other orders; none if the update is the same in every order."""
        numbers = np.frombuffer(body, np.uint8)
        width = 4 if len(numbers) % 4 == 0 else 1
        parts = np.array_split(numbers.reshape(-1, width), min(self.pieces, len(numbers) // width))
        found = []
        for _ in range(self.times):
            # A rotation leaves no piece in its place.
            turn = int(draws.integers(1, len(parts))) if len(parts) > 1 else 0
            turned = np.concatenate([*parts[turn:], *parts[:turn]]).tobytes()
            if turned != bytes(body):
                found.append(turned)
        return found
