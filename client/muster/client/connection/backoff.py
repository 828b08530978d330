"""How long to wait before trying again: exponential, with full jitter.

Full jitter (a uniform draw between 0 and the cap) spreads a crowd best: Brooker, Exponential
backoff and jitter, AWS Architecture Blog, 2015.
"""

import numpy as np

FIRST_S = 0.1
LONGEST_S = 5.0


class Backoff:
    """Waiting times between tries.

    Args:
        draws: a random stream of the device's own.
    """

    def __init__(self, draws: np.random.Generator) -> None:
        self._draws = draws
        self._cap_s = FIRST_S

    def next_s(self) -> float:
        """Seconds to wait before the next try."""
        cap, self._cap_s = self._cap_s, min(LONGEST_S, 2 * self._cap_s)
        return float(self._draws.uniform(0.0, cap))

    def reset(self) -> None:
        """Begin with short waits again, after a success."""
        self._cap_s = FIRST_S
