"""By how much slow start delays a transfer.

A connection may have a window of bytes under way, which doubles in each round trip. It waits for
acknowledgements until the window is as large as the link is fast and long. Cardwell, Savage,
Anderson, Modeling TCP latency, INFOCOM 2000, extend this model to losses.
"""

import math


def slow_start_s(nbytes: float, bps: float | None, rtt_s: float, window: float) -> float:
    """Seconds for which a transfer of `nbytes` waits for acknowledgements.

    Args:
        bps: the rate of the link, bits per second; None: no limit.
        window: bytes that may leave in the first round trip.
    """
    if not rtt_s or nbytes <= window:
        return 0.0
    # The round trip, counted from 0, in which the last byte leaves on a link without a limit.
    rounds = math.ceil(math.log2(nbytes / window + 1)) - 1
    if bps is None:
        return rounds * rtt_s
    full = 8 * window / (bps * rtt_s)  # how full the first window makes the link
    rounds = min(rounds, max(0, math.ceil(-math.log2(full))))
    return rounds * rtt_s - 8 * window * (2.0**rounds - 1) / bps
